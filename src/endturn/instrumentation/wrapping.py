"""Wrappers for the four kinds of Python function.

The wrapped function's results, items, exceptions, signature, kind and laziness stay the same. A
scope is current while the function's own code runs and never across a `yield`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial, wraps
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final, Protocol

from endturn.calls import log_internal_error
from endturn.telemetry import cleanup


class RunObserver(Protocol):
    """The observer of one run of a wrapped function.

    Exceptions of its methods do not reach the function.
    """

    def step(self) -> AbstractContextManager[object]:
        """Return the scope for a stretch of the function's own code."""

    def on_yield(self, item: Any) -> None:
        """Take an item of a generator."""

    def on_return(self, result: Any) -> None:
        """Take the function's result."""

    def on_raise(self, error: BaseException) -> None:
        """Take the exception that ended the function."""

    def on_close(self, ended_s: float, /) -> None:
        """Take the time at which a generator was closed, or dropped, before its end.

        This is called later, in any thread.
        """


class _NullRun:
    """The observer of a run that is not followed."""

    def step(self) -> AbstractContextManager[object]:
        return nullcontext()

    def on_yield(self, item: Any) -> None: ...

    on_return = on_raise = on_close = on_yield


_NULL_RUN: RunObserver = _NullRun()

Begin = Callable[[tuple[Any, ...], dict[str, Any]], RunObserver | None]
"""Returns the observer of a run with these arguments; None if it is not followed."""


def wrap(function: Any, begin: Begin) -> Any:
    """Return a function that does what `function` does, with an observer for each run.

    Args:
        function: of any kind; a staticmethod or classmethod object too.
    """
    if isinstance(function, staticmethod | classmethod):
        return type(function)(wrap(function.__func__, begin))
    if inspect.isasyncgenfunction(function):
        return _async_generator(function, begin)
    if inspect.isgeneratorfunction(function):
        return _generator(function, begin)
    if inspect.iscoroutinefunction(function):
        return _coroutine(function, begin)
    return _plain(function, begin)


def _call_safely(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception:
        log_internal_error("following a function")
        return None


@contextmanager
def _stretch(run: RunObserver, *end_types: type[Exception]) -> Iterator[None]:
    """Run a stretch of the function's own code in the observer's scope.

    An exception ends the function; `end_types` are its regular end.
    """
    try:
        with _call_safely(run.step) or nullcontext():
            yield
    except BaseException as error:
        if not isinstance(error, end_types):
            _call_safely(run.on_raise, error)
        raise


def _plain(function: Any, begin: Begin) -> Any:
    @wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        run = _call_safely(begin, args, kwargs) or _NULL_RUN
        with _stretch(run):
            result = function(*args, **kwargs)
        return _follow_result(result, run)

    return plain


def _follow_result(result: Any, run: RunObserver) -> Any:
    """Return a function's result; a coroutine or a generator is followed to its own end."""
    follow = _FOLLOWERS.get(type(result))
    if follow is None or run is _NULL_RUN:
        _call_safely(run.on_return, result)
        return result
    return follow(lambda: result, lambda args, kwargs: run)()


def _coroutine(function: Any, begin: Begin) -> Any:
    @wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        run = _call_safely(begin, args, kwargs) or _NULL_RUN
        with _stretch(run):
            result = await function(*args, **kwargs)
        return _follow_result(result, run)

    return coroutine


def _generator(function: Any, begin: Begin) -> Any:
    @wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Any:
        run = _call_safely(begin, args, kwargs) or _NULL_RUN
        inner = function(*args, **kwargs)
        resume, value = inner.send, None
        while True:
            try:
                with _stretch(run, StopIteration):
                    item = resume(value)
            except StopIteration as end:
                _call_safely(run.on_return, end.value)
                return end.value
            _call_safely(run.on_yield, item)
            try:
                resume, value = inner.send, (yield item)
            except GeneratorExit:
                # This may be a destructor, in which nothing may be announced.
                cleanup.defer(partial(run.on_close, time.perf_counter()))
                with _call_safely(run.step) or nullcontext():
                    inner.close()
                raise
            except BaseException as error:
                resume, value = inner.throw, error

    return generator


def _async_generator(function: Any, begin: Begin) -> Any:
    @wraps(function)
    async def async_generator(*args: Any, **kwargs: Any) -> Any:
        run = _call_safely(begin, args, kwargs) or _NULL_RUN
        inner = function(*args, **kwargs)
        resume, value = inner.asend, None
        while True:
            try:
                with _stretch(run, StopAsyncIteration):
                    item = await resume(value)
            except StopAsyncIteration:
                _call_safely(run.on_return, None)
                return
            _call_safely(run.on_yield, item)
            try:
                resume, value = inner.asend, (yield item)
            except GeneratorExit:
                cleanup.defer(partial(run.on_close, time.perf_counter()))
                with _call_safely(run.step) or nullcontext():
                    await inner.aclose()
                raise
            except BaseException as error:
                resume, value = inner.athrow, error

    return async_generator


_FOLLOWERS: Final = {
    CoroutineType: _coroutine,
    GeneratorType: _generator,
    AsyncGeneratorType: _async_generator,
}
"""The wrapper of an object that has yet to run."""
