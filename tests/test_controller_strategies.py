"""How a turn goes on where a prompt is not the best way: tokens, fetching, prefill, the same question again; money."""

from __future__ import annotations

import json
from typing import Any

import pytest

from endturn.chat import Blocks, ChatResponse, Delta, Message, Request, Tool, ToolCall, Usage
from endturn.clients import Client
from endturn.continuation.policy import ContinuationPolicy
from endturn.controller import AsyncContinuationController, ContinuationController, TurnResult
from endturn.errors import ProviderError, ProviderUnavailable, RequestRejected, UsageError
from endturn.events import ContinuationAttempted, Strategy
from endturn.formats import capabilities, format_of
from endturn.scripted import ScriptedProvider, reason, say
from endturn.stop import Resume, StopReason
from tests.support.turns import SEARCH, Played, ask, call, calling, cut, heard, paused, said

OLD = "claude-sonnet-4-5-20250929"
NEW = "claude-opus-5"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def played(
    *script: ChatResponse | BaseException,
    request: Request | None = None,
    speaks: str = "openai_chat",
    slept: list[float] | None = None,
    chunk: int | None = None,
    says: dict[str, Any] | None = None,
    **policy: Any,
) -> tuple[Played, TurnResult]:
    """One turn over a script. `says` is what the provider function says of itself; `slept` takes the pauses."""
    provider = Played(*script, chunk=chunk)
    for name, value in (says or {}).items():
        setattr(provider, name, value)
    sleep = (slept if slept is not None else []).append
    controller = ContinuationController(provider, format=speaks, policy=ContinuationPolicy(**policy), sleep=sleep)
    return provider, controller.run(request or ask())


# --- Tokens, and fetching -----------------------------------------------------------------------------------------


@pytest.mark.behaviour(13)
@pytest.mark.behaviour(14)
def test_a_token_is_sent_back_without_a_prompt() -> None:
    """A native continuation token goes into the same request; the parts join as they are, and no attempt is spent."""
    script = (paused("One ", Resume.NATIVE_TOKEN, token="t1"), paused("two ", Resume.NATIVE_TOKEN, token="t2"))
    with heard() as records:
        provider, result = played(*script, said("three."), speaks="gemini")
    assert (result.text, result.complete, result.continuations) == ("One two three.", True, 0)
    assert [request.token for request in provider.requests] == [None, "t1", "t2"]
    assert all(message.role == "user" for request in provider.requests for message in request.messages)
    asked = [record for record in records if isinstance(record, ContinuationAttempted)]
    told = [(record.continuation.index, record.continuation.strategy) for record in asked]
    assert told == [(1, Strategy.NATIVE_TOKEN), (2, Strategy.NATIVE_TOKEN)]


@pytest.mark.behaviour(13)
def test_a_response_that_is_being_made_is_fetched_by_its_id() -> None:
    """It is asked for after a second, two, four …; what it brings replaces what there was, and stands once."""
    slept: list[float] = []
    being_made = paused("One", Resume.RETRIEVE_SAME_ID, id="resp_1")
    provider, result = played(
        being_made, paused("One two", Resume.RETRIEVE_SAME_ID, id="resp_1"), said("One two three.", id="resp_1"),
        speaks="openai_responses", slept=slept, says={"retrieves": True},
    )  # fmt: skip
    assert [request.retrieve for request in provider.requests] == [None, "resp_1", "resp_1"]
    assert slept == [1.0, 2.0]
    assert (result.text, result.complete) == ("One two three.", True)
    assert [message.text for message in result.messages] == ["hi", "One two three."]


@pytest.mark.behaviour(13)
async def test_the_async_controller_waits_without_blocking() -> None:
    """Its pauses are awaited."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    provider = Played(paused("", Resume.RETRIEVE_SAME_ID, id="r"), said("Done."))
    provider.retrieves = True  # type: ignore[attr-defined]  # what a provider function may say of itself
    result = await AsyncContinuationController(provider, format="openai_responses", sleep=sleep).run(ask())
    assert (result.text, slept) == ("Done.", [1.0])


# --- Prefill ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(14)
@pytest.mark.parametrize(
    ("model", "extra", "response"),
    [
        pytest.param(NEW, {}, cut("One "), id="a newer model"),
        pytest.param(
            OLD, {"thinking": {"type": "enabled", "budget_tokens": 50}}, cut("One "), id="thinking is asked for"
        ),
        pytest.param(OLD, {}, cut("One ", reasoning="Hm"), id="it has thought"),
    ],
)
def test_others_get_a_prompt(model: str, extra: dict[str, Any], response: ChatResponse) -> None:
    """A prefill is refused by newer models, and beside thinking."""
    request = ask(model=model, extra=extra, max_tokens=1000)
    provider, result = played(response, said("two."), request=request, speaks="anthropic")
    assert provider.requests[1].messages[-1].synthetic
    assert result.text == "One two."


@pytest.mark.behaviour(14)
def test_a_refused_prefill_is_asked_by_prompt_and_remembered() -> None:
    """A 400 on a prefill downgrades once, spends no attempt, and the next turn does not try again."""
    provider = Played(
        cut("One "), RequestRejected("no prefill", status=400), said("two."), cut("Three "), said("four.")
    )
    controller = ContinuationController(
        provider, format="anthropic", policy=ContinuationPolicy(continuation_max_attempts=1)
    )
    first, second = controller.run(ask(model=OLD)), controller.run(ask(model=OLD))
    assert (first.text, first.complete) == ("One two.", True)
    assert (second.text, second.complete) == ("Three four.", True)
    tails = [request.messages[-1].role for request in provider.requests]
    assert tails == ["user", "assistant", "user", "user", "user"]
    assert provider.requests[2].messages[:-2] == provider.requests[0].messages


@pytest.mark.behaviour(22)
@pytest.mark.behaviour(25)
def test_white_space_before_a_prefill_stands_once_everywhere() -> None:
    """In the history as in the text; and also where the prefill failed first, and the turn was taken up again."""
    _, result = played(cut("One "), said(" two."), request=ask(model=OLD), speaks="anthropic")
    assert [message.text for message in result.messages] == ["hi", "One two."]
    _, failed = played(cut("One "), ProviderUnavailable("busy"), request=ask(model=OLD), speaks="anthropic")
    resumed = ContinuationController(Played(said(" two.")), format="anthropic").run(failed.resume())
    assert resumed.text == resumed.messages[-1].text == "One two."


@pytest.mark.behaviour(14)
@pytest.mark.parametrize(
    ("speaks", "dialect", "model", "prefills"),
    [
        ("anthropic", "", "claude-sonnet-4-5", True),
        ("anthropic", "", "claude-haiku-4-5@20251001", True),
        ("bedrock_converse", "", "us.anthropic.claude-opus-4-1-20250805-v1:0", True),
        ("anthropic", "", "claude-3-opus-20240229", True),
        ("anthropic", "", "claude-sonnet-4-6", False),
        ("anthropic", "", "claude-opus-4-6", False),
        ("anthropic", "", "claude-opus-4-10", False),
        ("anthropic", "", "claude-opus-5-5", False),
        ("openai_chat", "vllm", "any", True),
        ("openai_chat", "mistral", "mistral-large-latest", True),
        ("openai_chat", "", "gpt-5", False),
        ("openai_responses", "", "gpt-5", False),
        ("completions", "", "any", True),
        ("gemini", "", "gemini-3-pro", False),
    ],
)
def test_the_record_of_who_takes_a_prefill(speaks: str, dialect: str, model: str, prefills: bool) -> None:
    """By format, dialect and model."""
    assert capabilities.of(speaks, dialect, model).prefill is prefills


# --- Where it does not go on --------------------------------------------------------------------------------------

TOKEN = paused("One ", Resume.NATIVE_TOKEN, token="t1")
LIMITED = {"continuation_max_total_completion_tokens": 1000, "request": ask(max_tokens=500)}
JSON = {"request": ask(format=SCHEMA)}
CLAUDE = {"request": ask(model=OLD), "speaks": "anthropic"}


def thinking(extra: dict[str, Any]) -> dict[str, Any]:
    """A request that sets 400 tokens aside for thinking, where 500 are left."""
    return {**LIMITED, "request": ask(max_tokens=500, extra=extra)}


ENDS: list[Any] = [
    # Nothing visible came: nothing is to be continued.
    ("empty", [cut("")], {}, 1, "no_progress"),
    ("white space", [cut(" \n")], {}, 1, "no_progress"),
    ("thinking shown", [cut("", reasoning="hm")], {}, 1, "reasoning_exhausted"),
    ("thinking counted", [cut("").but(usage=Usage(5, 100, 100))], {}, 1, "reasoning_exhausted"),
    ("a repetition", [cut("A sentence that is long enough."), cut("A sentence that is long enough.")], {}, 2,
     "no_progress"),
    *(("nothing after " + repr(half) + repr(nothing), [cut(half), said(nothing)], {}, 2, "no_progress")
      for half in ("Half of an answer that", "Half of it\n", "```python\nx = f(1)\n")
      for nothing in ("", " ", "\n", "\u200b", "\n \u200d\n")),
    ("calls that never came", [calling()], {"continuation_tool_repair_attempts": 0}, 1, "empty_response"),
    # A pause that nobody here can take up; a token that was sent and comes back would come back for ever.
    ("the same token", [TOKEN, paused("", Resume.NATIVE_TOKEN, token="t1")], {"speaks": "gemini"}, 2, "left_paused"),
    ("an SDK that follows tokens", [TOKEN], {"speaks": "gemini", "says": {"follows_tokens": True}}, 1, "left_paused"),
    *((f"resume {resume}", [paused("One", resume, id="r")], {}, 1, "left_paused")
      for resume in (Resume.RETRIEVE_SAME_ID, Resume.SERVER, Resume.NONE)),
    # A 401 on a prefill says nothing about prefills.
    ("no entry", [cut("One "), RequestRejected("who are you", status=401)], CLAUDE, 2, "provider_error"),
    # Half a JSON text is asked for again once; a whole answer that does not parse is no success. No brace is added.
    ("half of JSON, twice", [cut('{"a": 1'), cut('{"a": 1, "b": 2')], JSON, 2, "invalid_json"),
    *((f"no JSON: {text}", [said(text)], JSON, 1, "invalid_json")
      for text in ("Here you are: {}", '{"a": 1', "", '{"a": NaN}', '{"a": 1, "a": 2}')),
    # What is left must hold the thinking and an answer.
    *((f"no room for thinking: {extra}", [cut("a ", tokens=500)], thinking(extra), 1, "token_budget")
      for extra in (
          {"thinking": {"type": "enabled", "budget_tokens": 400}},
          {"thinking": {"type": "enabled", "token_budget": 400}},
          {"reasoning": {"max_tokens": 400}},
          {"generationConfig": {"thinkingConfig": {"thinkingBudget": 400}}},
          {"additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 400}}},
      )),
    # Servers that count zero tokens do not end the turn at once.
    ("a usage of nothing", [cut("a ", usage=Usage(0, 0)), said("b")], {"request": ask(max_tokens=None)}, 2,
     "completed"),
]  # fmt: skip
"""What a provider says, under which settings; how many calls are made, and how the turn ends."""


@pytest.mark.behaviour(13)
@pytest.mark.behaviour(14)
@pytest.mark.behaviour(15)
@pytest.mark.behaviour(16)
@pytest.mark.behaviour(17)
@pytest.mark.behaviour(31)
@pytest.mark.parametrize(("script", "settings", "calls", "outcome"), [row[1:] for row in ENDS],
                         ids=[row[0] for row in ENDS])  # fmt: skip
def test_where_a_turn_does_not_go_on(script: list[Any], settings: dict[str, Any], calls: int, outcome: str) -> None:
    """No call is made that would bring nothing, what there is of the answer is kept, and it is not called whole."""
    provider, result = played(*script, said("never"), **settings)
    assert (len(provider.requests), result.outcome, result.complete) == (calls, outcome, outcome == "completed")
    heard_last = [each.text for each in script if isinstance(each, ChatResponse) and each.text.strip()]
    assert not heard_last or result.text.strip().endswith(heard_last[-1].strip())


# --- The same question again ----------------------------------------------------------------------------------------


@pytest.mark.behaviour(31)
def test_half_a_json_text_is_asked_for_again_whole() -> None:
    """No nudge: the same question with all the tokens that are left; the half is forgotten, not stitched."""
    provider, result = played(cut('{"a": 1', tokens=100), said('{"a": 12}'), request=ask(format=SCHEMA))
    assert (result.text, result.complete, result.outcome) == ('{"a": 12}', True, "completed")
    assert provider.requests[1] == ask(format=SCHEMA, max_tokens=300)
    assert [message.text for message in result.messages] == ["hi", '{"a": 12}']


@pytest.mark.behaviour(31)
def test_without_a_native_constraint_the_text_is_continued_and_then_parsed() -> None:
    """A format that the API cannot be told is text like any other until it is whole."""
    request = ask(model=NEW, format={"type": "json_object"})
    provider, result = played(cut('{"a": '), said("12}"), request=request, speaks="anthropic")
    assert provider.requests[1].messages[-1].synthetic
    assert (result.text, result.complete) == ('{"a": 12}', True)


def streamed(controller: ContinuationController, request: Request) -> tuple[list[str], TurnResult]:
    """The texts that the consumer of a stream saw, one by one, and the result."""
    *deltas, result = controller.stream(request)
    assert isinstance(result, TurnResult)
    return [delta.text for delta in deltas if isinstance(delta, Delta)], result


@pytest.mark.behaviour(31)
def test_a_streamed_json_answer_is_held_until_it_is_whole() -> None:
    """The consumer never sees the half that is replaced."""
    provider = Played(cut('{"a": 1'), said('{"a": 12}'), chunk=3)
    seen, result = streamed(ContinuationController(provider), ask(format=SCHEMA))
    assert "".join(seen) == result.text == '{"a": 12}'
    assert json.loads(result.text) == {"a": 12}


@pytest.mark.behaviour(31)
def test_an_eager_json_stream_is_not_asked_for_again() -> None:
    """Text once given out is never taken back, and half a JSON text is not continued: the turn ends."""
    policy = ContinuationPolicy(stream_json="eager")
    for chunk in (3, None):
        provider = Played(cut('{"a": 1'), said("never"), chunk=chunk)
        seen, result = streamed(ContinuationController(provider, policy=policy), ask(format=SCHEMA))
        assert "".join(seen) == result.text == '{"a": 1'
        assert (result.outcome, result.complete, len(provider.requests)) == ("invalid_json", False, 1)


@pytest.mark.behaviour(31)
@pytest.mark.parametrize(
    ("speaks", "extra"),
    [
        ("openai_chat", {"response_format": {"type": "json_object"}}),
        ("openai_responses", {"text": {"format": {"type": "json_object"}}}),
        ("anthropic", {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}),
        ("gemini", {"generationConfig": {"responseMimeType": "application/json"}}),
        ("ollama", {"format": "json"}),
        ("cohere", {"response_format": {"type": "json_object"}}),
    ],
)
def test_json_asked_for_in_the_formats_own_words_is_asked_for_again_whole(speaks: str, extra: dict[str, Any]) -> None:
    """What the host put into `extra` is a setting like any other: no nudge, and the format goes out again."""
    provider = Played(cut('{"a": 1'), said('{"a": 12}'), chunk=3)
    seen, result = streamed(ContinuationController(provider, format=speaks), ask(extra=extra))
    assert ("".join(seen), result.text, result.complete) == ('{"a": 12}', '{"a": 12}', True)
    assert provider.requests[1] == ask(extra=extra, max_tokens=390)
    assert (
        ContinuationController(Played(said("no JSON")), format=speaks).run(ask(extra=extra)).outcome == "invalid_json"
    )


@pytest.mark.behaviour(17)
@pytest.mark.parametrize(
    ("speaks", "extra", "clamped"),
    [
        ("openai_chat", {"max_completion_tokens": 400}, {"max_completion_tokens": 300}),
        ("gemini", {"generationConfig": {"maxOutputTokens": 400}}, {"generationConfig": {"maxOutputTokens": 300}}),
        ("bedrock_converse", {"inferenceConfig": {"maxTokens": 400}}, {"inferenceConfig": {"maxTokens": 300}}),
        ("ollama", {"options": {"num_predict": 400}}, {"options": {"num_predict": 300}}),
    ],
)
def test_a_maximum_in_the_formats_own_words_is_clamped(
    speaks: str, extra: dict[str, Any], clamped: dict[str, Any]
) -> None:
    """It is the request's maximum: the first call's own, a continuation's as far as the budget goes."""
    provider = Played(cut("one ", tokens=400), said("two"))
    policy = ContinuationPolicy(continuation_max_total_completion_tokens=700)
    result = ContinuationController(provider, format=speaks, policy=policy).run(ask(max_tokens=None, extra=extra))
    assert result.complete
    assert [(request.max_tokens, request.extra) for request in provider.requests] == [(None, extra), (300, clamped)]
    provider = Played(cut("one ", tokens=60), said("two"))  # of a budget that four times the maximum leaves whole
    ContinuationController(provider, format=speaks).run(ask(max_tokens=None, extra=extra))
    assert provider.requests[1].max_tokens == 400


# --- What was to be replaced ----------------------------------------------------------------------------------------


@pytest.mark.behaviour(18)
@pytest.mark.behaviour(19)
@pytest.mark.parametrize("chunk", [None, 1, 3])
@pytest.mark.parametrize(
    ("first", "last", "mode", "form"),
    [
        (["Yes.", "Yes."], said(""), "response", None),
        (["No.", "Yes."], said(" \n"), "response", None),
        (["Yes."], ProviderError("down"), "response", None),
        (["Yes."], KeyboardInterrupt(), "response", None),
        (['{"a": 1'], ProviderError("down"), None, SCHEMA),
        (['{"a": 1'], KeyboardInterrupt(), None, SCHEMA),
        (['{"a": 1'], cut(""), None, SCHEMA),
    ],
)
def test_an_answer_stands_that_nothing_has_replaced(
    first: list[str], last: Any, mode: Any, form: Any, chunk: int | None
) -> None:
    """It was put aside because another was to come: the last that says anything is the answer, everywhere."""
    script = [said(text) if form is None else cut(text) for text in first]
    policy = ContinuationPolicy(mode=mode)
    controller = ContinuationController(Played(*script, last, chunk=chunk), policy=policy, tools={})
    seen: list[str] = []
    try:
        seen, result = streamed(controller, ask(format=form))
    except KeyboardInterrupt as stopped:
        result = stopped.turn_result  # type: ignore[attr-defined]
    assert (result.text, result.answer, result.restarted) == (first[-1], first[-1], False)
    assert [message.text for message in result.segments] == [first[-1]]
    assert [message.text for message in result.messages[1:]] == [first[-1]]
    assert "".join(seen) == (first[-1] if result.outcome != "cancelled" else "")


@pytest.mark.behaviour(19)
@pytest.mark.behaviour(32)
def test_what_stood_in_for_an_answer_is_replaced_when_the_turn_goes_on() -> None:
    """It was shown, so it stays in the text; the answer is the new one alone. If that fails too, it stands again."""
    policy = ContinuationPolicy(mode="response")
    provider = Played(said("Yes."), ProviderError("down"), ProviderError("down"), said("It is so, surely."), chunk=3)
    controller = ContinuationController(provider, policy=policy, tools={})
    result = controller.run(controller.run(ask()).resume())
    assert (result.text, result.answer, result.messages[-1].text) == ("Yes.", "Yes.", "Yes.")
    result = controller.run(result.resume())
    assert (result.text, result.answer, result.restarted) == ("Yes.It is so, surely.", "It is so, surely.", True)
    assert [message.text for message in result.messages] == ["hi", "It is so, surely."]


@pytest.mark.behaviour(32)
@pytest.mark.parametrize("chunk", [None, 1, 5])
def test_an_answer_in_the_room_that_was_made_begins_anew(chunk: int | None) -> None:
    """What was shown stays shown, and the new answer is marked; it alone is the answer, and goes into the history."""
    full = said("The answer to your question", StopReason.CONTEXT_WINDOW_EXCEEDED)
    policy = ContinuationPolicy(on_context_exceeded=lambda request, response: ask("shorter"))
    provider = Played(full, said("Something else."), chunk=chunk)
    *deltas, result = ContinuationController(provider, policy=policy).stream(ask())
    assert isinstance(result, TurnResult)
    shown = [delta for delta in deltas if isinstance(delta, Delta)]
    assert "".join(delta.text for delta in shown) == result.text == "The answer to your questionSomething else."
    assert sum(delta.restart for delta in shown) == 1
    assert (result.answer, result.restarted, result.complete) == ("Something else.", True, True)
    assert [message.text for message in result.messages] == ["hi", "Something else."]
    failed = ContinuationController(Played(full, ProviderError("down"), chunk=chunk), policy=policy).run(ask())
    assert (failed.text, failed.answer, failed.restarted) == (full.text, full.text, False)
    assert failed.messages[-1].text == full.text


@pytest.mark.behaviour(30)
@pytest.mark.behaviour(32)
def test_room_made_within_a_continuation_replaces_that_alone() -> None:
    """The beginning of the answer stands; what filled the window is asked for once more."""
    full = said("four fi", StopReason.CONTEXT_WINDOW_EXCEEDED)
    _, result = played(
        cut("One two three "), full, said("four five."),
        on_context_exceeded=lambda request, response: request.but(messages=request.messages[-2:]),
    )  # fmt: skip
    assert (result.text, result.answer) == ("One two three four fifour five.", "One two three four five.")
    assert result.messages[-1].text == result.answer


@pytest.mark.behaviour(30)
def test_a_continuation_that_began_anew_is_told_of() -> None:
    """It repeats the beginning and then goes on differently: appended whole, and marked."""
    text = "".join(f"line {number}\n" for number in range(300))
    _, result = played(cut(text), said(text[:1_500] + "another end"))
    assert (result.restarted, result.text) == (True, text + text[:1_500] + "another end")
    assert not played(cut("a "), said("b"))[1].restarted


@pytest.mark.behaviour(15)
def test_thinking_alone_may_be_given_more_room_once() -> None:
    """The same question with four times the tokens, as far as the budget goes; then no more."""
    thought = cut("", reasoning="Hm", tokens=100)
    provider, result = played(thought, said("42."), on_reasoning_only="escalate_once")
    assert (result.text, result.complete) == ("42.", True)
    assert provider.requests[1] == ask(max_tokens=300)  # 4 × 100 of output in all, of which 100 are gone
    provider, result = played(thought, thought, said("never"), on_reasoning_only="escalate_once")
    assert (len(provider.requests), result.outcome) == (2, "reasoning_exhausted")


@pytest.mark.behaviour(15)
def test_thinking_alone_may_be_asked_without_thinking_once() -> None:
    """The same question, thinking turned off in the format's own words."""
    provider, result = played(cut("", reasoning="Hm"), said("42."), on_reasoning_only="reasoning_off_once")
    assert (result.text, provider.requests[1].extra) == ("42.", {"reasoning_effort": "none"})
    assert provider.requests[1].messages == ask().messages


def test_the_host_may_make_room_in_a_full_window_once() -> None:
    """The hook is given the request and the response, and gives a shorter request, or gives up."""
    full = said("", StopReason.CONTEXT_WINDOW_EXCEEDED)
    asked: list[tuple[Request, ChatResponse]] = []

    def shorten(request: Request, response: ChatResponse) -> Request | None:
        asked.append((request, response))
        return ask("shorter")

    provider, result = played(full, said("Fits."), on_context_exceeded=shorten)
    assert (result.text, result.complete, len(asked)) == ("Fits.", True, 1)
    assert provider.requests[1] == ask("shorter")
    assert played(full, full, on_context_exceeded=shorten)[1].outcome == "context_window_exceeded"
    assert len(asked) == 2
    assert played(full, on_context_exceeded=lambda request, response: None)[1].outcome == "context_window_exceeded"
    with pytest.raises(UsageError, match="on_context_exceeded gives a Request"):
        played(full, on_context_exceeded=lambda request, response: "shorter")


# --- Money --------------------------------------------------------------------------------------------------------


def test_money_is_counted_where_the_provider_gives_no_usage() -> None:
    """The input too: calls, their arguments and results are in it. A figure that was given stays."""
    prices = {"m": (1e6, 0.0)}  # a dollar for each token of the input
    tool = Tool(name="search")
    call = ToolCall(id="1", name="search", arguments={"q": "x" * 31})  # 40 bytes of JSON
    history = (
        Message(role="user", content="y" * 40),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content=[{"type": "text", "text": "z" * 40}], tool_call_id="1"),
    )
    request = Request(model="m", messages=history, tools=(tool,), max_tokens=100)
    provider, result = played(cut("a ", tokens=None), request=request, prices=prices, max_cost=30.0)
    assert (len(provider.requests), result.outcome) == (1, "cost_budget")
    assert result.usage == Usage(30, 100, estimated=True)
    _, result = played(said("a", tokens=None, usage=Usage(input_tokens=7)), request=request)
    assert result.usage == Usage(7, 1, estimated=True)


def test_what_is_refused_or_being_made_costs_no_input() -> None:
    """A background job's prompt is counted when its answer is fetched, and once; a refused one is not."""
    making = said("", StopReason.PAUSED, resume=Resume.RETRIEVE_SAME_ID, id="r", tokens=None)
    says = {"retrieves": True}
    _, result = played(making, making, said("Done", tokens=None), request=ask("x" * 40), says=says)
    assert (result.text, result.usage) == ("Done", Usage(10, 1, estimated=True))
    full = said("", StopReason.CONTEXT_WINDOW_EXCEEDED, tokens=None)
    assert played(full, request=ask("x" * 40))[1].usage == Usage(None, 0, estimated=True)


def test_a_continuation_may_spend_no_more_than_is_left() -> None:
    """Its max_tokens are what the rest of the money buys."""
    prices = {"m": (0, 1e4)}  # a cent for each token of the output
    provider, _ = played(cut("a ", tokens=90), said("b"), prices=prices, max_cost=1.4)
    assert provider.requests[1].max_tokens == 50


def test_a_limit_without_a_price_is_a_mistake() -> None:
    """Money cannot be limited for a model that has no price."""
    with pytest.raises(UsageError, match="no price for 'm'"):
        played(said("x"), prices={"other": (1, 1)}, max_cost=1.0)


@pytest.mark.behaviour(13)
@pytest.mark.parametrize("speaks", ["openai_responses", "gemini_interactions"])
def test_our_client_fetches_what_is_being_made(speaks: str) -> None:
    """A background job through our own client: paused until it is done, then the answer."""
    name, path = {"openai_responses": ("openai", "/v1"), "gemini_interactions": ("gcp.gemini", "/v1beta")}[speaks]
    being_made = reason("in_progress", "")
    scripted = ScriptedProvider([being_made, being_made, say("Done.")])
    slept: list[float] = []
    with scripted.serve() as url, Client(name, api_key="none", base_url=url + path, format=speaks) as client:
        controller = ContinuationController(client, sleep=slept.append)
        result = controller.run(ask(extra={"background": True}))
    assert (result.text, result.complete, slept) == ("Done.", True, [1.0, 2.0])
    assert [request.retrieve is not None for request in scripted.requests] == [False, True, True]


# --- What a continuation must not lose ----------------------------------------------------------------------------


@pytest.mark.behaviour(23)
def test_signatures_stay_over_a_continuation() -> None:
    """The joined answer holds both parts' thinking, signed, in its order: a tool loop with thinking needs it."""

    def thought(number: int, *more: dict[str, Any]) -> Blocks:
        return Blocks("anthropic", ({"type": "thinking", "thinking": "Hm", "signature": f"S{number}"}, *more))

    first = cut("One ", reasoning="Hm", blocks=thought(1, {"type": "text", "text": "One "}))
    second = said("two.", reasoning="Hm", blocks=thought(2, {"type": "text", "text": "two."}))
    _, result = played(first, second, request=ask(model=NEW, max_tokens=1000), speaks="anthropic")
    written = format_of("anthropic").encode(ask().but(messages=result.messages))["messages"][-1]
    assert [block.get("signature", block.get("text")) for block in written["content"]] == ["S1", "One ", "S2", "two."]


@pytest.mark.behaviour(24)
@pytest.mark.parametrize("speaks", ["openai_chat", "anthropic", "gemini", "bedrock_converse", "ollama"])
def test_arguments_that_came_as_text_are_sent_as_they_were_run(speaks: str) -> None:
    """A provider function may give a call's arguments as text alone; the history holds what was run."""
    asks = calling(call(arguments='{"q": "x"}').but(arguments=None))
    provider = Played(asks, said("Done."))
    controller = ContinuationController(provider, tools=[(SEARCH, lambda call: "found")], format=speaks)
    controller.run(ask())
    assert '"x"' in json.dumps(format_of(speaks).encode(provider.requests[1])).replace('\\"', '"')


@pytest.mark.behaviour(17)
def test_a_repair_counts_against_the_budget_whatever_comes_of_it() -> None:
    """The cut payload and the repair that succeeded have used the tokens that a later continuation would need."""
    script = (
        cut("", calls=[call(arguments='{"q": ', closed=False)], tokens=100),
        calling(call(), tokens=150),
        cut("a ", tokens=100),
        said("never"),
    )
    provider = Played(*script)
    controller = ContinuationController(
        provider,
        tools=[(SEARCH, lambda call: "found")],
        policy=ContinuationPolicy(continuation_max_total_completion_tokens=300),
    )
    result = controller.run(ask())
    assert (len(provider.requests), result.outcome) == (3, "token_budget")
