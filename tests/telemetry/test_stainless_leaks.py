"""Streams that their hosts forget, by the thousand: each is one record, and nothing of them stays."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from endturn import announce
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.records import CallEnded, Record
from endturn.telemetry import cleanup
from endturn.wires.framing import frame
from tests.telemetry.mocked import ASK, STREAM, Body, achat, events

SYNC, ASYNC = 2_000, 1_000
"""How many, every fourth of them read in part. To drop an async one is mostly the event loop's work."""

PIECES = [frame(event) for event in STREAM]


@pytest.fixture
def told() -> Iterator[Counter[str]]:
    """How often each kind of end was announced."""
    found: Counter[str] = Counter()

    def listener(record: Record) -> None:
        if isinstance(record, CallEnded):
            found[f"{record.stop.reason} {record.stop.detail}"] += 1

    stop = announce.listen(listener)
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
        if number % 100 == 0:
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


def test_thousands_of_abandoned_streams(told: Counter[str]) -> None:
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
    assert not cleanup._jobs
    # What a metric keeps of the first calls is kept once; a leak of one object a stream would be thousands.
    assert more - objects < 1_000
    assert sum((after - before).values()) < 100


async def test_contexts_stay_where_they_are(caplog: pytest.LogCaptureFixture, told: Counter[str]) -> None:
    """A stream that is begun in one task, read in another and dropped in a third detaches nothing."""
    uninstrument()
    instrument(tracer_provider=TracerProvider())
    kept: list[Any] = []

    async def begin() -> None:
        kept.append(await achat(events(*STREAM)).chat.completions.create(**ASK, stream=True))

    async def read() -> None:
        await anext(kept[-1])

    async def drop() -> None:
        kept.clear()
        gc.collect()

    with caplog.at_level(logging.DEBUG, "opentelemetry"):
        for step in (begin, read, begin, read, drop):
            await asyncio.create_task(step())
        await asyncio.sleep(0)
        settled()
        await asyncio.sleep(0)
    assert told == {"cancelled abandoned": 2}
    assert not trace.get_current_span().get_span_context().is_valid
    assert not [record for record in caplog.records if "detach" in record.message or "context" in record.name]
