"""Forgeflare's specification of continuation, by the preset `forgeflare` (and `wave`, where the two agree)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from endturn import ContinuationController, ContinuationPolicy, ScriptedProvider, StopReason
from endturn.scripted import call, fail, say
from tests.support.scripted_turns import (
    JSON_FORMAT,
    ask,
    calls_in,
    cut,
    every_format,
    every_prefilled_model,
    last_call_cut,
    not_arrived,
    play,
    whole_and_streamed,
)

PROMPT = "Continue from where you left off."
both_presets = pytest.mark.parametrize("preset", ["forgeflare", "wave"])


@both_presets
@every_format
@whole_and_streamed
def test_a_call_whose_arguments_never_arrived_is_dropped_and_the_text_continued(
    preset: str, format_name: str, stream: bool
) -> None:
    """A tool without required parameters: nothing is not `{}`."""
    script = [not_arrived(text="I will deploy now, "), say("or rather not.")]
    played = play(script, preset=preset, format_name=format_name, stream=stream)
    assert played.ran == []
    assert calls_in(played.result.messages) == []
    assert (played.result.text, played.result.outcome) == ("I will deploy now, or rather not.", "completed")


@both_presets
@every_format
@whole_and_streamed
@pytest.mark.parametrize("tool", ["deploy", "search"])
def test_nothing_but_a_call_that_never_arrived_ends_the_turn(
    preset: str, format_name: str, stream: bool, tool: str
) -> None:
    """Of a tool with required parameters or without: the response is empty, and an empty one is not continued."""
    played = play([not_arrived(tool), say("never")], preset=preset, format_name=format_name, stream=stream)
    assert (played.ran, len(played.requests)) == ([], 1)
    assert (played.result.outcome, played.result.complete) == ("no_progress", False)


@both_presets
@every_format
@whole_and_streamed
def test_calls_that_arrived_run_beside_one_that_did_not(preset: str, format_name: str, stream: bool) -> None:
    """What parses is run, what was cut is dropped, and the results go back: that is no continuation."""
    played = play([last_call_cut(), say("Done.")], preset=preset, format_name=format_name, stream=stream)
    assert played.ran == [("search", {"q": "x"})]
    assert calls_in(played.result.messages) == ["search"]
    assert (played.result.outcome, played.result.continuations) == ("completed", 0)


@every_prefilled_model
def test_the_prompt_is_sent_to_models_that_take_a_prefill(
    takes_prefill: tuple[str, str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a user message of the request, of the history and of the transcript; the log line stands for it."""
    caplog.set_level(logging.INFO, "endturn")
    format_name, dialect, model = takes_prefill
    path = tmp_path / "turns.jsonl"
    played = play(
        [cut("Hello, wo"), say("rld.")], preset="forgeflare", transcript=path,
        format_name=format_name, dialect=dialect, request=ask(model=model),
    )  # fmt: skip
    assert played.prompts == [PROMPT]
    assert [(message.role, message.text) for message in played.result.messages[1:]] == [
        ("assistant", "Hello, wo"),
        ("user", PROMPT),
        ("assistant", "rld."),
    ]
    assert path.read_text().count(PROMPT) == 1
    assert "[continue] Response truncated at max_tokens, requesting continuation (1/3)" in caplog.messages


def test_the_prompt_is_written_down_before_the_call_that_it_goes_with(tmp_path: Path) -> None:
    """The transcript of a process that dies in that call has it."""
    path = tmp_path / "turns.jsonl"
    seen: list[int] = []

    def second(_: object) -> object:
        seen.append(path.read_text().count(PROMPT))
        return say("rld.")

    play([cut("Hello, wo"), second], preset="forgeflare", transcript=path)
    assert seen == [1]
    assert path.read_text().count(PROMPT) == 1


def test_a_continuation_that_fails_leaves_no_prompt_in_the_history() -> None:
    """A conversation that is gone on with has no request to continue that nothing answers."""
    played = play([cut("Hello, wo"), fail(529)], preset="forgeflare")
    assert played.result.outcome == "provider_error"
    assert [message.text for message in played.result.messages] == ["Why?", "Hello, wo"]
    assert [message.text for message in played.result.segments] == ["Hello, wo"]


def test_three_continuations_are_three_whatever_the_token_limit() -> None:
    """The design has no token budget: with a small limit too, the third comes, after a tool run as before it."""
    script = [cut("One ", 100), call("search", {"q": "x"}), cut("two ", 100), cut("three ", 100), say("four.")]
    played = play(script, preset="forgeflare")
    assert (played.result.outcome, played.result.continuations) == ("completed", 3)
    assert ContinuationPolicy.preset("forgeflare").continuation_max_total_completion_tokens == "none"


@both_presets
@pytest.mark.parametrize("format_name", ["openai_chat", "openai_responses", "bedrock_converse"])
def test_a_cut_json_answer_never_raises_max_tokens(preset: str, format_name: str) -> None:
    """The limit is set for its cost; the rest is asked for as of any text."""
    request = ask(format=JSON_FORMAT)
    played = play([cut('{"a": ', 100), say("1}")], preset=preset, format_name=format_name, request=request)
    assert [request.max_tokens for request in played.requests] == [100, 100]
    assert (played.result.text, played.result.outcome) == ('{"a": 1}', "completed")


def test_whether_json_is_asked_for_again_is_a_key() -> None:
    """On by default, where continuations are allowed; off, no request has a larger limit."""
    assert ContinuationPolicy().json_reask is True
    assert not any(ContinuationPolicy.preset(name).json_reask for name in ("forgeflare", "wave", "botnexus"))
    script, request = [cut('{"a": ', 100), say('{"a": 1}')], ask(format=JSON_FORMAT)
    assert play(script, request=request).requests[1].max_tokens == 300
    off = play([cut('{"a": ', 100), say("1}")], request=request, json_reask=False)
    assert all(sent.max_tokens == 100 for sent in off.requests)
    none = play(script, request=request, continuation_max_attempts=0)
    assert (len(none.requests), none.result.complete) == (1, False)


@every_prefilled_model
def test_parts_stay_apart_whatever_the_model_takes(takes_prefill: tuple[str, str, str]) -> None:
    """Two assistant messages, each with its own finish reason; only the text is joined."""
    format_name, dialect, model = takes_prefill
    played = play(
        [cut("Hello, wo"), say("rld.")], preset="forgeflare",
        format_name=format_name, dialect=dialect, request=ask(model=model),
    )  # fmt: skip
    parts = [message for message in played.result.messages if message.role == "assistant"]
    assert [part.stop_reason for part in parts] == [StopReason.MAX_TOKENS, StopReason.END_TURN]
    assert played.result.text == "Hello, world."


# --- What works, over the real formats ----------------------------------------------------------------------------


@every_format
@whole_and_streamed
def test_text_that_was_cut_is_continued_three_times(
    format_name: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Then the turn ends; the count is the turn's alone, and both log lines are the specification's."""
    caplog.set_level(logging.INFO, "endturn")
    script = [cut(f"part {number}. ") for number in range(4)]
    played = play(script, preset="forgeflare", format_name=format_name, stream=stream)
    assert (len(played.requests), played.result.continuations) == (4, 3)
    assert played.result.outcome == "retry_limit"
    assert [line for line in caplog.messages if line.startswith("[continue]")] == [
        *(f"[continue] Response truncated at max_tokens, requesting continuation ({n}/3)" for n in (1, 2, 3)),
        "[continue] Max continuations reached, breaking",
    ]


def test_the_count_outlives_tools_and_begins_anew_with_new_input() -> None:
    """Tool results do not reset it, and a dispatch does not raise it; the next turn has three again."""
    script = [cut("a "), call("search", {"q": "x"}), cut("b "), cut("c "), cut("d "), *(cut(f"{n} ") for n in "efgh")]
    provider = ScriptedProvider(script)
    policy = ContinuationPolicy.preset("forgeflare")
    tool = play([say("x")]).requests[0].tools[0]
    controller = ContinuationController(provider, tools=[(tool, lambda _: "found")], policy=policy)
    for asked in (5, 9):
        assert controller.run(ask()).continuations == 3
        assert len(provider.requests) == asked


def test_continuations_are_no_iterations() -> None:
    """Two continuations within a limit of two iterations."""
    script = [cut("a "), cut("b "), call("search", {"q": "x"}), say("c")]
    played = play(script, preset="forgeflare", max_iterations=2)
    assert (played.result.outcome, played.result.continuations) == ("completed", 2)


def test_a_continuation_may_call_a_tool() -> None:
    """It gives the model another chance: text, or a call."""
    played = play([cut("Let me "), call("search", {"q": "x"}), say("Found.")], preset="forgeflare")
    assert (played.ran, played.result.outcome) == ([("search", {"q": "x"})], "completed")


def test_arguments_that_parse_run_even_where_their_meaning_was_cut() -> None:
    """A command that ends in its middle is the accepted risk: the tool's error comes back."""
    cut_in_meaning = call("search", {"q": "cargo test --featu"}).but(stop=StopReason.MAX_TOKENS)
    played = play([cut_in_meaning, say("Sorry.")], preset="forgeflare")
    assert played.ran == [("search", {"q": "cargo test --featu"})]


@both_presets
def test_a_cut_response_without_content_ends_the_turn(preset: str) -> None:
    """No prompt is sent for it; wave's specification would call again, and nothing says that more would come."""
    played = play([cut(""), say("never")], preset=preset)
    assert (len(played.requests), played.result.outcome) == (1, "no_progress")


def test_end_turn_ends_the_turn_whatever_it_holds() -> None:
    """Calls beside a clean stop are not run, and leave the history."""
    beside = call("search", {"q": "x"}, text="So: ").but(stop=StopReason.END_TURN)
    played = play([beside, say("never")], preset="forgeflare")
    assert (played.ran, len(played.requests), played.result.outcome) == ([], 1, "completed")
    assert calls_in(played.result.messages) == []


def test_no_repair_is_asked_for_and_fifty_iterations_are_allowed() -> None:
    """A cut call is not asked for again; the tool loop ends at its own limit."""
    played = play([call("search", {"q": "x"})], preset="forgeflare", exhausted="last", continuation_max_attempts=3)
    assert (len(played.ran), played.result.outcome) == (50, "max_iterations")
    policy = ContinuationPolicy.preset("forgeflare")
    assert (policy.continuation_tool_repair_attempts, policy.continuation_max_attempts) == (0, 3)
