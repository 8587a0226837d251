"""Exporters and a reader of another package."""

import sys
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult


class Spans(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        sys.stdout.write(f"exported {[span.name for span in spans]}\n")
        return SpanExportResult.SUCCESS


class Reader(InMemoryMetricReader):
    def shutdown(self, timeout_millis: float = 30_000, **options: Any) -> None:
        sys.stdout.write(f"read {self.get_metrics_data() is not None}\n")
        super().shutdown(timeout_millis, **options)
