"""wave's specification of finish reasons, by the preset `wave`."""

from __future__ import annotations

import pytest

from endturn import ContinuationPolicy, Message
from endturn.scripted import Ending, Reply, block, call, refuse, say
from tests.support.scripted_turns import (
    FORMATS,
    NO_WORD,
    PREFILLED,
    ask,
    cut,
    every_format,
    every_prefilled_model,
    play,
    whole_and_streamed,
)

ENDS = {
    "whole": (say("Because."), {"stop", "end_turn", "completed"}),
    "cut": (cut("Becau"), {"length", "max_tokens", "incomplete:max_output_tokens"}),
    "filtered": (block("Beca"), {"content_filter", "guardrail_intervened", "incomplete:content_filter"}),
    "refused": (refuse(), {"stop", "refusal", "completed"}),
}


@pytest.mark.parametrize(
    ("format_name", "end"),
    [(name, end) for name in FORMATS for end, (reply, _) in ENDS.items() if (name, reply.stop) not in NO_WORD],
)
def test_the_last_assistant_message_says_why_it_ended(format_name: str, end: str) -> None:
    """`finish_reason` is the provider's own word, verbatim."""
    reply, words = ENDS[end]
    played = play([reply], preset="wave", continuation_max_attempts=0, format_name=format_name)
    assert played.result.messages[-1].finish_reason in words


def test_a_lost_stream_has_no_finish_reason() -> None:
    """The field is optional; the normalised reason says that it is missing."""
    played = play([say("Becau").but(ending=Ending.BROKEN)], preset="wave", stream=True)
    last = played.result.messages[-1]
    assert (last.finish_reason, last.stop_reason) == (None, "missing")


@every_format
def test_a_message_goes_through_json_with_its_finish_reason(format_name: str) -> None:
    """A history can be saved, and set again."""
    played = play([cut("Becau"), say("se.")], preset="wave", format_name=format_name)
    for message in played.result.messages:
        again = Message.model_validate_json(message.model_dump_json())
        assert again.finish_reason == message.finish_reason
        assert again == message


@every_format
@whole_and_streamed
def test_a_cut_answer_without_calls_is_continued(format_name: str, stream: bool) -> None:
    """`length` and no tools: another call, for the rest."""
    played = play([cut("Hello, wo"), say("rld.")], preset="wave", format_name=format_name, stream=stream)
    assert (played.result.text, len(played.requests)) == ("Hello, world.", 2)


@every_format
@whole_and_streamed
def test_a_cut_answer_with_calls_runs_them_and_goes_on(format_name: str, stream: bool) -> None:
    """`length` and tools: they run, and the next call has their results."""
    first = call("search", {"q": "x"}).also("search", {"q": "y"}).but(stop=cut("").stop)
    played = play([first, say("Found.")], preset="wave", format_name=format_name, stream=stream)
    assert [name for name, _ in played.ran] == ["search", "search"]
    assert (played.result.answer, len(played.requests)) == ("Found.", 2)


@every_prefilled_model
def test_every_part_keeps_its_finish_reason_under_a_prefill(takes_prefill: tuple[str, str, str]) -> None:
    """Parts are messages of their own also where the model goes on with its own words."""
    format_name, dialect, model = takes_prefill
    played = play(
        [cut("Hello, wo"), say("rld.")], history="segments", continuation_strategies=("prefill",),
        format_name=format_name, dialect=dialect, request=ask(model=model),
    )  # fmt: skip
    assert played.requests[1].messages[-1].role == "assistant"
    parts = [(message.text, message.stop_reason) for message in played.result.messages[1:]]
    assert parts == [("Hello, wo", "max_tokens"), ("rld.", "end_turn")]
    assert all(message.finish_reason for message in played.result.messages[1:])


def test_every_answer_of_a_turn_has_three_continuations() -> None:
    """The second answer, after tools, as many as the first, however long they are: there is no token budget."""

    def answer(last: Reply) -> list[Reply]:
        return [*(cut(f"{word} ", 1_000) for word in ("one", "two", "three")), last]

    script = [*answer(call("search", {"q": "x"})), *answer(say("four."))]
    played = play(script, preset="wave", request=ask(max_tokens=1_000))
    assert (played.result.outcome, played.result.continuations) == ("completed", 6)
    assert ContinuationPolicy.preset("wave").continuation_max_total_completion_tokens == "none"


def test_three_in_a_row_without_tools_end_the_turn() -> None:
    """The depth is limited; with tools by the loop's own limit."""
    played = play([cut(f"part {number}. ") for number in range(4)], preset="wave")
    assert (len(played.requests), played.result.outcome) == (4, "retry_limit")
    played = play([call("search", {"q": "x"})], preset="wave", exhausted="last", max_iterations=7)
    assert (len(played.ran), played.result.outcome) == (7, "max_iterations")


# --- Which ways of asking may be used -----------------------------------------------------------------------------


def test_the_ways_of_asking_are_a_key() -> None:
    """All four in the order of the contract; the designs that send a prompt leave the prefill out."""
    assert ContinuationPolicy().continuation_strategies == ("native_token", "resend", "prefill", "prompt")
    for name in ("zeroclaw", "forgeflare", "wave"):
        assert "prefill" not in ContinuationPolicy.preset(name).continuation_strategies
    format_name, dialect, model = PREFILLED["claude-haiku-4-5"]
    for strategies, role in ((("prefill", "prompt"), "assistant"), (("prompt",), "user")):
        played = play(
            [cut("Hello, wo"), say("rld.")], continuation_strategies=strategies,
            format_name=format_name, dialect=dialect, request=ask(model=model),
        )  # fmt: skip
        assert played.requests[1].messages[-1].role == role
