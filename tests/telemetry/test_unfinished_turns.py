"""The law of exits: a truncated turn without a whole answer is one truncation exit, in every signal and in the result.

The expected values come from docs/controller.md (42, and the behaviour of each outcome), not from the code.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pytest

from endturn.calls.outcomes import TurnOutcome
from endturn.continuation.controller import ContinuationController, TurnResult
from endturn.continuation.policy import ContinuationPolicy
from endturn.instrumentation.decorators import observe_turn
from endturn.testing.scripted import (
    ScriptedProvider,
    block,
    break_off,
    call,
    empty,
    fail,
    partial_call,
    pause,
    reason,
    refuse,
    say,
    think,
    truncate,
)
from endturn.vocabulary.messages import Message, Request, Tool, ToolCall
from endturn.vocabulary.stop import StopReason
from tests.telemetry.stage import Recording, Stage

SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
LOOK_UP: Final = Tool(name="look_up", parameters=SCHEMA)
FIRST: Final = truncate("The first half of the ", after=99)
CALL: Final = partial_call("look_up", '{"a": "hello wor', after=2, text="Text.")
LOOP: Final = "spam spam egg " * 60
JSON: Final = Request(
    model="m", messages=(Message(role="user", content="Go"),), max_tokens=400, format={"type": "json_object"}
)
PRICES: Final = {"max_cost": 1e-9, "prices": {"m": (1.0, 1.0)}}


class Case(NamedTuple):
    """A turn, and how it ends.

    Attributes:
        script: the replies.
        outcome: of the turn.
        complete: the answer that is handed over is whole.
        truncated: a response of the turn was cut off.
        policy: settings, with `preset` among them.
        settings: `format`, `stream`, `host` (the host runs tools), `request`, `raises` (a tool's exception).
    """

    name: str
    script: list[Any]
    outcome: str
    complete: bool = False
    truncated: bool = True
    policy: dict[str, Any] = {}  # noqa: RUF012 - never changed
    settings: dict[str, Any] = {}  # noqa: RUF012 - never changed


CASES: Final = [
    Case("whole", [say("All.")], "completed", complete=True, truncated=False),
    Case("finished", [FIRST, say("second half.")], "completed", complete=True),
    Case("tools", [FIRST, call("look_up", {"a": "1"}), say("All.")], "completed", complete=True),
    Case("calls handed over", [FIRST, call("look_up", {"a": "1"})], "completed", complete=True,
         settings={"host": True}),
    Case("a cut response's call handed over", [partial_call("look_up", {"a": "1"}, after=99)], "completed",
         policy={"preset": "forgeflare"}, settings={"host": True}),
    Case("a repair answered in words", [CALL, say(" No.")], "completed", complete=True),
    Case("implicit", [FIRST, say("second half.")], "implicit_completion", complete=True, policy={"mode": "task"}),
    Case("attempts", [FIRST, *[truncate(f"part {n} and ", after=99) for n in range(3)]], "retry_limit"),
    Case("no attempts", [FIRST], "retry_limit", policy={"continuation_max_attempts": 0}),
    Case("tokens", [FIRST, truncate("and on", after=99)], "token_budget",
         policy={"continuation_max_total_completion_tokens": 8}, settings={"maximum": 5}),
    Case("characters of a cut continuation", [FIRST, truncate("second half and on", after=99)], "char_budget",
         policy={"continuation_max_output_chars": 30}),
    Case("characters of a whole continuation", [FIRST, say("second half is here.")], "char_budget",
         policy={"continuation_max_output_chars": 30}),
    Case("characters of a continuation with calls", [FIRST, call("look_up", {"a": "1"}, text="second half is here.")],
         "char_budget", policy={"continuation_max_output_chars": 30}),
    Case("money", [FIRST], "cost_budget", policy=PRICES),
    Case("money, of tools", [call("look_up", {"a": "1"})], "cost_budget", truncated=False, policy=PRICES),
    Case("money, after a finished answer", [FIRST, call("look_up", {"a": "1"})], "cost_budget",
         policy={"max_cost": 1e-4, "prices": {"m": (10.0, 10.0)}}),
    Case("time", [FIRST], "deadline", policy={"deadline_s": 0.5}, settings={"ticking": True}),
    Case("time, of tools", [call("look_up", {"a": "1"})], "deadline", truncated=False, policy={"deadline_s": 0.5},
         settings={"ticking": True}),
    Case("pauses", [FIRST, pause("mid")], "resume_limit", policy={"continuation_max_resumes": 0},
         settings={"format": "anthropic"}),
    Case("pauses alone", [pause("mid")], "resume_limit", truncated=False, policy={"continuation_max_resumes": 0},
         settings={"format": "anthropic"}),
    Case("left paused", [FIRST, pause("mid")], "left_paused", policy={"continuation_strategies": ["prompt"]},
         settings={"format": "anthropic"}),
    Case("nothing more", [FIRST, empty()], "no_progress"),
    Case("a loop", [FIRST, truncate(LOOP, after=9_999)], "repetition"),
    Case("the same calls", [call("look_up", {"a": "1"}), call("look_up", {"a": "1"})], "repetition", truncated=False,
         policy={"max_identical_calls": 1}),
    Case("the same calls, after a finished answer", [FIRST, call("look_up", {"a": "1"}), call("look_up", {"a": "1"})],
         "repetition", policy={"max_identical_calls": 1}),
    Case("thinking", [think("hmm " * 20)], "reasoning_exhausted", settings={"format": "anthropic"}),
    Case("thinking in the continuation", [FIRST, think("hmm " * 20)], "reasoning_exhausted",
         settings={"format": "anthropic"}),
    Case("no JSON", [say("sorry")], "invalid_json", truncated=False, settings={"request": JSON}),
    Case("no JSON when asked again", [truncate('{"a": "x', after=99), say("sorry")], "invalid_json",
         settings={"request": JSON}),
    Case("no JSON in parts", [truncate('{"a": "x', after=99), say("sorry")], "invalid_json",
         policy={"preset": "forgeflare"}, settings={"request": JSON}),
    Case("cut JSON that was shown", [truncate('{"a": "x', after=99)], "invalid_json", policy={"stream_json": "eager"},
         settings={"request": JSON, "stream": True}),
    Case("JSON when asked again", [truncate('{"a": "x', after=99), say('{"a": "x"}')], "completed", complete=True,
         settings={"request": JSON}),
    Case("a full window", [FIRST, fail(400, "context_length_exceeded")], "context_window_exceeded"),
    Case("a full window at once", [reason(StopReason.CONTEXT_WINDOW_EXCEEDED, "Half")], "context_window_exceeded",
         settings={"format": "anthropic"}),
    Case("filtered", [FIRST, block("x")], "safety_blocked"),
    Case("filtered at once", [block("x")], "safety_blocked", truncated=False),
    Case("refused", [FIRST, refuse()], "refused"),
    Case("refused at once", [refuse()], "refused", truncated=False),
    Case("interrupted in a tool", [FIRST, call("look_up", {"a": "1"}, text="second.")], "cancelled",
         settings={"raises": KeyboardInterrupt}),
    Case("interrupted in a tool, uncut", [call("look_up", {"a": "1"})], "cancelled", truncated=False,
         settings={"raises": KeyboardInterrupt}),
    Case("the provider fails", [FIRST, fail(500)], "provider_error"),
    Case("the provider fails after a finished answer", [FIRST, call("look_up", {"a": "1"}), fail(500)],
         "provider_error"),
    Case("the provider fails after tools", [call("look_up", {"a": "1"}), fail(500)], "provider_error",
         truncated=False),
    Case("a lost stream", [FIRST, break_off("second half", after=1)], "stream_cut", settings={"stream": True}),
    Case("a lost stream at once", [break_off("The first half", after=2)], "stream_cut", settings={"stream": True}),
    Case("an unknown reason", [FIRST, reason("weird_new", "second")], "unknown_reason"),
    Case("an unknown reason at once", [reason("weird_new", "second")], "unknown_reason", truncated=False),
    Case("nothing said", [empty(), empty(), empty()], "empty_response", truncated=False, policy={"mode": "task"}),
    Case("nothing said after a finished answer", [FIRST, call("look_up", {"a": "1"}), empty()], "empty_response",
         policy={"mode": "task", "wallet_guard": False}),
    Case("a repair that is cut", [CALL, CALL], "tool_repair_failed"),
    Case("a repair that is refused", [CALL, refuse()], "tool_repair_failed"),
    Case("a repair that is empty", [CALL, empty()], "tool_repair_failed"),
    Case("no repair", [CALL], "tool_call_cut", policy={"preset": "botnexus"}),
    Case("iterations", [call("look_up", {"a": "1"})], "max_iterations", truncated=False,
         policy={"max_iterations": 1}),
    Case("iterations, after a finished answer", [FIRST, call("look_up", {"a": "1"})], "max_iterations",
         policy={"max_iterations": 1}),
    Case("no way to ask", [FIRST], "not_continued", policy={"continuation_strategies": []}),
]  # fmt: skip

NOT_OURS: Final = {TurnOutcome.STOPPED}
"""Outcomes that no turn of a controller has: a host says that somebody stopped its turn."""


def test_every_outcome_has_a_case() -> None:
    """Each with a truncated response, and without one where it can be so."""
    assert {case.outcome for case in CASES} == set(TurnOutcome) - NOT_OURS
    assert len({case.name for case in CASES}) == len(CASES)


def play(case: Case) -> TurnResult:
    """Play a case; an interrupt leaves the result on the exception."""
    settings = dict(case.settings)

    def run(_: ToolCall) -> str:
        if "raises" in settings:
            raise settings["raises"]
        return "a result of the tool"

    provider = ScriptedProvider(case.script, format=settings.get("format", "openai_chat"))
    request = settings.get("request") or JSON.but(format=None, max_tokens=settings.get("maximum", 400))
    host = settings.get("host", False)
    clock = iter(range(1_000)).__next__ if "ticking" in settings else lambda: 0
    controller = ContinuationController(
        provider.stream if settings.get("stream") else provider,
        tools=None if host else [(LOOK_UP, run)],
        policy=ContinuationPolicy(**case.policy),
        clock=clock,
    )
    try:
        return controller.run(request.but(tools=(LOOK_UP,)) if host else request)
    except KeyboardInterrupt as error:
        result: TurnResult = error.turn_result  # type: ignore[attr-defined]  # set by the controller
        return result


@pytest.fixture
def stage(recording: Recording) -> Stage:
    return recording()


def assert_told(stage: Stage, case: Case) -> None:
    """Check span, event and metrics against the case."""
    (span,) = [each["attributes"] for each in stage.finished() if each["name"].startswith("invoke_agent")]
    assert (span["endturn.turn.outcome"], span["endturn.turn.complete"], span["endturn.turn.truncated"]) == (
        case.outcome,
        case.complete,
        case.truncated,
    )
    events = [each for each in stage.events() if each["name"] == "endturn.continuation_terminated"]
    assert [(each["endturn.turn.outcome"], each["endturn.turn.complete"]) for each in events] == (
        [(case.outcome, case.complete)] if case.truncated else []
    )
    points = stage.points()
    exits = {key[-1]: value for key, value in points.get("endturn.truncation.exits", {}).items() if value}
    assert exits == ({case.outcome: 1} if case.truncated and not case.complete else {})
    turns = [(key[3], key[-1], value) for key, value in points["endturn.turns"].items() if value]
    assert turns == [(case.truncated, case.outcome, 1)]
    output = {key[-1] for key, value in points.get("endturn.turn.output", {}).items() if value[0]}
    assert output <= {case.complete}


@pytest.mark.behaviour(42)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_an_unfinished_answer_is_one_exit(stage: Stage, case: Case) -> None:
    """Result, span, event and metrics agree."""
    result = play(case)
    assert (result.outcome.value, result.complete) == (case.outcome, case.complete)
    assert (result.notice is None) == case.complete or result.outcome is TurnOutcome.COMPLETED
    assert_told(stage, case)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_an_unfinished_part_of_an_observed_turn_is_one_exit(stage: Stage, case: Case) -> None:
    """The observed turn ends as its part did; a truncated answer that it calls complete was `not_continued`."""
    results: list[TurnResult] = []
    observe_turn(agent="host")(lambda: results.append(play(case)))()
    is_cut = case.truncated and not case.complete and results[0].outcome is TurnOutcome.COMPLETED
    assert_told(stage, case._replace(outcome="not_continued") if is_cut else case)
