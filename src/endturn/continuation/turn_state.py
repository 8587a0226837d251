"""A turn in progress: its terms, what it has accumulated, and its phase."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from endturn.calls import Strategy, Turn, listeners
from endturn.continuation import termination
from endturn.continuation.answer_text import AnswerText
from endturn.continuation.dispatched_calls import DispatchedCalls
from endturn.continuation.history import collapse, record
from endturn.continuation.limits import Counters, Limits
from endturn.continuation.machine import Machine
from endturn.continuation.phases import NOTHING_UNRECORDED, Phase, Requesting, Unrecorded
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.refused_prefills import Target
from endturn.continuation.result import Observer, Resumption, TranscriptEntry
from endturn.continuation.termination import FINISH_TASK, TASK_COMPLETED, WalletGuard
from endturn.errors import UsageError
from endturn.formats import (
    Format,
    RequestSummary,
    capabilities,
    limit_in,
    thinking_budget,
    tool_schemas,
    with_setting,
)
from endturn.vocabulary import ChatResponse, Message, Request, StopReason, Tool, ToolCall, Usage

# --- Settings of a controller, and terms of a turn -----------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Settings that all turns of a controller share.

    Attributes:
        policy: the limits and modes.
        format: the format of the provider function.
        provider: the provider's name, for records.
        runnable: names of the tools that have a function; None if the host runs tools itself.
        dialect: the variant of the format.
        retrieves: the provider function accepts a request that fetches a response by its id; see
            `Provider` in `endturn.continuation.controller`.
        follows_tokens: the provider function follows continuation tokens by itself.
        endpoint: the address of the API, if the provider function declares one.
    """

    policy: ContinuationPolicy
    format: Format
    provider: str
    runnable: Container[str] | None
    dialect: str = ""
    retrieves: bool = False
    follows_tokens: bool = False
    endpoint: str = ""

    def target(self, model: str) -> Target:
        """Return the key under which a refused prefill of this model is remembered."""
        return self.format.name, self.dialect, self.provider, self.endpoint, model

    def native_settings(self, request: Request) -> RequestSummary | None:
        """Return a request's native settings as the format reads them; None if there are none."""
        if not request.extra:
            return None
        any_message = Message(role="user", content=".")
        minimal = Request(
            model=request.model,
            messages=(any_message,),
            max_tokens=request.max_tokens,
            format=request.format,
            extra=request.extra,
        )
        return self.format.request_summary(self.format.encode(minimal, dialect=self.dialect))

    def output_limit(self, request: Request) -> int | None:
        """Return a request's limit of output tokens: its own, or a native one in its `extra`."""
        settings = self.native_settings(request)
        return (
            request.max_tokens
            if settings is None or not limit_in(request.extra)
            else settings.facts.max_tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of a turn: fixed by its first request, and the same for all its calls.

    Attributes:
        setup: the controller's settings. policy: the one among them.
        turn: the turn as it is announced.
        request: the host's request.
        base: the same request with each answer of its history as one message and without nudges;
            every call starts from it.
        capability: the model's ways to continue.
        tools: the tools that the request declares, by name.
        output_limit: the request's limit of output tokens.
        is_json: the answer must be JSON.
        holds_json: such an answer is held back until it is known to be JSON.
        offers_end: a tool that ends the turn is declared.
        elapsed: returns the seconds since the turn began.
        continues: as in Resumption.

    Raises:
        UsageError: the policy limits money, and has no price for the model.
    """

    setup: Setup
    policy: ContinuationPolicy
    turn: Turn
    request: Request
    base: Request
    capability: capabilities.Capability
    tools: Mapping[str, Tool]
    output_limit: int | None
    is_json: bool
    holds_json: bool
    offers_end: bool
    elapsed: Callable[[], float]
    continues: str | None = None

    @classmethod
    def of(
        cls, start: Request | Resumption, setup: Setup, *, turn: Turn, clock: Callable[[], float]
    ) -> Terms:
        """Derive the terms of a turn from its request or resumption."""
        began_s, policy = clock(), setup.policy
        request = start if isinstance(start, Request) else start.request
        # the messages may hold segments of an earlier turn
        messages = _collapsed(request.messages, policy)
        base = request if messages == request.messages else request.but(messages=messages)
        if policy.max_cost is not None and policy.price(base.model) is None:
            raise UsageError(f"max_cost is set, and prices has no price for {base.model!r}")
        settings = setup.native_settings(base)
        tools = tool_schemas(base)
        if policy.mode == "task" and FINISH_TASK.name in tools:
            parameters = tools[FINISH_TASK.name].parameters
            tools.setdefault(TASK_COMPLETED.name, TASK_COMPLETED.but(parameters=parameters))
        is_json = base.format is not None or (settings is not None and settings.json_format)
        return cls(
            setup=setup,
            policy=policy,
            turn=turn,
            request=request,
            base=base,
            capability=capabilities.capability_of(
                setup.format.name, setup.dialect, base.model, json_format=base.format
            ),
            tools=tools,
            output_limit=setup.output_limit(base),
            is_json=is_json,
            holds_json=is_json and policy.stream_json == "held",
            offers_end=termination.is_offered(policy.mode, tools),
            elapsed=lambda: clock() - began_s,
            continues=None if isinstance(start, Request) else start.continues,
        )

    def emit(self, record: Callable[..., Any], **values: Any) -> None:
        """Announce a record of this turn."""
        listeners.emit(
            record(turn=self.turn, provider=self.setup.provider, model=self.base.model, **values)
        )

    def collapsed(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """Return a conversation with each answer as one message."""
        return _collapsed(messages, self.policy)


def _collapsed(messages: Iterable[Message], policy: ContinuationPolicy) -> tuple[Message, ...]:
    return collapse(messages, min_overlap=policy.min_overlap, max_overlap=policy.max_overlap)


def limited(request: Request, limit: int | None) -> Request:
    """Return the request with this limit of output tokens, also where its `extra` sets one."""
    extra = request.extra
    if limit is not None:
        for path in limit_in(extra):
            extra = with_setting(extra, path, limit)
    return request.but(max_tokens=limit, extra=extra)


# --- Accumulated values of a turn
# ----------------------------------------------------------------------

JOINING: Final = frozenset({Strategy.PROMPT, Strategy.PREFILL, Strategy.REPAIR})
"""The strategies whose text is joined to a truncated answer."""


class TurnRecord:
    """Accumulates the messages, text and usage of a turn.

    Attributes:
        segments: the turn's messages.
        usage: the sum over its calls.
        counters: usage that counts against its limits.
        text: the shown text, and the answer in progress.
        repair_notice: the notice to the user about tool calls that were requested again and not
            made.
        is_observed: there is an observer.
    """

    __slots__ = (
        "_observer",
        "_price",
        "counters",
        "is_observed",
        "repair_notice",
        "segments",
        "text",
        "usage",
    )

    def __init__(self, start: Resumption, terms: Terms, observer: Observer | None) -> None:
        policy = terms.policy
        self.segments, self.usage = list(start.segments), start.usage
        self.counters: Counters = replace(start.counters)
        self.repair_notice = start.repair_notice
        received = "" if start.superseded is None else start.superseded.text
        self.text = AnswerText(
            start.shown,
            start.answer,
            discarded=received if start.is_discarded else "",
            restarted=start.restarted,
            min_overlap=policy.min_overlap,
            max_overlap=policy.max_overlap,
        )
        if start.strategy in JOINING:
            self.text.expect_continuation(prefilled=start.strategy is Strategy.PREFILL)
        elif start.strategy is Strategy.RETRIEVE and not start.is_discarded:
            self.text.expect_repetition(received)
        self._price = policy.price(terms.base.model)
        self._observer, self.is_observed = observer, observer is not None

    def write(self, **values: Any) -> None:
        """Pass an entry to the observer."""
        if self._observer is not None:
            self._observer(TranscriptEntry(**values))

    def enter(
        self,
        unrecorded: Unrecorded,
        response: ChatResponse,
        calls: tuple[ToolCall, ...] = (),
        *,
        text: str | None = None,
    ) -> Unrecorded:
        """Record a response after the nudges that it answers, and return the unrecorded rest.

        A response without content does not replace a discarded one with content.

        Args:
            unrecorded: the messages that were unrecorded before.
            response: the response.
            calls: its calls that were run or answered.
            text: the recorded part of its text; defaults to all.
        """
        has_content = response.text.strip() or calls or response.stop.reason is StopReason.PAUSED
        if unrecorded.is_discarded and not has_content:
            return unrecorded
        message = record(response, calls, text=text)
        self._write_message(message)
        self.segments += [*unrecorded.nudges, message]
        return NOTHING_UNRECORDED

    def write_nudges(self, unrecorded: Unrecorded) -> Unrecorded:
        """Pass the nudges of the next call to the observer, unless it already has them."""
        if unrecorded.written == len(unrecorded.nudges):
            return unrecorded
        for message in unrecorded.nudges[unrecorded.written :]:
            self._write_message(message)
        return replace(unrecorded, written=len(unrecorded.nudges))

    def _write_message(self, message: Message) -> None:
        if self.is_observed:
            self.write(message=message, counters=replace(self.counters), usage=self.usage)

    def add_usage(self, usage: Usage) -> None:
        """Add the usage of a call, and its cost."""
        self.usage += usage
        if self._price is not None:
            input_price, output_price = self._price
            spent = (usage.input_tokens or 0) * input_price + (
                usage.output_tokens or 0
            ) * output_price
            self.counters.cost += spent / 1e6


# --- The turn -------------------------------------------------------------------------------------


class TurnState:
    """A turn in progress.

    Attributes:
        terms: its fixed terms.
        record: its accumulated messages, text and usage.
        limits: the limits of further calls.
        guard: recognises the end of a turn that a tool should end; None if no such tool is offered.
        dispatched: the tool calls that were run.
        machine: its state in the machine's table.
        phase: the values of that state.
        over: as in Resumption.
    """

    __slots__ = ("dispatched", "guard", "limits", "machine", "over", "phase", "record", "terms")

    def __init__(
        self,
        start: Request | Resumption,
        setup: Setup,
        *,
        turn: Turn,
        clock: Callable[[], float],
        observer: Observer | None,
    ) -> None:
        self.terms = terms = Terms.of(start, setup, turn=turn, clock=clock)
        if isinstance(start, Request):
            start = Resumption(request=start, next=terms.base)
        policy = terms.policy
        guarded_mode = policy.mode if policy.wallet_guard and terms.offers_end else None
        self.record = TurnRecord(start, terms, observer)
        self.guard = None if guarded_mode is None else WalletGuard(guarded_mode)
        self.limits = Limits(
            policy,
            self.record.counters,
            terms.elapsed,
            terms.base.model,
            thinking_budget(terms.base),
        )
        self.dispatched = DispatchedCalls(policy)
        self.machine = Machine()
        self.phase: Phase = Requesting.first(start)
        self.over = start.over

    def resumption(self, call: Requesting) -> Resumption:
        """Return the resumption of the turn's present state with this call."""
        terms, record, superseded = self.terms, self.record, call.unrecorded.superseded
        return Resumption(
            request=terms.request,
            next=call.request,
            pending=call.unrecorded.nudges,
            strategy=call.strategy,
            shown=record.text.shown,
            answer=record.text.answer,
            restarted=record.text.restarted,
            segments=tuple(record.segments),
            usage=record.usage,
            counters=replace(record.counters),
            superseded=None if superseded is None else superseded.response,
            is_discarded=call.unrecorded.is_discarded,
            repair_calls=call.repair_calls,
            repair_notice=record.repair_notice,
        )

    def may_be_trivial(self, strategy: Strategy | None) -> bool:
        """Return whether a trivial answer may be requested again: it is text from one call."""
        return (
            self.guard is not None and strategy in (None, Strategy.RETRY) and not self.terms.is_json
        )
