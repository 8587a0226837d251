"""generateContent: what its responses say, requests, and what a continuation sends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.genai import types

from endturn.chat import Blocks, ChatResponse, Json, Message, Request, Tool, ToolCall
from endturn.errors import ProviderError, RequestRejected, UsageError
from endturn.events import Strategy
from endturn.formats import Context, Event, RequestSummary, Route, Routed, summarize
from endturn.formats.errors import error_of
from endturn.formats.gemini import FORMAT as gemini
from endturn.sdk_objects import dumped
from endturn.stop import Resume, Stop, StopReason
from tests.formats.replies_gemini import (
    BODIES,
    CLOCK,
    CODE,
    FOUND,
    RAN,
    SEARCH,
    SIGNATURE,
    STREAMS,
    THOUGHT,
    WEATHER,
    body,
    body_object,
    call,
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


# What responses hold


def test_streamed_arguments_reach_the_consumer_once_they_are_whole() -> None:
    """Pieces at places are no JSON text: a call's fragments are its beginning, and its arguments at its end."""
    decoder = gemini.decoder(CTX)
    fragments = [delta.call for event in STREAMS["streamed arguments"] for delta in decoder.feed(event) if delta.call]
    first = [fragment for fragment in fragments if fragment.index == 0]
    assert (first[0].id, first[0].name) == ("fc-2", "write")
    assert {fragment.id for fragment in first[1:]} == {None}
    assert json.loads("".join(fragment.arguments for fragment in first))["text"] == "Grüezi"


def test_a_long_text_argument_is_put_together_in_one_go() -> None:
    """Its pieces are joined, not added one to the next."""
    pieces = [{"jsonPath": "$.text", "stringValue": "abcd", "willContinue": True}] * 20_000
    events = [chunk([partial(piece, name="write")]) for piece in pieces] + [chunk([partial(more=False)], "STOP")]
    (written,) = streamed(events).tool_calls
    assert written.arguments == {"text": "abcd" * 20_000}


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


def test_a_scripted_pause_has_a_token_of_its_own() -> None:
    """The SDK stops where a response carries the token that was sent."""
    stop = Stop(StopReason.PAUSED, "CONTINUATION", resume=Resume.NATIVE_TOKEN, incomplete=True)
    replies = [gemini.reply(ChatResponse(text="a", id=id_, stop=stop), stream=False) for id_ in ("r1", "r2")]
    tokens = [gemini.decode(written, ctx=CTX).token for written in replies]
    assert None not in tokens
    assert len(set(tokens)) == 2
