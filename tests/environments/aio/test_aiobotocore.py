"""aiobotocore's client of bedrock-runtime, observed over a scripted server."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiobotocore.config import AioConfig
from aiobotocore.eventstream import AioEventStream
from aiobotocore.response import StreamingBody
from aiobotocore.session import get_session
from botocore.exceptions import ClientError, EventStreamError, ReadTimeoutError

from endturn import hooks
from endturn.events import CallEnded, CallStarted, Record
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.scripted import Reply, ScriptedProvider, cut, fail, say, truncate
from endturn.scripted.loopback import Answer, Server
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from tests.formats.others_bedrock_invoke import OTHERS, PROFILE

WORDS = "One two three four five six seven"
ASK: dict[str, Any] = {
    "modelId": "anthropic.claude-sonnet-5",
    "messages": [{"role": "user", "content": [{"text": "hi"}]}],
    "inferenceConfig": {"maxTokens": 1000},
}
PROMPT: dict[str, Any] = {
    "modelId": "anthropic.claude-sonnet-5",
    "body": json.dumps({"max_tokens": 1000, "messages": [{"role": "user", "content": "hi"}]}),
}
INVOKE = "bedrock_invoke"


class Told(list[Record]):
    """What was announced."""

    def of(self, kind: type) -> list[Any]:
        return [record for record in self if isinstance(record, kind)]

    def only(self) -> CallEnded:
        """The one call that was announced, started and ended once."""
        (started,), (ended,) = self.of(CallStarted), self.of(CallEnded)
        assert ended.started is started
        found: CallEnded = ended
        return found


@pytest.fixture
def told() -> Iterator[Told]:
    """Everything that is announced while the SDK is instrumented; nothing of ours may fail."""
    found = Told()
    stop = hooks.subscribe(found.append)
    instrument()
    try:
        with hooks.strict():
            yield found
    finally:
        uninstrument()
        cleanup.run()
        stop()


async def settle(told: Told, count: int) -> None:
    """Have what was dropped noticed: aiohttp keeps a response while bytes of it arrive."""
    for _ in range(200):
        gc.collect()
        cleanup.run()
        if len(told.of(CallEnded)) == count:
            return
        await asyncio.sleep(0.01)


@asynccontextmanager
async def client(
    *replies: Reply, format: str = "bedrock_converse", attempts: int = 1, **config: Any
) -> AsyncIterator[Any]:
    """aiobotocore's client, asking a scripted server."""
    with ScriptedProvider(replies, format=format).serve() as url:
        async with made(url, attempts=attempts, **config) as asking:
            yield asking


def made(url: str, *, attempts: int = 1, **config: Any) -> Any:
    """aiobotocore's client, asking there."""
    return get_session().create_client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",
        config=AioConfig(retries={"total_max_attempts": attempts}, **config),
    )


async def test_a_call(told: Told) -> None:
    """Each attempt is one record."""
    async with client(fail(500), fail(500), truncate("One two three", after=2), attempts=3) as asking:
        answer = await asking.converse(**ASK)
    assert type(answer) is dict
    *failed, ended = told.of(CallEnded)
    assert [each.stop.reason for each in failed] == [StopReason.ERROR] * 2
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "max_tokens")
    assert (ended.started.provider, ended.started.maximum) == ("aws.bedrock", 1000)
    assert ended.started.server_address == "127.0.0.1"


async def test_refusals(told: Told) -> None:
    """ClientError is raised as ever, and read; a timeout is told apart."""
    replies = (fail(429), fail(400, "context_length_exceeded"), say("late").but(delay_s=5))
    async with client(*replies, read_timeout=0.2) as asking:
        for kind in (ClientError, ClientError, ReadTimeoutError):
            with pytest.raises(kind):
                await asking.converse(**ASK)
    assert [(ended.stop.reason, ended.stop.detail) for ended in told.of(CallEnded)][::2] == [
        (StopReason.ERROR, None),
        (StopReason.ERROR, "timeout"),
    ]
    assert told.of(CallEnded)[1].stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED


async def test_a_stream_read_to_its_end(told: Told) -> None:
    """The SDK's own event stream comes back; its end is one record."""
    async with client(say(WORDS)) as asking:
        stream = (await asking.converse_stream(**ASK))["stream"]
        assert type(stream) is AioEventStream
        assert len([event async for event in stream]) > 3
    ended = told.only()
    assert (ended.stop.reason, ended.output_chars) == (StopReason.END_TURN, len(WORDS))


async def test_streams_that_are_left(told: Told) -> None:
    """Closed, broken off, never read, cancelled: one record each, and each is `cancelled`."""
    async with client(*[say(WORDS).but(pace_s=0.01)] * 4) as asking:
        (await asking.converse_stream(**ASK))["stream"].close()
        async for _ in (await asking.converse_stream(**ASK))["stream"]:
            break
        await asking.converse_stream(**ASK)
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in (await asking.converse_stream(**ASK))["stream"]:
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settle(told, 4)
    assert [ended.stop.reason for ended in told.of(CallEnded)] == [StopReason.CANCELLED] * 4
    assert len(told.of(CallStarted)) == 4


async def test_streams_that_break(told: Told) -> None:
    """Cut: `missing`. An exception within: an error of its name."""
    async with client(cut(WORDS, after=2, tidy=True), fail(503, text="One two")) as asking:
        assert [event async for event in (await asking.converse_stream(**ASK))["stream"]]
        with pytest.raises(EventStreamError):
            [event async for event in (await asking.converse_stream(**ASK))["stream"]]
    assert [(ended.stop.reason, ended.stop.raw) for ended in told.of(CallEnded)] == [
        (StopReason.MISSING, None),
        (StopReason.ERROR, "serviceUnavailableException"),
    ]


async def by_read(body: Any) -> bytes:
    whole: bytes = await body.read()
    return whole


async def by_iterating(body: Any) -> bytes:
    return b"".join([chunk async for chunk in body])


async def by_lines(body: Any) -> bytes:
    return b"\n".join([line async for line in body.iter_lines()])


async def by_buffer(body: Any) -> bytes:
    whole, buffer = b"", bytearray(9)
    while size := await body.readinto(buffer):
        whole += buffer[:size]
    return whole


async def by_entering(body: Any) -> bytes:
    async with body as entered:
        whole: bytes = await entered.read()
        return whole


@pytest.mark.parametrize("way", [by_read, by_iterating, by_lines, by_buffer, by_entering])
async def test_a_body(told: Told, way: Callable[[Any], Awaitable[bytes]]) -> None:
    """The SDK's own body comes back; it is one record when its host has read it, however it does."""
    async with client(truncate("One two three", after=2), format=INVOKE) as asking:
        answer = await asking.invoke_model(**PROMPT)
        assert type(answer["body"]) is StreamingBody
        assert not told.of(CallEnded)
        assert json.loads(await way(answer["body"]))["content"][0]["text"] == "One two"
    assert told.only().stop.reason is StopReason.MAX_TOKENS


async def test_a_body_that_nobody_holds(told: Told) -> None:
    """Most hosts read it where it is given."""
    async with client(say(WORDS), format=INVOKE) as asking:
        assert json.loads(await (await asking.invoke_model(**PROMPT))["body"].read())
    assert told.only().stop.reason is StopReason.END_TURN


async def test_bodies_that_are_not_read(told: Told) -> None:
    """Closed, dropped, left in the middle: `cancelled`."""
    async with client(*[say(WORDS)] * 3, format=INVOKE) as asking:
        (await asking.invoke_model(**PROMPT))["body"].close()
        await asking.invoke_model(**PROMPT)
        async with (await asking.invoke_model(**PROMPT))["body"] as body:
            await body.read(5)
        del body
        await settle(told, 3)
    assert [ended.stop.reason for ended in told.of(CallEnded)] == [StopReason.CANCELLED] * 3


@pytest.mark.parametrize("model", OTHERS)
@pytest.mark.parametrize("hidden", [False, True], ids=["named", "profile"])
async def test_what_asks_for_no_text_passes(told: Told, model: str, hidden: bool) -> None:
    """Embeddings, rankings, pictures, also where a profile hides the model."""
    body, said = OTHERS[model]
    asked = {"modelId": PROFILE if hidden else model, "body": json.dumps(body)}
    answer = Answer(headers={"content-type": "application/json"}, chunks=(json.dumps(said).encode(),))
    with Server(lambda asked: answer).running() as url:
        async with made(url) as asking:
            assert json.loads(await (await asking.invoke_model(**asked))["body"].read()) == said
            (await asking.invoke_model_with_response_stream(**asked))["body"].close()
    gc.collect()
    cleanup.run()
    assert not told
