"""What a turn asks for, as acts that a controller does: it waits for an act's result, or awaits it.

Each act is done within the scopes of the turn and of the call or tool run that it belongs to, and gives what it gave,
or a Failed. No scope stays current across a `yield`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pydantic_core import to_jsonable_python

from endturn.chat import ChatResponse, Delta, Request, ToolCall
from endturn.continuation.result import CallProvider, MakeRoom, ToolRan, TurnResult
from endturn.errors import ProviderError, UsageError
from endturn.formats.content_parts import is_part
from endturn.provider_calls import announce_end, stop_by
from endturn.scopes import Call, Layer, Step, TurnScope, open_call, start_tool

Item = Delta | TurnResult
"""What the consumer of a turn is given."""

_END: Final = object()
_STREAMED: Final = (Delta, ChatResponse)  # in this order: pydantic's own instance check is a slow one

_NOTHING: Final = nullcontext()


@dataclass(frozen=True, slots=True)
class Act:
    """Do this within its scopes, and send what it gives, or a Failed. A stream's act is done for each item."""

    do: Callable[[], Any]
    outer: Step
    inner: AbstractContextManager[None] = _NOTHING
    whose: str = "the provider function"


@dataclass(frozen=True, slots=True)
class Failed:
    """What doing it raised.

    Attributes:
        misused: the host gave something async to the controller that cannot await.
    """

    error: Exception
    misused: bool = False


class Left(BaseException):
    """A GeneratorExit. That itself would close the inner generators, who still have to act.

    Attributes:
        raised: it, where the host's function raised it; None where the consumer closed the stream.
    """

    def __init__(self, raised: GeneratorExit | None = None) -> None:
        self.raised = raised


class Driven:
    """A turn's acts and items, as whoever does the acts goes through them.

    Attributes:
        value: what the latest act gave.
    """

    __slots__ = ("_send", "_throw", "_thrown", "value")

    def __init__(self, turn: Generator[Act | Item, Any, None]) -> None:
        self._send, self._throw = turn.send, turn.throw
        self._thrown: BaseException | None = None
        self.value: Any = None

    def __iter__(self) -> Iterator[Act | Item]:
        return self

    def __next__(self) -> Act | Item:
        value, self.value = self.value, None
        try:
            if self._thrown is None:
                return self._send(value)
            thrown, self._thrown = self._thrown, None
            return self._throw(thrown)
        except Left as left:
            if left.raised is None:
                raise StopIteration from None
            raise left.raised from None

    def fail(self, item: Act | Item, error: BaseException) -> None:
        """Tell the turn of an exception: an act's failure is its result, anything else ends the turn."""
        if isinstance(item, Act) and isinstance(error, Exception):
            self.value = Failed(error)
        elif isinstance(error, GeneratorExit):
            self._thrown = Left(error if isinstance(item, Act) else None)
        else:
            self._thrown = error


def call_provider(
    provider: Callable[[Request], Any], name: str, step: CallProvider, scope: TurnScope
) -> Generator[Act | Delta, Any, Exception | None]:
    """One call to the provider. Returns what it raised, None if it answered."""
    request, incoming = step.request, step.incoming
    call = open_call(
        Layer.WRAPPER, provider=name, model=request.model, maximum=request.max_tokens,
        temperature=request.temperature, seed=request.seed, previous_id=request.previous_id,
        output_type=None if request.format is None else "json",
    )  # fmt: skip
    last: ChatResponse | None = None
    close: Callable[[], Any] | None = None
    try:
        answer = yield Act(partial(provider, request), *_steps(scope, call))
        if isinstance(answer, ChatResponse):
            last = answer
        elif not isinstance(answer, Failed):
            pull, close = _stream(answer)
            if call is not None:
                call.facts["stream"] = True
            pulling = Act(pull, *_steps(scope, call))
            while isinstance(answer := (yield pulling), _STREAMED):
                if call is not None:
                    call.chunk()
                if isinstance(answer, Delta):
                    yield from incoming.feed(answer)
                else:
                    last = answer
            if answer is not _END and not isinstance(answer, Failed):
                raise UsageError(
                    f"a provider function's iterator gives Delta, at last ChatResponse, not {described(answer)}"
                )
        error = answer.error if isinstance(answer, Failed) else None
        if error is not None:
            last = error.partial if isinstance(error, ProviderError) else None
        rest = incoming.close(last)
        _end(call, scope, request, incoming.response, error)
        yield from rest
        return error
    except BaseException as error:
        incoming.close(None)
        _end(call, scope, request, incoming.response, error)
        raise
    finally:
        if close is not None:
            yield Act(close, *_steps(scope, call))


def _steps(scope: TurnScope, call: Call | None) -> tuple[Step, AbstractContextManager[None]]:
    return scope.step(), _NOTHING if call is None else call.step()


def make_room(hook: Callable[..., Any], step: MakeRoom, scope: TurnScope) -> Generator[Act, Any, Request | None]:
    """Ask the host's function for a request that fits. Returns None where it gives up."""
    answer = yield Act(partial(hook, step.request, step.response), scope.step(), whose="on_context_exceeded")
    if isinstance(answer, Failed):
        raise answer.error
    if answer is not None and not isinstance(answer, Request):
        raise UsageError(f"on_context_exceeded gives a Request to go on with, or None, not {described(answer)}")
    return answer


def run_tool(function: Callable[[ToolCall], Any], call: ToolCall, scope: TurnScope) -> Generator[Act, Any, ToolRan]:
    """One run of a tool. What it raises is told to the model."""
    run = start_tool(scope.turn, name=call.name, call_id=call.id)
    try:
        answer = yield Act(partial(function, call), run.step(), whose=f"the tool {call.name!r}")
    except BaseException as error:
        run.end(meant(error))
        raise
    if not isinstance(answer, Failed):
        try:
            content = _content(answer)
        except Exception as error:  # of json, or of the __str__ of something of the host's
            run.end(error)
            told = f"the tool was run, but its result, {described(answer)}, cannot be written as JSON"
            return ToolRan(told, is_error=True)
        run.end()
        return ToolRan(content)
    run.end(answer.error)
    if answer.misused:
        raise answer.error
    return ToolRan(f"{type(answer.error).__name__}: {answer.error}", is_error=True)


def described(thing: object) -> str:
    """What something is, in words. Never itself: it may be a prompt or an answer."""
    if isinstance(thing, type):
        return f"the class {thing.__name__}"
    return "None" if thing is None else f"a value of type {type(thing).__name__}"


def meant(error: BaseException | None) -> BaseException | None:
    """The exception as the host knows it; None where the consumer left."""
    return error.raised if isinstance(error, Left) else error


def _stream(answer: Any) -> tuple[Callable[[], Any], Callable[[], Any] | None]:
    """How to pull the next item of a provider's stream (_END at its end), and how to close it."""
    if hasattr(answer, "__aiter__"):
        items = aiter(answer)
        return partial(anext, items, _END), getattr(items, "aclose", None)
    if isinstance(answer, (str, bytes, Mapping)) or not hasattr(answer, "__iter__"):
        raise UsageError(
            f"a provider function gives a ChatResponse or an iterator of Delta, not {described(answer)}: "
            "make one of it, or use endturn.Client"
        )
    plain = iter(answer)
    return partial(next, plain, _END), getattr(plain, "close", None)


def _end(
    call: Call | None,
    scope: TurnScope,
    request: Request,
    response: ChatResponse | None,
    error: BaseException | None,
) -> None:
    """Announce what a call came to, unless a layer below did."""
    if call is None or response is None:
        return
    stop = response.stop if error is None else stop_by(error)
    with scope.step():
        announce_end(call, request, response, stop, meant(error), raw=stop.raw)


def _content(result: Any) -> str | list[dict[str, object]]:
    """What a tool gave back, as a tool message holds it: text and content parts as they are, else as JSON.

    Raises:
        Exception: JSON cannot hold it.
    """
    if result is None:
        return ""
    if isinstance(result, str):
        return result
    if isinstance(result, list) and result and all(map(is_part, result)):
        json.dumps(result, default=lambda _: None)  # bytes may stand in a part: that is the format's business
        return result
    return json.dumps(to_jsonable_python(result), ensure_ascii=False)
