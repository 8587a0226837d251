"""An exporter that is given."""

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import endturn
from tests.telemetry.programs.parts.calls import call

spans = InMemorySpanExporter()
telemetry = endturn.configure(span_exporter=spans, instrument=True)
call()
telemetry.force_flush()
(span,) = spans.get_finished_spans()
print(span.name, (span.attributes or {}).get("endturn.counted"))
