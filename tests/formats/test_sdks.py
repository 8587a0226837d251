"""The real SDKs, asking scripted providers: what they hand out is read like the JSON that it was.

`tests/test_scripted_sdks.py` has more of OpenAI's and Anthropic's; `tests/test_adapters.py` shows how all are asked.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, cast, get_args

import anthropic.types
import anthropic.types.beta
import cohere.types
import groq.types.chat
import httpx
import huggingface_hub
import mistralai.client as mistralai
import ollama
import openai
import openai.types.chat
import openai.types.responses
import pytest
import together.types.chat
import yaml
from google import genai
from google.genai import errors, types
from google.genai._gaos.types.interactions.interaction import InteractionStatus
from google.genai._interactions import APIStatusError
from huggingface_hub.inference._generated.types import text_generation as tgi
from openai.types.responses.response import IncompleteDetails
from openai.types.responses.response_error import ResponseError
from pydantic import BaseModel
from xai_sdk.chat import Chunk as XaiChunk, Response as XaiResponse  # type: ignore[import-untyped]
from xai_sdk.proto import chat_pb2, sample_pb2  # type: ignore[import-untyped]

from endturn.chat import ChatResponse, Message, Request, Tool, Usage
from endturn.formats import Context, Event, RequestSummary, ResponseSummary, format_of, summarize
from endturn.scripted import Reply, ScriptedProvider, call, cut, fail, partial_call, pause, reason, say, think, truncate
from endturn.sdk_objects import dumped
from endturn.stop import StopReason
from tests.formats.recorded import RECORDED

# Neither typed nor with stubs.
boto3: Any = import_module("boto3")
botocore: Any = import_module("botocore.exceptions")
parsers: Any = import_module("botocore.parsers")
to_protobuf: Any = import_module("google.protobuf.json_format").ParseDict

MESSAGES: Any = [{"role": "user", "content": "hi"}]
CHAT: Any = {"model": "m", "messages": MESSAGES, "max_tokens": 1000}
Ask = Callable[..., Iterator[Any]]
"""Asks the server at a URL, streamed or not: what the SDK hands out, one object after the other."""


def stainless(client: Any, path: str, method: str, **asked: Any) -> Ask:
    """An SDK that is made like OpenAI's; some know the whole path, their version included."""

    def ask(url: str, *, stream: bool) -> Iterator[Any]:
        with client(api_key="none", base_url=url + path, max_retries=0) as made:
            answer = attrgetter(method)(made)(**asked, **({"stream": True} if stream else {}))
            yield from answer if stream else [answer]

    return ask


def by_mistral(url: str, *, stream: bool) -> Iterator[Any]:
    with mistralai.Mistral(api_key="none", server_url=url) as client:
        if not stream:
            yield client.chat.complete(**CHAT)
            return
        with client.chat.stream(**CHAT) as events:
            yield from events


def by_cohere(url: str, *, stream: bool) -> Iterator[Any]:
    with httpx.Client() as http:  # Cohere's client closes none of its own
        client: Any = cohere.ClientV2(api_key="none", base_url=url, max_retries=0, httpx_client=http)
        yield from client.chat_stream(**CHAT) if stream else [client.chat(**CHAT)]


def by_ollama(url: str, *, stream: bool) -> Iterator[Any]:
    with closing(cast(Any, ollama.Client(host=url))) as client:
        answer = client.chat("m", MESSAGES, stream=stream)
        yield from answer if stream else [answer]


@contextmanager
def google(url: str, **more: Any) -> Iterator[Any]:
    """Google's client, asking once."""
    options: Any = {"base_url": url, "retry_options": {"attempts": 1}}
    with genai.Client(http_options=options, **{"api_key": "none", **more}) as client:
        yield client


def by_gemini(url: str, *, stream: bool, **config: Any) -> Iterator[Any]:
    asked = {"model": "m", "contents": "hi", "config": {"max_output_tokens": 1000, **config}}
    with google(url) as client:
        models = client.models
        yield from models.generate_content_stream(**asked) if stream else [models.generate_content(**asked)]


def by_interactions(url: str, *, stream: bool) -> Iterator[Any]:
    with google(url) as client:
        answer = client.interactions.create(model="m", input="hi", stream=stream)
        yield from answer if stream else [answer]


@contextmanager
def bedrock(url: str) -> Iterator[Any]:
    """boto3's client, asking once."""
    keys = {"region_name": "us-east-1", "aws_access_key_id": "none", "aws_secret_access_key": "none"}
    once = import_module("botocore.config").Config(retries={"total_max_attempts": 1})
    with closing(boto3.client("bedrock-runtime", endpoint_url=url, config=once, **keys)) as client:
        yield client


def by_converse(url: str, *, stream: bool) -> Iterator[Any]:
    asked = {"modelId": "m", "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    with bedrock(url) as client:
        if not stream:
            yield client.converse(**asked)
            return
        with closing(client.converse_stream(**asked)["stream"]) as events:
            yield from events


CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"


def by_invoke(url: str, *, stream: bool, model: str = CLAUDE) -> Iterator[Any]:
    asked = Request(model=model, messages=(Message(role="user", content="hi"),), max_tokens=1000)
    body = json.dumps(format_of("bedrock_invoke").encode(asked, stream=stream))
    with bedrock(url) as client:
        if not stream:
            yield json.load(client.invoke_model(modelId=model, body=body)["body"])
            return
        with closing(client.invoke_model_with_response_stream(modelId=model, body=body)["body"]) as events:
            yield from events


OPENAI = (openai.OpenAI, "/v1")
SDKS: dict[str, tuple[str, str, Ask]] = {
    "openai chat": ("openai_chat", "", stainless(*OPENAI, "chat.completions.create", **CHAT)),
    "openai responses": ("openai_responses", "", stainless(*OPENAI, "responses.create", model="m", input="hi")),
    "openai completions": ("completions", "", stainless(*OPENAI, "completions.create", model="m", prompt="hi")),
    "groq": ("openai_chat", "groq", stainless(groq.Groq, "", "chat.completions.create", **CHAT)),
    "together": ("openai_chat", "together", stainless(together.Together, "", "chat.completions.create", **CHAT)),
    "mistral": ("openai_chat", "mistral", by_mistral),
    "cohere": ("cohere", "", by_cohere),
    "ollama": ("ollama", "", by_ollama),
    "google": ("gemini", "", by_gemini),
    "google interactions": ("gemini_interactions", "", by_interactions),
    "boto3 converse": ("bedrock_converse", "", by_converse),
    "boto3 invoke": ("bedrock_invoke", "", by_invoke),
}
"""SDK → the format and dialect that it speaks, and how it is asked."""
each_sdk = pytest.mark.parametrize("sdk", SDKS)
each_way = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def seen(format: str, things: Iterable[Any], ctx: Context) -> ResponseSummary:
    """What a summarizer makes of an SDK's objects, until they end or the SDK raises."""
    summarizer = format_of(format).summarizer(ctx)
    for thing in things:
        summarizer.feed(dumped(thing, choices=ctx.asked.choices))
    return summarizer.close()


def decoded(format: str, things: list[Any], ctx: Context, *, stream: bool) -> ChatResponse:
    """What a client makes of them."""
    if not stream:
        return format_of(format).decode(dumped(things[0]), ctx=ctx)
    decoder = format_of(format).decoder(ctx)
    for thing in things:
        list(decoder.feed(Event(None, dumped(thing))))
    return decoder.close()


def context(sdk: str, model: str = "m") -> Context:
    """What is known of its response."""
    format, dialect, _ = SDKS[sdk]
    asked = format_of(format).request_summary({"model": model, "max_tokens": 1000})
    return Context(dialect, format_of(format).provider, asked)


SITUATIONS: dict[str, tuple[Reply, str, StopReason]] = {
    "say": (say("Grüezi 👋🏽, all of it."), "Grüezi 👋🏽, all of it.", StopReason.END_TURN),
    "truncate": (truncate("One two three", after=2), "One two", StopReason.MAX_TOKENS),
    "a new word": (reason("some_new_value", "Hm"), "Hm", StopReason.UNKNOWN),
    "calls": (call("read", {"path": "ü.txt"}, text="Hm.", id="fc-1").also("list", {}, id="fc-2"), "Hm.",
              StopReason.TOOL_CALL),
    "cut call": (partial_call("read", {"path": "ü.txt"}, after=2), "", StopReason.MAX_TOKENS),
    "thinking": (think("Let me see", text="Yes"), "Yes", StopReason.END_TURN),
    "thinking alone": (think("Let me see"), "", StopReason.MAX_TOKENS),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:some_new_value is not a valid FinishReason")  # of Google's SDK, which makes one
@each_way
@each_sdk
@pytest.mark.parametrize("situation", SITUATIONS)
def test_scripted_replies(sdk: str, situation: str, stream: bool) -> None:
    """An SDK's own objects are read: the words, the reason and the calls are there."""
    (format, dialect, ask), (reply, text, expected) = SDKS[sdk], SITUATIONS[situation]
    if format == "completions" and (reply.calls or reply.reasoning):
        return  # The format has none.
    ctx, provider = context(sdk), ScriptedProvider(reply, format=format, dialect=dialect)
    with provider.serve() as url:
        things = list(ask(url, stream=stream))
    summary = seen(format, things, ctx)
    assert (summary.stop.reason, summary.tail, summary.output_chars) == (expected, text, len(text))
    assert [(received.format, received.stream) for received in provider.received] == [(format, stream)]
    calls = decoded(format, things, ctx, stream=stream).tool_calls
    if situation != "cut call":
        assert [(each.name, each.arguments or {}, each.closed) for each in calls] == [
            (each.name, each.arguments, True) for each in reply.calls
        ]


@each_sdk
def test_a_cut_stream_is_missing(sdk: str) -> None:
    """A stream that ends tidily before its reason is no end of a turn, whatever the SDK makes of it."""
    format, _, ask = SDKS[sdk]
    with ScriptedProvider(cut("One two three", after=2, tidy=True), format=format).serve() as url:
        summary = seen(format, ask(url, stream=True), context(sdk))
    assert (summary.stop.reason, summary.tail, summary.stop.terminal_seen) == (StopReason.MISSING, "One two", False)


@pytest.mark.parametrize("status", [400, 429, 503])
@each_sdk
def test_an_error_answer_is_the_sdks_own_exception(sdk: str, status: int) -> None:
    """It raises its class for the status, with the real service's words."""
    format, _, ask = SDKS[sdk]
    kinds = {"google": errors.APIError, "google interactions": APIStatusError}
    kind = botocore.ClientError if sdk.startswith("boto3") else kinds.get(sdk, Exception)
    with (
        ScriptedProvider(fail(status), format=format).serve() as url,
        pytest.raises(kind, match=r".") as caught,
    ):
        list(ask(url, stream=False))
    raised: Any = caught.value
    answer = getattr(raised, "response", None)
    code = answer["ResponseMetadata"]["HTTPStatusCode"] if isinstance(answer, dict) else None
    assert status in (code, getattr(raised, "code", None), getattr(raised, "status_code", None))


@pytest.mark.parametrize("sdk", ["google", "google interactions", "boto3 converse", "boto3 invoke"])
def test_a_failure_inside_a_stream(sdk: str) -> None:
    """Three of the SDKs raise it after the text; of interactions, it is an event, which the summary reads."""
    format, _, ask = SDKS[sdk]
    with ScriptedProvider(fail(503, text="So far"), format=format).serve() as url:
        if sdk == "google interactions":
            found = seen(format, ask(url, stream=True), context(sdk))
            assert (found.tail, found.stop.reason) == ("So far", StopReason.ERROR)
            return
        with pytest.raises((errors.ServerError, botocore.EventStreamError)):
            list(ask(url, stream=True))


@each_way
@pytest.mark.parametrize(
    "model",
    [
        "amazon.nova-lite-v1:0", "amazon.titan-text-express-v1", "mistral.mixtral-8x7b-instruct-v0:1",
        "arn:aws:bedrock:us-east-1:111122223333:inference-profile/us.meta.llama3-3-70b-instruct-v1:0",
        "cohere.command-text-v14", "cohere.command-r-plus-v1:0", "anthropic.claude-v2:1", "ai21.jamba-1-5-mini-v1:0",
        "us.deepseek.r1-v1:0",
    ],
)  # fmt: skip
def test_invoked_models(model: str, stream: bool) -> None:
    """In each family's own words; Bedrock's figures are in the last chunk, whatever the family."""
    provider = ScriptedProvider(truncate("One two three", after=2).but(usage=Usage(5, 2)))
    with provider.serve() as url:
        found = seen("bedrock_invoke", by_invoke(url, stream=stream, model=model), context("boto3 invoke", model))
    assert (found.tail, found.stop.reason) == ("One two", StopReason.MAX_TOKENS)
    assert not stream or found.usage == Usage(5, 2)
    (received,) = provider.received
    assert (received.format, received.request.model) == ("bedrock_invoke", model)
    assert (received.stream, received.request.max_tokens) == (stream, 1000)


# --- Objects of replies on file -----------------------------------------------------------------------------------


def _of_google(body: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The SDK warns of reasons that it does not know.
        return types.GenerateContentResponse.model_validate(body)


def _service() -> Any:
    return import_module("botocore.session").get_session().get_service_model("bedrock-runtime")


def _of_boto3(body: Any) -> Any:
    answer = {"status_code": 200, "headers": {}, "body": json.dumps(body).encode()}
    return parsers.create_parser("rest-json").parse(answer, _service().operation_model("Converse").output_shape)


Made = tuple[Callable[[Any], Any], ...]
GROQ, TOGETHER, OPENAIS = groq.types.chat, together.types.chat, openai.types.chat
KINDS: Any = (OPENAIS.ChatCompletion, OPENAIS.ChatCompletionChunk)
HUGGING: Made = (
    huggingface_hub.ChatCompletionOutput.parse_obj_as_instance,
    huggingface_hub.ChatCompletionStreamOutput.parse_obj_as_instance,
)
OBJECTS: dict[tuple[str, str], Made] = {
    ("openai_chat", "huggingface"): HUGGING,
    ("openai_chat", "tgi"): HUGGING,
    ("openai_chat", ""): (lambda said: KINDS[0].construct(**said), lambda said: KINDS[1].construct(**said)),
    ("bedrock_converse", ""): (_of_boto3,),
    ("gemini", ""): (_of_google, _of_google),
}
"""Format and dialect → what makes an SDK's object of a body, and of a chunk."""
PLAIN = {"text", "length", "unknown", "tool-use", "tool-calls", "reasoning", "tool-use-streamed", "length-streamed"}
ON_FILE = [
    pytest.param(format, dialect, name, id=name)
    for format, dialect in OBJECTS
    for name, ctx in RECORDED[format].contexts.items()
    if (name.startswith("what-it-means") and ctx.dialect == dialect) or (not dialect and name in PLAIN)
]


@pytest.mark.parametrize(("format", "dialect", "name"), ON_FILE)
def test_an_object_of_the_sdk_is_read_as_its_json(format: str, dialect: str, name: str) -> None:
    """A whole one, and the chunks of a stream; of Google's, dumped by its own names too; boto3's bytes are base64."""
    recorded, made = RECORDED[format], OBJECTS[format, dialect]
    ctx, stream = recorded.contexts[name], name in recorded.streams
    if stream and len(made) == 1:
        return
    said = [event.data for event in recorded.streams[name]] if stream else [recorded.bodies[name]]
    said = [each for each in said if isinstance(each, dict)]
    things = [made[stream](each) for each in said]
    dumps = [things, [each.model_dump(exclude_none=True) for each in things]] if format == "gemini" else [things]
    plain, expected = seen(format, said, ctx), decoded(format, said, ctx, stream=stream)
    for each in dumps:
        assert seen(format, each, ctx) == plain
        again = decoded(format, each, ctx, stream=stream)
        assert (again.text, again.stop, again.usage) == (expected.text, expected.stop, expected.usage)
        assert [one.arguments for one in again.tool_calls] == [one.arguments for one in expected.tool_calls]
        if format == "bedrock_converse":
            assert again.blocks == expected.blocks


# --- xAI, which speaks gRPC ---------------------------------------------------------------------------------------

XAI = yaml.safe_load(Path(__file__).with_name("xai.yaml").read_text())
XAI_USAGE = {
    "prompt_tokens": 12,
    "completion_tokens": 3,
    "reasoning_tokens": 5,
    "total_tokens": 20,
    "cached_prompt_text_tokens": 4,
}


def xai_chunk(said: Any) -> Any:
    """A chunk, as `chat.stream()` hands it out beside the response so far."""
    kinds = {"calls": "TOOL_CALL_TYPE_CLIENT_SIDE_TOOL", "searches": "TOOL_CALL_TYPE_WEB_SEARCH_TOOL"}
    calls = [
        {"id": id_, "type": kinds[which], "function": {"name": "f", "arguments": '{"a": 1}'}}
        for which in kinds
        for id_ in said.get(which, ())
    ]
    delta = {"role": said.get("role", "ROLE_ASSISTANT"), "content": said.get("text", ""), "tool_calls": calls}
    delta["reasoning_content"] = said.get("thought", "")
    why = said.get("why", "REASON_INVALID")  # the enum's zero, on every chunk
    output = {"index": said.get("index", 0), "finish_reason": why, "delta": delta}
    chunk = {"id": "r1", "model": "grok-4", "outputs": [output], "usage": XAI_USAGE}
    return XaiChunk(to_protobuf(chunk, chat_pb2.GetChatCompletionChunk()), None)


def xai_response(chunks: list[Any]) -> Any:
    """The response that the SDK itself makes of its chunks."""
    response = XaiResponse(chat_pb2.GetChatCompletionResponse(), None)
    for each in chunks:
        response.process_chunk(each.proto)
    return response


@pytest.mark.parametrize("case", XAI.values(), ids=list(XAI))
def test_xais_messages(case: Any) -> None:
    """From chunks, from the response that the SDK folds, from the messages in both: by the enum's names."""
    ctx = Context("xai_grpc", "x_ai", RequestSummary(choices=case.get("choices", 1)))
    chunks = [xai_chunk(each) for each in case["chunks"]]
    whole = xai_response(chunks)
    for things in (chunks, [each.proto for each in chunks], [whole], [whole.proto]):
        got = seen("openai_chat", things, ctx)
        told = (got.stop.reason, got.stop.raw, got.stop.detail, got.stop.promoted_from, got.tail, got.output_chars)
        tail = case.get("tail", "")
        assert told == (case["reason"], case["raw"], case.get("detail"), case.get("promoted_from"), tail, len(tail))
        assert (got.id, got.model, list(got.reasons)) == ("r1", "grok-4", case.get("reasons", [case["raw"]]))
        assert got.usage == Usage(12, 8, cache_read_tokens=4, reasoning_tokens=5)
    assert len(format_of("openai_chat").decode(dumped(whole), ctx=ctx).tool_calls) == case.get("calls", 0)


def test_xais_unset_reason_is_none() -> None:
    """A stream that ends with the enum's zero is missing, also after a step; a whole response is `unknown`."""
    for said in ([{"text": "One"}], XAI["what its servers searched is neither a call nor an end"]["chunks"][:4]):
        chunks = [xai_chunk(each) for each in said]
        assert seen("openai_chat", chunks, Context("xai_grpc", "x_ai")).stop.reason is StopReason.MISSING
    stop = seen("openai_chat", [xai_response([xai_chunk({"text": "One"})])], Context("xai_grpc", "x_ai")).stop
    assert (stop.reason, stop.raw, stop.mapped) == (StopReason.UNKNOWN, "REASON_INVALID", True)


# --- What one SDK alone does --------------------------------------------------------------------------------------


class Value(BaseModel):
    """A structured answer."""

    n: int


def test_helpers_of_the_responses_api() -> None:
    """Parsing, the accumulating stream and fetching by id work on scripted answers."""
    asked: Any = {"model": "m", "input": "hi"}
    provider = ScriptedProvider([say('{"n": 3}'), say('{"n": 4}'), pause(), say("Done."), say("Done.")])
    with provider.serve() as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        assert client.responses.parse(**asked, text_format=Value).output_parsed == Value(n=3)
        with client.responses.stream(**asked, text_format=Value) as stream:
            assert stream.get_final_response().output_parsed == Value(n=4)
        made = client.responses.create(**asked, background=True)
        assert summarize(format_of("openai_responses"), Context(), dumped(made)).stop.reason is StopReason.PAUSED
        assert client.responses.retrieve(made.id).output_text == "Done."
        with client.responses.retrieve(made.id, stream=True, starting_after=3) as events:
            assert [event.type for event in events][-1] == "response.completed"
    assert [each.request.retrieve for each in provider.received] == [None, None, None, made.id, made.id]


@pytest.mark.behaviour(14)
@each_way
@pytest.mark.parametrize("sdk", ["google", "google interactions"])
def test_googles_sdk_follows_tokens_by_itself(sdk: str, stream: bool) -> None:
    """A pause is asked for again with its token, and nobody above the SDK hears of it: all hops are one response."""
    format, _, ask = SDKS[sdk]
    provider = ScriptedProvider([pause("Chapter one. "), say("Chapter two.")], format=format)
    with provider.serve() as url:
        found = seen(format, ask(url, stream=stream), context(sdk))
    assert (found.tail, found.stop.reason) == ("Chapter one. Chapter two.", StopReason.END_TURN)
    first, second = provider.requests
    assert (first.token, second.token is None) == (None, False)
    assert second.previous_id == (None if sdk == "google" else "v1_00000001")


def test_a_token_that_googles_sdk_is_told_not_to_follow() -> None:
    """The pause is seen; the token, bytes in the SDK's object, is text again."""
    with ScriptedProvider(pause("So far")).serve() as url:
        (answer,) = by_gemini(url, stream=False, automatic_continuation=False)
    assert isinstance(answer.candidates[0].continuation_token, bytes)
    response = format_of("gemini").decode(dumped(answer), ctx=Context())
    assert (response.stop.reason, response.stop.raw) == (StopReason.PAUSED, "CONTINUATION")
    assert isinstance(response.token, str)


# --- What the SDKs send -------------------------------------------------------------------------------------------


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
    with provider.serve() as url, bedrock(url) as client:
        client.converse(modelId=asked.model, **body)
        list(client.converse_stream(modelId=asked.model, **body)["stream"])
    assert provider.requests == [asked, asked]
    assert [received.stream for received in provider.received] == [False, True]


# --- Drift: a new release of an SDK fails here first --------------------------------------------------------------


def literals(annotation: Any) -> set[str]:
    """The words of a Literal, within whatever Optional or Union stands around it."""
    inner = get_args(annotation)
    words = {each for each in inner if isinstance(each, str)}
    return words | {word for each in inner if not isinstance(each, str) for word in literals(each)}


def members(enumeration: Any) -> set[str]:
    """What an enumeration declares; Google's grow by what the tests made its SDK read."""
    return {enumeration[name].value for name in vars(enumeration) if name in enumeration.__members__}


def choices(response: Any) -> set[str]:
    """The words that the `finish_reason` of a response's choices declares."""
    (choice,) = get_args(response.model_fields["choices"].annotation)
    return literals(choice.model_fields["finish_reason"].annotation)


NO_MORE_THAN_FAILED = {
    *("invalid_prompt", "data_residency_mismatch", "vector_store_timeout", "invalid_image", "invalid_image_format"),
    *("invalid_base64_image", "invalid_image_url", "image_too_large", "image_too_small", "image_parse_error"),
    *("invalid_image_mode", "image_file_too_large", "unsupported_image_media_type", "empty_image_file"),
    *("failed_to_download_image", "image_file_not_found"),
}
"""The codes of a failed response that mean no more than `failed`."""


def of_responses() -> set[str]:
    """Every raw value that OpenAI's types of a response allow, as our table spells them."""
    running = {"queued", "in_progress"}
    return {
        *literals(openai.types.responses.ResponseStatus) - running - {"incomplete"},
        *(f"{status}(background)" for status in running),
        *(f"incomplete:{word}" for word in literals(IncompleteDetails.model_fields["reason"].annotation)),
        *(f"failed:{c}" for c in literals(ResponseError.model_fields["code"].annotation) - NO_MORE_THAN_FAILED),
    }


MISTRALS, TGIS = mistralai.models, tgi.TextGenerationOutputFinishReason
DECLARED: list[tuple[str, str, Callable[[], set[str]]]] = [
    ("openai_chat", "", lambda: choices(OPENAIS.ChatCompletion) | choices(OPENAIS.ChatCompletionChunk)),
    ("openai_chat", "azure", lambda: choices(OPENAIS.ChatCompletion)),
    ("openai_chat", "groq", lambda: choices(GROQ.ChatCompletion) | choices(GROQ.ChatCompletionChunk)),
    ("openai_chat", "together", lambda: choices(TOGETHER.ChatCompletion) | choices(TOGETHER.ChatCompletionChunk)),
    ("openai_chat", "mistral", lambda: choices(MISTRALS.ChatCompletionResponse) | choices(MISTRALS.CompletionChunk)),
    ("openai_chat", "xai_grpc", lambda: set(sample_pb2.FinishReason.keys())),
    *((format, dialect, lambda: literals(TGIS)) for format, dialect in
      (("openai_chat", "tgi"), ("openai_chat", "huggingface"), ("completions", "tgi"))),
    ("completions", "", lambda: choices(openai.types.Completion)),
    ("openai_responses", "", of_responses),
    ("anthropic", "", lambda: literals(anthropic.types.StopReason) | literals(anthropic.types.beta.BetaStopReason)),
    *(("gemini", dialect, lambda: members(types.FinishReason)) for dialect in ("", "vertex")),
    ("gemini", "promptFeedback", lambda: members(types.BlockedReason)),
    ("gemini_interactions", "", lambda: literals(InteractionStatus)),
    ("cohere", "", lambda: literals(cohere.types.ChatFinishReason)),
    ("cohere", "v1", lambda: literals(cohere.types.FinishReason)),
    ("bedrock_converse", "", lambda: set(_service().shape_for("StopReason").enum)),
]  # fmt: skip
"""Format, dialect → the words that the service's SDK declares. Ollama's declares none."""
ALSO_SAID = {"failed:context_length_exceeded", "in_progress(foreground EOF)", "content part type=refusal"}
"""What the Responses API says without declaring it, and what stands beside a status."""


@pytest.mark.parametrize(("format", "dialect", "declared"), DECLARED, ids=[f"{row[0]} {row[1]}" for row in DECLARED])
def test_no_sdk_knows_a_reason_without_a_row(format: str, dialect: str, declared: Callable[[], set[str]]) -> None:
    """A canary: a new release of an SDK with a new finish reason fails here, and names it."""
    words, rows = declared(), format_of(format).reasons[dialect].keys()
    assert words, "the SDK no longer lists its reasons where they were"
    assert sorted(words - rows) == [], "the SDK declares what stop_reasons.tsv says nothing of"
    if format in ("cohere", "openai_responses", "bedrock_converse"):
        assert sorted(rows - words - ALSO_SAID) == [], "the SDK no longer declares what stop_reasons.tsv still has"


def test_what_is_read_by_name_is_declared() -> None:
    """Bedrock's events and the type of a call that its servers run; Ollama's reason, which may be any text."""
    model = _service()
    assert {name for name in model.shape_for("ConverseStreamOutput").members if not name.endswith("Exception")} == {
        *("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"),
    }
    assert model.shape_for("ToolUseType").enum == ["server_tool_use"]
    assert {name for name in model.shape_for("ResponseStream").members if not name.endswith("Exception")} == {"chunk"}
    assert ollama.ChatResponse.model_fields["done_reason"].annotation == str | None
