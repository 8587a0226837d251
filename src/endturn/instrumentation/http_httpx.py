"""httpx and httpx2: `Client.send`, `AsyncClient.send`, and the byte stream that every way of reading takes from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

from endturn.instrumentation.exchange import Exchange
from endturn.instrumentation.http_clients import wrap
from endturn.instrumentation.tee import AsyncTee, tee


def patch(library: ModuleType) -> list[Callable[[], None]]:
    """Wrap the sending methods of both clients."""
    kinds = library.SyncByteStream, library.AsyncByteStream

    def answered(exchange: Exchange, response: Any, client: Any, kwargs: dict[str, Any]) -> None:
        if not response.is_closed:
            if exchange.answered(response.status_code, response.headers):
                inner = response.stream
                response.stream = _body(*(kind for kind in kinds if isinstance(inner, kind)))(inner, exchange)
        elif exchange.answered(response.status_code, response.headers):
            content = _content(response)
            if content is None:
                exchange.left()  # an event hook closed it
            else:
                exchange.whole(content)

    how: Any = {"where": _where, "read": _read, "answered": answered, "told": _told}
    return [wrap(library.Client, "send", **how), wrap(library.AsyncClient, "send", is_async=True, **how)]


def _where(client: Any, request: Any, **kwargs: Any) -> tuple[str, str]:
    return request.method, request.url.raw_path.decode("ascii")


def _read(client: Any, request: Any, **kwargs: Any) -> tuple[str, object]:
    return str(request.url), _content(request)


def _told(error: BaseException) -> tuple[Any, ...]:
    """What an event hook raised for the status of an answer; and that one had begun which was lost as it was read."""
    answer = getattr(error, "response", None)
    if answer is not None and isinstance(status := getattr(answer, "status_code", None), int):
        return status, answer.headers, _content(answer) or b""
    return (200, {}, b"") if "complete message body" in str(error) else ()  # h11's words, and nothing else tells


def _content(message: Any) -> bytes | None:
    """The body of a request or a response where it is in memory; asking for another reads nothing."""
    try:
        found: bytes = message.content
    except RuntimeError:  # each library has its own
        return None
    return found


@cache
def _body(*kinds: type) -> type:
    """A byte stream of the library's kinds, that tells an exchange what passes. What else the stream has, it has."""

    class Body(*kinds):  # type: ignore[misc]  # either library's
        def __init__(self, inner: Any, exchange: Exchange) -> None:
            self._inner = inner
            self._exchange = exchange

        def __getattr__(self, name: str) -> Any:
            if name == "_inner":  # a copy that was never initialised
                raise AttributeError(name)
            return getattr(self._inner, name)

        def __iter__(self) -> Iterator[bytes]:
            return tee(self._inner, self._exchange)

        def __aiter__(self) -> AsyncIterator[bytes]:
            return AsyncTee(aiter(self._inner), self._exchange)

        def close(self) -> None:
            self._exchange.left()
            self._inner.close()

        async def aclose(self) -> None:
            self._exchange.left()
            await self._inner.aclose()

    return Body
