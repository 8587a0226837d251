"""The continuation controllers: they run a turn over a provider function and tools, plain or async.

    controller = ContinuationController(Client("openai"), tools={"search": search})
    question = Message(role="user", content="…")
    request = Request(model="gpt-5-mini", messages=(question,), tools=(SEARCH,), max_tokens=800)
    result = controller.run(request)

A turn is one generator of host calls and of items for the consumer; `endturn.continuation.turn`
decides what comes next. The two classes differ in whether they call or await. Nothing is retried:
retries are up to the provider function.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import Any

from endturn import formats
from endturn.calls import Turn, start_turn, turn as _turn
from endturn.continuation import termination
from endturn.continuation.driver import (
    HostCall,
    HostCallFailed,
    StreamItem,
    TurnRunner,
    call_provider,
    describe,
    host_exception,
    make_room,
    run_tool,
)
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.result import (
    CallProvider,
    MakeRoom,
    Resumption,
    RunTool,
    ToolRan,
    TurnResult,
    Wait,
)
from endturn.continuation.transcript import Transcript
from endturn.continuation.turn import interrupt, steps
from endturn.continuation.turn_state import Setup, TurnState
from endturn.errors import UsageError
from endturn.formats import tool_schemas
from endturn.providers import sdk_client
from endturn.vocabulary import Delta, Request, Tool, ToolCall

__all__ = ["AsyncContinuationController", "ContinuationController", "Resumption", "TurnResult"]

log = logging.getLogger("endturn")

Provider = Callable[[Request], Any]
"""A provider function: takes a Request, returns a ChatResponse, or an iterator of Delta whose last
item is the ChatResponse (a stream without it is truncated: `missing`); for the async controller
also a coroutine, or an async iterator."""

ToolFunction = Callable[[ToolCall], Any]
Tools = Mapping[str, ToolFunction] | Sequence[tuple[Tool, ToolFunction]]
"""Functions by the names of tools that the request declares; undeclared tools are never run. Or
each tool with its function: then the tools are added to the request."""


class _Controller:
    """A provider function with tools and a policy; runs a turn as a generator.

    See ContinuationController.
    """

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
        new_id: Callable[[], str] = _turn.new_id,
    ) -> None:
        if policy is not None and not isinstance(policy, ContinuationPolicy):
            raise UsageError(f"policy must be a ContinuationPolicy(…), not {describe(policy)}")
        self._tools: Mapping[str, ToolFunction] | None
        self._declared, self._tools = _split_tools(tools)
        self._policy = policy if policy is not None else ContinuationPolicy.load()
        if callable(provider):
            sdk_client.refuse_method(provider)
        else:
            provider = sdk_client.provider(provider, format=format or None, dialect=dialect)
        self._provider = provider
        format_ = formats.format_of(format or _declared_value(provider, "format") or "openai_chat")
        mode = self._policy.mode
        if mode is not None and self._tools is not None:
            names = {tool.name for tool in self._declared}
            self._declared += tuple(
                tool for tool, _ in termination.tools(mode) if tool.name not in names
            )
            self._tools = termination.functions(mode, self._tools)
        self._warned = False
        self._setup = Setup(
            policy=self._policy,
            format=format_,
            provider=provider_name or _declared_value(provider, "provider") or format_.provider,
            runnable=None if self._tools is None else self._tools.keys(),
            dialect=_declared_value(provider, "dialect") or "" if dialect is None else dialect,
            retrieves=_declared_value(provider, "retrieves") is True,
            follows_tokens=_declared_value(provider, "follows_tokens") is True,
            endpoint=str(_declared_value(provider, "endpoint") or ""),
        )
        path = self._policy.transcript
        self._transcript = None if path is None else Transcript(path)
        self._sleep = sleep or self._slept
        self._agent = agent
        self._conversation = conversation_id
        self._clock = clock
        self._new_id = new_id

    def _turn(self, start: Request | Resumption) -> Generator[HostCall | StreamItem, Any, None]:
        """Run one turn.

        An exception that is thrown into the generator ends the turn: only host calls are yielded
        until it is raised again.
        """
        if not isinstance(start, Request | Resumption):
            raise UsageError(
                f"a turn starts with a Request or the result of TurnResult.resume(), not "
                f"{describe(start)}: "
                "Request(model=…, messages=(Message(role='user', content=…),))"
            )
        if isinstance(start, Request):
            names = {tool.name for tool in start.tools}
            added = tuple(tool for tool in self._declared if tool.name not in names)
            start = start.but(tools=(*start.tools, *added)) if added else start
            self._warn(start)
        turn = Turn(id=self._new_id(), agent=self._agent, conversation=self._conversation)
        observer = None if self._transcript is None else self._transcript.of(turn.id)
        state = TurnState(start, self._setup, turn=turn, clock=self._clock, observer=observer)
        scope = start_turn(turn)
        effects = steps(state)
        reply: ToolRan | Exception | Request | None = None
        try:
            while True:
                with scope.step():
                    try:
                        effect = effects.send(reply)
                    except StopIteration as end:
                        result: TurnResult = end.value
                        break
                reply = None
                match effect:
                    case Delta():
                        yield effect
                    case CallProvider():
                        reply = yield from call_provider(
                            self._provider, self._setup.provider, effect, scope
                        )
                    case RunTool():
                        assert self._tools is not None
                        reply = yield from run_tool(
                            self._tools[effect.call.name], effect.call, scope
                        )
                    case MakeRoom():
                        assert callable(self._policy.on_context_exceeded)
                        reply = yield from make_room(
                            self._policy.on_context_exceeded, effect, scope
                        )
                    case Wait():
                        yield HostCall(
                            partial(self._sleep, effect.seconds), scope.step(), name="sleep"
                        )
        except BaseException as thrown:
            error = host_exception(thrown)
            with scope.step():
                partial_result = interrupt(state, error)
            with suppress(AttributeError):  # None, and an exception type may refuse attributes
                error.turn_result = partial_result  # type: ignore[union-attr]
            raise
        yield result

    def _warn(self, request: Request) -> None:
        """Log configuration errors once: functions without a tool, a mode that cannot end."""
        declared, mode, tools = tool_schemas(request).keys(), self._policy.mode, self._tools
        ends = termination.FUNCTIONS[mode].keys() if mode else set()
        functions = set() if tools is None else tools.keys() - ends
        without_function = [] if tools is None else [name for name in declared if name not in tools]
        warnings = []
        if mode is not None and ends.isdisjoint(declared) and not self._policy.text_signals:
            warnings.append(
                f"mode={mode!r}: the request offers no {' or '.join(ends)} to end the turn with; "
                f"add it to its tools, as endturn.continuation.termination.tools({mode!r}) has it, "
                "or let the controller run tools: tools={}"
            )
        if without_function:
            names = ", ".join(map(repr, without_function))
            warnings.append(
                f"the request declares {names}, and the controller has no function for it: calls "
                "are answered with an error; pass it in tools, or omit tools to run them yourself"
            )
        if functions and functions.isdisjoint(declared):
            names = ", ".join(map(repr, sorted(functions)))
            warnings.append(
                f"the functions {names} are never called: the request declares no tool of "
                "these names; pass each Tool with its function, tools=[(Tool(name=…), function)], "
                "or declare them in Request.tools"
            )
        for warning in warnings if not self._warned else ():
            log.warning("%s", warning)
        self._warned = self._warned or bool(warnings)


class ContinuationController(_Controller):
    """Continues truncated answers, and runs tool calls that are known to be complete.

    Args:
        provider: the provider function. Its attributes `format` and `provider`, if it has them
            (our clients do), determine how a truncated answer is continued, and how the provider is
            called. An SDK's client is converted by `endturn.providers.sdk_client.provider`, without
            streaming.
        tools: the functions, see Tools; None if the host runs tools itself: a turn then ends with
            the calls that passed the gate in `TurnResult.calls`. A function takes the ToolCall and
            returns text, content parts, or a value that JSON can represent; the model gets its
            exception as an error, also for a result of another type. If the policy has a mode, the
            tool that ends a turn is added and run; a function or a declaration of the host with its
            name takes precedence. Pass {} if there are no other tools.
        policy: by default from the environment, see `ContinuationPolicy.from_environment`.
        provider_name: as in `gen_ai.provider.name`.
        format: the format of the provider function, by default `openai_chat`.
        dialect: the dialect of the format, by default that of the provider function.
        agent, conversation_id: for the turn's records.
        clock: returns seconds; sleep: waits for seconds, between two requests for a response in
            progress; new_id: returns a turn's id.

    Raises:
        UsageError: there is no such format, the environment holds no usable policy, its transcript
            cannot be opened, or an argument has the wrong type.
    """

    _slept = staticmethod(time.sleep)

    def run(self, start: Request | Resumption) -> TurnResult:
        """Run one turn to its end.

        Args:
            start: a request; or the result of `TurnResult.resume()`, to resume an unfinished turn.

        Returns:
            The result. An exception of the provider ends a turn as `provider_error`, with the
            messages so far and the exception in `error`; on the first call, without any text, it is
            raised.

        Raises:
            BaseException: an interrupt, with the partial result in its attribute `turn_result`.
        """
        item: StreamItem | None = None
        for item in self.stream(start):  # noqa: B007 - the last item is the result
            pass
        assert isinstance(item, TurnResult)
        return item

    def stream(self, start: Request | Resumption) -> Iterator[StreamItem]:
        """Stream one turn: the answer's deltas, with those of its continuations.

        The last item is the TurnResult.

        Closing it early closes the provider's stream, and ends the turn as `cancelled`. Raises what
        `run` raises.
        """
        turn = TurnRunner(self._turn(start))
        for item in turn:
            try:
                if isinstance(item, HostCall):
                    with item.outer, item.inner:
                        value = item.function()
                    if value.__class__ is not Delta and isawaitable(value):
                        getattr(value, "close", lambda: None)()
                        message = f"{item.name} is async: use AsyncContinuationController"
                        value = HostCallFailed(UsageError(message), misused=True)
                    turn.value = value
                else:
                    yield item
            except BaseException as error:
                turn.fail(item, error)


class AsyncContinuationController(_Controller):
    """`ContinuationController` for asyncio.

    The provider function and each tool may be async, or not.
    """

    _slept = staticmethod(asyncio.sleep)

    async def run(self, start: Request | Resumption) -> TurnResult:
        """Run one turn; see `ContinuationController.run`. Cancelling it is an interrupt."""
        item: StreamItem | None = None
        async for item in self.stream(start):  # noqa: B007 - the last item is the result
            pass
        assert isinstance(item, TurnResult)
        return item

    async def stream(self, start: Request | Resumption) -> AsyncIterator[StreamItem]:
        """Stream one turn; see `ContinuationController.stream`.

        A consumer that stops early must close it: `aclosing`.
        """
        turn = TurnRunner(self._turn(start))
        for item in turn:
            try:
                if isinstance(item, HostCall):
                    with item.outer, item.inner:
                        value = item.function()
                        if value.__class__ is not Delta and isawaitable(value):
                            value = await value
                    turn.value = value
                else:
                    yield item
            except BaseException as error:
                turn.fail(item, error)


def _split_tools(tools: object) -> tuple[tuple[Tool, ...], Mapping[str, ToolFunction] | None]:
    """Return the declarations of tools with functions, and the functions by name.

    Raises:
        UsageError: `tools` is something else.
    """
    advice = (
        "give functions by name, {'search': search}, or each Tool with its function, "
        "[(Tool(name='search'), search)]"
    )
    if tools is None:
        return (), None
    declared: tuple[Tool, ...] = ()
    functions: Mapping[str, ToolFunction]
    if isinstance(tools, Mapping):
        functions = tools
    elif isinstance(tools, Sequence) and not isinstance(tools, str | bytes):
        for pair in tools:
            if not (
                isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], Tool)
            ):
                raise UsageError(f"tools holds {describe(pair)}: {advice}")
        declared, functions = (
            tuple(tool for tool, _ in tools),
            {tool.name: function for tool, function in tools},
        )
    else:
        raise UsageError(f"tools is {describe(tools)}: {advice}")
    for function in functions.values():
        if not callable(function):
            raise UsageError(
                f"a tool's function is {describe(function)}, which is not callable: {advice}"
            )
    return declared, functions


def _declared_value(provider: Provider, name: str) -> Any:
    """Return an attribute of a provider function, or of the object of a bound method.

    None unless it is set.
    """
    values = (
        getattr(owner, name, None) for owner in (provider, getattr(provider, "__self__", None))
    )
    return next(
        (value for value in values if value is True or (isinstance(value, str) and value)), None
    )
