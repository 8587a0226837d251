"""urllib3, under requests and botocore: `HTTPConnectionPool.urlopen`. Its own retries call it again, within."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.client import IncompleteRead
from types import ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary

from endturn.instrumentation.exchange import Exchange
from endturn.instrumentation.http_clients import wrap
from endturn.instrumentation.tee import tee

_PORTS: Final = {"http": 80, "https": 443}


def patch(library: ModuleType) -> list[Callable[[], None]]:
    """Wrap the sending method of the pools, in `urllib3.connectionpool`."""
    return [wrap(library.HTTPConnectionPool, "urlopen", where=_where, read=_read, answered=_answered, told=_told)]


def _where(pool: Any, method: str, url: str, *args: object, **kwargs: object) -> tuple[str, str]:
    return method, url


def _read(pool: Any, method: str, url: str, body: object = None, *args: object, **kwargs: object) -> tuple[str, object]:
    if not url.startswith("/"):
        return url, body  # a proxy is told where it goes
    port = "" if pool.port in (None, _PORTS.get(pool.scheme)) else f":{pool.port}"
    return f"{pool.scheme}://{pool.host}{port}{url}", body


def _told(error: BaseException) -> tuple[Any, ...]:
    """That an answer had begun, which was lost as it was read."""
    return (200, {}, b"") if any(isinstance(cause, IncompleteRead) for cause in error.args) else ()


def _answered(exchange: Exchange, response: Any, pool: Any, kwargs: dict[str, Any]) -> None:
    if not exchange.answered(response.status, response.headers):
        return
    if kwargs.get("preload_content", True):
        exchange.whole(response.data)
    else:
        watch(response, exchange)


# --- Responses that are read like files, the standard library's too --------------------------------------------------

_exchanges: WeakKeyDictionary[Any, Exchange] = WeakKeyDictionary()
"""By watched response, but while one of its methods is at work: what that calls is part of it."""


def watch(response: Any, exchange: Exchange) -> None:
    """Have the exchange told what is read of a response from now on, and how that ends.

    The response becomes an object of a subclass, with the public methods that give bytes overridden: something that
    only stands for it would fail `isinstance`, and miss what is read by another way. It is the one object of a host's
    that is changed.
    """
    kind: Any = type(response)
    response.__class__ = _watched(kind)
    _exchanges[response] = exchange


@contextmanager
def _at_work(response: Any) -> Iterator[Exchange | None]:
    """Around the work of a response's method: the exchange that it is to tell; None of a copy, or within another."""
    exchange = _exchanges.pop(response, None)
    try:
        yield exchange
    finally:
        if exchange is not None:
            _exchanges[response] = exchange


@cache
def _watched(kind: Any) -> type:
    """The subclass of a class of responses whose objects are watched."""

    def leaf(name: str) -> Any:
        def read(self: Any, *args: Any, **kwargs: Any) -> Any:
            amount: Any = args[0] if args else kwargs.get("amt")
            with _at_work(self) as exchange:
                try:
                    found = getattr(kind, name)(self, *args, **kwargs)
                except BaseException as error:
                    if exchange is not None:
                        exchange.cut(error)
                    raise
            if exchange is None or amount == 0:
                return found
            chunk = bytes(memoryview(amount)[:found]) if name == "readinto" else found
            if _decodes(self, args, kwargs):
                exchange.comes_unpacked()
            if chunk:
                exchange.feed(chunk)
            # What a decoder still holds of a compressed body comes after the connection has given all.
            is_plain = not self.headers.get("content-encoding")
            to_the_end = name == "read" and (amount is None or amount < 0)
            if to_the_end or not chunk or (is_plain and self.isclosed()):
                exchange.end()
            return found

        return read

    def read_chunked(self: Any, *args: Any, **kwargs: Any) -> Iterator[bytes]:
        chunks = kind.read_chunked(self, *args, **kwargs)
        if (exchange := _exchanges.get(self)) is None:
            return chunks  # type: ignore[no-any-return]
        if args[1] if len(args) > 1 else kwargs.get("decode_content"):
            exchange.comes_unpacked()
        return tee(each(self, chunks), exchange)

    def each(self: Any, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The chunks of a response: that its own code closes it while it takes one is no leaving."""
        while True:
            with _at_work(self):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    def stream(self: Any, *args: Any, **kwargs: Any) -> Iterator[bytes]:
        yield from kind.stream(self, *args, **kwargs)
        if (exchange := _exchanges.get(self)) is not None:
            exchange.end()

    def close(self: Any) -> None:
        if (exchange := _exchanges.get(self)) is not None:
            exchange.left()
        kind.close(self)

    def __del__(self: Any) -> None:
        # A file's destructor closes it: nobody has left it there, and nothing may be recorded.
        _exchanges.pop(self, None)
        kind.__del__(self)

    members: dict[str, Any] = {"close": close, "__del__": __del__, "__module__": kind.__module__}
    members |= {name: leaf(name) for name in ("read", "read1", "readinto", "readline") if hasattr(kind, name)}
    if hasattr(kind, "read_chunked"):
        members |= {"read_chunked": read_chunked, "stream": stream}
    return type(kind.__name__, (kind,), members)


def _decodes(response: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether urllib3 unpacks what it is about to give; the standard library never does."""
    said = args[1] if len(args) > 1 else kwargs.get("decode_content")
    return bool(getattr(response, "decode_content", False) if said is None else said)
