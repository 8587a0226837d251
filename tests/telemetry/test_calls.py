"""What httpx and the SDKs have of their own beside plain calls and streams: hooks, other clouds, jobs, own spans.

What all of them do alike is in tests/instrumentation/test_exchanges.py, every path in test_recognition.py, how jobs
are fetched in instrumentation/test_answers.py.
"""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
import trio
from anthropic.lib.bedrock import AnthropicBedrockMantle
from mistralai.client import Mistral
from mistralai.extra.observability.telemetry import configure_telemetry
from opentelemetry.sdk.trace import TracerProvider

from endturn.calls.outcomes import TurnKind, TurnOutcome
from endturn.calls.turn import Turn
from endturn.calls.turn_scope import start_turn
from endturn.formats import Event
from endturn.formats.framing import frame
from endturn.instrumentation import background_responses
from endturn.instrumentation.decorators import observe_turn
from endturn.telemetry import attributes
from endturn.telemetry.span_conventions import scope_of
from endturn.testing.scripted import Reply, ScriptedProvider, fail, say, truncate
from endturn.vocabulary.messages import Json
from endturn.vocabulary.stop import StopReason
from tests.formats import replies
from tests.telemetry.mocked import ASK, CUT, CUT_STREAM, Records, achat, aclaude, body, chat, claude, events, settle
from tests.telemetry.stage import Recording, Stage

URL = "https://api.openai.com/v1/chat/completions"
STREAM: dict[str, Any] = {**ASK, "stream": True}
FRAMES = [frame(event) for event in CUT_STREAM]
both_libraries = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])


def scripted(library: Any, *script: Reply, **options: Any) -> Any:
    """A client whose every request is answered by the next reply, wherever it goes."""
    return library.Client(transport=ScriptedProvider(list(script)).transport(), **options)


# --- httpx and httpx2, which are alike -----------------------------------------------------------------------------


@both_libraries
def test_the_response_is_untouched(records: Records, library: Any) -> None:
    """Its type, what it measures, and what a copy or a pickle of it has, whole and streamed."""
    assert inspect.iscoroutinefunction(library.AsyncClient.send)
    whole = scripted(library, say("Hello")).post(URL, json=ASK)
    with scripted(library, say("Hello")).stream("POST", URL, json=STREAM) as streamed:
        assert not {name for name, value in vars(streamed).items() if callable(value) and name != "stream"}
        streamed.read()
    for response in (whole, streamed):
        assert type(response) is library.Response
        assert response.is_closed
        assert response.elapsed.total_seconds() >= 0
        assert response.num_bytes_downloaded == len(response.content)
        assert pickle.loads(pickle.dumps(response)).content == copy.copy(response).content == response.content
    assert len(records.ended) == 2


@pytest.mark.parametrize(("pieces", "kept"), [(1, 0), (8, 7), (9, 4), (1_000, 7)])
def test_the_times_between_chunks(records: Records, pieces: int, kept: int) -> None:
    """Of a short stream all of them; of a long one as many as a short one has, from all of its length."""
    content = [FRAMES[1]] * (pieces - 1) + [b"".join(FRAMES[-3:])]
    answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=iter(content))
    client = httpx.Client(transport=httpx.MockTransport(lambda request: answer))
    with client.stream("POST", URL, json=STREAM) as response:
        assert list(response.iter_raw()) == content
    ended = records.only()
    assert ended.first_chunk_s is not None
    assert len(ended.chunk_gaps_s) == kept
    assert min(ended.chunk_gaps_s, default=0) >= 0
    assert sum(ended.chunk_gaps_s) <= ended.duration_s - ended.first_chunk_s


HOOKS: dict[str, tuple[Callable[[Any], Any], Reply, StopReason]] = {
    "raises": (lambda response: response.raise_for_status(), fail(429), StopReason.ERROR),
    "reads": (lambda response: response.read(), truncate("One two", after=1), StopReason.MAX_TOKENS),
    "closes": (lambda response: response.close(), truncate("One two", after=1), StopReason.CANCELLED),
}


@both_libraries
@pytest.mark.parametrize(("hook", "reply", "reason"), HOOKS.values(), ids=HOOKS)
def test_what_an_event_hook_does(records: Records, library: Any, hook: Any, reply: Reply, reason: StopReason) -> None:
    """What it raises comes through; what it has read is read, what it closed cancelled, before the host has it."""
    client = scripted(library, reply, event_hooks={"response": [lambda response: hook(response) and None]})
    failing = reason is StopReason.ERROR
    with pytest.raises(library.HTTPStatusError) if failing else nullcontext(), client.stream("POST", URL, json=STREAM):
        assert records.reasons() == [reason]
    ended = records.only()
    assert (ended.stop.reason, attributes.error_type(ended.error)) == (reason, "429" if failing else None)


@both_libraries
def test_an_auth_flow_is_part_of_the_call(records: Records, library: Any) -> None:
    """A 401 that its auth flow answers is no call of its own."""

    class Auth(library.Auth):  # type: ignore[misc]  # either library's
        def auth_flow(self, request: Any) -> Iterator[Any]:
            response: Any = yield request
            if response.status_code == 401:
                request.headers["authorization"] = "Bearer new"
                yield request

    client = scripted(library, fail(401), say("Hello"))
    assert client.post(URL, json=ASK, auth=Auth()).is_success
    assert records.only().stop.reason is StopReason.END_TURN


# trio warns of the SDKs' own generators when a stream is closed early, observed or not.
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
def test_async_clients_on_trio(records: Records) -> None:
    """Whole, streamed, left, at once and cancelled: calls that run in one thread have turns of their own."""
    asked: Any = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 8}

    async def main() -> None:
        script = {"cut": [truncate("One two", after=1)], "done": [say("Done.")]}
        with ScriptedProvider(script, exhausted="last").serve() as url:
            async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as claude:
                ask = claude.messages.create
                await ask(model="cut", **asked)
                async with await ask(model="done", stream=True, **asked) as left:
                    await anext(aiter(left))
                async with claude.messages.stream(model="done", **asked) as stream:
                    await stream.get_final_message()
                async with trio.open_nursery() as nursery:
                    for _ in range(5):
                        nursery.start_soon(partial(ask, model="done", **asked))
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await ask(model="done", **asked)

    trio.run(main)
    settle()
    assert records.reasons() == ["max_tokens", "cancelled", *["end_turn"] * 6, "cancelled"]
    assert len({record.started.turn.id for record in records.ended}) == len(records.started) == 9


# --- Clients of other clouds ---------------------------------------------------------------------------------------

CLAUDE: dict[str, Any] = {"model": "claude-sonnet-5-5", "max_tokens": 17, "messages": ASK["messages"]}
ROUTES: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "azure.ai.openai": (
        lambda http: openai.AzureOpenAI(
            api_key="n", http_client=http, azure_endpoint="http://gateway.local", api_version="2025-03-01"
        ).chat.completions.create,
        ASK,
    ),
    "azure.ai.inference": (
        lambda http: anthropic.AnthropicFoundry(api_key="k", http_client=http, resource="me").messages.create, CLAUDE,
    ),
    "aws.bedrock": (
        lambda http: anthropic.AnthropicBedrock(
            aws_access_key="a", aws_secret_key="s", aws_region="us-east-1", http_client=http
        ).messages.create,
        CLAUDE,
    ),
    "aws.bedrock mantle": (
        lambda http: AnthropicBedrockMantle(api_key="k", aws_region="us-east-1", http_client=http).messages.create,
        CLAUDE,
    ),
}  # fmt: skip
"""Who is asked, by which method of a client over HTTP, with which arguments."""


@pytest.mark.parametrize(("provider", "client", "asked"), [(name.split()[0], *route) for name, route in ROUTES.items()])
def test_a_route(records: Records, provider: str, client: Callable[[Any], Any], asked: dict[str, Any]) -> None:
    """Path and host say who answers and in which format, wherever the SDK puts the model; whole and streamed."""
    create = client(scripted(httpx2, *[truncate("One two", after=1)] * 2))
    create(**asked)
    list(create(**asked, stream=True))
    assert records.reasons() == [StopReason.MAX_TOKENS] * 2
    assert [started.request.stream for started in records.started] == [False, True]
    found = {
        (started.endpoint.provider, started.request.model, started.endpoint.operation) for started in records.started
    }
    assert found == {(provider, asked["model"], "chat")}


# --- Responses that are made in the background ---------------------------------------------------------------------

JOB: Json = {"model": "gpt-5.6-mini", "input": "hi", "background": True}
QUEUED = replies.template("response", output=[], status="queued", background=True, usage=None)
FINAL = {**QUEUED, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
JOB_STREAM = [
    Event(kind, {"type": kind, "response": {**QUEUED, "status": "in_progress"}, "sequence_number": number})
    for number, kind in enumerate(("response.created", "response.in_progress"))
]


def test_a_job_that_nobody_fetches(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is `paused`, as it was seen last: after an hour, or when there are too many, or at the end."""
    monkeypatch.setattr(background_responses, "MAX_PENDING", 2)
    client = chat(*(body({**QUEUED, "id": f"resp_{number}"}) for number in range(3)))
    for _ in range(3):
        client.responses.create(**JOB)
    assert [ended.response.id for ended in records.ended] == ["resp_0"]
    monkeypatch.setattr(background_responses, "IDLE_S", 0.0)
    background_responses.sweep()
    assert [ended.response.id for ended in records.ended] == ["resp_0", "resp_1", "resp_2"]
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


async def test_an_observed_turn_does_not_wait_for_a_job_s_stream(records: Records) -> None:
    """A turn that left a job's stream is over; the job's end is recorded when it is fetched, in a raw response too."""
    client = achat(events(*JOB_STREAM), body(FINAL))

    @observe_turn(agent="researcher")
    async def agent() -> None:
        async with await client.responses.create(**JOB, stream=True) as stream:
            await anext(stream)

    await agent()
    assert [turn.turn.agent for turn in records.turns] == ["researcher"]
    async with client.responses.with_streaming_response.retrieve("resp_68a1") as raw:
        await raw.read()
    assert records.only().stop.reason is StopReason.MAX_TOKENS
    assert records.started[0].turn.open_streams == 0


# --- Spans that SDKs make of their own calls: those say why the model stopped, and there is no second one ----------

CUT_MESSAGE = replies.message([replies.say("Hello the")], "max_tokens")
MESSAGES, CUT_MESSAGES = (
    replies.anthropic_stream([replies.said("w0 ", "w1 ", "w2 ")], reason) for reason in ("end_turn", "max_tokens")
)


def made(stage: Stage) -> tuple[list[Any], set[tuple[str, str]]]:
    """Why the calls of all spans stopped, and the spans' names and scopes."""
    spans = stage.spans.get_finished_spans()
    reasons = [(span.attributes or {}).get("endturn.stop.reason") for span in spans]
    return reasons, {(span.name, scope_of(span)) for span in spans}


async def test_anthropics_span_is_enriched_in_time(recording: Recording) -> None:
    """Its reason is written before the SDK ends it; that of a stream which its host leaves ends before that is seen."""
    stage = recording()
    own: Any = {"open_telemetry": {"tracer_provider": stage.tracers}}
    claude(body(CUT_MESSAGE), **own).messages.create(**CLAUDE)
    for stream in (CUT_MESSAGES, MESSAGES[:5]):
        list(claude(events(*stream), **own).messages.create(**CLAUDE, stream=True))
    client = aclaude(events(*CUT_MESSAGES), events(*MESSAGES), **own)
    async with client.messages.with_streaming_response.create(**CLAUDE, stream=True) as raw:
        assert [piece async for piece in raw.iter_bytes()]
    async with client.messages.with_streaming_response.create(**CLAUDE, stream=True) as raw:
        await anext(raw.iter_lines())
    theirs = {("anthropic.messages.create", "com.anthropic.sdk.python")}
    assert made(stage) == (["max_tokens", "max_tokens", "missing", "max_tokens", None], theirs)


async def test_a_raw_response_with_a_span_of_its_sdk_is_dropped(records: Records) -> None:
    """anthropic ends its span in a destructor: what is announced waits for a better place."""
    own: Any = {"open_telemetry": {"tracer_provider": TracerProvider()}}
    whole: Any = claude(body(CUT_MESSAGE), **own).messages.with_streaming_response.create(**CLAUDE).__enter__()
    awhole: Any = await aclaude(body(CUT_MESSAGE), **own).messages.with_streaming_response.create(**CLAUDE).__aenter__()
    del whole, awhole
    settle()
    assert [ended.stop.detail for ended in records.ended] == ["abandoned"] * 2
    assert records.reasons() == [StopReason.CANCELLED] * 2


def test_mistrals_span_is_enriched(recording: Recording) -> None:
    """Where the SDK traces its calls itself."""
    stage, answers = recording(), iter([body(CUT), events(*CUT_STREAM), events(*CUT_STREAM)])
    http = httpx2.Client(transport=httpx2.MockTransport(lambda request: next(answers)))
    asking = Mistral(api_key="none", client=http)
    configure_telemetry(asking, provider=stage.tracers, redaction=False)
    asking.chat.complete(**ASK)
    assert list(asking.chat.stream(**ASK))
    with asking.chat.stream(**ASK) as stream:
        next(stream)
    reasons, spans = made(stage)
    assert reasons == ["max_tokens", "max_tokens", None]  # it ends its span before it closes the response
    assert {scope for _, scope in spans} == {"mistralai_sdk_tracer"}
