"""CrewAI, which endturn does not know: it sees the HTTP client that it uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from crewai import LLM, Agent as CrewAgent, Crew, Task
from crewai.tools import tool

from endturn.scripted import Reply
from tests.support.agent_runs import ANSWERS, KEY, MODEL, TOOL_LOOPS, Agent, check_each_request_counts_once, weather


def crew(url: str, *tools: Any, stream: bool = False) -> Any:
    model = LLM(f"openai/{MODEL}", base_url=f"{url}/v1", api_key=KEY, max_retries=0, stream=stream)
    agent = CrewAgent(role="helper", goal="help", backstory="none", llm=model, tools=list(tools), max_iter=3)
    task = Task(description="hi", expected_output="text", agent=agent)
    return Crew(agents=[agent], tasks=[task]).kickoff().raw


def crew_stream(url: str) -> Any:
    return crew(url, stream=True)


def crew_tools(url: str) -> Any:
    return crew(url, tool(weather))


@ANSWERS
@pytest.mark.parametrize("agent", [crew, crew_stream])
def test_an_answer(agent: Agent, replies: Sequence[Reply]) -> None:
    check_each_request_counts_once(agent, replies)


@TOOL_LOOPS
def test_a_tool_loop(replies: Sequence[Reply]) -> None:
    check_each_request_counts_once(crew_tools, replies)
