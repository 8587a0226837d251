"""Beside two instrumentations of LangChain, whose spans are not current while the HTTP request is made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from openinference.instrumentation.langchain import LangChainInstrumentor as OpenInference
from opentelemetry.instrumentation.langchain import LangchainInstrumentor as OpenLLMetry

from endturn.scripted import Reply
from tests.environments.frameworks import agents
from tests.support.agent_runs import ANSWERS, TOOL_LOOPS, TRACERS, Agent, check_each_request_counts_once


@pytest.fixture(autouse=True, params=[OpenInference, OpenLLMetry], ids=["OpenInference", "OpenLLMetry"])
def instrumentor(request: pytest.FixtureRequest) -> Iterator[None]:
    """One of them, at work before endturn is."""
    made: Any = request.param()
    made.instrument(tracer_provider=TRACERS, skip_dep_check=True)
    yield
    made.uninstrument()


@ANSWERS
@pytest.mark.parametrize("agent", [agents.langchain_chat, agents.langchain_stream])
def test_an_answer(agent: Agent, replies: Sequence[Reply]) -> None:
    check_each_request_counts_once(agent, replies)


@TOOL_LOOPS
@pytest.mark.parametrize("agent", [agents.langchain_tools])
def test_a_tool_loop(agent: Agent, replies: Sequence[Reply]) -> None:
    check_each_request_counts_once(agent, replies)
