"""The real SDKs of five formats, asking scripted providers: what they hand out is read like the JSON that it was."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast, get_args

import cohere
import groq
import httpx
import mistralai.client as mistralai
import ollama
import openai
import pytest
import together
from anthropic.types import StopReason as AnthropicStopReason
from anthropic.types.beta import BetaStopReason
from cohere.types import ChatFinishReason, FinishReason
from google.genai import types
from google.genai._gaos.types.interactions.interaction import InteractionStatus
from groq.types.chat import chat_completion as groq_body, chat_completion_chunk as groq_chunk
from huggingface_hub import ChatCompletionOutput, ChatCompletionStreamOutput
from huggingface_hub.inference._generated.types import text_generation as tgi
from mistralai.client.models import (
    chatcompletionchoice as mistral_body,
    completionresponsestreamchoice as mistral_chunk,
)
from openai.types import CompletionChoice
from openai.types.chat import chat_completion as openai_body, chat_completion_chunk as openai_chunk
from openai.types.responses import ResponseStatus
from openai.types.responses.response import IncompleteDetails
from openai.types.responses.response_error import ResponseError
from pydantic import BaseModel
from together.types.chat import chat_completion as together_body, chat_completion_chunk as together_chunk
from xai_sdk.chat import Chunk as XaiChunk, Response as XaiResponse  # type: ignore[import-untyped]
from xai_sdk.proto import chat_pb2, sample_pb2, usage_pb2  # type: ignore[import-untyped]

from endturn.chat import Json
from endturn.formats import Context, Event, RequestSummary, ResponseSummary, format_of, framing, summarize
from endturn.scripted import Reply, ScriptedProvider, call, cut, fail, pause, reason, say, truncate
from endturn.scripted.loopback import Answer, Server
from endturn.sdk_objects import dumped
from endturn.stop import StopReason
from tests.replies.record import HERE, context

MESSAGES: Any = [{"role": "user", "content": "hi"}]
CHAT: Any = {"model": "m", "messages": MESSAGES}


@dataclass(frozen=True, kw_only=True)
class SDK:
    """How an SDK is asked: its clients for a URL, and what asks them, whole and streamed."""

    format: str
    dialect: str = ""
    client: Callable[[str], Any]
    aclient: Callable[[str], Any]
    ask: Callable[[Any], Any]
    stream: Callable[[Any], Any]
    aask: Callable[[Any], Any] | None = None
    astream: Callable[[Any], Any] | None = None


def stainless(kind: Any, akind: Any, path: str, format: str, create: Callable[[Any], Any], **asked: Any) -> SDK:
    """An SDK that is made like OpenAI's; some know the whole path, their version included."""
    return SDK(
        format=format,
        dialect={groq.Groq: "groq", together.Together: "together"}.get(kind, ""),
        client=lambda url: kind(api_key="none", base_url=url + path, max_retries=0),
        aclient=lambda url: akind(api_key="none", base_url=url + path, max_retries=0),
        ask=lambda client: create(client)(**asked),
        stream=lambda client: create(client)(**asked, stream=True),
    )


@contextmanager
def cohere_client(url: str) -> Iterator[Any]:
    """Cohere's, which closes no HTTP client of its own."""
    with httpx.Client() as http:
        yield cohere.ClientV2(api_key="none", base_url=url, max_retries=0, httpx_client=http)


@asynccontextmanager
async def async_cohere_client(url: str) -> AsyncIterator[Any]:
    """The same, asynchronous."""
    async with httpx.AsyncClient() as http:
        yield cohere.AsyncClientV2(api_key="none", base_url=url, max_retries=0, httpx_client=http)


@asynccontextmanager
async def async_ollama_client(url: str) -> AsyncIterator[Any]:
    """Ollama's, closed at the end."""
    client: Any = ollama.AsyncClient(host=url)
    try:
        yield client
    finally:
        await client.close()


def chat_of(client: Any) -> Any:
    """What makes a chat completion."""
    return client.chat.completions.create


OPENAI = (openai.OpenAI, openai.AsyncOpenAI, "/v1")
SDKS = {
    "openai chat": stainless(*OPENAI, "openai_chat", chat_of, **CHAT),
    "openai responses": stainless(*OPENAI, "openai_responses", lambda c: c.responses.create, model="m", input="hi"),
    "openai completions": stainless(*OPENAI, "completions", lambda c: c.completions.create, model="m", prompt="hi"),
    "groq": stainless(groq.Groq, groq.AsyncGroq, "", "openai_chat", chat_of, **CHAT),
    "together": stainless(together.Together, together.AsyncTogether, "", "openai_chat", chat_of, **CHAT),
    "mistral": SDK(
        format="openai_chat",
        dialect="mistral",
        client=lambda url: mistralai.Mistral(api_key="none", server_url=url),
        aclient=lambda url: mistralai.Mistral(api_key="none", server_url=url),
        ask=lambda client: client.chat.complete(**CHAT),
        stream=lambda client: client.chat.stream(**CHAT),
        aask=lambda client: client.chat.complete_async(**CHAT),
        astream=lambda client: client.chat.stream_async(**CHAT),
    ),
    "cohere": SDK(
        format="cohere",
        client=cohere_client,
        aclient=async_cohere_client,
        ask=lambda client: client.chat(**CHAT),
        stream=lambda client: client.chat_stream(**CHAT),
    ),
    "ollama": SDK(
        format="ollama",
        client=lambda url: closing(cast(Any, ollama.Client(host=url))),
        aclient=async_ollama_client,
        ask=lambda client: client.chat(**CHAT),
        stream=lambda client: client.chat(**CHAT, stream=True),
    ),
}
each_sdk = pytest.mark.parametrize("name", SDKS)


def listed(stream: Any) -> list[Any]:
    """The events of a stream."""
    with stream if hasattr(stream, "__enter__") else nullcontext(stream) as events:
        return list(events)


def seen(format: str, things: list[Any], ctx: Context) -> ResponseSummary:
    """What a summarizer makes of an SDK's objects."""
    summarizer = format_of(format).summarizer(ctx)
    for thing in things:
        summarizer.feed(dumped(thing, choices=ctx.asked.choices))
    return summarizer.close()


SCRIPTED: dict[str, tuple[Reply, str, StopReason]] = {
    "say": (say("Grüezi 👋🏽, all of it."), "Grüezi 👋🏽, all of it.", StopReason.END_TURN),
    "truncate": (truncate("One two three", after=2), "One two", StopReason.MAX_TOKENS),
    "calls": (call("read", {"path": "ü.txt"}, text="Reading.").also("list", {}), "Reading.", StopReason.TOOL_CALL),
    "a new word": (reason("some_new_value", "Hm"), "Hm", StopReason.UNKNOWN),
}


@each_sdk
@pytest.mark.parametrize("kind", SCRIPTED)
async def test_scripted_replies(name: str, kind: str) -> None:
    """Whole and streamed, sync and async: an SDK's own objects are read, the words and calls are there."""
    (reply, text, expected), sdk = SCRIPTED[kind], SDKS[name]
    if kind == "calls" and sdk.format == "completions":
        return  # The format has none.
    ctx = Context(dialect=sdk.dialect)
    provider = ScriptedProvider([reply] * 4, format=sdk.format, dialect=sdk.dialect)
    with provider.serve() as url:
        with sdk.client(url) as client:
            whole, events = sdk.ask(client), listed(sdk.stream(client))
        async with sdk.aclient(url) as client:
            awhole = await (sdk.aask or sdk.ask)(client)
            stream = (sdk.astream or sdk.stream)(client)
            aevents = [event async for event in (await stream if inspect.isawaitable(stream) else stream)]
    for things in ([whole], events, [awhole], aevents):
        summary = seen(sdk.format, things, ctx)
        assert (summary.stop.reason, summary.tail, summary.output_chars) == (expected, text, len(text))
    decoded = format_of(sdk.format).decode(dumped(whole), ctx=ctx)
    assert [each.arguments for each in decoded.tool_calls] == [each.arguments for each in reply.calls]
    assert {received.format for received in provider.received} == {sdk.format}


@each_sdk
def test_a_cut_stream_is_missing(name: str) -> None:
    """A stream that ends tidily before its reason is no end of a turn, whatever the SDK makes of it."""
    sdk = SDKS[name]
    script = ScriptedProvider([cut("One two three", after=2, tidy=True)], format=sdk.format)
    with script.serve() as url, sdk.client(url) as client:
        summary = seen(sdk.format, listed(sdk.stream(client)), Context(dialect=sdk.dialect))
    assert (summary.stop.reason, summary.tail) == (StopReason.MISSING, "One two")


@each_sdk
def test_an_error_answer_is_the_sdks_own_exception(name: str) -> None:
    """It raises its class for the status."""
    sdk = SDKS[name]
    with ScriptedProvider([fail(400)], format=sdk.format).serve() as url, sdk.client(url) as client:
        with pytest.raises(Exception, match=r".") as caught:
            sdk.ask(client)
        assert cast(Any, caught.value).status_code == 400


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


# The servers' own habits, through their SDKs

HABITS = {path.stem: json.loads(path.read_text()) for path in (HERE / "openai_chat").glob("what-it-means-*.json")}
# Mistral's SDK takes no body without usage.
OWN = [
    pytest.param(case, id=name)
    for name, case in HABITS.items()
    if case["dialect"] in ("groq", "mistral", "together")
    and ("body" not in case or case["dialect"] != "mistral" or "usage" in case["body"])
]
HUGGING = [pytest.param(case, id=name) for name, case in HABITS.items() if case["dialect"] in ("tgi", "huggingface")]


def said(case: Json) -> list[Any]:
    """The body, or the events, of a reply on file."""
    return [case["body"]] if "body" in case else [event["data"] for event in case["events"]]


@pytest.mark.parametrize("case", OWN)
def test_their_habits_survive_their_sdks(case: Json) -> None:
    """What each server says of its stop is read from its SDK's objects as from its JSON."""
    sdk, ctx = SDKS[case["dialect"]], context(case)
    if "body" in case:
        content, kind = json.dumps(case["body"]).encode(), "application/json"
    else:
        content = b"".join(framing.frame(Event(None, each)) for each in said(case))
        kind = "text/event-stream"
    answer = Answer(headers={"content-type": kind}, chunks=(content,))
    with Server(lambda asked: answer).running() as url, sdk.client(url) as client:
        things = [sdk.ask(client)] if "body" in case else listed(sdk.stream(client))
    got, plain = seen("openai_chat", things, ctx), seen("openai_chat", said(case), ctx)
    assert (got.stop, got.usage, got.tail, got.output_chars) == (
        plain.stop,
        plain.usage,
        plain.tail,
        plain.output_chars,
    )


@pytest.mark.parametrize("case", HUGGING)
def test_hugging_faces_objects(case: Json) -> None:
    """Its SDK's objects are dictionaries and dataclasses at once."""
    kind: Any = ChatCompletionOutput if "body" in case else ChatCompletionStreamOutput
    plain = [each for each in said(case) if each != framing.DONE]
    things = [kind.parse_obj_as_instance(each) for each in plain]
    ctx = context(case)
    assert seen("openai_chat", things, ctx).stop == seen("openai_chat", plain, ctx).stop


# xAI, which speaks gRPC

XAI = Context(dialect="xai_grpc", provider="x_ai")
CLIENT = chat_pb2.ToolCallType.TOOL_CALL_TYPE_CLIENT_SIDE_TOOL
SEARCH = chat_pb2.ToolCallType.TOOL_CALL_TYPE_WEB_SEARCH_TOOL
TOOL_ROLE = chat_pb2.MessageRole.ROLE_TOOL


def tool(kind: Any = CLIENT, id_: str = "call_1") -> Any:
    """A call, as the protocol has it."""
    return chat_pb2.ToolCall(id=id_, type=kind, function=chat_pb2.FunctionCall(name="f", arguments='{"a": 1}'))


def output(why: str = "REASON_INVALID", /, index: int = 0, **delta: Any) -> Any:
    """One output of a chunk."""
    delta = {"role": chat_pb2.MessageRole.ROLE_ASSISTANT, **delta}
    return chat_pb2.CompletionOutputChunk(index=index, finish_reason=why, delta=chat_pb2.Delta(**delta))


def chunk(*outputs: Any) -> Any:
    """A chunk, as `chat.stream()` hands it out beside the response so far."""
    usage = usage_pb2.SamplingUsage(
        prompt_tokens=12, completion_tokens=3, reasoning_tokens=5, total_tokens=20, cached_prompt_text_tokens=4
    )
    return XaiChunk(chat_pb2.GetChatCompletionChunk(id="r1", model="grok-4", outputs=outputs, usage=usage), None)


def folded(chunks: list[Any]) -> Any:
    """The response that the SDK itself makes of its chunks."""
    response = XaiResponse(chat_pb2.GetChatCompletionResponse(), None)
    for each in chunks:
        response.process_chunk(each.proto)
    return response


@pytest.mark.parametrize(
    ("name", "expected", "detail"),
    [
        ("REASON_STOP", "end_turn", None),
        ("REASON_MAX_LEN", "max_tokens", None),
        ("REASON_MAX_CONTEXT", "context_window_exceeded", None),
        ("REASON_TOOL_CALLS", "tool_call", None),
        ("REASON_TIME_LIMIT", "error", "timeout"),
    ],
)
def test_xais_reasons(name: str, expected: str, detail: str | None) -> None:
    """The enum's number is read by its name: from chunks, from the response that the SDK folds, from the messages."""
    chunks = [chunk(output(content="One, ", reasoning_content="hm")), chunk(output(content="two")), chunk(output(name))]
    response = folded(chunks)
    for things in (chunks, [each.proto for each in chunks], [response], [response.proto]):
        summary = seen("openai_chat", things, XAI)
        assert (summary.stop.reason, summary.stop.raw, summary.stop.detail) == (expected, name, detail)
        assert (summary.tail, summary.output_chars, summary.id, summary.model) == ("One, two", 8, "r1", "grok-4")
        assert summary.usage is not None
        assert (summary.usage.input_tokens, summary.usage.output_tokens, summary.usage.cache_read_tokens) == (12, 8, 4)


def test_xais_unset_reason_is_none() -> None:
    """The enum's zero on every chunk is no reason: a stream that ends so is missing; a whole response is `unknown`."""
    chunks = [chunk(output(content="One"))]
    assert seen("openai_chat", chunks, XAI).stop.reason is StopReason.MISSING
    stop = seen("openai_chat", [folded(chunks)], XAI).stop
    assert (stop.reason, stop.raw, stop.mapped) == (StopReason.UNKNOWN, "REASON_INVALID", True)


def test_xais_calls() -> None:
    """A client's call under REASON_STOP is promoted; two calls without anything between them are two."""
    chunks = [chunk(output(tool_calls=[tool(), tool(id_="call_2")])), chunk(output("REASON_STOP"))]
    for things in (chunks, [folded(chunks)]):
        stop = seen("openai_chat", things, XAI).stop
        assert (stop.reason, stop.promoted_from) == (StopReason.TOOL_CALL, StopReason.END_TURN)
    assert len(format_of("openai_chat").decode(dumped(folded(chunks)), ctx=XAI).tool_calls) == 2


def test_xais_own_tools_are_steps_of_the_answer() -> None:
    """What xAI's servers searched is neither a call nor an end; the last output is."""
    chunks = [
        chunk(output(content="Let me look. ")),
        chunk(output("REASON_TOOL_CALLS", tool_calls=[tool(SEARCH)])),
        chunk(output("REASON_STOP", index=1, role=TOOL_ROLE, content="tides …")),
        chunk(output(index=2, content="High at noon.")),
        chunk(output("REASON_STOP", index=2)),
    ]
    for things in (chunks, [folded(chunks)]):
        summary = seen("openai_chat", things, XAI)
        assert (summary.stop.reason, summary.stop.promoted_from) == (StopReason.END_TURN, None)
        assert summary.tail == "Let me look. High at noon."
    assert seen("openai_chat", chunks[:4], XAI).stop.reason is StopReason.MISSING


def test_xais_several_answers() -> None:
    """With n > 1 each output is a choice."""
    ctx = Context(dialect="xai_grpc", asked=RequestSummary(choices=2))
    chunks = [
        chunk(output(content="a"), output(index=1, content="b")),
        chunk(output("REASON_MAX_LEN"), output("REASON_STOP", index=1)),
    ]
    for things in (chunks, [folded(chunks)]):
        summary = seen("openai_chat", things, ctx)
        assert (summary.tail, summary.reasons) == ("a", ("REASON_MAX_LEN", "REASON_STOP"))


# What the SDKs know, and we must


def literals(annotation: Any) -> set[str]:
    """The words of a Literal, within whatever Optional or Union stands around it."""
    inner = get_args(annotation)
    words = {each for each in inner if isinstance(each, str)}
    return words | {word for each in inner if not isinstance(each, str) for word in literals(each)}


def members(enumeration: Any) -> set[str]:
    """What an enumeration declares; Google's grow by what the tests made its SDK read."""
    return {enumeration[name].value for name in vars(enumeration) if name in enumeration.__members__}


def reasons(model: Any) -> Callable[[], set[str]]:
    """The words that a model's `finish_reason` declares."""
    return lambda: literals(model.model_fields["finish_reason"].annotation)


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
    codes = literals(ResponseError.model_fields["code"].annotation) - NO_MORE_THAN_FAILED
    return {
        *literals(ResponseStatus) - running - {"incomplete"},
        *(f"{status}(background)" for status in running),
        *(f"incomplete:{word}" for word in literals(IncompleteDetails.model_fields["reason"].annotation)),
        *(f"failed:{code}" for code in codes),
    }


DECLARED: dict[str, tuple[str, str, Callable[[], set[str]]]] = {
    "openai body": ("openai_chat", "", reasons(openai_body.Choice)),
    "openai chunk": ("openai_chat", "", reasons(openai_chunk.Choice)),
    "openai completion": ("completions", "", reasons(CompletionChoice)),
    "openai response": ("openai_responses", "", of_responses),
    "azure body": ("openai_chat", "azure", reasons(openai_body.Choice)),
    "groq body": ("openai_chat", "groq", reasons(groq_body.Choice)),
    "groq chunk": ("openai_chat", "groq", reasons(groq_chunk.Choice)),
    "mistral body": ("openai_chat", "mistral", lambda: literals(mistral_body.ChatCompletionChoiceFinishReason)),
    "mistral chunk": (
        *("openai_chat", "mistral"),
        lambda: literals(mistral_chunk.CompletionResponseStreamChoiceFinishReason),
    ),
    "together body": ("openai_chat", "together", reasons(together_body.Choice)),
    "together chunk": ("openai_chat", "together", reasons(together_chunk.Choice)),
    "xai": ("openai_chat", "xai_grpc", lambda: set(sample_pb2.FinishReason.keys())),
    "hugging face, tgi": ("openai_chat", "tgi", lambda: literals(tgi.TextGenerationOutputFinishReason)),
    "hugging face": ("openai_chat", "huggingface", lambda: literals(tgi.TextGenerationOutputFinishReason)),
    "hugging face, text": ("completions", "tgi", lambda: literals(tgi.TextGenerationOutputFinishReason)),
    "anthropic": ("anthropic", "", lambda: literals(AnthropicStopReason)),
    "anthropic beta": ("anthropic", "", lambda: literals(BetaStopReason)),
    "google": ("gemini", "", lambda: members(types.FinishReason)),
    "google, vertex": ("gemini", "vertex", lambda: members(types.FinishReason)),
    "google, prompts": ("gemini", "promptFeedback", lambda: members(types.BlockedReason)),
    "google, interactions": ("gemini_interactions", "", lambda: literals(InteractionStatus)),
    "cohere": ("cohere", "", lambda: literals(ChatFinishReason)),
    "cohere v1": ("cohere", "v1", lambda: literals(FinishReason)),
}
ALSO_SAID = {"failed:context_length_exceeded", "in_progress(foreground EOF)", "content part type=refusal"}
"""What the Responses API says without declaring it, and what stands beside a status."""


@pytest.mark.parametrize("sdk", DECLARED)
def test_no_sdk_knows_a_reason_without_a_row(sdk: str) -> None:
    """A canary: a new release of an SDK with a new finish reason fails here, and names it."""
    format, dialect, declared = DECLARED[sdk]
    words, rows = declared(), format_of(format).reasons[dialect].keys()
    assert words, "the SDK no longer lists its reasons where they were"
    missing = sorted(words - rows)
    assert not missing, f"{sdk} declares {missing}, of which stop_reasons.tsv says nothing for {format} {dialect!r}"
    if sdk.startswith("cohere") or sdk == "openai response":
        gone = rows - words - ALSO_SAID
        assert not gone, f"the SDK no longer declares {sorted(gone)}: see whether {format} {dialect!r} still needs them"


def test_the_canaries_look_where_the_sdks_keep_their_choices() -> None:
    """The classes that the canaries read are those of the SDKs' responses; Ollama's declares no set of reasons."""
    for response, choice in (
        (openai_body.ChatCompletion, openai_body.Choice),
        (openai_chunk.ChatCompletionChunk, openai_chunk.Choice),
        (groq_body.ChatCompletion, groq_body.Choice),
        (groq_chunk.ChatCompletionChunk, groq_chunk.Choice),
        (together_body.ChatCompletion, together_body.Choice),
        (together_chunk.ChatCompletionChunk, together_chunk.Choice),
    ):
        assert get_args(cast(Any, response).model_fields["choices"].annotation) == (choice,)
    assert "finish_reason" in mistral_body.ChatCompletionChoice.model_fields
    assert "finish_reason" in mistral_chunk.CompletionResponseStreamChoice.model_fields
    assert tgi.TextGenerationOutput.__annotations__["details"]
    assert ollama.ChatResponse.model_fields["done_reason"].annotation == str | None
    messages = (chat_pb2.GetChatCompletionResponse, chat_pb2.GetChatCompletionChunk)
    assert [message.DESCRIPTOR.name for message in messages] == ["GetChatCompletionResponse", "GetChatCompletionChunk"]
