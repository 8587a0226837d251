"""The controllers: what is sent, what is run, what comes back, and what is announced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import date
from typing import Any

import pytest

from endturn import events
from endturn.chat import CallFragment, ChatResponse, Delta, Message, Request, ToolCall, Usage
from endturn.continuation.policy import PROMPT, ContinuationPolicy
from endturn.controller import AsyncContinuationController, ContinuationController, TurnResult
from endturn.errors import ProviderUnavailable, RequestRejected, UsageError
from endturn.events import (
    CallEnded,
    ContinuationAttempted,
    DispatchBlocked,
    PayloadRepaired,
    Strategy,
    ToolEnded,
    TurnEnded,
    TurnOutcome,
    TurnStarted,
)
from endturn.scopes import Layer, current_turn, open_call
from endturn.stop import Resume, Stop, StopReason
from tests.support.turns import NOW, SEARCH, Played, ask, call, calling, cut, heard, said, ticking

NUDGE = Message(role="user", content=PROMPT, synthetic=True)


def play(*script: ChatResponse | BaseException, chunk: int | None = None, **settings: Any) -> tuple[Played, TurnResult]:
    """One turn over a script, its request being `ask()` unless `request` says otherwise."""
    request = settings.pop("request", ask())
    policy = {name: settings.pop(name) for name in list(settings) if name in ContinuationPolicy.model_fields}
    provider = Played(*script, chunk=chunk)
    controller = ContinuationController(provider, policy=ContinuationPolicy(**policy), **settings)
    return provider, controller.run(request)


class Recording:
    """A tool that remembers what it was called with."""

    def __init__(self, answer: Any = "found") -> None:
        self.answer = answer
        self.calls: list[ToolCall] = []

    def __call__(self, asked: ToolCall) -> Any:
        self.calls.append(asked)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


# --- Text ---------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(20)
def test_a_response_that_was_not_truncated_passes_untouched() -> None:
    """One request, the host's own object; the text byte for byte; no notice."""
    request = ask()
    provider, result = play(said("Hello.\n"), request=request)
    assert provider.requests == [request]
    assert provider.requests[0] is request
    assert (result.text, result.outcome, result.complete, result.notice) == ("Hello.\n", "completed", True, None)
    assert result.messages == (*request.messages, said("Hello.\n").message())
    assert (result.iterations, result.continuations) == (1, 0)


@pytest.mark.behaviour(12)
@pytest.mark.behaviour(26)
def test_a_cut_answer_is_continued_and_merged() -> None:
    """max_tokens, then the rest: one coherent answer, the nudge sent and not shown."""
    provider, result = play(cut("Hello, wo"), said("rld."))
    assert result.text == "Hello, world."
    assert result.complete
    assert provider.requests[1].messages == (*ask().messages, cut("Hello, wo").message(), NUDGE)
    assert result.messages == (*ask().messages, said("Hello, world.").message())
    assert result.segments == (cut("Hello, wo").message(), NUDGE, said("rld.").message())
    assert result.usage == Usage(10, 20)


@pytest.mark.behaviour(16)
def test_a_loop_ends_the_turn_and_is_not_kept_for_a_replay() -> None:
    """A continuation dominated by one passage stops; the history holds the passage once."""
    passage = "I will now check the file, and after that I will check the next. "
    provider, result = play(cut("Well: "), cut(passage * 20), said("never"))
    assert (len(provider.requests), result.outcome) == (2, "repetition")
    assert result.text == "Well: " + passage * 20
    assert passage * 2 not in result.messages[-1].text
    assert result.messages[-1].text.startswith("Well: I will now check")


@pytest.mark.behaviour(17)
def test_the_token_budget_counts_the_cut_chain_and_clamps_only_continuations() -> None:
    """Four times the maximum: a continuation gets what is left of it, an ordinary call its own maximum."""
    provider, result = play(
        cut("a ", tokens=900), calling(call(), tokens=2_000), calling(call(id="2"), tokens=900),
        cut("b ", tokens=700), said("c"),
        request=ask(max_tokens=1_000, tools=(SEARCH,)), tools={"search": Recording()},
    )  # fmt: skip
    # Counted are 900, 2 000 and 700: the ordinary call of 900 is not.
    assert [request.max_tokens for request in provider.requests] == [1_000, 1_000, 1_000, 1_000, 400]
    assert result.outcome == "completed"


@pytest.mark.behaviour(17)
@pytest.mark.behaviour(27)
def test_after_a_clamped_continuation_the_host_has_its_own_settings_again() -> None:
    """Neither the clamped maximum nor the tool choice of a continuation lives on in the tool loop."""
    provider, _ = play(
        cut("a ", tokens=100), cut("b ", tokens=250), calling(call()), said("c"),
        request=ask(tools=(SEARCH,), tool_choice="search"), tools={"search": Recording()},
        continuation_max_total_completion_tokens=450,
    )  # fmt: skip
    assert [request.max_tokens for request in provider.requests] == [100, 100, 100, 100]
    provider, _ = play(
        cut("a ", tokens=350), calling(call()), said("c"),
        request=ask(max_tokens=300, tools=(SEARCH,), tool_choice="search"), tools={"search": Recording()},
        continuation_max_total_completion_tokens=610,
    )  # fmt: skip
    assert [request.max_tokens for request in provider.requests] == [300, 260, 300]
    assert [request.tool_choice for request in provider.requests] == ["search", "auto", "search"]


@pytest.mark.behaviour(17)
def test_without_a_maximum_the_first_cut_is_the_measure() -> None:
    """The effective maximum is what the first cut response used; a request without a maximum keeps none."""
    provider, result = play(
        *[cut(f"{n} ", tokens=1_000) for n in range(4)], said("never"),
        request=ask(max_tokens=None), continuation_max_attempts=10,
    )  # fmt: skip
    assert [request.max_tokens for request in provider.requests] == [None] * 4
    assert result.outcome == "token_budget"


def test_the_deadline_ends_a_turn() -> None:
    """No call begins after the deadline; the clock is injected."""
    provider, result = play(cut("a "), cut("b "), said("never"), deadline_s=2, clock=ticking())
    assert (len(provider.requests), result.outcome) == (2, "deadline")


# --- Tools ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(33)
def test_a_complete_tool_call_is_dispatched() -> None:
    """A tool call runs once, its result goes back, and the loop goes on."""
    search = Recording()
    asking = calling(call(), text="Let me see. ")
    provider, result = play(asking, said("Found."), request=ask(tools=(SEARCH,)), tools={"search": search})
    assert [run.arguments for run in search.calls] == [{"q": "x"}]
    answer = Message(role="tool", content="found", tool_call_id="call_1")
    assert provider.requests[1].messages == (*ask().messages, asking.message(), answer)
    assert (result.text, result.answer) == ("Let me see. Found.", "Found.")
    assert result.messages == (*ask().messages, asking.message(), answer, said("Found.").message())
    assert result.tool_results == (answer,)


@pytest.mark.behaviour(36)
def test_a_cut_payload_is_repaired_through_the_same_gate() -> None:
    """One complete payload is asked for; when it comes it runs, and nothing of the cut one is in the history."""
    search = Recording()
    half = cut("Let me see. ", calls=[call(arguments='{"q": "hal', closed=False)])
    with heard(PayloadRepaired) as repaired:
        provider, result = play(
            half, calling(call(id="2")), said("Found."),
            request=ask(tools=(SEARCH,), tool_choice="search"), tools={"search": search},
        )  # fmt: skip
    assert [run.id for run in search.calls] == ["2"]
    assert (result.outcome, result.text) == ("completed", "Let me see. Found.")
    assert provider.requests[1].messages[-1] == NUDGE
    assert provider.requests[1].tool_choice == "search"
    assert not any(message.tool_calls for message in provider.requests[1].messages)
    (record,) = repaired
    assert (record.issue, record.attempted, record.succeeded) == ("incomplete_json", True, True)
    assert (result.continuations, result.repairs) == (0, 1)


@pytest.mark.behaviour(36)
@pytest.mark.parametrize(
    ("second", "outcome"),
    [
        pytest.param(cut("", calls=[call(arguments="{", closed=False)]), "tool_repair_failed", id="cut again"),
        pytest.param(cut("I will"), "tool_repair_failed", id="cut text"),
        pytest.param(said("", StopReason.MISSING), "tool_repair_failed", id="stream cut"),
        pytest.param(calling(call(), suspected=True), "tool_repair_failed", id="suspect"),
        pytest.param(said("Never mind."), "completed", id="text instead"),
        pytest.param(said("No.", StopReason.REFUSED), "tool_repair_failed", id="refused"),
        pytest.param(said("", StopReason.REFUSED, calls=[call()]), "tool_repair_failed", id="refused with a call"),
        pytest.param(said("", StopReason.SAFETY_BLOCKED), "tool_repair_failed", id="blocked"),
    ],
)
def test_a_repair_passes_the_same_table(second: ChatResponse, outcome: str) -> None:
    """Text completes; a cut or refused payload ends the turn; nothing runs."""
    search = Recording()
    with heard() as records:
        provider, result = play(
            cut("Let me see. ", calls=[call(closed=False)]), second, said("never"),
            request=ask(tools=(SEARCH,)), tools={"search": search},
        )  # fmt: skip
    assert search.calls == []
    assert (len(provider.requests), result.outcome) == (2, outcome)
    repaired = [record for record in records if isinstance(record, PayloadRepaired)]
    assert [(record.attempted, record.succeeded) for record in repaired] == [(True, False)]
    blocked = [record.reason for record in records if isinstance(record, DispatchBlocked)]
    assert blocked == (["truncated", "repair_failed"] if second.tool_calls else ["truncated"])


@pytest.mark.behaviour(36)
def test_a_repair_whose_call_fails_is_told_of() -> None:
    """The provider's error ends the turn; the event says that a repair was tried."""
    with heard(PayloadRepaired) as repaired:
        _, result = play(cut("Well. ", calls=[call(closed=False)]), ProviderUnavailable("busy"))
    assert (result.outcome, result.text) == ("provider_error", "Well. ")
    assert [(record.attempted, record.succeeded) for record in repaired] == [(True, False)]


@pytest.mark.behaviour(36)
def test_a_call_that_the_provider_rejected_with_an_error_is_repaired() -> None:
    """Groq answers HTTP 400 with `tool_use_failed`: the same row, whichever way it comes; no error is left behind."""
    stop = Stop(StopReason.ERROR, "tool_use_failed", resume=Resume.REPAIR, incomplete=True)
    raised = RequestRejected("bad call", stop=stop)
    asked: dict[str, Any] = {"request": ask(tools=(SEARCH,)), "tools": {"search": Recording()}}
    provider, result = play(raised, calling(call()), said("ok"), **asked)
    assert (len(provider.requests), result.outcome, result.text, result.error) == (3, "completed", "ok", None)
    provider, result = play(raised, raised, said("never"), **asked)
    assert (len(provider.requests), result.outcome, result.error) == (2, "tool_repair_failed", raised)


@pytest.mark.behaviour(36)
@pytest.mark.parametrize(
    ("wrong", "reason", "told"),
    [
        (call("find"), "unknown_tool", "there is no tool called 'find'"),
        (call(arguments="{}"), "schema_mismatch", 'arguments does not fit {"required": ["q"]}'),
        (call(arguments='{"q": 1, "q": 2}'), "invalid_json", "given twice"),
    ],
)
def test_complete_but_wrong_calls_are_answered_with_errors(wrong: ToolCall, reason: str, told: str) -> None:
    """An ordinary iteration: every call of the batch gets an error result, none runs, no repair is spent."""
    search = Recording()
    with heard() as records:
        provider, result = play(
            calling(call(id="good"), wrong.but(id="bad")), said("Sorry."),
            request=ask(tools=(SEARCH,)), tools={"search": search},
        )  # fmt: skip
    assert search.calls == []
    answers = provider.requests[1].messages[-2:]
    assert [(answer.tool_call_id, answer.is_error) for answer in answers] == [("good", True), ("bad", True)]
    assert told in answers[1].text
    assert (result.outcome, result.continuations) == ("completed", 0)
    assert [record.reason for record in records if isinstance(record, DispatchBlocked)] == [reason]
    assert not [record for record in records if isinstance(record, PayloadRepaired)]


@pytest.mark.behaviour(37)
def test_ids_may_repeat_in_another_response() -> None:
    """Providers that number their calls from one each time are served each time."""
    search = Recording()
    play(calling(call()), calling(call()), said("ok"), request=ask(tools=(SEARCH,)), tools={"search": search})
    assert len(search.calls) == 2


def test_what_a_tool_raises_is_told_to_the_model() -> None:
    """A failing tool is an error result, announced with its exception; the loop goes on."""
    with heard(ToolEnded) as ended:
        provider, result = play(
            calling(call()), said("Too bad."),
            request=ask(tools=(SEARCH,)), tools={"search": Recording(ValueError("no such place"))},
        )  # fmt: skip
    answer = provider.requests[1].messages[-1]
    assert (answer.text, answer.is_error) == ("ValueError: no such place", True)
    assert result.complete
    assert isinstance(ended[0].error, ValueError)


def circular() -> list[Any]:
    """A list that holds itself."""
    made: list[Any] = []
    made.append(made)
    return made


class Unspeakable:
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("the secret")


@pytest.mark.behaviour(37)
@pytest.mark.parametrize(
    "answer",
    [object(), circular(), [{"a": object()}], [{"type": "text", "a": circular()}], Unspeakable(), b"\xff"],
    ids=["an object", "a circle", "an object within", "a part with a circle", "no text", "bytes that are no text"],
)
def test_a_result_that_json_cannot_hold_is_told_to_the_model(answer: Any) -> None:
    """The call was run, and counts as run; the model reads one sentence, and nothing of the result."""
    tool = Recording(answer)
    with heard(ToolEnded) as ended:
        provider, result = play(calling(call()), said("Too bad."), request=ask(tools=(SEARCH,)), tools={"search": tool})
    told = provider.requests[1].messages[-1]
    kind = type(answer).__name__
    assert told.text == f"the tool was run, but its result, a value of type {kind}, cannot be written as JSON"
    assert (told.is_error, result.outcome, len(tool.calls)) == (True, "completed", 1)
    assert [record.error is None for record in ended] == [False]


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (None, ""),
        ([{1: 2}], '[{"1": 2}]'),
        ([{"type": "image", "data": b"png"}], [{"type": "image", "data": b"png"}]),
        ([{"image": {"format": "png"}}], [{"image": {"format": "png"}}]),
        ([], "[]"),
        ([{"title": "a"}, {"title": "b"}], '[{"title": "a"}, {"title": "b"}]'),
        ([{"type": "book", "title": "a"}], '[{"type": "book", "title": "a"}]'),
        ((str(n) for n in range(2)), '["0", "1"]'),
        ({"at": date(2026, 11, 23)}, '{"at": "2026-11-23"}'),
        ([{"type": "text", "text": "a"}], [{"type": "text", "text": "a"}]),
        ({"n": 1}, '{"n": 1}'),
        ([1, 2], "[1, 2]"),
    ],
)
def test_what_a_tool_returns_becomes_content(answer: Any, content: Any) -> None:
    """Text and content parts stay; anything else becomes JSON."""
    provider, _ = play(
        calling(call("now", "")), said("ok"), request=ask(tools=(NOW,)), tools={"now": Recording(answer)}
    )
    assert provider.requests[1].messages[-1].content == content


def test_tools_given_with_their_functions_are_declared() -> None:
    """A sequence of (Tool, function) adds the tools that the request does not declare itself."""
    provider, _ = play(said("ok"), request=ask(tools=(SEARCH,)), tools=[(SEARCH, Recording()), (NOW, Recording())])
    assert provider.requests[0].tools == (SEARCH, NOW)


def test_a_host_that_runs_its_tools_itself_gets_the_calls() -> None:
    """Without functions a turn ends at the gate, with the parsed calls."""
    provider, result = play(calling(call()), request=ask(tools=(SEARCH,)))
    assert (len(provider.requests), result.outcome, result.complete) == (1, "completed", True)
    assert result.calls == (call(arguments='{"q": "x"}').but(arguments={"q": "x"}),)
    assert result.messages[-1].tool_calls == (call(),)


def test_the_tool_loop_is_limited() -> None:
    """After max_iterations calls the turn ends, its last results in the history, and can be taken up."""
    search = Recording()
    provider, result = play(
        *[calling(call(id=str(n))) for n in range(3)], request=ask(tools=(SEARCH,)), tools={"search": search},
        max_iterations=2,
    )  # fmt: skip
    assert (len(provider.requests), len(search.calls)) == (2, 2)
    assert (result.outcome, result.status) == ("max_iterations", "max_iterations")
    assert result.messages[-1].role == "tool"
    again = ContinuationController(Played(calling(call(id="0")), said("Done.")), tools={"search": search})
    assert again.run(result.resume()).text == "Done."
    assert len(search.calls) == 3


def test_the_calls_are_streamed_once_the_gate_has_passed_them() -> None:
    """No piece of a call is shown before it may be acted on: a cut one never, a good one whole."""

    def provider(request: Request) -> Iterator[Delta | ChatResponse]:
        yield Delta(call=CallFragment(0, "1", "search", '{"q"'))
        if len(request.messages) == 1:
            yield cut("", calls=[call(arguments='{"q"', id="1", closed=False)])
        elif not any(message.role == "tool" for message in request.messages):
            yield calling(call(id="2"))
        else:
            yield said("ok")

    controller = ContinuationController(provider, tools={"search": Recording()})
    shown = [item.call for item in controller.stream(ask(tools=(SEARCH,))) if isinstance(item, Delta) and item.call]
    assert shown == [CallFragment(0, "2", "search", '{"q": "x"}')]


# --- Streams --------------------------------------------------------------------------------------------------------


def test_a_stream_that_was_not_cut_passes_its_deltas_as_they_are() -> None:
    """Nothing is held back where nothing can repeat."""
    given = [Delta(text="Con"), Delta(reasoning="hm"), Delta(text="tinuing:\n")]

    def provider(request: Request) -> Iterator[Delta | ChatResponse]:
        yield from given
        yield said("Continuing:\n", reasoning="hm")

    assert list(ContinuationController(provider).stream(ask()))[:-1] == given


def test_a_stream_that_ends_without_its_response_was_cut() -> None:
    """No ChatResponse at the end: `missing`, the text kept, its calls not run."""
    search = Recording()

    def provider(request: Request) -> Iterator[Delta]:
        yield Delta(text="Half an ans")
        if len(request.messages) > 1:
            yield Delta(call=CallFragment(0, "1", "search", '{"q": "x"}'))

    result = ContinuationController(provider).run(ask())
    assert (result.text, result.outcome) == ("Half an ans", "stream_cut")
    assert result.stop == Stop(StopReason.MISSING, terminal_seen=False, incomplete=True)
    controller = ContinuationController(
        provider, tools={"search": search}, policy=ContinuationPolicy(continuation_tool_repair_attempts=0)
    )
    cut_call = controller.run(ask().but(messages=(*ask().messages, *ask().messages), tools=(SEARCH,)))
    assert (cut_call.outcome, search.calls) == ("tool_call_cut", [])


def test_text_that_only_the_response_holds_is_streamed_at_its_end() -> None:
    """A provider whose deltas stop short still gives the whole text; a whole response is one delta."""

    def provider(request: Request) -> Iterator[Delta | ChatResponse]:
        yield Delta(text="Hel")
        yield said("Hello", reasoning="hm")

    *deltas, _ = ContinuationController(provider).stream(ask())
    assert deltas == [Delta(text="Hel"), Delta(reasoning="hm"), Delta(text="lo")]
    assert list(ContinuationController(Played(said("Hello"))).stream(ask()))[:-1] == [Delta(text="Hello")]


def test_a_provider_that_begins_anew_is_marked() -> None:
    """A restart mark is passed on, and the text follows what was shown."""

    def provider(request: Request) -> Iterator[Delta | ChatResponse]:
        yield Delta(text="Hel")
        yield Delta(text="Hello", restart=True)
        yield said("Hello")

    *deltas, result = ContinuationController(provider).stream(ask())
    assert deltas == [Delta(text="Hel"), Delta(text="Hello", restart=True)]
    assert isinstance(result, TurnResult)
    assert result.text == "HelHello"


def test_a_continuation_that_begins_anew_gives_out_what_was_held() -> None:
    """Text that waited for a decision is not lost when the provider's stream restarts."""
    half = "The first half of the answer is this, and "

    def provider(request: Request) -> Iterator[Delta | ChatResponse]:
        if len(request.messages) == 1:
            yield cut(half)
        else:
            yield Delta(text="half of")
            yield Delta(text="the second is that.", restart=True)
            yield said("the second is that.")

    assert ContinuationController(provider).run(ask()).text == half + "half of" + "the second is that."


@pytest.mark.behaviour(18)
@pytest.mark.parametrize("at", ["provider", "stream", "tool"])
async def test_a_generator_exit_of_the_hosts_is_an_interrupt(at: str) -> None:
    """It is raised as it is, with the partial turn; only the consumer's own ends a stream without a word."""

    def left(*_: object) -> Any:
        raise GeneratorExit

    def provider(request: Request) -> Any:
        return left() if at == "provider" and len(request.messages) > 1 else stream(request)

    def stream(request: Request) -> Iterator[Delta | ChatResponse]:
        yield Delta(text="a")
        if at == "stream":
            left()
        yield calling(call(), text="a") if at == "tool" else cut("a")

    settings: dict[str, Any] = {"tools": {"search": left}}
    with heard(TurnEnded) as ended:
        with pytest.raises(GeneratorExit) as plain:
            ContinuationController(provider, **settings).run(ask(tools=(SEARCH,)))
        with pytest.raises(GeneratorExit) as awaited:
            await AsyncContinuationController(provider, **settings).run(ask(tools=(SEARCH,)))
    for caught in (plain, awaited):
        result: TurnResult = caught.value.turn_result  # type: ignore[attr-defined]
        assert (result.text, result.outcome) == ("a", "cancelled")
    assert [record.error for record in ended] == [plain.value, awaited.value]


# --- Failures -------------------------------------------------------------------------------------------------------


def test_an_error_with_nothing_to_keep_is_raised_as_it_is() -> None:
    """The first call's exception passes through, the same object; the turn is announced as ended."""
    error = RequestRejected("no such model", provider="openai", status=404)
    with heard(TurnEnded) as ended, pytest.raises(RequestRejected) as caught:
        play(error)
    assert caught.value is error
    assert [(record.outcome, record.error) for record in ended] == [("provider_error", error)]


@pytest.mark.behaviour(19)
@pytest.mark.behaviour(25)
def test_an_error_on_a_continuation_keeps_the_partial_and_can_be_resumed() -> None:
    """The merged partial stays, the nudge of the failed call goes, and a retryable error has spent no attempt."""
    error = ProviderUnavailable("overloaded", status=529)
    provider, result = play(cut("Hello, "), cut("wo"), error)
    assert (result.text, result.outcome, result.complete, result.error) == ("Hello, wo", "provider_error", False, error)
    assert result.segments == (cut("Hello, ").message(), NUDGE, cut("wo").message())
    assert result.resume().counters.attempts == 1
    again = Played(said("rld."))
    finished = ContinuationController(again).run(result.resume())
    assert again.requests == provider.requests[-1:]
    assert (finished.text, finished.outcome, finished.complete) == ("Hello, world.", "completed", True)
    assert finished.messages == (*ask().messages, said("Hello, world.").message())
    assert finished.requests == 4


@pytest.mark.behaviour(19)
def test_what_arrived_of_a_failed_stream_is_kept_and_continued() -> None:
    """A stream that raises midway leaves its text; the handle asks for the rest."""

    def provider(request: Request) -> Iterator[Delta]:
        yield Delta(text="Half an ")
        raise ConnectionError("reset")

    *_, result = ContinuationController(provider).stream(ask())
    assert isinstance(result, TurnResult)
    assert (result.text, result.outcome) == ("Half an ", "provider_error")
    assert isinstance(result.error, ConnectionError)
    again = Played(said("answer."))
    assert ContinuationController(again).run(result.resume()).text == "Half an answer."
    assert again.requests[0].messages[-1] == NUDGE


@pytest.mark.parametrize("reason", [StopReason.CONTEXT_WINDOW_EXCEEDED, StopReason.SAFETY_BLOCKED])
def test_an_error_that_says_why_is_that_reason(reason: StopReason) -> None:
    """A 400 that says "context length" ends the turn like the reason in band, even on the first call."""
    error = RequestRejected("too long", status=400, stop=Stop(reason, "context_length_exceeded"))
    with heard(CallEnded) as ended:
        _, result = play(error)
    assert (result.outcome, result.error, result.complete) == (reason.value, error, False)
    assert result.messages == ask().messages
    assert ended[0].stop.reason is reason


@pytest.mark.parametrize(
    "response", [said("whole"), said("a", StopReason.REFUSED), cut("")], ids=["whole", "no", "empty"]
)
def test_what_cannot_be_taken_up_says_so(response: ChatResponse) -> None:
    """A whole, refused or empty answer has no handle."""
    _, result = play(response)
    with pytest.raises(UsageError, match="cannot be taken up again"):
        result.resume()


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        pytest.param(lambda request: "Hello", "not a value of type str", id="text"),
        pytest.param(lambda request: None, "not None", id="nothing"),
        pytest.param(lambda request: {"text": "Hello"}, "not a value of type dict", id="a dict"),
        pytest.param(lambda request: iter(["Hello"]), "not a value of type str", id="pieces of text"),
        pytest.param(Played(said("a")).coroutine, "use AsyncContinuationController", id="a coroutine"),
        pytest.param(
            Played(said("a"), chunk=1).asynchronous, "use AsyncContinuationController", id="an async generator"
        ),
    ],
)
def test_what_is_no_provider_function_is_refused(provider: Any, message: str) -> None:
    """The error says what a provider function gives, and quotes neither the prompt nor the answer."""
    with pytest.raises(UsageError, match=message) as raised:
        ContinuationController(provider).run(ask("a secret"))
    assert type(raised.value) is UsageError
    assert "secret" not in str(raised.value)
    assert "Hello" not in str(raised.value)


@pytest.mark.parametrize(
    ("provider", "settings", "message"),
    [
        pytest.param(42, {}, "provider is a function of a Request, .* not a value of type int", id="provider"),
        pytest.param(said, {"policy": {"max_iterations": 2}}, "ContinuationPolicy.* not .* dict", id="policy"),
        pytest.param(said, {"policy": ContinuationPolicy}, "not the class ContinuationPolicy", id="policy class"),
        pytest.param(said, {"tools": [said]}, "tools holds .* function: give functions by name", id="functions only"),
        pytest.param(said, {"tools": [SEARCH]}, "tools holds .* Tool: give functions by name", id="tools only"),
        pytest.param(said, {"tools": "search"}, "tools is .* str: give functions by name", id="a name"),
        pytest.param(said, {"tools": {"search": "f"}}, "a tool's function is .* str", id="no function, by name"),
        pytest.param(said, {"tools": [(SEARCH, None)]}, "a tool's function is None", id="no function"),
    ],
)
def test_natural_mistakes_are_named_at_once(provider: Any, settings: dict[str, Any], message: str) -> None:
    """What cannot work is refused where it is given, with what to give."""
    for controller in (ContinuationController, AsyncContinuationController):
        with pytest.raises(UsageError, match=message):
            controller(provider, **settings)


def test_a_turn_starts_with_a_request() -> None:
    """A text is none, and is not quoted."""
    controller: Any = ContinuationController(Played(said("a")))
    with pytest.raises(
        UsageError, match=r"starts with a Request, .* not a value of type str: Request\(model="
    ) as raised:
        controller.run("hello")
    assert "hello" not in str(raised.value)


def test_an_async_tool_needs_the_async_controller() -> None:
    """The plain controller cannot await a tool, and says so instead of telling the model."""

    async def search(asked: ToolCall) -> str:
        return "found"

    with pytest.raises(UsageError, match="use AsyncContinuationController"):
        play(calling(call()), request=ask(tools=(SEARCH,)), tools={"search": search})


def test_an_unknown_format_is_refused() -> None:
    """The format's name is checked when the controller is made."""
    with pytest.raises(UsageError, match="no format is called 'telex'"):
        ContinuationController(Played(), format="telex")


# --- Async ----------------------------------------------------------------------------------------------------------


async def test_tools_may_be_async_or_not() -> None:
    """The async controller awaits what can be awaited."""

    async def search(asked: ToolCall) -> str:
        await asyncio.sleep(0)
        return "found"

    tools: dict[str, Any] = {"search": search, "now": Recording("noon")}
    provider = Played(calling(call(), call("now", "", id="2")), said("ok"))
    result = await AsyncContinuationController(provider, tools=tools).run(ask(tools=(SEARCH, NOW)))
    assert [answer.content for answer in result.tool_results] == ["found", "noon"]


@pytest.mark.behaviour(18)
@pytest.mark.parametrize(("at", "text"), [("provider", "Hello, "), ("stream", "Hello, wo"), ("tool", "Hello, wo")])
async def test_a_cancelled_task_keeps_what_it_has(at: str, text: str) -> None:
    """The exception propagates with the partial turn, nothing stays open, and the turn can be taken up."""
    reached, provider = asyncio.Event(), Played(cut("Hello, "), calling(call(), text="wo"), said("rld."), chunk=2)

    async def wait(place: str) -> None:
        if place == at and not reached.is_set():
            reached.set()
            await asyncio.Event().wait()

    async def stream(request: Request) -> AsyncIterator[Delta | ChatResponse]:
        if len(request.messages) > 1:
            await wait("provider")
        async with aclosing(provider.asynchronous(request)) as items:  # type: ignore[type-var]
            async for item in items:
                yield item
                if len(request.messages) > 1:
                    await wait("stream")

    async def search(asked: ToolCall) -> str:
        await wait("tool")
        return "found"

    controller = AsyncContinuationController(stream, tools={"search": search})
    with heard(TurnEnded) as ended:
        task = asyncio.create_task(controller.run(ask(tools=(SEARCH,))))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert current_turn() is None
    result: TurnResult = caught.value.turn_result  # type: ignore[attr-defined]
    assert (result.text, result.outcome, result.complete) == (text, "cancelled", False)
    assert [record.outcome for record in ended] == ["cancelled"]
    assert (await controller.run(result.resume())).complete


# --- Announcing -----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(42)
def test_what_a_continued_turn_announces() -> None:
    """Start, calls, the attempt with what is left, the tool, the end: in order, once each, with the turn."""
    with heard() as records:
        play(
            cut("Hello, ", tokens=100), calling(call(), text="wo"), said("rld.", tokens=7),
            request=ask(tools=(SEARCH,)), tools={"search": Recording()}, agent="support", conversation_id="c",
            provider_name="x_ai", new_id=lambda: "turn-1",
        )  # fmt: skip
    names = [type(record).__name__ for record in records]
    assert names == [
        "TurnStarted", "CallStarted", "CallEnded", "ContinuationAttempted", "CallStarted", "CallEnded",
        "ToolStarted", "ToolEnded", "CallStarted", "CallEnded", "TurnEnded",
    ]  # fmt: skip
    started, attempted, ended = records[0], records[3], records[-1]
    assert isinstance(started, TurnStarted)
    assert (started.turn.id, started.turn.agent, started.turn.conversation) == ("turn-1", "support", "c")
    assert isinstance(attempted, ContinuationAttempted)
    assert (attempted.provider, attempted.model) == ("x_ai", "m")
    assert (attempted.continuation.index, attempted.continuation.strategy) == (1, Strategy.PROMPT)
    assert (attempted.output_tokens, attempted.output_chars) == (100, 7)
    left = (attempted.attempts_remaining, attempted.tokens_remaining, attempted.chars_remaining)
    assert left == (2, 300, 119_993)
    calls = [record for record in records if isinstance(record, CallEnded)]
    assert [record.started.continuation is not None for record in calls] == [False, True, False]
    assert attempted.continuation.of == calls[0].started.number
    assert [record.started.iteration for record in calls] == [1, 2, 3]
    assert isinstance(ended, TurnEnded)
    assert (ended.outcome, ended.complete) == ("completed", True)
    turn = ended.turn
    assert (turn.iterations, turn.continuations, turn.truncated, turn.unfinished) == (3, 1, True, False)
    assert (turn.output_tokens, turn.output_chars) == (117, 13)


@pytest.mark.behaviour(42)
@pytest.mark.parametrize("layer", [Layer.CLIENT, Layer.HTTP, Layer.WRAPPER])
def test_a_layer_below_announces_instead(layer: Layer) -> None:
    """A client, an HTTP exchange or another wrapper inside announces the call; the controller makes no record."""
    script = iter([cut("Hello, "), said("world.")])

    def provider(request: Request) -> ChatResponse:
        inner = open_call(layer, provider="openai", model="inner")
        assert inner is not None
        with inner.step():
            response = next(script)
        inner.end(response.stop, usage=response.usage, output_chars=len(response.text))
        return response

    with heard() as records:
        result = ContinuationController(provider).run(ask())
    ended = [record for record in records if isinstance(record, CallEnded)]
    assert [record.started.model for record in ended] == ["inner", "inner"]
    assert [record.started.continuation is not None for record in ended] == [False, True]
    (turn,) = {record.started.turn for record in ended}
    assert (turn.iterations, turn.output_tokens, result.requests) == (2, 20, 2)


def test_the_scope_is_never_left_open_across_a_yield() -> None:
    """Between two items of a stream no turn is current; inside the provider and the tools it is."""
    seen = []

    def provider(request: Request) -> Iterator[Delta | ChatResponse]:
        seen.append(current_turn())
        yield Delta(text="a")
        yield calling(call("now", ""), text="a") if len(seen) == 1 else said("b")

    def now(asked: ToolCall) -> str:
        seen.append(current_turn())
        return "noon"

    for _ in ContinuationController(provider, tools={"now": now}).stream(ask(tools=(NOW,))):
        assert current_turn() is None
    assert len(seen) == 3
    assert len(set(seen)) == 1
    assert seen[0] is not None


@pytest.mark.behaviour(42)
@pytest.mark.parametrize(
    ("script", "unfinished"),
    [
        ([cut("a "), said("b")], False),
        ([cut("a ")] * 4, True),
        ([cut("")], True),
        ([said("a", StopReason.MISSING)], True),
        ([cut("a "), ProviderUnavailable("no")], True),
        ([said("a")], False),
    ],
)
def test_a_truncated_exit_is_never_a_success(script: list[Any], unfinished: bool) -> None:
    """The announced turn and the result agree on whether a truncation stands."""
    with heard(TurnEnded) as ended:
        _, result = play(*script)
    assert ended[0].turn.unfinished == unfinished
    assert ended[0].complete == result.complete == (not unfinished)
    assert ended[0].outcome is result.outcome


def test_the_outcomes_are_all_said_in_words() -> None:
    """Every outcome but a whole answer has a notice."""
    from endturn.continuation.result import NOTICES

    assert set(NOTICES) == set(TurnOutcome) - events.COMPLETE
