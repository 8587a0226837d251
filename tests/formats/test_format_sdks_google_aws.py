"""Google's and AWS's SDKs: they take scripted replies for the real thing, and what they hand out is read as what came.

How all of them, OpenAI's and Anthropic's too, are asked, `tests/test_adapters.py` shows.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any, cast

import pytest
from anthropic.types.beta import BetaMessage
from google import genai
from google.genai import errors, types
from google.genai._interactions import APIStatusError
from openai.types.chat import ChatCompletion

from endturn.chat import Message, Request, Tool, Usage
from endturn.formats import Context, Event, ResponseSummary, format_of, summarize
from endturn.scripted import (
    Reply,
    ScriptedProvider,
    block,
    call,
    cut,
    fail,
    partial_call,
    pause,
    reason,
    say,
    think,
    truncate,
)
from endturn.sdk_objects import dumped
from endturn.stop import StopReason
from tests.formats.recorded import RECORDED

# Neither typed nor with stubs.
boto3: Any = import_module("boto3")
botocore: Any = import_module("botocore.exceptions")
parsers: Any = import_module("botocore.parsers")

HI: list[Any] = [{"role": "user", "content": [{"text": "hi"}]}]
INVOKED = {
    "claude": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "nova": "amazon.nova-lite-v1:0",
    "titan": "amazon.titan-text-express-v1",
    "llama": "arn:aws:bedrock:us-east-1:111122223333:inference-profile/us.meta.llama3-3-70b-instruct-v1:0",
    "mistral": "mistral.mixtral-8x7b-instruct-v0:1",
    "command": "cohere.command-text-v14",
    "claude_text": "anthropic.claude-v2:1",
    "command_r": "cohere.command-r-plus-v1:0",
    "jamba": "ai21.jamba-1-5-mini-v1:0",
    "deepseek": "us.deepseek.r1-v1:0",
}
"""A model of each family."""


@contextmanager
def google(provider: ScriptedProvider, **more: Any) -> Iterator[genai.Client]:
    """Google's client, asking a scripted provider once."""
    with provider.serve() as url:
        options: Any = {"base_url": url, "retry_options": {"attempts": 1}}
        with genai.Client(http_options=options, **{"api_key": "none", **more}) as client:
            yield client


@contextmanager
def bedrock(provider: ScriptedProvider) -> Iterator[Any]:
    """boto3's client, asking a scripted provider once."""
    with provider.serve() as url:
        client = boto3.client(
            "bedrock-runtime",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="none",
            aws_secret_access_key="none",
            config=import_module("botocore.config").Config(retries={"total_max_attempts": 1}),
        )
        try:
            yield client
        finally:
            client.close()


def by_gemini(provider: ScriptedProvider, *, stream: bool) -> Iterator[Any]:
    """What generateContent gives, one object after the other."""
    with google(provider) as client:
        models: Any = client.models
        asked = {"model": "m", "contents": "hi", "config": {"max_output_tokens": 1000}}
        yield from models.generate_content_stream(**asked) if stream else [models.generate_content(**asked)]


def by_interactions(provider: ScriptedProvider, *, stream: bool) -> Iterator[Any]:
    """What an interaction gives."""
    with google(provider) as client:
        answer: Any = client.interactions.create(model="m", input="hi", stream=stream)
        yield from answer if stream else [answer]


def by_converse(provider: ScriptedProvider, *, stream: bool) -> Iterator[Any]:
    """What Converse gives."""
    with bedrock(provider) as client:
        ask = client.converse_stream if stream else client.converse
        answer = ask(modelId="m", messages=HI)
        yield from _of_stream(answer["stream"]) if stream else [answer]


def _of_stream(events: Any) -> Iterator[Any]:
    with closing(events):
        yield from events


def by_invoke(model: str, provider: ScriptedProvider, *, stream: bool) -> Iterator[Any]:
    """What a model gives that is invoked."""
    asked = Request(model=model, messages=(Message(role="user", content="hi"),), max_tokens=1000)
    with bedrock(provider) as client:
        ask = client.invoke_model_with_response_stream if stream else client.invoke_model
        body = format_of("bedrock_invoke").encode(asked, stream=stream)
        answer = ask(modelId=model, body=json.dumps(body))["body"]
        yield from _of_stream(answer) if stream else [json.load(answer)]


Ask = Callable[..., Iterator[Any]]
ASKED: dict[str, Ask] = {
    "gemini": by_gemini,
    "gemini_interactions": by_interactions,
    "bedrock_converse": by_converse,
    "bedrock_invoke": lambda provider, *, stream: by_invoke(INVOKED["claude"], provider, stream=stream),
}
each_sdk = pytest.mark.parametrize("format", ASKED)
each_way = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def seen(format: str, things: Iterator[Any], *, model: str = "m") -> ResponseSummary:
    """What a summarizer makes of the SDK's objects, until they end or the SDK raises."""
    asked = format_of(format).request_summary({"model": model, "max_tokens": 1000})
    summarizer = format_of(format).summarizer(Context("", format_of(format).provider, asked))
    try:
        for thing in things:
            summarizer.feed(dumped(thing))
    finally:
        found = summarizer.close()
    return found


def played(format: str, *replies: Reply) -> ScriptedProvider:
    """A provider that plays these, and no other format."""
    return ScriptedProvider(replies, format=format)


CASES: dict[str, tuple[Reply, str, StopReason]] = {
    "say": (say("Grüezi 👋🏽."), "Grüezi 👋🏽.", StopReason.END_TURN),
    "truncate": (truncate("One two three", after=2), "One two", StopReason.MAX_TOKENS),
    "call": (call("weather", {"city": "Zürich"}, text="Hm."), "Hm.", StopReason.TOOL_CALL),
    "cut call": (partial_call("weather", {"city": "Zürich"}, after=2), "", StopReason.MAX_TOKENS),
    "thinking alone": (think("Let me see"), "", StopReason.MAX_TOKENS),
    "thinking": (think("Let me see", text="Yes"), "Yes", StopReason.END_TURN),
}


@each_way
@each_sdk
@pytest.mark.parametrize("case", CASES)
def test_scripted_replies(case: str, format: str, stream: bool) -> None:
    """Each kind arrives with its text and its reason."""
    reply, text, expected = CASES[case]
    found = seen(format, ASKED[format](played(format, reply), stream=stream))
    assert (found.tail, found.stop.reason) == (text, expected)
    assert found.usage is not None


@each_way
@pytest.mark.parametrize("family", INVOKED)
def test_invoked_models(family: str, stream: bool) -> None:
    """In each family's own words; Bedrock's figures are in the last chunk, whatever the family."""
    provider = ScriptedProvider([truncate("One two three", after=2).but(usage=Usage(5, 2))])
    found = seen("bedrock_invoke", by_invoke(INVOKED[family], provider, stream=stream), model=INVOKED[family])
    assert (found.tail, found.stop.reason) == ("One two", StopReason.MAX_TOKENS)
    assert not stream or found.usage == Usage(5, 2)
    (received,) = provider.received
    assert (received.format, received.stream, received.request.model) == ("bedrock_invoke", stream, INVOKED[family])
    assert received.request.max_tokens == 1000


@each_way
@each_sdk
def test_calls(format: str, stream: bool) -> None:
    """Several, in order, with their ids and arguments."""
    reply = call("read", {"path": "a b.txt"}, id="fc-1").also("list", {}, id="fc-2")
    speaks, things = format_of(format), list(map(dumped, ASKED[format](played(format, reply), stream=stream)))
    if stream:
        decoder = speaks.decoder(Context(provider=speaks.provider))
        for thing in things:
            list(decoder.feed(Event(None, thing)))
        response = decoder.close()
    else:
        response = speaks.decode(things[0], ctx=Context(provider=speaks.provider))
    assert [(each.id, each.name, each.arguments or {}, each.closed) for each in response.tool_calls] == [
        ("fc-1", "read", {"path": "a b.txt"}, True),
        ("fc-2", "list", {}, True),
    ]


@each_sdk
def test_a_cut_stream_is_missing(format: str) -> None:
    """The SDK ends without an error where the HTTP message is whole; only the summary says that it was cut."""
    found = seen(format, ASKED[format](played(format, cut("One two three", after=2, tidy=True)), stream=True))
    assert (found.tail, found.stop.reason, found.stop.terminal_seen) == ("One two", StopReason.MISSING, False)


RAISED: dict[str, Any] = {
    "gemini": errors.APIError,
    "gemini_interactions": APIStatusError,
    "bedrock_converse": botocore.ClientError,
    "bedrock_invoke": botocore.ClientError,
}


@pytest.mark.parametrize("status", [400, 429, 500, 503])
@each_sdk
def test_failures_are_the_sdks_own(format: str, status: int) -> None:
    """Error answers are of the SDK's classes, with the real service's words."""
    with pytest.raises(RAISED[format]) as raised:
        list(ASKED[format](played(format, fail(status)), stream=False))
    answer = getattr(raised.value, "response", None)
    code = answer["ResponseMetadata"]["HTTPStatusCode"] if isinstance(answer, dict) else None
    assert status in (code, getattr(raised.value, "code", None), getattr(raised.value, "status_code", None))


@each_sdk
def test_a_failure_inside_a_stream(format: str) -> None:
    """Three of the SDKs raise it after the text; of interactions, it is an event, which the summary reads."""
    provider = played(format, fail(503, text="So far"))
    if format == "gemini_interactions":
        found = seen(format, by_interactions(provider, stream=True))
        assert (found.tail, found.stop.reason) == ("So far", StopReason.ERROR)
        return
    with pytest.raises((errors.ServerError, botocore.EventStreamError)):
        seen(format, ASKED[format](provider, stream=True))


# --- What one SDK alone does ---


@pytest.mark.behaviour(14)
@each_way
@pytest.mark.parametrize("format", ["gemini", "gemini_interactions"])
def test_googles_sdk_follows_tokens_by_itself(format: str, stream: bool) -> None:
    """A pause is asked for again with its token, and nobody above the SDK hears of it: all hops are one response."""
    provider = played(format, pause("Chapter one. "), say("Chapter two."))
    found = seen(format, ASKED[format](provider, stream=stream))
    assert (found.tail, found.stop.reason) == ("Chapter one. Chapter two.", StopReason.END_TURN)
    first, second = provider.requests
    assert (first.token, second.token is None) == (None, False)
    assert second.previous_id == (None if format == "gemini" else "v1_00000001")


def test_a_token_that_googles_sdk_is_told_not_to_follow() -> None:
    """The pause is seen; the token, bytes in the SDK's object, is text again."""
    with google(ScriptedProvider([pause("So far")])) as client:
        config: Any = {"automatic_continuation": False}
        answer: Any = client.models.generate_content(model="m", contents="hi", config=config)
    assert isinstance(answer.candidates[0].continuation_token, bytes)
    response = format_of("gemini").decode(dumped(answer), ctx=Context())
    assert (response.stop.reason, response.stop.raw) == (StopReason.PAUSED, "CONTINUATION")
    assert isinstance(response.token, str)


def test_a_reason_that_googles_sdk_does_not_know() -> None:
    """It warns, and makes a member of it: its value is what is read."""
    with pytest.warns(UserWarning, match="A_NEW_REASON"):
        found = seen("gemini", by_gemini(ScriptedProvider([reason("A_NEW_REASON", "Hm")]), stream=False))
    assert (found.stop.reason, found.stop.raw) == (StopReason.UNKNOWN, "A_NEW_REASON")


def test_a_word_that_google_alone_has() -> None:
    """A filter's, and a call that is no call."""
    for reply, expected in ((block("So"), StopReason.SAFETY_BLOCKED), (reason("MALFORMED_FUNCTION_CALL"), "error")):
        assert seen("gemini", by_gemini(ScriptedProvider([reply]), stream=True)).stop.reason == expected


def test_vertex_ai() -> None:
    """Its paths name the model too."""
    provider = ScriptedProvider([say("Oui.")])
    with google(provider, vertexai=True) as client:
        answer = client.models.generate_content(model="m", contents="hi")
    assert summarize(format_of("gemini"), Context(), dumped(answer)).stop.reason is StopReason.END_TURN
    assert [(each.format, each.request.model) for each in provider.received] == [("gemini", "m")]


def test_a_response_is_fetched() -> None:
    """GET of an interaction's id."""
    with google(played("gemini_interactions", say("Done."))) as client:
        answer = client.interactions.get("v1_a")
    assert seen("gemini_interactions", iter([answer])).stop.reason is StopReason.END_TURN


# --- What the SDKs send ---


def test_a_conversation_of_googles_sdk_is_understood() -> None:
    """Its settings, and its history of calls and results, each result with the call that it answers."""
    provider = ScriptedProvider([call("clock", {}), say("Noon.")])
    config: Any = {
        "system_instruction": "Be brief.",
        "temperature": 0.5,
        "max_output_tokens": 9,
        "tools": [{"function_declarations": [{"name": "clock", "parameters_json_schema": {"type": "object"}}]}],
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["clock"]}},
    }
    with google(provider) as client:
        answer: Any = client.models.generate_content(model="m", contents="hi", config=config)
        result = types.Part.from_function_response(name="clock", response={"output": "12:00"})
        history: Any = ["hi", answer.candidates[0].content, types.Content(role="user", parts=[result])]
        client.models.generate_content(model="m", contents=history)
    first, second = provider.requests
    assert (first.model, first.max_tokens, first.temperature, first.tool_choice) == ("m", 9, 0.5, "clock")
    assert [(message.role, message.content) for message in first.messages] == [("system", "Be brief."), ("user", "hi")]
    assert [tool.parameters for tool in first.tools] == [{"type": "object"}]
    _, said, answered = second.messages
    assert [each.name for each in said.tool_calls] == ["clock"]
    assert (answered.role, answered.content, answered.tool_call_id) == ("tool", "12:00", said.tool_calls[0].id)


@pytest.mark.parametrize("is_object", [False, True], ids=["dictionary", "object"])
def test_the_arguments_of_googles_method_are_read_in_place(is_object: bool) -> None:
    """`config` is a dictionary or the SDK's object."""
    known: Any = {"max_output_tokens": 9, "candidate_count": 2, "response_mime_type": "application/json", "seed": 7}
    config = types.GenerateContentConfig(**known) if is_object else known
    asked = format_of("gemini").request_summary({"model": "m", "contents": "hi", "config": config, "stream": True})
    assert (asked.model, asked.maximum, asked.choices, asked.seed) == ("m", 9, 2, 7)
    assert (asked.stream, asked.json_format, asked.history) == (True, True, ("hi",))


def test_what_boto3_sends_is_what_encode_writes() -> None:
    """Its arguments are the body's members: the scripted server reads the same request back, model and all."""
    asked = Request(
        model="arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.x-v1:0",
        messages=(Message(role="system", content="Be brief."), Message(role="user", content="hi")),
        tools=(Tool(name="weather", description="The weather."),),
        tool_choice="required",
        max_tokens=64,
        temperature=0.5,
        format={"type": "object"},
        extra={"additionalModelRequestFields": {"top_k": 5}},
    )
    provider = ScriptedProvider([say("whole"), say("streamed")])
    body = format_of("bedrock_converse").encode(asked)
    with bedrock(provider) as client:
        client.converse(modelId=asked.model, **body)
        list(client.converse_stream(modelId=asked.model, **body)["stream"])
    assert provider.requests == [asked, asked]
    assert [received.stream for received in provider.received] == [False, True]


# --- Objects of replies on file ---


def _of_google(body: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The SDK warns of reasons that it does not know.
        return types.GenerateContentResponse.model_validate(body)


def _of_boto3(body: Any) -> Any:
    answer = {"status_code": 200, "headers": {}, "body": json.dumps(body).encode()}
    return parsers.create_parser("rest-json").parse(answer, _model().operation_model("Converse").output_shape)


OBJECTS: dict[str, Callable[[Any], Any]] = {
    "anthropic": lambda body: cast(Any, BetaMessage).construct(**body),
    "bedrock_converse": _of_boto3,
    "gemini": _of_google,
    "openai_chat": lambda body: cast(Any, ChatCompletion).construct(**body),
}


@pytest.mark.parametrize("format", OBJECTS)
def test_an_object_of_the_sdk_is_read_as_the_body_is(format: str) -> None:
    """Every reply whose source is a list of an API's replies; of Google's, dumped by its own names too."""
    recorded = RECORDED[format]
    for name in ("text", "length", "unknown", "tool use" if format != "openai_chat" else "tool calls", "reasoning"):
        name = name.replace(" ", "-")
        if name not in recorded.bodies:
            continue
        body, ctx = recorded.bodies[name], recorded.contexts[name]
        made, expected = OBJECTS[format](body), recorded.format.decode(body, ctx=ctx)
        dumps = [dumped(made)] + ([made.model_dump(exclude_none=True)] if format == "gemini" else [])
        for each in dumps:
            again = recorded.format.decode(each, ctx=ctx)
            assert (again.text, again.tool_calls, again.stop, again.usage) == (
                *(expected.text, expected.tool_calls, expected.stop, expected.usage),
            )
            if format == "bedrock_converse":
                assert again.blocks == expected.blocks  # boto3's bytes are base64 again


# --- Drift: a new release of an SDK fails here first ---


def _model() -> Any:
    return import_module("botocore.session").get_session().get_service_model("bedrock-runtime")


def test_botocore_declares_what_is_read() -> None:
    """Reasons with their rows; events, which are read by name; and the type of a call that the server runs."""
    model, rows = _model(), set(format_of("bedrock_converse").reasons[""])
    assert set(model.shape_for("StopReason").enum) == rows
    members = model.shape_for("ConverseStreamOutput").members
    assert {name for name in members if not name.endswith("Exception")} == {
        *("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"),
    }
    assert model.shape_for("ToolUseType").enum == ["server_tool_use"]
    members = model.shape_for("ResponseStream").members
    assert [name for name in members if name != "chunk" and not name.endswith("Exception")] == []
