"""BotNexus' gate of tool dispatch, by the preset `botnexus`, and what every preset without repairs shares with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endturn import ContinuationPolicy, Message, ScriptedProvider, StopReason, TurnOutcome
from endturn.scripted import Ending, Reply, call, partial_call, reason, say
from endturn.transcript import recover
from tests.support.scripted_turns import (
    DEPLOY,
    FORMATS,
    NO_WORD,
    SEARCH,
    ask,
    calls_in,
    cut,
    every_format,
    last_call_cut,
    not_arrived,
    observed,
    play,
    whole_and_streamed,
)

without_repairs = pytest.mark.parametrize("preset", ["botnexus", "anthropic", "forgeflare", "wave"])
WHOLE_CALL = call("search", {"q": "x"}, text="So: ")


@without_repairs
@pytest.mark.parametrize("format_name", [name for name in FORMATS if (name, StopReason.TOOL_CALL) not in NO_WORD])
def test_a_tool_reason_without_calls_ends_the_turn_with_its_text(preset: str, format_name: str) -> None:
    """No call, no further iteration: a normal end, of which nothing has to be told."""
    played = play([reason(StopReason.TOOL_CALL, "So: "), say("never")], preset=preset, format_name=format_name)
    assert (len(played.requests), played.result.text, played.result.outcome) == (1, "So: ", "completed")
    assert (played.result.complete, played.result.notice) == (True, None)


def test_by_default_the_announced_call_is_asked_for_once() -> None:
    """Then the notice says what happened: a call was announced, and none came. Nothing was cut off."""
    played = play([reason(StopReason.TOOL_CALL, "So: "), reason(StopReason.TOOL_CALL, "")])
    assert (len(played.requests), played.result.outcome) == (2, "tool_repair_failed")
    notice = played.result.notice or ""
    assert "tool call" in notice
    assert "cut off" not in notice
    played = play([reason(StopReason.TOOL_CALL, "So: "), call("search", {"q": "x"}), say("Found.")])
    assert (len(played.ran), played.result.outcome) == (1, "completed")


@pytest.mark.parametrize("preset", ["botnexus", "anthropic", None])
@every_format
@whole_and_streamed
def test_a_cut_response_with_calls_ends_as_what_it_is(preset: str | None, format_name: str, stream: bool) -> None:
    """Where repairs are not allowed none has failed: the call was cut off, and was not run."""
    played = play(
        [not_arrived(text="So: "), say("never")], preset=preset, format_name=format_name, stream=stream,
        continuation_tool_repair_attempts=0,
    )  # fmt: skip
    result = played.result
    assert (len(played.requests), played.ran, result.outcome) == (1, [], "tool_call_cut")
    assert result.outcome is TurnOutcome.TOOL_CALL_CUT
    assert result.stop is not None
    assert (result.stop.reason, result.complete, result.text) == ("max_tokens", False, "So: ")
    notice = result.notice or ""
    assert "tool call" in notice
    assert "cut off" in notice
    assert "repaired" not in notice


def test_a_cut_call_is_announced_as_cut() -> None:
    """The event of the turn's end and its metrics have the same outcome."""
    with observed() as telemetry:
        play([last_call_cut()], preset="botnexus")
    (ended,) = telemetry.events("continuation_terminated")
    assert ended["endturn.turn.outcome"] == "tool_call_cut"
    assert telemetry.total("endturn.truncation.exits", endturn_turn_outcome="tool_call_cut") == 1


def test_a_cut_answer_where_none_is_continued_is_no_exhausted_limit() -> None:
    """Nothing was tried, and nothing was to be: the notice says that it is not allowed, the event is no error."""
    with observed() as telemetry:
        played = play([cut("Becau"), say("never")], preset="botnexus")
    assert (len(played.requests), played.result.outcome) == (1, "retry_limit")
    assert "allowed" in (played.result.notice or "")
    assert "all continuations" not in (played.result.notice or "")
    (ended,) = telemetry.events("continuation_terminated")
    assert ended["severity"] == "INFO"


# --- What a host stores -------------------------------------------------------------------------------------------

CUT_CALLS = {
    "cut off": partial_call("deploy", {"now": True}, after=1, text="So: "),
    "whole, of a cut response": call("deploy", {"now": True}, text="So: ").but(stop=StopReason.MAX_TOKENS),
    "of a lost stream": partial_call("deploy", {"now": True}, after=1, text="So: ").but(ending=Ending.TIDY),
}


@every_format
@pytest.mark.parametrize(("name", "stream"), [(name, True) for name in CUT_CALLS] + [("cut off", False)])
def test_the_message_of_a_response_leaves_cut_calls_out(format_name: str, name: str, stream: bool) -> None:
    """Without a controller too, what is stored cannot be run or sent again: no mirror of it has the call."""
    provider = ScriptedProvider([CUT_CALLS[name], say("ok")], format=format_name)
    request = ask(tools=(SEARCH, DEPLOY))
    response: Any = list(provider.stream(request))[-1] if stream else provider.complete(request)
    message = response.message()
    assert calls_in([message]) == []
    assert (message.text, message.stop_reason) == ("So: ", response.stop_reason)
    assert calls_in([response.message(include_cut=True)]) == ["deploy"]
    provider.complete(ask().but(messages=(*ask().messages, message, Message(role="user", content="And?"))))
    assert "deploy" not in json.dumps(provider.received[-1].body)


@every_format
def test_the_message_of_a_genuine_tool_call_is_unchanged(format_name: str) -> None:
    """Calls and blocks stay."""
    provider = ScriptedProvider([WHOLE_CALL], format=format_name)
    response = provider.complete(ask(tools=(SEARCH,)))
    message = response.message()
    assert (message.tool_calls, message.blocks) == (response.tool_calls, response.blocks)


# --- What works, over the real formats ----------------------------------------------------------------------------

BLOCKED: dict[str, Reply] = {
    "cut": WHOLE_CALL.but(stop=StopReason.MAX_TOKENS),
    "refused": WHOLE_CALL.but(stop=StopReason.REFUSED),
    "filtered": WHOLE_CALL.but(stop=StopReason.SAFETY_BLOCKED),
    "paused": WHOLE_CALL.but(stop=StopReason.PAUSED),
    "unknown": WHOLE_CALL.but(stop="some_new_value"),
    "lost": WHOLE_CALL.but(ending=Ending.BROKEN),
    "ended early": WHOLE_CALL.but(ending=Ending.TIDY),
}


@pytest.mark.parametrize(
    ("format_name", "name"),
    [(format_name, name) for format_name in FORMATS for name in BLOCKED
     if (format_name, BLOCKED[name].stop) not in NO_WORD],
)  # fmt: skip
def test_only_a_tool_terminal_runs_calls(format_name: str, name: str) -> None:
    """Whatever else ends a response: its calls do not run, leave the record, and get no result."""
    played = play([BLOCKED[name], say("never")], preset="botnexus", format_name=format_name, stream=True)
    assert (played.ran, played.result.tool_results, len(played.requests)) == ([], (), 1)
    assert calls_in(played.result.messages) == []
    assert played.result.text.startswith("So: ")


@every_format
@whole_and_streamed
def test_a_complete_tool_call_runs_once(format_name: str, stream: bool) -> None:
    """One run, one result, and the next request has both."""
    played = play([WHOLE_CALL, say("Found.")], preset="botnexus", format_name=format_name, stream=stream)
    assert (played.ran, len(played.result.tool_results)) == ([("search", {"q": "x"})], 1)
    assert calls_in(played.requests[1].messages) == ["search"]


def test_nothing_is_asked_again() -> None:
    """No continuation, no repair, no resume."""
    policy = ContinuationPolicy.preset("botnexus")
    assert policy.continuation_max_attempts == 0
    assert policy.continuation_tool_repair_attempts == 0
    assert policy.continuation_max_resumes == 0
    for reply in (cut("a"), not_arrived(text="a"), reason(StopReason.MAX_TOKENS, "")):
        assert len(play([reply, say("never")], preset="botnexus").requests) == 1


@every_format
def test_what_is_read_back_holds_no_call_that_did_not_run(format_name: str, tmp_path: Path) -> None:
    """The transcript keeps the response as it came; the messages made of it, and what takes it up, do not hold it."""
    path = tmp_path / "turns.jsonl"
    whole = WHOLE_CALL.but(stop=StopReason.MAX_TOKENS)
    play([whole], preset="botnexus", format_name=format_name, transcript=path)
    assert "search" in path.read_text()
    (turn,) = recover(path)
    assert (turn.text, calls_in(turn.messages), calls_in(turn.segments)) == ("So: ", [], [])
