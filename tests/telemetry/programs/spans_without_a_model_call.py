"""A program that makes spans and calls no model exports nothing."""

import threading

from opentelemetry import trace

with trace.get_tracer("web").start_as_current_span("GET /"):
    pass
print(type(trace.get_tracer_provider()).__name__, threading.active_count())
