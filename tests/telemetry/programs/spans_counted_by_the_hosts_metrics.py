"""Spans say that the metrics of the host's own provider count them."""

import os

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import endturn
from endturn.testing.scripted import say
from tests.telemetry.programs.parts.calls import call
from tests.telemetry.programs.parts.scripted import ask

spans, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
endturn.instrument()
exporter = ConsoleMetricExporter(out=open(os.devnull, "w"))  # noqa: SIM115 - open until the process ends
metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(exporter, 600_000)]))
tracer = trace.get_tracer("another.instrumentation")
with tracer.start_as_current_span(
    "chat gpt-5", attributes={"gen_ai.operation.name": "chat"}, kind=trace.SpanKind.CLIENT
):
    pass
ask(say("Hello"))
call()
print(*((span.attributes or {}).get("endturn.counted") for span in spans.get_finished_spans()))
