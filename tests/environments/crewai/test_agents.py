"""CrewAI, which endturn does not know: it sees the HTTP client that it uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from crewai import LLM, Agent as CrewAgent, Crew, Task
from crewai.tools import tool

from tests.support.agent_runs import KEY, MODEL, check_of


def crew(url: str, *, stream: bool = False, tools: Sequence[Callable[..., Any]] = ()) -> Any:
    model = LLM(f"openai/{MODEL}", base_url=f"{url}/v1", api_key=KEY, max_retries=0, stream=stream)
    agent = CrewAgent(role="helper", goal="help", backstory="none", llm=model, tools=[*map(tool, tools)], max_iter=3)
    task = Task(description="hi", expected_output="text", agent=agent)
    return Crew(agents=[agent], tasks=[task]).kickoff().raw


test_each_request_counts_once = check_of(crew)
