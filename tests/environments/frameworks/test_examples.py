"""The examples of agent frameworks do what they say, each as its user runs it."""

from __future__ import annotations

import pytest

from endturn.scripted import Reply, call, partial_call, say, truncate
from tests.support.examples import run

ASKS = call("weather", {"city": "Oslo"})
ANSWER = say("It rains.")
CUT = truncate("It rains in Oslo, and it will go on", after=4)
NAMES = ("langgraph_agent", "openai_agents")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("answer", "reason", "outcome"), [(ANSWER, "end_turn", "completed"), (CUT, "max_tokens", "not_continued")]
)
def test_an_agent_and_its_tool(name: str, answer: Reply, reason: str, outcome: str) -> None:
    """A run is one turn of two calls, one span each; no framework looks at the reason, so a cut answer ends it too."""
    ran = run(name, ASKS, answer)
    assert (ran.calls, ran.requests) == (["tool_call", reason], 2)
    assert ran.seen[-1] == f"turn of 2 calls: {outcome}"
    assert answer is CUT or ran.printed == ["It rains."]
    assert len({span["endturn.turn.id"] for span in ran.spans if "endturn.turn.id" in span}) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_cut_tool_call(name: str) -> None:
    """Whatever the framework makes of the cut payload, the truncation is seen."""
    ran = run(name, partial_call("weather", {"city": "Oslo"}, after=1), say("Never mind."))
    assert ran.calls[0] == "max_tokens"
    assert len(ran.calls) == ran.requests
    assert ran.seen[0].endswith("cut off)")
