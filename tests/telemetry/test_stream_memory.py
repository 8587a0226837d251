"""Of streams nothing that endturn keeps grows with their length, nor with their number."""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionChunk

import endturn
from endturn import hooks
from endturn.events import CallEnded, Record
from endturn.formats.framing import frame
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.telemetry import cleanup
from tests.telemetry.mocked import ASK, STREAM, Body
from tests.telemetry.stage import Stage

CHUNKS = 10_000
SYNC, ASYNC = 400, 200
"""How many streams are abandoned, every fourth of them read in part."""

PIECES = [frame(event) for event in STREAM]


def events() -> Iterator[bytes]:
    """A long answer, made as it is read."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    word = {"choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}
    stop = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    spoken = b"data: " + json.dumps(head | word).encode() + b"\n\n"
    for _ in range(CHUNKS // 100):
        yield spoken * 100
    yield b"data: " + json.dumps(head | stop).encode() + b"\n\ndata: [DONE]\n\n"


def test_the_chunks_of_a_long_stream_are_not_held() -> None:
    """Objects that are alive do not grow in number, and no chunk is among them but the one that the host has."""
    stage = Stage()

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=events())

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    endturn.instrument(tracer_provider=stage.tracers, meter_provider=stage.meters, logger_provider=stage.loggers)
    try:
        client = openai.OpenAI(api_key="none", max_retries=0, http_client=http)
        messages: Any = [{"role": "user", "content": "Say something long."}]
        stream = client.chat.completions.create(model="gpt-5", messages=messages, stream=True)
        alive, held = [], []
        for number, _ in enumerate(stream):
            if number in (1_000, CHUNKS - 1_000):
                gc.collect()
                known = gc.get_objects()
                alive.append(len(known))
                held.append(sum(type(each) is ChatCompletionChunk for each in known))
                del known
    finally:
        endturn.uninstrument()
    assert max(held) == 1
    assert alive[1] - alive[0] < 500
    (span,) = stage.spans.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["endturn.stop.reason"] == "end_turn"


@pytest.fixture
def told() -> Iterator[Counter[str]]:
    """How often each kind of end was announced."""
    found: Counter[str] = Counter()

    def listener(record: Record) -> None:
        if isinstance(record, CallEnded):
            found[f"{record.stop.reason} {record.stop.detail}"] += 1

    stop = hooks.subscribe(listener)
    instrument()
    try:
        yield found
    finally:
        uninstrument()
        stop()


def chats() -> tuple[openai.OpenAI, openai.AsyncOpenAI]:
    """Clients of a server that always streams the same."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Body(PIECES))

    async def aanswer(request: httpx2.Request) -> httpx2.Response:
        return answer(request)

    made: Any = {"api_key": "none", "max_retries": 0}
    return (
        openai.OpenAI(**made, http_client=httpx2.Client(transport=httpx2.MockTransport(answer))),
        openai.AsyncOpenAI(**made, http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(aanswer))),
    )


def forget(count: int, client: openai.OpenAI) -> None:
    """As many sync streams as that, every fourth of them read in part."""
    for number in range(count):
        stream = client.chat.completions.create(**ASK, stream=True)
        if number % 4 == 3:
            next(stream)


async def aforget(count: int, client: openai.AsyncOpenAI) -> None:
    """The same, asynchronously."""
    for number in range(count):
        stream = await client.chat.completions.create(**ASK, stream=True)
        if number % 4 == 3:
            await anext(stream)
        if number % 20 == 0:
            await asyncio.sleep(0)  # the loop closes the generators of those that were dropped


def ours() -> Counter[str]:
    """How many objects of ours there are, by type."""
    return Counter(
        type(thing).__qualname__ for thing in gc.get_objects() if str(type(thing).__module__).startswith("endturn.")
    )


def settled() -> tuple[int, Counter[str]]:
    """How many objects there are, and how many of them are ours, when everything dropped has been noticed."""
    gc.collect()
    cleanup.run()
    gc.collect()
    return len(gc.get_objects()), ours()


def test_hundreds_of_abandoned_streams(told: Counter[str]) -> None:
    """Never read, or read in part and dropped, sync and async: one record each, and nothing grows."""
    client, aclient = chats()

    async def both(many: int, few: int) -> None:
        forget(many, client)
        await aforget(few, aclient)
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(both(1_000, 200))
    objects, before = settled()
    told.clear()
    asyncio.run(both(SYNC, ASYNC))
    more, after = settled()
    # Some of what is dropped at the very end is closed by the loop, which ends, before it is seen to be dropped.
    closed = told.pop("cancelled None", 0)
    assert told == {"cancelled abandoned": SYNC + ASYNC - closed}
    assert closed < ASYNC / 4
    # What a metric keeps of the first calls is kept once; a leak of one object a stream would be hundreds.
    assert more - objects < 300
    assert sum((after - before).values()) < 100
