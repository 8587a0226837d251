"""The turns of agents whose frameworks rewrite what was cut, raise on it, or are asked to go on in a new run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import smolagents
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from google.adk.agents import Agent as AdkAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types
from strands import Agent as Strands
from strands.models.openai import OpenAIModel
from strands.types.exceptions import MaxTokensReachedException

from endturn.testing.scripted import say, truncate
from tests.support.agent_runs import KEY, MODEL
from tests.support.agent_turns import turns_of

CODE = "Thought: I write it down.\n<code>\nnumbers = [" + "1, 2, 3, " * 90
DONE = "Thought: I have it.\n<code>\nfinal_answer('Paris')\n</code>"


@pytest.mark.parametrize("after", [30, 200], ids=["short", "long"])
def test_smolagents_repairs_a_cut_answer(after: int) -> None:
    """It closes the code in its history, appends its own calls, and answers with the parser's error and the code."""

    def run(url: str) -> object:
        model = smolagents.OpenAIServerModel(MODEL, api_base=f"{url}/v1", api_key=KEY)
        return smolagents.CodeAgent([], model, max_steps=3, verbosity_level=0).run("What is France's capital?")

    announced, provider = turns_of(run, [truncate(CODE, after=after), say(DONE)])
    assert "Calling tools:" in str(provider.received[-1].body)
    assert announced.told() == ["None 2 completed"]
    assert [each.continuation.strategy for each in announced.attempts] == ["repair"]


def strands(url: str, *prompts: str) -> None:
    """Runs of one agent, which keeps its history; what it raises is left."""
    client = {"base_url": f"{url}/v1", "api_key": KEY}
    agent = Strands(model=OpenAIModel(client_args=client, model_id=MODEL), callback_handler=None)
    for prompt in prompts:
        with suppress(MaxTokensReachedException):
            agent(prompt)


async def adk(url: str, *prompts: str) -> None:
    """Runs in one session."""
    agent = AdkAgent(name="helper", model=LiteLlm(f"openai/{MODEL}", api_base=f"{url}/v1", api_key=KEY))
    runner = InMemoryRunner(agent, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="user")
    for prompt in prompts:
        message = types.UserContent(prompt)
        async for _ in runner.run_async(user_id="user", session_id=session.id, new_message=message):
            pass


async def autogen(url: str, *prompts: str) -> None:
    """Runs of one agent, which keeps its history."""
    agent = AssistantAgent("helper", OpenAIChatCompletionClient(model=MODEL, base_url=f"{url}/v1", api_key=KEY))
    for prompt in prompts:
        await agent.run(task=prompt)


CUT = truncate("The moon and the sun cause the tides", after=4)


def test_a_cut_answer_on_which_the_framework_raises_is_not_continued() -> None:
    """In the span, and in what metrics are made of, alike: no call has failed."""
    announced, _ = turns_of(lambda url: strands(url, "Tides?"), [CUT])
    assert [ended.outcome for ended in announced.turns] == ["not_continued"]
    agents = [span.attributes for span in announced.exporter.get_finished_spans() if "invoke_agent" in span.name]
    assert [(known or {}).get("endturn.turn.outcome") for known in agents] == ["not_continued"]


@pytest.mark.parametrize("run", [adk, autogen])
def test_a_new_run_that_continues_is_of_the_same_turn(run: Callable[..., Any]) -> None:
    """As where a framework makes no spans of its agents."""
    announced, provider = turns_of(lambda url: run(url, "Tides?", "Continue."), [CUT, say(" the sun.")])
    assert len(provider.received) == 2
    told = [(turn.turn.iterations, turn.turn.continuations, turn.outcome) for turn in announced.turns]
    assert told == [(2, 1, "completed")]


def test_a_run_that_raised_is_over() -> None:
    """Its user was told that it failed: what is asked for then is another turn."""
    announced, _ = turns_of(lambda url: strands(url, "Tides?", "Continue."), [CUT, say(" the sun.")])
    assert announced.told() == ["Strands Agents 1 not_continued", "Strands Agents 1 completed"]


@pytest.mark.parametrize("run", [strands, adk, autogen])
def test_a_new_run_that_asks_something_new_is_another_turn(run: Callable[..., Any]) -> None:
    announced, _ = turns_of(lambda url: run(url, "Tides?", "And on Mars?"), [CUT, say("None.")])
    told = [(turn.turn.iterations, turn.turn.continuations, turn.outcome) for turn in announced.turns]
    assert told == [(1, 0, "not_continued"), (1, 0, "completed")]
