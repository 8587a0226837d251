"""generateContent: what its responses say, requests, and what a continuation sends."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from google.genai import types

from endturn.chat import Blocks, ChatResponse, Json, Message, Request, Tool, ToolCall, Usage
from endturn.errors import DecodeError, ProviderError, ProviderUnavailable, RequestRejected, UsageError
from endturn.formats import Context, Event, RequestSummary, Route, Routed, summarize
from endturn.formats.errors import error_of
from endturn.formats.gemini import FORMAT as gemini
from endturn.records import Strategy
from endturn.sdk_objects import dumped
from endturn.stop import Resume, Stop, StopReason
from tests.formats.replies_gemini import (
    BODIES,
    CLOCK,
    CODE,
    ERROR,
    FOUND,
    HEAD,
    RAN,
    SEARCH,
    SIGNATURE,
    STREAMS,
    THOUGHT,
    WEATHER,
    blocked,
    body,
    body_object,
    call,
    candidate,
    chunk,
    partial,
    say,
)

CTX = Context(provider="gcp.gemini")


def whole(name: str, ctx: Context = CTX) -> ChatResponse:
    """The response of a body."""
    return gemini.decode(BODIES[name], ctx=ctx)


def streamed(events: list[Event], ctx: Context = CTX) -> ChatResponse:
    """The response of a stream."""
    decoder = gemini.decoder(ctx)
    for event in events:
        list(decoder.feed(event))
    return decoder.close()


def watched(*things: Any, ctx: Context = CTX) -> Stop:
    """What a summarizer makes of chunks or a body."""
    summarizer = gemini.summarizer(ctx)
    for thing in things:
        summarizer.feed(dumped(thing))
    return summarizer.close().stop


def blocks(response: ChatResponse) -> list[Json]:
    """A response's parts."""
    assert response.blocks is not None
    assert response.blocks.format == "gemini"
    return list(response.blocks.items)


# What responses say of the stop


@pytest.mark.parametrize(
    ("name", "reason", "resume"),
    [
        ("text", "end_turn", "none"),
        ("length", "max_tokens", "prompt"),
        ("reasoning only", "max_tokens", "prompt"),
        ("tool calls", "tool_call", "none"),
        ("no arguments", "tool_call", "none"),
        ("cut call", "max_tokens", "prompt"),
        ("server tools", "end_turn", "none"),
        ("server and client tools", "tool_call", "none"),
        ("paused", "paused", "native_token"),
        ("safety", "safety_blocked", "none"),
        ("recitation", "safety_blocked", "none"),
        ("malformed call", "error", "repair"),
        ("other", "error", "none"),
        ("unspecified", "unknown", "none"),
        ("unknown", "unknown", "none"),
        ("several", "end_turn", "none"),
    ],
)
def test_reasons_of_bodies(name: str, reason: str, resume: str) -> None:
    """Each real-shaped body has its reason, its raw value, and the way in which it is taken up again."""
    stop = whole(name).stop
    assert (stop.reason, stop.resume) == (reason, resume)
    assert (stop.raw, stop.detail) == (BODIES[name]["candidates"][0]["finishReason"], None)
    assert stop.mapped == (name != "unknown")


@pytest.mark.parametrize("reason", ["SAFETY", "JAILBREAK", "OTHER", "BLOCKED_REASON_UNSPECIFIED"])
def test_a_blocked_prompt_has_no_candidates(reason: str) -> None:
    """`promptFeedback.blockReason` says why, in words of its own: OTHER is no error there."""
    stop = gemini.decode(blocked(reason), ctx=CTX).stop
    assert (stop.reason, stop.raw, stop.detail, stop.incomplete) == ("safety_blocked", reason, "prompt", True)
    assert (
        stop
        == streamed([Event(None, blocked(reason))]).stop
        == summarize(gemini, CTX, dumped(body_object(blocked(reason)))).stop
    )


def test_an_unknown_block_reason_is_unknown() -> None:
    """It is not guessed to be one of those that are known."""
    stop = gemini.decode(blocked("SOLAR_FLARE"), ctx=CTX).stop
    assert (stop.reason, stop.raw, stop.mapped) == (StopReason.UNKNOWN, "SOLAR_FLARE", False)


def test_a_candidates_own_reason_goes_before_the_prompts_feedback() -> None:
    """Older versions sent feedback with every answer."""
    said = {**BODIES["length"], "promptFeedback": {"blockReason": "SAFETY"}}
    assert gemini.decode(said, ctx=CTX).stop.raw == "MAX_TOKENS"


@pytest.mark.behaviour(5)
def test_a_stop_with_calls_is_promoted_and_server_tools_promote_nothing() -> None:
    """There is no finish reason for calls; code and searches that the server ran are no calls of the client's."""
    assert whole("tool calls").stop.promoted_from is StopReason.END_TURN
    assert streamed(STREAMS["tool calls"]).stop == whole("tool calls").stop
    assert (whole("server tools").stop.promoted_from, whole("server tools").tool_calls) == (None, ())
    assert [call.name for call in whole("server and client tools").tool_calls] == ["clock"]


@pytest.mark.behaviour(5)
def test_a_malformed_call_is_an_error_to_repair_and_leaks_nothing() -> None:
    """It is no tool call, whatever the message quotes; and what it quotes is the model's, so no detail holds it."""
    response = whole("malformed call")
    assert (response.stop.reason, response.stop.resume) == (StopReason.ERROR, Resume.REPAIR)
    assert (response.stop.detail, response.tool_calls) == (None, ())
    assert "weather" not in repr(response)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (types.FinishReason.MAX_TOKENS, ("max_tokens", "MAX_TOKENS")),
        ("FinishReason.MAX_TOKENS", ("max_tokens", "MAX_TOKENS")),
        ("STOPSTOP", ("end_turn", "STOPSTOP")),
        ("stop", ("end_turn", "stop")),
        ("A_NEW_REASON", ("unknown", "A_NEW_REASON")),
    ],
    ids=["member", "python's spelling", "added up by LangChain", "lower case", "unknown"],
)
@pytest.mark.behaviour(1)
def test_spellings_of_reasons(raw: Any, expected: tuple[str, str]) -> None:
    """Members by their value, whatever the case, with an exact repetition undone."""
    stop = gemini.decode(body([say("Hm")], raw), ctx=CTX).stop
    assert (stop.reason, stop.raw) == expected


def test_a_member_that_the_sdk_makes_while_it_reads_has_its_value() -> None:
    """The enumeration grows with every value that it does not know."""
    found = body_object(BODIES["unknown"]).candidates
    assert found
    assert not isinstance(found[0].finish_reason, str) or found[0].finish_reason not in gemini.reasons[""]
    assert watched(body_object(BODIES["unknown"])).raw == "A_NEW_REASON"


def test_snake_case_is_read_in_place_too() -> None:
    """The SDK's objects dumped by their names: JSON in the other spelling."""
    for name in BODIES:
        named = body_object(BODIES[name]).model_dump(exclude_none=True)
        seen, expected = summarize(gemini, CTX, named), summarize(gemini, CTX, BODIES[name])
        assert seen == expected, name
        assert gemini.decode(named, ctx=CTX).stop == expected.stop, name


@pytest.mark.behaviour(4)
@pytest.mark.parametrize("name", ["null", "null with a call", "nothing"])
def test_without_a_reason_a_body_is_missing(name: str) -> None:
    """A body is a stream of one chunk, and may be the first of many: without a reason no call in it is to be run."""
    stop = whole(name).stop
    assert (stop.reason, stop.raw, stop.terminal_seen) == (StopReason.MISSING, None, False)


@pytest.mark.behaviour(3)
def test_a_cut_stream_is_missing() -> None:
    """The finish reason is the terminal."""
    for name in ("cut", "cut in a call"):
        assert streamed(STREAMS[name]).stop.reason is StopReason.MISSING


def test_a_reason_with_every_chunk() -> None:
    """gemini-pro 1.0 says STOP with each: the text after it counts, and a later reason that says more."""
    assert streamed(STREAMS["a reason with every chunk"]).text == "Once upon a time"
    cut = streamed([chunk([say("Once ")], "STOP"), chunk([say("upon")], "MAX_TOKENS"), chunk(None, "STOP")])
    assert (cut.text, cut.stop.reason, cut.stop.raw) == ("Once upon", StopReason.MAX_TOKENS, "MAX_TOKENS")


def test_text_takes_back_a_stop_before_it() -> None:
    """Translating proxies say STOP before the text: a stream that is cut in the text has not ended."""
    events = STREAMS["a reason too early"]
    assert streamed(events).stop.reason is StopReason.END_TURN
    assert streamed(events[:-1]).stop.reason is StopReason.MISSING
    assert watched(*events[:-1]).reason is StopReason.MISSING


@pytest.mark.behaviour(9)
def test_an_error_after_the_end_is_detail() -> None:
    """First terminal wins, and nothing is raised."""
    stop = streamed([chunk([say("Once")]), chunk(None, "MAX_TOKENS"), Event(None, {"error": ERROR})]).stop
    assert (stop.reason, stop.detail) == (StopReason.MAX_TOKENS, ERROR["message"])


@pytest.mark.parametrize("data", [{"error": ERROR}, [{"error": ERROR}]], ids=["event", "array"])
def test_an_error_inside_a_stream(data: Any) -> None:
    """Before any reason it is raised with what had arrived; the summarizer says it is an error."""
    with pytest.raises(ProviderUnavailable) as raised:
        streamed([chunk([say("Once")]), Event(None, data)])
    assert raised.value.status == 503
    assert raised.value.partial is not None
    assert raised.value.partial.text == "Once"
    stop = watched(chunk([say("Once")]), data)
    assert (stop.reason, stop.raw, stop.detail) == (StopReason.ERROR, "UNAVAILABLE", ERROR["message"])
    assert raised.value.partial.stop == stop


def test_a_stream_without_sse_is_one_array() -> None:
    """Asked for without `alt=sse`: the chunks are the same."""
    chunks = [event.data for event in STREAMS["tool calls"]]
    assert gemini.decode(chunks, ctx=CTX) == streamed(STREAMS["tool calls"])
    assert summarize(gemini, CTX, dumped(chunks)).stop == streamed(STREAMS["tool calls"]).stop


def test_choice_0_counts() -> None:
    """The text, the calls and the stop are its own; the reasons are everyone's."""
    assert streamed(STREAMS["several"]).text == "Once upon"
    summarizer = gemini.summarizer(Context(asked=RequestSummary(choices=2)))
    for event in STREAMS["several"]:
        summarizer.feed(dumped(event))
    seen = summarizer.close()
    assert (seen.stop.reason, seen.reasons, seen.tail) == (StopReason.END_TURN, ("STOP", "SAFETY"), "Once upon")


def test_a_full_window() -> None:
    """MAX_TOKENS where prompt and output fill the window together is the window's."""
    stop = whole("length", Context(window=47)).stop
    assert stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 3, "totalTokenCount": 18},
            Usage(10, 8, 3),
        ),
        (
            {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 3, "totalTokenCount": 15},
            Usage(10, 5, 3),
        ),
        ({"promptTokenCount": 11, "thoughtsTokenCount": 97, "totalTokenCount": 108}, Usage(11, 97, 97)),
        (
            {"promptTokenCount": 7, "toolUsePromptTokenCount": 40, "candidatesTokenCount": 2, "totalTokenCount": 49},
            Usage(47, 2),
        ),
        ({"promptTokenCount": 30, "cachedContentTokenCount": 8}, Usage(30, None, None, 8)),
        ({"trafficType": "ON_DEMAND"}, None),
    ],
    ids=["thoughts beside", "thoughts within", "thoughts alone", "a server's tools", "cache", "traffic"],
)
def test_usage(usage: Json, expected: Usage | None) -> None:
    """Output is what was said and thought; a server tool's results are input; the total tells whether they overlap."""
    assert gemini.decode({**body([say("x")]), "usageMetadata": usage}, ctx=CTX).usage == expected


def test_the_last_usage_counts() -> None:
    """The figures of the chunks are cumulative; one that counts nothing takes none away."""
    assert streamed(STREAMS["text"]).usage == streamed(STREAMS["traffic"]).usage == Usage(30, 17, 5, 8)
    assert streamed(STREAMS["cut"]).usage == Usage(30)


# What responses hold


def test_thinking_that_used_the_limit_up() -> None:
    """A content without parts, and a usage of nothing but thoughts: no text, no block, and reasoning to account for."""
    response = whole("reasoning only")
    assert (response.text, response.reasoning, response.blocks) == ("", None, None)
    assert response.usage == Usage(11, 97, 97)


def test_thoughts_are_reasoning() -> None:
    """Parts that are marked as thoughts are not visible text."""
    assert (whole("reasoning").text, whole("reasoning").reasoning) == ("42", "**Six** times seven")
    assert streamed(STREAMS["reasoning"]).reasoning == "**Six** times seven"


def test_parts_are_verbatim() -> None:
    """A body's parts are kept as they are, signatures, server tools and images included; empty text is no part."""
    for name in ("several parts", "tool calls", "server tools", "image"):
        assert blocks(whole(name)) == BODIES[name]["candidates"][0]["content"]["parts"]
    assert whole("empty").blocks is None


def test_streamed_words_are_joined_where_nothing_is_lost() -> None:
    """Words go on over chunks; a thought is no text, and a signature stays with the part that it came with."""
    assert blocks(streamed(STREAMS["reasoning"])) == [THOUGHT, say("42"), say("", thoughtSignature=SIGNATURE)]
    events = [
        chunk([say("a"), say("b")]),
        chunk([say("c", thoughtSignature=SIGNATURE)]),
        chunk([say("d")]),
        chunk([CODE]),
        chunk([say("e")], "STOP"),
    ]
    parts = [say("a"), say("b"), say("c", thoughtSignature=SIGNATURE), say("d"), CODE, say("e")]
    assert blocks(streamed(events)) == parts
    assert blocks(streamed(STREAMS["text"])) == [say("Grüezi 👋🏽, the answer is 42.\n\n  Done. ")]


def test_calls() -> None:
    """An id of the format is kept, a missing one is minted and never sent; arguments are objects, and may lack."""
    first, second = whole("tool calls").tool_calls
    assert (first.id, first.arguments_raw, first.arguments) == ("fc-1", None, {"city": "Zürich", "days": [1, 2]})
    assert second.id.startswith("call_")
    assert blocks(whole("tool calls"))[-1] == CLOCK
    assert [call.id for call in streamed(STREAMS["tool calls"]).tool_calls] == [first.id, second.id]
    assert [call.arguments for call in whole("no arguments").tool_calls] == [{}]
    one, other = whole("same call twice").tool_calls
    assert one.id != other.id


def test_a_cut_call_is_not_closed() -> None:
    """Of a truncated response the last call is never closed, however whole it looks."""
    for response in (whole("cut call"), streamed(STREAMS["cut call"])):
        assert [call.closed for call in response.tool_calls] == [True, False]
    assert [call.closed for call in whole("tool calls").tool_calls] == [True, True]


def test_streamed_arguments() -> None:
    """Vertex AI names the place of each piece; the call is closed by the piece that does not go on."""
    events = STREAMS["streamed arguments"]
    write, clock = streamed(events).tool_calls
    arguments = {"path": "a.txt", "text": "Grüezi", "lines": [{"n": 7, "on": True}], "no.ne": None}
    assert (write.id, write.name, write.arguments, write.closed) == ("fc-2", "write", arguments, True)
    assert (clock.name, clock.closed) == ("clock", True)
    assert blocks(streamed(events)) == [call("write", arguments, "fc-2"), CLOCK]
    cut = streamed(events[:4]).tool_calls
    assert [(each.name, each.arguments, each.closed) for each in cut] == [("write", None, False)]


def test_streamed_arguments_reach_the_consumer_once_they_are_whole() -> None:
    """Pieces at places are no JSON text: a call's fragments are its beginning, and its arguments at its end."""
    decoder = gemini.decoder(CTX)
    fragments = [delta.call for event in STREAMS["streamed arguments"] for delta in decoder.feed(event) if delta.call]
    first = [fragment for fragment in fragments if fragment.index == 0]
    assert (first[0].id, first[0].name) == ("fc-2", "write")
    assert {fragment.id for fragment in first[1:]} == {None}
    assert json.loads("".join(fragment.arguments for fragment in first))["text"] == "Grüezi"


def test_a_call_that_never_ended_stays_what_it_is() -> None:
    """Nothing is put together of it: the block holds the pieces, and replayed as a body it is still not ended."""
    response = streamed(STREAMS["streamed arguments, cut"])
    (open_call,) = response.tool_calls
    assert (open_call.arguments, open_call.closed, response.stop.reason) == (None, False, StopReason.MAX_TOKENS)
    assert blocks(response) == [
        partial({"jsonPath": "$.path", "stringValue": "a.t", "willContinue": True}, name="write")
    ]
    again = gemini.decode(gemini.reply(response, stream=False), ctx=CTX)
    assert [call.closed for call in again.tool_calls] == [False]


@pytest.mark.parametrize("path", ["", "$", "city", "$.a..b", "$.x[7]", "$.x[999999999]", "$.text.deeper", "$[0]"])
def test_a_piece_without_a_place_leaves_no_arguments(path: str) -> None:
    """A path that cannot be followed is not guessed at: the gate refuses a call without arguments."""
    events = [
        chunk([partial({"jsonPath": "$.text", "stringValue": "a"}, name="write")]),
        chunk([partial({"jsonPath": path, "numberValue": 1}, more=False)], "STOP"),
    ]
    (written,) = streamed(events).tool_calls
    assert (written.arguments, written.closed) == (None, True)
    again = gemini.decode(gemini.reply(streamed(events), stream=False), ctx=CTX).tool_calls
    assert [(each.arguments, each.closed) for each in again] == [(None, True)]


def test_a_long_text_argument_is_put_together_in_one_go() -> None:
    """Its pieces are joined, not added one to the next."""
    pieces = [{"jsonPath": "$.text", "stringValue": "abcd", "willContinue": True}] * 20_000
    events = [chunk([partial(piece, name="write")]) for piece in pieces] + [chunk([partial(more=False)], "STOP")]
    (written,) = streamed(events).tool_calls
    assert written.arguments == {"text": "abcd" * 20_000}


def test_the_token_comes_with_a_continuation_alone() -> None:
    """A checkpoint's token resumes a text that has gone on since: it is of use to whoever kept nothing after it."""
    assert whole("paused").token == streamed(STREAMS["paused"]).token == "bmV4dA=="
    assert streamed(STREAMS["paused"][:2]).token is None


@pytest.mark.parametrize(
    "bad",
    [
        {"candidates": "x"},
        {"candidates": ["x"]},
        {"candidates": [{"content": "x"}]},
        {"candidates": [{"content": {"parts": ["x"]}}]},
        {"choices": []},
    ],
    ids=str,
)
def test_what_cannot_be_read_is_a_decode_error(bad: Json) -> None:
    """It must not look like an answer that says nothing."""
    with pytest.raises(DecodeError):
        gemini.decode(bad, ctx=CTX)


# Errors


@pytest.mark.behaviour(8)
@pytest.mark.parametrize(
    "said",
    [
        "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
        "Unable to submit request because the input token count is 40000 but model only supports up to 32768.",
    ],
    ids=["gemini", "vertex"],
)
@pytest.mark.parametrize("array", [False, True], ids=["object", "array"])
def test_a_prompt_that_is_too_long(said: str, array: bool) -> None:
    """A 400 that says so is the window's, in both forms of the body."""
    answer: Any = {"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}
    content = json.dumps([answer] if array else answer).encode()
    error = error_of(400, {}, content, ctx=CTX)
    assert isinstance(error, RequestRejected)
    assert error.stop is not None
    assert error.stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503, 504, 529])
def test_error_answers(status: int) -> None:
    """What a scripted server says is read as what it means, in an answer and in a stream."""
    written = gemini.reply_error(status, None, None)
    assert isinstance(written, dict)
    error = error_of(status, {}, json.dumps(written).encode(), ctx=CTX)
    assert (error.status, error.retryable) == (status, status >= 429)
    event = gemini.reply_error(status, None, None, stream=True)
    assert isinstance(event, Event)
    with pytest.raises(ProviderError) as raised:
        streamed([chunk([say("Once")]), event])
    assert (raised.value.status, raised.value.retryable) == (status, status >= 429)


def test_an_error_under_200() -> None:
    """A body that is an error is raised as one."""
    with pytest.raises(ProviderUnavailable):
        gemini.decode({"error": ERROR}, ctx=CTX)
    with pytest.raises(ProviderUnavailable):
        gemini.decode([{"error": ERROR}], ctx=CTX)


# Where requests go


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-3-flash", "/models/gemini-3-flash"),
        ("models/gemini-3-flash", "/models/gemini-3-flash"),
        ("tunedModels/mine", "/tunedModels/mine"),
        ("publishers/google/models/x", "/publishers/google/models/x"),
        ("a/../b?c", "/models/a%2F..%2Fb%3Fc"),
    ],
)
def test_route(model: str, path: str) -> None:
    """The model is in the path, quoted, and with what it is where the name does not say it."""
    asked = Request(model=model, messages=())
    assert gemini.route(asked, stream=False) == Route("POST", f"{path}:generateContent")
    assert gemini.route(asked, stream=True) == Route("POST", f"{path}:streamGenerateContent?alt=sse")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1beta/models/x:generateContent", Routed("x", False)),
        ("/v1beta/models/x:streamGenerateContent?alt=sse", Routed("x", True)),
        ("/v1/models/x:streamGenerateContent", Routed("x", True)),
        ("/v1beta/tunedModels/x:generateContent", Routed("tunedModels/x", False)),
        ("/v1/projects/p/locations/l/publishers/google/models/x:streamGenerateContent", Routed("x", True)),
        ("/v1beta1/publishers/google/models/x:generateContent?key=k", Routed("x", False)),
        ("/v1beta1/projects/p/locations/l/endpoints/7:generateContent", Routed("endpoints/7", False)),
        ("/gateway/acme/google/v1/models/x:generateContent", Routed("x", False)),
        ("/models/x%3A1:generateContent", Routed("x:1", False)),
        ("/v1beta/models/x:countTokens", None),
        ("/v1beta/models/x", None),
        ("/v1/chat/completions", None),
    ],
)
def test_routed(path: str, expected: Routed | None) -> None:
    """The paths of the Gemini API, of Vertex AI, and of gateways before them."""
    assert gemini.routed("POST", path) == expected
    assert gemini.routed("GET", path) is None


# Requests

TOOL = Tool(name="weather", description="The weather.", parameters={"type": "object", "properties": {"city": {}}})
REQUEST = Request(
    model="gemini-3-flash",
    messages=(Message(role="system", content="Be brief."), Message(role="user", content="Weather?")),
    tools=(TOOL,),
    max_tokens=100,
    temperature=0.5,
    seed=7,
)


def test_encode() -> None:
    """The body has what the path does not say."""
    assert gemini.encode(REQUEST) == {
        "contents": [{"role": "user", "parts": [{"text": "Weather?"}]}],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "weather", "description": "The weather.", "parametersJsonSchema": TOOL.parameters}
                ]
            }
        ],
        "generationConfig": {"maxOutputTokens": 100, "temperature": 0.5, "seed": 7},
    }
    assert gemini.encode(REQUEST, stream=True) == gemini.encode(REQUEST)
    assert gemini.encode(Request(model="m", messages=REQUEST.messages[1:])).keys() == {"contents"}


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("weather", {"mode": "ANY", "allowedFunctionNames": ["weather"]}),
    ],
)
def test_tool_choices(choice: str, config: Json) -> None:
    """Each has its mode; automatic is what is not said."""
    written = gemini.encode(REQUEST.but(tool_choice=choice))
    assert written["toolConfig"] == {"functionCallingConfig": config}


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ({"type": "json_object"}, {"responseMimeType": "application/json"}),
        ({"type": "array"}, {"responseMimeType": "application/json", "responseJsonSchema": {"type": "array"}}),
    ],
)
def test_formats(form: Json, written: Json) -> None:
    """JSON is a type; its schema stands beside it."""
    asked = Request(model="m", messages=REQUEST.messages, format=form)
    assert gemini.encode(asked)["generationConfig"] == written


def test_a_response_cannot_be_fetched() -> None:
    """The format has no ids to fetch by."""
    with pytest.raises(UsageError):
        gemini.encode(Request(model="m", messages=(), retrieve="r"))


def test_results_go_together_and_by_name() -> None:
    """One content holds a batch's results; each has the function's name, and the id where the format gave one."""
    response = whole("tool calls")
    first, second = response.tool_calls
    asked = Request(
        model="m",
        messages=(
            Message(role="user", content="?"),
            response.message(),
            Message(role="tool", tool_call_id=first.id, content="14 °C"),
            Message(role="tool", tool_call_id=second.id, content="broken", is_error=True),
            Message(role="user", content="and?"),
        ),
    )
    written = gemini.encode(asked)["contents"]
    assert [content["role"] for content in written] == ["user", "model", "user", "user"]
    assert written[1]["parts"] == BODIES["tool calls"]["candidates"][0]["content"]["parts"]
    assert written[2]["parts"] == [
        {"functionResponse": {"name": "weather", "response": {"output": "14 °C"}, "id": "fc-1"}},
        {"functionResponse": {"name": "clock", "response": {"error": "broken"}}},
    ]


def test_a_history_of_another_format() -> None:
    """Without parts of this format, text and calls are written anew, ids and all."""
    calls = (ToolCall(id="toolu_1", name="clock", arguments={"zone": "CET"}),)
    foreign = Blocks("anthropic", ({"type": "text", "text": "Looking."},))
    asked = Request(
        model="m",
        messages=(
            Message(role="assistant", content="Looking.", tool_calls=calls, blocks=foreign),
            Message(role="tool", tool_call_id="toolu_1", content="noon"),
            Message(role="assistant", content=" "),
        ),
    )
    assert gemini.encode(asked)["contents"] == [
        {"role": "model", "parts": [say("Looking."), call("clock", {"zone": "CET"}, "toolu_1")]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "clock", "response": {"output": "noon"}, "id": "toolu_1"}}],
        },
    ]


@pytest.mark.behaviour(24)
def test_calls_that_left_the_history_leave_the_parts() -> None:
    """By their ids; and those without one by what they ask for."""
    response = whole("tool calls")
    first, second = response.tool_calls
    for kept, parts in (((first,), [WEATHER]), ((second,), [CLOCK]), ((), [])):
        message = response.message().but(tool_calls=kept)
        written = gemini.encode(Request(model="m", messages=(message,)))["contents"]
        assert written == [{"role": "model", "parts": [say("Looking."), *parts]}]
    twice = whole("same call twice")
    message = twice.message().but(tool_calls=twice.tool_calls[1:])
    assert gemini.encode(Request(model="m", messages=(message,)))["contents"][0]["parts"] == [CLOCK]


@pytest.mark.behaviour(23)
def test_signatures_are_replayed_and_unsigned_thoughts_are_not() -> None:
    """A call that lost its signature is refused; a thought that nobody signed says nothing to the model."""
    for name, parts in (
        ("reasoning", [say("42", thoughtSignature=SIGNATURE)]),
        ("tool calls", [say("Looking."), WEATHER, CLOCK]),
        ("server tools", [SEARCH, FOUND, CODE, RAN, say("High noon, 42.")]),
    ):
        written = gemini.encode(Request(model="m", messages=(whole(name).message(),)))["contents"]
        assert written == [{"role": "model", "parts": parts}]
    signed = gemini.decode(body([{**THOUGHT, "thoughtSignature": SIGNATURE}, say("42")]), ctx=CTX)
    assert len(gemini.encode(Request(model="m", messages=(signed.message(),)))["contents"][0]["parts"]) == 2


@pytest.mark.behaviour(22)
@pytest.mark.parametrize("name", ["reasoning only", "visible reasoning only", "empty", "blocked prompt"])
def test_an_answer_that_says_nothing_is_left_out(name: str) -> None:
    """The API refuses a content without parts."""
    written = gemini.encode(Request(model="m", messages=(REQUEST.messages[1], whole(name).message())))
    assert [content["role"] for content in written["contents"]] == ["user"]


# Continuations


@pytest.mark.behaviour(21)
@pytest.mark.behaviour(25)
def test_a_prompt_follows_the_partial_answer() -> None:
    """The prefix is the same; a forced call is not asked for again, text is."""
    forced = REQUEST.but(tool_choice="weather", extra={"toolConfig": {}, "safetySettings": []})
    asked = gemini.resume(forced, whole("length"), prompt="Go on.")
    before, after = gemini.encode(forced), gemini.encode(asked)
    assert after["contents"] == [
        *before["contents"],
        {"role": "model", "parts": [say("The answer is")]},
        {"role": "user", "parts": [say("Go on.")]},
    ]
    assert asked.messages[-1].synthetic
    assert (asked.tool_choice, asked.extra) == ("auto", {"safetySettings": []})


@pytest.mark.behaviour(23)
@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        ([say("So"), WEATHER], [say("So")]),
        ([say("So"), THOUGHT], [say("So")]),
        ([say("So"), {**THOUGHT, "thoughtSignature": SIGNATURE}], [say("So")]),
        ([say("So"), CODE], [say("So")]),
        ([say("So"), SEARCH], [say("So")]),
        ([SEARCH, FOUND, say("So")], [SEARCH, FOUND, say("So")]),
        ([THOUGHT], []),
    ],
    ids=["a call", "a thought", "a signed thought", "code", "a search", "a search that was answered", "nothing else"],
)
def test_what_was_cut_off_is_not_replayed(parts: list[Json], kept: list[Json]) -> None:
    """No call without its result, no thinking at the end, nothing that the server was about to run."""
    asked = gemini.resume(REQUEST, gemini.decode(body(parts, "MAX_TOKENS"), ctx=CTX), prompt="Go on.")
    written = gemini.encode(asked)["contents"][1:-1]
    assert written == ([{"role": "model", "parts": kept}] if kept else [])


@pytest.mark.behaviour(13)
@pytest.mark.parametrize("strategy", [Strategy.NATIVE_TOKEN, Strategy.PROMPT], ids=str)
def test_a_token_goes_with_the_same_request(strategy: Strategy) -> None:
    """Nothing else changes: the SDK does the same."""
    asked = gemini.resume(REQUEST, whole("paused"), prompt="Go on.", strategy=strategy)
    assert asked == REQUEST.but(token="bmV4dA==")
    assert gemini.encode(asked) == {**gemini.encode(REQUEST), "continuationToken": "bmV4dA=="}


def test_a_pause_without_a_token_is_asked_to_go_on() -> None:
    """There is nothing to resume it with; a token that had been used is not sent again."""
    cut = gemini.decode(body([say("So far")], "CONTINUATION"), ctx=CTX)
    asked = gemini.resume(REQUEST.but(token="used"), cut, prompt="Go on.")
    assert (asked.token, asked.messages[-1].content) == (None, "Go on.")


@pytest.mark.behaviour(22)
def test_a_prefill_ends_without_white_space() -> None:
    """The partial answer is the last content."""
    cut = gemini.decode(body([say("So far \n")], "MAX_TOKENS"), ctx=CTX)
    asked = gemini.resume(REQUEST, cut, prompt="Go on.", strategy=Strategy.PREFILL)
    assert gemini.encode(asked)["contents"][-1] == {"role": "model", "parts": [say("So far")]}


def test_a_resend_is_verbatim() -> None:
    """The answer as it came is the last message."""
    asked = gemini.resume(REQUEST, whole("server tools"), prompt="Go on.", strategy=Strategy.RESEND)
    assert asked.messages == (*REQUEST.messages, whole("server tools").message())


# What calls ask for

CONFIG: Json = {
    "max_output_tokens": 9,
    "temperature": 0.5,
    "top_p": 0.25,
    "seed": 7,
    "candidate_count": 2,
    "response_mime_type": "application/json",
    "system_instruction": "Be brief.",
}


@pytest.mark.parametrize("config", [CONFIG, types.GenerateContentConfig(**CONFIG)], ids=["dictionary", "object"])
def test_inspect_the_sdks_arguments(config: Any) -> None:
    """`config` is a dictionary or the SDK's object; who calls says whether the answer is streamed."""
    history = [types.Content(role="user", parts=[types.Part(text="hi")])]
    asked = gemini.request_summary({"model": "m", "contents": history, "config": config, "stream": True})
    assert asked == RequestSummary(
        model="m",
        maximum=9,
        choices=2,
        stream=True,
        output_type="json",
        temperature=0.5,
        top_p=0.25,
        seed=7,
        system="Be brief.",
        history=history,
        length=1,
    )
    assert asked.history is history


def test_inspect_a_body() -> None:
    """The same of the HTTP request."""
    written = gemini.encode(REQUEST.but(format={"type": "object"}))
    asked = gemini.request_summary({"model": "m", "stream": False, **written})
    assert (asked.model, asked.maximum, asked.temperature, asked.seed) == ("m", 100, 0.5, 7)
    assert (asked.json_format, asked.system, asked.history) == (True, written["systemInstruction"], written["contents"])


@pytest.mark.parametrize("contents", ["hi", {"parts": []}, types.Part(text="hi")], ids=["text", "content", "part"])
def test_contents_that_are_no_list(contents: Any) -> None:
    """The SDK takes a text, a content or a part alone."""
    asked = gemini.request_summary({"model": "m", "contents": contents})
    assert (asked.history, asked.length) == ((contents,), 1)


# Replies


def test_a_stream_breaks_off_in_its_last_call() -> None:
    """What was not ended is not said to be."""
    response = ChatResponse(
        tool_calls=(ToolCall(id="fc-1", name="clock", arguments={}),),
        stop=Stop(StopReason.MISSING, terminal_seen=False, incomplete=True),
    )
    events = gemini.reply(response, stream=True)
    assert isinstance(events, list)
    assert [call.closed for call in streamed(events).tool_calls] == [False]
    assert "finishReason" not in events[-1].data["candidates"][0]


@pytest.mark.parametrize(
    ("stop", "raw"),
    [
        (Stop(StopReason.TOOL_CALL, "tool_use"), "STOP"),
        (Stop(StopReason.MAX_TOKENS, "length"), "MAX_TOKENS"),
        (Stop(StopReason.SAFETY_BLOCKED, "content_filter"), "SAFETY"),
        (Stop(StopReason.UNKNOWN, "tired", mapped=False), "tired"),
    ],
    ids=lambda value: str(getattr(value, "reason", value)),
)
def test_stops_of_other_formats_are_said_in_this_formats_words(stop: Stop, raw: str) -> None:
    """A scripted server speaks the format's own language; a raw value nobody knows is said verbatim."""
    written = gemini.reply(ChatResponse(text="Hm", stop=stop), stream=False)
    assert isinstance(written, dict)
    assert written["candidates"][0]["finishReason"] == raw


def test_a_scripted_pause_has_a_token_of_its_own() -> None:
    """The SDK stops where a response carries the token that was sent."""
    stop = Stop(StopReason.PAUSED, "CONTINUATION", resume=Resume.NATIVE_TOKEN, incomplete=True)
    replies = [gemini.reply(ChatResponse(text="a", id=id_, stop=stop), stream=False) for id_ in ("r1", "r2")]
    tokens = [gemini.decode(written, ctx=CTX).token for written in replies]
    assert None not in tokens
    assert len(set(tokens)) == 2


# In place


def test_a_watch_of_a_long_stream_keeps_the_end_only() -> None:
    """Chunks of plain text take the short way: what is counted is the same."""
    events = STREAMS["long text"]
    summarizer = gemini.summarizer(CTX)
    for event in events:
        summarizer.feed(event.data)
    seen = summarizer.close()
    text = streamed(events).text
    assert (seen.tail, seen.output_chars, seen.id, seen.model) == (
        text[-64:],
        len(text),
        HEAD["responseId"],
        HEAD["modelVersion"],
    )


@pytest.mark.parametrize(
    "odd",
    [
        {"candidates": [{**candidate([say("x")]), "index": 1}]},
        {"candidates": [candidate([say("x", thought=True)])]},
        {"candidates": [candidate([say("x", thought=False)])]},
        {"candidates": [candidate([say("x", thought=True, thoughtSignature=SIGNATURE)], "MAX_TOKENS")]},
        {"candidates": [candidate([say("x")], "MAX_TOKENS")]},
        {"candidates": [candidate([say("x")])], "error": ERROR},
        {"candidates": [candidate([say("x")])], "promptFeedback": {"blockReason": "SAFETY"}},
        {"candidates": [candidate([{**say("x"), **CLOCK}])]},
        {"candidates": [candidate([say("x")])], "usageMetadata": {"promptTokenCount": "x"}},
    ],
    ids=[
        *("another choice", "a thought", "no thought", "a signed end", "a reason", "an error", "a block", "a call"),
        "odd usage",
    ],
)
def test_the_short_way_is_for_plain_words_only(odd: Json) -> None:
    """A chunk that says anything else is read as it would be by itself, as a mapping and as the SDK's object."""
    first, last = chunk([say("a")]), chunk([say("b")])
    events = [first, Event(None, odd), last]
    decoder = gemini.decoder(CTX)
    for event in events:
        with suppress(ProviderError):
            list(decoder.feed(event))
    expected = decoder.close()
    summarizer = gemini.summarizer(CTX)
    for event in events:
        summarizer.feed(event.data)
    assert (summarizer.close().stop, summarizer.close().usage, summarizer.close().tail) == (
        expected.stop,
        expected.usage,
        expected.text,
    )
