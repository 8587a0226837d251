"""httpx and httpx2: `Client.send`, `AsyncClient.send`, and the byte stream of a response."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from endturn.instrumentation.addresses import ErrorResponse, Outgoing, address
from endturn.instrumentation.http_clients import HttpAdapter, wrap
from endturn.instrumentation.tee import AsyncTee, tee

if TYPE_CHECKING:
    from endturn.instrumentation.exchange import Exchange


def patch(library: ModuleType) -> list[Callable[[], None]]:
    """Wrap the sending methods of both clients."""
    sync_stream, async_stream = _stream_classes(library)
    return [
        wrap(library.Client, "send", HttpxAdapter(sync_stream)),
        wrap(library.AsyncClient, "send", HttpxAdapter(async_stream), is_async=True),
    ]


class HttpxAdapter(HttpAdapter):
    """Reads what a client's `send` sends and receives.

    Attributes:
        watched_stream: the class of byte streams that the client's responses get.
    """

    def __init__(self, watched_stream: Callable[[Any, Exchange], Any]) -> None:
        self.watched_stream = watched_stream

    def target(self, client: Any, request: Any, *args: Any, **kwargs: Any) -> tuple[str, str]:
        return request.method, request.url.raw_path.decode("ascii")

    def request(self, client: Any, request: Any, *args: Any, **kwargs: Any) -> Outgoing:
        url = request.url
        target = address(url.raw_path, scheme=url.scheme, host=url.raw_host, port=url.port)
        return Outgoing(target, _content(request), request.headers)

    def response(
        self, exchange: Exchange, response: Any, client: Any, kwargs: dict[str, Any]
    ) -> None:
        if not response.is_closed:
            if exchange.on_response(response.status_code, response.headers):
                response.stream = self.watched_stream(response.stream, exchange)
        elif exchange.on_response(response.status_code, response.headers, is_read=True):
            content = _content(response)
            if content is None:
                exchange.on_close()  # an event hook closed it
            else:
                exchange.feed_all(content)

    def error(self, error: BaseException) -> ErrorResponse | None:
        # An event hook raised it for the response's status; or a response had begun, and its
        # connection was lost.
        response = getattr(error, "response", None)
        if response is not None and isinstance(
            status := getattr(response, "status_code", None), int
        ):
            return ErrorResponse(status, response.headers, _content(response) or b"")
        # h11's message is the only sign.
        return ErrorResponse(200, {}, b"") if "complete message body" in str(error) else None


def _content(message: Any) -> bytes | None:
    """Return the body of a request or a response, or None if it is not in memory.

    This reads nothing.
    """
    try:
        content: bytes = message.content
    except RuntimeError:  # each library has its own
        return None
    return content


def _stream_classes(library: Any) -> tuple[type[Any], type[Any]]:
    """Return the classes of watched byte streams, for `Client` and `AsyncClient`.

    They derive from the library's own, because its responses ask `isinstance` before they read. Any
    attribute that these classes do not have is the wrapped stream's.
    """

    class WatchedSyncStream(library.SyncByteStream):  # type: ignore[misc]  # httpx's or httpx2's
        def __init__(self, stream: Any, exchange: Exchange) -> None:
            self._stream = stream
            self._exchange = exchange

        def __getattr__(self, name: str) -> Any:
            if name == "_stream":  # of a copy that was never initialised
                raise AttributeError(name)
            return getattr(self._stream, name)

        def __iter__(self) -> Iterator[bytes]:
            return tee(self._stream, self._exchange)

        def close(self) -> None:
            self._exchange.on_close()
            self._stream.close()

    class WatchedAsyncStream(library.AsyncByteStream):  # type: ignore[misc]  # httpx's or httpx2's
        def __init__(self, stream: Any, exchange: Exchange) -> None:
            self._stream = stream
            self._exchange = exchange

        def __getattr__(self, name: str) -> Any:
            if name == "_stream":  # of a copy that was never initialised
                raise AttributeError(name)
            return getattr(self._stream, name)

        def __aiter__(self) -> AsyncIterator[bytes]:
            return AsyncTee(aiter(self._stream), self._exchange)

        async def aclose(self) -> None:
            self._exchange.on_close()
            await self._stream.aclose()

    return WatchedSyncStream, WatchedAsyncStream
