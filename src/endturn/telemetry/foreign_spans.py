"""Other instrumentations' spans that are open: whose call an exchange is, and whose agent's turn it is part of.

The span processor tells what begins and ends. A span is judged by its attributes when it is asked about, for many come
after its start. Every open span is kept, weakly, for it may turn out to be an agent's; at most `OPEN` of them.

A call's span in which nothing was emitted, until it ended, is a call of its own: one that this process does not send
over HTTP, or that no HTTP client here has been wrapped for. It is emitted then, from what the span says.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from weakref import finalize, ref

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, Span, SpanKind

from endturn import hooks
from endturn.events import CallEnded, CallStarted, Turn, TurnKind, TurnOutcome, TurnStarted
from endturn.formats.reading import number, text, text_or_none
from endturn.scopes import Layer, declared_turn, end_turn, open_call
from endturn.telemetry import cleanup, schema, span_conventions
from endturn.telemetry.cleanup import remember
from endturn.telemetry.span_conventions import Kind, attributes_of, facts_of, kind_of, scope_of

OPEN: Final = 16_384
"""How many open spans are kept; the oldest is given up first."""

RECENT: Final = 1_024
"""How many calls are kept to recognise the spans of instrumentations that never make theirs current."""


@dataclass(slots=True, eq=False)
class ForeignSpan:
    """A span that has not ended, or was handed over with a stream.

    Attributes:
        parent: the id of its parent span, 0 of a root.
        is_counted: a call was emitted within it, or another process has counted what it tells of.
        is_handed_over: it is Logfire's, and ended before its stream was read: another span tells of the end.
        turn: of an agent's span, once a call was made in it.
    """

    span: ref[Any]
    parent: int
    is_counted: bool = False
    is_handed_over: bool = False
    turn: Turn | None = None


@dataclass(frozen=True, slots=True)
class AdoptedSpan:
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


@dataclass(slots=True, eq=False)
class _RecentCall:
    """A call that was emitted. `models` are its names; none of a call that was read from a span."""

    started_ns: int
    models: set[str]
    ended_ns: int | None = None
    response_id: str | None = None


_open: dict[int, ForeignSpan] = {}
_agents: OrderedDict[str, ForeignSpan] = OrderedDict()
"""Agents' spans by the ids of their turns."""
_recent: OrderedDict[int, _RecentCall] = OrderedDict()
"""By the calls' numbers, in the order in which they began."""


# --- What the span processor tells -----------------------------------------------------------------------------------


def began(span: Any, is_counted: Callable[[], bool]) -> None:
    """A span begins. Where calls are counted in this process, a call's span says so from now on."""
    if span.kind is SpanKind.CLIENT and scope_of(span) == schema.SCOPE:
        return
    own = span.get_span_context().span_id
    if own in _open:
        return
    entry = ForeignSpan(ref(span), 0 if span.parent is None else span.parent.span_id)
    if schema.COUNTED.key in attributes_of(span):
        entry.is_counted = True
    elif kind_of(span) in (Kind.CALL, Kind.STREAM_END) and is_counted():
        span.set_attribute(schema.COUNTED.key, True)
    _open[own] = entry
    if len(_open) > OPEN:
        _drop(next(iter(_open)))


def ended(span: Any) -> None:
    """A span has ended: an agent's turn ends with it; a call that nobody emitted is emitted. It is only read."""
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
    if kind in (Kind.CALL, Kind.STREAM_END) and not entry.is_counted and not _was_emitted(span):
        _emit_call(span, entry)


def close_all() -> None:
    """End the turns of all agents' spans that are open: the process, or its instrumentation, ends."""
    for entry in list(_open.values()):
        _end_turn(entry, TurnOutcome.CANCELLED)
    forget()


def forget() -> None:
    """Let go of everything. A forked child does: what is open is its parent's to end."""
    for kept in (_open, _agents, _recent):
        kept.clear()


# --- What an exchange asks -------------------------------------------------------------------------------------------


def span_of_call() -> AdoptedSpan | None:
    """The span that somebody else makes of the exchange that is about to begin; None where there is none, or it is
    taken."""
    current = trace.get_current_span()
    own = current.get_span_context().span_id
    if own in _open:
        spans: list[Any] = list(_calls_around(own))
    else:  # of a provider that no processor of ours is added to
        spans = [current] if current.is_recording() and kind_of(current) is Kind.CALL else []
    if not spans:
        return None
    found = AdoptedSpan(spans[0], tuple(map(scope_of, spans)), own)
    return None if found.is_taken else found


def turn_here() -> Turn | None:
    """The turn of the agent's span that the running code is in."""
    return _turn_around(_current_id()) if _open else None


# --- What the recorder tells and asks --------------------------------------------------------------------------------


def call_started(started: CallStarted, *, counted: bool) -> None:
    """A call has been emitted: the spans around it need not be counted."""
    adopted = started.adopt if isinstance(started.adopt, AdoptedSpan) else None
    if _open:
        around = _current_id() if adopted is None else adopted.around
        for entry in _around(around):
            entry.is_counted = True
        for span in _calls_around(around) if counted else ():
            span.set_attribute(schema.COUNTED.key, True)
    models = set() if adopted is not None and adopted.has_ended else {_short(started.model)}
    remember(_recent, started.number, _RecentCall(started.started_ns, models), most=RECENT)


def call_ended(ended: CallEnded) -> None:
    """A call has ended."""
    call = _recent.get(ended.started.number)
    if call is not None:
        call.ended_ns = ended.started.started_ns + round(ended.duration_s * 1e9)
        call.response_id = ended.response_id
        if call.models and ended.response_model:
            call.models.add(_short(ended.response_model))


def agents_span(turn: Turn) -> Span | None:
    """The span that a turn is told of by, where it is somebody else's."""
    entry = _agents.get(turn.id)
    return None if entry is None else entry.span()


# --- Within ----------------------------------------------------------------------------------------------------------


def _current_id() -> int:
    return trace.get_current_span().get_span_context().span_id


def _around(span_id: int) -> Iterator[ForeignSpan]:
    """The open span of that id and those that it is in, the innermost first."""
    while (entry := _open.get(span_id)) is not None:
        yield entry
        span_id = entry.parent


def _take_handed_over(parent: int) -> bool:
    """Whether the call is counted whose stream has ended: the last that was handed over where its end is told."""
    over = [own for own, entry in list(_open.items()) if entry.is_handed_over and entry.parent == parent]
    return bool(over) and _open.pop(over[-1]).is_counted


def _calls_around(span_id: int) -> Iterator[Any]:
    """The open spans of the call that is made within the span of that id, the innermost first."""
    for entry in _around(span_id):
        span = entry.span()
        kind = kind_of(span)
        if kind in (Kind.AGENT, Kind.TOOL):
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
        agent=text_or_none(facts_of(span).get(schema.AGENT.key)),
        conversation=text_or_none(attributes_of(span).get(schema.CONVERSATION.key)),
        started_s=_perf_counter_at(span.start_time),
        started_ns=span.start_time,
    )
    remember(_agents, turn.id, entry, most=OPEN)
    drop = partial(_drop, span.get_span_context().span_id)
    finalize(span, cleanup.later, drop).atexit = False  # a destructor
    hooks.emit(TurnStarted(turn=turn))
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


def _was_emitted(span: Any) -> bool:
    """Whether a call's span in which nothing was emitted tells of a call that was: of the same response, or, where
    either has no id, of the same model, begun since the span was. Some say of a span that it ended before its request
    was sent."""
    known = facts_of(span)
    response_id, model = known.get(schema.RESPONSE_ID.key), _short(text(known.get(schema.REQUEST_MODEL.key)))
    for call in reversed(list(_recent.values())):
        if response_id is not None and call.response_id is not None:
            if response_id == call.response_id and span.start_time <= (call.ended_ns or span.start_time):
                return True
        elif call.models and span.start_time <= call.started_ns and (not model or model in call.models):
            return True
    return False


def _short(model: str) -> str:
    """A model's name without the provider that routers put before it."""
    return model.rpartition("/")[2]


def _emit_call(span: Any, entry: ForeignSpan) -> None:
    """Emit the records of a call of which only its span tells."""
    if not hooks.listening():
        return
    request = span_conventions.request_of(span)
    scopes = tuple(map(scope_of, (span, *_calls_around(entry.parent))))
    adopted = AdoptedSpan(NonRecordingSpan(span.get_span_context()), scopes, entry.parent, has_ended=True)
    call = open_call(Layer.CLIENT, late=True, adopt=adopted, **request)
    if call is None:
        return
    call.started_ns, call.started_s = span.start_time, _perf_counter_at(span.start_time)
    call.first_chunk_s = number(facts_of(span).get(schema.RESPONSE_FIRST_CHUNK.key))
    call.turn = declared_turn() or _turn_around(entry.parent)
    call.end(**span_conventions.result_of(span, provider=request["provider"], maximum=request["maximum"]))


def _perf_counter_at(ns: int) -> float:
    return time.perf_counter() - max(0, time.time_ns() - ns) / 1e9


cleanup.after_fork(forget)
