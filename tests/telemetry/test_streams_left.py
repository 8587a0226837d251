"""Async streams that their hosts leave: the event loop closes what is left as it would without us, and no louder."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from opentelemetry.sdk.trace import TracerProvider

from endturn.formats.framing import frame
from endturn.stop import StopReason
from tests.formats.replies import anthropic_stream, said
from tests.support.announced import observed
from tests.telemetry.mocked import ASK, STREAM, settle

MANY = 2
"""How many streams are left, one after another."""
CHAT = [frame(event) for event in STREAM]
MESSAGES = [frame(event) for event in anthropic_stream([said("w0 ", "w1 ", "w2 ")])]


class Arriving:
    """A body that comes over time, in generators within generators. Whoever closes it first lets others run meanwhile.

    Attributes:
        closed: its connection is free.
    """

    closed = False
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


async def chatting(http: Any) -> Any:
    client = openai.AsyncOpenAI(api_key="none", base_url="http://here/v1", max_retries=0, http_client=http)
    stream = await client.chat.completions.create(**ASK, stream=True)
    return stream.__aiter__, stream.close


async def traced(http: Any) -> Any:
    own: Any = {"tracer_provider": TracerProvider()}
    client = anthropic.AsyncAnthropic(api_key="none", max_retries=0, http_client=http, open_telemetry=own)
    stream = await client.messages.create(model="m", max_tokens=9, messages=ASK["messages"], stream=True)
    return stream.__aiter__, stream.close


async def plainly(http: Any) -> Any:
    asked = http.build_request("POST", "https://api.openai.com/v1/chat/completions", json={**ASK, "stream": True})
    response = await http.send(asked, stream=True)
    return response.aiter_lines, response.aclose


WAYS = {"openai": (httpx2, CHAT, chatting), "anthropic": (httpx2, MESSAGES, traced), "httpx": (httpx, CHAT, plainly)}


async def leave(how: str, items: Any, close: Any) -> None:
    """Leave a stream."""
    reading = asyncio.Event()

    async def read() -> None:
        async for _ in items():
            reading.set()
            await asyncio.Event().wait()

    if how == "is cancelled":
        task = asyncio.create_task(read())
        await reading.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    elif how != "never reads":
        async for _ in items():
            break
    if how == "closes":
        await close()


async def left(way: str, how: str) -> tuple[list[str], list[bool]]:
    """What the event loop reports while streams are left, and which of their connections became free."""
    library, pieces, opens = WAYS[way]
    reports: list[str] = []
    bodies: list[Arriving] = []
    http = answering(library, pieces, bodies)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: reports.append(f"{context['message']}: {context['exception']!r}"))
    try:
        for _ in range(MANY):
            await leave(how, *await opens(http))
            for _ in range(3):
                gc.collect()
                for _ in range(20):
                    await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)
    return reports, [body.closed for body in bodies]


@pytest.mark.parametrize("how", ["breaks", "closes", "never reads", "is cancelled"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_stream_that_is_left(way: str, how: str) -> None:
    """The loop reports as little, and as many connections become free, as without us; each is one record."""
    bare = await left(way, how)
    with observed() as seen:
        assert await left(way, how) == bare
        settle()
        assert seen.reasons() == [StopReason.CANCELLED] * MANY
