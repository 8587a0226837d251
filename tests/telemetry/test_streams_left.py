"""Streams that their hosts leave, or read for long: all goes as it would without us, and nothing of ours grows."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import httpx2
import pytest
from openai.types.chat import ChatCompletionChunk

from endturn.formats.framing import frame
from endturn.telemetry import foreign_spans, instruments
from endturn.vocabulary.stop import StopReason
from tests.formats.replies import anthropic_stream, said
from tests.support.announced import observed
from tests.telemetry.mocked import (
    ASK,
    CUT_STREAM,
    STREAM,
    WHOLE,
    Records,
    achat,
    body,
    chat,
    claude,
    events,
    settle,
)
from tests.telemetry.stage import Recording

CLAUDE: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": ASK["messages"]}
MESSAGES = anthropic_stream([said("w0 ", "w1 ", "w2 ")])


async def taken(library: Any, client: str) -> list[list[bytes]]:
    """What a transport has been asked for whenever its reader has something, when that is closed, and a while later."""
    found: list[list[bytes]] = []
    pieces: list[bytes] = []

    class Body(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[misc]  # either library's
        def __iter__(self) -> Iterator[bytes]:
            for event in STREAM:
                pieces.append(frame(event))
                yield pieces[-1]

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                for piece in self:
                    await asyncio.sleep(0)
                    yield piece
            finally:
                pieces.append(b"ended")

        def close(self) -> None:
            pieces.append(b"closed")

        async def aclose(self) -> None:
            self.close()

    async def given(answer: Any) -> Any:
        found.append([*pieces])
        return await answer if inspect.isawaitable(answer) else answer

    answer = library.Response(200, headers={"content-type": "text/event-stream"}, stream=Body())
    asking = getattr(library, client)(transport=library.MockTransport(lambda request: answer))
    request = asking.build_request("POST", "http://here/v1/chat/completions", json={**ASK, "stream": True})
    response = await given(asking.send(request, stream=True))
    reader = response.iter_bytes() if client == "Client" else response.aiter_bytes()
    for _ in range(3):
        await given(next(reader) if client == "Client" else anext(reader))
    await given(reader.close() if client == "Client" else reader.aclose())
    await given(response.close() if client == "Client" else response.aclose())
    for _ in range(20):
        await asyncio.sleep(0)
    return [*found, pieces]


@pytest.mark.parametrize("client", ["Client", "AsyncClient"])
@pytest.mark.parametrize("library", [httpx, httpx2])
async def test_a_body_is_taken_and_left_as_without_us(library: Any, client: str) -> None:
    """Nothing is read ahead, and what a reader reads from is closed as soon as it is."""
    bare = await taken(library, client)
    with observed() as seen:
        assert await taken(library, client) == bare
        settle()
        assert seen.reasons() == [StopReason.CANCELLED]
    assert b"closed" in bare[-1][: len(STREAM)]


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
    monkeypatch.setattr(foreign_spans, "MAX_RECENT_CALLS", 10)
    monkeypatch.setattr(instruments, "QUEUED", 10)
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


class Stopped(BaseException):
    """What another event loop than asyncio's raises into a task that is cancelled."""


STOPS = [KeyboardInterrupt(), SystemExit(), asyncio.CancelledError(), Stopped()]


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: type(stop).__name__)
@pytest.mark.parametrize("has_reason", [True, False])
def test_a_host_that_is_stopped(stop: Any, has_reason: bool) -> None:
    """After the reason has come the response is whole: its span is no error, and its turn completed."""
    came = STREAM[:-1] if has_reason else STREAM[:2]
    with observed() as records, pytest.raises(type(stop)):
        list(chat(events(*came, error=stop)).chat.completions.create(**ASK, stream=True))
    settle()
    reason = StopReason.END_TURN if has_reason else StopReason.CANCELLED
    assert records.only().stop.reason is reason
    assert [span.status.is_ok for span in records.spans] == [True]
    (turn,) = records.turns
    assert (turn.outcome, turn.complete) == (("completed", True) if has_reason else ("cancelled", False))


CUT_SAID = "w0 w1 w2 w3 w4 "
GO_ON = {"role": "user", "content": "continue"}
FOLLOW_UPS: dict[str, tuple[list[dict[str, str]], list[str]]] = {
    "goes on": ([*ASK["messages"], {"role": "assistant", "content": CUT_SAID}, GO_ON], ["max_tokens", "end_turn"]),
    "goes on from it": ([*ASK["messages"], {"role": "assistant", "content": CUT_SAID}], ["max_tokens", "end_turn"]),
    "another sample": ([*ASK["messages"], {"role": "assistant", "content": "w9"}, GO_ON], ["end_turn", "max_tokens"]),
    "another prompt": (
        [{"role": "user", "content": "ho"}, {"role": "assistant", "content": CUT_SAID}, GO_ON],
        ["end_turn", "max_tokens"],
    ),
}
"""What is asked while the end of a cut stream is outstanding, and the reasons of both calls as they end."""


@pytest.mark.parametrize("client", ["chat", "claude"])
@pytest.mark.parametrize(("messages", "reasons"), FOLLOW_UPS.values(), ids=FOLLOW_UPS)
def test_a_cut_stream_that_its_host_goes_on_with(client: str, messages: Any, reasons: list[str]) -> None:
    """It breaks off reading at the reason, keeps the stream, and asks for the rest: that is one turn."""
    with observed() as records:
        if client == "chat":
            asked, answers = ASK, [events(*CUT_STREAM), body(WHOLE)]
            create: Any = chat(*answers).chat.completions.create
        else:
            said_whole = anthropic_stream([said(*(f"w{i} " for i in range(5)))], "max_tokens")
            asked, answers = CLAUDE, [events(*said_whole), events(*MESSAGES)]
            create = claude(*answers).messages.create
        stream = create(**asked, stream=True)
        for event in stream:
            if client == "claude" and event.type == "message_delta":
                break
            if client == "chat" and event.choices and event.choices[0].finish_reason:
                break
        other = create(**{**asked, "messages": messages}, stream=client == "claude")
        if client == "claude":
            list(other)
        list(stream)
        assert records.reasons() == reasons
        is_joined = reasons[0] == "max_tokens"
        assert len({started.turn.id for started in records.started}) == (1 if is_joined else 2)
