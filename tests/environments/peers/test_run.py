"""Agents whose frameworks make spans of them, run once under `endturn run`: the first run is one turn."""

from __future__ import annotations

from tests.support.agent_processes import assert_one_turn, exported

PYDANTIC_AI = """
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=URL, api_key="none"))
Agent.instrument_all()
agent = Agent(model, name="helper")
agent.tool_plain(weather)
agent.run_sync("hi")
"""


def test_the_first_run_of_pydantic_ai_is_one_turn() -> None:
    assert_one_turn(exported(PYDANTIC_AI))
