"""Objects of the real SDKs are read like their JSON, and no SDK declares a reason without a row.

`tests/providers/test_sdk_client.py` has their requests and responses over HTTP.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any, get_args

import anthropic.types
import anthropic.types.beta
import cohere.types
import groq.types.chat
import huggingface_hub
import mistralai.client as mistralai
import ollama
import openai
import openai.types.chat
import openai.types.responses
import pytest
import together.types.chat
from google.genai import types
from google.genai._gaos.types.interactions.interaction import InteractionStatus
from huggingface_hub.inference._generated.types import text_generation as tgi
from openai.types.responses.response import IncompleteDetails
from openai.types.responses.response_error import ResponseError
from pydantic import BaseModel
from xai_sdk.chat import Chunk as XaiChunk, Response as XaiResponse  # type: ignore[import-untyped]
from xai_sdk.proto import chat_pb2, sample_pb2  # type: ignore[import-untyped]

from endturn.calls.facts import RequestFacts
from endturn.formats import Context, Event, RequestSummary, ResponseSummary, format_of, summarize
from endturn.formats.sdk_objects import as_json
from endturn.testing.scripted import ScriptedProvider, pause, say
from endturn.vocabulary.messages import ChatResponse, Usage
from endturn.vocabulary.stop import StopReason
from tests.formats.recorded import RECORDED, streamed, summarized

# Neither typed nor with stubs.
parsers: Any = import_module("botocore.parsers")
to_protobuf: Any = import_module("google.protobuf.json_format").ParseDict


def seen(format: str, things: Iterable[Any], ctx: Context) -> ResponseSummary:
    """Return telemetry's summary of an SDK's objects."""
    return summarized(
        format_of(format), (as_json(thing, choices=ctx.request.facts.choice_count) for thing in things), ctx
    )


def decoded(format: str, things: list[Any], ctx: Context, *, stream: bool) -> ChatResponse:
    """Return a client's response from them."""
    said = [as_json(thing) for thing in things]
    if stream:
        return streamed(format_of(format), (Event(None, each) for each in said), ctx)
    return format_of(format).decode(said[0], ctx=ctx)


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
    for (format, dialect), made in OBJECTS.items()
    for name, ctx in RECORDED[format].contexts.items()
    if (name.startswith("what-it-means") and ctx.dialect == dialect) or (not dialect and name in PLAIN)
    if name in RECORDED[format].bodies or len(made) == 2
]


@pytest.mark.parametrize(("format", "dialect", "name"), ON_FILE)
def test_an_object_of_the_sdk_is_read_as_its_json(format: str, dialect: str, name: str) -> None:
    """A response, and the chunks of a stream; Google's also dumped under Python names; boto3's bytes are base64."""
    recorded, made = RECORDED[format], OBJECTS[format, dialect]
    ctx, stream = recorded.contexts[name], name in recorded.streams
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

XAI_USAGE = {
    "prompt_tokens": 12,
    "completion_tokens": 3,
    "reasoning_tokens": 5,
    "total_tokens": 20,
    "cached_prompt_text_tokens": 4,
}


def xai_chunk(
    text: str = "",
    *,
    reason: str = "REASON_INVALID",  # the enum's zero, which every chunk has
    reasoning: str = "",
    calls: Sequence[str] = (),
    searches: Sequence[str] = (),
    index: int = 0,
    role: str = "ROLE_ASSISTANT",
) -> Any:
    """Return a chunk of one output, as `chat.stream()` yields it beside the response so far.

    Args:
        calls: ids of calls of the client's tools.
        searches: ids of web searches, which xAI's servers run.
    """
    types = [(id_, "TOOL_CALL_TYPE_CLIENT_SIDE_TOOL") for id_ in calls]
    types += [(id_, "TOOL_CALL_TYPE_WEB_SEARCH_TOOL") for id_ in searches]
    function = {"name": "f", "arguments": '{"a": 1}'}
    delta = {
        "role": role,
        "content": text,
        "reasoning_content": reasoning,
        "tool_calls": [{"id": id_, "type": type_, "function": function} for id_, type_ in types],
    }
    output = {"index": index, "finish_reason": reason, "delta": delta}
    chunk = {"id": "r1", "model": "grok-4", "outputs": [output], "usage": XAI_USAGE}
    return XaiChunk(to_protobuf(chunk, chat_pb2.GetChatCompletionChunk()), None)


def xai_response(chunks: list[Any]) -> Any:
    """Return the response that the SDK itself assembles from its chunks."""
    response = XaiResponse(chat_pb2.GetChatCompletionResponse(), None)
    for each in chunks:
        response.process_chunk(each.proto)
    return response


XAI_SEARCH = [
    xai_chunk("Let me look. "),
    xai_chunk(reason="REASON_TOOL_CALLS", searches=["call_1"]),
    xai_chunk("tides …", reason="REASON_STOP", index=1, role="ROLE_TOOL"),
    xai_chunk("High at noon.", index=2),
    xai_chunk(reason="REASON_STOP", index=2),
]
"""A stream in which xAI's servers ran a search: its reason is not the response's."""


@dataclass(frozen=True, kw_only=True)
class XaiCase:
    """Chunks of a response, and the summary of them."""

    chunks: list[Any]
    reason: StopReason
    raw: str
    text: str = ""
    detail: str | None = None
    promoted_from: StopReason | None = None
    calls: int = 0
    reasons: tuple[str, ...] = ()
    """One for each choice, if there are several."""


XAI_CASES = {
    "the end of the turn": XaiCase(
        chunks=[xai_chunk("One, ", reasoning="hm"), xai_chunk("two"), xai_chunk(reason="REASON_STOP")],
        reason=StopReason.END_TURN,
        raw="REASON_STOP",
        text="One, two",
    ),
    "the output limit": XaiCase(
        chunks=[xai_chunk("One"), xai_chunk(reason="REASON_MAX_LEN")],
        reason=StopReason.MAX_TOKENS,
        raw="REASON_MAX_LEN",
        text="One",
    ),
    "the context window": XaiCase(
        chunks=[xai_chunk(reason="REASON_MAX_CONTEXT")],
        reason=StopReason.CONTEXT_WINDOW_EXCEEDED,
        raw="REASON_MAX_CONTEXT",
    ),
    "a tool call with its reason": XaiCase(
        chunks=[xai_chunk(reason="REASON_TOOL_CALLS", calls=["call_1"])],
        reason=StopReason.TOOL_CALL,
        raw="REASON_TOOL_CALLS",
        calls=1,
    ),
    "a time limit": XaiCase(
        chunks=[xai_chunk(reason="REASON_TIME_LIMIT")],
        reason=StopReason.ERROR,
        raw="REASON_TIME_LIMIT",
        detail="timeout",
    ),
    "two tool calls in one chunk": XaiCase(
        chunks=[xai_chunk(calls=["call_1", "call_2"]), xai_chunk(reason="REASON_STOP")],
        reason=StopReason.TOOL_CALL,
        raw="REASON_STOP",
        promoted_from=StopReason.END_TURN,
        calls=2,
    ),
    "a search that xAI's servers ran": XaiCase(
        chunks=XAI_SEARCH,
        reason=StopReason.END_TURN,
        raw="REASON_STOP",
        text="Let me look. High at noon.",
    ),
    "two choices": XaiCase(
        chunks=[
            xai_chunk("a"),
            xai_chunk("b", index=1),
            xai_chunk(reason="REASON_MAX_LEN"),
            xai_chunk(reason="REASON_STOP", index=1),
        ],
        reason=StopReason.MAX_TOKENS,
        raw="REASON_MAX_LEN",
        text="a",
        reasons=("REASON_MAX_LEN", "REASON_STOP"),
    ),
}


@pytest.mark.parametrize("name", XAI_CASES)
def test_reads_messages_of_xais_grpc_api(name: str) -> None:
    """The SDK's chunks, its folded response, and the protobuf messages of both read the same."""
    case = XAI_CASES[name]
    ctx = Context("xai_grpc", "x_ai", RequestSummary(facts=RequestFacts(choice_count=len(case.reasons) or 1)))
    response = xai_response(case.chunks)
    protobuf_chunks = [chunk.proto for chunk in case.chunks]
    for objects in (case.chunks, protobuf_chunks, [response], [response.proto]):
        summary = seen("openai_chat", objects, ctx)
        assert summary.stop.reason is case.reason
        assert (summary.stop.raw, summary.stop.detail) == (case.raw, case.detail)
        assert summary.stop.promoted_from is case.promoted_from
        assert (summary.tail, summary.facts.output_chars) == (case.text, len(case.text))
        assert (summary.facts.id, summary.facts.model) == ("r1", "grok-4")
        assert summary.facts.reasons == (case.reasons or (case.raw,))
        assert summary.facts.usage == Usage(12, 8, cache_read_tokens=4, reasoning_tokens=5)
    decoded_response = format_of("openai_chat").decode(as_json(response), ctx=ctx)
    assert len(decoded_response.tool_calls) == case.calls


@pytest.mark.parametrize("chunks", [[xai_chunk("One")], XAI_SEARCH[:4]], ids=["text", "a search"])
def test_a_stream_that_ends_with_xais_unset_reason_is_missing(chunks: list[Any]) -> None:
    summary = seen("openai_chat", chunks, Context("xai_grpc", "x_ai"))
    assert summary.stop.reason is StopReason.MISSING


def test_a_whole_response_with_xais_unset_reason_is_unknown() -> None:
    response = xai_response([xai_chunk("One")])
    stop = seen("openai_chat", [response], Context("xai_grpc", "x_ai")).stop
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
        assert summarize(format_of("openai_responses"), Context(), as_json(made)).stop.reason is StopReason.PAUSED
        assert client.responses.retrieve(made.id).output_text == "Done."
        with client.responses.retrieve(made.id, stream=True, starting_after=3) as events:
            assert [event.type for event in events][-1] == "response.completed"
    assert [each.request.retrieve for each in provider.received] == [None, None, None, made.id, made.id]


KNOWN: Any = {"max_output_tokens": 9, "candidate_count": 2, "response_mime_type": "application/json"}


@pytest.mark.parametrize(
    ("format", "settings", "expected"),
    [
        ("ollama", {"options": ollama.Options(num_predict=9, top_p=0.9)}, {"max_tokens": 9, "top_p": 0.9}),
        ("ollama", {"options": SimpleNamespace(num_predict=9, seed=7)}, {"max_tokens": 9, "seed": 7}),
        ("gemini", {"config": KNOWN}, {"max_tokens": 9, "choice_count": 2, "output_type": "json"}),
        (
            "gemini",
            {"config": types.GenerateContentConfig(**KNOWN)},
            {"max_tokens": 9, "choice_count": 2, "output_type": "json"},
        ),
    ],
)
def test_settings_may_be_an_object(format: str, settings: Any, expected: Any) -> None:
    """The SDK's own, or any, as well as a dictionary."""
    facts = format_of(format).request_summary({"model": "m", **settings}).facts
    assert {name: getattr(facts, name) for name in expected} == expected


# --- Drift: a new release of an SDK fails here first --------------------------------------------------------------


def literals(annotation: Any) -> set[str]:
    """Return the values of a Literal, also within an Optional or a Union."""
    inner = get_args(annotation)
    words = {each for each in inner if isinstance(each, str)}
    return words | {word for each in inner if not isinstance(each, str) for word in literals(each)}


def members(enumeration: Any) -> set[str]:
    """Return the declared members of an enumeration; Google's grow with values that the tests read."""
    return {enumeration[name].value for name in vars(enumeration) if name in enumeration.__members__}


def choices(response: Any) -> set[str]:
    """Return the values that the `finish_reason` of a response's choices declares."""
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
    """Return every raw value that OpenAI's response types allow, in our table's spelling."""
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


def test_members_that_are_read_by_name_are_declared() -> None:
    """Bedrock's events and the type of a call that its servers run; Ollama's reason, which may be any text."""
    model = _service()
    assert {name for name in model.shape_for("ConverseStreamOutput").members if not name.endswith("Exception")} == {
        *("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"),
    }
    assert model.shape_for("ToolUseType").enum == ["server_tool_use"]
    assert {name for name in model.shape_for("ResponseStream").members if not name.endswith("Exception")} == {"chunk"}
    assert ollama.ChatResponse.model_fields["done_reason"].annotation == str | None
