"""An agent of somebody who sends spans to Phoenix or Arize.

    python vendors_agent.py VENDOR FIRST PROVIDER_URL SINK_URL

`FIRST`: who is set up first, "vendor" or "endturn"; "nobody" where endturn is not set up here. With "replaced" the
agent adds a span processor of its own after its first call, and prints what that has of the second one's spans.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import openai
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

vendor, first, url, sink = sys.argv[1:]
if first == "endturn":
    import endturn

    endturn.instrument()
tracers: Any
if vendor == "phoenix":
    from phoenix import otel as phoenix

    tracers = phoenix.register(endpoint=f"{sink}/v1/traces", protocol="http/protobuf", batch=False, verbose=False)
else:
    from arize import otel as arize

    # Not by its `register`: that of 0.14.1 raises where the exporter over HTTP is newer than it knows.
    tracers = arize.TracerProvider(
        space_id="s", api_key="k", project_name="p", endpoint=f"{sink}/v1/traces", transport=arize.Transport.HTTP,
        verbose=False,
    )  # fmt: skip
    trace.set_tracer_provider(tracers)
OpenAIInstrumentor().instrument(tracer_provider=tracers)
if first in ("vendor", "replaced"):
    import endturn

    endturn.instrument()

client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
client.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "hi"}])
if first == "replaced":
    spans = InMemorySpanExporter()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    client.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "hi"}])
    print(json.dumps([(span.attributes or {}).get("endturn.stop.reason") for span in spans.get_finished_spans()]))
