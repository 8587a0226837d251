"""More spans than the queue of the SDK holds."""

from opentelemetry import trace

import endturn

endturn.configure()
tracer = trace.get_tracer("shop")
for _ in range(500):
    tracer.start_span("work").end()
