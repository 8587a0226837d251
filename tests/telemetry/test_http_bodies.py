"""Bodies that a host reads as bytes, raw ones of SDKs or plain ones: seen where they come from, left as they are."""

from __future__ import annotations

import copy
import gc
import gzip
import pickle
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import httpx2
import openai
import pytest
from opentelemetry.sdk.trace import TracerProvider

from endturn.chat import Json
from endturn.instrumentation import exchange
from endturn.scripted import ScriptedProvider, essay
from endturn.stop import StopReason
from endturn.wires.framing import frame
from tests.telemetry.mocked import (
    ASK,
    CHUNKS,
    CUT,
    CUT_STREAM,
    Body,
    Records,
    achat,
    aclaude,
    body,
    chat,
    claude,
    events,
    settle,
)
from tests.wires.replies import DONE_EVENT

SSE = {"content-type": "text/event-stream"}
OPENAI = "https://api.openai.com/v1/chat/completions"


def deflated(data: bytes) -> bytes:
    """As some servers send `deflate`: without zlib's header."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "zlib": ("deflate", zlib.compress),
    "deflate": ("deflate", deflated),
    "two": ("deflate, gzip", lambda data: gzip.compress(zlib.compress(data))),
}


def pieces(data: bytes, size: int = 40) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def packed(how: str, *made: Any) -> httpx2.Response:
    """A stream of these events, compressed."""
    encoding, pack = PACKERS[how]
    data = pack(b"".join(frame(event) for event in made))
    return httpx2.Response(200, headers={**SSE, "content-encoding": encoding}, stream=Body(pieces(data)))


def ask_raw(client: openai.OpenAI, **more: Any) -> Any:
    """A raw response whose body is still to be read."""
    return client.chat.completions.with_raw_response.create(**ASK, stream=True, **more)


# --- However it is read, by whoever holds it -----------------------------------------------------------------------


async def test_a_response_that_nobody_else_holds(records: Records) -> None:
    """An iterator over its bytes is enough, as without us."""
    data = b"".join(frame(event) for event in CUT_STREAM)
    assert b"".join(ask_raw(chat(events(*CUT_STREAM))).http_response.iter_bytes()) == data
    client = achat(events(*CUT_STREAM))
    chunks = (await client.chat.completions.with_raw_response.create(**ASK, stream=True)).http_response.aiter_bytes()
    gc.collect()
    assert b"".join([chunk async for chunk in chunks]) == data
    assert [ended.stop.reason for ended in records.ended] == [StopReason.MAX_TOKENS] * 2


def test_what_is_on_a_response_is_its_own(records: Records) -> None:
    """Before it is read and after, there is nothing of ours that a copy would take along."""
    with chat(body(CUT)).chat.completions.with_streaming_response.create(**ASK) as raw:
        response = raw.http_response
        assert not {name for name, value in vars(response).items() if callable(value) and name != "stream"}
        raw.read()
        assert pickle.loads(pickle.dumps(response)).json() == copy.deepcopy(response).json() == CUT


@pytest.mark.parametrize("how", ["unread", "in part"])
async def test_a_raw_response_that_is_dropped(records: Records, how: str) -> None:
    """It is `abandoned`, once, and nothing of it stays."""
    raw: Any = ask_raw(chat(events(*CUT_STREAM)))
    araw: Any = await achat(events(*CUT_STREAM)).chat.completions.with_raw_response.create(**ASK, stream=True)
    if how == "in part":
        next(iter(raw.http_response.stream))
        await anext(aiter(araw.http_response.stream))
    del raw, araw
    settle()
    assert [(ended.stop.reason, ended.stop.detail) for ended in records.ended] == [
        (StopReason.CANCELLED, exchange.ABANDONED)
    ] * 2
    assert len(records.started) == len(records.ended)


async def test_a_raw_response_with_a_span_of_its_sdk_is_dropped(records: Records) -> None:
    """anthropic ends its span in a destructor: what is announced waits for a better place."""
    made = {"open_telemetry": {"tracer_provider": TracerProvider()}}
    raw: Any = claude(body(CUT), **made).messages.with_streaming_response.create(**ASK, max_tokens=17).__enter__()
    araw: Any = (
        await aclaude(body(CUT), **made).messages.with_streaming_response.create(**ASK, max_tokens=17).__aenter__()
    )
    del raw, araw
    settle()
    assert [(ended.stop.reason, ended.stop.detail) for ended in records.ended] == [
        (StopReason.CANCELLED, exchange.ABANDONED)
    ] * 2


async def test_an_answer_that_is_dropped_on_an_open_connection(records: Records) -> None:
    """The context in which a connection was opened lives as long as that, and does not keep the answer."""
    with ScriptedProvider(essay("One two three four five six.")).serve() as url:
        async with openai.AsyncOpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0) as client:
            stream: Any = await client.chat.completions.create(**ASK, stream=True)
            raw: Any = await client.chat.completions.with_raw_response.create(**ASK, stream=True)
            del stream, raw
            settle()
            assert len(records.ended) == 2
    assert {ended.stop.detail for ended in records.ended} == {exchange.ABANDONED}


async def test_what_an_sdk_reads_to_be_rid_of_it(records: Records) -> None:
    """What follows `[DONE]` is not the answer, nor is its failure that of the call."""
    reply = events(*CHUNKS, DONE_EVENT, error=httpx2.ReadError("gone"))
    raw = await achat(reply).chat.completions.with_raw_response.create(**ASK, stream=True)
    assert len([item async for item in raw.parse()]) == len(CHUNKS)
    ended = records.only()
    assert (ended.stop.reason, ended.error) == (StopReason.MISSING, None)


@pytest.mark.parametrize("library", [httpx, httpx2])
async def test_a_reader_that_stops_closes_what_it_read_from(records: Records, library: Any) -> None:
    """A body's generator ends with the reader, where the library sees to that, and not whenever the loop finds it."""

    async def finished(url: str) -> bool:
        left: list[bool] = []

        class Slow(library.AsyncByteStream):  # type: ignore[misc]  # either library's
            async def __aiter__(self) -> AsyncIterator[bytes]:
                try:
                    for event in CUT_STREAM:
                        yield frame(event)
                finally:
                    left.append(True)

        async def answer(request: Any) -> Any:
            return library.Response(200, headers=SSE, stream=Slow())

        client = library.AsyncClient(transport=library.MockTransport(answer))
        async with client.stream("POST", url, json={**ASK, "stream": True}) as response:
            chunks = response.aiter_bytes()
            await anext(chunks)
            await chunks.aclose()
            return bool(left)

    assert await finished(OPENAI) == await finished("https://example.com/")
    settle()
    assert records.only().stop.reason is StopReason.CANCELLED


# --- Compressed ----------------------------------------------------------------------------------------------------

READERS: dict[str, Callable[[Any], object]] = {
    "bytes": lambda raw: list(raw.http_response.iter_bytes()),
    "raw": lambda raw: list(raw.http_response.iter_raw()),
    "lines": lambda raw: list(raw.http_response.iter_lines()),
    "parsed": lambda raw: list(raw.parse()),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize("how", PACKERS)
def test_a_compressed_raw_stream(
    records: Records, caplog: pytest.LogCaptureFixture, how: str, read: Callable[[Any], object]
) -> None:
    """It is unpacked once more, for us alone."""
    read(ask_raw(chat(packed(how, *CUT_STREAM))))
    ended = records.only()
    assert ended.stop.reason is StopReason.MAX_TOKENS
    assert ended.usage is not None
    assert not caplog.records


@pytest.mark.parametrize("how", PACKERS)
def test_a_compressed_raw_stream_without_a_reason(records: Records, caplog: pytest.LogCaptureFixture, how: str) -> None:
    """Read to `[DONE]` it is `missing`; a stream that is left is `cancelled`, as it is uncompressed."""
    list(ask_raw(chat(packed(how, *CHUNKS, DONE_EVENT))).parse())
    response = ask_raw(chat(packed(how, *CUT_STREAM))).http_response
    next(response.iter_raw())
    response.close()
    settle()
    assert [ended.stop.reason for ended in records.ended] == [StopReason.MISSING, StopReason.CANCELLED]
    assert not caplog.records


@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize("kind", ["stream", "body"])
@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip", "deflate"])
def test_what_cannot_be_unpacked(
    records: Records, caplog: pytest.LogCaptureFixture, library: Any, kind: str, encoding: str
) -> None:
    """Without a decoder, or with one that it does not fit, a body is unreadable: no truncation, no word in the log."""
    data = bytes(range(128, 256)) * 3
    headers: Json = {
        **(SSE if kind == "stream" else {"content-type": "application/json"}),
        "content-encoding": encoding,
    }

    class Odd(library.SyncByteStream):  # type: ignore[misc]  # either library's
        def __iter__(self) -> Any:
            return iter(pieces(data))

    def answer(request: Any) -> Any:
        return library.Response(200, headers=headers, stream=Odd())

    ask = {**ASK, "stream": kind == "stream"}
    with library.Client(transport=library.MockTransport(answer)).stream("POST", OPENAI, json=ask) as response:
        assert b"".join(response.iter_raw()) == data
    stop = records.only().stop
    assert (stop.reason, stop.detail) == (StopReason.UNKNOWN, exchange.UNREADABLE)
    assert not caplog.records


@pytest.mark.parametrize("how", PACKERS)
def test_a_compressed_body_that_is_cut(records: Records, caplog: pytest.LogCaptureFixture, how: str) -> None:
    """What came of it is what there is: a reason is kept, and without one the answer is cut."""
    for made, keep in ((CUT_STREAM, 12), (CHUNKS, 12)):
        encoding, pack = PACKERS[how]
        data = pack(b"".join(frame(event) for event in made))[:-keep]
        reply = httpx2.Response(200, headers={**SSE, "content-encoding": encoding}, stream=Body(pieces(data)))
        list(ask_raw(chat(reply)).http_response.iter_raw())
    assert records.ended[-1].stop.reason is StopReason.MISSING
    assert not caplog.records


# --- Closed unread -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_hook_that_closes_the_answer(records: Records, library: Any) -> None:
    """A host that wants nothing of an answer has cancelled it."""
    client = library.Client(
        transport=ScriptedProvider(essay("One two three.")).transport(),
        event_hooks={"response": [lambda response: response.close()]},
    )
    with client.stream("POST", OPENAI, json={**ASK, "stream": True}) as response:
        assert response.is_closed
    assert records.only().stop.reason is StopReason.CANCELLED
