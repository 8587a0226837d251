"""The continuation controllers: they drive a turn's course over a provider function and tools, plain or async.

    controller = ContinuationController(Client("openai"), tools={"search": search})
    question = Message(role="user", content="…")
    result = controller.run(Request(model="gpt-5-mini", messages=(question,), tools=(SEARCH,), max_tokens=800))

What is decided, and when, is in `endturn.continuation`. Here a turn is one generator of acts (call this, pull that) and
of items for the consumer; the two classes differ in whether they wait for an act's result or await it. Nothing is
retried: that is the provider function's own business.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from types import TracebackType
from typing import Any, Final

from pydantic_core import to_jsonable_python

from endturn import adapters, events, formats
from endturn.calls import Call, Layer, open_call
from endturn.chat import ChatResponse, Delta, Request, Tool, ToolCall
from endturn.continuation import termination
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.result import Resumption, TurnResult
from endturn.continuation.turn import CallProvider, Course, MakeRoom, RunTool, ToolRan, Wait
from endturn.continuation.turn_state import Abilities
from endturn.errors import ProviderError, UsageError
from endturn.events import Turn
from endturn.formats.settings import tool_schemas
from endturn.hooks import takes_content
from endturn.stop import Stop, StopReason
from endturn.transcript import Transcript
from endturn.turns import ToolRun, TurnScope, start_tool, start_turn

__all__ = ["AsyncContinuationController", "ContinuationController", "Resumption", "TurnResult"]

log = logging.getLogger("endturn")

Provider = Callable[[Request], Any]
"""A provider function: a Request gives a ChatResponse, or an iterator of Delta whose last item is the ChatResponse (one
that ends without it was cut: `missing`); for the async controller also a coroutine, or an async iterator."""

ToolFunction = Callable[[ToolCall], Any]
Tools = Mapping[str, ToolFunction] | Sequence[tuple[Tool, ToolFunction]]
"""Functions by the names of tools that the request declares: no other is run. Or each tool with its function: then the
tools are added to the request."""

_END: Final = object()
_STREAMED: Final = (Delta, ChatResponse)  # in this order: pydantic's own instance check is a slow one


class _Within:
    """Makes scopes current for one step after another, each within the one before it."""

    __slots__ = ("_steps",)

    def __init__(self, *scopes: TurnScope | Call | ToolRun | None) -> None:
        self._steps = [scope.step() for scope in scopes if scope is not None]

    def __enter__(self) -> None:
        for step in self._steps:
            step.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for step in self._steps[::-1]:
            step.__exit__(kind, value, trace)


@dataclass(frozen=True, slots=True)
class _Act:
    """Do this within its scopes, and send what it gives, or a _Failed. A stream's act is done for each item."""

    do: Callable[[], Any]
    within: _Within
    whose: str = "the provider function"


@dataclass(frozen=True, slots=True)
class _Failed:
    """What doing it raised.

    Attributes:
        misused: the host gave something async to the controller that cannot await.
    """

    error: Exception
    misused: bool = False


class _Left(BaseException):
    """A GeneratorExit. That itself would close the inner generators, who still have to act.

    Attributes:
        raised: it, where the host's function raised it; None where the consumer closed the stream.
    """

    def __init__(self, raised: GeneratorExit | None = None) -> None:
        self.raised = raised


Item = Delta | TurnResult


class _Controller:
    """A provider function, tools and a policy, and a turn over them as a generator. See ContinuationController."""

    _slept: Callable[[float], Any]

    def __init__(
        self,
        provider: Provider | Any,
        *,
        tools: Tools | None = None,
        policy: ContinuationPolicy | None = None,
        provider_name: str = "",
        format: str = "",
        agent: str | None = None,
        conversation_id: str | None = None,
        dialect: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], Any] | None = None,
        new_id: Callable[[], str] = events.new_id,
    ) -> None:
        _check(tools, policy)
        if callable(provider):
            adapters.refuse_method(provider)
        else:
            provider = adapters.provider(provider, format=format or None, dialect=dialect)
        self._provider = provider
        self._format = formats.format_of(format or _told(provider, "format") or "openai_chat")
        self._name = provider_name or _told(provider, "provider") or self._format.provider
        self._declared: tuple[Tool, ...] = ()
        if tools is None or isinstance(tools, Mapping):
            self._tools = tools
        else:
            self._declared = tuple(tool for tool, _ in tools)
            self._tools = {tool.name: function for tool, function in tools}
        self._policy = policy if policy is not None else ContinuationPolicy.load()
        mode = self._policy.mode
        if mode is not None and self._tools is not None:
            known = {tool.name for tool in self._declared}
            self._declared += tuple(tool for tool, _ in termination.tools(mode) if tool.name not in known)
            self._tools = termination.functions(mode, self._tools)
        self._warned = False
        self._abilities = Abilities(
            dialect=_told(provider, "dialect") if dialect is None else dialect,
            retrieves=_says(provider, "retrieves"),
            follows_tokens=_says(provider, "follows_tokens"),
        )
        path = self._policy.transcript
        self._transcript = None if path is None else Transcript(path)
        self._sleep = sleep or self._slept
        self._agent = agent
        self._conversation = conversation_id
        self._clock = clock
        self._new_id = new_id

    def _turn(self, start: Request | Resumption) -> Generator[_Act | Item, Any, None]:
        """One turn. What is thrown in ends it: then nothing but acts is yielded until it is raised again."""
        if not isinstance(start, Request | Resumption):
            raise UsageError(
                f"a turn starts with a Request, or with what TurnResult.resume() gave, not {_a(start)}: "
                "Request(model=…, messages=(Message(role='user', content=…),))"
            )
        if isinstance(start, Request):
            names = {tool.name for tool in start.tools}
            added = tuple(tool for tool in self._declared if tool.name not in names)
            start = start.but(tools=(*start.tools, *added)) if added else start
            self._warn(start)
        turn = Turn(id=self._new_id(), agent=self._agent, conversation=self._conversation)
        runnable = None if self._tools is None else frozenset(self._tools)
        course = Course(
            start, policy=self._policy, format=self._format, turn=turn, provider=self._name, runnable=runnable,
            clock=self._clock, abilities=self._abilities,
            tell=None if self._transcript is None else self._transcript.of(turn.id),
        )  # fmt: skip
        scope = start_turn(turn)
        steps = course.steps()
        reply: ToolRan | Exception | Request | None = None
        try:
            while True:
                with scope.step():
                    try:
                        step = steps.send(reply)
                    except StopIteration as end:
                        result: TurnResult = end.value
                        break
                reply = None
                match step:
                    case Delta():
                        yield step
                    case CallProvider():
                        reply = yield from self._exchange(step, scope)
                    case RunTool():
                        reply = yield from self._run_tool(step.call, turn)
                    case MakeRoom():
                        reply = yield from self._make_room(step, scope)
                    case Wait():
                        yield _Act(partial(self._sleep, step.seconds), _Within(scope), "sleep")
        except BaseException as thrown:
            error = _meant(thrown)
            with scope.step():
                partial_result = course.interrupt(error)
            with suppress(AttributeError):  # None, and an exception type may refuse attributes
                error.turn_result = partial_result  # type: ignore[union-attr]
            raise
        yield result

    def _warn(self, request: Request) -> None:
        """Say once what cannot work: functions of which the model is told nothing, a mode that it cannot end."""
        if self._warned:
            return
        names, mode = tool_schemas(request).keys(), self._policy.mode
        offered = termination.is_offered(mode, names)
        own = set() if self._tools is None else self._tools.keys() - (termination.FUNCTIONS[mode] if mode else set())
        if mode is not None and not offered and not self._policy.text_signals:
            self._warned = True
            log.warning(
                "mode=%r: the request offers no %s to end the turn with; add it to its tools, as endturn.continuation."
                "termination.tools(%r) has it, or let the controller run tools: tools={}",
                mode, " or ".join(termination.FUNCTIONS[mode]), mode,
            )  # fmt: skip
        unrun = [] if self._tools is None else [name for name in names if name not in self._tools]
        if unrun:
            self._warned = True
            log.warning(
                "the request declares %s, and the controller has no function for it: calls are answered with an error; "
                "hand it one, or leave tools out to run them yourself",
                ", ".join(map(repr, unrun)),
            )
        if own and own.isdisjoint(names):
            self._warned = True
            log.warning(
                "the functions %s are never called: the request declares no tool of these names; give each Tool with "
                "its function, tools=[(Tool(name=…), function)], or declare them in Request.tools",
                ", ".join(map(repr, sorted(own))),
            )

    def _exchange(self, step: CallProvider, scope: TurnScope) -> Generator[_Act | Delta, Any, Exception | None]:
        """One call to the provider. Returns what it raised, None if it answered."""
        request, part = step.request, step.incoming
        call = open_call(
            Layer.WRAPPER, provider=self._name, model=request.model, maximum=request.max_tokens,
            temperature=request.temperature, seed=request.seed, previous_id=request.previous_id,
            output_type=None if request.format is None else "json",
        )  # fmt: skip
        last: ChatResponse | None = None
        close: Callable[[], Any] | None = None
        try:
            answer = yield _Act(partial(self._provider, request), _Within(scope, call))
            if isinstance(answer, ChatResponse):
                last = answer
            elif not isinstance(answer, _Failed):
                pull, close = _stream(answer)
                if call is not None:
                    call.facts["stream"] = True
                pulling = _Act(pull, _Within(scope, call))
                while isinstance(answer := (yield pulling), _STREAMED):
                    if call is not None:
                        call.chunk()
                    if isinstance(answer, Delta):
                        yield from part.feed(answer)
                    else:
                        last = answer
                if answer is not _END and not isinstance(answer, _Failed):
                    raise UsageError(
                        f"a provider function's iterator gives Delta, at last ChatResponse, not {_a(answer)}"
                    )
            error = answer.error if isinstance(answer, _Failed) else None
            if error is not None:
                last = error.partial if isinstance(error, ProviderError) else None
            rest = part.close(last)
            _end(call, scope, request, part.response, error)
            yield from rest
            return error
        except BaseException as error:
            part.close(None)
            _end(call, scope, request, part.response, error)
            raise
        finally:
            if close is not None:
                yield _Act(close, _Within(scope, call))

    def _make_room(self, step: MakeRoom, scope: TurnScope) -> Generator[_Act, Any, Request | None]:
        """Ask the host's function for a request that fits. Returns None where it gives up."""
        hook = self._policy.on_context_exceeded
        assert callable(hook)
        answer = yield _Act(partial(hook, step.request, step.response), _Within(scope), "on_context_exceeded")
        if isinstance(answer, _Failed):
            raise answer.error
        if answer is not None and not isinstance(answer, Request):
            raise UsageError(f"on_context_exceeded gives a Request to go on with, or None, not {_a(answer)}")
        return answer

    def _run_tool(self, call: ToolCall, turn: Turn) -> Generator[_Act, Any, ToolRan]:
        assert self._tools is not None
        run = start_tool(turn, name=call.name, call_id=call.id)
        try:
            answer = yield _Act(partial(self._tools[call.name], call), _Within(run), f"the tool {call.name!r}")
        except BaseException as error:
            run.end(_meant(error))
            raise
        if not isinstance(answer, _Failed):
            try:
                content = _content(answer)
            except Exception as error:  # of json, or of the __str__ of something of the host's
                run.end(error)
                told = f"the tool was run, but its result, {_a(answer)}, cannot be written as JSON"
                return ToolRan(told, is_error=True)
            run.end()
            return ToolRan(content)
        run.end(answer.error)
        if answer.misused:
            raise answer.error
        return ToolRan(f"{type(answer.error).__name__}: {answer.error}", is_error=True)


class ContinuationController(_Controller):
    """Finishes cut answers, and runs tool calls once they are known to be whole.

    Args:
        provider: the provider function. Its attributes `format` and `provider`, where it has them (our clients do), say
            how a cut answer is taken up again, and what the provider is called. An SDK's client is made one by
            `endturn.adapters.provider`, for whole answers.
        tools: the functions, see Tools; None where the host runs tools itself: a turn then ends with the calls that
            passed the gate in `TurnResult.calls`. A function gets the ToolCall and returns text, content parts, or what
            JSON can say; what it raises is told to the model, as is a result that is none of these. Where the policy
            has a mode, the tool that ends a turn is added and run; a function or a declaration of the host's, under its
            name, wins. {} where there is no other.
        policy: by default from the environment, see `ContinuationPolicy.from_environment`.
        provider_name: as in `gen_ai.provider.name`.
        format: the format that the provider function speaks; `openai_chat` where nobody says.
        dialect: whose variant of the format; what the provider function says, where not given.
        agent, conversation_id: for what is announced.
        clock: gives seconds; sleep: lets some pass, between two looks at a response that is still being made; new_id:
            gives a turn's id.

    Raises:
        UsageError: there is no such format, the environment holds no usable policy, its transcript cannot be opened, or
            an argument is something else.
    """

    _slept = staticmethod(time.sleep)

    def run(self, start: Request | Resumption) -> TurnResult:
        """One turn, to its end.

        Args:
            start: a request; or what `TurnResult.resume()` gave, to go on with an unfinished turn.

        Returns:
            How the turn went. What the provider raises ends a turn as `provider_error`, with what had come before and
            the exception in `error`; on the first call, with nothing to keep, it is raised.

        Raises:
            BaseException: an interrupt, with what there is of the turn in its attribute `turn_result`.
        """
        item: Item | None = None
        for item in self.stream(start):  # noqa: B007 - the last item is the result
            pass
        assert isinstance(item, TurnResult)
        return item

    def stream(self, start: Request | Resumption) -> Iterator[Item]:
        """One turn as it comes: the answer's deltas, continuations joined on; the last item is the TurnResult.

        Closing it early closes the provider's stream, and ends the turn as `cancelled`. Raises what `run` raises.
        """
        turn = self._turn(start)
        resume: Callable[[Any], _Act | Item] = turn.send
        value: Any = None
        while True:
            try:
                item = resume(value)
            except StopIteration:
                return
            except _Left as left:
                if left.raised is None:
                    return
                raise left.raised from None
            resume, value = turn.send, None
            try:
                if isinstance(item, _Act):
                    with item.within:
                        value = item.do()
                    if value.__class__ is not Delta and isawaitable(value):
                        getattr(value, "close", lambda: None)()
                        told = f"{item.whose} is async: use AsyncContinuationController"
                        value = _Failed(UsageError(told), misused=True)
                else:
                    yield item
            except BaseException as error:
                resume, value = _thrown(turn, item, error)


class AsyncContinuationController(_Controller):
    """`ContinuationController` for asyncio; the provider function and each tool may be async, or not."""

    _slept = staticmethod(asyncio.sleep)

    async def run(self, start: Request | Resumption) -> TurnResult:
        """One turn, to its end; see `ContinuationController.run`. Cancelling it is an interrupt."""
        item: Item | None = None
        async for item in self.stream(start):  # noqa: B007 - the last item is the result
            pass
        assert isinstance(item, TurnResult)
        return item

    async def stream(self, start: Request | Resumption) -> AsyncIterator[Item]:
        """One turn as it comes; see `ContinuationController.stream`. Who leaves it early closes it: `aclosing`."""
        turn = self._turn(start)
        resume: Callable[[Any], _Act | Item] = turn.send
        value: Any = None
        while True:
            try:
                item = resume(value)
            except StopIteration:
                return
            except _Left as left:
                if left.raised is None:
                    return
                raise left.raised from None
            resume, value = turn.send, None
            try:
                if isinstance(item, _Act):
                    with item.within:
                        value = item.do()
                        if value.__class__ is not Delta and isawaitable(value):
                            value = await value
                else:
                    yield item
            except BaseException as error:
                resume, value = _thrown(turn, item, error)


def _a(thing: object) -> str:
    """What something is, in words. Never itself: it may be a prompt or an answer."""
    if isinstance(thing, type):
        return f"the class {thing.__name__}"
    return "None" if thing is None else f"a value of type {type(thing).__name__}"


def _check(tools: object, policy: object) -> None:
    """Refuse at once what would fail far from here."""
    if policy is not None and not isinstance(policy, ContinuationPolicy):
        raise UsageError(f"policy is a ContinuationPolicy(…), not {_a(policy)}")
    if tools is None:
        return
    how = "give functions by name, {'search': search}, or each Tool with its function, [(Tool(name='search'), search)]"
    if isinstance(tools, Mapping):
        functions = list(tools.values())
    elif isinstance(tools, Sequence) and not isinstance(tools, str | bytes):
        for pair in tools:
            if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], Tool)):
                raise UsageError(f"tools holds {_a(pair)}: {how}")
        functions = [function for _, function in tools]
    else:
        raise UsageError(f"tools is {_a(tools)}: {how}")
    for function in functions:
        if not callable(function):
            raise UsageError(f"a tool's function is {_a(function)}, which cannot be called: {how}")


def _thrown(
    turn: Generator[_Act | Item, Any, None], item: _Act | Item, error: BaseException
) -> tuple[Callable[[Any], _Act | Item], Any]:
    """How a turn is told of an exception: an act's failure is its result, anything else ends the turn."""
    if isinstance(item, _Act) and isinstance(error, Exception):
        return turn.send, _Failed(error)
    if isinstance(error, GeneratorExit):
        error = _Left(error if isinstance(item, _Act) else None)
    return turn.throw, error


def _meant(error: BaseException | None) -> BaseException | None:
    """The exception as the host knows it; None where the consumer left."""
    return error.raised if isinstance(error, _Left) else error


def _told(provider: Provider, name: str) -> str:
    """What a provider function says of itself; a bound method's object may say it."""
    for owner in (provider, getattr(provider, "__self__", None)):
        value = getattr(owner, name, None)
        if isinstance(value, str) and value:
            return value
    return ""


def _says(provider: Provider, name: str) -> bool:
    """Whether a provider function, or a bound method's object, says that it can do this."""
    return any(getattr(owner, name, None) is True for owner in (provider, getattr(provider, "__self__", None)))


def _stream(answer: Any) -> tuple[Callable[[], Any], Callable[[], Any] | None]:
    """How to pull the next item of a provider's stream (_END at its end), and how to close it."""
    if hasattr(answer, "__aiter__"):
        items = aiter(answer)
        return partial(anext, items, _END), getattr(items, "aclose", None)
    if isinstance(answer, (str, bytes, Mapping)) or not hasattr(answer, "__iter__"):
        raise UsageError(
            f"a provider function gives a ChatResponse or an iterator of Delta, not {_a(answer)}: make one of it, "
            "or use endturn.Client"
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
    stop = response.stop
    if isinstance(error, ProviderError) and error.stop is not None:
        stop = error.stop
    elif isinstance(error, Exception):
        stop = Stop(StopReason.ERROR, terminal_seen=False, incomplete=True)
    elif error is not None:
        stop = Stop(StopReason.CANCELLED, terminal_seen=False, incomplete=True)
    if takes_content():
        call.said(request, response)
    with scope.step():
        call.end(
            stop,
            usage=response.usage,
            response_id=response.id,
            response_model=response.model,
            reasons=(stop.raw,),
            output_chars=len(response.text),
            tail=response.text[-formats.TAIL :],
            error=_meant(error),
        )


def _content(result: Any) -> str | list[dict[str, object]]:
    """What a tool gave back, as a tool message holds it: text and content parts as they are, else as JSON.

    Raises:
        Exception: JSON cannot hold it.
    """
    if result is None:
        return ""
    if isinstance(result, str):
        return result
    if isinstance(result, list) and result and all(map(_is_part, result)):
        json.dumps(result, default=lambda _: None)  # bytes may stand in a part: that is the format's business
        return result
    return json.dumps(to_jsonable_python(result), ensure_ascii=False)


_PART_TYPES: Final = frozenset(
    {"text", "input_text", "output_text", "image", "image_url", "input_image", "document", "file", "input_file",
     "input_audio", "search_result", "tool_reference"}
)  # fmt: skip
"""What content parts call themselves in the formats that name them: chat, Responses, Anthropic."""
_PART_MEMBERS: Final = frozenset(
    {"text", "json", "image", "document", "video", "searchResult", "inlineData", "inline_data", "fileData", "file_data"}
)
"""The one member of a content part in the formats that do not: Converse, Gemini."""


def _is_part(part: object) -> bool:
    """Whether this is a content part of some format; any other object is data."""
    if not isinstance(part, dict) or not all(isinstance(key, str) for key in part):
        return False
    return part.get("type") in _PART_TYPES or (len(part) == 1 and not _PART_MEMBERS.isdisjoint(part))
