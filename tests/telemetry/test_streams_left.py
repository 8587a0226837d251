"""Streams that their hosts leave, or read for long: all goes as it would without us, and nothing of ours grows."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionChunk
from opentelemetry.sdk.trace import TracerProvider

from endturn.formats.framing import frame
from endturn.stop import StopReason
from endturn.telemetry import foreign_spans
from tests.formats.replies import anthropic_stream, said
from tests.support.announced import observed
from tests.telemetry.mocked import ASK, STREAM, Records, achat, chat, claude, events, settle
from tests.telemetry.stage import Recording

MANY = 2
"""How many streams are left, one after another."""
CLAUDE: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": ASK["messages"]}
MESSAGES = anthropic_stream([said("w0 ", "w1 ", "w2 ")])


class Arriving:
    """A body that comes over time, in generators within generators. Whoever closes it first lets others run meanwhile.

    Attributes:
        closed: its connection is free.
        ended: its generator has come to its end.
    """

    closed = False
    ended = False
    left = False

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(self._received()) as received:
            async for piece in received:
                yield piece

    async def _received(self) -> Any:
        try:
            for piece in self.pieces:
                await asyncio.sleep(0)
                gc.collect(0)  # may run at any moment; what is there then stays in the order that it has here
                yield piece
        except BaseException:
            self.ended = True
            await self._leave()
            raise

    async def aclose(self) -> None:
        self.closed = True
        await self._leave()

    async def _leave(self) -> None:
        if not self.left:
            self.left = True
            await asyncio.sleep(0)
            await asyncio.sleep(0)


def answering(library: Any, pieces: Sequence[bytes], bodies: list[Arriving]) -> Any:
    """An HTTP client of that library whose every request is answered by these pieces."""

    class Body(Arriving, library.AsyncByteStream):  # type: ignore[misc]  # either library's base class
        pass

    async def answer(request: Any) -> Any:
        bodies.append(Body(pieces))
        return library.Response(200, headers={"content-type": "text/event-stream"}, stream=bodies[-1])

    return library.AsyncClient(transport=library.MockTransport(answer))


def chatting(http: Any) -> Any:
    client = openai.AsyncOpenAI(api_key="none", base_url="http://here/v1", max_retries=0, http_client=http)
    return client.chat.completions.create(**ASK, stream=True)


def traced(http: Any) -> Any:
    own: Any = {"tracer_provider": TracerProvider()}
    client = anthropic.AsyncAnthropic(api_key="none", max_retries=0, http_client=http, open_telemetry=own)
    return client.messages.create(**CLAUDE, stream=True)


def plainly(http: Any) -> Any:
    asked = http.build_request("POST", "https://api.openai.com/v1/chat/completions", json={**ASK, "stream": True})
    return http.send(asked, stream=True)


WAYS = {
    "openai": (httpx2, STREAM, chatting),
    "anthropic": (httpx2, MESSAGES, traced),
    "httpx": (httpx, STREAM, plainly),
    "httpx2": (httpx2, STREAM, plainly),
}


async def leave(how: str, stream: Any) -> None:
    """Leave a stream."""
    is_plain = isinstance(stream, httpx.Response | httpx2.Response)
    items, close = (stream.aiter_bytes, stream.aclose) if is_plain else (stream.__aiter__, stream.close)
    reading = asyncio.Event()

    async def read() -> None:
        async for _ in items():
            reading.set()
            await asyncio.Event().wait()

    match how:
        case "is cancelled":
            task = asyncio.create_task(read())
            await reading.wait()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        case "closes its reader":
            async with aclosing(items()) as reader:
                await anext(reader)
        case "breaks" | "closes":
            async for _ in items():
                break
    if how == "closes":
        await close()


async def left(way: str, how: str) -> tuple[list[str], list[bool], list[bool]]:
    """What the event loop reports while streams are left, of which bodies the generator ended with its reader, and
    which of their connections became free."""
    library, pieces, opens = WAYS[way]
    reports: list[str] = []
    bodies: list[Arriving] = []
    at_once: list[bool] = []
    http = answering(library, [frame(event) for event in pieces], bodies)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: reports.append(f"{context['message']}: {context['exception']!r}"))
    try:
        for _ in range(MANY):
            await leave(how, await opens(http))
            at_once.append(bodies[-1].ended)
            for _ in range(3):
                gc.collect()
                for _ in range(20):
                    await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)
    return reports, at_once, [body.closed for body in bodies]


@pytest.mark.parametrize("how", ["breaks", "closes", "closes its reader", "never reads", "is cancelled"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_stream_that_is_left(way: str, how: str) -> None:
    """The loop reports as little, and as many connections become free, as without us; each is one record."""
    bare = await left(way, how)
    with observed() as seen:
        assert await left(way, how) == bare
        settle()
        assert seen.reasons() == [StopReason.CANCELLED] * MANY


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
