"""The examples of agent frameworks do what they say, each as its user runs it."""

from __future__ import annotations

import pytest

from endturn.scripted import call, partial_call, say, truncate
from tests.support.examples import run

ASKS = call("weather", {"city": "Oslo"})
CUT = truncate("It rains in Oslo, and it will go on", after=4)
NAMES = ("langgraph_agent", "openai_agents")


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_and_its_tool(name: str) -> None:
    """An agent's run is one turn: a call that asks for a tool, and one that answers. One span each."""
    ran = run(name, ASKS, say("It rains."))
    assert ran.calls == ["tool_call", "end_turn"]
    assert ran.requests == 2
    assert ran.seen[-1] == "turn of 2 calls: completed"
    assert ran.printed == ["It rains."]
    assert len({span["endturn.turn.id"] for span in ran.spans if "endturn.turn.id" in span}) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_cut_answer(name: str) -> None:
    """The framework does not look at the reason: its turn ends on a cut answer, and says so."""
    ran = run(name, ASKS, CUT)
    assert ran.calls == ["tool_call", "max_tokens"]
    assert ran.seen[-1] == "turn of 2 calls: not_continued"


@pytest.mark.parametrize("name", NAMES)
def test_a_cut_tool_call(name: str) -> None:
    """Whatever the framework makes of the cut payload, the truncation is seen."""
    ran = run(name, partial_call("weather", {"city": "Oslo"}, after=1), say("Never mind."))
    assert ran.calls[0] == "max_tokens"
    assert len(ran.calls) == ran.requests
    assert ran.seen[0].endswith("cut off)")
