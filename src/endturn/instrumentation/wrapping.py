"""Python has four kinds of function; this is the one place that wraps them all, and changes nothing about them.

What the wrapped function returns, yields, raises and is (its signature, its kind, how lazily it works) stays the same.
A scope is current while the function's own code runs and never across a `yield`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager, aclosing, nullcontext
from functools import partial, wraps
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Protocol

from endturn.announce import swallow
from endturn.telemetry import cleanup


class Run(Protocol):
    """One run of a wrapped function, as whoever wraps it follows it. The methods may fail; the function does not."""

    def step(self) -> AbstractContextManager[object]:
        """Around each stretch of the function's own code."""
        ...

    def yielded(self, item: Any) -> None:
        """A generator gave this."""
        ...

    def returned(self, result: Any) -> None:
        """The function has ended with this."""
        ...

    def raised(self, error: BaseException) -> None:
        """The function has ended with this exception."""
        ...

    def closed(self, over_s: float, /) -> None:
        """A generator was closed, or dropped, before its end. Said later, in any thread; `over_s` is when it was."""
        ...


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


class _Unfollowed:
    """The run of a function that nobody follows."""

    def step(self) -> AbstractContextManager[object]:
        return nullcontext()

    def yielded(self, item: Any) -> None: ...

    returned = raised = yielded

    def closed(self, over_s: float, /) -> None: ...


_UNFOLLOWED = _Unfollowed()


def _began(begin: Begin, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
    try:
        cleanup.run()
        return begin(args, kwargs) or _UNFOLLOWED
    except Exception:
        swallow("following a function")
        return _UNFOLLOWED


def _step(run: Run) -> AbstractContextManager[object]:
    try:
        return run.step()
    except Exception:
        swallow("following a function")
        return nullcontext()


def _tell(telling: Callable[..., None], *what: Any) -> None:
    try:
        telling(*what)
    except Exception:
        swallow("following a function")


def _plain(function: Any, begin: Begin) -> Any:
    @wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        run = _began(begin, args, kwargs)
        if run is _UNFOLLOWED:
            return function(*args, **kwargs)
        try:
            with _step(run):
                result = function(*args, **kwargs)
        except BaseException as error:
            _tell(run.raised, error)
            raise
        return _handed_on(result, run)

    return plain


def _handed_on(result: Any, run: Run) -> Any:
    """What a function returned. What has yet to run (a coroutine, a generator) is followed to its own end."""
    match result:
        case CoroutineType():
            return _awaited(result, run)
        case GeneratorType():
            return _driven(result, run)
        case AsyncGeneratorType():
            return _adriven(result, run)
        case _:
            _tell(run.returned, result)
            return result


def _coroutine(function: Any, begin: Begin) -> Any:
    @wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        run = _began(begin, args, kwargs)
        if run is _UNFOLLOWED:
            return await function(*args, **kwargs)
        return await _awaited(function(*args, **kwargs), run)

    return coroutine


def _generator(function: Any, begin: Begin) -> Any:
    @wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Any:
        return (yield from _driven(function(*args, **kwargs), _began(begin, args, kwargs)))

    return generator


def _async_generator(function: Any, begin: Begin) -> Any:
    @wraps(function)
    async def async_generator(*args: Any, **kwargs: Any) -> Any:
        driven = _adriven(function(*args, **kwargs), _began(begin, args, kwargs))
        resume, value = driven.asend, None
        async with aclosing(driven):  # there is no `yield from` for async generators
            while True:
                try:
                    item = await resume(value)
                except StopAsyncIteration:
                    return
                try:
                    resume, value = driven.asend, (yield item)
                except GeneratorExit:
                    raise
                except BaseException as error:
                    resume, value = driven.athrow, error

    return async_generator


async def _awaited(coroutine: Awaitable[Any], run: Run) -> Any:
    try:
        with _step(run):
            result = await coroutine
    except BaseException as error:
        _tell(run.raised, error)
        raise
    return _handed_on(result, run)


def _driven(inner: Generator[Any, Any, Any], run: Run) -> Generator[Any, Any, Any]:
    resume: Callable[[Any], Any] = inner.send
    value: Any = None
    while True:
        try:
            with _step(run):
                item = resume(value)
        except StopIteration as end:
            _tell(run.returned, end.value)
            return end.value
        except BaseException as error:
            _tell(run.raised, error)
            raise
        _tell(run.yielded, item)
        try:
            resume, value = inner.send, (yield item)
        except GeneratorExit:
            # Perhaps in a destructor, where nothing may be announced.
            cleanup.later(partial(run.closed, time.perf_counter()))
            with _step(run):
                inner.close()
            raise
        except BaseException as error:
            resume, value = inner.throw, error


async def _adriven(inner: AsyncGenerator[Any, Any], run: Run) -> AsyncGenerator[Any, Any]:
    resume: Callable[[Any], Any] = inner.asend
    value: Any = None
    while True:
        try:
            with _step(run):
                item = await resume(value)
        except StopAsyncIteration:
            _tell(run.returned, None)
            return
        except BaseException as error:
            _tell(run.raised, error)
            raise
        _tell(run.yielded, item)
        try:
            resume, value = inner.asend, (yield item)
        except GeneratorExit:
            cleanup.later(partial(run.closed, time.perf_counter()))
            with _step(run):
                await inner.aclose()
            raise
        except BaseException as error:
            resume, value = inner.athrow, error
