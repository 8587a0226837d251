"""Bedrock's Converse API: its errors, its blocks, requests, and what a continuation sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from endturn.chat import Blocks, ChatResponse, Json, Message, Request, Tool, ToolCall
from endturn.errors import ProviderError, ProviderTimeout, ProviderUnavailable, RequestRejected, UsageError
from endturn.events import Strategy
from endturn.formats import Context, Event, RequestSummary, Routed
from endturn.formats.bedrock_converse import FORMAT as bedrock_converse
from endturn.formats.errors import error_of
from endturn.stop import Stop, StopReason
from tests.formats.replies_bedrock_converse import (
    BODIES,
    CITED,
    FOUND,
    REDACTED,
    SEARCH,
    STREAMS,
    THOUGHT,
    body_object,
    converse_body,
    say,
    stream,
    thought,
    use,
    used,
)

CTX = Context(provider="aws.bedrock")


def whole(name: str, ctx: Context = CTX) -> ChatResponse:
    """The response of a body."""
    return bedrock_converse.decode(BODIES[name], ctx=ctx)


def streamed(events: list[Event], ctx: Context = CTX) -> ChatResponse:
    """The response of a stream."""
    decoder = bedrock_converse.decoder(ctx)
    for each in events:
        list(decoder.feed(each))
    return decoder.close()


@pytest.mark.parametrize("reason", ["tool_use", "end_turn"])
@pytest.mark.parametrize("typed", [{}, {"type": "tool_use"}], ids=repr)
def test_a_typed_call_is_the_clients(typed: Json, reason: str) -> None:
    """Some models write `"type": "tool_use"` into a client's call, in bodies and streams; it promotes as others do."""
    given = {"ref": "R1"}
    body = converse_body([use("tooluse_h", "g", given, **typed)], reason)
    events = stream([used(0, "tooluse_h", "g", json.dumps(given), **typed)], reason)
    for response in (bedrock_converse.decode(body, ctx=CTX), streamed(events)):
        assert response.stop.reason is StopReason.TOOL_CALL
        assert [(made.id, made.arguments, made.closed) for made in response.tool_calls] == [("tooluse_h", given, True)]
        sent = Request(model="m", messages=(Message(role="user", content="hi"), response.message()))
        replayed = bedrock_converse.encode(sent)["messages"][-1]["content"]
        assert replayed == [use("tooluse_h", "g", given)]  # A type that the API does not take back.


# Error answers


@pytest.mark.behaviour(8)
@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "label"),
    [
        pytest.param(
            400,
            {"x-amzn-ErrorType": "ValidationException:http://internal.amazon.com/coral/com.amazon.bedrock/"},
            {"message": "Input is too long for requested model."},
            RequestRejected,
            "400 ValidationException: Input is too long",
            id="a header",
        ),
        pytest.param(
            403,
            {},
            {"__type": "com.amazon.coral.service#UnrecognizedClientException", "message": "The token is invalid."},
            RequestRejected,
            "403 UnrecognizedClientException: The token",
            id="a type in the body",
        ),
        pytest.param(
            429,
            {"x-amzn-errortype": "ThrottlingException"},
            {"message": "Too many tokens"},
            ProviderUnavailable,
            "429 ThrottlingException: Too many tokens",
            id="throttled",
        ),
        pytest.param(
            424,
            {"x-amzn-errortype": "ModelErrorException"},
            {"message": "Unexpected error during processing.", "originalStatusCode": 500},
            ProviderUnavailable,
            "424 ModelErrorException: Unexpected",
            id="the model failed",
        ),
        pytest.param(
            408, {}, {"message": "Model has timed out"}, ProviderTimeout, "408: Model has timed out", id="timed out"
        ),
        pytest.param(
            403,
            {"x-amzn-errortype": "AccessDeniedException"},
            {"Message": "User is not authorized"},
            RequestRejected,
            "403 AccessDeniedException: User is not authorized",
            id="a capital letter",
        ),
    ],
)
def test_error_answers(status: int, headers: dict[str, str], body: Json, kind: type[ProviderError], label: str) -> None:
    """The exception's name comes as a header or as `__type`; it is in the message, with the request's id beside it."""
    known = {**headers, "x-amzn-RequestId": "1f-2"}
    error = error_of(status, known, json.dumps(body).encode(), ctx=CTX)
    assert type(error) is kind
    assert f"aws.bedrock answered {label}" in str(error)
    assert (error.status, error.request_id) == (status, "1f-2")
    assert (error.stop is not None) is ("too long" in label)


# What responses hold


def test_a_cut_call_is_not_closed() -> None:
    """Of a truncated response the last call is never closed, though it was recorded with a whole, empty input."""
    for response in (
        whole("cut call that parses"),
        streamed(STREAMS["cut call"]),
        streamed(STREAMS["cut call, closed"]),
    ):
        assert response.stop.reason is StopReason.MAX_TOKENS
        assert [call.closed for call in response.tool_calls] == [True, False]
    assert [call.closed for call in whole("tool use").tool_calls] == [True, True]
    assert [call.closed for call in whole("unknown with a call").tool_calls] == [False]


def test_a_call_whose_block_never_ended_is_not_closed() -> None:
    """In a stream a block without its contentBlockStop is cut, whatever the reason says."""
    response = streamed(stream([used(0, "tooluse_a", "f", "{}", closed=False)]))
    assert [call.closed for call in response.tool_calls] == [False]
    assert (response.stop.reason, response.stop.promoted_from) == (StopReason.END_TURN, None)


def test_blocks_are_rebuilt_verbatim() -> None:
    """A stream's blocks are what the body's would be: signatures, redacted thinking, results, citations, pictures."""
    for name in ("reasoning", "server tools", "a picture"):
        blocks = streamed(STREAMS[name]).blocks
        assert blocks is not None
        assert list(blocks.items) == BODIES[name]["output"]["message"]["content"]
    response = streamed(STREAMS["reasoning"])
    assert (response.text, response.reasoning) == ("42", "six times seven")


@pytest.mark.parametrize("name", ["reasoning", "a picture"])
def test_bytes_of_boto3_are_base64_in_blocks(name: str) -> None:
    """boto3 gives blobs as bytes; what is stored can be written as JSON, and is what the format had."""
    response = bedrock_converse.decode(body_object(BODIES[name]), ctx=CTX)
    assert response.blocks == whole(name).blocks
    json.dumps(response.message().model_dump(mode="json"))


# Requests

TOOL = Tool(name="weather", description="The weather.", parameters={"type": "object", "properties": {"city": {}}})
REQUEST = Request(
    model="eu.amazon.nova-lite-v1:0",
    messages=(
        Message(role="system", content="Be brief."),
        Message(role="user", content="Weather?"),
        Message(
            role="assistant",
            content="Looking.",
            tool_calls=(ToolCall(id="a", name="weather", arguments={"city": "x"}), ToolCall(id="b", name="clock")),
        ),
        Message(role="tool", content="Rain.", tool_call_id="a"),
        Message(role="tool", content=[{"json": {"error": "broken"}}], tool_call_id="b", is_error=True),
        Message(role="user", content="Thanks. And?"),
    ),
    tools=(TOOL, Tool(name="clock", parameters={"type": "object"})),
    tool_choice="weather",
    max_tokens=64,
    temperature=0.5,
    seed=7,
    format={"type": "object"},
    extra={"inferenceConfig": {"topP": 0.9}, "additionalModelRequestFields": {"top_k": 5}},
)


def test_encode() -> None:
    """A request as boto3 would send it: roles alternate, so the results of a batch and what follows are one message."""
    assert bedrock_converse.encode(REQUEST, stream=True) == {
        "messages": [
            {"role": "user", "content": [{"text": "Weather?"}]},
            {
                "role": "assistant",
                "content": [say("Looking."), use("a", "weather", {"city": "x"}), use("b", "clock", {})],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "a", "content": [{"text": "Rain."}]}},
                    {"toolResult": {"toolUseId": "b", "content": [{"json": {"error": "broken"}}], "status": "error"}},
                    {"text": "Thanks. And?"},
                ],
            },
        ],
        "system": [{"text": "Be brief."}],
        "inferenceConfig": {"maxTokens": 64, "temperature": 0.5, "topP": 0.9},
        "toolConfig": {
            "tools": [
                {
                    "toolSpec": {
                        "name": "weather",
                        "description": "The weather.",
                        "inputSchema": {"json": TOOL.parameters},
                    }
                },
                {"toolSpec": {"name": "clock", "inputSchema": {"json": {"type": "object"}}}},
            ],
            "toolChoice": {"tool": {"name": "weather"}},
        },
        "outputConfig": {
            "textFormat": {
                "type": "json_schema",
                "structure": {"jsonSchema": {"schema": '{"type": "object"}'}},
            }
        },
        "additionalModelRequestFields": {"top_k": 5},
    }
    assert bedrock_converse.encode(Request(model="m", messages=())) == {"messages": []}
    with pytest.raises(UsageError, match="fetch"):
        bedrock_converse.encode(REQUEST.but(retrieve="x"))


@pytest.mark.parametrize(
    ("choice", "written"), [("auto", None), ("none", None), ("required", {"any": {}}), ("f", {"tool": {"name": "f"}})]
)
def test_tool_choices(choice: str, written: Json | None) -> None:
    """The API has no word for `none`, and refuses a history with calls without its tools: they stay."""
    config = bedrock_converse.encode(REQUEST.but(tool_choice=choice))["toolConfig"]
    assert config.get("toolChoice") == written
    assert len(config["tools"]) == 2


def test_the_path_holds_the_model() -> None:
    """An ARN's colons and slashes are quoted, and read back; so is what a gateway sends unquoted."""
    arn = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.x-v1:0"
    path = bedrock_converse.route(REQUEST.but(model=arn), stream=True).path
    quoted = "arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fus.x-v1%3A0"
    assert path == f"/model/{quoted}/converse-stream"
    assert bedrock_converse.routed("POST", f"/gateway/aws{path}?x=1") == Routed(arn, True)
    assert bedrock_converse.routed("POST", f"/model/{arn}/converse") == Routed(arn, False)
    assert bedrock_converse.routed("POST", "/model/m/invoke") is None
    assert bedrock_converse.routed("GET", path) is None


GUARD: Json = {"guardContent": {"text": {"text": "check this"}}}
CACHE: Json = {"cachePoint": {"type": "default"}}


@pytest.mark.behaviour(22, 23, 24)
def test_what_the_api_refuses_is_not_sent() -> None:
    """Unsigned thinking, blank text, calls that left the history, and messages that are empty then."""
    content = [thought("Let me"), THOUGHT, REDACTED, say(" \n"), say("42"), use("a", "f", {})]
    response = bedrock_converse.decode(converse_body(content), ctx=CTX)
    stripped = response.message().but(tool_calls=())
    silent = whole("unsaid tool use").message().but(tool_calls=())
    blank = Message(role="assistant", content=" \n")
    sent = bedrock_converse.encode(Request(model="m", messages=(stripped, silent, blank)))["messages"]
    assert sent == [{"role": "assistant", "content": [THOUGHT, REDACTED, say("42")]}]


def test_system_messages_are_joined_wherever_they_stand() -> None:
    """The API has one place for them; one of another format's own shape goes there by its content."""
    foreign = Message(role="system", content="B", blocks=Blocks("anthropic", ({"role": "system", "content": "B"},)))
    messages = (Message(role="system", content="A"), Message(role="user", content="hi"), foreign)
    assert bedrock_converse.encode(Request(model="m", messages=messages))["system"] == [say("A"), say("B")]


def test_an_empty_result_is_sent_as_it_is() -> None:
    """Blank text is refused in a message, and taken in a tool's result."""
    sent = bedrock_converse.encode(Request(model="m", messages=(Message(role="tool", tool_call_id="a"),)))
    assert sent["messages"][0]["content"] == [{"toolResult": {"toolUseId": "a", "content": [{"text": ""}]}}]


# Continuations


@pytest.mark.behaviour(21, 25, 27)
def test_resume_by_prompt() -> None:
    """The original messages first, then the partial answer, then the nudge; a forced tool choice goes back to auto."""
    request = bedrock_converse.resume(REQUEST, whole("length"), prompt="Go on.")
    before, after = bedrock_converse.encode(REQUEST), bedrock_converse.encode(request)
    assert after["messages"][:3] == before["messages"]
    assert after["messages"][3:] == [
        {"role": "assistant", "content": [say("The answer is")]},
        {"role": "user", "content": [{"text": "Go on."}]},
    ]
    assert request.messages[-1].synthetic
    assert after["toolConfig"] == {"tools": before["toolConfig"]["tools"]}


@pytest.mark.behaviour(22, 23, 24)
@pytest.mark.parametrize(
    ("content", "kept"),
    [
        pytest.param([THOUGHT, say("So"), use("a", "f", {})], [THOUGHT, say("So")], id="a cut call"),
        pytest.param([say("So"), SEARCH], [say("So")], id="a search without its result"),
        pytest.param([SEARCH, FOUND, say("So")], [SEARCH, FOUND, say("So")], id="a search with its result"),
        pytest.param([say("So"), thought("Let")], [say("So")], id="cut thinking"),
        pytest.param([say("So"), THOUGHT, REDACTED], [say("So")], id="thinking at the end"),
        pytest.param([say("So"), CITED], [say("So"), CITED], id="citations"),
        pytest.param([THOUGHT], None, id="thinking only"),
        pytest.param([say("  ")], None, id="blank"),
        pytest.param([], None, id="nothing"),
    ],
)
def test_resume_replays_what_may_be_replayed(content: list[Json], kept: list[Json] | None) -> None:
    """No call without its result, no thinking unsigned or last, no empty message; and roles alternate."""
    cut = bedrock_converse.decode(converse_body(content, "max_tokens"), ctx=CTX)
    request = bedrock_converse.resume(REQUEST, cut, prompt="Go on.")
    before, after = (bedrock_converse.encode(each)["messages"] for each in (REQUEST, request))
    nudge = {"text": "Go on."}
    if kept is None:
        assert after == [*before[:2], {"role": "user", "content": [*before[2]["content"], nudge]}]
    else:
        assert after == [
            *before,
            {"role": "assistant", "content": kept},
            {"role": "user", "content": [nudge]},
        ]
    assert all(not each.tool_calls for each in request.messages[6:])


@pytest.mark.behaviour(22)
def test_resume_by_prefill() -> None:
    """The partial answer is the last message, without its trailing whitespace."""
    cut = bedrock_converse.decode(converse_body([say("So:\n")], "max_tokens"), ctx=CTX)
    body = bedrock_converse.encode(bedrock_converse.resume(REQUEST, cut, prompt="", strategy=Strategy.PREFILL))
    assert body["messages"][-1] == {"role": "assistant", "content": [say("So:")]}


def test_resume_by_resending() -> None:
    """The response as it is, and no user message after it."""
    body = bedrock_converse.encode(
        bedrock_converse.resume(REQUEST, whole("length"), prompt="Go on.", strategy=Strategy.RESEND)
    )
    assert body["messages"][-1] == {"role": "assistant", "content": [say("The answer is")]}
    assert "toolChoice" in body["toolConfig"]


def test_a_response_of_another_format_is_resumed_by_its_text() -> None:
    """Blocks of another format are not this one's to send."""
    cut = ChatResponse(text="So", stop=Stop(StopReason.MAX_TOKENS, "length"))
    sent = bedrock_converse.encode(bedrock_converse.resume(REQUEST, cut, prompt="Go on."))["messages"]
    assert sent[3] == {"role": "assistant", "content": [say("So")]}


# What is asked


def test_inspect_reads_in_place() -> None:
    """boto3 names the model `modelId`; the history is the host's own list, the system prompt travels beside it."""
    messages = [{"role": "user", "content": [{"text": "hi"}]}]
    system = [{"text": "s"}]
    asked = bedrock_converse.request_summary(
        {
            "modelId": "m",
            "messages": messages,
            "system": system,
            "inferenceConfig": {"maxTokens": 5, "temperature": 0.1, "topP": 0.5},
            "outputConfig": {"textFormat": {"type": "json_schema"}},
        }
    )
    assert asked.history is messages
    assert asked == RequestSummary(
        "m", 5, output_type="json", temperature=0.1, top_p=0.5, system=system, history=messages, length=1
    )
    assert bedrock_converse.request_summary({"model": "m", "stream": True}) == RequestSummary("m", stream=True)


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"modelId": 3, "messages": iter([]), "inferenceConfig": object(), "system": object(), "outputConfig": 3}],
)
def test_inspect_survives_anything(kwargs: dict[str, Any]) -> None:
    """Sentinels and nonsense are as good as nothing."""
    assert bedrock_converse.request_summary(kwargs) == RequestSummary()
