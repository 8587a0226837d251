"""The listener that turns emitted records into spans, log events and metrics."""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, get_args
from weakref import WeakMethod

from opentelemetry import trace
from opentelemetry._logs import LoggerProvider, SeverityNumber
from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, TracerProvider

from endturn.calls import (
    Activation,
    Record,
    Turn,
    TurnKind,
    TurnOutcome,
    completed,
    inference,
    log_internal_error,
    outcome_of,
    outcomes,
    records,
)
from endturn.telemetry import attributes, cleanup, foreign_spans, schema
from endturn.telemetry.attributes import Attributes, for_foreign_span, with_attribute_count
from endturn.telemetry.cleanup import put_bounded
from endturn.telemetry.content import as_text
from endturn.telemetry.foreign_metrics import ForeignInstrumentations
from endturn.telemetry.instruments import CountedRecord
from endturn.telemetry.otel_providers import Options, OTelProviders, Providers
from endturn.telemetry.retries import MAX_FAILED_TURNS
from endturn.telemetry.schema import Level, LogEvent
from endturn.telemetry.span_conventions import OperationKind, kind_of
from endturn.telemetry.tool_loops import MAX_OPEN_LOOPS
from endturn.telemetry.truncated_turns import MAX_PENDING_TURNS
from endturn.vocabulary import value_key

MAX_OPEN_CALLS: Final = 16_384
"""Maximum number of open calls, and of open tool runs and turns. Some never end."""

MAX_IMPLICIT_SPANS: Final = MAX_OPEN_LOOPS + MAX_PENDING_TURNS + MAX_FAILED_TURNS + MAX_OPEN_CALLS
"""Maximum number of implicit turns whose latest call's span context is kept: the turns that can
wait, plus those that can have an open call."""

LIMIT_OUTCOMES: Final = outcomes.BUDGETS | {TurnOutcome.RETRY_LIMIT}
"""Outcomes of truncated turns that reached a limit: their event has the severity error."""

MAX_TRUNCATED_CALLS: Final = 1_024
"""Maximum number of truncated calls whose span contexts are kept, for links from continuations."""

MAX_UNMAPPED_REASONS: Final = 1_024
"""Maximum number of unmapped raw reasons that are remembered, to report each once."""

NO_SPAN: Final = trace.set_span_in_context(trace.INVALID_SPAN, Context())
"""The context of signals without a span. Without it the SDK would use the span that is current in
the thread that records the signal."""

SEVERITIES: Final = {
    level: (level.upper(), SeverityNumber[level.upper()]) for level in get_args(Level)
}

TURN_EVENTS: Final[Mapping[type, LogEvent]] = {
    records.ContinuationAttempted: schema.CONTINUATION_ATTEMPT,
    records.PayloadRepaired: schema.TOOL_PAYLOAD_REPAIR,
    records.DispatchBlocked: schema.TOOL_DISPATCH_BLOCKED,
    records.TerminationSignalled: schema.TERMINATION_SIGNAL,
}


class OpenSpan:
    """The span of an open call, turn or tool run.

    Attributes:
        request: the attributes that were set when a call's or a tool's span started.
        ours: endturn created the span, and ends it.
        scopes: the instrumentation scopes of all spans of the same call.
        context: the context of log records and measurements. It refers to the span without keeping
            it alive.
    """

    __slots__ = ("context", "ours", "request", "scopes", "span")

    def __init__(
        self,
        span: Span,
        request: Attributes | None = None,
        *,
        ours: bool = True,
        scopes: tuple[str, ...] = (),
        context: Context | None = None,
    ) -> None:
        self.span = span
        self.request = request
        self.ours = ours
        self.scopes = scopes
        self.context = context or trace.set_span_in_context(
            trace.NonRecordingSpan(span.get_span_context())
        )

    def as_current(self) -> AbstractContextManager[object]:
        """Return a context manager in which the span is current."""
        return _Current(self.span)

    def ended_before_first_chunk(self, ended: records.CallEnded) -> bool:
        """Return whether the span of a streamed call ended before the first chunk arrived.

        The instrumentation that created it then records no metric of the response.
        """
        span_end_ns = getattr(self.span, "end_time", None)
        first_s = ended.duration_s if ended.first_chunk_s is None else ended.first_chunk_s
        return bool(
            ended.started.request.stream
            and span_end_ns
            and span_end_ns < ended.started.started_ns + first_s * 1e9
        )

    def is_by(self, emitters: tuple[str, ...]) -> bool:
        """Return whether one of these instrumentations has a span of this call."""
        return any(
            f"{scope}.".startswith(f"{emitter}.") for scope in self.scopes for emitter in emitters
        )


class Recorder:
    """Turns records into signals. Costs almost nothing if no provider is installed.

    Providers default to the global ones. A host may install those late, so they are looked up until
    they exist.

    Args:
        tracer_provider, meter_provider, logger_provider: the providers that receive the signals.
        options: the options for recording.
        clock: returns nanoseconds since the epoch, for records without a time.

    Raises:
        UsageError: an option's value is invalid, or an argument is not a provider.
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
        self._calls: OrderedDict[int, tuple[OpenSpan | None, ForeignInstrumentations]] = (
            OrderedDict()
        )
        """The open calls by number: the span, and the other instrumentations of the call."""
        self._tools: OrderedDict[int, OpenSpan] = OrderedDict()
        self._turns: OrderedDict[str, OpenSpan] = OrderedDict()
        self._implicit: OrderedDict[str, SpanContext] = OrderedDict()
        """The span contexts for the signals of implicit turns. Separate from `_turns`: however many
        implicit turns wait, no explicit turn loses its span."""
        self._truncated_contexts: OrderedDict[int, SpanContext] = OrderedDict()
        """The span contexts of truncated calls by number, for links from their continuations."""
        self._unmapped: set[tuple[str, ...]] = set()
        self._handlers: dict[type, Callable[[Any], Activation | None]] = {
            records.CallStarted: self._call_started,
            records.CallEnded: self._call_ended,
            records.CallWithdrawn: self._call_withdrawn,
            records.TurnStarted: self._turn_started,
            records.TurnJoined: self._turn_joined,
            records.TurnEnded: self._turn_ended,
            records.UsageEstimated: self._count,
            records.ToolStarted: self._tool_started,
            records.ToolEnded: self._tool_ended,
            **dict.fromkeys(TURN_EVENTS, self._turn_event),
        }
        forget_spans = WeakMethod(self._forget)
        cleanup.register_after_fork(lambda: (method := forget_spans()) and method())

    def use(self, providers: Providers, options: Options) -> None:
        """Use these providers and options from now on. Open spans and counts are kept.

        Raises:
            UsageError: as in the constructor; nothing changes then.
        """
        self._providers = OTelProviders(providers, options)
        self.takes_content = self._providers.content.on_span or self._providers.content.on_event
        """Captured content is needed. `endturn.hooks` reads it when the listener subscribes."""

    def __call__(self, record: Record) -> Activation | None:
        """Record a record. Return the activation of the span that it starts, if any."""
        return self._handlers[type(record)](record)

    def is_enabled(self) -> bool:
        """Return whether a record would produce any signal now."""
        return self._providers.is_enabled()

    def counts_responses(self) -> bool:
        """Return whether exported metrics of this process count responses."""
        return self._providers.counts_responses()

    def _forget(self) -> None:
        """Forget open spans. Called in a forked child, whose parent ends them."""
        self._calls.clear()
        self._tools.clear()
        self._turns.clear()
        self._implicit.clear()

    # --- Calls ------------------------------------------------------------------------------------

    def _call_started(self, started: records.CallStarted) -> Activation | None:
        providers = self._providers
        providers.look_up()
        if providers.meters is not None:
            agent = started.turn.agent if providers.agent else None
            providers.meters.create_series(started.endpoint.provider, started.request.model, agent)
        current = trace.get_current_span()
        instrumentations = foreign_spans.call_started(started, current, providers.counts_responses)
        # Before the span is created: the host's sampler may raise.
        put_bounded(self._calls, started.number, (None, instrumentations), limit=MAX_OPEN_CALLS)
        opened = self._open_call(started, current)
        if opened is None:
            instrumentations.is_complete = False
            return None
        self._calls[started.number] = opened, instrumentations
        # If a sampler dropped our span, it may have dropped those of other instrumentations
        # too, unless no span is current at all.
        instrumentations.is_complete = (
            opened.span.is_recording() or not current.get_span_context().is_valid
        )
        return opened.as_current if opened.ours else None

    def _open_call(self, started: records.CallStarted, current: Span) -> OpenSpan | None:
        """Adopt another instrumentation's span of the call, or start one; None without a tracer."""
        adopted = started.adopt
        if adopted is None and self._providers.tracer is None:
            return None
        request = attributes.of_call(started)
        links = self._links(started, current)
        if isinstance(adopted, foreign_spans.AdoptedSpan):
            if adopted.span.is_recording():
                adopted.span.set_attributes(for_foreign_span(request))
                for link in links:
                    adopted.span.add_link(link.context, link.attributes)
            return OpenSpan(adopted.span, request, ours=False, scopes=adopted.scopes)
        if self._providers.tracer is None:
            return None
        span = self._providers.tracer.start_span(
            f"{started.endpoint.operation} {started.request.model}".rstrip(),
            context=foreign_spans.parent_of(current),
            kind=SpanKind.CLIENT,
            attributes=request,
            links=links,
            start_time=started.started_ns,
        )
        return OpenSpan(span, request)

    def _links(self, started: records.CallStarted, current: Span) -> list[Link]:
        """Return the links to the call that this one continues, and to the call whose tool runs it.

        Only the first call of a sub-agent has the second link.
        """
        turn, links = started.turn, []
        continued = (
            None
            if started.continuation is None
            else self._truncated_contexts.get(started.continuation.of or 0)
        )
        if continued is not None:
            links.append(Link(continued))
        if turn.kind is TurnKind.IMPLICIT and started.iteration == 1:
            call_id = foreign_spans.enclosing_tool_call(current)
            parent = None if call_id is None else inference().turn_of_tool_call(call_id)
            parent_context = None if parent is None else self._implicit.get(parent.id)
            if parent is not None and parent_context is not None:
                links.append(Link(parent_context, {schema.TURN_ID.key: parent.id}))
        return links

    def _call_ended(self, ended: records.CallEnded) -> None:
        started, providers = ended.started, self._providers
        opened, instrumentations = self._calls.pop(started.number, (None, None))
        ended_ns = started.started_ns + round(ended.duration_s * 1e9)
        emits_events = providers.takes_events()
        is_recorded = emits_events or (opened is not None and opened.span.is_recording())
        response_attributes = (
            attributes.of_response(ended, counted=providers.counts_responses())
            if is_recorded
            else {}
        )
        content = {} if ended.content is None else self._content(ended, opened)
        if opened is not None:
            self._describe(
                opened,
                ended,
                response_attributes,
                as_text(content) if content and providers.content.on_span else {},
            )
        foreign_spans.call_ended(ended)
        if started.turn.kind is not TurnKind.IMPLICIT:
            self._update_agent_span(ended)
        if emits_events:
            request = (
                attributes.of_call(started)
                if opened is None or opened.request is None
                else opened.request
            )
            call_attributes = {**request, **response_attributes}
            if content and providers.content.on_event:
                call_attributes |= content
            self._emit_call(ended, call_attributes, opened, ended_ns)
        if (
            instrumentations is not None
            and opened is not None
            and opened.scopes
            and opened.ended_before_first_chunk(ended)
        ):
            # It records no metrics of this response, so endturn must.
            instrumentations.remove(opened.scopes[0])
        if providers.meters is not None:
            records_gen_ai = providers.options.gen_ai_metrics
            providers.meters.count_call(
                ended,
                _context(opened),
                generations=() if records_gen_ai is False else providers.generations,
                price=None
                if started.continuation is None
                else providers.price(started.request.model),
                instrumentations=instrumentations if records_gen_ai is None else None,
            )
        if opened is not None and opened.ours:
            _end(opened.span, attributes.error_of(ended), ended_ns)

    def _call_withdrawn(self, withdrawn: records.CallWithdrawn) -> None:
        self._calls.pop(withdrawn.started.number, None)

    def _describe(
        self,
        opened: OpenSpan,
        ended: records.CallEnded,
        response_attributes: Attributes,
        content: Attributes,
    ) -> None:
        """Set the response's attributes on the span, and keep the span's context.

        Links from continuations and events of the turn refer to that context.
        """
        span, turn, stop = opened.span, ended.started.turn, ended.response.stop
        if span.is_recording():
            span_attributes = (
                response_attributes if opened.ours else for_foreign_span(response_attributes)
            )
            if content:
                span_attributes = {**span_attributes, **content}
            elif opened.ours:
                span_attributes = with_attribute_count(span_attributes, opened.request or {})
            span.set_attributes(span_attributes)
        is_truncated = stop.truncated
        if is_truncated or stop.incomplete:
            put_bounded(
                self._truncated_contexts,
                ended.started.number,
                span.get_span_context(),
                limit=MAX_TRUNCATED_CALLS,
            )
        if turn.kind is TurnKind.IMPLICIT and (is_truncated or not turn.truncated):
            # The turn has no span: its events and exemplars refer to its truncated call, else to
            # its last one. It may wait for long, so only the span's context is kept.
            put_bounded(self._implicit, turn.id, span.get_span_context(), limit=MAX_IMPLICIT_SPANS)

    def _content(self, ended: records.CallEnded, opened: OpenSpan | None) -> Attributes:
        """Return the attributes of a call's captured content.

        Empty if no signal takes it, or another instrumentation records it.
        """
        policy = self._providers.content
        on_span = policy.on_span and opened is not None and opened.span.is_recording()
        is_recorded = on_span or (policy.on_event and self._providers.takes_events())
        if ended.content is None or not is_recorded or _has_content_by_another(opened):
            return {}
        try:
            return policy.attributes(ended.content, ended.started.request.stop_sequences)
        except Exception:
            log_internal_error("recording what was said")
            return {}

    def _emit_call(
        self,
        ended: records.CallEnded,
        call_attributes: Attributes,
        opened: OpenSpan | None,
        at_ns: int,
    ) -> None:
        """Emit the events of a call."""
        started, stop = ended.started, ended.response.stop
        self._emit(
            schema.STOP_REASON_OBSERVED,
            call_attributes,
            opened,
            at_ns,
            "warn" if stop.truncated else "info",
        )
        if not stop.mapped:
            # Keyed by the unsanitized value: two values with one sanitized text are two events.
            unmapped = started.endpoint.provider, started.request.model, value_key(stop.raw or "")
            if unmapped not in self._unmapped and len(self._unmapped) < MAX_UNMAPPED_REASONS:
                self._unmapped.add(unmapped)
                self._emit(schema.STOP_REASON_UNMAPPED, call_attributes, opened, at_ns)
        if self._providers.content.details and not _has_content_by_another(opened):
            self._emit(schema.INFERENCE_DETAILS, call_attributes, opened, at_ns)

    # --- Turns ------------------------------------------------------------------------------------

    def _turn_started(self, started: records.TurnStarted) -> Activation | None:
        self._providers.look_up()
        turn = started.turn
        span = foreign_spans.agent_span(turn)
        current = foreign_spans.current_span(self._providers.tracers)
        if span is None and current is not None and kind_of(current) is OperationKind.AGENT:
            span = current
            self._remember_turn(turn, OpenSpan(span, ours=False))
        if span is not None:
            span.set_attributes(for_foreign_span(_of_turn(turn)))
            return None
        if self._providers.tracer is None:
            return None
        name = f"invoke_agent {turn.agent or ''}".rstrip()
        turn_attributes, parent = _of_turn(turn), foreign_spans.parent_of(trace.get_current_span())
        span = self._providers.tracer.start_span(
            name, parent, attributes=turn_attributes, start_time=turn.started_ns
        )
        opened = OpenSpan(span)
        self._remember_turn(turn, opened)
        return opened.as_current

    def _turn_joined(self, joined: records.TurnJoined) -> Activation | None:
        """Return an activation that makes the span current again which is current now.

        Used for a stream of the turn: the host may read it in another context.
        """
        current = trace.get_current_span()
        return partial(_Current, current) if current.get_span_context().is_valid else None

    def _update_agent_span(self, ended: records.CallEnded) -> None:
        """Set the attributes of an agent's turn so far on the agent's span.

        Done after each call, because the turn may end after its span, which is read-only then.
        """
        turn = ended.started.turn.totals()
        span = foreign_spans.agent_span(turn)
        if span is not None and span.is_recording():
            outcome = completed(turn) if ended.error is None else outcome_of(ended)
            span.set_attributes(for_foreign_span(_of_turn(turn, outcome)))

    def _turn_ended(self, ended: records.TurnEnded) -> None:
        turn, outcome = ended.turn, ended.outcome
        ended_ns = turn.started_ns + round(ended.duration_s * 1e9)
        if turn.kind is TurnKind.IMPLICIT:
            opened = self._ended_span(self._implicit.pop(turn.id, None))
        else:
            opened = self._turns.pop(turn.id, None)
        if (
            turn.kind is not TurnKind.IMPLICIT
            and (agent_span := foreign_spans.agent_span(turn)) is not None
        ):
            opened = OpenSpan(agent_span, ours=False)
        if turn.truncated:
            attempts = {
                TurnOutcome.RETRY_LIMIT: turn.continuations,
                TurnOutcome.RESUME_LIMIT: turn.resumes,
            }
            # A limit of 0 is no failure: the policy forbids continuing or resuming.
            is_success = ended.complete or attempts.get(outcome) == 0
            level: Level = (
                "info" if is_success else "error" if outcome in LIMIT_OUTCOMES else "warn"
            )
            turn_attributes = attributes.of_turn(turn, outcome)
            if ended.tools_unanswered:
                turn_attributes[schema.TOOLS_UNANSWERED.key] = True
            self._emit(schema.CONTINUATION_TERMINATED, turn_attributes, opened, ended_ns, level)
        if self._providers.meters is not None:
            self._providers.meters.count_turn(
                ended, turn.agent if self._providers.agent else None, _context(opened)
            )
        if opened is not None and turn.kind is not TurnKind.IMPLICIT and opened.span.is_recording():
            turn_attributes, error = _of_turn(turn, outcome), attributes.error_type(ended.error)
            if opened.ours:
                opened.span.set_attributes(with_attribute_count(turn_attributes | _error(error)))
                _end(opened.span, error, ended_ns)
            else:
                opened.span.set_attributes(for_foreign_span(turn_attributes))

    def _turn_event(self, record: attributes.TurnEvent) -> None:
        event = TURN_EVENTS[type(record)]
        event_attributes = attributes.of_event(event, record)
        if not self._providers.content.on_event:
            event_attributes.pop(schema.BLOCKED_NAMES.key, None)
        turn_id = record.turn.id
        opened = self._turns.get(turn_id) or self._ended_span(self._implicit.get(turn_id))
        self._emit(event, event_attributes, opened, self._clock())
        if not isinstance(record, records.TerminationSignalled):
            self._count(record)

    def _count(self, record: CountedRecord) -> None:
        if self._providers.meters is not None:
            self._providers.meters.count_event(record, self._providers.price(record.model))

    # --- Tools ------------------------------------------------------------------------------------

    def _tool_started(self, started: records.ToolStarted) -> Activation | None:
        if self._providers.tracer is None:
            return None
        name, tool_attributes = f"execute_tool {started.name}", attributes.of_tool(started)
        parent = foreign_spans.parent_of(trace.get_current_span())
        span = self._providers.tracer.start_span(
            name, parent, attributes=tool_attributes, start_time=self._clock()
        )
        opened = OpenSpan(span, tool_attributes)
        put_bounded(self._tools, started.number, opened, limit=MAX_OPEN_CALLS)
        return opened.as_current

    def _tool_ended(self, ended: records.ToolEnded) -> None:
        opened = self._tools.pop(ended.started.number, None)
        if opened is not None:
            error = attributes.error_type(ended.error)
            opened.span.set_attributes(with_attribute_count(_error(error), opened.request or {}))
            _end(opened.span, error, self._clock())

    # --- Shared -----------------------------------------------------------------------------------

    @staticmethod
    def _ended_span(context: SpanContext | None) -> OpenSpan | None:
        """Return an `OpenSpan` for a span that has ended, so that later signals can refer to it."""
        if context is None:
            return None
        span = trace.NonRecordingSpan(context)
        return OpenSpan(span, ours=False, context=trace.set_span_in_context(span))

    def _remember_turn(self, turn: Turn, opened: OpenSpan) -> None:
        put_bounded(self._turns, turn.id, opened, limit=MAX_OPEN_CALLS)

    def _emit(
        self,
        event: LogEvent,
        event_attributes: Attributes,
        opened: OpenSpan | None,
        at_ns: int,
        level: Level | None = None,
    ) -> None:
        """Emit one event as a log record, and on an open span if span events are enabled."""
        providers = self._providers
        event_attributes = attributes.declared(event, event_attributes)
        if providers.logger is not None:
            severity, severity_number = SEVERITIES[level or event.severity]
            providers.logger.emit(
                event_name=event.name,
                body=event.body % defaultdict(lambda: "?", event_attributes),
                attributes=event_attributes,
                timestamp=at_ns,
                context=None if opened is None else opened.context,
                severity_text=severity,
                severity_number=severity_number,
            )
        if providers.mirrors_events:
            # The last span of an implicit turn has ended: use the current span if it is open.
            is_open = opened is not None and opened.span.is_recording()
            span = (
                opened.span
                if opened is not None and is_open
                else foreign_spans.current_span(providers.tracers)
            )
            if span is not None:
                span.add_event(event.name, as_text(event_attributes), at_ns)


def _of_turn(turn: Turn, outcome: TurnOutcome | None = None) -> Attributes:
    """Return the attributes of a turn's span."""
    return attributes.declared(schema.TURN_SPAN, attributes.of_turn(turn, outcome))


class _Current:
    """A context manager in which a span is current.

    It records no exception: the span's end does.
    """

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        self._token = attach(trace.set_span_in_context(self._span))

    def __exit__(self, *raised: object) -> None:
        detach(self._token)


def _error(error: str | None) -> Attributes:
    """Return the error attribute of a turn's or a tool's span."""
    return {} if error is None else {schema.ERROR_TYPE.key: error}


def _end(span: Span, error: str | None, ended_ns: int) -> None:
    if error is not None:
        span.set_status(StatusCode.ERROR, error)
    span.end(ended_ns)


def _has_content_by_another(opened: OpenSpan | None) -> bool:
    """Return whether another instrumentation with a span of the call records its content.

    Those of `CONTENT_EMITTERS` do so if OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is set.
    """
    return opened is not None and opened.is_by(schema.CONTENT_EMITTERS)


def _context(opened: OpenSpan | None) -> Context:
    return NO_SPAN if opened is None else opened.context
