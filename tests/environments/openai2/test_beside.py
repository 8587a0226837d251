"""Beside OpenInference's instrumentations of frameworks, whose spans stand around and beside the HTTP requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openinference.instrumentation.dspy import DSPyInstrumentor
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

from tests.environments.openai2 import test_agents as agents
from tests.support.agent_runs import TRACERS, check_of


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
