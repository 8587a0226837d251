"""Replies that a careful loop survives: cut in a character, repeated at the seam, empty, refused, contradictory."""

from __future__ import annotations

import json

import pytest

from endturn import StopReason
from endturn.scripted import call, empty, reason, refuse, say
from tests.support.scripted_turns import calls_in, cut, every_format, last_call_cut, observed, play, whole_and_streamed

FOX = "Once upon a time. The quick brown fox jumps over"
REST = " the lazy dog."
SEAMS = {
    "a cut character, repeated": (
        "In Chinese the usual greeting is \ufffd", "In Chinese the usual greeting is 你好.",
        "In Chinese the usual greeting is 你好.",
    ),
    "a cut character, the last words repeated": (
        "Once upon a time. The usual greeting is \ufffd", "The usual greeting is 你好.",
        "Once upon a time. The usual greeting is 你好.",
    ),
    "a cut character, said again": ("The usual greeting is \ufffd", "你好.", "The usual greeting is 你好."),
    "two bytes of a cut character": ("The usual greeting is \ufffd\ufffd", "你好.", "The usual greeting is 你好."),
    "a leading newline": (FOX, "\nThe quick brown fox jumps over" + REST, FOX + REST),
    "three leading dots": (FOX, "...quick brown fox jumps over" + REST, FOX + REST),
    "three leading dots and a blank": (FOX, "... quick brown fox jumps over" + REST, FOX + REST),
    "a leading ellipsis": (FOX, "…quick brown fox jumps over" + REST, FOX + REST),
    "a doubled blank": (FOX, "quick brown  fox jumps over" + REST, FOX + REST),
    "a blank that became a line's end": (FOX, "quick brown fox\njumps over" + REST, FOX + REST),
    "a line's end that became a blank": (
        FOX.replace("fox jumps", "fox\njumps"), "quick brown fox jumps over" + REST,
        FOX.replace("fox jumps", "fox\njumps") + REST,
    ),
    "a code block, opened again without its language": (
        "So:\n```python\nline 1\nli", "```\nne 2\n```\n", "So:\n```python\nline 1\nline 2\n```\n",
    ),
    "a code block, opened again": (
        "So:\n```python\nline 1\nli", "```python\nne 2\n```\n", "So:\n```python\nline 1\nline 2\n```\n",
    ),
    "an indented code block, opened again": (
        "1. So:\n   ```python\n   line 1\n   li", "   ```python\nne 2\n   ```\n",
        "1. So:\n   ```python\n   line 1\n   line 2\n   ```\n",
    ),
    "three dots that are the model's own": ("He hesitated", "... and he went.", "He hesitated... and he went."),
    "an empty line that is the model's own": ("Part one.", "\n\nPart two.", "Part one.\n\nPart two."),
    "figures that only look repeated": ("1000000000000000", "0000000000000000", "10000000000000000000000000000000"),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second", "whole"), SEAMS.values(), ids=list(SEAMS))
@whole_and_streamed
def test_a_seam_leaves_no_trace(first: str, second: str, whole: str, stream: bool) -> None:
    """What is repeated stands once, what a cut character left is gone, and what is the model's own stays."""
    played = play([cut(first), say(second)], stream=stream)
    assert (played.result.text, played.result.outcome) == (whole, "completed")
    assert played.result.messages[-1].text == whole


@whole_and_streamed
def test_a_replacement_character_of_a_whole_answer_stays(stream: bool) -> None:
    """It is what the model said."""
    assert play([say("This is U+FFFD: \ufffd")], stream=stream).result.text == "This is U+FFFD: \ufffd"


# --- Several calls, the last one cut ------------------------------------------------------------------------------


@every_format
@whole_and_streamed
def test_every_call_of_a_cut_batch_is_asked_for_again(format_name: str, stream: bool) -> None:
    """By name, and none is lost: those that had arrived whole are among them."""
    again = call("search", {"q": "x"}).also("deploy", {"now": True})
    with observed() as telemetry:
        played = play([last_call_cut(), again, say("Done.")], format_name=format_name, stream=stream)
    (asked,) = played.prompts[:1]
    assert "search" in asked
    assert "deploy" in asked
    assert played.ran == [("search", {"q": "x"}), ("deploy", {"now": True})]
    assert calls_in(played.requests[1].messages) == []
    (repair,) = telemetry.events("tool_payload_repair")
    assert repair["endturn.repair.calls"] == 2
    assert (repair["endturn.repair.attempted"], repair["endturn.repair.succeeded"]) == (True, True)


# --- Continuations that bring nothing, or a refusal ---------------------------------------------------------------


@every_format
@whole_and_streamed
def test_nothing_after_half_a_sentence_is_no_whole_answer(format_name: str, stream: bool) -> None:
    """The model says that it has ended; what it said has not."""
    played = play([cut("Here is how to"), empty()], format_name=format_name, stream=stream)
    assert (played.result.text, played.result.outcome) == ("Here is how to", "no_progress")
    assert not played.result.complete
    assert played.result.notice


def test_nothing_after_a_whole_sentence_ends_it() -> None:
    """The limit may fall where the answer was over."""
    played = play([cut("That is how it is done."), empty()])
    assert (played.result.text, played.result.outcome) == ("That is how it is done.", "completed")


@pytest.mark.parametrize("format_name", ["openai_chat", "anthropic", "openai_responses"])
@whole_and_streamed
def test_a_refusal_is_no_part_of_the_answer(format_name: str, stream: bool) -> None:
    """The partial answer stays as it was, in the history as for the user; the turn ends refused."""
    played = play([cut("Here is how to"), refuse("I can't help with that.")], format_name=format_name, stream=stream)
    result = played.result
    assert (result.outcome, result.complete, result.answer) == ("refused", False, "Here is how to")
    assert [message.text for message in result.messages] == ["Why?", "Here is how to"]
    if not stream:  # what a stream has shown, it has shown
        assert result.text == "Here is how to"


# --- A reason and what it goes with -------------------------------------------------------------------------------


@every_format
@whole_and_streamed
def test_a_cut_reason_outranks_whole_calls(format_name: str, stream: bool) -> None:
    """A batch that looks whole under `max_tokens` does not run; what is asked for again does."""
    looks_whole = call("search", {"q": "x"}).but(stop=StopReason.MAX_TOKENS)
    played = play([looks_whole, call("search", {"q": "xyz"}), say("Done.")], format_name=format_name, stream=stream)
    assert played.ran == [("search", {"q": "xyz"})]


def test_text_that_holds_a_reason_is_text() -> None:
    """An answer may quote a whole response, reason and all."""
    quoted = json.dumps({"choices": [{"finish_reason": "length"}], "stop_reason": "max_tokens"})
    played = play([say(quoted)])
    assert (len(played.requests), played.result.outcome) == (1, "completed")


def test_a_reason_that_nobody_knows_is_no_end() -> None:
    """Neither continued nor taken for whole."""
    played = play([reason("halted", "So.")])
    assert (len(played.requests), played.result.complete) == (1, False)
