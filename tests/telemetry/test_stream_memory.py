"""Of streams nothing that endturn keeps grows with their length, nor with their number."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from endturn.stop import StopReason
from endturn.telemetry import foreign_spans
from tests.telemetry.mocked import ASK, STREAM, Records, achat, chat, events, settle
from tests.telemetry.stage import Recording

CHUNKS = 10_000


def long_answer() -> Iterator[bytes]:
    """A long answer, made as it is read."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    word = {"choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}
    stop = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    spoken = b"data: " + json.dumps(head | word).encode() + b"\n\n"
    for _ in range(CHUNKS // 100):
        yield spoken * 100
    yield b"data: " + json.dumps(head | stop).encode() + b"\n\ndata: [DONE]\n\n"


def test_the_chunks_of_a_long_stream_are_not_held(recording: Recording) -> None:
    """Objects that are alive do not grow in number, and no chunk is among them but the one that the host has."""
    stage = recording()

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=long_answer())

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
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
    assert max(held) == 1
    assert alive[1] - alive[0] < 500
    (span,) = stage.spans.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["endturn.stop.reason"] == "end_turn"


async def forget(count: int) -> None:
    """As many streams as that, sync and async, every fourth of them read in part."""
    for number in range(count):
        stream = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
        other = await achat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
        if number % 4 == 3:
            next(stream)
            await anext(other)
        await asyncio.sleep(0)  # the loop closes the generators of those that were dropped


def ours() -> int:
    """How many objects of ours there are, when everything dropped has been noticed."""
    settle()
    gc.collect()
    return sum(str(type(thing).__module__).startswith("endturn.") for thing in gc.get_objects())


def test_many_abandoned_streams(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never read, or read in part and dropped, sync and async: one record each, and nothing of ours grows."""
    monkeypatch.setattr(foreign_spans, "RECENT", 10)
    counts = []
    for number in (20, 100):
        asyncio.run(forget(number))
        settle()
        assert records.reasons() == [StopReason.CANCELLED] * 2 * number
        records.clear()
        counts.append(ours())
    assert counts[1] - counts[0] < 50  # a leak of one object a stream would be hundreds
