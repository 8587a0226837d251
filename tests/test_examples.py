"""The examples do what they say, each as its user runs it."""

from __future__ import annotations

from endturn.scripted import call, partial_call, say, truncate
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


def test_pydantic_ai() -> None:
    """An agent's run is one turn: a tool call, then an answer."""
    ran = run("pydantic_ai_agent", ASKS, say("It rains."))
    assert ran.calls == ["tool_call", "end_turn"]
    assert ran.seen[-1] == "turn of 2 calls: completed"
    assert ran.printed == ["It rains."]


def test_pydantic_ai_and_a_cut_answer() -> None:
    """Pydantic AI hands a cut answer on as if it were whole: the turn ends on it."""
    ran = run("pydantic_ai_agent", ASKS, CUT)
    assert ran.calls == ["tool_call", "max_tokens"]
    assert ran.seen[-1] == "turn of 2 calls: not_continued"
    assert len(ran.printed) == 1


def test_pydantic_ai_and_a_cut_tool_call() -> None:
    """It tells the model that the payload is no JSON, and asks again; the truncation is seen."""
    ran = run("pydantic_ai_agent", partial_call("weather", {"city": "Oslo"}, after=1), say("Never mind."))
    assert ran.calls == ["max_tokens", "end_turn"]
    assert ran.requests == 2
    assert ran.seen[-1] == "turn of 2 calls: completed"
