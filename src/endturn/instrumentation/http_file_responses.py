"""Responses that are read like files: urllib3's and the standard library's.

The methods that read, and those that end the reading, are wrapped on the class of the first
response that is watched, and once. So a response stays the host's own object of its own class,
whatever the host does with it, and a process that never asks a model through urllib3 or
`urllib.request` keeps all their methods. `unwrap` undoes it exactly.

Every other response of a wrapped class pays one look-up for each call of such a method: 0.6 µs,
where urllib3 takes 2.5 µs to read 64 bytes that wait in memory, and 1.2 µs when it is dropped
(CPython 3.11, CPU time). To give each watched response a subclass costs the others nothing and the
watched one more (a read takes 6.2 µs instead of 5.0), but then `type(response) is HTTPResponse` is
false. A proxy fails that too, and misses what is read of the response itself. Attributes of the
response would be a cycle with it, which keeps its connection until garbage is collected.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from endturn.instrumentation.tee import tee

if TYPE_CHECKING:
    from endturn.instrumentation.exchange import Exchange

Method = Callable[..., Any]

_MOST_WRAPPERS: Final = 32
"""How many wrappers around a method are looked into; a chain of them may have no end."""

_exchanges: WeakKeyDictionary[Any, Exchange] = WeakKeyDictionary()
"""By watched response, except while one of its methods runs: what that method calls is part of
it."""

_wrapped: dict[tuple[type, str], tuple[Method, Method | None]] = {}
"""By class and name: the wrapper, and the class's own method; None if the class inherits it."""

_lock = threading.Lock()


def watch(response: Any, exchange: Exchange) -> None:
    """Report to the exchange what is read of a response from now on, and how that ends."""
    kind = type(response)
    with _lock:
        for name, make in _WRAPPERS.items():
            if hasattr(kind, name) and not _is_wrapped(kind, name):
                own = kind.__dict__.get(name)
                wrapper = make(name, _inherited(kind, name) if own is None else own)
                setattr(kind, name, wrapper)
                _wrapped[kind, name] = wrapper, own
    _exchanges[response] = exchange


def unwrap() -> None:
    """Restore the methods of every class.

    A wrapper inside somebody else's stays, and lets calls through.
    """
    with _lock:
        for (kind, name), (wrapper, own) in list(_wrapped.items()):
            if kind.__dict__.get(name) is not wrapper:
                continue
            if own is None:
                delattr(kind, name)
            else:
                setattr(kind, name, own)
            del _wrapped[kind, name]


def _is_wrapped(kind: type, name: str) -> bool:
    """Return whether a class's method is our wrapper, or somebody else's around it."""
    wrapper, _ = _wrapped.get((kind, name), (None, None))
    method = kind.__dict__.get(name)
    for _ in range(_MOST_WRAPPERS):
        if method is None or method is wrapper:
            break
        method = getattr(method, "__wrapped__", None)
    return method is not None


def _inherited(kind: type, name: str) -> Method:
    """Return a method that calls the one of the base classes, as it is by then."""

    @wraps(getattr(kind, name))
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(super(kind, self), name)(*args, **kwargs)

    return method


def _reading(name: str, method: Method) -> Method:
    """Wrap a method that returns bytes, or writes them to a buffer."""

    @wraps(method)
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        exchange = _exchanges.pop(self, None)
        if exchange is None:
            return method(self, *args, **kwargs)
        try:
            result = method(self, *args, **kwargs)
        except BaseException as error:
            exchange.cut(error)
            raise
        finally:
            _exchanges[self] = exchange
        amount: Any = args[0] if args else kwargs.get("amt")
        if amount == 0:
            return result
        chunk = bytes(memoryview(amount)[:result]) if name == "readinto" else result
        if _decodes(self, args, kwargs):
            exchange.comes_unpacked()
        if chunk:
            exchange.feed(chunk)
        # A decoder gives what it still holds of a compressed body after the connection has given
        # all.
        is_plain = not self.headers.get("content-encoding")
        is_all = name == "read" and (amount is None or amount < 0)
        if is_all or not chunk or (is_plain and self.isclosed()):
            exchange.end()
        return result

    return read


def _decodes(response: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether urllib3 decompresses what it is about to return.

    The standard library never does.
    """
    argument = args[1] if len(args) > 1 else kwargs.get("decode_content")
    return bool(getattr(response, "decode_content", False) if argument is None else argument)


def _read_chunked(name: str, method: Method) -> Method:
    @wraps(method)
    def read_chunked(self: Any, *args: Any, **kwargs: Any) -> Iterator[bytes]:
        chunks = method(self, *args, **kwargs)
        if (exchange := _exchanges.get(self)) is not None:
            if args[1] if len(args) > 1 else kwargs.get("decode_content"):
                exchange.comes_unpacked()
            chunks = tee(_taken(self, chunks), exchange)
        yield from chunks

    return read_chunked


def _taken(response: Any, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a response's chunks. urllib3 may close the response while it takes one.

    The host has not left it.
    """
    while True:
        exchange = _exchanges.pop(response, None)
        try:
            chunk = next(chunks, None)
        finally:
            if exchange is not None:
                _exchanges[response] = exchange
        if chunk is None:
            return
        yield chunk


def _stream(name: str, method: Method) -> Method:
    @wraps(method)
    def stream(self: Any, *args: Any, **kwargs: Any) -> Iterator[bytes]:
        yield from method(self, *args, **kwargs)
        if (exchange := _exchanges.get(self)) is not None:
            exchange.end()

    return stream


def _close(name: str, method: Method) -> Method:
    @wraps(method)
    def close(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (exchange := _exchanges.get(self)) is not None:
            exchange.left()
        return method(self, *args, **kwargs)

    return close


def _del(name: str, method: Method) -> Method:
    # at the interpreter's end the module's names are gone
    exchanges, suppress_ = _exchanges, suppress

    @wraps(method)
    def __del__(self: Any) -> None:
        # A file's destructor closes it: nobody has left it there, and nothing may be recorded.
        with suppress_(Exception):  # of weak references, at the interpreter's end
            exchanges.pop(self, None)
        method(self)

    return __del__


_WRAPPERS: Final[dict[str, Callable[[str, Method], Method]]] = {
    "read": _reading,
    "read1": _reading,
    "readinto": _reading,
    "readline": _reading,
    "read_chunked": _read_chunked,
    "stream": _stream,
    "close": _close,
    "__del__": _del,
}
"""The methods that are wrapped, where a class has them."""


def _forked() -> None:
    """In a forked child: the thread that held the lock is the parent's."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
