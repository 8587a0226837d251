"""Providers of the host stay."""

import logging
import sys

import endturn
from tests.telemetry.programs.parts.calls import call

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
logging.getLogger("opentelemetry").setLevel(logging.ERROR)
from opentelemetry import metrics, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
telemetry = endturn.configure()
call()
print(trace.get_tracer_provider() is provider, type(metrics.get_meter_provider()).__module__)
print(len(spans.get_finished_spans()))
telemetry.shutdown()
print(provider.get_tracer("still").start_span("open").is_recording())
