"""What was announced while a host's calls were observed, and the spans made of it: for tests in any environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from endturn import hooks
from endturn.events import CallEnded, CallStarted, ContinuationAttempted, Record, TurnEnded
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.telemetry import cleanup


@dataclass(slots=True)
class Announced:
    """Records and spans, in order."""

    records: list[Record] = field(default_factory=list)
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    @property
    def calls(self) -> list[CallEnded]:
        """The calls that have ended; one that has started and not ended fails the test."""
        ended = [record for record in self.records if isinstance(record, CallEnded)]
        assert len(ended) == sum(isinstance(record, CallStarted) for record in self.records)
        return ended

    @property
    def turns(self) -> list[TurnEnded]:
        """The turns that have ended."""
        return [record for record in self.records if isinstance(record, TurnEnded)]

    @property
    def attempts(self) -> list[ContinuationAttempted]:
        """The continuations that were asked for."""
        return [record for record in self.records if isinstance(record, ContinuationAttempted)]

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans of calls; each says why the model stopped."""
        return [span for span in self.exporter.get_finished_spans() if "endturn.stop.reason" in (span.attributes or {})]

    def only(self) -> CallEnded:
        """The one call that there was, with its one span."""
        (call,) = self.calls
        (span,) = self.spans
        assert (span.attributes or {})["endturn.stop.reason"] == call.stop.reason.value
        return call


@contextmanager
def observed() -> Iterator[Announced]:
    """Instrument, strictly: a failure of ours fails the test. Turns that wait end when this is left."""
    seen = Announced()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(seen.exporter))
    stop = hooks.subscribe(seen.records.append)
    with hooks.strict():
        instrument(tracer_provider=tracers, meter_provider=MeterProvider(shutdown_on_exit=False))
        try:
            yield seen
        finally:
            uninstrument()
            cleanup.run()
            stop()
