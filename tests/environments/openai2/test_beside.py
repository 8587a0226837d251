"""Beside OpenInference's instrumentations of frameworks, whose spans stand around and beside the HTTP requests."""

from __future__ import annotations

from openinference.instrumentation.dspy import DSPyInstrumentor
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

from tests.environments.openai2 import test_agents as agents
from tests.support.agent_runs import check_of

test_each_request_counts_once = check_of(
    agents.llama_index_agent, agents.llama_index_model, agents.dspy_module,
    beside=[LlamaIndexInstrumentor, DSPyInstrumentor],
)  # fmt: skip
