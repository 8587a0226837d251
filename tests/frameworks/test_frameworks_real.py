"""The frameworks' own objects and exceptions, created by the installed packages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, get_args

import cohere.errors
import google.genai.errors
import httpx2
import langchain_core.exceptions
import ollama
import openai
import pydantic
import pydantic_ai.exceptions
import pytest
from google.genai.types import FinishReason
from langchain_core import messages as langchain_messages
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, HumanMessageChunk
from langchain_core.outputs import ChatGeneration, ChatResult, Generation, LLMResult
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import INVALID_SPAN
from pydantic_ai import Agent, ModelRequest, ModelResponse, ModelSettings, messages as pydantic_messages
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from endturn import frameworks
from endturn.errors import UsageError
from endturn.formats import format_of
from endturn.frameworks import of_exception
from endturn.frameworks.exceptions import REASON_BY_CLASS
from endturn.testing.scripted import Reply, ScriptedProvider, call, fail, partial_call, refuse, say, truncate
from endturn.vocabulary.stop import Resume, StopReason


class Answer(pydantic.BaseModel):
    """The type of a structured answer."""

    value: int


# --- Canaries -----------------------------------------------------------------------------------------------------


def test_pydantic_ai_knows_no_word_without_a_row() -> None:
    """A new finish reason of Pydantic AI fails this test, which names it."""
    assert set(get_args(pydantic_messages.FinishReason)) == set(frameworks.REASONS["pydantic-ai"])
    states = "complete incomplete suspended interrupted"
    assert set(get_args(pydantic_messages.ModelResponseState)) == set(states.split())


@pytest.mark.parametrize("reason", list(FinishReason), ids=lambda reason: reason.value)
def test_gemini_names_are_found_in_any_framework(reason: FinishReason) -> None:
    """LangChain and OpenTelemetry pass on the enum's name, in either case, with the format's meaning."""
    row = format_of("gemini").reasons[""][reason.value]
    stop = frameworks.langchain({"finish_reason": reason.name, "model_provider": "google_genai"})
    assert (stop.reason, stop.resume, stop.mapped) == (row.reason, row.resume, True)
    assert frameworks.otel((reason.name.lower(),), provider="gcp.gemini").reason == row.reason


def test_the_named_exceptions_exist() -> None:
    homes = {
        "openai": openai,
        "pydantic_ai": pydantic_ai.exceptions,
        "langchain_core": langchain_core.exceptions,
        "google": google.genai.errors,
    }
    known = [(package, name) for package, name in REASON_BY_CLASS if package in homes]
    assert {package for package, _ in known} == homes.keys()
    assert all(issubclass(getattr(homes[package], name), BaseException) for package, name in known)


# --- LangChain ----------------------------------------------------------------------------------------------------


def test_langchain_chunks_add_up() -> None:
    """Adding chunks concatenates their reasons, and completes the JSON of a truncated call."""
    chunk = AIMessageChunk(content="a", response_metadata={"finish_reason": "STOP", "model_provider": "google_genai"})
    both = chunk + chunk
    assert both.response_metadata["finish_reason"] == "STOPSTOP"
    assert frameworks.langchain(both).reason is StopReason.END_TURN
    cut = AIMessageChunk(
        content="", tool_call_chunks=[{"name": "f", "args": '{"path": "/etc', "id": "1", "index": 0}]
    ) + AIMessageChunk(
        content="", response_metadata={"finish_reason": "length", "model_provider": "openai"}, chunk_position="last"
    )
    assert isinstance(cut, AIMessageChunk)
    assert [each["args"] for each in cut.tool_calls] == [{"path": "/etc"}]
    stop = frameworks.langchain(cut)
    assert (stop.reason, stop.promoted_from) == (StopReason.MAX_TOKENS, None)


def test_langchain_results() -> None:
    """Messages, generations, both kinds of result and a graph's state read the same; other messages are rejected."""
    message = AIMessage(
        content="",
        response_metadata={"finish_reason": "stop", "model_provider": "openai"},
        tool_calls=[{"name": "f", "args": {}, "id": "1"}],
        usage_metadata={"input_tokens": 3, "output_tokens": 8, "total_tokens": 11},
    )
    generation = ChatGeneration(message=message)
    results = [ChatResult(generations=[generation]), LLMResult(generations=[[generation]])]
    for answer in (message, generation, *results, message.model_dump(), {"messages": [HumanMessage("x"), message]}):
        stop = frameworks.langchain(answer, maximum=8)
        assert (stop.reason, stop.promoted_from, stop.suspected) == (StopReason.TOOL_CALL, StopReason.END_TURN, True)
    text = LLMResult(generations=[[Generation(text="a", generation_info={"finish_reason": "length"})]])
    assert frameworks.langchain(text).reason is frameworks.langchain(text.model_dump()).reason is StopReason.MAX_TOKENS
    for without in (AIMessage("y"), Generation(text="y"), AIMessageChunk(content="y")):
        assert frameworks.langchain(without).reason is StopReason.MISSING
    tool = langchain_messages.ToolMessage("x", tool_call_id="1")
    for other in (HumanMessage("x"), HumanMessageChunk(content="x"), langchain_messages.SystemMessage("x"), tool):
        with pytest.raises(UsageError, match=rf"langchain\(\) reads an AIMessage, .*, not {type(other).__name__}$"):
            frameworks.langchain(other)


# --- Pydantic AI --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def agent_of(*replies: Reply, **settings: Any) -> AsyncIterator[Agent[None, Any]]:
    """Return an agent of Pydantic AI with a scripted model over real HTTP."""
    with ScriptedProvider(list(replies)).serve() as url:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
            agent: Agent[None, Any] = Agent(model, model_settings=ModelSettings(max_tokens=64), **settings)

            @agent.tool_plain
            def search(query: str) -> str:
                return f"nothing about {query}"

            yield agent


async def test_pydantic_ai_responses() -> None:
    """A run is read by its last response, streamed or not; a dumped response reads the same; a request is rejected."""
    async with agent_of(
        call("search", {"query": "x"}), truncate("one two three", after=2), say("All."), say("All.")
    ) as agent:
        ran = await agent.run("go")
        called, cut = (each for each in ran.all_messages() if isinstance(each, ModelResponse))
        stop = frameworks.pydantic_ai(cut)
        assert (stop.reason, stop.raw, stop.resume) == (StopReason.MAX_TOKENS, "length", Resume.PROMPT)
        assert frameworks.pydantic_ai(ran) == stop
        assert frameworks.pydantic_ai(ModelMessagesTypeAdapter.dump_python([cut], mode="json")[0]) == stop
        assert frameworks.pydantic_ai(called).reason is StopReason.TOOL_CALL
        async with agent.run_stream("go") as result:
            await result.get_output()
        assert frameworks.pydantic_ai(result).reason is StopReason.END_TURN
        with pytest.raises(UsageError, match=r"pydantic_ai\(\) reads a ModelResponse, .*, not Agent$"):
            frameworks.pydantic_ai(agent)
    with pytest.raises(UsageError, match=r", not ModelRequest$"):
        frameworks.pydantic_ai(ModelRequest(parts=[]))


CUT_CALL = partial_call("search", {"query": "a long question"}, after=3)
"""It asks again over a cut call until its retries are used up; then the exception alone tells."""
RAISES: dict[str, tuple[list[Reply], type[Exception], StopReason | None]] = {
    "a refusal": ([refuse()], pydantic_ai.exceptions.ContentFilterError, StopReason.REFUSED),
    "a cut call": ([CUT_CALL] * 3, pydantic_ai.exceptions.IncompleteToolCall, StopReason.MAX_TOKENS),
    "a full window": (
        [fail(400, code="context_length_exceeded")],
        pydantic_ai.exceptions.ModelHTTPError,
        StopReason.CONTEXT_WINDOW_EXCEEDED,
    ),
    "a filter": ([fail(400, code="content_filter")], pydantic_ai.exceptions.ModelHTTPError, StopReason.SAFETY_BLOCKED),
    "a failure": ([fail(500)], pydantic_ai.exceptions.ModelHTTPError, None),
}


@pytest.mark.parametrize("name", RAISES)
async def test_what_pydantic_ai_raises(name: str) -> None:
    """A refusal is recognised by its text; an error response about the window or a filter is a stop."""
    replies, kind, reason = RAISES[name]
    async with agent_of(*replies) as agent:
        with pytest.raises(kind) as error:
            await agent.run("go")
    seen: Any = of_exception(error.value)
    assert (seen and seen.stop.reason) == reason
    assert name != "a refusal" or (seen.facts.usage is not None, seen.facts.model) == (True, "m")


# --- OpenTelemetry ------------------------------------------------------------------------------------------------


def test_otel_spans() -> None:
    """A span of the SDK is read; a non-recording one is empty, and a span of something else is rejected."""
    assert frameworks.otel(INVALID_SPAN).reason is StopReason.MISSING
    span: Any = TracerProvider().get_tracer("t").start_span("chat m")
    assert frameworks.otel(span).reason is StopReason.MISSING
    span.set_attribute("http.request.method", "GET")
    with pytest.raises(UsageError, match=r"otel\(\) reads a span's attributes .*\['http.request.method'\]$"):
        frameworks.otel(span)
    span.set_attribute("gen_ai.provider.name", "anthropic")
    span.set_attribute("gen_ai.response.finish_reasons", ["pause_turn"])
    span.end()
    stop = frameworks.otel(span)
    assert (stop.reason, stop.raw, stop.resume) == (StopReason.PAUSED, "pause_turn", Resume.NONE)
    assert frameworks.otel(span.attributes) == stop


# --- Exceptions of the SDKs ---------------------------------------------------------------------------------------


def test_openai_parse_hides_the_completion() -> None:
    """`parse()` raises for a truncated answer, which the exception keeps with its usage."""
    with (
        ScriptedProvider([truncate('{"value": 7}', after=2), refuse()]).serve() as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        ask: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "response_format": Answer}
        with pytest.raises(openai.LengthFinishReasonError) as error:
            client.chat.completions.parse(**ask)
    seen: Any = of_exception(error.value)
    assert (seen.stop.reason, seen.stop.raw, seen.facts.model) == (StopReason.MAX_TOKENS, "length", "m")
    assert seen.facts.usage.output_tokens == 2
    filtered: Any = of_exception(openai.ContentFilterFinishReasonError())
    assert filtered.stop.reason is StopReason.SAFETY_BLOCKED


WINDOW = {"message": "This model's maximum context length is 8 tokens", "code": "context_length_exceeded"}
SLOW = {"error": {"code": 429, "message": "reduce the length of the messages", "status": "RESOURCE_EXHAUSTED"}}
POST = httpx2.Request("POST", "http://s")


@pytest.mark.parametrize(
    ("error", "speaks"),
    [
        (openai.BadRequestError("no", response=httpx2.Response(400, request=POST), body=WINDOW), True),
        (openai.APIError("no", POST, body=WINDOW), True),  # within a stream
        (cohere.errors.BadRequestError({"message": "prompt is too long"}), True),
        (ollama.ResponseError("input length exceeds the context window", 400), True),
        (langchain_core.exceptions.ContextOverflowError("too long"), True),
        (langchain_core.exceptions.OutputParserException("Invalid json", llm_output='{"value": '), False),
        (openai.APITimeoutError(POST), False),
        (google.genai.errors.ClientError(429, SLOW), False),
        (ollama.ResponseError("model not found", 404), False),
    ],
    ids=repr,
)
def test_error_answers(error: Exception, speaks: bool) -> None:
    """An SDK's error about the context window is that stop reason; other errors have none."""
    seen = of_exception(error)
    assert (None if seen is None else seen.stop.reason) == (StopReason.CONTEXT_WINDOW_EXCEEDED if speaks else None)


def test_gemini_continuation_that_broke_off() -> None:
    """The SDK followed the tokens itself until a request failed: the partial response can be resumed."""
    broken = google.genai.errors.ContinuationInterruptedError
    seen: Any = of_exception(broken("hop failed", continuation_token="t", interaction_id="i"))
    assert (seen.stop.reason, seen.stop.resume, seen.facts.id) == (StopReason.PAUSED, Resume.NATIVE_TOKEN, "i")
    partial = {"id": "i", "status": "requires_continuation", "continuation_token": "t", "steps": []}
    seen = of_exception(broken("hop failed", partial_interaction=partial))
    assert (seen.stop.raw, seen.stop.resume) == ("requires_continuation", Resume.NATIVE_TOKEN)
