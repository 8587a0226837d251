"""ZeroClaw's request for implementation, by the default policy and the preset `zeroclaw`."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from endturn import ContinuationController, ContinuationPolicy, ScriptedProvider, StopReason, Usage
from endturn.scripted import block, call, partial_call, pause, reason, say
from endturn.transcript import recover
from tests.support.processes import REPOSITORY
from tests.support.scripted_turns import (
    ask,
    cut,
    every_prefilled_model,
    lines,
    not_arrived,
    observed,
    play,
    whole_and_streamed,
)

PROMPT = """\
Previous response was truncated by token limit.
Continue exactly from where you left off.
If you intended a tool call, emit one complete tool call payload only.
Do not repeat already-sent text."""


# --- The prompt ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["zeroclaw", "wave"])
@every_prefilled_model
def test_every_continuation_is_asked_for_with_the_prompt(takes_prefill: tuple[str, str, str], preset: str) -> None:
    """The four lines, also to models that would go on with their own words."""
    format_name, dialect, model = takes_prefill
    played = play(
        [cut("Hello, "), cut("wo"), say("rld.")], preset=preset,
        format_name=format_name, dialect=dialect, request=ask(model=model),
    )  # fmt: skip
    assert played.prompts == [PROMPT, PROMPT]
    assert played.result.text == "Hello, world."


# --- Limits -------------------------------------------------------------------------------------------------------


LONG = "The size of an answer is measured in its characters, each of which counts once, wherever it stands in it."


@pytest.mark.parametrize("last", [cut(LONG[60:] + " More."), say(LONG[60:] + " More.")], ids=["cut", "whole"])
@whole_and_streamed
def test_the_text_is_never_longer_than_the_largest_size(last: Any, stream: bool) -> None:
    """What passes it is cut there, and the turn says so."""
    played = play([cut(LONG[:60]), last, say("never")], stream=stream, continuation_max_output_chars=100)
    assert played.result.text == LONG[:100]
    assert (played.result.outcome, played.result.status) == ("char_budget", "budget_exhausted")
    assert (len(played.requests), played.result.complete) == (2, False)


def test_an_answer_that_was_not_cut_is_not_measured() -> None:
    """The size bounds what is continued; a whole answer passes untouched."""
    played = play([say(LONG)], continuation_max_output_chars=50)
    assert (played.result.text, played.result.outcome) == (LONG, "completed")


def test_a_rest_of_the_token_budget_that_could_not_help_is_not_spent() -> None:
    """At least 256 tokens, or one more answer of the request's size, must be left."""
    for budget, continuations in ((555, 0), (556, 1)):
        script = [cut("a ", 300), say("b")]
        played = play(
            script, request=ask(max_tokens=300), continuation_max_total_completion_tokens=budget, exhausted="last"
        )
        assert played.result.continuations == continuations


@pytest.mark.parametrize("stop", ["token_budget", "char_budget", "retry_limit"])
def test_a_limit_is_logged(stop: str, caplog: pytest.LogCaptureFixture) -> None:
    """A line of the logger `endturn`, whether or not there is telemetry."""
    caplog.set_level(logging.INFO, "endturn")
    policy: dict[str, Any] = {
        "token_budget": {"continuation_max_total_completion_tokens": 150},
        "char_budget": {"continuation_max_output_chars": 10},
        "retry_limit": {"continuation_max_attempts": 1},
    }[stop]
    played = play([cut("one two three ", 100), cut("four five six ", 100)], **policy)
    assert played.result.outcome == stop
    after = [line for line in lines(caplog) if "requesting continuation" not in line]
    assert after


# --- The same tools again and again -------------------------------------------------------------------------------


def test_identical_calls_in_a_row_end_the_turn() -> None:
    """The same batch three times runs three times, and no more; without a mode, and over any format."""
    same = call("search", {"q": "x"}).also("deploy", {"now": True})
    played = play([same], exhausted="last", max_identical_calls=3)
    assert [name for name, _ in played.ran] == ["search", "deploy"] * 3
    assert (played.result.outcome, played.result.complete) == ("repetition", False)
    answered = {message.tool_call_id for message in played.result.messages if message.role == "tool"}
    assert {each.id for message in played.result.messages for each in message.tool_calls} <= answered


def test_other_calls_between_begin_the_count_anew() -> None:
    """Names and arguments are compared; the limit is off by default."""
    x, y = call("search", {"q": "x"}), call("search", {"q": "y"})
    played = play([x, x, y, x, x, say("Done.")], max_identical_calls=3)
    assert (len(played.ran), played.result.outcome) == (5, "completed")
    assert ContinuationPolicy().max_identical_calls is None
    played = play([*[x] * 6, say("Done.")])
    assert (len(played.ran), played.result.outcome) == (6, "completed")


# --- Repair -------------------------------------------------------------------------------------------------------


def test_a_repair_that_is_answered_in_prose_says_so() -> None:
    """The model changed its mind: the answer is whole, and the notice tells that a call was dropped."""
    played = play([not_arrived(text="Let me deploy. "), say("Or rather not: it is done already.")])
    assert (played.result.outcome, played.result.complete, played.ran) == ("completed", True, [])
    assert "tool call" in (played.result.notice or "")


# --- What is counted ----------------------------------------------------------------------------------------------


def test_iterations_continuations_and_repairs_are_counted_apart() -> None:
    """Three ordinary calls, one continuation, one repair: five requests."""
    script = [
        cut("So: "), call("search", {"q": "x"}), not_arrived(), call("deploy", {"now": True}), say("Found."),
    ]  # fmt: skip
    with observed() as telemetry:
        result = play(script).result
    assert (result.iterations, result.continuations, result.repairs, result.requests) == (3, 1, 1, 5)
    (ended,) = telemetry.events("continuation_terminated")
    assert ended["endturn.continuation.attempts"] == 1
    assert [value for key, value in ended.items() if "repair" in key] == [1]
    by = {
        name: telemetry.total("endturn.continuations", endturn_continuation_strategy=name)
        for name in ("prompt", "repair")
    }
    assert by == {"prompt": 1, "repair": 1}
    assert telemetry.total("endturn.turn.continuations") == 2  # what a turn took, of whichever kind
    limited = play(script, max_iterations=2).result
    assert (limited.outcome, limited.iterations) == ("max_iterations", 2)


def test_a_provider_without_usage_has_one_estimate_everywhere() -> None:
    """The events, the turn's span, the metric and the result agree, and the result says that it is an estimate."""
    script = [cut("Hello there, wo").but(usage=None), say("rld, and good bye.").but(usage=None)]
    with observed() as telemetry:
        usage = play(script).result.usage
    assert usage.estimated
    (attempt,) = telemetry.events("continuation_attempt")
    (ended,) = telemetry.events("continuation_terminated")
    first, total = attempt["endturn.continuation.output_tokens"], ended["endturn.continuation.output_tokens"]
    assert 0 < first < total
    assert total == usage.output_tokens == telemetry.turn()["gen_ai.usage.output_tokens"]
    assert telemetry.turn()["gen_ai.usage.input_tokens"] == usage.input_tokens
    assert telemetry.total("endturn.continuation.tokens", gen_ai_token_type="output") == total - first


def test_a_provider_with_usage_has_its_own_figures_everywhere() -> None:
    """What was told is not estimated."""
    script = [cut("Hello, wo", 100), say("rld.").but(usage=Usage(7, 3))]
    with observed() as telemetry:
        usage = play(script).result.usage
    assert (usage.output_tokens, usage.estimated) == (103, False)
    (attempt,) = telemetry.events("continuation_attempt")
    (ended,) = telemetry.events("continuation_terminated")
    assert attempt["endturn.continuation.output_tokens"] == 100
    assert ended["endturn.continuation.output_tokens"] == telemetry.turn()["gen_ai.usage.output_tokens"] == 103
    assert telemetry.total("endturn.continuation.tokens", gen_ai_token_type="output") == 3


# --- What is logged and announced ---------------------------------------------------------------------------------


def test_an_unknown_reason_is_logged_once_without_telemetry(caplog: pytest.LogCaptureFixture) -> None:
    """Once for each provider, model and value, with the value itself."""
    caplog.set_level(logging.DEBUG, "endturn")
    for model, value in (
        ("drift-1", "halted"), ("drift-1", "halted"), ("drift-1", "parked"), ("drift-2", "halted"),
    ):  # fmt: skip
        assert play([reason(value, "So.")], request=ask(model=model)).result.outcome == "unknown_reason"
    assert sum("halted" in line for line in lines(caplog)) == 2
    assert sum("parked" in line for line in lines(caplog)) == 1


def test_a_pause_where_none_is_resumed_is_no_exhausted_limit() -> None:
    """The notice says that it is not allowed, not that it came too often."""
    played = play([pause("Let me "), say("never")], preset="zeroclaw", format_name="anthropic")
    assert (len(played.requests), played.result.outcome) == (1, "resume_limit")
    assert "allowed" in (played.result.notice or "")
    assert "more often" not in (played.result.notice or "")


def test_the_end_of_a_turn_is_told_with_its_own_word() -> None:
    """The event has the finer outcome; the result's status has the design's word for all budgets."""
    with observed() as telemetry:
        played = play([cut("a ", 100), cut("b ", 100)], continuation_max_total_completion_tokens=200)
    (ended,) = telemetry.events("continuation_terminated")
    assert (ended["endturn.turn.outcome"], played.result.status) == ("token_budget", "budget_exhausted")


# --- The transcript -----------------------------------------------------------------------------------------------

_DIES = """
import os, sys
from endturn import ContinuationController, ContinuationPolicy, Message, Request, ScriptedProvider
from endturn.scripted import reason
path = sys.argv[1]

def second(request):
    os._exit(9)

provider = ScriptedProvider([reason("length", "Hello, wo"), second])
policy = ContinuationPolicy(transcript=path)
question = Message(role="user", content="Why?")
ContinuationController(provider, policy=policy).run(Request(model="m", messages=(question,), max_tokens=100))
"""


def test_a_process_that_dies_in_a_continuation_has_written_its_prompt(tmp_path: Path) -> None:
    """Each message stands before the call that it goes with; the turn is taken up, with one prompt."""
    path = tmp_path / "turns.jsonl"
    done = subprocess.run([sys.executable, "-c", _DIES, str(path)], cwd=REPOSITORY, check=False, timeout=60)
    assert done.returncode == 9
    written = path.read_text()
    assert written.count("Do not repeat already-sent text.") == 1
    (turn,) = recover(path)
    assert (turn.ended, turn.damaged, turn.text) == (False, False, "Hello, wo")
    assert [message.text for message in turn.messages] == ["Why?", "Hello, wo"]
    provider = ScriptedProvider([say("rld.")])
    result = ContinuationController(provider).run(turn.resume())
    assert (result.text, result.outcome) == ("Hello, world.", "completed")
    assert [message.text for message in provider.requests[0].messages] == ["Why?", "Hello, wo", PROMPT]
    assert [message.text for message in result.messages] == ["Why?", "Hello, world."]


# --- What works, over the real formats ----------------------------------------------------------------------------


@whole_and_streamed
def test_the_default_limits_are_the_designs(stream: bool) -> None:
    """Three continuations; four times the first limit, clamped on the way; 120 000 characters; one repair."""
    policy = ContinuationPolicy.preset("zeroclaw")
    assert (policy.continuation_max_attempts, policy.continuation_max_output_chars) == (3, 120_000)
    assert policy.continuation_tool_repair_attempts == 1
    played = play([cut(f"{n} ", 300) for n in range(4)], request=ask(max_tokens=300), preset="zeroclaw", stream=stream)
    assert (len(played.requests), played.result.outcome) == (4, "retry_limit")
    played = play([cut(f"{n} ", 500) for n in range(3)], request=ask(max_tokens=300), preset="zeroclaw", stream=stream)
    assert [request.max_tokens for request in played.requests] == [300, 300]
    assert played.result.outcome == "token_budget"


def test_repairs_have_a_budget_of_their_own() -> None:
    """Three continuations and a repair in one turn."""
    script = [cut("a "), cut("b "), cut("c "), not_arrived(), call("deploy", {"now": True}), say("d")]
    played = play(script, preset="zeroclaw")
    assert (len(played.requests), played.result.outcome) == (6, "completed")


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (block("a"), "safety_blocked"),
        (reason("model_context_window_exceeded", "a"), "context_window_exceeded"),
        (reason(StopReason.REFUSED, "a"), "refused"),
        (reason("some_new_value", "a"), "unknown_reason"),
    ],
)
@pytest.mark.parametrize("first", [[], [cut("Well: ")]], ids=["at once", "in a continuation"])
def test_what_aborts_a_turn(reply: Any, outcome: str, first: list[Any]) -> None:
    """In the first answer and in a continuation: nothing more is asked, and the partial answer is kept."""
    format_name = "openai_chat" if outcome == "safety_blocked" else "anthropic"
    played = play([*first, reply, say("never")], format_name=format_name)
    assert (len(played.requests), played.result.outcome) == (len(first) + 1, outcome)
    assert played.result.text.startswith("Well: " if first else "a")
    assert played.result.notice


def test_events_of_a_continued_turn() -> None:
    """Each with the design's fields."""
    with observed() as telemetry:
        play([cut("Hello, wo", 100), say("rld.")])
    observed_reasons = telemetry.events("stop_reason_observed")
    fields = {"gen_ai.provider.name", "gen_ai.request.model", "endturn.stop.reason", "endturn.stop.raw",
              "endturn.turn.id", "endturn.turn.iteration"}  # fmt: skip
    assert all(fields <= event.keys() for event in observed_reasons)
    assert [event["endturn.stop.reason"] for event in observed_reasons] == ["max_tokens", "end_turn"]
    (attempt,) = telemetry.events("continuation_attempt")
    assert attempt["endturn.continuation.index"] == 1
    assert attempt["endturn.continuation.output_chars"] == 9
    assert attempt["endturn.continuation.attempts_remaining"] == 2
    assert attempt["endturn.continuation.tokens_remaining"] == 300
    (ended,) = telemetry.events("continuation_terminated")
    assert ended["endturn.turn.outcome"] == "completed"


def test_events_and_metrics_of_repairs_and_exits() -> None:
    """A repair that failed, a truncation that nobody continued, the attempts and the latency of what was."""
    half = partial_call("search", {"q": "a long question"}, after=1, text="Let me see. ")
    with observed() as telemetry:
        played = play([half, half.but(text="")])
        play([cut("a")], continuation_max_attempts=0)
        play([cut("Hello, wo"), say("rld.")])
    assert (played.result.outcome, played.result.text) == ("tool_repair_failed", "Let me see. ")
    assert "not run" in (played.result.notice or "")
    (repair,) = telemetry.events("tool_payload_repair")
    assert repair["endturn.repair.issue"] == "incomplete_json"
    assert (repair["endturn.repair.attempted"], repair["endturn.repair.succeeded"]) == (True, False)
    assert telemetry.total("endturn.truncation.exits", endturn_turn_outcome="retry_limit") == 1
    continued = telemetry.total("endturn.continuations", gen_ai_provider_name="openai", gen_ai_request_model="m")
    assert continued == 2
    assert telemetry.total("endturn.turn.duration", endturn_turn_continued=True) > 0


@pytest.mark.parametrize("value", [0, 2])
@pytest.mark.parametrize(
    "key",
    [
        "continuation_max_attempts",
        "continuation_max_output_chars",
        "continuation_max_total_completion_tokens",
        "continuation_tool_repair_attempts",
    ],
)
def test_the_designs_keys_are_configuration(key: str, value: int, tmp_path: Path) -> None:
    """In code, as a variable, and in the table `agent` of a file."""
    value = value or (1 if key.endswith(("chars", "tokens")) else 0)
    path = tmp_path / "endturn.toml"
    path.write_text(f"[agent]\n{key} = {value}\n")
    policy = ContinuationPolicy(**{key: value})
    assert getattr(policy, key) == value
    assert ContinuationPolicy.load(path, environ={}) == policy
    assert ContinuationPolicy.load(environ={f"ENDTURN_AGENT_{key.upper()}": str(value)}) == policy
