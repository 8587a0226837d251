"""Cohere's chat API, v2 and v1: what its events say, requests, and what a continuation sends."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.chat import ChatResponse, Json, Message, Request, Tool, ToolCall
from endturn.errors import UsageError
from endturn.events import Strategy
from endturn.formats import Context, Event, RequestSummary, Routed
from endturn.formats.cohere import FORMAT as cohere
from endturn.stop import Resume, Stop, StopReason
from tests.formats.replies_cohere import (
    BODIES,
    STREAMS,
    WEATHER,
    body,
    body_object,
    context,
    event_objects,
    say,
    think,
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
