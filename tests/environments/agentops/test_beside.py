"""AgentOps, which sets up OpenTelemetry itself: its span of a call is the one that is told of."""

from __future__ import annotations

import agentops
import openai
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import endturn
from endturn.testing.scripted import Reply, ScriptedProvider, fail, say, truncate

CUT = truncate("one two three four", after=2)
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    """What AgentOps' provider is given; AgentOps itself sends to where nobody listens."""
    agentops.init(
        api_key="11111111-1111-4111-8111-111111111111", endpoint=NOWHERE, exporter_endpoint=NOWHERE,
        auto_start_session=False, fail_safe=True, log_level="CRITICAL",
    )  # fmt: skip
    kept = InMemorySpanExporter()
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return kept


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("reply", "reason"), [(CUT, "max_tokens"), (say("Hello"), "end_turn"), (fail(400), "error")])
def test_a_call_has_one_counted_span(spans: InMemorySpanExporter, reply: Reply, reason: str, stream: bool) -> None:
    """A call that succeeds has AgentOps' span alone; one that fails has ours below it, and both say who counts."""
    spans.clear()
    endturn.instrument(counted=True)
    try:
        with ScriptedProvider([reply]).serve() as url:
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
            try:
                made = client.chat.completions.create(
                    model="gpt-4o", messages=[{"role": "user", "content": "hi"}], stream=stream
                )
                if stream:
                    list(made)
            except openai.BadRequestError:
                assert reason == "error"
    finally:
        endturn.uninstrument()
    ended = spans.get_finished_spans()
    told = [(span.instrumentation_scope.name, span.attributes["endturn.stop.reason"]) for span in ended
            if "endturn.stop.reason" in (span.attributes or {})]  # fmt: skip
    assert told == [("endturn" if reason == "error" else "openai", reason)]
    assert all((span.attributes or {}).get("endturn.counted") for span in ended)
