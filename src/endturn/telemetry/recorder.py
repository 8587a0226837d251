"""The one listener that folds what is announced into spans, log events and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakMethod

from opentelemetry import trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, TracerProvider

from endturn import events
from endturn.events import Record, Turn, TurnKind, TurnOutcome
from endturn.hooks import Activation, log_internal_error
from endturn.scopes import completed, outcome_of
from endturn.stop import StopReason
from endturn.telemetry import attributes, cleanup, foreign_spans, schema
from endturn.telemetry.content import as_text
from endturn.telemetry.open_span import (
    NO_SPAN,
    REMEMBERED,
    OpenSpan,
    content_by_another,
    measured_by_another,
    remember,
)
from endturn.telemetry.otel_providers import Options, OTelProviders, Providers
from endturn.telemetry.schema import Event, Level
from endturn.telemetry.span_conventions import Kind, kind_of

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider

IN_FLIGHT: Final = 16_384
"""Calls and tools whose end is awaited at most: one that never ends must not be kept for ever."""

FAILED: Final = events.BUDGETS | {TurnOutcome.RETRY_LIMIT}
"""Outcomes at which a truncated turn was given up: the event that says so is an error."""


class Recorder:
    """Folds records into signals. Where nothing is installed to take them it does next to nothing.

    Providers that are not given are the global ones, looked for until there are any: a host may install them late.

    Args:
        tracer_provider, meter_provider, logger_provider: where signals go.
        options: how to record.
        clock: nanoseconds since the epoch, for what is announced without a time.

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
        self._open: dict[int, OpenSpan] = {}
        self._turns: dict[str, OpenSpan] = {}
        self._cut: dict[int, SpanContext] = {}
        self._unmapped: set[tuple[str, ...]] = set()
        self._handlers: dict[type, Callable[[Any], Activation | None]] = {
            events.CallStarted: self._call_started,
            events.CallEnded: self._call_ended,
            events.CallWithdrawn: lambda withdrawn: self._open.pop(withdrawn.started.number, None) and None,
            events.TurnStarted: self._turn_started,
            events.TurnEnded: self._turn_ended,
            events.ContinuationAttempted: self._continuation_attempted,
            events.PayloadRepaired: self._payload_repaired,
            events.UsageEstimated: self._usage_estimated,
            events.DispatchBlocked: self._dispatch_blocked,
            events.ToolStarted: self._tool_started,
            events.ToolEnded: self._tool_ended,
            events.TerminationSignalled: self._termination_signalled,
        }
        forked = WeakMethod(self._forked)
        cleanup.after_fork(lambda: (method := forked()) and method())

    def use(self, given: Providers, options: Options) -> None:
        """Record so from now on. What is open, and what has been counted, stays.

        Raises:
            UsageError: as when it is made; then nothing changes.
        """
        self._out = OTelProviders(given, options)
        self.takes_content = self._out.content.takes_content
        """Whether it wants to be told what was said; `announce` asks, when it begins to listen."""

    def __call__(self, record: Record) -> Activation | None:
        """Fold one record; answer what begins with the activation of its span."""
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
        if isinstance(started.adopt, foreign_spans.AdoptedSpan):
            self._adopt(started, started.adopt)
            return None
        if out.tracer is None:
            return None
        continued = self._continued(started)
        span = out.tracer.start_span(
            f"{started.operation} {started.model}".rstrip(),
            kind=SpanKind.CLIENT,
            attributes=attributes.of_call(started),
            links=None if continued is None else (Link(continued),),
            start_time=started.started_ns,
        )
        return self._opened(started.number, span)

    def _adopt(self, started: events.CallStarted, adopted: foreign_spans.AdoptedSpan) -> None:
        span = adopted.span
        if span.is_recording():
            span.set_attributes(attributes.for_another(attributes.of_call(started)))
            continued = self._continued(started)
            if continued is not None:
                span.add_link(continued)
        opened = OpenSpan(span, ours=False, scopes=adopted.scopes)
        remember(self._open, started.number, opened, most=IN_FLIGHT)

    def _continued(self, started: events.CallStarted) -> SpanContext | None:
        """The span of the call that this one continues, where it is remembered."""
        continuation = started.continuation
        return None if continuation is None or continuation.of is None else self._cut.get(continuation.of)

    def _call_ended(self, ended: events.CallEnded) -> None:
        started, stop, out = ended.started, ended.stop, self._out
        opened = self._open.pop(started.number, None)
        # Whoever stops a call on purpose sees its exception too.
        error = None if stop.reason is StopReason.CANCELLED else attributes.error_type(ended.error)
        ended_ns = started.started_ns + round(ended.duration_s * 1e9)
        found = attributes.of_answer(ended, error, counted=out.counted())
        said = None if ended.content is None else self._said(ended.content, started.stop_sequences, opened)
        if opened is not None:
            self._describe(opened, ended, found, said)
        foreign_spans.call_ended(ended)
        self._tell_agent(ended)
        if out.takes_events():
            level: Level = "warn" if stop.truncated else "info"
            told = attributes.of_stop(ended)
            self._emit(schema.STOP_REASON_OBSERVED, level, told, opened, ended_ns)
            if not stop.mapped and self._is_news(started.provider, started.model, attributes.raw_shown(stop)):
                self._emit(schema.STOP_REASON_UNMAPPED, "warn", told, opened, ended_ns)
            if out.content.details and not content_by_another(opened):
                whole = {**attributes.of_call(started), **found, **((said or {}) if out.content.on_event else {})}
                self._emit(schema.INFERENCE_DETAILS, "info", whole, opened, ended_ns)
        if out.meters is not None:
            standard = out.options.gen_ai_metrics
            if standard is None:
                standard = not measured_by_another(opened, ended)
            generations = out.generations if standard else ()
            price = out.price(started.model)
            out.meters.count_call(ended, _exemplar(opened), price=price, generations=generations, error=error)
        if opened is not None and opened.ours:
            if error is not None:
                opened.span.set_status(StatusCode.ERROR, error)
            opened.span.end(ended_ns)

    def _describe(
        self, opened: OpenSpan, ended: events.CallEnded, found: attributes.Attributes, said: dict[str, Any] | None
    ) -> None:
        """Say on the span what came, and remember it for what may follow."""
        span, turn, stop = opened.span, ended.started.turn, ended.stop
        if span.is_recording():
            span.set_attributes(found if opened.ours else attributes.for_another(found))
            if said and self._out.content.on_span:
                span.set_attributes(as_text(said))
        if stop.truncated or stop.incomplete:
            remember(self._cut, ended.started.number, span.get_span_context())
        if turn.kind is TurnKind.IMPLICIT and (stop.truncated or not turn.truncated):
            # The turn has no span: its events and exemplars lead to its truncated call, else to its last.
            self._remember_turn(turn, opened)

    def _said(
        self, content: events.Content, stop_sequences: tuple[str, ...], opened: OpenSpan | None
    ) -> dict[str, Any] | None:
        """What was said in a call, as it may be recorded; None where nobody would see it, or another tells it."""
        on_event = self._out.content.on_event and self._out.takes_events()
        on_span = self._out.content.on_span and opened is not None and opened.span.is_recording()
        if content_by_another(opened) or not (on_event or on_span):
            return None
        try:
            return self._out.content.attributes(content, stop_sequences)
        except Exception:
            log_internal_error("recording what was said")
            return None

    def _is_news(self, *unmapped: str) -> bool:
        """Whether this provider, model and raw reason have not been told of yet."""
        if unmapped in self._unmapped or len(self._unmapped) >= REMEMBERED:
            return False
        self._unmapped.add(unmapped)
        return True

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
            span.set_attributes(attributes.for_another(_of_turn(turn)))
            return None
        if self._out.tracer is None:
            return None
        name = f"invoke_agent {turn.agent or ''}".rstrip()
        opened = OpenSpan(self._out.tracer.start_span(name, attributes=_of_turn(turn), start_time=turn.started_ns))
        self._remember_turn(turn, opened)
        return opened

    def _tell_agent(self, ended: events.CallEnded) -> None:
        """Write what has come of an agent's turn so far on its span: when that has ended nothing can be written."""
        turn = ended.started.turn.so_far()
        span = foreign_spans.agents_span(turn)
        if span is not None and span.is_recording():
            outcome = completed(turn) if ended.error is None else outcome_of(ended)
            span.set_attributes(attributes.for_another(_of_turn(turn, outcome)))

    def _turn_ended(self, ended: events.TurnEnded) -> None:
        turn, outcome = ended.turn, ended.outcome
        ended_ns = turn.started_ns + round(ended.duration_s * 1e9)
        opened = self._turns.pop(turn.id, None)
        agents = foreign_spans.agents_span(turn)
        if agents is not None:
            opened = OpenSpan(agents, ours=False)
        if turn.truncated:
            is_well = outcome in events.COMPLETE or _is_not_allowed(turn)
            level: Level = "info" if is_well else "error" if outcome in FAILED else "warn"
            found = attributes.of_turn(turn, outcome)
            self._emit(schema.CONTINUATION_TERMINATED, level, found, opened, ended_ns)
        if self._out.meters is not None:
            self._out.meters.count_turn(ended, turn.agent if self._out.agent else None, _exemplar(opened))
        if opened is not None and turn.kind is not TurnKind.IMPLICIT and opened.span.is_recording():
            found = _of_turn(turn, outcome)
            opened.span.set_attributes(found if opened.ours else attributes.for_another(found))
            if opened.ours:
                _end(opened.span, ended.error, ended_ns)

    # --- Continuations and tools ---------------------------------------------------------------------------------

    def _continuation_attempted(self, record: events.ContinuationAttempted) -> None:
        self._tell(record.turn, schema.CONTINUATION_ATTEMPT, "info", attributes.attempted(record))
        self._count(schema.CONTINUATIONS_METRIC, record.provider, record.model, record.continuation.strategy.value)

    def _termination_signalled(self, record: events.TerminationSignalled) -> None:
        self._tell(record.turn, schema.TERMINATION_SIGNAL, "info", attributes.signalled(record))

    def _payload_repaired(self, record: events.PayloadRepaired) -> None:
        self._tell(record.turn, schema.TOOL_PAYLOAD_REPAIR, "warn", attributes.repaired(record))
        result = "succeeded" if record.succeeded else "failed" if record.attempted else "not_attempted"
        self._count(schema.REPAIRS, record.provider, record.model, result)

    def _dispatch_blocked(self, record: events.DispatchBlocked) -> None:
        found = attributes.blocked(record, names=self._out.content.on_event)
        self._tell(record.turn, schema.TOOL_DISPATCH_BLOCKED, "warn", found)
        self._count(schema.BLOCKED, record.provider, record.model, record.reason, len(record.names) or 1)

    def _usage_estimated(self, record: events.UsageEstimated) -> None:
        if self._out.meters is not None and record.continues:
            asked, answered = record.usage.input_tokens or 0, record.usage.output_tokens or 0
            price = self._out.price(record.model)
            self._out.meters.count_tokens(record.provider, record.model, asked, answered, price)

    def _tool_started(self, started: events.ToolStarted) -> Activation | None:
        if self._out.tracer is None:
            return None
        name, found = f"execute_tool {started.name}", attributes.tool_began(started)
        span = self._out.tracer.start_span(name, attributes=found, start_time=self._clock())
        return self._opened(started.number, span)

    def _tool_ended(self, ended: events.ToolEnded) -> None:
        opened = self._open.pop(ended.started.number, None)
        if opened is not None:
            _end(opened.span, ended.error, self._clock())

    # --- What they share -----------------------------------------------------------------------------------------

    def _opened(self, number: int, span: Span) -> OpenSpan:
        opened = OpenSpan(span)
        remember(self._open, number, opened, most=IN_FLIGHT)
        return opened

    def _remember_turn(self, turn: Turn, opened: OpenSpan) -> None:
        remember(self._turns, turn.id, opened, most=IN_FLIGHT)

    def _count(self, metric: schema.Metric, provider: str, model: str, label: str, amount: int = 1) -> None:
        if self._out.meters is not None:
            self._out.meters.count(metric, provider, model, label, amount=amount)

    def _tell(self, turn: Turn, event: Event, level: Level, found: attributes.Attributes) -> None:
        """Emit an event of a turn: on its span, else on whatever span is current."""
        self._emit(event, level, found, self._turns.get(turn.id), self._clock())

    def _emit(
        self, event: Event, level: Level, found: Mapping[str, Any], opened: OpenSpan | None, timestamp_ns: int
    ) -> None:
        """Emit one event: to the log with its context, and where that is asked for to a span that is open."""
        out = self._out
        found = attributes.declared(event, found)
        if out.logger is not None:
            out.logger.emit(
                event_name=event.name,
                body=attributes.line(event, found),
                attributes=found,
                timestamp=timestamp_ns,
                context=None if opened is None else opened.context,
                severity_text=level.upper(),
                severity_number=SeverityNumber[level.upper()],
            )
        if out.mirrors_events:
            # An implicit turn's last span has ended: what is current is the nearest that can still be written to.
            span = trace.get_current_span() if opened is None or not opened.span.is_recording() else opened.span
            span.add_event(event.name, as_text(found), timestamp_ns)


def _of_turn(turn: Turn, outcome: TurnOutcome | None = None) -> attributes.Attributes:
    """What a turn's span says of it."""
    return attributes.declared(schema.TURN_SPAN, attributes.of_turn(turn, outcome))


def _end(span: Span, error: BaseException | None, ended_ns: int) -> None:
    """End a span of ours that is not a call's."""
    failed = attributes.error_type(error)
    if failed is not None:
        span.set_attribute(schema.ERROR_TYPE.key, failed)
        span.set_status(StatusCode.ERROR, failed)
    span.end(ended_ns)


def _is_not_allowed(turn: Turn) -> bool:
    """Whether a turn reached a limit that is none: the policy allows no continuation, or no resume."""
    return (turn.outcome is TurnOutcome.RETRY_LIMIT and not turn.continuations) or (
        turn.outcome is TurnOutcome.RESUME_LIMIT and not turn.resumes
    )


def _exemplar(opened: OpenSpan | None) -> Context:
    return NO_SPAN if opened is None else opened.exemplar
