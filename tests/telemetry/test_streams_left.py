"""Async streams that their hosts leave: the event loop closes what is left as it would without us, and no louder."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from opentelemetry.sdk.trace import TracerProvider

from endturn import hooks
from endturn.formats.framing import frame
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from tests.formats.replies import anthropic_stream, said
from tests.telemetry.mocked import ASK, STREAM, Records

MANY = 2
"""How many streams are left, one after another."""

CHAT = [frame(event) for event in STREAM]
MESSAGES = [frame(event) for event in anthropic_stream([said("w0 ", "w1 ", "w2 ")])]


class Arriving:
    """A body that comes over time, in generators within generators. Whoever closes it first lets others run meanwhile.

    Attributes:
        closed: its connection is free.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.closed = False

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

    left = False

    async def _leave(self) -> None:
        if not self.left:
            self.left = True
            await asyncio.sleep(0)
            await asyncio.sleep(0)


class Server:
    """Answers every request of an HTTP library with the same pieces.

    Attributes:
        bodies: of its answers.
    """

    def __init__(self, library: Any, pieces: Sequence[bytes]) -> None:
        self.bodies: list[Arriving] = []

        class Body(Arriving, library.AsyncByteStream):  # type: ignore[misc]  # either library's base class
            pass

        async def answer(request: Any) -> Any:
            self.bodies.append(Body(pieces))
            return library.Response(200, headers={"content-type": "text/event-stream"}, stream=self.bodies[-1])

        self.http = library.AsyncClient(transport=library.MockTransport(answer))


Opened = tuple[Callable[[], Any], Callable[[], Awaitable[None]]]
"""What gives the items of a stream, and what closes it."""

Opens = Callable[[Any], Awaitable[Opened]]


async def chatting(http: Any) -> Opened:
    client = openai.AsyncOpenAI(api_key="none", base_url="http://here/v1", max_retries=0, http_client=http)
    stream = await client.chat.completions.create(**ASK, stream=True)
    return stream.__aiter__, stream.close


async def traced(http: Any) -> Opened:
    own: Any = {"tracer_provider": TracerProvider()}
    client = anthropic.AsyncAnthropic(api_key="none", max_retries=0, http_client=http, open_telemetry=own)
    asked: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    stream = await client.messages.create(**asked, stream=True)
    return stream.__aiter__, stream.close


async def plainly(http: Any) -> Opened:
    asked = http.build_request("POST", "https://api.openai.com/v1/chat/completions", json={**ASK, "stream": True})
    response = await http.send(asked, stream=True)
    return response.aiter_lines, response.aclose


OPENS: dict[str, tuple[Any, Sequence[bytes], Opens]] = {
    "openai": (httpx2, CHAT, chatting),
    "anthropic, traced": (httpx2, MESSAGES, traced),
    "httpx": (httpx, CHAT, plainly),
}


async def breaks(items: Callable[[], Any], close: Callable[[], Awaitable[None]]) -> None:
    async for _ in items():
        break


async def closes(items: Callable[[], Any], close: Callable[[], Awaitable[None]]) -> None:
    try:
        async for _ in items():
            break
    finally:
        await close()


async def never_reads(items: Callable[[], Any], close: Callable[[], Awaitable[None]]) -> None:
    pass


async def is_cancelled(items: Callable[[], Any], close: Callable[[], Awaitable[None]]) -> None:
    reading = asyncio.Event()

    async def read() -> None:
        async for _ in items():
            reading.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(read())
    await reading.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def left(opens: Opens, server: Server, leave: Callable[..., Awaitable[None]]) -> tuple[list[str], list[bool]]:
    """What the event loop reports while streams are left, and which of their connections became free."""
    reports: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: reports.append(f"{context['message']}: {context['exception']!r}"))
    try:
        for _ in range(MANY):
            await leave(*await opens(server.http))
            for _ in range(3):
                gc.collect()
                for _ in range(20):
                    await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)
    return reports, [body.closed for body in server.bodies]


@pytest.mark.parametrize("leave", [breaks, closes, never_reads, is_cancelled])
@pytest.mark.parametrize(("library", "pieces", "opens"), OPENS.values(), ids=OPENS.keys())
async def test_a_stream_that_is_left(
    library: Any, pieces: Sequence[bytes], opens: Opens, leave: Callable[..., Awaitable[None]]
) -> None:
    """The loop reports as little, and as many connections become free, as without us; each is one record."""
    bare = await left(opens, Server(library, pieces), leave)
    found = Records()
    stop = hooks.subscribe(found.append)
    instrument()
    try:
        assert await left(opens, Server(library, pieces), leave) == bare
        cleanup.run()
    finally:
        uninstrument()
        stop()
    assert [ended.stop.reason for ended in found.ended] == [StopReason.CANCELLED] * MANY
