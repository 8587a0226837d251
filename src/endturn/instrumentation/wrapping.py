"""Python has four kinds of function.

This is the one place that wraps them all, and changes nothing about them.

What the wrapped function returns, yields, raises and is (its signature, its kind, how lazily it
works) stays the same. A scope is current while the function's own code runs and never across a
`yield`.
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


class Run(Protocol):
    """One run of a wrapped function, as whoever wraps it follows it.

    The methods may fail; the function does not.
    """

    def step(self) -> AbstractContextManager[object]:
        """Around each stretch of the function's own code."""

    def yielded(self, item: Any) -> None:
        """A generator gave this."""

    def returned(self, result: Any) -> None:
        """The function has ended with this."""

    def raised(self, error: BaseException) -> None:
        """The function has ended with this exception."""

    def closed(self, over_s: float, /) -> None:
        """A generator was closed, or dropped, before its end.

        Said later, in any thread; `over_s` is when it was.
        """


class _Unfollowed:
    """The run of a function that nobody follows."""

    def step(self) -> AbstractContextManager[object]:
        return nullcontext()

    def yielded(self, item: Any) -> None: ...

    returned = raised = closed = yielded


_UNFOLLOWED: Run = _Unfollowed()

Begin = Callable[[tuple[Any, ...], dict[str, Any]], Run | None]
"""Begins to follow a run with these arguments; None lets it go unfollowed."""


def wrap(function: Any, begin: Begin) -> Any:
    """A function that does what `function` does, each run of it followed.

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


def _safely(tell: Callable[..., Any], *what: Any) -> Any:
    try:
        return tell(*what)
    except Exception:
        log_internal_error("following a function")
        return None


@contextmanager
def _stretch(run: Run, *ends: type[Exception]) -> Iterator[None]:
    """Around each stretch of the function's own code.

    What it raises has ended it, but for these, which are its end.
    """
    try:
        with _safely(run.step) or nullcontext():
            yield
    except BaseException as error:
        if not isinstance(error, ends):
            _safely(run.raised, error)
        raise


def _plain(function: Any, begin: Begin) -> Any:
    @wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        run = _safely(begin, args, kwargs) or _UNFOLLOWED
        with _stretch(run):
            result = function(*args, **kwargs)
        return _handed_on(result, run)

    return plain


def _handed_on(result: Any, run: Run) -> Any:
    """What a function returned.

    What has yet to run (a coroutine, a generator) is followed to its own end.
    """
    follow = _FOLLOWS.get(type(result))
    if follow is None or run is _UNFOLLOWED:
        _safely(run.returned, result)
        return result
    return follow(lambda: result, lambda args, kwargs: run)()


def _coroutine(function: Any, begin: Begin) -> Any:
    @wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        run = _safely(begin, args, kwargs) or _UNFOLLOWED
        with _stretch(run):
            result = await function(*args, **kwargs)
        return _handed_on(result, run)

    return coroutine


def _generator(function: Any, begin: Begin) -> Any:
    @wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Any:
        run = _safely(begin, args, kwargs) or _UNFOLLOWED
        inner = function(*args, **kwargs)
        resume, value = inner.send, None
        while True:
            try:
                with _stretch(run, StopIteration):
                    item = resume(value)
            except StopIteration as end:
                _safely(run.returned, end.value)
                return end.value
            _safely(run.yielded, item)
            try:
                resume, value = inner.send, (yield item)
            except GeneratorExit:
                # Perhaps in a destructor, where nothing may be announced.
                cleanup.later(partial(run.closed, time.perf_counter()))
                with _safely(run.step) or nullcontext():
                    inner.close()
                raise
            except BaseException as error:
                resume, value = inner.throw, error

    return generator


def _async_generator(function: Any, begin: Begin) -> Any:
    @wraps(function)
    async def async_generator(*args: Any, **kwargs: Any) -> Any:
        run = _safely(begin, args, kwargs) or _UNFOLLOWED
        inner = function(*args, **kwargs)
        resume, value = inner.asend, None
        while True:
            try:
                with _stretch(run, StopAsyncIteration):
                    item = await resume(value)
            except StopAsyncIteration:
                _safely(run.returned, None)
                return
            _safely(run.yielded, item)
            try:
                resume, value = inner.asend, (yield item)
            except GeneratorExit:
                cleanup.later(partial(run.closed, time.perf_counter()))
                with _safely(run.step) or nullcontext():
                    await inner.aclose()
                raise
            except BaseException as error:
                resume, value = inner.athrow, error

    return async_generator


_FOLLOWS: Final = {
    CoroutineType: _coroutine,
    GeneratorType: _generator,
    AsyncGeneratorType: _async_generator,
}
"""What follows an object that has yet to run."""
