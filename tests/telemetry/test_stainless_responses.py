"""The Responses API and the old completions through the openai SDK: one record of each call, however it is read."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import openai
import pydantic
import pytest
from openai.types.responses import ParsedResponse, Response

from endturn.chat import Json
from endturn.instrumentation import background_responses
from endturn.instrumentation.decorators import observe_turn
from endturn.records import Strategy, Turn, TurnKind, TurnOutcome
from endturn.stop import StopReason
from endturn.turns import start_turn
from endturn.wires import Event
from tests.telemetry.mocked import Answer, Body, Records, Server, achat, body, chat, events, settle
from tests.wires import replies_completions as texts
from tests.wires import replies_openai_responses as replies

ASK: Json = {"model": "gpt-5.6-mini", "input": "hi"}
WHOLE = replies.body([replies.say("Hello there.")])
CUT = replies.cut([replies.say("Hello the", status="incomplete")])
BEGUN = [*replies.begun(), *replies.said(0, "w0 ", "w1 ", "w2 ")]
STREAM = replies.named(*BEGUN, replies.ended(replies.body([replies.say("w0 w1 w2 ")])))
CUT_STREAM = replies.named(*BEGUN, replies.ended(replies.cut([replies.say("w0 w1 w2 ", status="incomplete")])))
ERROR = replies.named({"type": "error", "code": "server_error", "message": "overloaded", "param": None})


# --- Whole answers -------------------------------------------------------------------------------------------------


def test_a_call_is_announced_with_what_was_asked_and_what_came(records: Records) -> None:
    """One record holds the request's facts and the response's stop, usage, id and model."""
    result = chat(body(CUT)).responses.create(**ASK, max_output_tokens=17, temperature=0.5)
    assert type(result) is Response
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "incomplete:max_output_tokens")
    assert ended.usage is not None
    assert (ended.usage.input_tokens, ended.usage.output_tokens, ended.usage.reasoning_tokens) == (31, 17, 5)
    assert (ended.response_id, ended.response_model) == ("resp_68a1", "gpt-5.6-mini-2026-08-01")
    started = ended.started
    assert (started.provider, started.model, started.operation) == ("openai", "gpt-5.6-mini", "chat")
    assert (started.maximum, started.temperature, started.stream) == (17, 0.5, False)


async def test_an_async_call_is_announced(records: Records) -> None:
    """`AsyncOpenAI` is observed as `OpenAI` is."""
    assert type(await achat(body(WHOLE)).responses.create(**ASK)) is Response
    assert records.only().stop.reason is StopReason.END_TURN


REASONS = {
    "whole": (WHOLE, StopReason.END_TURN),
    "call": (replies.body([replies.CLOCK]), StopReason.TOOL_CALL),
    "refused": (replies.body([replies.say(replies.no("No."))]), StopReason.REFUSED),
    "filtered": (replies.cut([], "content_filter"), StopReason.SAFETY_BLOCKED),
    "failed": (replies.failed("server_error"), StopReason.ERROR),
    "window": (replies.failed("context_length_exceeded"), StopReason.CONTEXT_WINDOW_EXCEEDED),
    "cancelled": (replies.body([], "cancelled"), StopReason.CANCELLED),
    "nothing": ({}, StopReason.UNKNOWN),
}


@pytest.mark.parametrize(("reply", "reason"), REASONS.values(), ids=REASONS.keys())
def test_what_a_response_says_of_its_end(records: Records, reply: Json, reason: StopReason) -> None:
    """Status, details, error code and output decide, as the wire reads them."""
    chat(body(reply)).responses.create(**ASK)
    assert records.only().stop.reason is reason


def test_parse_of_a_whole_answer(records: Records) -> None:
    """`parse()` returns its parsed response, and is one record."""
    result = chat(body(replies.body([replies.say('{"value": 7}')]))).responses.parse(**ASK, text_format=Answer)
    assert isinstance(result, ParsedResponse)
    assert result.output_parsed == Answer(value=7)
    assert records.only().stop.reason is StopReason.END_TURN


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_parse_of_a_cut_answer_is_a_truncation(records: Records, asynchronous: bool) -> None:
    """`parse()` chokes on half a JSON text; the reason and the usage behind its exception are recorded."""
    reply = body(replies.cut([replies.say('{"val', status="incomplete")]))

    async def ask() -> object:
        if asynchronous:
            return await achat(reply).responses.parse(**ASK, text_format=Answer)
        return chat(reply).responses.parse(**ASK, text_format=Answer)

    with pytest.raises(pydantic.ValidationError):
        await ask()
    ended = records.only()
    assert (ended.stop.reason, ended.error) == (StopReason.MAX_TOKENS, None)
    assert ended.usage is not None


def test_the_window_is_full(records: Records) -> None:
    """An error answer that says so is `context_window_exceeded`, and the SDK's exception comes through."""
    error = {"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}}
    with pytest.raises(openai.BadRequestError):
        chat(body(error, 400)).responses.create(**ASK)
    assert records.only().stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED


def test_previous_response_id_continues_what_was_cut(records: Records) -> None:
    """A nudge that builds on a cut response by its id is a continuation of the same turn."""
    client = chat(body(CUT), body(WHOLE))
    first = client.responses.create(**ASK)
    client.responses.create(model="gpt-5.6-mini", input="Continue.", previous_response_id=first.id)
    cut, rest = records.ended
    assert rest.started.turn is cut.started.turn
    assert rest.started.continuation is not None
    assert (rest.started.continuation.strategy, rest.started.continuation.of) == (Strategy.PROMPT, cut.started.number)
    assert [turn.outcome for turn in records.turns] == [TurnOutcome.COMPLETED]


# --- Raw answers ---------------------------------------------------------------------------------------------------


def test_with_raw_response(records: Records) -> None:
    """The raw response of a plain call is recorded whether or not it is parsed."""
    raw = chat(body(CUT)).responses.with_raw_response.create(**ASK)
    assert records.only().stop.reason is StopReason.MAX_TOKENS
    assert raw.headers["content-type"] == "application/json"
    assert raw.parse().status == "incomplete"


@pytest.mark.parametrize("stream", [False, True])
async def test_with_streaming_response(records: Records, stream: bool) -> None:
    """A body that the host reads itself is seen as it reads it, sync and async."""
    more: Json = {"stream": True} if stream else {}

    def make() -> httpx2.Response:
        return events(*CUT_STREAM) if stream else body(CUT)

    with chat(make()).responses.with_streaming_response.create(**ASK, **more) as raw:
        assert not records.ended
        list(raw.iter_lines())
    async with achat(make()).responses.with_streaming_response.create(**ASK, **more) as araw:
        assert [line async for line in araw.iter_lines()]
    assert [ended.stop.reason for ended in records.ended] == [StopReason.MAX_TOKENS] * 2


def test_a_raw_stream_that_is_parsed(records: Records) -> None:
    """A stream behind a raw response is seen as it is read."""
    stream: Any = chat(events(*CUT_STREAM)).responses.with_raw_response.create(**ASK, stream=True).parse()
    assert type(stream) is openai.Stream
    assert len(list(stream)) == len(CUT_STREAM)
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_what_was_read_can_be_copied_and_pickled(records: Records) -> None:
    """Nothing of ours stays on a response that has been read, nor on its model: hosts cache both."""
    with chat(body(CUT)).responses.with_streaming_response.create(**ASK) as raw:
        raw.read()
    again = pickle.loads(pickle.dumps(raw.http_response))
    assert again.json() == CUT
    result = chat(body(CUT)).responses.create(**ASK)
    assert pickle.loads(pickle.dumps(result)) == copy.deepcopy(result) == result
    assert result._request_id is None


# --- Streams -------------------------------------------------------------------------------------------------------


def drop(stream: Any) -> None:
    """Let go of it unread."""


def read_all(stream: Any) -> None:
    for _ in stream:
        pass


def read_two(stream: Any) -> None:
    next(stream)
    next(stream)


def close(stream: Any) -> None:
    next(stream)
    stream.close()


def leave(stream: Any) -> None:
    with stream:
        next(stream)


def raise_within(stream: Any) -> None:
    with pytest.raises(KeyError), stream:
        raise KeyError(next(stream))


WAYS: dict[str, tuple[Callable[[Any], None], list[Event], StopReason, str | None]] = {
    "read": (read_all, STREAM, StopReason.END_TURN, None),
    "read, cut by its limit": (read_all, CUT_STREAM, StopReason.MAX_TOKENS, None),
    "read, ended without a word": (read_all, STREAM[:-1], StopReason.MISSING, "stream_cut"),
    "read, an error event": (read_all, [*STREAM[:4], *ERROR], StopReason.ERROR, "overloaded"),
    "never read": (drop, STREAM, StopReason.CANCELLED, "abandoned"),
    "dropped": (read_two, STREAM, StopReason.CANCELLED, "abandoned"),
    "closed": (close, STREAM, StopReason.CANCELLED, None),
    "left": (leave, STREAM, StopReason.CANCELLED, None),
    "an exception within": (raise_within, STREAM, StopReason.CANCELLED, None),
}


@pytest.mark.parametrize(("way", "made", "reason", "detail"), WAYS.values(), ids=WAYS.keys())
def test_a_stream(
    records: Records, way: Callable[[Any], None], made: list[Event], reason: StopReason, detail: str | None
) -> None:
    """The SDK's own stream comes back, and is one record with the right reason, however its reading ends."""
    stream: Any = chat(events(*made)).responses.create(**ASK, stream=True)
    assert type(stream) is openai.Stream
    assert not records.ended
    way(stream)
    del stream
    settle()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.detail) == (reason, detail)
    assert ended.started.stream


async def aread_all(stream: Any) -> None:
    async for _ in stream:
        pass


async def aread_two(stream: Any) -> None:
    await anext(stream)
    await anext(stream)


async def aclose(stream: Any) -> None:
    await anext(stream)
    await stream.close()


async def aleave(stream: Any) -> None:
    async with stream:
        await anext(stream)


async def abreak(stream: Any) -> None:
    async with stream:
        async for _ in stream:
            break


AWAYS: dict[str, tuple[Callable[[Any], Any], list[Event], StopReason]] = {
    "read": (aread_all, STREAM, StopReason.END_TURN),
    "read, cut by its limit": (aread_all, CUT_STREAM, StopReason.MAX_TOKENS),
    "read, ended without a word": (aread_all, STREAM[:-1], StopReason.MISSING),
    "never read": (lambda stream: asyncio.sleep(0), STREAM, StopReason.CANCELLED),
    "dropped": (aread_two, STREAM, StopReason.CANCELLED),
    "closed": (aclose, STREAM, StopReason.CANCELLED),
    "left": (aleave, STREAM, StopReason.CANCELLED),
    "broken out of": (abreak, STREAM, StopReason.CANCELLED),
}


@pytest.mark.parametrize(("way", "made", "reason"), AWAYS.values(), ids=AWAYS.keys())
async def test_an_async_stream(
    records: Records, way: Callable[[Any], Any], made: list[Event], reason: StopReason
) -> None:
    """The same, asynchronously."""
    stream: Any = await achat(events(*made)).responses.create(**ASK, stream=True)
    assert type(stream) is openai.AsyncStream
    await way(stream)
    del stream
    settle()
    await asyncio.sleep(0)
    settle()
    assert records.only().stop.reason is reason


async def test_an_async_stream_whose_task_is_cancelled(records: Records, caplog: pytest.LogCaptureFixture) -> None:
    """Cancelling the reader is `cancelled`."""
    waiting = asyncio.Event()

    class Slow(Body):
        async def __aiter__(self) -> Any:
            async for piece in super().__aiter__():
                yield piece
            waiting.set()
            await asyncio.Event().wait()

    made = events(*STREAM[:5])
    assert isinstance(made.stream, Body)
    reply = httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Slow(made.stream.pieces))
    task = asyncio.create_task(aread_all(await achat(reply).responses.create(**ASK, stream=True)))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert records.only().stop.reason is StopReason.CANCELLED
    assert not caplog.records


def test_a_stream_that_loses_its_connection(records: Records) -> None:
    """A transport error within a stream is `missing`, with the HTTP client's exception."""
    stream = chat(events(*STREAM[:5], error=httpx2.ReadError("gone"))).responses.create(**ASK, stream=True)
    with pytest.raises(openai.APIConnectionError) as raised:
        list(stream)
    ended = records.only()
    assert (ended.stop.reason, ended.stop.truncated, ended.error) == (StopReason.MISSING, True, raised.value.__cause__)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_stream_helper(records: Records, asynchronous: bool) -> None:
    """`.stream()` accumulates, fires its events, and is one record."""
    if asynchronous:
        async with achat(events(*STREAM)).responses.stream(**ASK) as opened:
            found = await opened.get_final_response()
    else:
        with chat(events(*STREAM)).responses.stream(**ASK) as stream:
            found = stream.get_final_response()
    assert found.output_text == "w0 w1 w2 "
    assert records.only().stop.reason is StopReason.END_TURN


def test_the_stream_helper_over_a_cut_answer(records: Records) -> None:
    """The helper finds no final response in an answer that was cut: what it raises hides a truncation."""
    with (
        pytest.raises(RuntimeError, match="completed"),
        chat(events(*CUT_STREAM)).responses.stream(**ASK) as stream,
    ):
        stream.get_final_response()
    assert records.only().stop.reason is StopReason.MAX_TOKENS


# --- What is no call -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda client: client.responses.retrieve("resp_68a1"), id="retrieve"),
        pytest.param(lambda client: client.responses.cancel("resp_68a1"), id="cancel"),
        pytest.param(lambda client: client.responses.delete("resp_68a1"), id="delete"),
        pytest.param(lambda client: client.responses.compact(model="m", input="x"), id="compact"),
        pytest.param(lambda client: client.responses.input_items.list("resp_68a1"), id="items"),
        pytest.param(lambda client: client.responses.input_tokens.count(model="m", input="x"), id="count"),
    ],
)
def test_other_calls_pass_through(records: Records, ask: Callable[[Any], object]) -> None:
    """To fetch a response again, or to count its input, is no call of a model."""
    client = chat(body(CUT), body(CUT))
    client.responses.create(**ASK)
    ask(client)
    assert records.only().stop.reason is StopReason.MAX_TOKENS


# --- Jobs ----------------------------------------------------------------------------------------------------------

JOB: Json = {**ASK, "background": True}
QUEUED = replies.body([], "queued", background=True, usage=None)
RUNNING = replies.body([], "in_progress", background=True, usage=None)
FINAL = replies.cut([replies.say("Hello the", status="incomplete")], background=True)
JOB_STREAM = replies.named(*replies.begun(background=True), *replies.said(0, "w0 ", "w1 "), replies.ended(FINAL))


@pytest.fixture(autouse=True)
def no_job_is_left() -> Iterator[None]:
    """Every test settles the jobs that it began."""
    yield
    assert not background_responses.are_pending()


def test_a_job_is_over_when_it_is_fetched(records: Records) -> None:
    """Created, asked for twice, fetched: one call, whose reason is the last that was fetched."""
    client = chat(body(QUEUED), body(RUNNING), body(FINAL), body(FINAL))
    job = client.responses.create(**JOB)
    assert job.status == "queued"
    client.responses.retrieve(job.id)
    assert records.started
    assert not records.ended
    assert type(client.responses.retrieve(job.id)) is Response
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "incomplete:max_output_tokens")
    assert ended.usage is not None
    assert ended.usage.output_tokens == 17
    client.responses.retrieve(job.id)
    assert len(records.started) == len(records.ended) == 1


async def test_an_async_job(records: Records) -> None:
    """The same, asynchronously, through a raw response."""
    client = achat(body(QUEUED), body(RUNNING), body(FINAL))
    job = await client.responses.create(**JOB)
    await client.responses.with_raw_response.retrieve(job.id)
    assert not records.ended
    async with client.responses.with_streaming_response.retrieve(job.id) as raw:
        await raw.read()
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_a_job_that_is_done_at_once(records: Records) -> None:
    """A server that answers a job with its result has ended the call."""
    chat(body(FINAL)).responses.create(**JOB)
    assert records.only().stop.reason is StopReason.MAX_TOKENS


@pytest.mark.parametrize("way", [leave, read_two, close])
def test_a_job_s_stream_that_is_taken_up_again(records: Records, way: Callable[[Any], None]) -> None:
    """To leave a job's stream does not end the job: it is over where its stream, taken up again, tells its end."""
    client = chat(events(*JOB_STREAM), events(*JOB_STREAM[4:]))
    stream: Any = client.responses.create(**JOB, stream=True)
    way(stream)
    del stream
    settle()
    assert not records.ended
    again = client.responses.retrieve("resp_68a1", stream=True, starting_after=3)
    assert type(again) is openai.Stream
    assert len(list(again)) == len(JOB_STREAM) - 4
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_a_job_s_stream_read_to_its_end(records: Records) -> None:
    """It tells the end itself, and nothing waits."""
    list(chat(events(*JOB_STREAM)).responses.create(**JOB, stream=True))
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_what_happens_to_a_fetch_alone(records: Records) -> None:
    """A fetch that fails, is lost, is left or brings an error says nothing of the response."""
    error = replies.named({"type": "error", "code": "server_error", "message": "try again", "param": None})
    client = chat(
        body(QUEUED),
        body({"error": {"message": "overloaded"}}, 500),
        httpx2.ConnectError("refused"),
        events(*JOB_STREAM[:3], error=httpx2.ReadError("gone")),
        events(*JOB_STREAM),
        events(*JOB_STREAM[:2], *error),
        body(FINAL),
    )
    job = client.responses.create(**JOB)
    with pytest.raises(openai.InternalServerError):
        client.responses.retrieve(job.id)
    with pytest.raises(openai.APIConnectionError):
        client.responses.retrieve(job.id)
    with pytest.raises(openai.APIConnectionError):
        list(client.responses.retrieve(job.id, stream=True))
    leave(client.responses.retrieve(job.id, stream=True))
    list(client.responses.retrieve(job.id, stream=True))
    assert not records.ended
    client.responses.retrieve(job.id)
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_a_job_that_is_cancelled(records: Records) -> None:
    """What `responses.cancel` answers is the end."""
    client = chat(body(QUEUED), body(replies.body([], "cancelled", background=True, usage=None)))
    client.responses.cancel(client.responses.create(**JOB).id)
    assert records.only().stop.reason is StopReason.CANCELLED


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


def test_a_job_of_another_process(records: Records) -> None:
    """What this process did not begin, it does not count."""
    chat(body(FINAL)).responses.retrieve("resp_68a1")
    assert not records


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


# --- The old completions -------------------------------------------------------------------------------------------

PROMPT: Json = {"model": "gpt-5.6-instruct", "prompt": "Once upon", "max_tokens": 9}


@pytest.mark.parametrize("stream", [False, True])
async def test_the_old_completions(records: Records, stream: bool) -> None:
    """Text in, text out: the same record, sync and async, whole and streamed."""
    made = [texts.chunk(" a"), texts.chunk(" time", "length"), texts.usage_chunk()]
    more: Json = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}

    def reply() -> httpx2.Response:
        return events(*made) if stream else body(texts.openai(" a time", "length"))

    found = chat(reply()).completions.create(**PROMPT, **more)
    afound = await achat(reply()).completions.create(**PROMPT, **more)
    if stream:
        read_all(found)
        await aread_all(afound)
    for ended in records.ended:
        assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "length")
        assert (ended.started.operation, ended.started.maximum) == ("text_completion", 9)
        assert ended.usage is not None
    assert len(records.ended) == 2


# --- Azure ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "path"),
    [
        pytest.param(lambda client: client.responses.create(**ASK), "/openai/responses", id="responses: no deployment"),
        pytest.param(
            lambda client: client.completions.create(**PROMPT),
            "/openai/deployments/gpt-5.6-instruct/completions",
            id="completions",
        ),
    ],
)
def test_azure(records: Records, ask: Callable[[Any], object], path: str) -> None:
    """Azure rewrites some paths later than we look, and leaves others as they are."""
    server = Server(body(CUT if "responses" in path else texts.openai("x", "length")))
    ask(
        openai.AzureOpenAI(
            api_key="n", api_version="2025-03-01", azure_endpoint="http://gateway.local", http_client=server.http()
        )
    )
    assert server.requests[0].url.path == path
    ended = records.only()
    assert (ended.started.provider, ended.stop.reason) == ("azure.ai.openai", StopReason.MAX_TOKENS)


@pytest.mark.parametrize("path", ["/openai/deployments/x", "/openai/v1"])
def test_azure_through_the_plain_client(records: Records, path: str) -> None:
    """The deployment may stand in the base URL, and Azure has an endpoint like OpenAI's own."""
    server = Server(body(CUT))
    url = f"https://me.openai.azure.com{path}"
    openai.OpenAI(api_key="n", base_url=url, http_client=server.http()).responses.create(**ASK)
    assert server.requests[0].url.path == f"{path}/responses"
    assert records.only().started.provider == "azure.ai.openai"
