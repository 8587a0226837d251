"""A stage for the recorder: counted ids, a time that is stepped by hand, and exporters that keep what they get."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, MetricReader, MetricsData
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator

from endturn.calls import listeners, outcomes, records
from endturn.calls.outcomes import TurnKind, TurnOutcome
from endturn.calls.records import CallEnded, CallStarted, TurnEnded, TurnStarted
from endturn.calls.turn import Turn
from endturn.calls.turn_totals import add_call
from endturn.telemetry import schema
from endturn.telemetry.otel_providers import Options
from endturn.telemetry.recorder import Recorder
from endturn.vocabulary.messages import Usage
from endturn.vocabulary.stop import Stop, StopReason
from tests.support.summaries import ENDPOINT, REQUEST, RESPONSE, endpoint_facts, request_facts, response_facts

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND

DONE = Stop(StopReason.END_TURN, "stop")
CUT = Stop(StopReason.MAX_TOKENS, "length", incomplete=True)

CONTENT = {attribute.key for attribute in schema.CONTENT}
SPANS = {attribute.key for span in schema.SPANS for attribute in span.attributes}
EVENTS = {event.name: {attribute.key for attribute in event.attributes} for event in schema.EVENTS}
METRICS = {metric.name: metric for metric in schema.METRICS}


STARTS = set(CallStarted._fields) - {"turn", "request", "endpoint"} | REQUEST | ENDPOINT
"""What is said of a call's beginning."""


class CountedIds(IdGenerator):
    """1, 2, 3 … for spans; 101, 102 … for traces."""

    def __init__(self) -> None:
        self.spans, self.traces = count(1), count(101)

    def generate_span_id(self) -> int:
        return next(self.spans)

    def generate_trace_id(self) -> int:
        return next(self.traces)


@dataclass
class Stage:
    """A recorder between a hand that announces and exporters that keep."""

    options: Options = field(default_factory=Options)
    readers: Sequence[MetricReader] = field(default_factory=lambda: [InMemoryMetricReader()])
    ns: int = START
    sampler: Any = None

    def __post_init__(self) -> None:
        self.spans = InMemorySpanExporter()
        self.logs = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]  # the SDK's has no annotations
        self.tracers = TracerProvider(id_generator=CountedIds(), sampler=self.sampler, shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.meters = MeterProvider(self.readers, shutdown_on_exit=False)
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        self.loggers.add_log_record_processor(SimpleLogRecordProcessor(self.logs))
        self.recorder = Recorder(self.tracers, self.meters, self.loggers, options=self.options, clock=self.clock)
        self._numbers, self._turns = count(1), count(1)
        self._activations: dict[str, listeners.Activation] = {}

    def providers(self) -> dict[str, Any]:
        """The arguments of `instrument`."""
        return {"tracer_provider": self.tracers, "meter_provider": self.meters, "logger_provider": self.loggers}

    def clock(self) -> int:
        return self.ns

    def step(self, seconds: float = 1.0) -> None:
        self.ns += round(seconds * SECOND)

    # What happens

    def tell(self, record: records.Record) -> Any:
        """Tell the recorder, with the span of the record's turn current, as in a step of a turn's scope."""
        turn = getattr(record, "turn", None)
        with ExitStack() as stack:
            if turn is not None and turn.id in self._activations:
                stack.enter_context(self._activations[turn.id]())
            activation = self.recorder(record)
        if isinstance(record, TurnStarted) and activation is not None:
            self._activations[record.turn.id] = activation
        return activation

    def turn(self, kind: TurnKind = TurnKind.IMPLICIT, **fields: Any) -> Turn:
        """A turn that begins now; an explicit one is announced."""
        turn = Turn(kind=kind, id=f"turn-{next(self._turns)}", started_s=0.0, started_ns=self.ns, **fields)
        if kind is not TurnKind.IMPLICIT:
            self.tell(TurnStarted(turn=turn))
        return turn

    def start(self, turn: Turn, **fields: Any) -> CallStarted:
        """A call begins now."""
        turn.iterations += 1
        fields = {"provider": "openai", "model": "gpt-5", "started_ns": self.ns, "started_s": 0.0, **fields}
        started = CallStarted(
            number=next(self._numbers),
            request=request_facts(fields),
            endpoint=endpoint_facts(fields),
            turn=turn,
            iteration=turn.iterations,
            identity=records.ResponseIdentity(),
            **{name: value for name, value in fields.items() if name not in REQUEST | ENDPOINT},
        )
        self.tell(started)
        return started

    def end(self, started: CallStarted, stop: Stop = DONE, **fields: Any) -> CallEnded:
        """A call has ended, now."""
        duration = (self.ns - started.started_ns) / SECOND
        response = response_facts({"stop": stop, **fields})
        fields = {"duration_s": duration, **{name: fields[name] for name in fields.keys() - RESPONSE}}
        ended = CallEnded(started=started, response=response, **fields)
        add_call(started.turn, ended)
        self.tell(ended)
        return ended

    def call(self, turn: Turn, stop: Stop = DONE, *, seconds: float = 1.0, **fields: Any) -> CallEnded:
        """A whole call, with fields of its start and of its end."""
        started = self.start(turn, **{name: fields.pop(name) for name in STARTS & fields.keys()})
        self.step(seconds)
        return self.end(started, stop, **fields)

    def close(self, turn: Turn, outcome: TurnOutcome = TurnOutcome.COMPLETED, **fields: Any) -> None:
        """A turn ends now."""
        turn.outcome = outcome
        complete = outcome in outcomes.COMPLETE and not turn.unfinished
        duration = (self.ns - turn.started_ns) / SECOND
        self.tell(TurnEnded(turn=turn, outcome=outcome, complete=complete, duration_s=duration, **fields))

    # What came of it

    def finished(self) -> list[dict[str, Any]]:
        """The spans that have ended, whole, in seconds since the start."""
        for span in self.spans.get_finished_spans():
            if span.instrumentation_scope is not None and span.instrumentation_scope.name == schema.SCOPE:
                assert set(span.attributes or ()) <= SPANS
        return [plain(span) for span in self.spans.get_finished_spans()]

    def events(self) -> list[dict[str, Any]]:
        """The events emitted so far."""
        found = []
        for record in [one.log_record for one in self.logs.get_finished_logs()]:
            assert record.event_name is not None
            assert record.severity_number is not None
            assert set(record.attributes or ()) <= EVENTS[record.event_name]
            assert record.severity_text == record.severity_number.name
            head = {"name": record.event_name, "severity": record.severity_text, "at": seconds(record.timestamp)}
            found.append({**head, "span": record.span_id, **dict(record.attributes or {})})
        return found

    def collected(self, reader: MetricReader | None = None) -> MetricsData:
        """What a collection gives."""
        reader = reader or self.readers[0]
        assert isinstance(reader, InMemoryMetricReader)
        data = reader.get_metrics_data()
        assert data is not None
        return data

    def points(self, reader: MetricReader | None = None) -> dict[str, dict[tuple[Any, ...], Any]]:
        """Every point of a collection: by metric, by the values of its attributes in the schema's order."""
        return points(self.collected(reader))

    def exported(self) -> bytes:
        """Everything that leaves the process, as OTLP's bytes and as what a console shows."""
        spans, logs, metrics = self.spans.get_finished_spans(), self.logs.get_finished_logs(), self.collected()
        encoded = encode_spans(spans), encode_logs(logs), encode_metrics(metrics)
        printed: list[Any] = [*spans, *logs, metrics]
        shown = "".join(each.to_json() for each in printed)
        return b"".join(each.SerializeToString() for each in encoded) + shown.encode()


Recording = Callable[..., Stage]


def in_a_child(work: Callable[[], object]) -> str:
    """What this gives in a forked process."""
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(here, repr(work()).encode())
        finally:
            os._exit(0)
    os.close(here)
    with os.fdopen(there) as pipe:
        given = pipe.read()
    os.waitpid(child, 0)
    return given


def points(data: MetricsData | None) -> dict[str, dict[tuple[Any, ...], Any]]:
    """A sum's value; of a histogram its count, its sum and its bounds."""
    found: dict[str, dict[tuple[Any, ...], Any]] = {}
    scopes = [scope for resource in (data.resource_metrics if data else ()) for scope in resource.scope_metrics]
    for metric in [metric for scope in scopes for metric in scope.metrics]:
        declared = METRICS[metric.name]
        keys = [attribute.key for attribute in declared.attributes]
        assert metric.unit == declared.unit
        for point in metric.data.data_points:
            attributes = dict(point.attributes or {})
            assert set(attributes) <= set(keys)
            value: Any = getattr(point, "value", None)
            if isinstance(point, HistogramDataPoint):
                assert tuple(point.explicit_bounds) == tuple(declared.buckets)
                value = (point.count, round(point.sum, 6))
            found.setdefault(metric.name, {})[tuple(map(attributes.get, keys))] = value
    return found


def counted(found: dict[tuple[Any, ...], Any]) -> dict[tuple[Any, ...], Any]:
    """The sums that are not zero."""
    return {key: value for key, value in found.items() if value}


def spans_outside_their_turn(spans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of spans that do not descend from their turn's span.

    The law: where a turn has a span of its own, that span is an ancestor of every span with its id.

    Args:
        spans: the finished spans, as `Stage.finished` gives them.
    """
    by_id = {span["span"]: span for span in spans}
    tops = {
        span["attributes"]["endturn.turn.id"]: span["span"]
        for span in spans
        if span["attributes"].get("gen_ai.operation.name") == "invoke_agent" and "endturn.turn.id" in span["attributes"]
    }

    def ancestors(span: Mapping[str, Any]) -> set[int]:
        found = {span["span"]}
        while (parent := by_id.get(span["parent"] or 0)) is not None:
            assert parent["trace"] == span["trace"]
            span = parent
            found.add(span["span"])
        return found

    turns = [(span, span["attributes"].get("endturn.turn.id")) for span in spans]
    return [span["name"] for span, turn in turns if turn in tops and tops[turn] not in ancestors(span)]


def seconds(ns: int | None) -> float:
    return ((ns or 0) - START) / SECOND


def plain(span: ReadableSpan) -> dict[str, Any]:
    """A span as one comparable value."""
    context = span.context
    assert context is not None
    attributes = dict(span.attributes or {})
    count = attributes.pop(schema.ATTRIBUTE_COUNT.key, None)
    assert count == (len(attributes) + 1 if is_own_without_content(span) else None)
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace": context.trace_id,
        "span": context.span_id,
        "parent": None if span.parent is None else span.parent.span_id,
        "links": [link.context.span_id for link in span.links],
        "time": (seconds(span.start_time), seconds(span.end_time)),
        "status": span.status.status_code.name,
        "events": [(event.name, seconds(event.timestamp)) for event in span.events],
        "attributes": attributes,
    }


def is_own_without_content(span: ReadableSpan) -> bool:
    """Whether endturn made a span, and recorded no content on it."""
    scope = span.instrumentation_scope
    is_own = scope is not None and scope.name == schema.SCOPE
    return is_own and CONTENT.isdisjoint(span.attributes or {})


USAGE = Usage(input_tokens=100, output_tokens=20)
