"""The examples do what they say, each as its user runs it."""

from __future__ import annotations

import pytest

from endturn.scripted import Reply, call, partial_call, say, truncate
from tests.support.examples import run

ASKS = call("weather", {"city": "Oslo"})
CUT = truncate("It rains in Oslo, and it will go on", after=4)


def test_a_handwritten_loop() -> None:
    """A tool is run, a cut answer is finished: three calls, three spans, and the second turn has two calls."""
    ran = run("handwritten_loop", ASKS, CUT, say(" and it will go on."))
    assert ran.calls == ["tool_call", "max_tokens", "end_turn"]
    assert ran.seen == [
        "call to gpt-5-mini: tool_call (tool_calls)",
        "turn of 1 calls: completed",
        "call to gpt-5-mini: max_tokens (length, cut off)",
        "continuation 1: prompt",
        "call to gpt-5-mini: end_turn (stop)",
        "turn of 2 calls: completed",
    ]
    assert ran.printed == ["It rains in Oslo, and it will go on."]
    first, second, third = ran.spans
    assert first["endturn.turn.id"] != second["endturn.turn.id"] == third["endturn.turn.id"]
    assert (third["endturn.continuation.index"], third["endturn.turn.iteration"]) == (1, 2)


def test_a_handwritten_loop_and_a_cut_tool_call() -> None:
    """Its cut payload is not run; nobody asks for it again, and the turn says so."""
    ran = run("handwritten_loop", partial_call("weather", {"city": "Oslo"}, after=1))
    assert ran.calls == ["max_tokens"]
    assert ran.seen[-1] == "turn of 1 calls: not_continued"


def test_httpx_alone() -> None:
    """One record for a call that no SDK makes."""
    ran = run("httpx_only", CUT)
    assert ran.calls == ["max_tokens"]
    assert ran.seen == ["call to gpt-5-mini: max_tokens (length, cut off)", "turn of 1 calls: not_continued"]


@pytest.mark.parametrize(
    ("replies", "calls", "outcome"),
    [
        ([ASKS, say("It rains.")], ["tool_call", "end_turn"], "completed"),
        ([ASKS, CUT], ["tool_call", "max_tokens"], "not_continued"),  # handed on as if it were whole
        (
            [partial_call("weather", {"city": "Oslo"}, after=1), say("Never mind.")],  # it says that this is no JSON
            ["max_tokens", "end_turn"],
            "completed",
        ),
    ],
)
def test_pydantic_ai(replies: list[Reply], calls: list[str], outcome: str) -> None:
    """An agent's run is one turn, whatever it makes of a cut answer or payload."""
    ran = run("pydantic_ai_agent", *replies)
    assert ran.calls == calls
    assert (ran.seen[-1], ran.requests) == (f"turn of 2 calls: {outcome}", 2)
    assert len(ran.printed) == 1
