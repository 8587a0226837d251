"""Beside OpenInference's instrumentations of frameworks, whose spans stand around and beside the HTTP requests."""

from __future__ import annotations

from collections.abc import Iterator

import dspy
import pytest
from openinference.instrumentation.dspy import DSPyInstrumentor
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

import endturn
from endturn.scripted import ScriptedProvider, say
from tests.environments.openai2 import test_agents as agents
from tests.support.agent_runs import KEY, TRACERS, check_of
from tests.support.announced import counted


@pytest.fixture(autouse=True)
def openinference() -> Iterator[None]:
    """OpenInference's instrumentations, at work before endturn is."""
    instrumentors = [LlamaIndexInstrumentor(), DSPyInstrumentor()]
    for instrumentor in instrumentors:
        instrumentor.instrument(tracer_provider=TRACERS, skip_dep_check=True)
    yield
    for instrumentor in instrumentors:
        instrumentor.uninstrument()


test_each_request_counts_once = check_of(agents.llama_index_agent, agents.llama_index_model, agents.dspy_module)


def test_a_span_that_tells_no_reason_is_unknown() -> None:
    """DSPy's own engine uses no HTTP client that is seen; of its call there is a span alone."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(endturn.AdoptingSpanProcessor(tracer_provider=tracers, meter_provider=meters))
    DSPyInstrumentor().uninstrument()
    DSPyInstrumentor().instrument(tracer_provider=tracers, skip_dep_check=True)
    with ScriptedProvider([say("Hello")]).serve() as url:
        lm = dspy.LM(agents.LITELLM, api_base=f"{url}/v1", api_key=KEY, cache=False, num_retries=0)
        assert lm("hi") == ["Hello"]
    assert counted(reader) == {"unknown": 1}
    tracers.shutdown()
