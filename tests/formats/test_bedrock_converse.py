"""Bedrock's Converse API: what its answers and events say, requests, and what a continuation sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from endturn.chat import Blocks, ChatResponse, Json, Message, Request, Tool, ToolCall, Usage
from endturn.errors import DecodeError, ProviderError, ProviderTimeout, ProviderUnavailable, RequestRejected, UsageError
from endturn.formats import Context, Event, RequestSummary, Routed
from endturn.formats.bedrock_converse import FORMAT as bedrock_converse
from endturn.formats.errors import error_of
from endturn.records import Strategy
from endturn.stop import Resume, Stop, StopReason
from tests.formats.replies_bedrock_converse import (
    BODIES,
    CITED,
    FOUND,
    REDACTED,
    ROUTED,
    SEARCH,
    STREAMS,
    THOUGHT,
    body_object,
    converse_body,
    delta,
    event,
    said,
    say,
    start,
    stop,
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


# What responses say of the stop


@pytest.mark.parametrize(
    ("name", "reason", "detail"),
    [
        ("text", "end_turn", None),
        ("length", "max_tokens", None),
        ("tool use", "tool_call", None),
        ("unsaid tool use", "tool_call", None),
        ("stop sequence", "end_turn", None),
        ("stop sequence, told", "end_turn", "three"),
        ("guardrail", "safety_blocked", None),
        ("filtered", "safety_blocked", None),
        ("malformed output", "error", None),
        ("input that is no object", "error", None),
        ("window", "context_window_exceeded", None),
        ("server tools", "end_turn", None),
        ("unknown", "unknown", None),
    ],
)
def test_reasons_of_bodies(name: str, reason: str, detail: str | None) -> None:
    """Each real-shaped body has its reason; the matched sequence, which the request may ask for, is detail."""
    found = whole(name).stop
    assert (found.reason, found.raw, found.detail) == (reason, BODIES[name]["stopReason"], detail)


def test_a_malformed_call_is_repaired() -> None:
    """The model wrote a call that cannot be read: it may be asked again; malformed output may not."""
    assert whole("input that is no object").stop.resume is Resume.REPAIR
    assert whole("malformed output").stop.resume is Resume.NONE


@pytest.mark.behaviour(5)
def test_server_tools_promote_nothing() -> None:
    """A search that the server ran, type `server_tool_use`, is no call of the client's."""
    for response in (whole("server tools"), streamed(STREAMS["server tools"])):
        assert (response.stop.promoted_from, response.tool_calls) == (None, ())
    assert whole("unsaid tool use").stop.promoted_from is StopReason.END_TURN
    assert streamed(STREAMS["unsaid tool use"]).stop.promoted_from is StopReason.END_TURN


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


def test_the_matched_stop_sequence_of_a_stream() -> None:
    """A stream's additional fields are those of the model's last event, one level deeper than a body's."""
    fields = {"additionalModelResponseFields": {"delta": {"stop_sequence": "###"}}}
    ended = event("messageStop", stopReason="stop_sequence", **fields)
    found = streamed([*said(0, "One"), ended])
    assert (found.stop.reason, found.stop.detail) == (StopReason.END_TURN, "###")
    again = bedrock_converse.reply(found, stream=True)
    assert [each.data["messageStop"] for each in again if isinstance(each, Event) and "messageStop" in each.data] == [
        {"stopReason": "stop_sequence", **fields}
    ]


def test_the_input_of_a_cut_call_in_a_body() -> None:
    """A body has an empty object for it, as the API does; a stream has the pieces that came."""
    cut = streamed([*used(0, "tooluse_a", "write", '{"text": "lo'), event("messageStop", stopReason="max_tokens")])
    body = bedrock_converse.reply(cut, stream=False)
    assert isinstance(body, dict)
    assert body["output"]["message"]["content"] == [use("tooluse_a", "write", {})]
    assert streamed([each for each in bedrock_converse.reply(cut, stream=True) if isinstance(each, Event)]) == cut


@pytest.mark.behaviour(10)
def test_a_nested_stop_reason_is_not_ours() -> None:
    """What a tool's result says of a stop is another model's."""
    nested: Json = {"toolResult": {"toolUseId": "s", "content": [{"json": {"stopReason": "max_tokens"}}]}}
    assert bedrock_converse.decode(converse_body([nested, say("ok")]), ctx=CTX).stop.raw == "end_turn"


def test_the_whole_prompt_is_the_sum_over_the_caches() -> None:
    """inputTokens are only those that no cache was used for."""
    assert whole("text").usage == streamed(STREAMS["text"]).usage == Usage(33, 17, None, 20, 3)
    assert whole("length").usage == Usage(31, 17)
    assert streamed(STREAMS["text"][:-1]).usage is None


@pytest.mark.behaviour(3)
def test_message_stop_is_the_terminal() -> None:
    """The reason comes with it: without it the stop is missing, without `metadata` only the usage is."""
    assert streamed(STREAMS["text"][:-1]).stop.reason is StopReason.END_TURN
    cut = streamed(STREAMS["text"][:-2]).stop
    assert (cut.reason, cut.raw, cut.terminal_seen) == (StopReason.MISSING, None, False)
    assert streamed(STREAMS["null"]).stop.reason is StopReason.MISSING


@pytest.mark.behaviour(3)
@pytest.mark.parametrize(("events", "reason"), [(-1, "max_tokens"), (-2, "missing")], ids=["after it", "before it"])
def test_a_stream_that_its_reader_left(events: int, reason: str) -> None:
    """Who stops reading after `messageStop` missed only the figures; before it there was no reason."""
    summarizer = bedrock_converse.summarizer(CTX)
    for each in stream([said(0, "Once")], "max_tokens")[:events]:
        summarizer.feed(each)
    assert summarizer.close(left=True).stop.reason == summarizer.close().stop.reason == reason


@pytest.mark.behaviour(6)
def test_a_used_up_budget_is_suspected() -> None:
    """A clean reason with the whole budget used: it was recorded beside a call that looked complete."""
    assert whole("tool use", Context(asked=RequestSummary(maximum=17))).stop.suspected
    assert not whole("tool use", Context(asked=RequestSummary(maximum=18))).stop.suspected


def test_a_prompt_router_says_which_model_answered() -> None:
    """Nothing else in an answer names the model, and nothing has an id."""
    assert whole("prompt router").model == streamed(STREAMS["prompt router"]).model == ROUTED
    assert (whole("text").model, whole("text").id) == (None, None)


# Exceptions inside a stream


@pytest.mark.parametrize(
    ("name", "said_", "kind", "status"),
    [
        ("throttlingException", "Too many tokens, please wait.", ProviderUnavailable, 429),
        ("serviceUnavailableException", "Bedrock is unable to process your request.", ProviderUnavailable, 503),
        ("internalServerException", "Unexpected error.", ProviderUnavailable, 500),
        ("modelStreamErrorException", "An error occurred. Retry your request.", ProviderUnavailable, 424),
        ("modelTimeoutException", "Model has timed out.", ProviderTimeout, 408),
        ("validationException", "The provided request is not valid.", RequestRejected, 400),
        ("InternalFailure", "Something that the model does not know.", ProviderUnavailable, 500),
    ],
)
def test_an_exception_before_the_end(name: str, said_: str, kind: type[ProviderError], status: int) -> None:
    """It is raised as whose fault it is, with what came before; the summarizer calls it an error of that name."""
    events = [*stream([said(0, "It was")])[:-2], event(name, message=said_)]
    with pytest.raises(kind) as raised:
        streamed(events)
    assert type(raised.value) is kind
    assert (raised.value.status, raised.value.provider) == (status, "aws.bedrock")
    assert said_ in str(raised.value)
    summarizer = bedrock_converse.summarizer(CTX)
    for each in events:
        summarizer.feed(each)
    partial = raised.value.partial
    assert partial is not None
    assert partial.text == "It was"
    found = summarizer.close().stop
    assert summarizer.broken
    assert found == partial.stop
    assert (found.reason, found.raw, found.detail) == (StopReason.ERROR, name, said_)


@pytest.mark.behaviour(8)
@pytest.mark.parametrize(
    "exception",
    [
        event("validationException", message="Input is too long for requested model."),
        event("modelStreamErrorException", message="Error", originalMessage="prompt is too long: 9 tokens > 8 maximum"),
    ],
    ids=["validation", "the model's own words"],
)
def test_an_exception_may_be_a_stop_reason(exception: Event) -> None:
    """An input that is too long is the window, whichever exception says it."""
    with pytest.raises(ProviderError) as raised:
        streamed([event("messageStart", role="assistant"), exception])
    assert raised.value.stop is not None
    assert raised.value.stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED
    assert raised.value.partial is not None
    assert raised.value.partial.stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED


@pytest.mark.behaviour(9)
@pytest.mark.parametrize("before", [-1, None], ids=["before the figures", "after them"])
def test_an_exception_after_the_end_is_detail(before: int | None) -> None:
    """First terminal wins, and nothing is raised."""
    late = event("internalServerException", message="too late")
    found = streamed([*STREAMS["unsaid tool use"][:before], late]).stop
    assert (found.reason, found.detail) == (StopReason.TOOL_CALL, "too late")


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


def test_cut_arguments_stay_what_they_are() -> None:
    """Nothing is completed: the text as it came, no parsed arguments, and no object in the block."""
    response = streamed(STREAMS["cut call"])
    assert response.tool_calls[1].arguments is None
    assert response.tool_calls[1].arguments_raw == '{"body": "line\n'
    assert response.blocks is not None
    assert response.blocks.items[1]["toolUse"]["input"] == '{"body": "line\n'


def test_a_call_without_pieces_has_no_arguments() -> None:
    """A tool without parameters streams one empty piece, or none."""
    events = stream([used(0, "a", "clock", ""), used(1, "b", "clock")], "tool_use")
    assert [call.arguments for call in streamed(events).tool_calls] == [{}, {}]


def test_deltas_of_calls() -> None:
    """A call's name and id come first, then the pieces of its arguments, under the call's own number."""
    decoder = bedrock_converse.decoder(CTX)
    made = [each.call for one in STREAMS["tool use"] for each in decoder.feed(one) if each.call is not None]
    assert [(call.index, call.id, call.name, call.arguments) for call in made] == [
        (0, "tooluse_a", "weather", ""),
        (0, None, None, ""),
        (0, None, None, '{"city": "Zür'),
        (0, None, None, 'ich 👋🏽"}'),
        (1, "tooluse_b", "clock", ""),
        (1, None, None, ""),
    ]


def test_blocks_are_rebuilt_verbatim() -> None:
    """A stream's blocks are what the body's would be: signatures, redacted thinking, results, citations, pictures."""
    for name in ("reasoning", "server tools", "a picture"):
        blocks = streamed(STREAMS[name]).blocks
        assert blocks is not None
        assert list(blocks.items) == BODIES[name]["output"]["message"]["content"]
    response = streamed(STREAMS["reasoning"])
    assert (response.text, response.reasoning) == ("42", "six times seven")


def test_text_beside_citations_is_visible() -> None:
    """It is the answer; what was cited, and what a server's tool found, is not."""
    assert whole("server tools").text == streamed(STREAMS["server tools"]).text == "High at noon."


def test_redacted_thinking_of_several_pieces() -> None:
    """Each piece is base64 of its own: joined, they are base64 of the whole."""
    pieces = [delta(0, reasoningContent={"redactedContent": piece}) for piece in ("RQ==", "bzg=", b"BCgm-")]
    blocks = streamed(stream([[*pieces, stop(0)]])).blocks
    assert blocks is not None
    assert blocks.items == ({"reasoningContent": {"redactedContent": "RW84QkNnbS0="}},)


@pytest.mark.parametrize("name", ["reasoning", "a picture"])
def test_bytes_of_boto3_are_base64_in_blocks(name: str) -> None:
    """boto3 gives blobs as bytes; what is stored can be written as JSON, and is what the format had."""
    response = bedrock_converse.decode(body_object(BODIES[name]), ctx=CTX)
    assert response.blocks == whole(name).blocks
    json.dumps(response.message().model_dump(mode="json"))


def test_a_call_without_an_id_gets_one_in_its_block_too() -> None:
    """The result that answers it must find the same id in both."""
    response = whole("no call id")
    again = streamed(stream([used(0, "", "clock")], "tool_use"))
    assert response.blocks is not None
    assert response.tool_calls[0].id == response.blocks.items[0]["toolUse"]["toolUseId"] != ""
    assert again.tool_calls[0].id == response.tool_calls[0].id


def test_a_new_kind_of_block_is_kept() -> None:
    """What the format does not know yet is passed through."""
    blocks = streamed(stream([[start(0, video={"format": "mp4"}), delta(0, video={"uri": "s3://x"}), stop(0)]])).blocks
    assert blocks is not None
    assert blocks.items == ({"video": {"format": "mp4", "uri": "s3://x"}},)


@pytest.mark.parametrize(
    "body",
    [{}, {"output": {}}, {"output": {"message": {"content": "x"}}}, {"output": {"message": {"content": ["x"]}}}],
)
def test_what_is_no_answer_is_a_decode_error(body: Json) -> None:
    """A body without a list of blocks is not in the provider's format."""
    with pytest.raises(DecodeError, match=r"output\.message\.content"):
        bedrock_converse.decode(body, ctx=CTX)


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
