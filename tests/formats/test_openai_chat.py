"""The chat format: its dialects' habits, requests, and what a continuation sends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

from endturn.chat import Blocks, ChatResponse, Delta, Json, Message, Request, Tool, ToolCall, Usage
from endturn.errors import DecodeError, ProviderError, UsageError
from endturn.formats import Context, Event, RequestSummary, summarize
from endturn.formats.openai_chat import FORMAT as chat
from endturn.records import Strategy
from endturn.sdk_objects import dumped
from endturn.stop import Resume, Stop, StopReason
from tests.formats.replies import (
    CHAT,
    CHAT_STREAMS,
    CLOCK,
    DONE_EVENT,
    IMAGE,
    WEATHER,
    call_chunk,
    chat_body,
    chat_call,
    chunk,
    usage_chunk,
)

CTX = Context()


def stop_of(body: Json, **ctx: Any) -> Stop:
    """The Stop of a body."""
    return chat.decode(body, ctx=Context(**ctx)).stop


def streamed(*events: Event, ctx: Context = CTX) -> ChatResponse:
    """The response of a stream."""
    decoder = chat.decoder(ctx)
    for event in events:
        list(decoder.feed(event))
    return decoder.close()


def deltas_of(events: list[Event]) -> list[Delta]:
    """The deltas of a stream."""
    decoder = chat.decoder(CTX)
    return [delta for event in events for delta in decoder.feed(event)]


# What responses say of the stop


@pytest.mark.parametrize(
    ("name", "reason", "raw"),
    [
        ("text", "end_turn", "stop"),
        ("length", "max_tokens", "length"),
        ("reasoning only", "max_tokens", "length"),
        ("tool calls", "tool_call", "tool_calls"),
        ("forced tool", "tool_call", "stop"),
        ("cut call that parses", "max_tokens", "length"),
        ("legacy", "tool_call", "function_call"),
        ("refusal", "refused", "stop"),
        ("filtered", "safety_blocked", "content_filter"),
        ("unknown", "unknown", "tired"),
        ("null", "missing", None),
    ],
)
def test_reasons_of_bodies(name: str, reason: str, raw: str | None) -> None:
    """Each real-shaped body has its reason, the raw value beside it."""
    stop = stop_of(CHAT[name])
    assert (stop.reason, stop.raw) == (reason, raw)


def test_usage_counts_cached_and_reasoning_as_parts() -> None:
    """Cached tokens are part of the prompt's, reasoning part of the completion's."""
    assert chat.decode(CHAT["text"], ctx=CTX).usage == Usage(31, 17, 5, 8)


@pytest.mark.behaviour(6)
def test_a_used_up_budget_is_suspected_in_streams_too() -> None:
    """The usage chunk after the finish reason is read: vLLM hides `length` behind `tool_calls`."""
    ctx = Context(asked=RequestSummary(maximum=17))
    response = streamed(call_chunk(0, "{}", "a", "f"), chunk({}, "tool_calls"), usage_chunk(), DONE_EVENT, ctx=ctx)
    assert (response.stop.reason, response.stop.suspected) == (StopReason.TOOL_CALL, True)


@pytest.mark.behaviour(7)
def test_length_at_the_window() -> None:
    """LM Studio says `length` for a full window; the numbers tell."""
    body = chat_body({"content": "x"}, "length", usage={"prompt_tokens": 29_986, "completion_tokens": 14})
    assert stop_of(body, window=30_000).reason is StopReason.CONTEXT_WINDOW_EXCEEDED


@pytest.mark.behaviour(4)
@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        pytest.param([WEATHER, CLOCK], "tool_call", id="complete"),
        pytest.param([WEATHER, chat_call("b", "clock", '{"zone": ')], "missing", id="the last is cut"),
        pytest.param([], "missing", id="none"),
    ],
)
def test_a_null_reason_in_a_body(calls: list[Json], reason: str) -> None:
    """Without a reason, the last call itself must show that it is whole."""
    body = chat_body({"tool_calls": calls}, None)
    assert stop_of(body).reason == reason
    summarizer = chat.summarizer(CTX)
    summarizer.feed(dumped(body))
    assert summarizer.close().stop.reason == reason


@pytest.mark.behaviour(9)
def test_the_first_terminal_wins() -> None:
    """OpenRouter's error chunk after `length` becomes detail; nothing is raised."""
    stop = streamed(*CHAT_STREAMS["error after length"]).stop
    assert (stop.reason, stop.raw, stop.detail) == (StopReason.MAX_TOKENS, "length", "Token limit reached")
    assert streamed(chunk({"content": "x"}, "length"), chunk({"content": "y"}, "stop")).text == "x"


@pytest.mark.behaviour(9)
@pytest.mark.parametrize(
    ("events", "said", "reason", "raw"),
    [
        pytest.param(CHAT_STREAMS["stop on every chunk"], "The answer is 42.", "end_turn", "stop", id="whole"),
        pytest.param(
            [chunk({"content": "The answer"}, "stop"), chunk({"content": " is"})],
            *("The answer is", "missing", None),
            id="cut after it was taken back",
        ),
        pytest.param(
            [chunk({"content": "Let me look."}, "stop"), call_chunk(0, "{}", "a", "f"), chunk({}, "tool_calls")],
            *("Let me look.", "tool_call", "tool_calls"),
            id="calls after it",
        ),
        pytest.param(
            [chunk({"content": "One"}, "stop"), chunk({"content": " two"}, "stop"), chunk({}, "length")],
            *("One two", "max_tokens", "length"),
            id="the last says that it is cut",
        ),
        pytest.param(
            [chunk({"content": "One"}, "length"), chunk({"content": " two"}, "stop")],
            *("One", "max_tokens", "length"),
            id="a cut stands",
        ),
        pytest.param(
            [chunk({"content": "One"}), chunk({}, "stop"), chunk({"content": ""}, "length"), usage_chunk()],
            *("One", "end_turn", "stop"),
            id="nothing said after it",
        ),
        pytest.param(
            [chunk({"content": "One"}, "stop", error=None), chunk({}, "error", error={"message": "Overloaded"})],
            *("One", "end_turn", "stop"),
            id="an error after it",
        ),
        pytest.param(
            [chunk({"content": "One"}, "tired"), chunk({"content": " two"}, "stop")],
            *("One two", "end_turn", "stop"),
            id="a word that nobody knows",
        ),
        pytest.param(
            [chunk({"content": "One"}, "null"), chunk({"content": " two"}, "None"), chunk({}, "stop")],
            *("One two", "end_turn", "stop"),
            id="null as text",
        ),
        pytest.param([chunk({"content": "One"}, "null")], "One", "missing", None, id="nothing but null as text"),
    ],
)
def test_text_after_a_clean_reason_takes_it_back(events: list[Event], said: str, reason: str, raw: str | None) -> None:
    """Translating proxies say `stop` on every chunk: no text and no call is lost, and only the last reason counts."""
    response = streamed(*events)
    assert (response.text, response.stop.reason, response.stop.raw) == (said, reason, raw)
    assert "".join(delta.text for delta in deltas_of(events)) == said
    construct: Any = ChatCompletionChunk.construct
    plain = [event.data for event in events if event != DONE_EVENT]
    for things in (plain, [construct(**each) for each in plain]):
        summarizer = chat.summarizer(CTX)
        for thing in things:
            summarizer.feed(dumped(thing))
        assert (summarizer.close().stop, summarizer.close().tail) == (response.stop, said)


def test_a_null_as_text_is_none_in_a_body_too() -> None:
    """The word is no reason, read the short way or the long."""
    body = chat_body({"content": "One"}, "null")
    assert (stop_of(body).reason, stop_of(body).raw) == (StopReason.MISSING, None)
    assert summarize(chat, CTX, dumped(body)).stop == stop_of(body)


# A whole message at the end of a stream


def ended(message: Json, reason: Any = "stop") -> Event:
    """MiniMax's last chunk: a whole body, with usage."""
    return Event(None, chat_body(message, reason))


@pytest.mark.parametrize(
    ("told", "message", "said"),
    [
        pytest.param(["Hello", " world"], {"content": "Hello world"}, "Hello world", id="all was said"),
        pytest.param(["Hello"], {"content": "Hello world"}, "Hello world", id="the rest was not"),
        pytest.param([], {"content": "Hello world"}, "Hello world", id="nothing was"),
        pytest.param(["\n\nHello"], {"content": "Hello"}, "\n\nHello", id="said otherwise"),
        pytest.param(["Hello"], {"content": None}, "Hello", id="it says nothing"),
        pytest.param(["Hello"], {"content": [{"type": "text", "text": "Hello you"}]}, "Hello you", id="in parts"),
    ],
)
def test_a_message_at_the_end_of_a_stream_repeats_it(told: list[str], message: Json, said: str) -> None:
    """Only what was not said is taken of it; its reason and usage count."""
    events = [chunk({"content": ""}), *[chunk({"content": piece}) for piece in told], ended(message, "length")]
    response = streamed(*events)
    assert response.text == said == "".join(delta.text for delta in deltas_of(events))
    assert (response.stop.raw, response.stop.terminal_seen) == ("length", True)
    assert response.usage == Usage(31, 17, 5, 8)
    assert response.blocks is not None
    kept = response.blocks.items[0]["content"]
    assert kept == (said if isinstance(kept, str) else message["content"])
    construct: Any = ChatCompletionChunk.construct
    for things in ([event.data for event in events], [construct(**event.data) for event in events]):
        summarizer = chat.summarizer(CTX)
        for thing in things:
            summarizer.feed(dumped(thing))
        seen = summarizer.close()
        assert (seen.stop, seen.usage, seen.tail) == (response.stop, response.usage, said)


def test_a_message_at_the_end_repeats_thinking_refusal_and_calls() -> None:
    """A call is known again by its id, or its place and name; arguments that were not said are taken, new calls too."""
    thought = chunk({"reasoning_content": "hm", "annotations": [{"n": 1}]})
    begun = [thought, call_chunk(0, '{"city": "Zür', "call_a", "weather"), call_chunk(1, "{}", None, "clock")]
    calls = [WEATHER, chat_call(None, "clock", "{}"), chat_call("call_c", "clock", "{}")]
    message = {"reasoning_content": "hm, well", "tool_calls": calls, "annotations": [{"n": 1}, {"n": 2}]}
    response = streamed(*begun, ended(message, "tool_calls"), DONE_EVENT)
    assert response.reasoning == "hm, well"
    assert [(call.name, call.arguments) for call in response.tool_calls] == [
        ("weather", {"city": "Zürich", "days": [1, 2]}),
        ("clock", {}),
        ("clock", {}),
    ]
    assert (response.stop.reason, all(call.closed for call in response.tool_calls)) == (StopReason.TOOL_CALL, True)
    assert response.blocks is not None
    assert response.blocks.items[0]["annotations"] == [{"n": 1}, {"n": 2}]
    refused = streamed(chunk({"refusal": "I can't."}), chunk({}, "stop"), ended({"refusal": "I can't."}), DONE_EVENT)
    assert (refused.text, refused.stop.reason) == ("I can't.", StopReason.REFUSED)


@pytest.mark.parametrize(
    ("native", "reason", "raw"),
    [
        ("MAX_TOKENS", "max_tokens", "MAX_TOKENS"),
        ("model_context_window_exceeded", "context_window_exceeded", "model_context_window_exceeded"),
        ("refusal", "refused", "refusal"),
        ("never heard of", "end_turn", "stop"),
        (None, "end_turn", "stop"),
    ],
)
def test_openrouter_native_reasons_come_first(native: str | None, reason: str, raw: str) -> None:
    """The upstream's word counts where it has a row; `stop` may hide it."""
    body = chat_body({"content": "x"}, "stop")
    body["choices"][0]["native_finish_reason"] = native
    stop = stop_of(body, dialect="openrouter")
    assert (stop.reason, stop.raw) == (reason, raw)
    assert stop_of(body).raw == "stop"  # OpenAI has no such member.


def test_a_clean_native_reason_hides_no_cut() -> None:
    """Where the gateway says `length`, the upstream's "completed" does not make it whole."""
    body = chat_body({"content": "x"}, "length")
    body["choices"][0]["native_finish_reason"] = "completed"
    assert stop_of(body, dialect="openrouter").reason is StopReason.MAX_TOKENS


@pytest.mark.behaviour(11)
def test_one_answer_split_over_choices_is_merged() -> None:
    """GitHub Copilot: text in the first choice, the calls in the second; the tool reason wins."""
    body = chat_body({"content": "Let me look."}, "stop")
    second = {"index": 1, "message": {"role": "assistant", "tool_calls": [WEATHER]}, "finish_reason": "tool_calls"}
    body["choices"].append(second)
    response = chat.decode(body, ctx=CTX)
    assert (response.text, len(response.tool_calls)) == ("Let me look.", 1)
    assert (response.stop.reason, response.stop.raw) == (StopReason.TOOL_CALL, "tool_calls")
    second["finish_reason"] = "length"
    assert stop_of(body).reason is StopReason.MAX_TOKENS


def test_a_part_of_a_split_answer_that_never_ended_is_cut() -> None:
    """In a stream, `stop` on the first choice does not end the second."""
    events = CHAT_STREAMS["split"]
    last = events[2].data["choices"][0]
    open_ = Event(None, {"choices": [{**last, "finish_reason": None}]})
    assert streamed(events[0], events[1], open_).stop.reason is StopReason.MISSING


@pytest.mark.behaviour(11)
def test_several_choices_are_normalised_each_and_the_first_counts() -> None:
    """With n > 1 the answer is choice 0; every choice's raw reason is reported."""
    ctx = Context(asked=RequestSummary(choices=3))
    body = chat_body({"content": "one"}, "length")
    body["choices"] += [
        {"index": 1, "message": {"content": "two", "tool_calls": [WEATHER]}, "finish_reason": "tool_calls"},
        {"index": 2, "message": {"content": "three"}, "finish_reason": None},
    ]
    response = chat.decode(body, ctx=ctx)
    assert (response.text, response.tool_calls, response.stop.reason) == ("one", (), StopReason.MAX_TOKENS)
    summarizer = chat.summarizer(ctx)
    summarizer.feed(dumped(body))
    seen = summarizer.close()
    assert seen.reasons == ("length", "tool_calls", None)
    assert (seen.stop, seen.output_chars) == (response.stop, 3)


def test_a_message_in_the_midst_of_a_stream_makes_nothing_whole() -> None:
    """Calls of a stream without a finish reason are cut, whatever else is in its chunks."""
    odd = Event(None, {"choices": [{"index": 0, "message": {"content": "x"}}]})
    assert streamed(call_chunk(0, "{}", "a", "f"), odd).stop.reason is StopReason.MISSING


def test_interleaved_choices_of_a_stream() -> None:
    """Chunks of other choices are not the answer's text."""
    ctx = Context(asked=RequestSummary(choices=2))
    events = [chunk({"content": word}, index=index) for word in "abc" for index in (0, 1)]
    events += [chunk({}, "length", index=1), chunk({}, "stop", index=0)]
    response = streamed(*events, ctx=ctx)
    assert (response.text, response.stop.reason) == ("abc", StopReason.END_TURN)
    summarizer = chat.summarizer(ctx)
    for event in events:
        summarizer.feed(event.data)
    assert (summarizer.close().tail, summarizer.close().reasons) == ("abc", ("stop", "length"))


@pytest.mark.parametrize(
    ("extra", "detail"),
    [({"stop_reason": "###"}, "###"), ({"stop_reason": 128009}, None), ({"matched_stop": "END"}, "END"), ({}, None)],
)
def test_the_stop_string_that_matched(extra: Json, detail: str | None) -> None:
    """vLLM's `stop_reason` and SGLang's `matched_stop`: strings are told, token numbers are not."""
    body = chat_body({"content": "x"})
    body["choices"][0] |= extra
    assert stop_of(body, dialect="vllm").detail == detail


def test_sglang_reasons_are_objects() -> None:
    """The type is the reason; what an abort says is detail."""
    body = chat_body({"content": "x"}, {"type": "abort", "message": "client left", "status_code": 499})
    stop = stop_of(body, dialect="sglang")
    assert (stop.reason, stop.raw, stop.detail) == (StopReason.CANCELLED, "abort", "client left")


@pytest.mark.parametrize(
    ("dialect", "raw", "reason"),
    [("tgi", "eos_token", "end_turn"), ("", "eos_token", "unknown"), ("someone's server", "eos_token", "end_turn")],
)
def test_a_dialect_knows_its_own_words(dialect: str, raw: str, reason: str) -> None:
    """OpenAI has no `eos_token`; a server that nobody named may speak any dialect."""
    assert stop_of(chat_body({"content": "x"}, raw), dialect=dialect).reason == reason


# What responses hold


def test_calls_are_closed_by_the_next_or_by_a_reason() -> None:
    """Of a truncated response every call but the last is closed, in bodies and in streams."""
    for response in (
        chat.decode(CHAT["cut call that parses"], ctx=CTX),
        streamed(*CHAT_STREAMS["cut call"]),
        streamed(*CHAT_STREAMS["tool calls"][:6]),
    ):
        assert [call.closed for call in response.tool_calls] == [True, False]
    assert [call.closed for call in streamed(*CHAT_STREAMS["tool calls"]).tool_calls] == [True, True]


@pytest.mark.parametrize("indices", [(0, 0), (None, None), (0, 1)])
def test_parallel_calls_with_any_indices(indices: tuple[int | None, int | None]) -> None:
    """One index for all, or none: a new id with a name begins a new call."""
    events = [
        call_chunk(indices[0], "", "a", "f"),
        call_chunk(indices[0], '{"x": 1}'),
        call_chunk(indices[1], "", "b", "g"),
        call_chunk(indices[1], "{}"),
        chunk({}, "tool_calls"),
    ]
    calls = streamed(*events).tool_calls
    assert [(call.id, call.name, call.arguments) for call in calls] == [("a", "f", {"x": 1}), ("b", "g", {})]


def test_a_new_id_on_every_chunk_is_one_call() -> None:
    """Some servers mint an id per chunk; without a name it is the same call."""
    events = [call_chunk(0, "{", "a", "f"), call_chunk(0, "}", "b"), call_chunk(0, "", "c"), chunk({}, "tool_calls")]
    (call,) = streamed(*events).tool_calls
    assert (call.id, call.arguments) == ("a", {})


@pytest.mark.parametrize("index", [0, None])
@pytest.mark.parametrize("id_", ["", None], ids=["empty", "none"])
@pytest.mark.parametrize(
    ("fragments", "expected"),
    [
        pytest.param([("f", '{"a":1}'), ("g", "{}")], [("f", '{"a":1}'), ("g", "{}")], id="another name"),
        pytest.param(
            [("f", ""), (None, '{"a"'), (None, ":1}"), ("g", ""), (None, "{"), (None, "}")],
            [("f", '{"a":1}'), ("g", "{}")],
            id="another name, in pieces",
        ),
        pytest.param([("f", '{"a"'), ("f", ":{"), ("f", "}}")], [("f", '{"a":{}}')], id="the name in every chunk"),
        pytest.param([("f", '{"a":"}'), ("f", '{\\"'), ("f", '"}')], [("f", '{"a":"}{\\""}')], id="braces in text"),
        pytest.param(
            [("f", '{"a":1}'), ("f", '{"b"'), (None, ":2}")], [("f", '{"a":1}'), ("f", '{"b":2}')], id="the name twice"
        ),
        pytest.param([("f", '{"a"'), ("g", "{}")], [("f", '{"a"'), ("g", "{}")], id="another name before it is whole"),
    ],
)
def test_calls_without_ids_are_told_apart_by_name(
    index: int | None, id_: str | None, fragments: list[tuple[str | None, str]], expected: list[tuple[str, str]]
) -> None:
    """One index for all, or none, and no id: another name begins a call, the same one only with another object."""
    events = [call_chunk(index, piece, id_, name) for name, piece in fragments]
    events.append(chunk({}, "tool_calls"))
    decoder, summarizer = chat.decoder(CTX), chat.summarizer(CTX)
    deltas: list[Delta] = []
    for event in events:
        deltas += decoder.feed(event)
        summarizer.feed(event.data)
    response = decoder.close()
    assert [(call.name, call.arguments_raw) for call in response.tool_calls] == expected
    assert len({call.id for call in response.tool_calls}) == len(expected)
    assert {delta.call.index for delta in deltas if delta.call} == set(range(len(expected)))
    assert summarizer.close().stop == response.stop


def test_a_second_call_of_one_name_may_be_named_by_a_chunk_of_its_own() -> None:
    """A name alone, after whole arguments: it begins a call when new arguments come, else it is an echo."""
    echoed = [call_chunk(0, '{"a":1}', "", "f"), call_chunk(0, "", "", "f")]
    end = chunk({}, "tool_calls")
    assert [call.arguments for call in streamed(*echoed, end).tool_calls] == [{"a": 1}]
    more = [call_chunk(0, "", ""), call_chunk(0, '{"b"', ""), call_chunk(0, ":2}", "")]
    calls = streamed(*echoed, *more, end).tool_calls
    assert [(call.name, call.arguments, call.closed) for call in calls] == [
        ("f", {"a": 1}, True),
        ("f", {"b": 2}, True),
    ]


def test_an_id_outranks_a_name() -> None:
    """A fragment with the id of its call goes on with it, whatever else it repeats."""
    again = [call_chunk(0, "{", "a", "f"), call_chunk(0, "}", "a", "f"), call_chunk(0, "{}", "a", "f")]
    assert len(streamed(*again, chunk({}, "tool_calls")).tool_calls) == 1


@pytest.mark.parametrize("dialect", ["groq", ""])
@pytest.mark.parametrize(
    ("word", "raw", "resume"),
    [("tool_use_failed", "tool_use_failed", Resume.REPAIR), ("over capacity", "error", Resume.NONE)],
)
@pytest.mark.parametrize("choices", [True, False], ids=["with a choice", "without choices"])
def test_groqs_error_word_within_a_stream(word: str, raw: str, resume: Resume, dialect: str, choices: bool) -> None:
    """`x_groq.error` is an error, resumed like the HTTP answer of the same code; after a finish reason it is detail."""
    said = [chunk({"role": "assistant", "content": ""}, x_groq={"id": "req_1"}), chunk({"content": "Once"})]
    failed = chunk({}, x_groq={"id": "req_1", "error": word})
    if not choices:
        failed = Event(None, {**failed.data, "choices": []})
    ctx = Context(dialect=dialect, provider="groq")
    decoder = chat.decoder(ctx)
    for event in said:
        list(decoder.feed(event))
    with pytest.raises(ProviderError, match=word) as raised:
        decoder.feed(failed)
    assert raised.value.partial is not None
    assert raised.value.partial.text == "Once"
    construct: Any = ChatCompletionChunk.construct
    for events in ([*said, failed], [construct(**event.data) for event in (*said, failed)]):
        summarizer = chat.summarizer(ctx)
        for event in events:
            summarizer.feed(dumped(event))
        stop = summarizer.close().stop
        assert (stop.reason, stop.raw, stop.detail, stop.resume) == (StopReason.ERROR, raw, word, resume)
        assert stop == raised.value.partial.stop
    late = streamed(*said, chunk({}, "length"), failed, ctx=ctx).stop
    assert (late.reason, late.detail) == (StopReason.MAX_TOKENS, word)


def test_missing_ids_are_minted_alike() -> None:
    """Body and stream mint the same ids, distinct within a response and across responses; blocks carry them."""
    body = CHAT["no call id"]
    response = chat.decode(body, ctx=CTX)
    ids = [call.id for call in response.tool_calls]
    assert len(set(ids)) == 2
    assert all(id_.startswith("call_") for id_ in ids)
    assert response.blocks is not None
    assert [call["id"] for call in response.blocks.items[0]["tool_calls"]] == ids
    other = chat.decode({**body, "id": "chatcmpl-other"}, ctx=CTX)
    assert not set(ids) & {call.id for call in other.tool_calls}


@pytest.mark.parametrize(
    ("raw", "parsed"),
    [
        ("{}", {}),
        ('{"a": [1, null]}', {"a": [1, None]}),
        ("", None),
        ("[]", None),
        ('{"a": 1', None),
        ('{"a": NaN}', None),
        ('{"a": 1e999}', None),
        ('{"a": 1, "a": 2}', None),
        ("{} {}", None),
    ],
)
def test_arguments_parse_strictly(raw: str, parsed: Json | None) -> None:
    """What is not one plain JSON object has no parsed arguments; the text stays."""
    (call,) = chat.decode(chat_body({"tool_calls": [chat_call("a", "f", raw)]}, "tool_calls"), ctx=CTX).tool_calls
    assert (call.arguments_raw, call.arguments) == (raw, parsed)


@pytest.mark.behaviour(23)
def test_members_that_a_replay_needs_are_kept() -> None:
    """Gemini's thought signature stands on the call, OpenRouter's reasoning details on the message."""
    signature = {"google": {"thought_signature": "c2ln"}}
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    events = [
        chunk({"reasoning": "hm", "reasoning_details": details}),
        chunk({"tool_calls": [{"index": 0, **WEATHER, "extra_content": signature}]}),
        chunk({}, "tool_calls"),
    ]
    response = streamed(*events)
    body = chat.encode(Request(model="m", messages=(response.message(),)))
    (message,) = body["messages"]
    assert message["tool_calls"] == [{**WEATHER, "extra_content": signature}]
    assert message["reasoning_details"] == details
    assert response.reasoning == "hm"


@pytest.mark.behaviour(23)
def test_reasoning_details_are_replayed_whole() -> None:
    """OpenRouter streams an entry in fragments, its signature last and alone; a provider wants it beside its text."""
    claude: Json = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    secret = {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "format": "anthropic-claude-v1", "index": 0}
    fragments = [
        {**claude, "text": "I should"},
        {**claude, "text": " look."},
        {**claude, "signature": "EqQBCkYI"},
        secret,
        {**secret, "id": "rs_2"},
        {**claude, "index": 1, "text": "And", "id": None},
        {**claude, "index": 1, "text": " again.", "signature": None},
        {"type": "reasoning.summary", "summary": "**Loo", "format": None},
        {"type": "reasoning.summary", "summary": "king**"},
        {"type": "reasoning.encrypted", "data": "a"},
        {"type": "reasoning.encrypted", "data": "b"},
    ]
    events = [chunk({"reasoning": "x", "reasoning_details": [each]}) for each in fragments]
    response = streamed(*events, chunk({"content": "Well."}), chunk({}, "stop"))
    (message,) = chat.encode(Request(model="m", messages=(response.message(),)))["messages"]
    assert message["reasoning_details"] == [
        {**claude, "text": "I should look.", "signature": "EqQBCkYI"},
        secret,
        {**secret, "id": "rs_2"},
        {**claude, "index": 1, "text": "And again."},
        {"type": "reasoning.summary", "summary": "**Looking**"},
        {"type": "reasoning.encrypted", "data": "a"},
        {"type": "reasoning.encrypted", "data": "b"},
    ]


@pytest.mark.behaviour(23)
def test_reasoning_details_of_a_body_are_verbatim() -> None:
    """What came whole is sent back as it came; so is what a message at the end of a stream has whole."""
    details: list[Json] = [{"type": "reasoning.text", "text": word, "index": 0} for word in ("a", "b")]
    said = {"content": "x", "reasoning_details": details}
    for response in (
        chat.decode(chat_body(said), ctx=CTX),
        streamed(chunk({"content": "x", "reasoning_details": details[:1]}), ended(said)),
    ):
        assert chat.encode(Request(model="m", messages=(response.message(),)))["messages"][0]["reasoning_details"] == (
            details
        )


@pytest.mark.behaviour(23)
@pytest.mark.parametrize("stream", [False, True])
def test_a_spoken_answer_is_sent_back_by_its_id(stream: bool) -> None:
    """The transcript is the text, as what the user hears; OpenAI takes the audio's id back, and nothing else of it."""
    response = streamed(*CHAT_STREAMS["audio"]) if stream else chat.decode(CHAT["audio"], ctx=CTX)
    assert response.text == ("Good day." if stream else "Hi.")
    assert response.blocks is not None
    assert response.blocks.items[0]["audio"]["transcript"] == response.text
    (message,) = chat.encode(Request(model="m", messages=(response.message(),)))["messages"]
    assert (message["content"], message["audio"]) == (None, {"id": "audio_abc"})
    cut = chat.encode(chat.resume(REQUEST, response, prompt="Go on."))["messages"][-2]
    assert cut == {"role": "assistant", "content": response.text}


def test_a_spoken_answer_without_an_id_is_sent_back_as_text() -> None:
    """Qwen's audio has no id to come back by; sound alone, without either, says nothing."""
    response = streamed(chunk({"audio": {"transcript": "Good day."}}), chunk({}, "stop"))
    (message,) = chat.encode(Request(model="m", messages=(response.message(),)))["messages"]
    assert (message["content"], "audio" in message) == ("Good day.", False)
    mute = chat.decode(chat_body({"audio": {"data": "UklGRg=="}}), ctx=CTX)
    assert chat.encode(Request(model="m", messages=(mute.message(),)))["messages"] == []


def test_a_transcript_beside_text_is_the_same_once_more() -> None:
    """Some servers send the words both written and spoken."""
    assert chat.decode(chat_body({"content": "Hi.", "audio": {"id": "a", "transcript": "Hi."}}), ctx=CTX).text == "Hi."


@pytest.mark.behaviour(23)
def test_pictures_stay_in_the_history() -> None:
    """An answer of nothing but images (Gemini's through OpenRouter) is kept, whole as streamed, and sent back."""
    events = [chunk({"content": "", "images": [IMAGE]}), chunk({"images": [{**IMAGE, "index": 1}]}), chunk({}, "stop")]
    for response, images in (
        (chat.decode(CHAT["images"], ctx=CTX), [IMAGE]),
        (streamed(*events), [IMAGE, {**IMAGE, "index": 1}]),
    ):
        assert response.text == ""
        (message,) = chat.encode(Request(model="m", messages=(response.message(),)))["messages"]
        assert message == {"role": "assistant", "content": None, "images": images}
    assert events[0].data["choices"][0]["delta"]["images"] == [IMAGE]  # The host's own list is not grown.


@pytest.mark.parametrize("sdk", [False, True])
@pytest.mark.parametrize(
    ("odd", "tools"),
    [
        pytest.param(call_chunk(0, '"}'), 1, id="further arguments"),
        pytest.param(call_chunk(0, "{}", "call_b", "clock"), 2, id="another call, same index"),
        pytest.param(call_chunk(1, "{}", "call_b", "clock"), 2, id="another call"),
        pytest.param(call_chunk(1, "{}", None, "clock"), 2, id="another call without an id"),
        pytest.param(call_chunk(None, "{}"), 1, id="no index"),
        pytest.param(chunk({"tool_calls": []}), 1, id="no calls"),
        pytest.param(chunk({"tool_calls": [None, 3]}), 1, id="no calls at all"),
    ],
)
def test_telemetry_and_clients_read_further_arguments_alike(odd: Event, tools: int, sdk: bool) -> None:
    """And usage on every chunk."""
    spent = [{"prompt_tokens": 9, "completion_tokens": n} for n in range(9)]
    events = [
        chunk({"role": "assistant", "content": "Hi"}, usage=spent[0]),
        chunk({"content": " you"}, usage=spent[1]),
        call_chunk(0, "", "call_a", "weather"),
        call_chunk(0, '{"city": "'),
        odd,
        call_chunk(0, ""),
        chunk({"content": "!"}, usage=spent[2]),
        chunk({}, usage=spent[3]),
    ]
    construct: Any = ChatCompletionChunk.construct
    summarizer = chat.summarizer(CTX)
    for number, event in enumerate(events):
        summarizer.feed(dumped(construct(**event.data) if sdk else event.data))
        response = streamed(*events[: number + 1])
        seen = summarizer.close()
        assert (seen.stop, seen.usage, seen.tail) == (response.stop, response.usage, response.text)
    assert len(response.tool_calls) == tools


@pytest.mark.parametrize("sdk", [False, True])
@pytest.mark.parametrize(
    ("delta", "beside", "said", "spent"),
    [
        pytest.param(
            {}, {"x_groq": {"usage": {"prompt_tokens": 9, "completion_tokens": 2}}}, "Hi", 2, id="Groq's usage"
        ),
        pytest.param({"audio": {"transcript": " you"}}, {}, "Hi you", None, id="speech"),
    ],
)
def test_what_stands_beside_empty_words_is_read(
    delta: Json, beside: Json, said: str, spent: int | None, sdk: bool
) -> None:
    """A chunk whose content is the empty text is none of nothing but words."""
    construct: Any = ChatCompletionChunk.construct
    summarizer = chat.summarizer(CTX)
    for event in (chunk({"content": "Hi"}), chunk({"content": "", **delta}, **beside)):
        summarizer.feed(dumped(construct(**event.data) if sdk else event.data))
    seen = summarizer.close()
    assert (seen.tail, seen.usage and seen.usage.output_tokens) == (said, spent)


def test_mistral_answers_in_parts() -> None:
    """Content may be a list, in bodies and in deltas."""
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "42"}]
    for response in (
        chat.decode(chat_body({"content": parts}), ctx=CTX),
        streamed(chunk({"content": parts}, "stop")),
    ):
        assert (response.text, response.reasoning) == ("42", "hm")


def test_headers_become_quota() -> None:
    """What the answer's headers say of limits travels with the response."""
    response = chat.decode(CHAT["text"], ctx=CTX, headers={"x-ratelimit-remaining-requests": "9"})
    assert response.quota == {"remaining_requests": "9"}


def test_a_body_without_choices_is_a_decode_error() -> None:
    """An object of another kind is not an answer that says nothing."""
    with pytest.raises(DecodeError, match="choices"):
        chat.decode({"ok": True}, ctx=CTX)


# Requests

TOOL = Tool(name="weather", description="The weather.", parameters={"type": "object", "properties": {"city": {}}})
REQUEST = Request(
    model="m",
    messages=(
        Message(role="system", content="Be brief."),
        Message(role="user", content=[{"type": "text", "text": "Weather?"}]),
        Message(role="assistant", tool_calls=(ToolCall(id="a", name="weather", arguments_raw='{"city": "x"}'),)),
        Message(role="tool", content="Rain.", tool_call_id="a"),
        Message(role="user", content="Thanks. And?"),
    ),
    tools=(TOOL,),
    tool_choice="required",
    max_tokens=64,
    temperature=0.5,
    seed=7,
    format={"type": "object"},
    extra={"top_p": 0.9},
)


def test_encode() -> None:
    """A request as the SDK would send it."""
    body = chat.encode(REQUEST, stream=True)
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "user"]
    assert body["tools"][0]["function"]["parameters"] == TOOL.parameters
    assert (body["tool_choice"], body["max_completion_tokens"], body["top_p"]) == ("required", 64, 0.9)
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert body["stream_options"] == {"include_usage": True}
    assert chat.encode(REQUEST, dialect="mistral")["max_tokens"] == 64
    assert "stream_options" not in chat.encode(REQUEST, stream=True, dialect="mistral")
    assert "max_completion_tokens" not in chat.encode(REQUEST.but(extra={"max_tokens": 5}))
    with pytest.raises(UsageError, match="fetch"):
        chat.encode(REQUEST.but(retrieve="resp_1"))


@pytest.mark.behaviour(24)
def test_a_call_stripped_from_a_message_is_stripped_from_its_mirror() -> None:
    """Blocks never replay a call that is no longer in the history; a message that says nothing then is not sent."""
    message = chat.decode(CHAT["tool calls"], ctx=CTX).message()
    kept = message.but(tool_calls=message.tool_calls[:1])
    assert chat.encode(Request(model="m", messages=(kept,)))["messages"][0]["tool_calls"] == [WEATHER]
    assert chat.encode(Request(model="m", messages=(message.but(tool_calls=()),)))["messages"] == [
        {"role": "assistant", "content": "Looking."}
    ]
    silent = chat.decode(CHAT["forced tool"], ctx=CTX).message().but(tool_calls=())
    assert chat.encode(Request(model="m", messages=(silent,)))["messages"] == []


@pytest.mark.behaviour(23)
def test_thinking_goes_back_where_it_came_from() -> None:
    """DeepSeek refuses a history of tool calls without the thinking that led to them."""
    body = chat_body({"content": "x", "reasoning_content": "hm", "tool_calls": [WEATHER]}, "tool_calls")
    message = chat.decode(body, ctx=CTX).message()
    for each in (message, message.but(tool_calls=())):
        assert chat.encode(Request(model="m", messages=(each,)))["messages"][0]["reasoning_content"] == "hm"
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    cut = chat.decode(
        chat_body({"content": "So", "reasoning_details": details, "tool_calls": [WEATHER]}, "length"), ctx=CTX
    )
    resumed = chat.encode(chat.resume(REQUEST, cut, prompt="Go on."))["messages"][-2]
    assert resumed == {"role": "assistant", "content": "So", "reasoning_details": details}


# Continuations


@pytest.mark.behaviour(21, 25, 27)
def test_resume_by_prompt() -> None:
    """The original messages first, then the partial answer, then the nudge; a forced tool choice goes back to auto."""
    cut = chat.decode(CHAT["length"], ctx=CTX)
    request = chat.resume(REQUEST, cut, prompt="Go on.")
    before, after = chat.encode(REQUEST), chat.encode(request)
    assert after["messages"][:5] == before["messages"]
    assert after["messages"][5:] == [
        {"role": "assistant", "content": "The answer is"},
        {"role": "user", "content": "Go on."},
    ]
    assert request.messages[-1].synthetic
    assert "tool_choice" not in after
    for name in ("model", "tools", "temperature", "seed", "response_format", "max_completion_tokens"):
        assert after[name] == before[name]


@pytest.mark.behaviour(22, 24)
@pytest.mark.parametrize("name", ["reasoning only", "cut call", "empty"])
def test_resume_sends_no_empty_message_and_no_call(name: str) -> None:
    """Where nothing visible came, there is no assistant message; cut calls are in no mirror."""
    request = chat.resume(REQUEST, chat.decode(CHAT[name], ctx=CTX), prompt="Go on.")
    assert [message.role for message in request.messages[5:]] == ["user"]


@pytest.mark.behaviour(22)
@pytest.mark.parametrize(
    ("dialect", "last", "extra"),
    [
        ("", {"role": "assistant", "content": "So:"}, {}),
        ("mistral", {"role": "assistant", "content": "So:", "prefix": True}, {}),
        (
            "vllm",
            {"role": "assistant", "content": "So:"},
            {"continue_final_message": True, "add_generation_prompt": False},
        ),
    ],
)
def test_resume_by_prefill(dialect: str, last: Json, extra: Json) -> None:
    """The partial answer is the last message, without its trailing whitespace, marked as the dialect wants it."""
    cut = chat.decode(chat_body({"content": "So:\n"}, "length"), ctx=CTX)
    body = chat.encode(chat.resume(REQUEST, cut, prompt="", strategy=Strategy.PREFILL, dialect=dialect))
    assert body["messages"][-1] == last
    assert {name: body[name] for name in extra} == extra


def test_resume_by_resending() -> None:
    """A pause gets the answer back verbatim and no user message."""
    cut = chat.decode(CHAT["reasoning"], ctx=CTX).with_stop(resume=Resume.RESEND_UNCHANGED)
    request = chat.resume(REQUEST, cut, prompt="")
    assert request.messages == (*REQUEST.messages, cut.message())


# What is asked


def test_inspect_reads_in_place() -> None:
    """The history is the host's own list, its length as it was."""
    messages = [{"role": "user", "content": "hi"}]
    asked = chat.request_summary(
        {
            "model": "m",
            "messages": messages,
            "max_tokens": 5,
            "max_completion_tokens": 9,
            "n": 2,
            "stream": True,
            "response_format": {"type": "json_schema"},
            "temperature": 0.5,
            "seed": 3,
        }
    )
    assert asked.history is messages
    assert asked == RequestSummary(
        "m",
        9,
        2,
        stream=True,
        stream_usage=False,
        output_type="json",
        temperature=0.5,
        seed=3,
        history=messages,
        length=1,
    )


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"model": None, "messages": None, "max_tokens": object(), "n": object(), "stream": object()},
        {"messages": iter([]), "max_tokens": True, "n": 0, "temperature": "hot", "response_format": SimpleNamespace()},
    ],
)
def test_inspect_survives_anything(kwargs: Json) -> None:
    """Sentinels, iterators and nonsense are as good as nothing."""
    assert chat.request_summary(kwargs) == RequestSummary(stream_usage=False)


def test_a_reply_without_usage_or_terminal_is_what_it_is() -> None:
    """A missing stop is written as a stream without a finish reason; blocks of another format are not used."""
    response = ChatResponse(text="x", stop=Stop(StopReason.MISSING), blocks=Blocks("anthropic", ({"type": "text"},)))
    events = chat.reply(response, stream=True)
    assert isinstance(events, list)
    assert all(event.data == "[DONE]" or event.data["choices"][0]["finish_reason"] is None for event in events)
    body = chat.reply(response.but(stop=Stop(StopReason.MAX_TOKENS, "max_tokens")), stream=False)
    assert isinstance(body, dict)
    assert body["choices"][0]["message"]["content"] == "x"
    assert "usage" not in body


# --- Prefills, one after another --------------------------------------------------------------------------------------


def _cut_text(text: str) -> ChatResponse:
    return chat.decode(chat_body({"content": text}, "length"), ctx=CTX)


@pytest.mark.behaviour(14)
@pytest.mark.parametrize(
    ("dialect", "mark"),
    [("mistral", {"prefix": True}), ("vllm", {}), ("sglang", {})],
    ids=["mistral", "vllm", "sglang"],
)
def test_a_second_prefill_goes_on_with_the_first(dialect: str, mark: Json) -> None:
    """Both parts are one last message; servers take neither two in a row, nor a mark on any but the last."""
    asked = Request(model="m", messages=(Message(role="user", content="hi"),))
    once = chat.resume(asked, _cut_text("One "), prompt="", strategy="prefill", dialect=dialect)
    twice = chat.resume(once, _cut_text(" two "), prompt="", strategy="prefill", dialect=dialect)
    sent = chat.encode(twice, dialect=dialect)
    assert sent["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "One two", **mark},
    ]
    assert ("continue_final_message" in sent) == (dialect != "mistral")


@pytest.mark.behaviour(14)
@pytest.mark.parametrize("dialect", ["mistral", "vllm"])
def test_a_prompt_after_a_prefill_carries_none_of_its_marks(dialect: str) -> None:
    """The answer so far is one message, and the nudge is what is answered."""
    asked = Request(model="m", messages=(Message(role="user", content="hi"),))
    once = chat.resume(asked, _cut_text("One"), prompt="", strategy="prefill", dialect=dialect)
    sent = chat.encode(chat.resume(once, _cut_text(" two"), prompt="Go on.", dialect=dialect), dialect=dialect)
    assert [(message["role"], message["content"]) for message in sent["messages"]] == [
        ("user", "hi"),
        ("assistant", "One two"),
        ("user", "Go on."),
    ]
    assert not {"continue_final_message", "add_generation_prompt"} & sent.keys()
    assert not any("prefix" in message for message in sent["messages"])


@pytest.mark.behaviour(22)
def test_a_prefill_that_was_answered_loses_its_mark() -> None:
    """In the history of later requests it is an assistant message like any other."""
    marked = Message(
        role="assistant",
        content="x",
        blocks=Blocks("openai_chat", ({"role": "assistant", "content": "x", "prefix": True},)),
    )
    sent = chat.encode(Request(model="m", messages=(marked, Message(role="user", content="and?"))), dialect="mistral")
    assert sent["messages"][0] == {"role": "assistant", "content": "x"}
