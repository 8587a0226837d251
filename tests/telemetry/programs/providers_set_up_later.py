"""A host that sets up its providers later is not warned."""

import sys

from opentelemetry import trace

import endturn
from endturn.calls import listeners as hooks
from tests.telemetry.programs.parts.scripted import ask

before = dict(vars(trace))
endturn.instrument()
assert dict(vars(trace)) == before
print(hooks.listening())
assert not {"openai", "anthropic", "httpx", "httpx2"} & sys.modules.keys()
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

kept, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
from endturn.calls.records import CallEnded, TurnEnded
from endturn.testing.scripted import say


def told(record: object) -> None:
    if isinstance(record, CallEnded):
        print(record.stop.reason)
    elif isinstance(record, TurnEnded):
        print(record.turn.iterations, record.outcome)


hooks.subscribe(told)
ask(say("Hello"))
print([span.name for span in kept.get_finished_spans()])
tracer = provider.get_tracer("x")
said = {"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": ["length"]}
with tracer.start_as_current_span("agent", attributes={"gen_ai.operation.name": "invoke_agent"}):
    ask(say("Hello"))
    tracer.start_span("chat", attributes=said).end()
endturn.uninstrument()
tracer.start_span("chat", attributes=said).end()
