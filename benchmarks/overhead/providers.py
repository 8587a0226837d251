"""OpenTelemetry providers for one variant, whose exporters throw everything away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import (
    BatchLogRecordProcessor,
    LogRecordExporter,
    LogRecordExportResult,
    SimpleLogRecordProcessor,
)
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.metrics.view import DropAggregation, View
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult


class DiscardSpans(SpanExporter):
    """An exporter that throws spans away."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class DiscardLogRecords(LogRecordExporter):
    """An exporter that throws log records away."""

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True

    def shutdown(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Which providers a host has.

    Attributes:
        batch: spans and log records go through batch processors, else through simple ones.
        exemplars: measurements made in a sampled span are kept as exemplars: the SDK's default.
        dropped_metrics: patterns of instrument names that a view drops.
    """

    spans: bool = True
    events: bool = True
    metrics: bool = True
    batch: bool = False
    exemplars: bool = True
    dropped_metrics: tuple[str, ...] = ()


ALL_SIGNALS: Final = Setup()
METRICS_ALONE: Final = Setup(spans=False, events=False)
NO_SDK: Final = Setup(spans=False, events=False, metrics=False)


class Providers:
    """The providers of one variant; None for a signal that the host does not set up."""

    def __init__(self, setup: Setup) -> None:
        self.tracer_provider: TracerProvider | None = None
        self.logger_provider: LoggerProvider | None = None
        self.meter_provider: MeterProvider | None = None
        self._reader = InMemoryMetricReader()
        if setup.spans:
            self.tracer_provider = TracerProvider(shutdown_on_exit=False)
            span_processor = BatchSpanProcessor if setup.batch else SimpleSpanProcessor
            self.tracer_provider.add_span_processor(span_processor(DiscardSpans()))
        if setup.events:
            self.logger_provider = LoggerProvider(shutdown_on_exit=False)
            log_processor = BatchLogRecordProcessor if setup.batch else SimpleLogRecordProcessor
            self.logger_provider.add_log_record_processor(log_processor(DiscardLogRecords()))
        if setup.metrics:
            self.meter_provider = MeterProvider(
                [self._reader],
                shutdown_on_exit=False,
                exemplar_filter=None if setup.exemplars else AlwaysOffExemplarFilter(),
                views=[View(instrument_name=name, aggregation=DropAggregation()) for name in setup.dropped_metrics],
            )

    def collect(self) -> None:
        """Collect the metrics, and export the spans and log records that wait."""
        if self.meter_provider is not None:
            self._reader.get_metrics_data()
        if self.tracer_provider is not None:
            self.tracer_provider.force_flush()
        if self.logger_provider is not None:
            self.logger_provider.force_flush()

    def arguments(self) -> dict[str, Any]:
        """The providers as the keywords that instrumentations take; without those that the host lacks."""
        providers = {
            "tracer_provider": self.tracer_provider,
            "meter_provider": self.meter_provider,
            "logger_provider": self.logger_provider,
        }
        return {name: provider for name, provider in providers.items() if provider is not None}
