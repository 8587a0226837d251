"""What was announced while a host's calls were observed, and the spans made of it: for tests in any environment."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from endturn.calls import listeners
from endturn.calls.records import CallEnded, CallStarted, ContinuationAttempted, Record, TurnEnded
from endturn.instrumentation._instrument import instrument, uninstrument
from endturn.telemetry import cleanup
from endturn.vocabulary.stop import StopReason


class Records(list[Record]):
    """What was announced."""

    @property
    def started(self) -> list[CallStarted]:
        return [record for record in self if isinstance(record, CallStarted)]

    @property
    def ended(self) -> list[CallEnded]:
        return [record for record in self if isinstance(record, CallEnded)]

    @property
    def turns(self) -> list[TurnEnded]:
        return [record for record in self if isinstance(record, TurnEnded)]

    @property
    def attempts(self) -> list[ContinuationAttempted]:
        return [record for record in self if isinstance(record, ContinuationAttempted)]

    def reasons(self) -> list[StopReason]:
        """Of the calls that have ended."""
        return [ended.stop.reason for ended in self.ended]

    def told(self) -> list[str]:
        """Of the turns that have ended: the agent, how many calls, the outcome."""
        return [f"{ended.turn.agent} {ended.turn.iterations} {ended.outcome}" for ended in self.turns]

    def only(self) -> CallEnded:
        """The one call that was announced, started and ended once."""
        assert len(self.started) == 1, self.started
        assert len(self.ended) == 1, self.ended
        assert self.ended[0].started is self.started[0]
        return self.ended[0]


class Announced(Records):
    """Records, and the spans of their calls."""

    def __init__(self) -> None:
        super().__init__()
        self.exporter = InMemorySpanExporter()

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans of calls; each says why the model stopped."""
        return [span for span in self.exporter.get_finished_spans() if "endturn.stop.reason" in (span.attributes or {})]

    def only(self) -> CallEnded:
        """The one call that there was, with its one span."""
        call = super().only()
        (span,) = self.spans
        assert (span.attributes or {})["endturn.stop.reason"] == call.stop.reason.value
        return call


def settle() -> None:
    """Have what was dropped noticed."""
    gc.collect()
    cleanup.run()


@contextmanager
def observed() -> Iterator[Announced]:
    """Instrument, strictly: a failure of ours fails the test. Turns that wait end when this is left, and calls."""
    seen = Announced()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(seen.exporter))
    stop = listeners.subscribe(seen.append)
    with listeners.strict():
        instrument(tracer_provider=tracers, meter_provider=MeterProvider(shutdown_on_exit=False))
        try:
            yield seen
        finally:
            uninstrument()
            cleanup.run()
            stop()
    assert len(seen.ended) == len(seen.started)


def counted(reader: InMemoryMetricReader, name: str = "endturn.responses") -> dict[str, int]:
    """A sum, or a histogram's count, by the last of its attributes, as the reason of a response is; zeros left out."""
    found: Counter[str] = Counter()
    data = reader.get_metrics_data()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
    for metric in (metric for scope in scopes for metric in scope.metrics if metric.name == name):
        for point in metric.data.data_points:
            counts: Any = getattr(point, "value", None) or getattr(point, "count", 0)
            found[str([*(point.attributes or {}).values()][-1])] += counts
    return dict(+found)
