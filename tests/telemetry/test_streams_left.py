"""Streams that their hosts leave, or read for long: all goes as it would without us, and nothing of ours grows."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import httpx
import httpx2
import pytest
from openai.types.chat import ChatCompletionChunk

from endturn.formats.framing import frame
from endturn.stop import StopReason
from endturn.telemetry import foreign_spans
from tests.formats.replies import anthropic_stream, said
from tests.support.announced import observed
from tests.telemetry.mocked import ASK, STREAM, Records, achat, chat, claude, events, settle
from tests.telemetry.stage import Recording

CLAUDE: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": ASK["messages"]}
MESSAGES = anthropic_stream([said("w0 ", "w1 ", "w2 ")])


async def closed(library: Any) -> list[bool]:
    """Whether a body's generator has ended when its reader is closed, and a while later."""
    ended: list[bool] = []

    async def pieces() -> AsyncIterator[bytes]:
        try:
            for event in STREAM:
                await asyncio.sleep(0)
                yield frame(event)
        finally:
            ended.append(True)

    answer = library.Response(200, headers={"content-type": "text/event-stream"}, content=pieces())
    client = library.AsyncClient(transport=library.MockTransport(lambda request: answer))
    request = client.build_request("POST", "http://here/v1/chat/completions", json={**ASK, "stream": True})
    response = await client.send(request, stream=True)
    async with aclosing(response.aiter_bytes()) as reader:
        await anext(reader)
    found = [bool(ended)]
    await response.aclose()
    for _ in range(20):
        await asyncio.sleep(0)
    return [*found, bool(ended)]


@pytest.mark.parametrize("library", [httpx, httpx2])
async def test_a_reader_that_is_closed(library: Any) -> None:
    """What it reads from is closed as soon as without us."""
    bare = await closed(library)
    with observed() as seen:
        assert await closed(library) == bare
        settle()
        assert seen.reasons() == [StopReason.CANCELLED]


async def forget(count: int) -> None:
    """As many streams as that, sync and async, every fourth of them read in part."""
    for number in range(count):
        stream: Any = claude(events(*MESSAGES)).messages.create(**CLAUDE, stream=True)
        other = await achat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
        if number % 4 == 3:
            next(stream)
            await anext(other)
        here = weakref.ref(stream)
        del stream
        assert here() is None  # without the garbage collector: no cycle of ours keeps it
        await asyncio.sleep(0)  # the loop closes the generators of those that were dropped


def test_many_abandoned_streams(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never read, or read in part and dropped, sync and async: one record each, and nothing of ours grows."""
    monkeypatch.setattr(foreign_spans, "RECENT", 10)
    ours = []
    for number in (20, 100):
        gc.disable()
        asyncio.run(forget(number))
        gc.enable()
        settle()
        assert records.reasons() == [StopReason.CANCELLED] * 2 * number
        records.clear()
        settle()
        ours.append(sum(str(type(thing).__module__).startswith("endturn.") for thing in gc.get_objects()))
    assert ours[1] - ours[0] < 50  # a leak of one object a stream would be hundreds


CHUNKS = 10_000


def long_answer() -> Iterator[bytes]:
    """A long answer, made as it is read."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    word = {"choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}
    stop = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    for _ in range(CHUNKS // 100):
        yield (b"data: " + json.dumps(head | word).encode() + b"\n\n") * 100
    yield b"data: " + json.dumps(head | stop).encode() + b"\n\ndata: [DONE]\n\n"


def test_the_chunks_of_a_long_stream_are_not_held(recording: Recording) -> None:
    """Objects that are alive do not grow in number, and no chunk is among them but the one that the host has."""
    stage = recording()
    answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=long_answer())
    alive, held = [], []
    for number, _ in enumerate(chat(answer).chat.completions.create(**ASK, stream=True)):
        if number in (1_000, CHUNKS - 1_000):
            gc.collect()
            known = gc.get_objects()
            alive.append(len(known))
            held.append(sum(type(each) is ChatCompletionChunk for each in known))
            del known
    assert max(held) == 1
    assert alive[1] - alive[0] < 500
    (span,) = stage.finished()
    assert span["attributes"]["endturn.stop.reason"] == "end_turn"
