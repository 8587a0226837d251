"""httpx and httpx2: `Client.send`, `AsyncClient.send`, and the byte stream that every way of reading takes from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

from endturn.announce import swallow
from endturn.instrumentation import http_exchange
from endturn.instrumentation.body import AsyncTee, UnpackWhole, tee
from endturn.instrumentation.http_clients import wrap
from endturn.instrumentation.http_exchange import Exchange


def patch(library: ModuleType) -> list[Callable[[], None]]:
    """Wrap the sending methods of both clients."""
    sync_body, async_body = _bodies(library)
    unpack = partial(_unpack, library)

    def send(wrapped: Any, client: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        exchange = _begin(args, kwargs)
        if exchange is None:
            return wrapped(*args, **kwargs)
        try:
            with exchange.sending():
                response = wrapped(*args, **kwargs)
        except BaseException as error:
            _failed(exchange, error)
            raise
        _answered(exchange, response, sync_body, unpack)
        return response

    async def asend(wrapped: Any, client: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        exchange = _begin(args, kwargs)
        if exchange is None:
            return await wrapped(*args, **kwargs)
        try:
            with exchange.sending():
                response = await wrapped(*args, **kwargs)
        except BaseException as error:
            _failed(exchange, error)
            raise
        _answered(exchange, response, async_body, unpack)
        return response

    return [wrap(library.Client, "send", send), wrap(library.AsyncClient, "send", asend)]


def _begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exchange | None:
    try:
        request = args[0] if args else kwargs["request"]
        url = request.url
        path = url.raw_path.decode("ascii")
        if not http_exchange.may_begin(request.method, path):
            return None
        return http_exchange.begin(request.method, path, host=url.host, port=url.port, content=_content(request))
    except Exception:
        swallow("looking at a request")
        return None


def _failed(exchange: Exchange, error: BaseException) -> None:
    answer = getattr(error, "response", None)  # where an event hook raised for its status
    status = getattr(answer, "status_code", None)
    if answer is None or not isinstance(status, int):
        exchange.failed(error)
    else:
        exchange.failed(error, status, answer.headers, _content(answer) or b"")


def _content(message: Any) -> bytes | None:
    """The body of a request or a response where it is in memory; asking for another reads nothing."""
    try:
        found: bytes = message.content
    except Exception:  # each library has its own
        return None
    return found


def _answered(exchange: Exchange, response: Any, body: type, unpack: UnpackWhole) -> None:
    try:
        if response.is_closed:
            if exchange.answered(response.status_code, response.headers):
                exchange.comes_unpacked()
                content = _content(response)
                if content is None:
                    exchange.left()  # an event hook closed it
                else:
                    exchange.see(content)
                    exchange.ended()
        elif exchange.answered(response.status_code, response.headers, unpack_whole=unpack):
            response.stream = body(response.stream, exchange)
    except Exception:
        exchange.unreadable()


def _unpack(library: Any, encoding: str, packed: bytes) -> bytes:
    """Unpack a body, as far as it came, by the library's decoders, which it lends as a response."""
    answer = library.Response(200, headers={"content-encoding": encoding}, content=iter([packed]))
    found = b""
    try:
        for piece in answer.iter_bytes():
            found += piece
    except library.DecodingError as error:
        if not found:
            raise ValueError(str(error)) from None
    if found == packed:
        raise ValueError("the library has no decoder")
    return found


def _bodies(library: Any) -> tuple[type, type]:
    """The library's byte streams, that tell an exchange what passes. What else the stream has, they have."""

    class Body:
        def __init__(self, inner: Any, exchange: Exchange) -> None:
            self._inner = inner
            self._exchange = exchange

        def __getattr__(self, name: str) -> Any:
            if name == "_inner":  # a copy that was never initialised
                raise AttributeError(name)
            return getattr(self._inner, name)

    class Sync(Body, library.SyncByteStream):  # type: ignore[misc]  # either library's base class
        def __iter__(self) -> Iterator[bytes]:
            return tee(self._inner, self._exchange)

        def close(self) -> None:
            self._exchange.left()
            self._inner.close()

    class Async(Body, library.AsyncByteStream):  # type: ignore[misc]  # either library's base class
        def __aiter__(self) -> AsyncIterator[bytes]:
            return AsyncTee(aiter(self._inner), self._exchange)

        async def aclose(self) -> None:
            self._exchange.left()
            await self._inner.aclose()

    return Sync, Async
