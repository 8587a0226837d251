"""The google-genai SDK, observed over a scripted server; run for the previous major, too, in its own environment."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

from endturn import announce
from endturn.errors import ProviderError
from endturn.instrumentation import exchange
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.records import CallEnded, CallStarted, Record, TurnEnded
from endturn.scripted import Reply, ScriptedProvider, block, call, cut, fail, hang_up, pause, say, truncate
from endturn.scripted.loopback import Answer, Asked, Server
from endturn.scripted.script import Ending
from endturn.stop import StopReason
from endturn.telemetry import cleanup

pytestmark = [
    # Where aiohttp is installed, the SDK asks through a class of its own that aiohttp warns of.
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Interactions usage is experimental.*:UserWarning"),
]

ASK: dict[str, Any] = {"model": "gemini-3-flash", "contents": "hi", "config": {"max_output_tokens": 1000}}
WORDS = "One two three four five six seven"


class Told(list[Record]):
    """What was announced."""

    def of(self, kind: type) -> list[Any]:
        """The records of one kind."""
        return [record for record in self if isinstance(record, kind)]

    def settle(self) -> None:
        """Have what was dropped noticed."""
        gc.collect()
        cleanup.run()

    def only(self) -> CallEnded:
        """The one call that was announced, started and ended once."""
        self.settle()
        (started,), (ended,) = self.of(CallStarted), self.of(CallEnded)
        assert ended.started is started
        found: CallEnded = ended
        return found


@pytest.fixture
def told() -> Iterator[Told]:
    """Everything that is announced while the SDK is instrumented; nothing of ours may fail."""
    found = Told()
    stop = announce.listen(found.append)
    instrument()
    try:
        with announce.strict():
            yield found
    finally:
        uninstrument()
        cleanup.run()
        stop()


@contextmanager
def client(*replies: Reply, wire: str = "gemini", **options: Any) -> Iterator[genai.Client]:
    """The SDK's client, asking a scripted server, without retries."""
    with ScriptedProvider(replies, wire=wire).serve() as url:
        http = {"base_url": url, "retry_options": {"attempts": 1}, **options.pop("http_options", {})}
        asking = genai.Client(**{"api_key": "none", "http_options": http, **options})
        try:
            yield asking
        finally:
            asking.close()


@asynccontextmanager
async def aclient(*replies: Reply, wire: str = "gemini") -> AsyncIterator[Any]:
    """The same, asynchronous."""
    with client(*replies, wire=wire) as asking:
        try:
            yield asking.aio
        finally:
            await asking.aio.aclose()


def said(chunks: Iterable[Any]) -> str:
    """The text of a stream."""
    return "".join(chunk.text or "" for chunk in chunks)


# Content


def test_a_call(told: Told) -> None:
    """One record holds the request's facts and the answer's stop, usage, id and model; the SDK's object comes back."""
    with client(truncate("One two three", after=2)) as asking:
        answer = asking.models.generate_content(**ASK)
        assert type(answer) is types.GenerateContentResponse
        assert answer.text == "One two"
        assert answer.sdk_http_response is not None
    ended = told.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "MAX_TOKENS")
    assert ended.usage is not None
    assert ended.response_model == "gemini-3-flash"
    assert ended.response_id is not None
    started = ended.started
    assert (started.provider, started.model, started.maximum) == ("gcp.gemini", "gemini-3-flash", 1000)
    assert (started.operation, started.stream, started.server_address) == ("generate_content", False, "127.0.0.1")
    assert started.server_port is not None


async def test_an_async_call(told: Told) -> None:
    """The asynchronous client's call is one record."""
    async with aclient(say("Yes.")) as asking:
        assert (await asking.models.generate_content(**ASK)).text == "Yes."
    assert told.only().stop.reason is StopReason.END_TURN


def test_settings_may_be_an_object(told: Told) -> None:
    """What is asked is read from a config object as from a dictionary."""
    with client(block("So")) as asking:
        config = types.GenerateContentConfig(max_output_tokens=7, temperature=0.5, seed=3, top_p=0.9)
        asking.models.generate_content(model="m", contents="hi", config=config)
    ended = told.only()
    assert ended.stop.reason is StopReason.SAFETY_BLOCKED
    started = ended.started
    assert (started.maximum, started.temperature, started.seed, started.top_p) == (7, 0.5, 3, 0.9)


def test_vertex_ai_is_another_provider(told: Told) -> None:
    """The client says whom it asks, whatever host it is pointed at."""
    with client(say("Yes."), vertexai=True) as asking:
        asking.models.generate_content(**ASK)
    assert told.only().started.provider == "gcp.vertex_ai"


def test_tools_that_the_sdk_runs(told: Told) -> None:
    """Automatic function calling makes several calls; each is one record, and the tools run between them."""
    seen: list[int] = []

    def clock() -> str:
        """The time."""
        seen.append(len(told.of(CallEnded)))
        return "12:00"

    with client(call("clock", {}), say("Noon.")) as asking:
        answer = asking.models.generate_content(model="m", contents="hi", config={"tools": [clock]})
    assert answer.text == "Noon."
    assert seen == [1]
    assert [ended.stop.reason for ended in told.of(CallEnded)] == [StopReason.TOOL_CALL, StopReason.END_TURN]
    assert len(told.of(TurnEnded)) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_that_the_sdk_follows(told: Told, stream: bool) -> None:
    """Each hop of a long answer is a call of the provider, with its own reason, which the SDK hides from its host."""
    with client(pause("One "), say("two.")) as asking:
        if stream:
            assert said(asking.models.generate_content_stream(**ASK)) == "One two."
        else:
            assert asking.models.generate_content(**ASK).text == "One two."
    assert [(ended.stop.reason, ended.stop.raw) for ended in told.of(CallEnded)] == [
        (StopReason.PAUSED, "CONTINUATION"),
        (StopReason.END_TURN, "STOP"),
    ]


def test_chats(told: Told) -> None:
    """A chat's messages go the same way."""
    with client(say("Yes."), truncate("One two three", after=2)) as asking:
        chat = asking.chats.create(model="m")
        chat.send_message("hi")
        list(chat.send_message_stream("more"))
    assert [ended.stop.reason for ended in told.of(CallEnded)] == [StopReason.END_TURN, StopReason.MAX_TOKENS]
    assert [started.stream for started in told.of(CallStarted)] == [False, True]


def test_the_http_response_may_be_asked_for(told: Told) -> None:
    """The SDK then parses nothing; the body is read all the same."""
    with client(truncate("One two three", after=2)) as asking:
        config = types.GenerateContentConfig(should_return_http_response=True)
        answer = asking.models.generate_content(model="m", contents="hi", config=config)
        assert answer.candidates is None
    assert told.only().stop.reason is StopReason.MAX_TOKENS


def answered(asking: Any, stream: bool) -> None:
    list(asking.generate_content_stream(**ASK)) if stream else asking.generate_content(**ASK)


async def aanswered(asking: Any, stream: bool) -> None:
    if stream:
        [chunk async for chunk in await asking.generate_content_stream(**ASK)]
    else:
        await asking.generate_content(**ASK)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (fail(429), StopReason.ERROR),
        (fail(500), StopReason.ERROR),
        (fail(400, "context_length_exceeded"), StopReason.CONTEXT_WINDOW_EXCEEDED),
    ],
    ids=["quota", "down", "window"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_refusals(told: Told, reply: Reply, reason: StopReason, stream: bool) -> None:
    """An error answer is raised as ever, and read, synchronously and not, streamed and not."""
    with client(reply) as asking, pytest.raises(errors.APIError):
        answered(asking.models, stream)
    async with aclient(reply) as asking:
        with pytest.raises(errors.APIError):
            await aanswered(asking.models, stream)
    told.settle()
    assert [ended.stop.reason for ended in told.of(CallEnded)] == [reason, reason]
    assert all(isinstance(ended.error, ProviderError) for ended in told.of(CallEnded))


def test_a_lost_connection(told: Told) -> None:
    """The SDK raises what its HTTP library does."""
    with client(hang_up()) as asking, pytest.raises(Exception, match="disconnected") as raised:
        asking.models.generate_content(**ASK)
    ended = told.only()
    assert (ended.stop.reason, ended.error) == (StopReason.ERROR, raised.value)


# Streams of content


def test_a_stream_read_to_its_end(told: Told) -> None:
    """The SDK's generator comes back; nothing is asked before it is read; its end is one record."""
    with client(say(WORDS)) as asking:
        stream = asking.models.generate_content_stream(**ASK)
        assert inspect.isgenerator(stream)
        assert not told
        assert said(stream) == WORDS
    ended = told.only()
    assert ended.stop.reason is StopReason.END_TURN
    assert ended.started.stream
    assert ended.first_chunk_s is not None
    assert (ended.output_chars, ended.started.provider) == (len(WORDS), "gcp.gemini")


def test_a_stream_that_is_never_read(told: Told) -> None:
    """The SDK asks nobody, and so there is no call."""
    with client(say(WORDS)) as asking:
        asking.models.generate_content_stream(**ASK)
    told.settle()
    assert not told


def leave(stream: Any) -> None:
    next(stream)


def close(stream: Any) -> None:
    next(stream)
    stream.close()


def stop_reading(stream: Any) -> None:
    for _ in stream:
        break


def throw(stream: Any) -> None:
    next(stream)
    with pytest.raises(KeyError):
        stream.throw(KeyError("mine"))


@pytest.mark.parametrize("how", [leave, close, stop_reading, throw])
def test_a_stream_that_is_left(told: Told, how: Callable[[Any], None]) -> None:
    """However its host stops reading, it has cancelled."""
    with client(say(WORDS)) as asking:
        how(asking.models.generate_content_stream(**ASK))
        ended = told.only()
    assert ended.stop.reason is StopReason.CANCELLED
    assert not ended.stop.truncated


def test_a_stream_that_is_left_after_its_reason_came(told: Told) -> None:
    """Hosts stop at the finish reason: that reason stands."""
    with client(truncate(WORDS, after=3)) as asking:
        for chunk in asking.models.generate_content_stream(**ASK):
            if chunk.candidates and chunk.candidates[0].finish_reason:
                break
        del chunk
    assert told.only().stop.reason is StopReason.MAX_TOKENS


@pytest.mark.parametrize("tidy", [True, False])
def test_a_stream_that_is_cut(told: Told, tidy: bool) -> None:
    """Without a finish reason the end is `missing`, with the error where there is one."""
    with client(cut(WORDS, after=2, tidy=tidy)) as asking:
        stream = asking.models.generate_content_stream(**ASK)
        if tidy:
            list(stream)
        else:
            with pytest.raises(Exception, match="incomplete chunked read"):
                list(stream)
    ended = told.only()
    assert ended.stop.reason is StopReason.MISSING
    assert (ended.error is None) is tidy
    assert ended.stop.truncated


async def test_a_stream_whose_provider_sends_an_error(told: Told) -> None:
    """An error within a stream is an error, not a truncation."""
    with client(fail(503, text="One two")) as asking, pytest.raises(errors.APIError):
        list(asking.models.generate_content_stream(**ASK))
    async with aclient(fail(503, text="One two")) as asking:
        with pytest.raises(errors.APIError):
            [chunk async for chunk in await asking.models.generate_content_stream(**ASK)]
    told.settle()
    first, second = told.of(CallEnded)
    assert (first.stop.reason, first.stop.raw) == (StopReason.ERROR, "UNAVAILABLE")
    assert (second.stop.reason, second.stop.detail) == (StopReason.ERROR, first.stop.detail)


async def test_an_async_stream_that_is_cut_before_its_first_chunk(told: Told) -> None:
    """The answer had begun: what is missing is its end."""
    answer = Answer(headers={"content-type": "text/event-stream"}, ending=Ending.BROKEN)
    with Server(lambda asked: answer).running() as url:
        asking = genai.Client(api_key="none", http_options={"base_url": url, "retry_options": {"attempts": 1}})
        with pytest.raises(Exception, match=r"(?i)payload|incomplete"):
            [chunk async for chunk in await asking.aio.models.generate_content_stream(**ASK)]
        await asking.aio.aclose()
        asking.close()
    assert told.only().stop.reason is StopReason.MISSING


async def test_an_async_stream_read_to_its_end(told: Told) -> None:
    """Every chunk passes, and the end is one record."""
    async with aclient(say(WORDS)) as asking:
        stream: Any = await asking.models.generate_content_stream(**ASK)
        assert inspect.isasyncgen(stream)
        assert said([chunk async for chunk in stream]) == WORDS
    ended = told.only()
    assert (ended.stop.reason, ended.output_chars) == (StopReason.END_TURN, len(WORDS))


async def test_async_streams_that_are_left(told: Told) -> None:
    """Closed, dropped, cancelled: one record each, and each is `cancelled`."""
    async with aclient(*[say(WORDS).but(pace_s=0.01)] * 3) as asking:
        stream = await asking.models.generate_content_stream(**ASK)
        await anext(stream)
        await stream.aclose()
        stream = await asking.models.generate_content_stream(**ASK)
        await anext(stream)
        del stream
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in await asking.models.generate_content_stream(**ASK):
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(3):
            gc.collect()
            await asyncio.sleep(0)
    told.settle()
    assert [ended.stop.reason for ended in told.of(CallEnded)] == [StopReason.CANCELLED] * 3
    assert len(told.of(CallStarted)) == 3


async def test_a_call_that_is_cancelled(told: Told) -> None:
    """A task that is cancelled before its answer came has cancelled the call."""
    async with aclient(say("late").but(delay_s=5)) as asking:
        task = asyncio.create_task(asking.models.generate_content(**ASK))
        while not told.of(CallStarted):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert told.only().stop.reason is StopReason.CANCELLED


def test_what_is_not_watched(told: Told) -> None:
    """Counting tokens asks no model for an answer."""
    with client(say("Yes.")) as asking, pytest.raises(errors.APIError):
        asking.models.count_tokens(model="m", contents="hi")
    assert not told


METHODS = ("_generate_content", "_generate_content_stream")


# Interactions

TALK: dict[str, Any] = {"model": "gemini-3-flash", "input": "hi", "generation_config": {"max_output_tokens": 1000}}
INTERACTIONS = "gemini_interactions"


def test_an_interaction(told: Told) -> None:
    """One record of its status, usage and id; the SDK's object comes back."""
    with client(truncate("One two three", after=2), wire=INTERACTIONS) as asking:
        answer: Any = asking.interactions.create(**TALK)
        assert answer.output_text == "One two"
    ended = told.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "incomplete")
    assert ended.response_id == answer.id
    started = ended.started
    assert (started.provider, started.model, started.maximum) == ("gcp.gemini", "gemini-3-flash", 1000)
    assert (started.operation, started.server_address) == ("chat", "127.0.0.1")


async def test_an_async_interaction(told: Told) -> None:
    """The asynchronous client's, streamed and not."""
    async with aclient(say("Yes."), truncate("One two three", after=2), wire=INTERACTIONS) as asking:
        await asking.interactions.create(**TALK)
        stream = await asking.interactions.create(**TALK, stream=True)
        assert type(stream).__name__ == "AsyncStream"
        assert len([event async for event in stream]) > 3
    told.settle()
    assert [ended.stop.reason for ended in told.of(CallEnded)] == [StopReason.END_TURN, StopReason.MAX_TOKENS]


def test_a_stream_of_events(told: Told) -> None:
    """The SDK's own stream object comes back, with its response; its end is one record."""
    with client(say(WORDS), wire=INTERACTIONS) as asking:
        stream: Any = asking.interactions.create(**TALK, stream=True)
        assert type(stream).__name__ == "Stream"
        assert stream.response.status_code == 200
        assert not told.of(CallEnded)
        with stream:
            list(stream)
    ended = told.only()
    assert ended.stop.reason is StopReason.END_TURN
    assert (ended.started.stream, ended.output_chars) == (True, len(WORDS))


def test_hops_of_an_interaction(told: Told) -> None:
    """Each is a call of its own, streamed and not."""
    for stream in (False, True):
        with client(pause("One "), say("two."), wire=INTERACTIONS) as asking:
            answer: Any = asking.interactions.create(**TALK, stream=stream)
            if stream:
                list(answer)
    told.settle()
    assert [ended.stop.reason for ended in told.of(CallEnded)] == [StopReason.PAUSED, StopReason.END_TURN] * 2


def close_unread(stream: Any) -> None:
    stream.close()


def close_stream(stream: Any) -> None:
    with stream:
        next(stream)


def drop_unread(stream: Any) -> None:
    pass


@pytest.mark.parametrize("how", [close_unread, close_stream, drop_unread, leave, stop_reading])
def test_a_stream_of_events_that_is_left(told: Told, how: Callable[[Any], None]) -> None:
    """However its host stops reading, it has cancelled."""
    with client(say(WORDS), wire=INTERACTIONS) as asking:
        how(asking.interactions.create(**TALK, stream=True))
        ended = told.only()
    assert ended.stop.reason is StopReason.CANCELLED
    assert ended.stop.detail in (None, exchange.ABANDONED)


async def test_async_streams_of_events_that_are_left(told: Told) -> None:
    """The same, asynchronous."""
    async with aclient(*[say(WORDS)] * 3, wire=INTERACTIONS) as asking:
        await (await asking.interactions.create(**TALK, stream=True)).close()
        async with await asking.interactions.create(**TALK, stream=True) as stream:
            await anext(stream)
        del stream
        stream = await asking.interactions.create(**TALK, stream=True)
        await anext(stream)
        del stream
        for _ in range(3):
            gc.collect()
            await asyncio.sleep(0)
    told.settle()
    assert [ended.stop.reason for ended in told.of(CallEnded)] == [StopReason.CANCELLED] * 3


def test_a_stream_of_events_that_is_cut(told: Told) -> None:
    """Its end is `missing`; an error event is an error."""
    with client(cut(WORDS, after=2, tidy=True), fail(500, text="So far"), wire=INTERACTIONS) as asking:
        list(asking.interactions.create(**TALK, stream=True))
        list(asking.interactions.create(**TALK, stream=True))
    told.settle()
    assert [ended.stop.reason for ended in told.of(CallEnded)] == [StopReason.MISSING, StopReason.ERROR]


def test_raw_responses_of_interactions(told: Told) -> None:
    """They keep what they have; their bytes are seen as they are read."""
    with client(say("Yes."), truncate(WORDS, after=3), say("Yes."), wire=INTERACTIONS) as asking:
        raw = asking.interactions.with_raw_response.create(**TALK)
        assert raw.headers["content-type"].startswith("application/json")
        assert raw.parse().output_text == "Yes."
        list(asking.interactions.with_raw_response.create(**TALK, stream=True).parse())
        with asking.interactions.with_streaming_response.create(**TALK) as raw:
            assert raw.parse().output_text == "Yes."
    told.settle()
    assert [ended.stop.reason for ended in told.of(CallEnded)] == [
        StopReason.END_TURN,
        StopReason.MAX_TOKENS,
        StopReason.END_TURN,
    ]


@pytest.mark.parametrize("status", [400, 429, 500])
async def test_refused_interactions(told: Told, status: int) -> None:
    """The SDK's own class is raised; each attempt is one record, an error."""
    # google-genai 2 asks once more where it is told to ask once.
    with (
        client(*[fail(status)] * 2, wire=INTERACTIONS) as asking,
        pytest.raises(Exception, match=str(status)) as raised,
    ):
        asking.interactions.create(**TALK)
    async with aclient(*[fail(status)] * 2, wire=INTERACTIONS) as asking:
        with pytest.raises(type(raised.value)):
            await asking.interactions.create(**TALK)
    told.settle()
    assert {ended.stop.reason for ended in told.of(CallEnded)} == {StopReason.ERROR}


def test_an_interaction_in_the_background(told: Told) -> None:
    """It is one call, which the first fetch ends that shows how it ended."""
    states = iter(["queued", "in_progress", "incomplete"])

    def respond(asked: Asked) -> Answer:
        body = {"id": "v1_a", "object": "interaction", "status": next(states), "model": "m", "steps": []}
        content = json.dumps(body).encode()
        return Answer(headers={"content-type": "application/json"}, chunks=(content,), length=len(content))

    with Server(respond).running() as url:
        asking = genai.Client(api_key="none", http_options={"base_url": url})
        asking.interactions.create(**TALK, background=True)
        asking.interactions.get("v1_a")
        assert not told.of(CallEnded)
        asking.interactions.get(id="v1_a")
        asking.close()
    ended = told.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "incomplete")


def test_what_is_fetched_is_no_call(told: Told) -> None:
    """An interaction that is read again was counted when it was made."""
    with client(say("Done."), wire=INTERACTIONS) as asking:
        asking.interactions.get("v1_a")
    assert not told
