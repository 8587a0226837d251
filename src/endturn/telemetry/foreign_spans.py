"""The open spans of other instrumentations: of model calls, agents and tools.

They decide which span a call adopts, and which agent's turn it belongs to.

endturn writes only to spans of the tracer provider that it records to. Spans of an isolated
provider, which a vendor created for itself, get no attributes and are no turns: endturn creates its
own span of the call.

The span processor reports starts and ends. A span's kind is computed from its attributes whenever
it is needed, because many attributes are set after the start. So every open span is kept, as a weak
reference, at most `MAX_OPEN_SPANS`: any may get the attributes of an agent's span later.

If the span of a model call ends and endturn has emitted no call within it, then the process did not
send that call over an instrumented HTTP client. The call is then emitted with the span's data.
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
from endturn.telemetry.cleanup import put_bounded
from endturn.telemetry.foreign_metrics import ForeignInstrumentations
from endturn.telemetry.span_conventions import (
    OperationKind,
    attributes_of,
    facts_of,
    kind_of,
    scope_of,
)

MAX_OPEN_SPANS: Final = 16_384
"""Maximum number of open spans that are kept; the oldest is dropped first."""

MAX_RECENT_CALLS: Final = 1_024
"""Maximum number of calls that are kept to match spans that their instrumentation never makes
current."""


@dataclass(slots=True, eq=False)
class ForeignSpan:
    """A span that is open, or that ended before its stream was read.

    Attributes:
        parent: the id of its parent span; 0 if it is a root.
        observer: the span processor that reported it.
        is_counted: its call is already in metrics: endturn emitted the call, or another process
            has marked the span with `endturn.counted`.
        ended_before_stream: it ended before its stream was read, as Logfire's spans do. Logfire
            records the stream's end in a second span.
        turn: the turn of an agent's span, from its first call on.
    """

    span: ref[Any]
    parent: int
    observer: object
    is_counted: bool = False
    ended_before_stream: bool = False
    turn: Turn | None = None


class AdoptedSpan(NamedTuple):
    """Another instrumentation's span of a call; see `CallStarted.adopt`.

    Attributes:
        scopes: the scopes of the instrumentations that have a span of this call.
        enclosing_id: the id of the innermost open span around the call.
        has_ended: the span has ended, and the call was emitted from its data.
    """

    span: Span
    scopes: tuple[str, ...]
    enclosing_id: int
    has_ended: bool = False

    @property
    def is_adopted(self) -> bool:
        """True if another call has adopted this span."""
        return schema.TURN_ID.key in attributes_of(self.span)


class RecordingTarget(NamedTuple):
    """The tracer provider that receives endturn's spans while HTTP requests are observed.

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
        instrumentations: the other instrumentations of the call.
    """

    started_ns: int
    models: tuple[str, ...]
    identity: ResponseIdentity
    instrumentations: ForeignInstrumentations
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
"""A call within such a span is not a part of a call around that span."""
_recording_target: RecordingTarget | None = None
"""None while no HTTP requests are observed. Only processors that the host added report spans then,
so endturn may write to all of them."""


def record_to(provider: RecordingTarget | None) -> None:
    """Write to spans of this provider only, from now on."""
    global _recording_target
    _recording_target = provider


# --- Called by the span processor -----------------------------------------------------------------


def on_span_start(span: Any, counts_calls: Callable[[], bool], observer: object) -> None:
    """Keep a span that starts. If this process counts calls, mark a call's span as counted.

    Args:
        span: the span.
        counts_calls: returns whether metrics of this process count calls.
        observer: the span processor that reports it.
    """
    if span.kind is SpanKind.CLIENT and scope_of(span) == schema.SCOPE:
        return  # endturn's own span of a call
    span_id = span.get_span_context().span_id
    if (entry := _open.get(span_id)) is not None:
        if _recording_target is not None and observer is _recording_target.observer:
            entry.observer = observer
        return
    entry = ForeignSpan(ref(span), 0 if span.parent is None else span.parent.span_id, observer)
    if schema.COUNTED.key in attributes_of(span):
        entry.is_counted = True
    elif kind_of(span) in (OperationKind.CALL, OperationKind.STREAM_END) and counts_calls():
        span.set_attribute(schema.COUNTED.key, True)
    _open[span_id] = entry
    if len(_open) > MAX_OPEN_SPANS:
        _drop(next(iter(_open)))


def on_span_end(span: Any) -> None:
    """End the turn of an agent's ended span, or emit the call of a call's span if none was emitted.

    The span is only read.
    """
    span_id = span.get_span_context().span_id
    entry = _open.get(span_id)
    if entry is None:
        return
    kind = kind_of(span)
    if kind is OperationKind.CALL and span_conventions.ended_before_stream(span):
        entry.ended_before_stream = True
        return
    del _open[span_id]
    if entry.turn is not None:
        entry.turn.agent = entry.turn.agent or text_or_none(facts_of(span).get(schema.AGENT.key))
        _end_turn(entry, span_conventions.outcome_of(span))
    if kind is OperationKind.STREAM_END:
        entry.is_counted |= _pop_streamed_call(entry.parent)
    if kind in (OperationKind.CALL, OperationKind.STREAM_END) and not entry.is_counted:
        call = _find_emitted_call(span)
        if call is None:
            _emit_call(span, entry)
        else:
            call.instrumentations.add(scope_of(span))


def close_all(observer: object = None) -> None:
    """End the turns of agents' open spans.

    Called at the end of the process, of the instrumentation, or of a tracer provider.

    Args:
        observer: only spans that this processor reported.
    """
    for span_id, entry in list(_open.items()):
        if observer is None or entry.observer is observer:
            _end_turn(entry, TurnOutcome.CANCELLED)
            _open.pop(span_id, None)
    if observer is None:
        forget()


def forget() -> None:
    """Forget all spans and calls. Called in a forked child, whose parent ends the open ones."""
    for entries in (_open, _agents, _recent):
        entries.clear()


# --- Called by an exchange ------------------------------------------------------------------------


def adoptable_span() -> AdoptedSpan | None:
    """Return another instrumentation's span of the exchange that is about to start.

    None if there is none, another call has adopted it, or endturn may not write to it.
    """
    current = trace.get_current_span()
    if current is trace.INVALID_SPAN:
        return None
    span_id = _known_span_id(current)
    spans: list[Any] = []
    if span_id in _open:
        spans = (
            []
            if _is_barrier(current)
            else [span for span in _enclosing_calls(span_id) if _may_write_to(span)]
        )
    elif (
        current.is_recording() and kind_of(current) is OperationKind.CALL and _may_write_to(current)
    ):
        spans = [current]
    if not spans:
        return None
    adopted = AdoptedSpan(spans[0], tuple(map(scope_of, spans)), span_id)
    return None if adopted.is_adopted else adopted


def current_span(provider: object) -> Span | None:
    """Return the current span if it is open and of the provider that is recorded to."""
    current = trace.get_current_span()
    return current if current.is_recording() and _may_write_to(current, provider) else None


def parent_of(current: Span) -> Context | None:
    """Return the context in which to start a span; None for the current context.

    In a span of an isolated provider, that is the context of its parent, so that the host's trace
    has no gap.
    """
    if current is trace.INVALID_SPAN:
        return None
    span_id = _known_span_id(current)
    if span_id == current.get_span_context().span_id or (entry := _open.get(span_id)) is None:
        return None
    span = entry.span()
    return None if span is None else trace.set_span_in_context(span)


def current_agent_turn() -> Turn | None:
    """Return the turn of the enclosing agent's span."""
    return _enclosing_turn(_known_span_id(trace.get_current_span())) if _open else None


def enclosing_tool_call(current: Span) -> str | None:
    """Return the id of the tool call whose span encloses the current span.

    None if there is no such span that endturn may write to.
    """
    if current is trace.INVALID_SPAN:
        return None
    span_id = _known_span_id(current)
    spans = [entry.span() for entry in _enclosing(span_id)] if span_id in _open else [current]
    barrier = next((span for span in spans if span is not None and _is_barrier(span)), None)
    if (
        barrier is None
        or not barrier.is_recording()
        or kind_of(barrier) is not OperationKind.TOOL
        or not _may_write_to(barrier)
    ):
        return None
    return text_or_none(attributes_of(barrier).get(schema.TOOL_CALL_ID.key))


# --- Called by the recorder -----------------------------------------------------------------------


def call_started(
    started: CallStarted, current: Span, counts_calls: Callable[[], bool]
) -> ForeignInstrumentations:
    """Mark the spans around a call that was emitted as counted, and remember the call.

    Args:
        started: the record of the call's start.
        current: the current span.
        counts_calls: returns whether metrics of this process count the call.

    Returns:
        The other instrumentations with an open span of the call.
    """
    adopted = started.adopt if isinstance(started.adopt, AdoptedSpan) else None
    instrumentations = (
        ForeignInstrumentations() if adopted is None else ForeignInstrumentations(adopted.scopes)
    )
    if adopted is not None or current is not trace.INVALID_SPAN:
        _mark_counted(current, adopted, instrumentations, counts_calls=counts_calls())
    models = () if adopted is not None and adopted.has_ended else (started.request.model,)
    call = _RecentCall(started.started_ns, models, started.identity, instrumentations)
    put_bounded(_recent, started.number, call, limit=MAX_RECENT_CALLS)
    return instrumentations


def _mark_counted(
    current: Any,
    adopted: AdoptedSpan | None,
    instrumentations: ForeignInstrumentations,
    *,
    counts_calls: bool,
) -> None:
    """Mark the spans around a call as counted, and collect their instrumentations."""
    enclosing_id = _known_span_id(current) if adopted is None else adopted.enclosing_id
    is_isolated = adopted is None and enclosing_id != current.get_span_context().span_id
    if adopted is None and current.is_recording() and kind_of(current) is OperationKind.CALL:
        instrumentations.add(scope_of(current))
    if _open and not (is_isolated and _is_barrier(current)):
        for entry in _enclosing(enclosing_id):
            entry.is_counted = True
        for span in _enclosing_calls(enclosing_id):
            instrumentations.add(scope_of(span))
            if counts_calls:
                span.set_attribute(schema.COUNTED.key, True)


def call_ended(ended: CallEnded) -> None:
    """Complete the entry of a call that has ended."""
    call = _recent.get(ended.started.number)
    if call is not None:
        call.ended_ns = ended.started.started_ns + round(ended.duration_s * 1e9)
        call.identity.id = ended.response.id or call.identity.id
        if call.models and ended.response.model:
            call.models = (*call.models, ended.response.model)


def agent_span(turn: Turn) -> Span | None:
    """Return another instrumentation's span of a turn; None if there is none."""
    entry = _agents.get(turn.id)
    return None if entry is None else entry.span()


def reassign_span(turn: Turn, earlier: Turn) -> bool:
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
    put_bounded(_agents, earlier.id, entry, limit=MAX_OPEN_SPANS)
    return True


# --- Helpers --------------------------------------------------------------------------------------


def _known_span_id(current: Any) -> int:
    """Return the id of the current span, or of its parent.

    The parent's, if only the parent is known because the current span is of an isolated provider.
    """
    span_id: int = current.get_span_context().span_id
    if span_id in _open or not current.is_recording() or scope_of(current) == schema.SCOPE:
        return span_id
    parent = getattr(current, "parent", None)
    return span_id if parent is None or parent.span_id not in _open else parent.span_id


def _is_barrier(span: Any) -> bool:
    """Return whether a span separates the calls within it from a call around it."""
    return kind_of(span) in _BARRIERS


def _may_write_to(span: Any, provider: object = None) -> bool:
    """Return whether endturn may write to a span: it is of the provider that is recorded to.

    Our span processor observes all later spans of that provider. A span that started earlier is
    identified by its resource, because each provider has its own. While no requests are observed,
    spans that the host's `AdoptingSpanProcessor` reported count too.

    Args:
        span: the span.
        provider: the provider that is recorded to while no requests are observed. Defaults to the
            global one.
    """
    entry, target = _open.get(span.get_span_context().span_id), _recording_target
    if entry is not None:
        return target is None or entry.observer is target.observer
    if scope_of(span) == schema.SCOPE:
        return True
    if (
        target is not None
        and target.observer is not None
        and getattr(span, "start_time", 0) >= target.since_ns
    ):
        return False
    provider = provider or trace.get_tracer_provider() if target is None else target.provider
    resource = getattr(provider, "resource", None)
    return resource is not None and getattr(span, "resource", None) is resource


def _enclosing(span_id: int) -> Iterator[ForeignSpan]:
    """Yield the open span with that id and the spans around it, the innermost first."""
    while (entry := _open.get(span_id)) is not None:
        yield entry
        span_id = entry.parent


def _pop_streamed_call(parent: int) -> bool:
    """Remove the entry of a call whose stream has ended. Return whether its call was counted.

    It is the last entry with that parent whose span ended before the stream was read.
    """
    span_ids = [
        span_id
        for span_id, entry in list(_open.items())
        if entry.ended_before_stream and entry.parent == parent
    ]
    return bool(span_ids) and _open.pop(span_ids[-1]).is_counted


def _enclosing_calls(span_id: int) -> Iterator[Any]:
    """Yield the open spans of one call, outwards from the span with that id, up to a barrier."""
    for entry in _enclosing(span_id):
        span = entry.span()
        kind = kind_of(span)
        if kind in _BARRIERS:
            return
        if kind is OperationKind.CALL and span is not None and span.is_recording():
            yield span


def _enclosing_turn(span_id: int) -> Turn | None:
    for entry in _enclosing(span_id):
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
    put_bounded(_agents, turn.id, entry, limit=MAX_OPEN_SPANS)
    drop = partial(_drop, span.get_span_context().span_id)
    finalize(span, cleanup.defer, drop).atexit = False  # a destructor
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


def _find_emitted_call(span: Any) -> _RecentCall | None:
    """Find the emitted call that an ended call's span describes, if the span never enclosed it.

    An instrumentation may never make its span current. Then the call is matched by response id. If
    either has no id, it is a call of the same model that started after the span; one that has no
    span of this instrumentation yet is preferred.
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
            if scope not in call.instrumentations.scopes:
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
    scopes = tuple(map(scope_of, (span, *_enclosing_calls(entry.parent))))
    adopted = AdoptedSpan(
        NonRecordingSpan(span.get_span_context()), scopes, entry.parent, has_ended=True
    )
    call = open_call(Layer.CLIENT, request, endpoint, is_deferred=True, adopt=adopted)
    if call is None:
        return
    call.started_ns, call.started_s = span.start_time, _perf_counter_at(span.start_time)
    call.first_chunk_s = number(facts_of(span).get(schema.RESPONSE_FIRST_CHUNK.key))
    call.turn = declared_turn() or _enclosing_turn(entry.parent)
    response, error = span_conventions.result_of(
        span, provider=endpoint.provider, maximum=request.max_tokens
    )
    call.end(response, error=error)


def _perf_counter_at(ns: int) -> float:
    return time.perf_counter() - max(0, time.time_ns() - ns) / 1e9


cleanup.register_after_fork(forget)
