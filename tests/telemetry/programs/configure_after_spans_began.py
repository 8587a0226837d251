"""An agent that calls endturn.configure after spans have begun."""

import logging
import sys

from tests.apps import bare

logging.basicConfig(stream=sys.stdout, format="%(message)s")
from opentelemetry import trace

import endturn

tracer = trace.get_tracer("framework")
with tracer.start_as_current_span("at import"):
    pass
endturn.configure(service_name="mine")
with tracer.start_as_current_span("agent"):
    bare.ask("cut", "Why?")
