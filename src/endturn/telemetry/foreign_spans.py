"""Other instrumentations' spans that are open.

Whose call an exchange is, and whose agent's turn it is part of.

Only spans of the tracer provider that is recorded to are written to. A span of an isolated
provider, which a vendor made for itself, is somebody else's: it gets no attribute, is no turn, and
endturn makes its own span of the call.

The span processor tells what begins and ends. A span is judged by its attributes when it is asked
about, for many come after its start. Every open span is kept, weakly, for it may turn out to be an
agent's; at most `OPEN` of them.

A call's span in which nothing was emitted, until it ended, is a call of its own: one that this
process does not send over HTTP, or that no HTTP client here has been wrapped for. It is emitted
then, from what the span says.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple
from weakref import finalize, ref

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanKind

from endturn.calls import (
    CallEnded,
    CallStarted,
    Layer,
    ResponseIdentity,
    Turn,
    TurnKind,
    TurnOutcome,
    TurnStarted,
    declared_turn,
    end_turn,
    listeners,
    open_call,
)
from endturn.formats import number, text, text_or_none
from endturn.telemetry import cleanup, schema, span_conventions
from endturn.telemetry.cleanup import remember
from endturn.telemetry.foreign_metrics import Watchers
from endturn.telemetry.span_conventions import Kind, attributes_of, facts_of, kind_of, scope_of

OPEN: Final = 16_384
"""How many open spans are kept; the oldest is given up first."""

RECENT: Final = 1_024
"""How many calls are kept to recognise the spans of instrumentations that never make theirs
current."""


@dataclass(slots=True, eq=False)
class ForeignSpan:
    """A span that has not ended, or was handed over with a stream.

    Attributes:
        parent: the id of its parent span, 0 of a root.
        seen_by: the span processor that told of it.
        is_counted: a call was emitted within it, or another process has counted what it tells of.
        is_handed_over: it is Logfire's, and ended before its stream was read: another span tells of
            the end.
        turn: of an agent's span, once a call was made in it.
    """

    span: ref[Any]
    parent: int
    seen_by: object
    is_counted: bool = False
    is_handed_over: bool = False
    turn: Turn | None = None


class AdoptedSpan(NamedTuple):
    """A span that somebody else makes of a call; see `CallStarted.adopt`.

    Attributes:
        scopes: of the instrumentations that make a span of this call.
        around: the id of the innermost span, open, that the call is made in.
        has_ended: the call was read from the span.
    """

    span: Span
    scopes: tuple[str, ...]
    around: int
    has_ended: bool = False

    @property
    def is_taken(self) -> bool:
        """Whether a call has been told of by this span already."""
        return schema.TURN_ID.key in attributes_of(self.span)


class RecordedTo(NamedTuple):
    """The tracer provider that is recorded to while requests are observed.

    Attributes:
        observer: the span processor that sees its spans; None where none can be added.
        since_ns: since when it does. What began before was not seen.
    """

    provider: object
    observer: object
    since_ns: int


@dataclass(slots=True, eq=False)
class _RecentCall:
    """A call that was emitted.

    Attributes:
        models: its names, without what the response says; none of a call that was read from a span.
        identity: what the response calls itself, once it does.
        watchers: the other instrumentations that watch it.
    """

    started_ns: int
    models: tuple[str, ...]
    identity: ResponseIdentity
    watchers: Watchers
    ended_ns: int | None = None

    def is_of(self, model: str) -> bool:
        """Whether it is a call of that model, as requested or as the response says.

        "" may be any.
        """
        names = (*self.models, self.identity.model or "")
        return not model or model in map(_short, names)


_open: OrderedDict[int, ForeignSpan] = OrderedDict()
_agents: OrderedDict[str, ForeignSpan] = OrderedDict()
"""Agents' spans by the ids of their turns."""
_recent: OrderedDict[int, _RecentCall] = OrderedDict()
"""By the calls' numbers, in the order in which they began."""
_BARRIERS: Final = (Kind.AGENT, Kind.TOOL)
_recorded_to: RecordedTo | None = None
"""None while no requests are observed: then every span is somebody's who asked to have it looked
at."""


def record_to(provider: RecordedTo | None) -> None:
    """From now on spans of this provider, and of no other, are written to."""
    global _recorded_to
    _recorded_to = provider


# --- What the span processor tells ----------------------------------------------------------------


def began(span: Any, is_counted: Callable[[], bool], seen_by: object) -> None:
    """A span begins. Where calls are counted in this process, a call's span says so from now on."""
    if span.kind is SpanKind.CLIENT and scope_of(span) == schema.SCOPE:
        return
    own = span.get_span_context().span_id
    if (open_span := _open.get(own)) is not None:
        if _recorded_to is not None and seen_by is _recorded_to.observer:
            open_span.seen_by = seen_by
        return
    entry = ForeignSpan(ref(span), 0 if span.parent is None else span.parent.span_id, seen_by)
    if schema.COUNTED.key in attributes_of(span):
        entry.is_counted = True
    elif kind_of(span) in (Kind.CALL, Kind.STREAM_END) and is_counted():
        span.set_attribute(schema.COUNTED.key, True)
    _open[own] = entry
    if len(_open) > OPEN:
        _drop(next(iter(_open)))


def ended(span: Any) -> None:
    """A span has ended: an agent's turn ends with it; a call that nobody emitted is emitted.

    It is only read.
    """
    own = span.get_span_context().span_id
    entry = _open.get(own)
    if entry is None:
        return
    kind = kind_of(span)
    if kind is Kind.CALL and span_conventions.is_handed_over(span):
        entry.is_handed_over = True
        return
    del _open[own]
    if entry.turn is not None:
        entry.turn.agent = entry.turn.agent or text_or_none(facts_of(span).get(schema.AGENT.key))
        _end_turn(entry, span_conventions.outcome_of(span))
    if kind is Kind.STREAM_END:
        entry.is_counted |= _take_handed_over(entry.parent)
    if kind in (Kind.CALL, Kind.STREAM_END) and not entry.is_counted:
        call = _emitted(span)
        if call is None:
            _emit_call(span, entry)
        else:
            call.watchers.add(scope_of(span))


def close_all(seen_by: object = None) -> None:
    """End the turns of agents' spans that are open.

    The process, its instrumentation, or a tracer provider ends.

    Args:
        seen_by: only of spans that this processor told of.
    """
    for own, entry in list(_open.items()):
        if seen_by is None or entry.seen_by is seen_by:
            _end_turn(entry, TurnOutcome.CANCELLED)
            _open.pop(own, None)
    if seen_by is None:
        forget()


def forget() -> None:
    """Let go of everything. A forked child does: what is open is its parent's to end."""
    for kept in (_open, _agents, _recent):
        kept.clear()


# --- What an exchange asks ------------------------------------------------------------------------


def span_of_call() -> AdoptedSpan | None:
    """Return the span that another instrumentation made of the exchange that is about to begin.

    None if there is none, it is taken, or it is not ours to write to.
    """
    current = trace.get_current_span()
    if current is trace.INVALID_SPAN:
        return None
    own = _here(current)
    spans: list[Any] = []
    if own in _open:
        spans = (
            []
            if _is_barrier(current)
            else [span for span in _calls_around(own) if _is_written_to(span)]
        )
    elif current.is_recording() and kind_of(current) is Kind.CALL and _is_written_to(current):
        spans = [current]
    if not spans:
        return None
    adopted = AdoptedSpan(spans[0], tuple(map(scope_of, spans)), own)
    return None if adopted.is_taken else adopted


def span_here(provider: object) -> Span | None:
    """The current span, where it is open and of the provider that is recorded to."""
    current = trace.get_current_span()
    return current if current.is_recording() and _is_written_to(current, provider) else None


def parent_of(current: Span) -> Context | None:
    """The context in which a span of ours begins within the current one: None for the current one.

    Within a span of an isolated provider that is the context of the span around it, so that the
    host's trace is whole.
    """
    if current is trace.INVALID_SPAN:
        return None
    own = _here(current)
    if own == current.get_span_context().span_id or (entry := _open.get(own)) is None:
        return None
    span = entry.span()
    return None if span is None else trace.set_span_in_context(span)


def turn_here() -> Turn | None:
    """The turn of the agent's span that the running code is in."""
    return _turn_around(_here(trace.get_current_span())) if _open else None


def tool_call_around(current: Span) -> str | None:
    """The id of the tool call in whose span the current span is.

    None where no such span is ours to write to.
    """
    if current is trace.INVALID_SPAN:
        return None
    own = _here(current)
    spans = [entry.span() for entry in _around(own)] if own in _open else [current]
    barrier = next((span for span in spans if span is not None and _is_barrier(span)), None)
    if (
        barrier is None
        or not barrier.is_recording()
        or kind_of(barrier) is not Kind.TOOL
        or not _is_written_to(barrier)
    ):
        return None
    return text_or_none(attributes_of(barrier).get(schema.TOOL_CALL_ID.key))


# --- What the recorder tells and asks -------------------------------------------------------------


def call_started(started: CallStarted, current: Span, is_counted: Callable[[], bool]) -> Watchers:
    """A call has been emitted: the spans around it need not be counted.

    Args:
        current: the current span.
        is_counted: whether the call is counted by metrics of this process.

    Returns:
        The other instrumentations that watch it, as far as spans that are open tell.
    """
    adopted = started.adopt if isinstance(started.adopt, AdoptedSpan) else None
    watchers = Watchers() if adopted is None else Watchers(adopted.scopes)
    if adopted is not None or current is not trace.INVALID_SPAN:
        _count_around(current, adopted, watchers, is_counted=is_counted())
    models = () if adopted is not None and adopted.has_ended else (started.request.model,)
    call = _RecentCall(started.started_ns, models, started.identity, watchers)
    remember(_recent, started.number, call, most=RECENT)
    return watchers


def _count_around(
    current: Any, adopted: AdoptedSpan | None, watchers: Watchers, *, is_counted: bool
) -> None:
    """Mark the spans around a call as counted, and add their instrumentations to its watchers."""
    around = _here(current) if adopted is None else adopted.around
    is_apart = adopted is None and around != current.get_span_context().span_id
    if adopted is None and current.is_recording() and kind_of(current) is Kind.CALL:
        watchers.add(scope_of(current))
    if _open and not (is_apart and _is_barrier(current)):
        for entry in _around(around):
            entry.is_counted = True
        for span in _calls_around(around):
            watchers.add(scope_of(span))
            if is_counted:
                span.set_attribute(schema.COUNTED.key, True)


def call_ended(ended: CallEnded) -> None:
    """A call has ended."""
    call = _recent.get(ended.started.number)
    if call is not None:
        call.ended_ns = ended.started.started_ns + round(ended.duration_s * 1e9)
        call.identity.id = ended.response.id or call.identity.id
        if call.models and ended.response.model:
            call.models = (*call.models, ended.response.model)


def agents_span(turn: Turn) -> Span | None:
    """The span that a turn is told of by, where it is somebody else's."""
    entry = _agents.get(turn.id)
    return None if entry is None else entry.span()


def take_over(turn: Turn, earlier: Turn) -> bool:
    """Make an agent's span in which no call was made a part of an earlier run's turn.

    Args:
        turn: of the span.

    Returns:
        Whether it is of an agent's span, and has been taken over.
    """
    entry = None if turn.iterations else _agents.pop(turn.id, None)
    if entry is None:
        return False
    entry.turn = earlier
    remember(_agents, earlier.id, entry, most=OPEN)
    return True


# --- Within ---------------------------------------------------------------------------------------


def _here(current: Any) -> int:
    """Return the id of the innermost known span.

    That is the current one, or its parent where the current one is of an isolated provider.
    """
    own: int = current.get_span_context().span_id
    if own in _open or not current.is_recording() or scope_of(current) == schema.SCOPE:
        return own
    parent = getattr(current, "parent", None)
    return own if parent is None or parent.span_id not in _open else parent.span_id


def _is_barrier(span: Any) -> bool:
    """Whether what is called within a span is no part of a call that the span is in."""
    return kind_of(span) in _BARRIERS


def _is_written_to(span: Any, provider: object = None) -> bool:
    """Return whether a span is of the recorded provider, or of one that we were asked to observe.

    A provider's processors see its spans. Of one that began before ours was added, its resource
    tells: every provider has its own.

    Args:
        provider: the one that is recorded to where no requests are observed; the global one where
            not given.
    """
    entry, recorded = _open.get(span.get_span_context().span_id), _recorded_to
    if entry is not None:
        return recorded is None or entry.seen_by is recorded.observer
    if scope_of(span) == schema.SCOPE:
        return True
    if (
        recorded is not None
        and recorded.observer is not None
        and getattr(span, "start_time", 0) >= recorded.since_ns
    ):
        return False
    provider = provider or trace.get_tracer_provider() if recorded is None else recorded.provider
    resource = getattr(provider, "resource", None)
    return resource is not None and getattr(span, "resource", None) is resource


def _around(span_id: int) -> Iterator[ForeignSpan]:
    """The open span of that id and those that it is in, the innermost first."""
    while (entry := _open.get(span_id)) is not None:
        yield entry
        span_id = entry.parent


def _take_handed_over(parent: int) -> bool:
    """Whether the call is counted whose stream has ended.

    The last that was handed over where its end is told.
    """
    over = [
        own for own, entry in list(_open.items()) if entry.is_handed_over and entry.parent == parent
    ]
    return bool(over) and _open.pop(over[-1]).is_counted


def _calls_around(span_id: int) -> Iterator[Any]:
    """The open spans of the call that is made within the span of that id, the innermost first."""
    for entry in _around(span_id):
        span = entry.span()
        kind = kind_of(span)
        if kind in _BARRIERS:
            return
        if kind is Kind.CALL and span is not None and span.is_recording():
            yield span


def _turn_around(span_id: int) -> Turn | None:
    for entry in _around(span_id):
        span = entry.span()
        if span is not None and kind_of(span) is Kind.AGENT:
            return entry.turn or _begin_turn(entry, span)
    return None


def _begin_turn(entry: ForeignSpan, span: Any) -> Turn:
    entry.turn = turn = Turn(
        kind=TurnKind.OBSERVED,
        recognised=True,
        agent=text_or_none(facts_of(span).get(schema.AGENT.key)),
        conversation=text_or_none(attributes_of(span).get(schema.CONVERSATION.key)),
        started_s=_perf_counter_at(span.start_time),
        started_ns=span.start_time,
    )
    remember(_agents, turn.id, entry, most=OPEN)
    drop = partial(_drop, span.get_span_context().span_id)
    finalize(span, cleanup.later, drop).atexit = False  # a destructor
    listeners.emit(TurnStarted(turn=turn))
    return turn


def _end_turn(entry: ForeignSpan, outcome: TurnOutcome) -> None:
    turn = entry.turn
    if turn is not None and turn.iterations:
        end_turn(turn, outcome)
        if turn.outcome is not None:  # else a stream is still being read
            _agents.pop(turn.id, None)


def _drop(span_id: int) -> None:
    """End the turn of a span that its owner dropped without ending it."""
    entry = _open.pop(span_id, None)
    if entry is not None:
        _end_turn(entry, TurnOutcome.CANCELLED)


def _emitted(span: Any) -> _RecentCall | None:
    """Return the emitted call that a span reports in which nothing was emitted.

    It is of the same response, or, where either has no id, of the same model, begun since the span
    was. Some say of a span that it ended before its request was sent. Of several, one that no span
    of this instrumentation has reported.
    """
    facts, scope = facts_of(span), scope_of(span)
    response_id, model = (
        facts.get(schema.RESPONSE_ID.key),
        _short(text(facts.get(schema.REQUEST_MODEL.key))),
    )
    candidate = None
    for call in reversed(list(_recent.values())):
        if response_id is not None and call.identity.id is not None:
            if response_id == call.identity.id and span.start_time <= (
                call.ended_ns or span.start_time
            ):
                return call
        elif call.models and span.start_time <= call.started_ns and call.is_of(model):
            if scope not in call.watchers.scopes:
                return call
            candidate = candidate or call
    return candidate


def _short(model: str) -> str:
    """A model's name without the provider that routers put before it."""
    return model.rpartition("/")[2]


def _emit_call(span: Any, entry: ForeignSpan) -> None:
    """Emit the records of a call of which only its span tells."""
    if not listeners.listening():
        return
    request, endpoint = span_conventions.request_of(span), span_conventions.endpoint_of(span)
    scopes = tuple(map(scope_of, (span, *_calls_around(entry.parent))))
    adopted = AdoptedSpan(
        NonRecordingSpan(span.get_span_context()), scopes, entry.parent, has_ended=True
    )
    call = open_call(Layer.CLIENT, request, endpoint, is_deferred=True, adopt=adopted)
    if call is None:
        return
    call.started_ns, call.started_s = span.start_time, _perf_counter_at(span.start_time)
    call.first_chunk_s = number(facts_of(span).get(schema.RESPONSE_FIRST_CHUNK.key))
    call.turn = declared_turn() or _turn_around(entry.parent)
    response, error = span_conventions.result_of(
        span, provider=endpoint.provider, maximum=request.max_tokens
    )
    call.end(response, error=error)


def _perf_counter_at(ns: int) -> float:
    return time.perf_counter() - max(0, time.time_ns() - ns) / 1e9


cleanup.after_fork(forget)
