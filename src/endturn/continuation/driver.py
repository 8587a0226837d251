"""The effects of a turn as calls of the host's functions, which a controller makes or awaits.

Each call is made within the scopes of its turn and of its model call or tool run. Its value, or a
HostCallFailed, is sent back. No scope stays current across a `yield`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from pydantic_core import to_jsonable_python

from endturn.calls import (
    Call,
    EndpointFacts,
    Layer,
    RequestFacts,
    ScopeStep,
    TurnScope,
    open_call,
    start_tool,
)
from endturn.continuation.result import CallProvider, MakeRoom, ToolRan, TurnResult
from endturn.errors import ProviderError, UsageError
from endturn.formats import is_part
from endturn.providers import announce_end, stop_by
from endturn.vocabulary import ChatResponse, Delta, Request, ToolCall

StreamItem = Delta | TurnResult
"""An item of a turn's stream: a piece of the answer, at the end the result."""

_STREAM_END: Final = object()
# in this order, since pydantic's instance check is slow
_STREAM_TYPES: Final = (Delta, ChatResponse)

_NO_SCOPE: Final = nullcontext()


@dataclass(frozen=True, slots=True)
class HostCall:
    """One call of a host's function. The call that pulls from a stream is made for each item.

    Attributes:
        function: the function, with its arguments bound.
        outer: the scope of the turn, in which the call is made.
        inner: the scope of the model call or tool run.
        name: the function's name in error messages.
    """

    function: Callable[[], Any]
    outer: ScopeStep
    inner: AbstractContextManager[None] = _NO_SCOPE
    name: str = "the provider function"


@dataclass(frozen=True, slots=True)
class HostCallFailed:
    """A call of a host's function that raised.

    Attributes:
        error: the exception.
        misused: the host passed an async function to the controller that cannot await.
    """

    error: Exception
    misused: bool = False


class ConsumerClosed(BaseException):
    """Stands in for a GeneratorExit, which would close inner generators too early.

    Attributes:
        raised: the GeneratorExit, if a host's function raised it; None if the consumer closed the
            stream.
    """

    def __init__(self, raised: GeneratorExit | None = None) -> None:
        self.raised = raised


class TurnRunner:
    """Iterates over the host calls and stream items of a turn, and passes results back to it.

    Attributes:
        value: the value of the latest host call.
    """

    __slots__ = ("_send", "_throw", "_thrown", "value")

    def __init__(self, turn: Generator[HostCall | StreamItem, Any, None]) -> None:
        self._send, self._throw = turn.send, turn.throw
        self._thrown: BaseException | None = None
        self.value: Any = None

    def __iter__(self) -> Iterator[HostCall | StreamItem]:
        return self

    def __next__(self) -> HostCall | StreamItem:
        value, self.value = self.value, None
        try:
            if self._thrown is None:
                return self._send(value)
            thrown, self._thrown = self._thrown, None
            return self._throw(thrown)
        except ConsumerClosed as closed:
            if closed.raised is None:
                raise StopIteration from None
            raise closed.raised from None

    def fail(self, item: HostCall | StreamItem, error: BaseException) -> None:
        """Pass an exception to the turn: a host call's is its value, any other ends the turn."""
        if isinstance(item, HostCall) and isinstance(error, Exception):
            self.value = HostCallFailed(error)
        elif isinstance(error, GeneratorExit):
            self._thrown = ConsumerClosed(error if isinstance(item, HostCall) else None)
        else:
            self._thrown = error


def call_provider(
    provider: Callable[[Request], Any], name: str, effect: CallProvider, scope: TurnScope
) -> Generator[HostCall | Delta, Any, Exception | None]:
    """Make one call to the provider. Returns the exception that it raised, if any."""
    request, incoming = effect.request, effect.incoming
    call = open_call(Layer.WRAPPER, RequestFacts.of(request), EndpointFacts(provider=name))
    final_response: ChatResponse | None = None
    close: Callable[[], Any] | None = None
    try:
        value = yield HostCall(partial(provider, request), *_steps(scope, call))
        if isinstance(value, ChatResponse):
            final_response = value
        elif not isinstance(value, HostCallFailed):
            pull, close = _open_stream(value)
            if call is not None:
                call.request = replace(call.request, stream=True)
            pull_call = HostCall(pull, *_steps(scope, call))
            while isinstance(value := (yield pull_call), _STREAM_TYPES):
                if call is not None:
                    call.record_chunk()
                if isinstance(value, Delta):
                    yield from incoming.feed(value)
                else:
                    final_response = value
            if value is not _STREAM_END and not isinstance(value, HostCallFailed):
                raise UsageError(
                    f"a provider function's iterator must yield Delta, at last a ChatResponse, not "
                    f"{describe(value)}"
                )
        error = value.error if isinstance(value, HostCallFailed) else None
        if error is not None:
            final_response = error.partial if isinstance(error, ProviderError) else None
        deltas = incoming.close(final_response)
        _end_call(call, scope, request, incoming.response, error)
        yield from deltas
        return error
    except BaseException as error:
        incoming.close(None)
        _end_call(call, scope, request, incoming.response, error)
        raise
    finally:
        if close is not None:
            yield HostCall(close, *_steps(scope, call))


def _steps(scope: TurnScope, call: Call | None) -> tuple[ScopeStep, AbstractContextManager[None]]:
    return scope.step(), _NO_SCOPE if call is None else call.step()


def make_room(
    hook: Callable[..., Any], effect: MakeRoom, scope: TurnScope
) -> Generator[HostCall, Any, Request | None]:
    """Ask the host's function for a request that fits. Returns None if it gives up."""
    value = yield HostCall(
        partial(hook, effect.request, effect.response), scope.step(), name="on_context_exceeded"
    )
    if isinstance(value, HostCallFailed):
        raise value.error
    if value is not None and not isinstance(value, Request):
        raise UsageError(
            f"on_context_exceeded must return a Request to continue with, or None, "
            f"not {describe(value)}"
        )
    return value


def run_tool(
    function: Callable[[ToolCall], Any], call: ToolCall, scope: TurnScope
) -> Generator[HostCall, Any, ToolRan]:
    """Run a tool once. An exception becomes an error result for the model."""
    run = start_tool(scope, name=call.name, call_id=call.id)
    try:
        value = yield HostCall(partial(function, call), run.step(), name=f"the tool {call.name!r}")
    except BaseException as error:
        run.end(host_exception(error))
        raise
    if not isinstance(value, HostCallFailed):
        try:
            content = _tool_content(value)
        except Exception as error:  # from json, or from a __str__ of the host
            run.end(error)
            message = (
                f"the tool was run, but its result, {describe(value)}, cannot be written as JSON"
            )
            return ToolRan(message, is_error=True)
        run.end()
        return ToolRan(content)
    run.end(value.error)
    if value.misused:
        raise value.error
    return ToolRan(f"{type(value.error).__name__}: {value.error}", is_error=True)


def describe(value: object) -> str:
    """Return the type of a value in words. Never the value: it may be a prompt or an answer."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else f"a value of type {type(value).__name__}"


def host_exception(error: BaseException | None) -> BaseException | None:
    """Return the host's own exception; None if the consumer closed the stream."""
    return error.raised if isinstance(error, ConsumerClosed) else error


def _open_stream(value: Any) -> tuple[Callable[[], Any], Callable[[], Any] | None]:
    """Return the functions that pull from a provider's stream and close it.

    At the end of the stream, the first returns `_STREAM_END`.
    """
    if hasattr(value, "__aiter__"):
        items = aiter(value)
        return partial(anext, items, _STREAM_END), getattr(items, "aclose", None)
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise UsageError(
            f"a provider function must return a ChatResponse or an iterator of Delta, not "
            f"{describe(value)}: "
            "convert it, or use endturn.Client"
        )
    iterator = iter(value)
    return partial(next, iterator, _STREAM_END), getattr(iterator, "close", None)


def _end_call(
    call: Call | None,
    scope: TurnScope,
    request: Request,
    response: ChatResponse | None,
    error: BaseException | None,
) -> None:
    """Announce the end of a call, unless a layer below did."""
    if call is None or response is None:
        return
    stop = response.stop if error is None else stop_by(error)
    with scope.step():
        announce_end(call, request, response, stop, host_exception(error), raw=stop.raw)


def _tool_content(result: Any) -> str | list[dict[str, object]]:
    """Return a tool's result as the content of a tool message: text, content parts, or JSON.

    Raises:
        Exception: the result cannot be written as JSON.
    """
    if result is None:
        return ""
    if isinstance(result, str):
        return result
    if isinstance(result, list) and result and all(map(is_part, result)):
        # a part may hold bytes, which the format handles
        json.dumps(result, default=lambda _: None)
        return result
    return json.dumps(to_jsonable_python(result), ensure_ascii=False)
