"""The open spans of other instrumentations: of model calls, agents and tools.

They decide which span a call adopts, and which agent's turn it belongs to.

endturn writes only to spans of the tracer provider that it records to. Spans of an isolated
provider, which a vendor created for itself, get no attributes and are no turns: endturn creates its
own span of the call.

The span processor reports starts and ends. The kind of a span is determined by its attributes at
the time of the question, because many are set after its start. All open spans are kept as weak
references, at most `OPEN`, because any may turn out to be an agent's.

If no call was emitted within a call's span until its end, the span itself is a call: one that this
process did not send over HTTP, or with an HTTP client that is not instrumented. That call is then
emitted with the data of the span.
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
from endturn.telemetry.span_conventions import (
    OperationKind,
    attributes_of,
    facts_of,
    kind_of,
    scope_of,
)

OPEN: Final = 16_384
"""Maximum number of open spans that are kept; the oldest is dropped first."""

RECENT: Final = 1_024
"""Maximum number of calls that are kept to match spans that their instrumentation never makes
current."""


@dataclass(slots=True, eq=False)
class ForeignSpan:
    """A span that is open, or that ended before its stream was read.

    Attributes:
        parent: the id of its parent span; 0 if it is a root.
        seen_by: the span processor that reported it.
        is_counted: a call was emitted within it, or another process has counted its call.
        is_handed_over: Logfire ended it before the stream was read: another span has the end.
        turn: the turn of an agent's span, from its first call on.
    """

    span: ref[Any]
    parent: int
    seen_by: object
    is_counted: bool = False
    is_handed_over: bool = False
    turn: Turn | None = None


class AdoptedSpan(NamedTuple):
    """Another instrumentation's span of a call; see `CallStarted.adopt`.

    Attributes:
        scopes: the scopes of the instrumentations that have a span of this call.
        around: the id of the innermost open span around the call.
        has_ended: the call was derived from the ended span.
    """

    span: Span
    scopes: tuple[str, ...]
    around: int
    has_ended: bool = False

    @property
    def is_taken(self) -> bool:
        """True if another call has adopted this span."""
        return schema.TURN_ID.key in attributes_of(self.span)


class RecordedTo(NamedTuple):
    """The tracer provider that endturn records to while requests are observed.

    Attributes:
        observer: the span processor that observes its spans; None if none can be added.
        since_ns: the time when it was added. It did not see spans that started earlier.
    """

    provider: object
    observer: object
    since_ns: int


@dataclass(slots=True, eq=False)
class _RecentCall:
    """An emitted call.

    Attributes:
        models: the model's names in the request and, after the end, in the response; empty for a
            call that was derived from a span.
        identity: the id and model of the response, once they have arrived.
        watchers: the other instrumentations of the call.
    """

    started_ns: int
    models: tuple[str, ...]
    identity: ResponseIdentity
    watchers: Watchers
    ended_ns: int | None = None

    def is_of(self, model: str) -> bool:
        """Return whether it is a call to that model, as in the request or in the response.

        "" matches any call.
        """
        names = (*self.models, self.identity.model or "")
        return not model or model in map(_short, names)


_open: OrderedDict[int, ForeignSpan] = OrderedDict()
_agents: OrderedDict[str, ForeignSpan] = OrderedDict()
"""Agents' spans by turn id."""
_recent: OrderedDict[int, _RecentCall] = OrderedDict()
"""Recent calls by number, in the order of their start."""
_BARRIERS: Final = (OperationKind.AGENT, OperationKind.TOOL)
_recorded_to: RecordedTo | None = None
"""None while no requests are observed: then every open span comes from a processor that the host
added."""


def record_to(provider: RecordedTo | None) -> None:
    """Write to spans of this provider only, from now on."""
    global _recorded_to
    _recorded_to = provider


# --- Called by the span processor -----------------------------------------------------------------


def began(span: Any, is_counted: Callable[[], bool], seen_by: object) -> None:
    """Keep a span that starts. If this process counts calls, mark a call's span as counted."""
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
    elif kind_of(span) in (OperationKind.CALL, OperationKind.STREAM_END) and is_counted():
        span.set_attribute(schema.COUNTED.key, True)
    _open[own] = entry
    if len(_open) > OPEN:
        _drop(next(iter(_open)))


def ended(span: Any) -> None:
    """End the turn of an agent's ended span, or emit the call of a call's span if none was emitted.

    The span is only read.
    """
    own = span.get_span_context().span_id
    entry = _open.get(own)
    if entry is None:
        return
    kind = kind_of(span)
    if kind is OperationKind.CALL and span_conventions.is_handed_over(span):
        entry.is_handed_over = True
        return
    del _open[own]
    if entry.turn is not None:
        entry.turn.agent = entry.turn.agent or text_or_none(facts_of(span).get(schema.AGENT.key))
        _end_turn(entry, span_conventions.outcome_of(span))
    if kind is OperationKind.STREAM_END:
        entry.is_counted |= _take_handed_over(entry.parent)
    if kind in (OperationKind.CALL, OperationKind.STREAM_END) and not entry.is_counted:
        call = _emitted(span)
        if call is None:
            _emit_call(span, entry)
        else:
            call.watchers.add(scope_of(span))


def close_all(seen_by: object = None) -> None:
    """End the turns of agents' open spans.

    Called at the end of the process, of the instrumentation, or of a tracer provider.

    Args:
        seen_by: only spans that this processor reported.
    """
    for own, entry in list(_open.items()):
        if seen_by is None or entry.seen_by is seen_by:
            _end_turn(entry, TurnOutcome.CANCELLED)
            _open.pop(own, None)
    if seen_by is None:
        forget()


def forget() -> None:
    """Forget all spans and calls. Called in a forked child, whose parent ends the open ones."""
    for entries in (_open, _agents, _recent):
        entries.clear()


# --- Called by an exchange ------------------------------------------------------------------------


def span_of_call() -> AdoptedSpan | None:
    """Return another instrumentation's span of the exchange that is about to start.

    None if there is none, another call has adopted it, or endturn may not write to it.
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
    elif (
        current.is_recording()
        and kind_of(current) is OperationKind.CALL
        and _is_written_to(current)
    ):
        spans = [current]
    if not spans:
        return None
    adopted = AdoptedSpan(spans[0], tuple(map(scope_of, spans)), own)
    return None if adopted.is_taken else adopted


def span_here(provider: object) -> Span | None:
    """Return the current span if it is open and of the provider that is recorded to."""
    current = trace.get_current_span()
    return current if current.is_recording() and _is_written_to(current, provider) else None


def parent_of(current: Span) -> Context | None:
    """Return the context in which to start a span; None for the current context.

    In a span of an isolated provider, that is the context of its parent, so that the host's trace
    has no gap.
    """
    if current is trace.INVALID_SPAN:
        return None
    own = _here(current)
    if own == current.get_span_context().span_id or (entry := _open.get(own)) is None:
        return None
    span = entry.span()
    return None if span is None else trace.set_span_in_context(span)


def turn_here() -> Turn | None:
    """Return the turn of the enclosing agent's span."""
    return _turn_around(_here(trace.get_current_span())) if _open else None


def tool_call_around(current: Span) -> str | None:
    """Return the id of the tool call whose span encloses the current span.

    None if there is no such span that endturn may write to.
    """
    if current is trace.INVALID_SPAN:
        return None
    own = _here(current)
    spans = [entry.span() for entry in _around(own)] if own in _open else [current]
    barrier = next((span for span in spans if span is not None and _is_barrier(span)), None)
    if (
        barrier is None
        or not barrier.is_recording()
        or kind_of(barrier) is not OperationKind.TOOL
        or not _is_written_to(barrier)
    ):
        return None
    return text_or_none(attributes_of(barrier).get(schema.TOOL_CALL_ID.key))


# --- Called by the recorder -----------------------------------------------------------------------


def call_started(started: CallStarted, current: Span, is_counted: Callable[[], bool]) -> Watchers:
    """Mark the spans around a call that was emitted as counted, and remember the call.

    Args:
        started: the record of the call's start.
        current: the current span.
        is_counted: returns whether metrics of this process count the call.

    Returns:
        The other instrumentations of the call, as far as open spans show.
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
    if adopted is None and current.is_recording() and kind_of(current) is OperationKind.CALL:
        watchers.add(scope_of(current))
    if _open and not (is_apart and _is_barrier(current)):
        for entry in _around(around):
            entry.is_counted = True
        for span in _calls_around(around):
            watchers.add(scope_of(span))
            if is_counted:
                span.set_attribute(schema.COUNTED.key, True)


def call_ended(ended: CallEnded) -> None:
    """Complete the entry of a call that has ended."""
    call = _recent.get(ended.started.number)
    if call is not None:
        call.ended_ns = ended.started.started_ns + round(ended.duration_s * 1e9)
        call.identity.id = ended.response.id or call.identity.id
        if call.models and ended.response.model:
            call.models = (*call.models, ended.response.model)


def agents_span(turn: Turn) -> Span | None:
    """Return another instrumentation's span of a turn; None if there is none."""
    entry = _agents.get(turn.id)
    return None if entry is None else entry.span()


def take_over(turn: Turn, earlier: Turn) -> bool:
    """Assign an agent's span without calls to the turn of an earlier run.

    Args:
        turn: the present turn of the span.
        earlier: the turn of the earlier run.

    Returns:
        Whether the turn has an agent's span, which was assigned.
    """
    entry = None if turn.iterations else _agents.pop(turn.id, None)
    if entry is None:
        return False
    entry.turn = earlier
    remember(_agents, earlier.id, entry, most=OPEN)
    return True


# --- Helpers --------------------------------------------------------------------------------------


def _here(current: Any) -> int:
    """Return the id of the innermost known span.

    That is the current span, or its parent if the current one is of an isolated provider.
    """
    own: int = current.get_span_context().span_id
    if own in _open or not current.is_recording() or scope_of(current) == schema.SCOPE:
        return own
    parent = getattr(current, "parent", None)
    return own if parent is None or parent.span_id not in _open else parent.span_id


def _is_barrier(span: Any) -> bool:
    """Return whether calls within a span are separate from a call around it."""
    return kind_of(span) in _BARRIERS


def _is_written_to(span: Any, provider: object = None) -> bool:
    """Return whether a span is of the recorded provider, or of one whose host added a processor.

    A span processor sees all spans of its provider. A span that started before ours was added is
    identified by its resource: each provider has its own.

    Args:
        span: the span.
        provider: the provider that is recorded to while no requests are observed. Defaults to the
            global one.
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
    """Yield the open span with that id and the spans around it, the innermost first."""
    while (entry := _open.get(span_id)) is not None:
        yield entry
        span_id = entry.parent


def _take_handed_over(parent: int) -> bool:
    """Return whether the call of an ended stream was counted.

    Removes its entry: the last one with that parent that ended before its stream was read.
    """
    span_ids = [
        own for own, entry in list(_open.items()) if entry.is_handed_over and entry.parent == parent
    ]
    return bool(span_ids) and _open.pop(span_ids[-1]).is_counted


def _calls_around(span_id: int) -> Iterator[Any]:
    """Yield the open spans of the call within the span with that id, the innermost first."""
    for entry in _around(span_id):
        span = entry.span()
        kind = kind_of(span)
        if kind in _BARRIERS:
            return
        if kind is OperationKind.CALL and span is not None and span.is_recording():
            yield span


def _turn_around(span_id: int) -> Turn | None:
    for entry in _around(span_id):
        span = entry.span()
        if span is not None and kind_of(span) is OperationKind.AGENT:
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
        if turn.outcome is not None:  # None: a stream is still being read
            _agents.pop(turn.id, None)


def _drop(span_id: int) -> None:
    """End the turn of a span that was garbage-collected before it ended."""
    entry = _open.pop(span_id, None)
    if entry is not None:
        _end_turn(entry, TurnOutcome.CANCELLED)


def _emitted(span: Any) -> _RecentCall | None:
    """Return the emitted call of a span within which no call was emitted.

    The call has the same response id or, if either has no id, the same model and a start after the
    span's. Among several, one without a span of this instrumentation is preferred. By response id
    it is found even if the span ended before the request was sent.
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
    """Return a model's name without a router's provider prefix."""
    return model.rpartition("/")[2]


def _emit_call(span: Any, entry: ForeignSpan) -> None:
    """Emit the records of a call that is known only from its span."""
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
