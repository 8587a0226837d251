"""PraisonAI's agents, which go on by themselves with an answer that was cut off."""

from __future__ import annotations

import pytest
from praisonaiagents import Agent

from endturn.testing.scripted import say, truncate
from tests.support.agent_turns import turns_of

CUT = truncate("The moon and the sun cause the tides", after=4)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("cuts", "outcome"), [(1, "completed"), (2, "completed"), (9, "not_continued")])
def test_what_it_continues_is_one_turn(monkeypatch: pytest.MonkeyPatch, stream: bool, cuts: int, outcome: str) -> None:
    """Its prompt is its own; after three continuations it gives up."""

    def run(url: str) -> object:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        return Agent(instructions="Be brief.", llm="gpt-4o").chat("Tides?", stream=stream)

    announced, provider = turns_of(run, [*[CUT] * cuts, say(" the sun.")])
    assert len(provider.received) == min(cuts, 3) + 1
    assert announced.told() == [f"None {len(provider.received)} {outcome}"]
    assert [each.continuation.strategy for each in announced.attempts] == ["prompt"] * min(cuts, 3)
