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

_MAX_WRAPPERS: Final = 32
"""The most wrappers around a method that are unwrapped; a chain of them may have no end."""

_exchanges: WeakKeyDictionary[Any, Exchange] = WeakKeyDictionary()
"""By watched response, except while one of its methods runs: methods that it calls are part of
it."""

_wrapped: dict[tuple[type, str], tuple[Method, Method | None]] = {}
"""By class and name: the wrapper, and the class's own method; None if the class inherits it."""

_lock = threading.Lock()


def watch(response: Any, exchange: Exchange) -> None:
    """Report the bytes that are read of a response from now on, and their end, to the exchange."""
    response_class = type(response)
    with _lock:
        for name, make_wrapper in _WRAPPERS.items():
            if hasattr(response_class, name) and not _is_wrapped(response_class, name):
                own_method = response_class.__dict__.get(name)
                wrapper = make_wrapper(
                    name,
                    _call_inherited(response_class, name) if own_method is None else own_method,
                )
                setattr(response_class, name, wrapper)
                _wrapped[response_class, name] = wrapper, own_method
    _exchanges[response] = exchange


def unwrap() -> None:
    """Restore the methods of every class.

    A wrapper inside another one stays, and only passes calls on.
    """
    with _lock:
        for (response_class, name), (wrapper, own_method) in list(_wrapped.items()):
            if response_class.__dict__.get(name) is not wrapper:
                continue
            if own_method is None:
                delattr(response_class, name)
            else:
                setattr(response_class, name, own_method)
            del _wrapped[response_class, name]


def _is_wrapped(response_class: type, name: str) -> bool:
    """Return whether a class's method is our wrapper, or another one around it."""
    wrapper, _ = _wrapped.get((response_class, name), (None, None))
    method = response_class.__dict__.get(name)
    for _ in range(_MAX_WRAPPERS):
        if method is None or method is wrapper:
            break
        method = getattr(method, "__wrapped__", None)
    return method is not None


def _call_inherited(response_class: type, name: str) -> Method:
    """Return a method that calls the current one of the base classes."""

    @wraps(getattr(response_class, name))
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(super(response_class, self), name)(*args, **kwargs)

    return method


def _wrap_reading(name: str, method: Method) -> Method:
    """Wrap a method that returns bytes, or writes them to a buffer."""

    @wraps(method)
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        exchange = _exchanges.pop(self, None)
        if exchange is None:
            return method(self, *args, **kwargs)
        try:
            result = method(self, *args, **kwargs)
        except BaseException as error:
            exchange.on_read_error(error)
            raise
        finally:
            _exchanges[self] = exchange
        amount: Any = args[0] if args else kwargs.get("amt")
        if amount == 0:
            return result
        chunk = bytes(memoryview(amount)[:result]) if name == "readinto" else result
        if _is_decompressed(self, args, kwargs):
            exchange.expect_decompressed()
        if chunk:
            exchange.feed(chunk)
        # A decoder may hold a rest of a compressed body after the connection has ended.
        is_plain = not self.headers.get("content-encoding")
        is_all = name == "read" and (amount is None or amount < 0)
        if is_all or not chunk or (is_plain and self.isclosed()):
            exchange.end()
        return result

    return read


def _is_decompressed(response: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether urllib3 decompresses the bytes that it returns.

    The standard library never does.
    """
    argument = args[1] if len(args) > 1 else kwargs.get("decode_content")
    return bool(getattr(response, "decode_content", False) if argument is None else argument)


def _wrap_read_chunked(name: str, method: Method) -> Method:
    @wraps(method)
    def read_chunked(self: Any, *args: Any, **kwargs: Any) -> Iterator[bytes]:
        chunks = method(self, *args, **kwargs)
        if (exchange := _exchanges.get(self)) is not None:
            if args[1] if len(args) > 1 else kwargs.get("decode_content"):
                exchange.expect_decompressed()
            chunks = tee(_chunks_of(self, chunks), exchange)
        yield from chunks

    return read_chunked


def _chunks_of(response: Any, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a response's chunks. urllib3 may close the response meanwhile: the host does not."""
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


def _wrap_stream(name: str, method: Method) -> Method:
    @wraps(method)
    def stream(self: Any, *args: Any, **kwargs: Any) -> Iterator[bytes]:
        yield from method(self, *args, **kwargs)
        if (exchange := _exchanges.get(self)) is not None:
            exchange.end()

    return stream


def _wrap_close(name: str, method: Method) -> Method:
    @wraps(method)
    def close(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (exchange := _exchanges.get(self)) is not None:
            exchange.on_close()
        return method(self, *args, **kwargs)

    return close


def _wrap_del(name: str, method: Method) -> Method:
    # at the interpreter's end the module's names are gone
    exchanges, suppress_ = _exchanges, suppress

    @wraps(method)
    def __del__(self: Any) -> None:
        # A file's destructor closes it: the host does not, and nothing may be recorded.
        with suppress_(Exception):  # of weak references, at the interpreter's end
            exchanges.pop(self, None)
        method(self)

    return __del__


_WRAPPERS: Final[dict[str, Callable[[str, Method], Method]]] = {
    "read": _wrap_reading,
    "read1": _wrap_reading,
    "readinto": _wrap_reading,
    "readline": _wrap_reading,
    "read_chunked": _wrap_read_chunked,
    "stream": _wrap_stream,
    "close": _wrap_close,
    "__del__": _wrap_del,
}
"""The methods that are wrapped, if a class has them."""


def _reset_lock() -> None:
    """In a forked child, replace the lock: a thread of the parent may hold it for ever."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_lock)
