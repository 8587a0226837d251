"""The openai SDK's streams, observed: one record of each, however its reading ends."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import httpx2
import openai
import pytest

from endturn import announce
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.records import CallEnded, Record, TurnOutcome
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from endturn.wires import Event
from tests.telemetry.mocked import (
    ASK,
    CHUNKS,
    CUT_STREAM,
    STREAM,
    Answer,
    Body,
    Records,
    achat,
    chat,
    events,
    settle,
)
from tests.wires.replies import chunk


def test_a_stream_read_to_its_end(records: Records) -> None:
    """The SDK's own stream object comes back, every chunk passes, and its end is one record."""
    stream = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    assert type(stream) is openai.Stream
    assert not records.ended
    assert len(list(stream)) == 8
    ended = records.only()
    assert ended.stop.reason is StopReason.END_TURN
    assert ended.started.stream
    assert ended.first_chunk_s is not None
    assert ended.usage is not None
    assert ended.output_chars == len("w0 w1 w2 w3 w4 ")


def test_nothing_is_read_ahead() -> None:
    """The transport gives as many pieces as without us, when the host asks and not before."""

    def taken() -> list[int]:
        reply = events(*STREAM)
        made = reply.stream
        assert isinstance(made, Body)
        stream = chat(reply).chat.completions.create(**ASK, stream=True)
        counts = [made.taken]
        for _ in range(3):
            next(stream)
            counts.append(made.taken)
        stream.close()
        assert made.closed
        return counts

    bare = taken()
    instrument()
    try:
        stop = announce.listen(lambda record: None)
        assert taken() == bare
        stop()
    finally:
        uninstrument()


def test_next_and_for_may_be_mixed(records: Records) -> None:
    """`next(stream)` and `for … in stream` share one iterator, as the SDK has it."""
    stream = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    next(stream)
    assert len(list(stream)) == 7
    assert records.only().stop.reason is StopReason.END_TURN


def test_a_stream_that_is_closed_early(records: Records) -> None:
    """A host that stops reading has cancelled; the turn ends so, and is not truncated."""
    with chat(events(*STREAM)).chat.completions.create(**ASK, stream=True) as stream:
        next(stream)
    ended = records.only()
    assert ended.stop.reason is StopReason.CANCELLED
    assert not ended.stop.truncated
    assert ended.output_chars == 0
    assert [turn.outcome for turn in records.turns] == [TurnOutcome.CANCELLED]


def test_a_stream_that_is_closed_after_its_reason_came(records: Records) -> None:
    """Hosts break at the finish reason: that reason stands."""
    with chat(events(*CUT_STREAM)).chat.completions.create(**ASK, stream=True) as stream:
        for item in stream:
            if item.choices[0].finish_reason:
                break
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_a_stream_that_is_cut_without_an_error(records: Records) -> None:
    """The end of the body without a finish reason is `missing`, which is a truncation."""
    assert len(list(chat(events(*CHUNKS)).chat.completions.create(**ASK, stream=True))) == 6
    ended = records.only()
    assert ended.stop.reason is StopReason.MISSING
    assert ended.error is None
    assert ended.stop.truncated


def test_a_stream_that_loses_its_connection(records: Records) -> None:
    """A transport error within a stream is `missing`, with the HTTP client's exception."""
    stream = chat(events(*CHUNKS, error=httpx2.ReadError("gone"))).chat.completions.create(**ASK, stream=True)
    with pytest.raises(openai.APIConnectionError) as raised:
        list(stream)
    ended = records.only()
    assert ended.stop.reason is StopReason.MISSING
    assert ended.error is raised.value.__cause__


def test_a_stream_whose_provider_sends_an_error(records: Records) -> None:
    """An error event is an error, not a truncation."""
    error = {"error": {"message": "overloaded", "type": "server_error"}}
    stream = chat(events(*CHUNKS, type(CHUNKS[0])(None, error))).chat.completions.create(**ASK, stream=True)
    with pytest.raises(openai.APIError):
        list(stream)
    assert records.only().stop.reason is StopReason.ERROR


def test_an_error_after_the_reason_is_a_detail(records: Records) -> None:
    """The first terminal wins."""
    stream = chat(events(*CUT_STREAM[:-2], error=httpx2.ReadError("gone"))).chat.completions.create(**ASK, stream=True)
    with pytest.raises(openai.APIConnectionError):
        list(stream)
    stop = records.only().stop
    assert (stop.reason, stop.detail) == (StopReason.MAX_TOKENS, "ReadError")


@pytest.mark.parametrize("read", [pytest.param(0, id="never read"), pytest.param(2, id="read in part")])
def test_an_abandoned_stream(records: Records, read: int) -> None:
    """A stream that is dropped is cancelled, once the garbage collector has found it."""
    stream: Any = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    for _ in range(read):
        next(stream)
    assert not records.ended
    del stream
    settle()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.detail) == (StopReason.CANCELLED, "abandoned")


def test_a_stream_that_is_open_when_instrumentation_ends(records: Records) -> None:
    """`uninstrument`, and the end of the process, end what is still being read."""
    stream = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    next(stream)
    uninstrument()
    assert records.only().stop.reason is StopReason.CANCELLED
    assert len(list(stream)) == 7
    assert len(records.ended) == 1


async def test_an_async_stream_read_to_its_end(records: Records) -> None:
    """The same object, the same chunks, one record."""
    stream = await achat(events(*CUT_STREAM)).chat.completions.create(**ASK, stream=True)
    assert type(stream) is openai.AsyncStream
    assert len([item async for item in stream]) == 8
    assert records.only().stop.reason is StopReason.MAX_TOKENS


async def test_an_async_stream_that_is_closed_early(records: Records) -> None:
    """Leaving the context manager early is `cancelled`."""
    async with await achat(events(*STREAM)).chat.completions.create(**ASK, stream=True) as stream:
        async for _ in stream:
            break
    assert records.only().stop.reason is StopReason.CANCELLED


async def test_an_async_stream_whose_task_is_cancelled(records: Records) -> None:
    """Cancelling the reader is `cancelled`; nothing is logged about contexts."""

    class Slow(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            for piece in [b'data: {"id":"a","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'] * 3:
                yield piece
            await asyncio.sleep(60)

    reply = httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Slow())

    async def read() -> None:
        async for _ in await achat(reply).chat.completions.create(**ASK, stream=True):
            pass

    task = asyncio.create_task(read())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ended = records.only()
    assert ended.stop.reason is StopReason.CANCELLED
    assert ended.output_chars == 3


async def test_an_abandoned_async_stream(records: Records) -> None:
    """Dropped in part: cancelled, and the event loop has nothing to complain about."""
    stream: Any = await achat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    await anext(stream)
    del stream
    gc.collect()
    await asyncio.sleep(0.05)
    cleanup.run()
    assert records.only().stop.detail == "abandoned"


def test_a_stream_that_is_dropped_while_a_lock_is_held(records: Records) -> None:
    """The garbage collector runs anywhere: a destructor of ours announces nothing, so it cannot wait for a lock."""
    lock, waited = threading.Lock(), []

    def locking(record: Record) -> None:
        if isinstance(record, CallEnded):
            here = threading.current_thread() is threading.main_thread()
            waited.append(not here or lock.acquire(timeout=1))

    stop = announce.listen(locking)
    stream: Any = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    next(stream)
    with lock:
        del stream
        gc.collect()
    cleanup.run()
    stop()
    assert waited == [True]
    assert records.only().stop.detail == "abandoned"


def test_the_stream_helper(records: Records) -> None:
    """`.stream()` accumulates, fires its events, and is one record."""
    with chat(events(*STREAM)).chat.completions.stream(**ASK) as stream:
        kinds = {event.type for event in stream}
    assert "content.done" in kinds
    assert stream.get_final_completion().choices[0].message.content == "w0 w1 w2 w3 w4 "
    assert records.only().stop.reason is StopReason.END_TURN


def test_the_stream_helper_that_refuses_a_cut_answer(records: Records) -> None:
    """Asked for a format, the helper raises at the finish reason; that reason had come."""
    made = [chunk({"role": "assistant", "content": '{"val'}), *CUT_STREAM[-3:]]
    stream = chat(events(*made)).chat.completions.stream(**ASK, response_format=Answer)
    with pytest.raises(openai.LengthFinishReasonError), stream as opened:
        opened.until_done()
    assert records.only().stop.reason is StopReason.MAX_TOKENS


HELPED: dict[str, Any] = {**ASK, "response_format": Answer}


async def helped(*made: Event, asynchronous: bool) -> None:
    """Read a stream through the helper, in a block of its own."""
    if asynchronous:
        async with achat(events(*made)).chat.completions.stream(**HELPED) as opened:
            await opened.until_done()
    else:
        with chat(events(*made)).chat.completions.stream(**HELPED) as stream:
            stream.until_done()


def test_an_exception_of_the_host_within_the_stream_helper(records: Records) -> None:
    """The host stopped reading, for whatever reason of its own; nor does an earlier call's exception count."""
    with pytest.raises(StopAsyncIteration), chat(events(*STREAM)).chat.completions.stream(**ASK) as stream:
        raise StopAsyncIteration(next(iter(stream)))
    made = [chunk({"role": "assistant", "content": "{"}), *CUT_STREAM[-3:]]
    try:
        with chat(events(*made)).chat.completions.stream(**HELPED) as refused:
            refused.until_done()
    except openai.LengthFinishReasonError:
        with chat(events(*STREAM)).chat.completions.stream(**ASK) as stream:
            next(iter(stream))
    assert [ended.stop.reason for ended in records.ended] == [
        StopReason.CANCELLED,
        StopReason.MAX_TOKENS,
        StopReason.CANCELLED,
    ]
    assert [ended.error for ended in records.ended] == [None] * 3


async def test_the_async_stream_helper(records: Records) -> None:
    """The same, asynchronously; closed early it is `cancelled`."""
    async with achat(events(*STREAM)).chat.completions.stream(**ASK) as stream:
        async for _ in stream:
            break
    assert records.only().stop.reason is StopReason.CANCELLED


def test_streams_read_in_other_threads(records: Records) -> None:
    """A stream may be read where it was not made."""
    stream = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    reader = threading.Thread(target=lambda: list(stream))
    reader.start()
    reader.join()
    assert records.only().stop.reason is StopReason.END_TURN


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda response: list(response.iter_lines()), id="lines"),
        pytest.param(lambda response: response.read(), id="whole"),
    ],
)
def test_the_response_is_read_past_its_stream(records: Records, read: Any) -> None:
    """A host may read `stream.response`, even with the stream let go of: what passes is seen all the same."""
    read(chat(events(*CUT_STREAM)).chat.completions.create(**ASK, stream=True).response)
    settle()
    ended = records.only()
    assert ended.stop.reason is StopReason.MAX_TOKENS
    assert ended.usage is not None
    assert ended.first_chunk_s is not None


async def test_the_response_is_read_past_its_async_stream(records: Records) -> None:
    """The same, asynchronously."""
    stream = await achat(events(*CUT_STREAM)).chat.completions.create(**ASK, stream=True)
    assert [line async for line in stream.response.aiter_lines()]
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_the_response_is_left_past_its_stream(records: Records) -> None:
    """Reading a part of `stream.response`, or none, and closing it is `cancelled`, whoever closes."""
    for read in (0, 1):
        stream = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
        lines = stream.response.iter_lines()
        for _ in range(read):
            next(lines)
        stream.response.close()
    assert [ended.stop.reason for ended in records.ended] == [StopReason.CANCELLED] * 2
