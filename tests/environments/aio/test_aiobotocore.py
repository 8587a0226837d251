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

from endturn.events import CallEnded
from endturn.scripted import Reply, ScriptedProvider, cut, fail, say, truncate
from endturn.scripted.loopback import Answer, Server
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from tests.formats.others_bedrock_invoke import OTHERS, PROFILE
from tests.support.announced import Announced, observed

WORDS = "One two three four five six seven"
MODEL = "anthropic.claude-sonnet-5"
ASK: dict[str, Any] = {
    "modelId": MODEL,
    "messages": [{"role": "user", "content": [{"text": "hi"}]}],
    "inferenceConfig": {"maxTokens": 1000},
}
BODY = json.dumps({"max_tokens": 1000, "messages": [{"role": "user", "content": "hi"}]})
INVOKE = "bedrock_invoke"


@pytest.fixture
def seen() -> Iterator[Announced]:
    """What was announced."""
    with observed() as announced:
        yield announced


async def settle(seen: Announced, count: int) -> None:
    """Have what was dropped noticed: aiohttp keeps a response while bytes of it arrive."""
    for _ in range(200):
        gc.collect()
        cleanup.run()
        if sum(isinstance(record, CallEnded) for record in seen.records) == count:
            return
        await asyncio.sleep(0.01)


@asynccontextmanager
async def client(*replies: Reply, format: str = "bedrock_converse", **config: Any) -> AsyncIterator[Any]:
    """aiobotocore's client, asking a scripted server."""
    with ScriptedProvider(replies, format=format).serve() as url:
        async with made(url, **config) as asking:
            yield asking


def made(url: str, *, attempts: int = 1, **config: Any) -> Any:
    """aiobotocore's client, asking there."""
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
    config = AioConfig(retries={"total_max_attempts": attempts}, **config)
    return get_session().create_client(
        "bedrock-runtime", endpoint_url=url, region_name="us-east-1", config=config, **keys
    )


async def test_each_attempt_is_a_call(seen: Announced) -> None:
    """Errors, an answer, and a timeout, which is told apart; the SDK gives and raises what it always did."""
    late = say("late").but(delay_s=5)
    replies = (fail(500), truncate("One two three", after=2), fail(400, "context_length_exceeded"), late, late)
    async with client(*replies, attempts=2, read_timeout=0.2) as asking:
        assert type(await asking.converse(**ASK)) is dict
        for kind in (ClientError, ReadTimeoutError):
            with pytest.raises(kind):
                await asking.converse(**ASK)
    assert [(each.stop.reason, each.stop.detail) for each in seen.calls] == [
        ("error", None),
        ("max_tokens", None),
        ("context_window_exceeded", None),
        *[("error", "timeout")] * 2,
    ]
    started = seen.calls[1].started
    assert (started.provider, started.maximum) == ("aws.bedrock", 1000)


async def test_streams(seen: Announced) -> None:
    """The SDK's own event stream comes back; read to its end, cut off, and with an exception within."""
    async with client(say(WORDS), cut(WORDS, after=2, tidy=True), fail(503, text="One two")) as asking:
        for _ in range(2):
            stream = (await asking.converse_stream(**ASK))["stream"]
            assert type(stream) is AioEventStream
            assert [event async for event in stream]
        with pytest.raises(EventStreamError):
            [event async for event in (await asking.converse_stream(**ASK))["stream"]]
    reasons = [(each.stop.reason, each.stop.raw) for each in seen.calls]
    assert reasons == [("end_turn", "end_turn"), ("missing", None), ("error", "serviceUnavailableException")]
    assert seen.calls[0].output_chars == len(WORDS)


async def test_what_is_left_is_cancelled(seen: Announced) -> None:
    """Streams and bodies that are closed, broken off, never read, cancelled: one record each."""
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
        await settle(seen, 4)
    async with client(*[say(WORDS)] * 3, format=INVOKE) as asking:
        (await asking.invoke_model(modelId=MODEL, body=BODY))["body"].close()
        await asking.invoke_model(modelId=MODEL, body=BODY)
        async with (await asking.invoke_model(modelId=MODEL, body=BODY))["body"] as body:
            await body.read(5)
        del body
        await settle(seen, 7)
    assert [each.stop.reason for each in seen.calls] == ["cancelled"] * 7


async def by_buffer(body: Any) -> bytes:
    whole, buffer = b"", bytearray(9)
    while size := await body.readinto(buffer):
        whole += buffer[:size]
    return whole


async def by_entering(body: Any) -> Any:
    async with body as entered:
        return await entered.read()


async def by_iterating(body: Any) -> bytes:
    return b"".join([chunk async for chunk in body])


@pytest.mark.parametrize("way", [by_iterating, by_buffer, by_entering])
async def test_a_body(seen: Announced, way: Callable[[Any], Awaitable[bytes]]) -> None:
    """The SDK's own body comes back; it is one record when its host has read it, however it does."""
    async with client(truncate("One two three", after=2), format=INVOKE) as asking:
        answer = await asking.invoke_model(modelId=MODEL, body=BODY)
        assert type(answer["body"]) is StreamingBody
        assert not any(isinstance(record, CallEnded) for record in seen.records)
        assert json.loads(await way(answer["body"]))["content"][0]["text"] == "One two"
    assert seen.only().stop.reason is StopReason.MAX_TOKENS


@pytest.mark.parametrize("hidden", [False, True], ids=["named", "profile"])
async def test_what_asks_for_no_text_passes(seen: Announced, hidden: bool) -> None:
    """Embeddings, rankings, pictures, also where a profile hides the model."""
    for model, (body, said) in OTHERS.items():
        answer = Answer(headers={"content-type": "application/json"}, chunks=(json.dumps(said).encode(),))
        with Server(lambda asked, answer=answer: answer).running() as url:
            async with made(url) as asking:
                answered = await asking.invoke_model(modelId=PROFILE if hidden else model, body=json.dumps(body))
                assert json.loads(await answered["body"].read()) == said
    gc.collect()
    cleanup.run()
    assert not seen.records
