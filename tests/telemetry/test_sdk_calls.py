"""What SDKs have of their own beside plain calls and streams: clients of other clouds, spans, jobs in the background.

What all of them do alike is in tests/instrumentation/test_exchanges.py, every path in test_recognition.py, how jobs
are fetched in instrumentation/answers.yaml.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import anthropic
import groq
import httpx
import httpx2
import openai
import pytest
import together
from anthropic.lib.bedrock import AnthropicBedrockMantle
from mistralai.client import Mistral
from mistralai.extra.observability.telemetry import configure_telemetry
from opentelemetry.sdk.trace import TracerProvider

from endturn.chat import Json
from endturn.events import Turn, TurnKind, TurnOutcome
from endturn.instrumentation import background_responses
from endturn.instrumentation.decorators import observe_turn
from endturn.scopes import start_turn
from endturn.scripted import ScriptedProvider, truncate
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from endturn.telemetry.span_conventions import scope_of
from tests.formats import replies_openai_responses as replies
from tests.formats.replies import anthropic_stream, message, said, say
from tests.telemetry.mocked import (
    ASK,
    CUT,
    CUT_STREAM,
    WHOLE,
    Records,
    achat,
    aclaude,
    body,
    chat,
    claude,
    events,
    settle,
)
from tests.telemetry.stage import Recording, Stage

CLAUDE: dict[str, Any] = {"model": "claude-sonnet-5-5", "max_tokens": 17, "messages": ASK["messages"]}
MESSAGES = anthropic_stream([said("w0 ", "w1 ", "w2 ")])


# --- Routes and clients --------------------------------------------------------------------------------------------


def both(create: Callable[..., Any], **asked: Any) -> None:
    """Whole and streamed."""
    create(**asked)
    list(create(**asked, stream=True))


def azure(http: Any) -> None:
    own: dict[str, Any] = {"azure_endpoint": "http://gateway.local", "api_version": "2025-03-01"}
    both(openai.AzureOpenAI(api_key="n", http_client=http, **own).chat.completions.create, **ASK)


def on_claude(make: Callable[..., Any], **how: Any) -> Callable[[Any], None]:
    return lambda http: both(make(http_client=http, max_retries=0, **how).messages.create, **CLAUDE)


PROMPT: dict[str, Any] = {"model": "codestral", "prompt": "def", "max_tokens": 9}
KEYS: dict[str, Any] = {"aws_access_key": "a", "aws_secret_key": "s", "aws_region": "us-east-1"}
MANTLE: dict[str, Any] = {"api_key": "k", "aws_region": "us-east-1"}
ROUTES: dict[str, tuple[Any, Callable[[Any], None], tuple[str, str, str]]] = {
    "groq": (
        httpx, lambda http: both(groq.Groq(api_key="n", http_client=http).chat.completions.create, **ASK),
        ("groq", ASK["model"], "chat"),
    ),
    "together": (
        httpx, lambda http: both(together.Together(api_key="n", http_client=http).completions.create, **PROMPT),
        ("together", "codestral", "text_completion"),
    ),
    "azure": (httpx2, azure, ("azure.ai.openai", ASK["model"], "chat")),
    "foundry": (
        httpx2, on_claude(anthropic.AnthropicFoundry, api_key="k", resource="me"),
        ("azure.ai.inference", CLAUDE["model"], "chat"),
    ),
    "bedrock": (httpx2, on_claude(anthropic.AnthropicBedrock, **KEYS), ("aws.bedrock", CLAUDE["model"], "chat")),
    "mantle": (httpx2, on_claude(AnthropicBedrockMantle, **MANTLE), ("aws.bedrock", CLAUDE["model"], "chat")),
}  # fmt: skip
"""A library, who asks by a client of it, and what each record says of provider, model and operation."""


@pytest.mark.parametrize(("library", "ask", "said"), ROUTES.values(), ids=ROUTES)
def test_a_route(records: Records, library: Any, ask: Callable[[Any], None], said: tuple[str, str, str]) -> None:
    """Path and host say who answers and in which format, wherever the SDK puts the model; whole and streamed."""
    ask(library.Client(transport=ScriptedProvider([truncate("One two", after=1)] * 2).transport()))
    assert records.reasons() == [StopReason.MAX_TOKENS] * 2
    assert [started.stream for started in records.started] == [False, True]
    assert {(started.provider, started.model, started.operation) for started in records.started} == {said}


# --- What is between an SDK and its provider -----------------------------------------------------------------------


def test_a_transport_that_hands_a_call_on_makes_no_other(records: Records) -> None:
    """A transport that sends what it is given by another HTTP client is a part of the call."""
    inner = httpx2.Client(transport=httpx2.MockTransport(lambda request: body(WHOLE)))

    def forward(request: httpx2.Request) -> httpx2.Response:
        answer = inner.post(str(request.url), content=request.content, headers={"content-type": "application/json"})
        return httpx2.Response(200, content=answer.content, headers={"content-type": "application/json"})

    http = httpx2.Client(transport=httpx2.MockTransport(forward))
    openai.OpenAI(api_key="none", max_retries=0, http_client=http).chat.completions.create(**ASK)
    assert records.only().started.model == ASK["model"]


# --- What a host does with its instrumentation ---------------------------------------------------------------------


@pytest.mark.parametrize("read", [pytest.param(0, id="never read"), pytest.param(2, id="read in part")])
def test_an_abandoned_stream_goes_at_once(records: Records, read: int) -> None:
    """No cycle of ours keeps a dropped stream: its response is freed without the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        stream: Any = claude(events(*MESSAGES)).messages.create(**CLAUDE, stream=True)
        here = weakref.ref(stream)
        for _ in range(read):
            next(stream)
        del stream
        assert here() is None
        cleanup.run()
    finally:
        gc.enable()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.detail) == (StopReason.CANCELLED, "abandoned")


# --- Responses that are made in the background ----------------------------------------------------------------------

JOB: Json = {"model": "gpt-5.6-mini", "input": "hi", "background": True}
QUEUED = replies.body([], "queued", background=True, usage=None)
RUNNING = replies.body([], "in_progress", background=True, usage=None)
FINAL = replies.cut([replies.say("Hello the", status="incomplete")], background=True)
JOB_STREAM = replies.named(*replies.begun(background=True), *replies.said(0, "w0 ", "w1 "), replies.ended(FINAL))


def leave(stream: Any) -> None:
    with stream:
        next(stream)


async def test_an_async_job(records: Records) -> None:
    """The same, asynchronously, through a raw response."""
    client = achat(body(QUEUED), body(RUNNING), body(FINAL))
    job = await client.responses.create(**JOB)
    await client.responses.with_raw_response.retrieve(job.id)
    assert not records.ended
    async with client.responses.with_streaming_response.retrieve(job.id) as raw:
        await raw.read()
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_a_job_that_nobody_fetches(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is `paused`, as it was seen last: after an hour, or when there are too many, or at the end."""
    ids = iter(range(9))

    def job() -> httpx2.Response:
        return body({**QUEUED, "id": f"resp_{next(ids)}"})

    monkeypatch.setattr(background_responses, "PENDING", 2)
    client = chat(*(job() for _ in range(3)))
    for _ in range(3):
        client.responses.create(**JOB)
    assert [ended.response_id for ended in records.ended] == ["resp_0"]
    monkeypatch.setattr(background_responses, "IDLE_S", 0.0)
    background_responses.sweep()
    assert [ended.response_id for ended in records.ended] == ["resp_0", "resp_1", "resp_2"]
    assert {(ended.stop.reason, ended.stop.raw) for ended in records.ended} == {(StopReason.PAUSED, "queued")}
    assert {turn.outcome for turn in records.turns} == {TurnOutcome.LEFT_PAUSED}
    assert not background_responses.are_pending()


def test_a_job_in_a_controller_s_turn(records: Records) -> None:
    """The controller fetches on its own account: the call that started the job is over with its answer."""
    scope = start_turn(Turn(kind=TurnKind.CONTROLLER))
    with scope.step():
        chat(body(QUEUED)).responses.create(**JOB)
    scope.end(TurnOutcome.LEFT_PAUSED)
    assert records.only().stop.reason is StopReason.PAUSED


def test_an_observed_turn_does_not_wait_for_a_job_s_stream(records: Records) -> None:
    """A turn that left a job's stream is over; the job's end is recorded when it is fetched."""
    client = chat(events(*JOB_STREAM), body(FINAL))

    @observe_turn(agent="researcher")
    def agent() -> str:
        leave(client.responses.create(**JOB, stream=True))
        return "started"

    assert agent() == "started"
    assert [turn.turn.agent for turn in records.turns] == ["researcher"]
    client.responses.retrieve("resp_68a1")
    assert records.only().stop.reason is StopReason.MAX_TOKENS
    assert records.ended[0].started.turn.open_streams == 0


# --- Spans that SDKs make of their own calls: those say why the model stopped, and there is no second one -------------

CUT_MESSAGE = message([say("Hello the")], "max_tokens")
CUT_MESSAGES = anthropic_stream([said("w0 ", "w1 ", "w2 ")], "max_tokens")


def made(stage: Stage) -> tuple[list[Any], set[tuple[str, str]]]:
    """Why the calls of all spans stopped, and the spans' names and scopes."""
    spans = stage.spans.get_finished_spans()
    return [(span.attributes or {}).get("endturn.stop.reason") for span in spans], {
        (span.name, scope_of(span)) for span in spans
    }


# --- Anthropic's ---------------------------------------------------------------------------------------------------


def test_anthropics_span_is_enriched_in_time(recording: Recording) -> None:
    """There is one span, the SDK's, and it says why the model stopped: written before the SDK ends it."""
    stage = recording()
    own: Any = {"open_telemetry": {"tracer_provider": stage.tracers}}
    claude(body(CUT_MESSAGE), **own).messages.create(**CLAUDE)
    for stream in (CUT_MESSAGES, MESSAGES[:5]):
        list(claude(events(*stream), **own).messages.create(**CLAUDE, stream=True))
    theirs = {("anthropic.messages.create", "com.anthropic.sdk.python")}
    assert made(stage) == (["max_tokens", "max_tokens", "missing"], theirs)


async def test_anthropics_span_of_an_async_stream(recording: Recording) -> None:
    """The same, asynchronously; that of a stream which its host leaves ends before that is seen, and stays as it is."""
    stage = recording()
    client = aclaude(events(*CUT_MESSAGES), events(*MESSAGES), open_telemetry={"tracer_provider": stage.tracers})
    async with client.messages.with_streaming_response.create(**CLAUDE, stream=True) as raw:
        assert [piece async for piece in raw.iter_bytes()]
    async with client.messages.with_streaming_response.create(**CLAUDE, stream=True) as raw:
        await anext(raw.iter_lines())
    assert made(stage)[0] == ["max_tokens", None]


async def test_a_raw_response_with_a_span_of_its_sdk_is_dropped(records: Records) -> None:
    """anthropic ends its span in a destructor: what is announced waits for a better place."""
    own: Any = {"open_telemetry": {"tracer_provider": TracerProvider()}}
    whole: Any = claude(body(CUT_MESSAGE), **own).messages.with_streaming_response.create(**CLAUDE).__enter__()
    awhole: Any = await aclaude(body(CUT_MESSAGE), **own).messages.with_streaming_response.create(**CLAUDE).__aenter__()
    del whole, awhole
    settle()
    assert [(ended.stop.reason, ended.stop.detail) for ended in records.ended] == [
        (StopReason.CANCELLED, "abandoned")
    ] * 2


# --- Mistral's -----------------------------------------------------------------------------------------------------


def test_mistrals_span_is_enriched(recording: Recording) -> None:
    """Where the SDK traces its calls itself."""
    stage, answers = recording(), iter([body(CUT), events(*CUT_STREAM), events(*CUT_STREAM)])
    http = httpx2.Client(transport=httpx2.MockTransport(lambda request: next(answers)))
    asking = Mistral(api_key="none", client=http)
    configure_telemetry(asking, provider=stage.tracers, redaction=False)
    asked: Any = {"model": "mistral-large", "messages": ASK["messages"]}
    asking.chat.complete(**asked)
    assert list(asking.chat.stream(**asked))
    with asking.chat.stream(**asked) as stream:
        next(stream)
    reasons, scopes = made(stage)
    assert reasons == ["max_tokens", "max_tokens", None]  # it ends its span before it closes the response
    assert {scope for _, scope in scopes} == {"mistralai_sdk_tracer"}
