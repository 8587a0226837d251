"""Edges of a turn: what is easily lost, doubled or called complete, and what a user is told of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from endturn.chat import ChatResponse, Request, ToolCall, Usage
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.result import ANSWERED_IN_WORDS, NOT_ALL_CALLS
from endturn.controller import ContinuationController, TurnResult
from endturn.errors import ProviderUnavailable
from endturn.events import DispatchBlocked, PayloadRepaired, TurnEnded, TurnOutcome, UsageEstimated
from endturn.scopes import Layer, open_call
from endturn.stop import Stop, StopReason
from endturn.transcript import recover
from tests.support.turns import NOW, SEARCH, Played, ask, call, calling, cut, heard, paused, said

TOOLS = ask(tools=(SEARCH, NOW))
TWO = (call(id="1"), call(arguments='{"q": "y', id="2", closed=False))


def play(
    *script: ChatResponse | BaseException,
    request: Request = TOOLS,
    chunk: int | None = None,
    format: str = "",
    **keys: Any,
) -> tuple[Played, TurnResult, list[ToolCall]]:
    """One turn over a script, and the calls that ran."""
    ran: list[ToolCall] = []
    provider = Played(*script, chunk=chunk)
    controller = ContinuationController(
        provider, policy=ContinuationPolicy(**keys), format=format, tools={"search": ran.append, "now": ran.append}
    )
    return provider, controller.run(request), ran


# --- Repairs ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(36)
def test_calls_that_a_repair_does_not_bring_back_are_told_of() -> None:
    """One of two comes: it runs; event and notice say that not all did."""
    with heard(PayloadRepaired) as repaired:
        _, result, ran = play(cut(calls=TWO), calling(call(id="3")), said("Done."))
    assert (len(ran), result.outcome, result.notice) == (1, "completed", NOT_ALL_CALLS)
    assert [(record.calls, record.attempted, record.succeeded) for record in repaired] == [(2, True, False)]


@pytest.mark.behaviour(28)
@pytest.mark.behaviour(36)
def test_a_repair_that_was_interrupted_goes_on_as_one(tmp_path: Path) -> None:
    """From the exception and from the transcript: every call is asked for by name, and words are said to be words."""
    path = tmp_path / "turns.jsonl"
    with pytest.raises(KeyboardInterrupt) as raised:
        play(cut("So: ", calls=TWO), KeyboardInterrupt(), transcript=path)
    handles = [raised.value.turn_result.resume(), recover(path)[-1].resume()]  # type: ignore[attr-defined]
    for handle in handles:
        provider = Played(said("Never mind."))
        result = ContinuationController(provider, tools={"search": print, "now": print}).run(handle)
        assert provider.requests[0].messages[-1].text.endswith("payload: search, search.")
        assert (result.outcome, result.continuations, result.notice) == ("completed", 0, ANSWERED_IN_WORDS)
        assert result.repairs >= 1


def test_the_counts_of_a_turn_go_on_when_it_is_taken_up_again() -> None:
    """Limits begin anew, what was done does not."""
    _, result, _ = play(cut("a "), cut("b "), continuation_max_attempts=1)
    assert result.outcome == "retry_limit"
    again = ContinuationController(Played(said("c.")), tools={}).run(result.resume())
    assert (again.text, again.iterations, again.continuations, again.requests) == ("a b c.", 1, 2, 3)


# --- Nothing, and half a sentence -----------------------------------------------------------------------------------


# --- The character bound ------------------------------------------------------------------------------------------


@pytest.mark.behaviour(17)
@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize(
    ("script", "text"),
    [
        ((cut("abcdefghijkl"),), "abcdefghij"),
        ((cut("abcdef"), said("ghijklmnop")), "abcdefghij"),
        ((cut("abcdef"), calling(call(), text="ghijklmnop")), "abcdefghij"),
        ((cut("abcdef"), cut("ghijklmnop", calls=[call()])), "abcdefghij"),
    ],
    ids=["the first", "the end", "beside a call", "beside a cut call"],
)
def test_an_answer_is_cut_at_the_bound_and_can_be_taken_up(
    script: tuple[ChatResponse, ...], text: str, chunk: int | None
) -> None:
    """No call runs beside a text that was cut, and the rest can still be had."""
    _, result, ran = play(*script, chunk=chunk, continuation_max_output_chars=10)
    assert (result.text, result.outcome, ran) == (text, "char_budget", [])
    again = ContinuationController(Played(said("!")), tools={}).run(result.resume())
    assert (again.text, again.complete) == (f"{text}!", True)


@pytest.mark.behaviour(17)
@pytest.mark.behaviour(20)
@pytest.mark.parametrize("chunk", [None, 3])
def test_a_whole_answer_knows_no_bound(chunk: int | None) -> None:
    """What was not cut passes, a character or a chunk at a time."""
    assert play(said("abcdefghijkl"), chunk=chunk, continuation_max_output_chars=10)[1].text == "abcdefghijkl"


@pytest.mark.behaviour(30)
@pytest.mark.behaviour(31)
def test_the_bound_counts_what_is_kept() -> None:
    """A JSON answer that comes again, and a text that is repeated from its beginning, count once."""
    whole = '{"a": "bcdefghijkl"}'
    asked = ask(format={"type": "object"})
    assert play(cut(whole[:18]), said(whole), request=asked, continuation_max_output_chars=25)[1].text == whole
    text = "The quick brown fox jumps over the lazy dog"
    _, result, _ = play(cut(text), said(f"{text} again."), continuation_max_output_chars=60, max_overlap=16)
    assert (result.text, result.outcome) == (f"{text} again.", "completed")


# --- Calls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "ran"),
    [("xxxx", 2), ("xxox", 4), ("xXxX", 2), ("nnnn", 0), ("xnxnx", 3), ("pqp", 4)],
    ids=["same", "another between", "written otherwise", "refused", "a refused one between", "in another order"],
)
def test_the_same_calls_in_a_row_are_counted(names: str, ran: int) -> None:
    """By their arguments, not their spelling; what the gate refuses counts and is counted too."""
    calls = {
        "x": [call()],
        "X": [call(arguments='{"q":"x"}')],
        "o": [call("now", "{}")],
        "n": [call("nope")],
        "p": [call(id="1"), call("now", "{}", id="2")],
        "q": [call("now", "{}", id="1"), call(id="2")],
    }
    script = [calling(*calls[name]) for name in names]
    _, result, done = play(*script, said("Done."), max_identical_calls=2)
    repeated = names in ("xxxx", "xXxX", "nnnn", "pqp")
    assert (result.outcome, len(done)) == ("repetition" if repeated else "completed", ran)


@pytest.mark.behaviour(5)
@pytest.mark.parametrize("format", ["gemini", "ollama", "openai_responses"])
def test_a_format_without_a_word_for_calls_promotes_them_under_any_policy(format: str) -> None:
    """There every call comes with a clean stop: not to promote it would mean to run none."""
    asked = calling(call()).with_stop(promoted_from=StopReason.END_TURN)
    assert len(play(asked, said("Done."), format=format, promote=False)[2]) == 1
    assert len(play(asked, format="openai_chat", promote=False)[2]) == 0


@pytest.mark.parametrize(
    ("script", "keys", "line"),
    [
        ((paused("a"),), {"continuation_max_resumes": 0}, "resuming is not allowed"),
        ((paused("a"), paused("b")), {"continuation_max_resumes": 1}, "max resumes reached"),
        ((cut("a"),), {"continuation_strategies": ()}, "none of continuation_strategies"),
        ((cut("a"),), {"continuation_max_attempts": 0}, "continuing is not allowed"),
    ],
)
def test_every_end_at_a_limit_says_which(
    script: tuple[ChatResponse, ...], keys: dict[str, Any], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On the logger `endturn`, with or without telemetry."""
    caplog.set_level(logging.INFO, "endturn")
    result = play(*script, **keys)[1]
    assert result.outcome in (TurnOutcome.RESUME_LIMIT, TurnOutcome.NOT_CONTINUED, TurnOutcome.RETRY_LIMIT)
    assert any(line in message for message in caplog.messages)


# --- What is logged -------------------------------------------------------------------------------------------------


def test_a_declared_tool_without_a_function_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """The host hears of it, and the model is not told that the tool is there."""
    provider = Played(calling(call()), said("Pity."))
    ContinuationController(provider, tools={"now": print}).run(TOOLS)
    assert any("'search'" in message and "no function" in message for message in caplog.messages)
    assert provider.requests[1].messages[-1].text == "there is no tool called 'search'; the tools are: now"


# --- The end as text ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(39)
@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ('I am done.\nfinish_task\n{"summary": "s", "status": "blocked"}', ("blocked", "s")),
        ('```\nfinish_task {"status": "partial"}\n```', ("partial", None)),
        ("All of it is written.\nfinish_task", ("done", None)),
        ("finish_task\nAll of it is written.", ("done", "All of it is written.")),
        ("Example:\n```python\nfinish_task\n```\nI would call that later, but first: which file?", None),
        ("You can use the tool\n\n    finish_task\n\nlater.", None),
        ("Call finish_task when you are done with it.", None),
        ('finish_task {"summary": "torn', None),
        ('finish_task {"status": "unheard of"}', None),
    ],
)
def test_a_signal_in_the_text_stands_at_its_end_or_is_all_of_it(
    text: str, signal: tuple[str, str | None] | None
) -> None:
    """An example or a mention in an answer is none; nor is a torn object, which may go on with another status."""
    _, result, _ = play(said(text), mode="task", text_signals=True)
    found = None if result.finish is None or result.finish.signal == "implicit_completion" else result.finish
    assert (found and (found.status, found.summary)) == signal


# --- What never arrived ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour(34)
@pytest.mark.parametrize("preset", ["forgeflare", "wave"])
@pytest.mark.parametrize("reason", [StopReason.MAX_TOKENS, StopReason.TOOL_CALL, StopReason.END_TURN])
def test_a_call_that_never_arrived_runs_under_no_reason(preset: str, reason: StopReason) -> None:
    """Servers say `tool_calls` of cut answers too: what is open and empty is dropped, and the last of a full budget."""
    torn = call("now", "", closed=False)
    _, _, ran = play(said("Go.", reason, calls=[torn]), said("Done."), said("Done."), preset=preset)
    assert ran == []
    empty = call("now", "", id="2")
    _, _, ran = play(said("Go.", reason, calls=[empty], suspected=True), said("x."), said("x."), preset=preset)
    assert ran == []


@pytest.mark.behaviour(42)
def test_calls_that_are_dropped_beside_others_are_announced() -> None:
    """What is not run is told, though its neighbours run."""
    with heard(DispatchBlocked) as blocked:
        _, _, ran = play(cut("So.", calls=[call(id="1"), call(arguments='{"q', id="2")]), said("Done."), preset="wave")
    assert [asked.id for asked in ran] == ["1"]
    assert [(record.reason, record.names) for record in blocked] == [("truncated", ("search",))]


def test_a_truncated_end_is_never_without_a_notice() -> None:
    """The host runs the calls of a cut response itself: the turn is over, and not whole."""
    policy = ContinuationPolicy.preset("forgeflare")
    result = ContinuationController(Played(cut("So", calls=[call()])), policy=policy).run(TOOLS)
    assert (result.outcome, result.complete, result.notice is None) == ("completed", False, False)


def test_no_name_that_the_model_made_up_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It may hold anything, a line's end too."""
    secret = call("4111\nWARNING forged", id="3", closed=False)
    play(cut(calls=[call(id="1"), secret]), calling(call(id="4")), said("Done."))
    assert not any("4111" in message or "forged" in message for message in caplog.messages)
    assert any("1 tool calls" in message for message in caplog.messages)


# --- What it used -----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(17)
def test_usage_that_a_layer_below_saw_is_no_estimate() -> None:
    """The provider function returns none, the SDK's call was recorded with it: one figure, and no guess."""
    texts = iter(["One ", "two."])

    def provider(request: Request) -> ChatResponse:
        below = open_call(Layer.CLIENT, provider="openai", model="m")
        assert below is not None
        text = next(texts)
        stop = Stop(StopReason.END_TURN if text == "two." else StopReason.MAX_TOKENS)
        below.end(stop, usage=Usage(50, 5))
        return ChatResponse(text=text, stop=stop)

    with heard() as records:
        result = ContinuationController(provider, policy=ContinuationPolicy()).run(ask())
    [ended] = [record for record in records if isinstance(record, TurnEnded)]
    assert result.usage == Usage(100, 10)
    assert (ended.turn.input_tokens, ended.turn.output_tokens, ended.turn.estimated) == (100, 10, False)
    assert not any(isinstance(record, UsageEstimated) for record in records)


@pytest.mark.behaviour(19)
def test_what_a_broken_call_used_is_in_the_result() -> None:
    """As far as its provider said."""
    partial = said("two", StopReason.MISSING, terminal_seen=False)
    _, result, _ = play(cut("One "), ProviderUnavailable("gone", partial=partial))
    assert (result.outcome, result.usage) == ("provider_error", Usage(10, 20))


@pytest.mark.parametrize(
    ("max_cost", "extra"),
    [(0.010002, {}), (0.01005, {"thinking": {"type": "enabled", "budget_tokens": 1024}})],
)
def test_money_that_buys_no_word_ends_the_turn(max_cost: float, extra: dict[str, Any]) -> None:
    """No call is made that may generate nothing, or only think."""
    prices = {"m": (0, 10)}
    _, result, _ = play(
        cut("a ", tokens=1_000), request=ask(max_tokens=1_000, extra=extra), prices=prices, max_cost=max_cost
    )
    assert (result.outcome, result.requests) == ("cost_budget", 1)
