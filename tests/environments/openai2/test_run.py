"""Agents whose frameworks make spans of them, run once under `endturn run`: the first run is one turn."""

from __future__ import annotations

import pytest

from tests.support.agent_processes import assert_one_turn, exported

STRANDS = """
import strands
from strands.models.openai import OpenAIModel
model = OpenAIModel(client_args={"base_url": URL, "api_key": "none"}, model_id="gpt-4o")
strands.Agent(model=model, tools=[strands.tool(weather)], callback_handler=None)("hi")
"""
ADK = """
import asyncio
from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types
async def main():
    model = LiteLlm("openai/gpt-4o", api_base=URL, api_key="none")
    runner = InMemoryRunner(Agent(name="helper", model=model, tools=[weather]), app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="user")
    async for _ in runner.run_async(user_id="user", session_id=session.id, new_message=types.UserContent("hi")):
        pass
asyncio.run(main())
"""
AUTOGEN = """
import asyncio
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
async def main():
    model = OpenAIChatCompletionClient(model="gpt-4o", base_url=URL, api_key="none")
    await AssistantAgent("helper", model, tools=[weather], reflect_on_tool_use=True).run(task="hi")
asyncio.run(main())
"""


@pytest.mark.parametrize("code", [STRANDS, ADK, AUTOGEN], ids=["strands", "adk", "autogen"])
def test_the_first_run_is_one_turn(code: str) -> None:
    assert_one_turn(exported(code))
