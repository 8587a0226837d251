"""Cohere's chat API, v2 and v1: what its events say, requests, and what a continuation sends."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.chat import Blocks, ChatResponse, Json, Message, Request, Tool, ToolCall, Usage
from endturn.errors import ProviderError, ProviderUnavailable, UsageError
from endturn.formats import Context, Event, RequestSummary, Routed
from endturn.formats.cohere import FORMAT as cohere
from endturn.formats.errors import error_of
from endturn.records import Strategy
from endturn.stop import Resume, Stop, StopReason
from tests.formats.replies_cohere import (
    BODIES,
    CITATION,
    CLOCK,
    ID,
    STREAMS,
    WEATHER,
    adds,
    body,
    body_object,
    context,
    end,
    event_objects,
    said,
    say,
    start,
    think,
    used,
    v1,
)

CTX = Context()
V1 = Context("v1")


def whole(name: str) -> ChatResponse:
    """The response of a body."""
    return cohere.decode(BODIES[name], ctx=context(name))


def streamed(events: list[Event], ctx: Context = CTX) -> ChatResponse:
    """The response of a stream."""
    decoder = cohere.decoder(ctx)
    for event in events:
        list(decoder.feed(event))
    return decoder.close()


# What responses say of the stop


@pytest.mark.parametrize(
    ("name", "reason", "detail"),
    [
        ("text", "end_turn", None),
        ("stop sequence", "end_turn", None),
        ("length", "max_tokens", None),
        ("thinking only", "max_tokens", None),
        ("tool call", "tool_call", None),
        ("unsaid tool call", "tool_call", None),
        ("cut call", "max_tokens", None),
        ("error", "error", None),
        ("timeout", "error", "timeout"),
        ("unknown", "unknown", None),
        ("null", "missing", None),
        ("v1 text", "end_turn", None),
        ("v1 length", "max_tokens", None),
        ("v1 limit", "context_window_exceeded", None),
        ("v1 toxic", "safety_blocked", None),
        ("v1 cancelled", "cancelled", None),
        ("v1 tool calls", "tool_call", None),
    ],
)
def test_reasons_of_bodies(name: str, reason: str, detail: str | None) -> None:
    """Each real-shaped body has its reason, in either version's words."""
    stop = whole(name).stop
    assert (stop.reason, stop.raw, stop.detail) == (reason, BODIES[name]["finish_reason"], detail)


def test_v1_words_are_no_words_of_v2() -> None:
    """ERROR_LIMIT has a row in v1's table alone; from v2 it is drift, and said so."""
    stop = cohere.decode(body({"content": [say("Hm")]}, "ERROR_LIMIT"), ctx=CTX).stop
    assert (stop.reason, stop.mapped) == (StopReason.UNKNOWN, False)


@pytest.mark.behaviour(5)
def test_complete_calls_are_a_tool_call_whatever_the_reason() -> None:
    """COMPLETE with whole calls is promoted: v1 has no word for calls at all."""
    for name in ("unsaid tool call", "v1 tool calls"):
        assert whole(name).stop.promoted_from is StopReason.END_TURN
    assert whole("tool call").stop.promoted_from is None
    assert streamed(STREAMS["unsaid tool call"]).stop.promoted_from is StopReason.END_TURN


@pytest.mark.behaviour(5)
def test_a_call_that_was_not_ended_promotes_nothing() -> None:
    """A call is whole with its `tool-call-end`."""
    response = streamed([start(), *used(0, "a", "clock", "{}", closed=False), *end()])
    assert (response.stop.reason, response.tool_calls[0].closed) == (StopReason.END_TURN, False)


@pytest.mark.behaviour(4)
def test_a_null_reason_beside_whole_calls() -> None:
    """Of a body without a reason, calls that parse are a tool call; one that is cut is not."""
    stop = whole("null with a call").stop
    assert (stop.reason, stop.promoted_from) == (StopReason.TOOL_CALL, StopReason.MISSING)
    cut = body({"tool_calls": [{**WEATHER, "function": {"name": "weather", "arguments": '{"ci'}}]}, None)
    assert cohere.decode(cut, ctx=CTX).stop.reason is StopReason.MISSING


@pytest.mark.behaviour(3)
@pytest.mark.parametrize(
    "events",
    [
        pytest.param([], id="nothing"),
        pytest.param(STREAMS["cut"], id="no message-end"),
        pytest.param([start(), *said(0, "text", "Hm"), *end(None)], id="a null reason"),
        pytest.param([*STREAMS["tool call"][:-2]], id="calls without an end"),
        pytest.param(STREAMS["v1 text"][:-1], id="v1"),
    ],
)
def test_without_a_reason_the_stream_was_cut(events: list[Event]) -> None:
    """Before `message-end` brings a reason, nothing ended."""
    stop = streamed(events).stop
    assert (stop.reason, stop.terminal_seen, stop.truncated) == (StopReason.MISSING, False, True)


def test_the_error_of_the_end_is_detail() -> None:
    """`delta.error` says in words what ERROR says; shortened, and without keys."""
    stop = streamed(STREAMS["error"]).stop
    assert (stop.reason, stop.raw, stop.detail) == (StopReason.ERROR, "ERROR", "the model crashed")
    assert stop.terminal_seen
    long = streamed([start(), *end("ERROR", error="key AIzaSyA1234567890abcdefghijkl " + "x" * 999)]).stop.detail
    assert long is not None
    assert len(long) == 120
    assert "AIza" not in long
    assert streamed([start(), *end("TIMEOUT", error="deadline")]).stop.detail == "deadline"


@pytest.mark.behaviour(9)
def test_the_first_end_counts() -> None:
    """A second `message-end`, or an error after the first, changes no reason; the error is detail."""
    again = [*end("MAX_TOKENS"), *end("COMPLETE")]
    assert streamed([start(), *said(0, "text", "Hm"), *again]).stop.reason is StopReason.MAX_TOKENS
    late = Event("error", {"type": "error", "error": {"message": "too late"}})
    stop = streamed([start(), *said(0, "text", "Hm"), *end(), late]).stop
    assert (stop.reason, stop.detail) == (StopReason.END_TURN, "too late")


@pytest.mark.parametrize(
    "event",
    [
        pytest.param({"message": "internal server error", "id": "x"}, id="bare"),
        pytest.param({"type": "error", "message": "internal server error"}, id="typed"),
        pytest.param({"error": {"message": "internal server error", "code": 500}}, id="a gateway's"),
        pytest.param({"type": "message-end", "delta": {"error": "internal server error"}}, id="end without a reason"),
    ],
)
def test_an_error_instead_of_an_end_raises(event: Json) -> None:
    """It raises with what had arrived, and the summarizer calls the stream broken."""
    decoder = cohere.decoder(CTX)
    for each in STREAMS["cut"]:
        list(decoder.feed(each))
    with pytest.raises(ProviderUnavailable, match="internal server error") as raised:
        list(decoder.feed(Event(None, event)))
    assert raised.value.partial is not None
    assert raised.value.partial.text == "Once upon"
    assert raised.value.partial.stop.reason is StopReason.ERROR
    assert not raised.value.partial.stop.truncated
    summarizer = cohere.summarizer(CTX)
    summarizer.feed(event)
    assert summarizer.broken


def test_an_error_under_a_status_of_success_raises() -> None:
    """A body that is a bare message is no response."""
    with pytest.raises(ProviderError, match="no healthy upstream"):
        cohere.decode({"message": "no healthy upstream"}, ctx=CTX)


@pytest.mark.behaviour(8)
def test_a_prompt_that_is_too_large_is_a_stop_reason() -> None:
    """The API answers 400 with "too many tokens: …", which is said of the output's limit too."""
    message = "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292."
    error = error_of(400, {}, f'{{"message": "{message}"}}'.encode(), ctx=CTX)
    assert error.stop is not None
    assert error.stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED
    output = b'{"message": "too many tokens: max tokens must be less than or equal to 4096"}'
    assert error_of(400, {}, output, ctx=CTX).stop is None


@pytest.mark.behaviour(6)
def test_a_used_up_budget_is_suspected() -> None:
    """A clean reason with as many tokens as were allowed."""
    assert cohere.decode(BODIES["text"], ctx=Context(asked=RequestSummary(maximum=17))).stop.suspected
    assert not cohere.decode(BODIES["text"], ctx=Context(asked=RequestSummary(maximum=18))).stop.suspected


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("text", Usage(31, 17, None, 8)),
        ("billed only", Usage(5, 1)),
        ("no usage", None),
        ("v1 text", Usage(49, 69)),
    ],
)
def test_usage(name: str, usage: Usage | None) -> None:
    """The tokens that the model saw and made; those that were billed where nothing else is told; numbers as 17.0."""
    assert whole(name).usage == usage


# What responses hold


@pytest.mark.parametrize("name", ["cut call", "cut call that parses"])
def test_a_cut_call_is_not_closed(name: str) -> None:
    """Of a response that its limit cut, the last call is never closed, whatever it parses to."""
    assert [call.closed for call in whole(name).tool_calls] == [True, False]


def test_a_cut_call_is_not_closed_in_a_stream() -> None:
    """Neither without its end, nor with one that a proxy wrote; its arguments stay as they came."""
    cut = streamed(STREAMS["cut call"]).tool_calls
    assert [(call.closed, call.arguments_raw) for call in cut] == [(True, '{"a": 1}'), (False, '{"zone')]
    closed = streamed([start(), *used(0, "a", "f", "{}"), *used(1, "b", "g", "{}"), *end("MAX_TOKENS")])
    assert [call.closed for call in closed.tool_calls] == [True, False]


def test_the_plan_before_calls_is_thinking() -> None:
    """It is shown as reasoning, and kept in the message for a replay."""
    for response in (whole("tool call"), streamed(STREAMS["tool call"])):
        assert (response.text, bool(response.reasoning)) == ("", True)
        assert response.blocks is not None
        assert response.blocks.items[0]["tool_plan"] == response.reasoning


def test_a_stream_builds_the_body() -> None:
    """Content in parts, plan, calls and citations: what a stream brings is what the body would hold."""
    response = streamed(
        [
            start(),
            *said(0, "thinking", "six times ", "seven"),
            *said(1, "text", "Grü", "ezi."),
            adds("citation-start", 0, citations=CITATION),
            adds("tool-plan-delta", None, tool_plan="I will look."),
            *used(0, "weather_0abc", "weather", '{"city": "Zürich", ', '"days": [1, 2]}'),
            *used(1, "clock_1abc", "clock", "{}"),
            *end("TOOL_CALL"),
        ]
    )
    message = {
        "role": "assistant",
        "content": [think("six times seven"), say("Grüezi.")],
        "tool_plan": "I will look.",
        "tool_calls": [WEATHER, CLOCK],
        "citations": [CITATION],
    }
    assert response.blocks == Blocks("cohere", (message,))
    assert cohere.decode(body(message, "TOOL_CALL"), ctx=CTX).blocks == response.blocks
    assert (response.reasoning, response.text) == ("six times sevenI will look.", "Grüezi.")


def test_calls_are_told_apart_without_an_index() -> None:
    """A fragment goes on with the call of its index, and without one with the last; a start is always a new call."""
    events = [start(), *used(0, "a", "f", '{"x":', " 1}"), *used(0, "b", "g", "{}"), *end("TOOL_CALL")]
    bare = [Event(each.name, {k: v for k, v in each.data.items() if k != "index"}) for each in events[:-1]]
    for stream in (events, bare):
        calls = streamed(stream).tool_calls
        assert [(call.id, call.arguments, call.closed) for call in calls] == [("a", {"x": 1}, True), ("b", {}, True)]


def test_a_call_without_an_id_gets_one() -> None:
    """The same one in its block, in the body and in the stream; two such calls get two."""
    response = whole("no call id")
    stream = streamed([start(), *used(0, "", "clock", "{}"), *used(1, "", "clock", "{}"), *end("TOOL_CALL")])
    ids = [call.id for call in response.tool_calls]
    assert response.blocks is not None
    assert [call["id"] for call in response.blocks.items[0]["tool_calls"]] == ids
    assert [call.id for call in stream.tool_calls] == ids
    assert len(set(ids)) == 2


def test_calls_of_v1_have_objects_and_no_ids() -> None:
    """Chunks are a preview; what `tool-calls-generation` brings counts."""
    for response in (whole("v1 tool calls"), streamed(STREAMS["v1 tool calls"], V1)):
        assert [(call.name, call.arguments) for call in response.tool_calls] == [
            ("weather", {"city": "Zürich"}),
            ("clock", {}),
        ]
        assert all(call.closed and call.id for call in response.tool_calls)
        assert (response.text, response.id) == ("I will look.", ID)


def test_calls_of_v1_without_chunks_are_streamed_whole() -> None:
    """Without `tool-calls-chunk` events, the calls and their text come at once."""
    decoder = cohere.decoder(V1)
    events = [STREAMS["v1 tool calls"][0], *STREAMS["v1 tool calls"][-2:]]
    deltas = [delta for event in events for delta in decoder.feed(event)]
    assert "".join(delta.text for delta in deltas) == "I will look."
    assert [delta.call.arguments for delta in deltas if delta.call] == ['{"city": "Zürich"}', "{}"]


def test_a_cut_call_of_v1_is_kept() -> None:
    """Chunks of a call that a limit cut are all there is of it."""
    events = [*STREAMS["v1 tool calls"][:5], v1("stream-end", finish_reason="MAX_TOKENS", response={"text": "I will"})]
    (call,) = streamed(events, V1).tool_calls
    assert (call.name, call.arguments, call.arguments_raw, call.closed) == ("weather", None, '{"city": "Zür', False)


def test_the_sdk_makes_objects_of_the_replies() -> None:
    """The laws are tested on the SDK's own classes, not on dictionaries that it passed through."""
    assert type(body_object(BODIES["text"])).__name__ == "V2ChatResponse"
    assert type(body_object(BODIES["v1 text"])).__name__ == "NonStreamedChatResponse"
    kinds = [type(each).__name__ for each in event_objects(STREAMS["thinking"])]
    assert (kinds[0], kinds[-1]) == ("MessageStartV2ChatStreamResponse", "MessageEndV2ChatStreamResponse")
    kinds = [type(each).__name__ for each in event_objects(STREAMS["v1 text"])]
    assert (kinds[1], kinds[-1]) == ("TextGenerationStreamedChatResponse", "StreamEndStreamedChatResponse")


# Requests

TOOL = Tool(
    name="weather",
    description="The weather.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Where."}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
REQUEST = Request(
    model="command-a",
    messages=(
        Message(role="system", content="Be brief."),
        Message(role="user", content="Weather?"),
        Message(
            role="assistant",
            content="Looking.",
            tool_calls=(ToolCall(id="a", name="weather", arguments={"city": "x"}), ToolCall(id="b", name="clock")),
        ),
        Message(role="tool", content="Rain.", tool_call_id="a"),
        Message(role="tool", content='{"now": 12}', tool_call_id="b"),
        Message(role="user", content="Thanks. And?"),
    ),
    tools=(TOOL, Tool(name="clock")),
    max_tokens=64,
    temperature=0.5,
    seed=7,
    format={"type": "object"},
    extra={"p": 0.9},
)
FUNCTION = {"name": "weather", "description": "The weather.", "parameters": TOOL.parameters}


def test_encode() -> None:
    """A request as the SDK would send it."""
    assert cohere.encode(REQUEST, stream=True) == {
        "model": "command-a",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": "Looking.",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "x"}'}},
                    {"id": "b", "type": "function", "function": {"name": "clock", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "Rain."},
            {"role": "tool", "tool_call_id": "b", "content": '{"now": 12}'},
            {"role": "user", "content": "Thanks. And?"},
        ],
        "tools": [
            {"type": "function", "function": FUNCTION},
            {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}},
        ],
        "max_tokens": 64,
        "temperature": 0.5,
        "seed": 7,
        "response_format": {"type": "json_object", "json_schema": {"type": "object"}},
        "stream": True,
        "p": 0.9,
    }
    assert cohere.encode(Request(model="m", messages=())) == {"model": "m", "messages": []}
    with pytest.raises(UsageError, match="fetch"):
        cohere.encode(REQUEST.but(retrieve="x"))


@pytest.mark.parametrize(
    ("choice", "written", "offered"),
    [
        ("auto", None, ["weather", "clock"]),
        ("none", "NONE", ["weather", "clock"]),
        ("required", "REQUIRED", ["weather", "clock"]),
        ("weather", "REQUIRED", ["weather"]),
    ],
)
def test_tool_choice(choice: str, written: str | None, offered: list[str]) -> None:
    """The API chooses none or any; one tool among several is required by offering nothing else."""
    body = cohere.encode(REQUEST.but(tool_choice=choice))
    assert (body.get("tool_choice"), [tool["function"]["name"] for tool in body["tools"]]) == (written, offered)


@pytest.mark.behaviour(22, 24)
def test_what_the_api_refuses_is_not_sent() -> None:
    """Empty parts, calls that left the history, their plan, and messages that are empty then."""
    full = cohere.decode(body({"content": [say(" "), say("42")], "tool_plan": "So.", "tool_calls": [WEATHER]}), ctx=CTX)
    stripped = full.message().but(tool_calls=())
    silent = whole("unsaid tool call").message().but(tool_calls=())
    thinking = whole("thinking only").message()
    blank = Message(role="assistant", content=" \n")
    sent = cohere.encode(Request(model="m", messages=(stripped, silent, thinking, blank)))["messages"]
    assert sent == [{"role": "assistant", "content": [say("42")]}]


def test_the_paths() -> None:
    """Our client speaks v2; a server answers v2 alone, behind whatever a gateway puts before it."""
    assert cohere.route(REQUEST, stream=True) == ("POST", "/v2/chat")
    assert cohere.route(REQUEST, stream=True, dialect="v1") == ("POST", "/v1/chat")
    assert cohere.routed("POST", "/proxy/cohere/v2/chat?x=1") == Routed()
    for path in ("/v1/chat", "/v2/chat/completions", "/v1/v2/chat"):
        assert cohere.routed("POST", path) is None


# Requests of v1


def test_encode_for_v1() -> None:
    """One message, the history before it; tool results repeat the calls that they answer."""
    calls = [{"name": "weather", "parameters": {"city": "x"}}, {"name": "clock", "parameters": {}}]
    results = [
        {"call": calls[0], "outputs": [{"text": "Rain."}]},
        {"call": calls[1], "outputs": [{"now": 12}]},
    ]
    history = [
        {"role": "USER", "message": "Weather?"},
        {"role": "CHATBOT", "message": "Looking.", "tool_calls": calls},
        {"role": "TOOL", "tool_results": results},
    ]
    assert cohere.encode(REQUEST, dialect="v1", stream=True) == {
        "model": "command-a",
        "preamble": "Be brief.",
        "message": "Thanks. And?",
        "chat_history": history,
        "tools": [
            {
                "name": "weather",
                "description": "The weather.",
                "parameter_definitions": {
                    "city": {"description": "Where.", "type": "str", "required": True},
                    "days": {"description": "", "type": "int", "required": False},
                },
            },
            {"name": "clock", "description": ""},
        ],
        "max_tokens": 64,
        "temperature": 0.5,
        "seed": 7,
        "response_format": {"type": "json_object", "schema": {"type": "object"}},
        "stream": True,
        "p": 0.9,
    }
    answers = cohere.encode(REQUEST.but(messages=REQUEST.messages[:-1], tool_choice="none"), dialect="v1")
    assert (answers["message"], answers["tool_results"], answers["chat_history"]) == ("", results, history[:2])
    assert "tools" not in answers


def test_a_response_of_v1_goes_back_in_either_version() -> None:
    """What Command R answered on Bedrock is a history for v1, and for v2."""
    history = Request(model="m", messages=(Message(role="user", content="hi"), whole("v1 tool calls").message()))
    assert (
        cohere.encode(history, dialect="v1")["chat_history"][-1]["tool_calls"] == BODIES["v1 tool calls"]["tool_calls"]
    )
    calls = cohere.encode(history)["messages"][-1]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == ['{"city": "Zürich"}', "{}"]


# Continuations


@pytest.mark.behaviour(21, 25, 27)
def test_resume_by_prompt() -> None:
    """The original messages first, then the partial answer, then the nudge; a forced tool choice goes back to auto."""
    request = cohere.resume(REQUEST.but(tool_choice="required"), whole("length"), prompt="Go on.")
    before, after = cohere.encode(REQUEST), cohere.encode(request)
    assert after["messages"][:6] == before["messages"]
    assert after["messages"][6:] == [
        {"role": "assistant", "content": [say("The answer is")]},
        {"role": "user", "content": "Go on."},
    ]
    assert request.messages[-1].synthetic
    assert "tool_choice" not in after
    assert after["tools"] == before["tools"]


@pytest.mark.behaviour(22, 23, 24)
@pytest.mark.parametrize(
    ("message", "kept"),
    [
        pytest.param({"content": [think("so"), say("So")]}, {"content": [think("so"), say("So")]}, id="thinking"),
        pytest.param({"content": [say("So"), think("but")]}, {"content": [say("So")]}, id="thinking at the end"),
        pytest.param({"content": [think("so")]}, None, id="thinking only"),
        pytest.param(
            {"content": [say("So")], "tool_plan": "P", "tool_calls": [WEATHER]}, {"content": [say("So")]}, id="call"
        ),
        pytest.param({"tool_plan": "I will"}, None, id="plan only"),
        pytest.param({"content": [say("  ")]}, None, id="blank"),
        pytest.param({"content": []}, None, id="nothing"),
    ],
)
def test_resume_replays_what_may_be_replayed(message: Json, kept: Json | None) -> None:
    """No cut call, no plan for it, no thinking that led to nothing, no empty message."""
    request = cohere.resume(REQUEST, cohere.decode(body(message, "MAX_TOKENS"), ctx=CTX), prompt="Go on.")
    nudge = {"role": "user", "content": "Go on."}
    added = cohere.encode(request)["messages"][6:]
    assert added == ([nudge] if kept is None else [{"role": "assistant", **kept}, nudge])


@pytest.mark.behaviour(22)
def test_resume_by_prefill_and_by_resending() -> None:
    """A prefill is the last message, without its trailing whitespace; a resend is the answer verbatim."""
    cut = cohere.decode(body({"content": [say("So:\n")]}, "MAX_TOKENS"), ctx=CTX)
    prefill = cohere.encode(cohere.resume(REQUEST, cut, prompt="", strategy=Strategy.PREFILL))
    assert prefill["messages"][-1] == {"role": "assistant", "content": [say("So:")]}
    resend = cohere.encode(cohere.resume(REQUEST, cut, prompt="", strategy=Strategy.RESEND))
    assert resend["messages"][-1] == {"role": "assistant", "content": [say("So:\n")]}


def test_a_response_of_another_format_is_resumed_by_its_text() -> None:
    """Blocks of another format are not this one's to send."""
    cut = ChatResponse(text="So", stop=Stop(StopReason.MAX_TOKENS, "length", resume=Resume.PROMPT))
    assert cohere.encode(cohere.resume(REQUEST, cut, prompt="Go on."))["messages"][6] == {
        "role": "assistant",
        "content": "So",
    }


# What is asked


def test_inspect_reads_in_place() -> None:
    """The history is the host's own list."""
    messages = [{"role": "user", "content": "hi"}]
    form = {"type": "json_object"}
    asked = cohere.request_summary(
        {
            "model": "m",
            "messages": messages,
            "max_tokens": 5,
            "stream": True,
            "p": 0.5,
            "seed": 3,
            "response_format": form,
        }
    )
    assert asked.history is messages
    assert asked == RequestSummary(
        "m", 5, stream=True, top_p=0.5, seed=3, output_type="json", history=messages, length=1
    )


def test_inspect_of_v1() -> None:
    """The new message stands after the history, the preamble beside it."""
    asked = cohere.request_summary(
        {"message": "and?", "chat_history": [{"role": "USER", "message": "hi"}], "preamble": "Be brief."}
    )
    assert asked.system == "Be brief."
    assert list(asked.history) == [{"role": "USER", "message": "hi"}, {"role": "user", "content": "and?"}]
    assert asked.length == 2


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"model": ..., "messages": ..., "max_tokens": ..., "response_format": ..., "message": ...},
        {"messages": iter([])},
    ],
)
def test_inspect_survives_anything(kwargs: dict[str, Any]) -> None:
    """The SDK stands an ellipsis for what was not given; nonsense is as good as nothing."""
    assert cohere.request_summary(kwargs) == RequestSummary()
