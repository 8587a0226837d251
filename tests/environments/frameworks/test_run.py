"""Agents whose frameworks make spans of them, run once under `endturn run`: the first run is one turn."""

from __future__ import annotations

from tests.support.agent_processes import assert_one_turn, exported

AGENT_FRAMEWORK = """
import asyncio
import agent_framework
from agent_framework.openai import OpenAIChatCompletionClient
async def main():
    client = OpenAIChatCompletionClient(model="gpt-4o", base_url=URL, api_key="none")
    await agent_framework.Agent(client, name="helper", tools=[weather]).run("hi")
asyncio.run(main())
"""


def test_the_first_run_of_agent_framework_is_one_turn() -> None:
    assert_one_turn(exported(AGENT_FRAMEWORK))
