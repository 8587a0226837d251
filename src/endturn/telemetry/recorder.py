"""The one listener that turns emitted records into spans, log events and metrics."""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from weakref import WeakMethod

from opentelemetry import trace
from opentelemetry._logs import LoggerProvider, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, TracerProvider

from endturn import events
from endturn.events import Record, Turn, TurnKind, TurnOutcome
from endturn.hooks import Activation, log_internal_error
from endturn.scopes import completed, outcome_of
from endturn.stop import word_shown
from endturn.telemetry import attributes, cleanup, foreign_spans, schema
from endturn.telemetry.attributes import Attributes, for_another
from endturn.telemetry.cleanup import remember
from endturn.telemetry.content import as_text
from endturn.telemetry.instruments import Counted
from endturn.telemetry.otel_providers import Options, OTelProviders, Providers
from endturn.telemetry.schema import Event, Level
from endturn.telemetry.span_conventions import Kind, kind_of

IN_FLIGHT: Final = 16_384
"""Calls and tools whose end is awaited at most: one that never ends must not be kept for ever."""

FAILED: Final = events.BUDGETS | {TurnOutcome.RETRY_LIMIT}
"""Outcomes at which a truncated turn was given up: the event that says so is an error."""

REMEMBERED: Final = 1_024
"""Truncated calls whose spans a continuation can still be linked to, and raw reasons that were said to be unmapped."""

NO_SPAN: Final = trace.set_span_in_context(trace.INVALID_SPAN, Context())
"""The context of what has no span. Not empty: the SDK would take the collecting thread's own in its place."""

TURN_EVENTS: Final[Mapping[type, Event]] = {
    events.ContinuationAttempted: schema.CONTINUATION_ATTEMPT,
    events.PayloadRepaired: schema.TOOL_PAYLOAD_REPAIR,
    events.DispatchBlocked: schema.TOOL_DISPATCH_BLOCKED,
    events.TerminationSignalled: schema.TERMINATION_SIGNAL,
}


@dataclass(slots=True, eq=False)
class OpenSpan:
    """A span that a later record belongs to.

    Attributes:
        request: of a call's span, what is known of the request.
        ours: we made the span, so we end it.
        scopes: of the instrumentations that make a span of the same call.
        context: log records and measurements are made in it: they lead to the span, without keeping it alive.
    """

    span: Span
    request: Attributes | None = None
    ours: bool = True
    scopes: tuple[str, ...] = ()
    context: Context = field(init=False)

    def __post_init__(self) -> None:
        self.context = trace.set_span_in_context(trace.NonRecordingSpan(self.span.get_span_context()))

    def is_measured_by_another(self, ended: events.CallEnded) -> bool:
        """Whether an instrumentation that makes a span of this call records the conventions' metrics itself.

        Not of a stream that it handed over: its span ended before the first piece came.
        """
        if not self.is_by(schema.METRIC_EMITTERS):
            return False
        over_ns = getattr(self.span, "end_time", None)
        first_s = ended.duration_s if ended.first_chunk_s is None else ended.first_chunk_s
        return not (ended.started.stream and over_ns and over_ns < ended.started.started_ns + first_s * 1e9)

    def is_by(self, emitters: tuple[str, ...]) -> bool:
        """Whether one of these instrumentations makes a span of this call."""
        return any(f"{scope}.".startswith(f"{emitter}.") for scope in self.scopes for emitter in emitters)


Opened = OpenSpan | None


class Recorder:
    """Turns records into signals. Where nothing is installed to take them it does next to nothing.

    Providers that are not given are the global ones, looked for until there are any: a host may install them late.

    Args:
        tracer_provider, meter_provider, logger_provider: where signals go.
        options: how to record.
        clock: nanoseconds since the epoch, for records without a time.

    Raises:
        UsageError: an option cannot be used, or a provider is none.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        *,
        options: Options | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._clock = clock
        self.use((tracer_provider, meter_provider, logger_provider), options or Options())
        self._open: OrderedDict[int, OpenSpan] = OrderedDict()
        self._turns: OrderedDict[str, OpenSpan] = OrderedDict()
        self._cut: OrderedDict[int, SpanContext] = OrderedDict()
        self._unmapped: set[tuple[str, ...]] = set()
        self._handlers: dict[type, Callable[[Any], Activation | None]] = {
            events.CallStarted: self._call_started,
            events.CallEnded: self._call_ended,
            events.CallWithdrawn: self._call_withdrawn,
            events.TurnStarted: self._turn_started,
            events.TurnEnded: self._turn_ended,
            events.UsageEstimated: self._count,
            events.ToolStarted: self._tool_started,
            events.ToolEnded: self._tool_ended,
            **dict.fromkeys(TURN_EVENTS, self._turn_event),
        }
        forked = WeakMethod(self._forked)
        cleanup.after_fork(lambda: (method := forked()) and method())

    def use(self, given: Providers, options: Options) -> None:
        """Record so from now on. What is open, and what has been counted, stays.

        Raises:
            UsageError: as when it is made; then nothing changes.
        """
        self._out = OTelProviders(given, options)
        self.takes_content = self._out.content.on_span or self._out.content.on_event
        """Whether it wants to be told what was said; `hooks` asks, when it begins to listen."""

    def __call__(self, record: Record) -> Activation | None:
        """Record what has happened; answer what begins with the activation of its span."""
        return self._handlers[type(record)](record)

    def awake(self) -> bool:
        """Whether anything would come of a record now."""
        return self._out.awake()

    def counted(self) -> bool:
        """Whether responses are counted here, by metrics that leave this process."""
        return self._out.counted()

    def _forked(self) -> None:
        """In the child: what is in flight is the parent's to end."""
        self._open.clear()
        self._turns.clear()

    # --- Calls ---------------------------------------------------------------------------------------------------

    def _call_started(self, started: events.CallStarted) -> Activation | None:
        out = self._out
        out.look()
        if out.meters is not None:
            out.meters.expect(started.provider, started.model, started.turn.agent if out.agent else None)
        foreign_spans.call_started(started, counted=out.counted())
        request = attributes.of_call(started)
        continued = None if started.continuation is None else self._cut.get(started.continuation.of or 0)
        if isinstance(adopted := started.adopt, foreign_spans.AdoptedSpan):
            if adopted.span.is_recording():
                adopted.span.set_attributes(for_another(request))
                if continued is not None:
                    adopted.span.add_link(continued)
            opened = OpenSpan(adopted.span, request, ours=False, scopes=adopted.scopes)
        elif out.tracer is not None:
            span = out.tracer.start_span(
                f"{started.operation} {started.model}".rstrip(),
                kind=SpanKind.CLIENT,
                attributes=request,
                links=None if continued is None else (Link(continued),),
                start_time=started.started_ns,
            )
            opened = OpenSpan(span, request)
        else:
            return None
        remember(self._open, started.number, opened, most=IN_FLIGHT)
        return _activation(opened.span) if opened.ours else None

    def _call_ended(self, ended: events.CallEnded) -> None:
        started, out = ended.started, self._out
        opened = self._open.pop(started.number, None)
        ended_ns = started.started_ns + round(ended.duration_s * 1e9)
        answer = attributes.of_answer(ended, counted=out.counted())
        content = self._content(ended, opened)
        if opened is not None:
            self._describe(opened, ended, answer, as_text(content) if out.content.on_span else {})
        foreign_spans.call_ended(ended)
        self._tell_agent(ended)
        if out.takes_events():
            request = attributes.of_call(started) if opened is None or opened.request is None else opened.request
            found = {**request, **answer}
            if content and out.content.on_event:
                found |= content
            self._emit_call(ended, found, opened, ended_ns)
        if out.meters is not None:
            standard = out.options.gen_ai_metrics
            if standard is None:
                standard = opened is None or not opened.is_measured_by_another(ended)
            generations, price = out.generations if standard else (), out.price(started.model)
            out.meters.count_call(ended, _context(opened), generations=generations, price=price)
        if opened is not None and opened.ours:
            _end(opened.span, attributes.error_of(ended), ended_ns)

    def _call_withdrawn(self, withdrawn: events.CallWithdrawn) -> None:
        self._open.pop(withdrawn.started.number, None)

    def _describe(self, opened: OpenSpan, ended: events.CallEnded, answer: Attributes, content: Attributes) -> None:
        """Say on the span what came, and remember it for what may follow."""
        span, turn, stop = opened.span, ended.started.turn, ended.stop
        if span.is_recording():
            span.set_attributes({**(answer if opened.ours else for_another(answer)), **content})
        if stop.truncated or stop.incomplete:
            remember(self._cut, ended.started.number, span.get_span_context(), most=REMEMBERED)
        if turn.kind is TurnKind.IMPLICIT and (stop.truncated or not turn.truncated):
            # The turn has no span: its events and exemplars lead to its truncated call, else to its last.
            # One that was cut waits, perhaps for long: then only where it was is kept.
            kept = OpenSpan(trace.get_current_span(opened.context), ours=False) if stop.truncated else opened
            self._remember_turn(turn, kept)

    def _content(self, ended: events.CallEnded, opened: Opened) -> Attributes:
        """What was said in a call, as it may be recorded; nothing where nobody would see it, or another tells it."""
        policy = self._out.content
        on_span = policy.on_span and opened is not None and opened.span.is_recording()
        is_wanted = on_span or (policy.on_event and self._out.takes_events())
        if ended.content is None or not is_wanted or _has_content_by_another(opened):
            return {}
        try:
            return policy.attributes(ended.content, ended.started.stop_sequences)
        except Exception:
            log_internal_error("recording what was said")
            return {}

    def _emit_call(self, ended: events.CallEnded, found: Attributes, opened: Opened, at_ns: int) -> None:
        """Emit the events of a call."""
        started, stop = ended.started, ended.stop
        self._emit(schema.STOP_REASON_OBSERVED, found, opened, at_ns, "warn" if stop.truncated else "info")
        if not stop.mapped:
            unmapped = started.provider, started.model, word_shown(stop.raw or "")
            if unmapped not in self._unmapped and len(self._unmapped) < REMEMBERED:
                self._unmapped.add(unmapped)
                self._emit(schema.STOP_REASON_UNMAPPED, found, opened, at_ns)
        if self._out.content.details and not _has_content_by_another(opened):
            self._emit(schema.INFERENCE_DETAILS, found, opened, at_ns)

    # --- Turns ---------------------------------------------------------------------------------------------------

    def _turn_started(self, started: events.TurnStarted) -> Activation | None:
        self._out.look()
        turn = started.turn
        current = trace.get_current_span()
        span = foreign_spans.agents_span(turn)
        if span is None and current.is_recording() and kind_of(current) is Kind.AGENT:
            span = current
            self._remember_turn(turn, OpenSpan(span, ours=False))
        if span is not None:
            span.set_attributes(for_another(_of_turn(turn)))
            return None
        if self._out.tracer is None:
            return None
        name = f"invoke_agent {turn.agent or ''}".rstrip()
        span = self._out.tracer.start_span(name, attributes=_of_turn(turn), start_time=turn.started_ns)
        self._remember_turn(turn, OpenSpan(span))
        return _activation(span)

    def _tell_agent(self, ended: events.CallEnded) -> None:
        """Write what has come of an agent's turn so far on its span: when that has ended nothing can be written."""
        turn = ended.started.turn.so_far()
        span = foreign_spans.agents_span(turn)
        if span is not None and span.is_recording():
            outcome = completed(turn) if ended.error is None else outcome_of(ended)
            span.set_attributes(for_another(_of_turn(turn, outcome)))

    def _turn_ended(self, ended: events.TurnEnded) -> None:
        turn, outcome = ended.turn, ended.outcome
        ended_ns = turn.started_ns + round(ended.duration_s * 1e9)
        opened = self._turns.pop(turn.id, None)
        if (agents := foreign_spans.agents_span(turn)) is not None:
            opened = OpenSpan(agents, ours=False)
        if turn.truncated:
            tried = {TurnOutcome.RETRY_LIMIT: turn.continuations, TurnOutcome.RESUME_LIMIT: turn.resumes}
            # A limit of none is no failure: the policy does not continue, or resume.
            is_well = outcome in events.COMPLETE or tried.get(outcome) == 0
            level: Level = "info" if is_well else "error" if outcome in FAILED else "warn"
            self._emit(schema.CONTINUATION_TERMINATED, attributes.of_turn(turn, outcome), opened, ended_ns, level)
        if self._out.meters is not None:
            self._out.meters.count_turn(ended, turn.agent if self._out.agent else None, _context(opened))
        if opened is not None and turn.kind is not TurnKind.IMPLICIT and opened.span.is_recording():
            found = _of_turn(turn, outcome)
            opened.span.set_attributes(found if opened.ours else for_another(found))
            if opened.ours:
                _end(opened.span, attributes.error_type(ended.error), ended_ns)

    def _turn_event(self, record: attributes.TurnEvent) -> None:
        event = TURN_EVENTS[type(record)]
        found = attributes.of_event(event, record)
        if not self._out.content.on_event:
            found.pop(schema.BLOCKED_NAMES.key, None)
        self._emit(event, found, self._turns.get(record.turn.id), self._clock())
        if not isinstance(record, events.TerminationSignalled):
            self._count(record)

    def _count(self, record: Counted) -> None:
        if self._out.meters is not None:
            self._out.meters.count_event(record, self._out.price(record.model))

    # --- Tools ---------------------------------------------------------------------------------------------------

    def _tool_started(self, started: events.ToolStarted) -> Activation | None:
        if self._out.tracer is None:
            return None
        name, found = f"execute_tool {started.name}", attributes.of_tool(started)
        opened = OpenSpan(self._out.tracer.start_span(name, attributes=found, start_time=self._clock()))
        remember(self._open, started.number, opened, most=IN_FLIGHT)
        return _activation(opened.span)

    def _tool_ended(self, ended: events.ToolEnded) -> None:
        opened = self._open.pop(ended.started.number, None)
        if opened is not None:
            _end(opened.span, attributes.error_type(ended.error), self._clock())

    # --- What they share -----------------------------------------------------------------------------------------

    def _remember_turn(self, turn: Turn, opened: OpenSpan) -> None:
        remember(self._turns, turn.id, opened, most=IN_FLIGHT)

    def _emit(self, event: Event, found: Attributes, opened: Opened, at_ns: int, level: Level | None = None) -> None:
        """Emit one event: to the log with its context, and where that is asked for to a span that is open."""
        out = self._out
        found = attributes.declared(event, found)
        if out.logger is not None:
            severity = (level or event.severity).upper()
            out.logger.emit(
                event_name=event.name,
                body=event.body % defaultdict(lambda: "?", found),
                attributes=found,
                timestamp=at_ns,
                context=None if opened is None else opened.context,
                severity_text=severity,
                severity_number=SeverityNumber[severity],
            )
        if out.mirrors_events:
            # An implicit turn's last span has ended: what is current is the nearest that can still be written to.
            span = trace.get_current_span() if opened is None or not opened.span.is_recording() else opened.span
            span.add_event(event.name, as_text(found), at_ns)


def _of_turn(turn: Turn, outcome: TurnOutcome | None = None) -> Attributes:
    """What a turn's span says of it."""
    return attributes.declared(schema.TURN_SPAN, attributes.of_turn(turn, outcome))


def _activation(span: Span) -> Activation:
    """Makes a span current for one step. What is raised there is told when the span ends."""
    return partial(trace.use_span, span, record_exception=False, set_status_on_exception=False)


def _end(span: Span, error: str | None, ended_ns: int) -> None:
    if error is not None:
        span.set_attribute(schema.ERROR_TYPE.key, error)
        span.set_status(StatusCode.ERROR, error)
    span.end(ended_ns)


def _has_content_by_another(opened: Opened) -> bool:
    """Whether an instrumentation that makes a span of a call records what is said by the conventions' variable."""
    return opened is not None and opened.is_by(schema.CONTENT_EMITTERS)


def _context(opened: Opened) -> Context:
    return NO_SPAN if opened is None else opened.context
