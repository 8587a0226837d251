"""An exporter that hangs."""

import threading
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult


class Stuck(SpanExporter):
    """Its export never returns."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        threading.Event().wait()
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass
