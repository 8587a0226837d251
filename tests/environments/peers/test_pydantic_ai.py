"""Beside Pydantic AI's own spans: its agent's run is a turn, its calls are the turn's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import openai
import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import endturn
from endturn.testing.scripted import Reply, call, say, truncate
from tests.environments.peers import scene as scenes
from tests.environments.peers.scene import Scene, scene

CUT = truncate("Hello there", after=1)
OBSERVED = pytest.mark.parametrize("observed", [True, False], ids=["observed", "spans alone"])


def agent(on: Scene, name: str = "helper") -> Agent[Any, str]:
    """An agent with one tool, that says what it does with spans of its own."""
    made: Agent[Any, str] = Agent(
        OpenAIChatModel("gpt-5", provider=OpenAIProvider(openai_client=on.openai(openai.AsyncOpenAI))),
        name=name,
        model_settings={"max_tokens": 50},
        capabilities=[Instrumentation(settings=InstrumentationSettings(tracer_provider=on.tracers))],
    )

    @made.tool_plain
    def search(q: str) -> str:
        return f"found {q}"

    return made


def run(on: Scene) -> None:
    agent(on).run_sync("hi")


def stream(on: Scene) -> None:
    async def read() -> None:
        async with agent(on).run_stream("hi") as answer:
            async for _ in answer.stream_text():
                pass

    asyncio.run(read())


@OBSERVED
@pytest.mark.parametrize("ask", [run, stream])
@pytest.mark.parametrize("emit", [scenes.nothing, scenes.genai])
@pytest.mark.parametrize(("answer", "outcome"), [(say("Hello there"), "completed"), (CUT, "not_continued")])
def test_a_run_of_an_agent_is_a_turn(
    ask: Callable[[Scene], None], observed: bool, emit: Any, answer: Reply, outcome: str
) -> None:
    """Its calls, tools between them, are one turn, which the agent's span tells of when it ends.

    Pydantic AI hands half an answer on: the turn says so, and counts as an exit on a truncation.
    """
    with scene(call("search", {"q": "x"}), answer, emit=emit, observed=observed) as on:
        on.ask(ask)
        is_cut = answer is CUT
        assert on.counted() == {"tool_call": 1, str(answer.stop): 1}
        ((name, told),) = on.turns().items()
        assert (name, told["endturn.turn.outcome"]) == ("invoke_agent helper", outcome)
        assert (told["endturn.turn.iterations"], told["endturn.turn.truncated"]) == (2, is_cut)
        marked = [span.attributes or {} for span in on.finished() if "endturn.stop.reason" in (span.attributes or {})]
        assert [each["endturn.turn.id"] for each in marked] == [told["endturn.turn.id"]] * (2 if observed else 0)
        assert on.uncounted() == []
        endturn.uninstrument()  # a run that leaves an answer cut waits for another that continues it
        assert sum(on.counted("endturn.turns").values()) == 1
        assert sum(on.counted("endturn.truncation.exits").values()) == is_cut
        assert on.events().count("endturn.continuation_terminated") == is_cut


@OBSERVED
def test_agents_keep_their_calls_apart(observed: bool) -> None:
    """The calls of a sub-agent, run by a tool, belong to its own turn; two runs at once in one loop are two turns."""
    script = call("ask", {}), say("I am inner"), say("I am outer"), say("one"), say("two")
    with scene(*script, emit=scenes.nothing, observed=observed) as on:
        outer = agent(on, "outer")

        @outer.tool_plain
        async def ask() -> str:
            return (await agent(on, "inner").run("hello")).output

        async def both() -> None:
            await outer.run("hi")
            await asyncio.gather(agent(on, "a").run("hi"), agent(on, "b").run("hi"))

        on.ask(lambda on: asyncio.run(both()))
        iterations = {name: told["endturn.turn.iterations"] for name, told in on.turns().items()}
        assert iterations == {
            f"invoke_agent {name}": 2 if name == "outer" else 1 for name in ("outer", "inner", "a", "b")
        }
