"""aiohttp: `ClientSession._request`, which sends every request, and the response's reader.

`_request` has no public form; OpenTelemetry's and other instrumentations wrap it, and it has not
changed since 2014.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import wrapt
from aiohttp.client_exceptions import ClientResponseError
from aiohttp.payload import BytesIOPayload, BytesPayload
from aiohttp.streams import StreamReader
from yarl import URL

from endturn.instrumentation.addresses import Address, ErrorResponse, Outgoing, address
from endturn.instrumentation.http_clients import HttpAdapter, wrap

if TYPE_CHECKING:
    from endturn.instrumentation.exchange import Exchange


T = TypeVar("T")


def patch(library: ModuleType) -> list[Callable[[], None]]:
    """Wrap the sending method of the sessions, in `aiohttp.client`."""
    return [wrap(library.ClientSession, "_request", AiohttpAdapter(), is_async=True)]


class AiohttpAdapter(HttpAdapter):
    """Reads what `ClientSession._request` sends and receives."""

    def target(
        self, client: Any, method: str, str_or_url: Any, *args: Any, **kwargs: Any
    ) -> tuple[str, str]:
        return method.upper(), str(str_or_url)

    def request(
        self,
        client: Any,
        method: str,
        str_or_url: Any,
        *args: Any,
        params: Any = None,
        data: Any = None,
        json: Any = None,
        headers: Any = None,
        **kwargs: Any,
    ) -> Outgoing:
        if isinstance(data, BytesPayload | BytesIOPayload):
            data = data.decode()  # sending starts at its beginning again
        return Outgoing(
            _address(client, str_or_url, params), json if data is None else data, headers
        )

    def response(
        self, exchange: Exchange, response: Any, client: Any, kwargs: dict[str, Any]
    ) -> None:
        if not exchange.on_response(response.status, response.headers):
            return
        if client.auto_decompress:
            exchange.expect_decompressed()
        body = getattr(response, "_body", None)  # the only sign that it has been read
        if isinstance(body, bytes):  # by a middleware of the session, for instance
            exchange.feed(body)
            exchange.end()
        else:
            response.content = WatchedReader(response.content, exchange)

    def error(self, error: BaseException) -> ErrorResponse | None:
        if isinstance(error, ClientResponseError):
            return ErrorResponse(error.status, error.headers or {}, b"")
        return None


def _address(session: Any, str_or_url: Any, params: Any) -> Address | None:
    base = getattr(session, "_base_url", None)  # there is no public attribute
    try:
        url = URL(str_or_url)
        url = url if base is None or url.absolute else base.join(url)
        url = url.update_query(params) if params else url
    except (TypeError, ValueError):  # aiohttp refuses it, too
        return None
    return address(url.raw_path_qs, scheme=url.scheme, host=url.raw_host, port=url.explicit_port)


class WatchedReader(wrapt.ObjectProxy):  # type: ignore[type-arg]  # generic in its stubs alone
    """A response's reader that reports the bytes to an exchange.

    It is an instance of `StreamReader`, and has the state of the wrapped one: aiohttp itself goes
    on writing to that.
    """

    def __init__(self, reader: StreamReader, exchange: Exchange) -> None:
        super().__init__(reader)
        self._self_exchange = exchange  # a proxy keeps attributes of this prefix to itself

    def set_exception(self, *args: Any, **kwargs: Any) -> None:
        """Pass on that the response is closed, or released unread."""
        self._self_exchange.on_close()
        self.__wrapped__.set_exception(*args, **kwargs)

    async def read(self, n: int = -1) -> bytes:
        return self._report(await self._watch(self.__wrapped__.read(n)))

    async def readany(self) -> bytes:
        return self._report(await self._watch(self.__wrapped__.readany()))

    async def readline(self, **kwargs: Any) -> bytes:
        return self._report(await self._watch(self.__wrapped__.readline(**kwargs)))

    async def readuntil(self, separator: bytes = b"\n", **kwargs: Any) -> bytes:
        return self._report(await self._watch(self.__wrapped__.readuntil(separator, **kwargs)))

    async def readexactly(self, n: int) -> bytes:
        return self._report(await self._watch(self.__wrapped__.readexactly(n)))

    async def readchunk(self) -> tuple[bytes, bool]:
        chunk, is_end_of_http_chunk = await self._watch(self.__wrapped__.readchunk())
        return self._report(chunk), is_end_of_http_chunk

    def read_nowait(self, n: int = -1) -> bytes:
        return self._report(self.__wrapped__.read_nowait(n))

    # aiohttp's own iterators, which call the methods above.
    __aiter__ = StreamReader.__aiter__
    iter_any = StreamReader.iter_any
    iter_chunked = StreamReader.iter_chunked
    iter_chunks = StreamReader.iter_chunks

    async def _watch(self, reading: Awaitable[T]) -> T:
        """Await a result of the reader, and report a loss of the connection."""
        try:
            return await reading
        except BaseException as error:
            # A line that is too long for its reader is no end. A session's timeout does not reach
            # the reader.
            is_lost = isinstance(error, TimeoutError) or self.__wrapped__.exception() is not None
            if not isinstance(error, Exception) or is_lost:
                self._self_exchange.on_read_error(error)
            raise

    def _report(self, chunk: bytes) -> bytes:
        if chunk:
            self._self_exchange.feed(chunk)
        if self.__wrapped__.at_eof():
            self._self_exchange.end()
        return chunk
