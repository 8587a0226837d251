"""aiohttp: `ClientSession._request`, through which every request goes, and the reader of the answer's bytes.

`_request` has no public form; OpenTelemetry's and other instrumentations wrap it, and it has not changed since 2014.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from aiohttp.client_exceptions import ClientResponseError
from aiohttp.payload import BytesIOPayload, BytesPayload
from aiohttp.streams import StreamReader

from endturn.instrumentation.exchange import Exchange
from endturn.instrumentation.http_clients import wrap


def patch(library: ModuleType) -> list[Callable[[], None]]:
    """Wrap the sending method of the sessions, in `aiohttp.client`."""
    owner = library.ClientSession
    return [wrap(owner, "_request", where=_where, read=_read, answered=_answered, told=_told, is_async=True)]


def _where(session: Any, method: str, url: Any, **kwargs: object) -> tuple[str, str]:
    return method.upper(), str(url)


def _read(
    session: Any, method: str, url: Any, *, data: Any = None, json: Any = None, **_: object
) -> tuple[str, object]:
    where, base = str(url), getattr(session, "_base_url", None)  # aiohttp says nowhere else what a URL is joined to
    if base is not None and "://" not in where:
        where = f"{base.origin()}{where}" if where.startswith("/") else f"{str(base).rstrip('/')}/{where}"
    if isinstance(data, BytesPayload | BytesIOPayload):
        data = data.decode()  # what is sent is taken from its beginning again
    return where, json if data is None else data


def _told(error: BaseException) -> tuple[Any, ...]:
    return (error.status, error.headers or {}, b"") if isinstance(error, ClientResponseError) else ()


def _answered(exchange: Exchange, response: Any, session: Any, kwargs: dict[str, Any]) -> None:
    if exchange.answered(response.status, response.headers):
        if session.auto_decompress:
            exchange.comes_unpacked()
        response.content = Reader(response.content, exchange)


class Reader:
    """Stands before a response's reader, and tells an exchange what is read."""

    def __init__(self, inner: Any, exchange: Exchange) -> None:
        self._inner = inner
        self._exchange = exchange

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # a copy that was never initialised
            raise AttributeError(name)
        return getattr(self._inner, name)

    def _seen(self, found: Any) -> Any:
        chunk = found[0] if isinstance(found, tuple) else found
        if chunk:
            self._exchange.feed(chunk)
        if self._inner.at_eof():
            self._exchange.end()
        return found

    def set_exception(self, error: BaseException, *args: Any) -> None:
        """The response is closed, or released unread."""
        self._exchange.left()
        self._inner.set_exception(error, *args)

    def read_nowait(self, n: int = -1) -> bytes:
        found: bytes = self._seen(self._inner.read_nowait(n))
        return found

    # They call the methods below.
    __aiter__ = StreamReader.__aiter__
    iter_any = StreamReader.iter_any
    iter_chunked = StreamReader.iter_chunked
    iter_chunks = StreamReader.iter_chunks


def _leaf(name: str) -> Any:
    async def read(self: Reader, *args: Any, **kwargs: Any) -> Any:
        try:
            found = await getattr(self._inner, name)(*args, **kwargs)
        except BaseException as error:
            # A line that is too long for its reader is no end. A session's timeout does not reach the reader.
            is_lost = isinstance(error, TimeoutError) or self._inner.exception() is not None
            if not isinstance(error, Exception) or is_lost:
                self._exchange.cut(error)
            raise
        return self._seen(found)

    return read


for name in ("read", "readany", "readline", "readchunk", "readexactly", "readuntil"):
    setattr(Reader, name, _leaf(name))
