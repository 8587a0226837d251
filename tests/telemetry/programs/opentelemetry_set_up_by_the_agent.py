"""An agent that sets up OpenTelemetry keeps what it sets up."""

import logging
import sys

from tests.apps import bare

logging.basicConfig(stream=sys.stdout, format="%(message)s")
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

kept, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
with trace.get_tracer("agent").start_as_current_span("agent"):
    bare.ask("cut", "Why?")
print(trace.get_tracer_provider() is provider, [span.name for span in kept.get_finished_spans()])
