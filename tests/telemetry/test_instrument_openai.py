"""The openai SDK, observed: one record of every call, and nothing else changed."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import openai
import pydantic
import pytest
from openai._base_client import AsyncAPIClient, SyncAPIClient
from openai.types.chat import ChatCompletion
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from endturn import announce
from endturn.announce import TurnOutcome
from endturn.stop import StopReason
from endturn.telemetry import instrument as instrument_module
from endturn.telemetry import janitor
from endturn.telemetry.instrument import instrument, uninstrument
from tests.telemetry.mocked import Body, Records, Server, achat, body, chat, events
from tests.wires.replies import DONE_EVENT, chat_body, chunk, usage_chunk

ASK: dict[str, Any] = {"model": "gpt-5.6-mini", "messages": [{"role": "user", "content": "hi"}]}
WHOLE = chat_body({"content": "Hello there."})
CUT = chat_body({"content": "Hello the"}, "length")
CHUNKS = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": f"w{i} "}) for i in range(5))]
STREAM = [*CHUNKS, chunk({}, "stop"), usage_chunk(), DONE_EVENT]
CUT_STREAM = [*CHUNKS, chunk({}, "length"), usage_chunk(), DONE_EVENT]


class Answer(pydantic.BaseModel):
    value: int


def settle() -> None:
    """Have what was dropped noticed."""
    gc.collect()
    janitor.drain()


# --- Whole answers -------------------------------------------------------------------------------------------------


def test_a_call_is_announced_with_what_was_asked_and_what_came(records: Records) -> None:
    """One record holds the request's facts and the response's stop, usage, id and model."""
    result = chat(body(CUT)).chat.completions.create(**ASK, max_completion_tokens=17, temperature=0.5, seed=3)
    assert type(result) is ChatCompletion
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw, ended.error) == (StopReason.MAX_TOKENS, "length", None)
    assert ended.usage is not None
    assert (ended.usage.input_tokens, ended.usage.output_tokens) == (31, 17)
    assert (ended.response_id, ended.response_model, ended.reasons) == ("chatcmpl-Cq7", "gpt-5.6-mini", ("length",))
    started = ended.started
    assert (started.provider, started.model, started.maximum) == ("openai", "gpt-5.6-mini", 17)
    assert (started.temperature, started.seed, started.stream) == (0.5, 3, False)
    assert (started.server_address, started.server_port) == ("api.openai.com", None)


async def test_an_async_call_is_announced(records: Records) -> None:
    """`AsyncOpenAI` is observed as `OpenAI` is."""
    result = await achat(body(WHOLE)).chat.completions.create(**ASK)
    assert type(result) is ChatCompletion
    assert records.only().stop.reason is StopReason.END_TURN
    assert [turn.outcome for turn in records.turns] == [TurnOutcome.COMPLETED]


def test_parse_of_a_cut_answer_is_a_truncation(records: Records) -> None:
    """`parse()` raises on a cut answer; the reason and the usage behind its exception are recorded."""
    with pytest.raises(openai.LengthFinishReasonError) as raised:
        chat(body(CUT)).chat.completions.parse(**ASK, response_format=Answer)
    ended = records.only()
    assert ended.stop.reason is StopReason.MAX_TOKENS
    assert ended.error is raised.value
    assert ended.usage is not None


def test_parse_of_a_whole_answer(records: Records) -> None:
    """`parse()` returns its parsed completion, and is one record."""
    result = chat(body(chat_body({"content": '{"value": 7}'}))).chat.completions.parse(**ASK, response_format=Answer)
    assert result.choices[0].message.parsed == Answer(value=7)
    assert records.only().stop.reason is StopReason.END_TURN


def test_a_validator_that_chokes_on_the_answer_does_not_hide_its_reason(records: Records) -> None:
    """A body that arrived whole is read even where parsing it raises something that does not carry it."""
    with pytest.raises(pydantic.ValidationError):
        chat(body(chat_body({"content": "{}"}))).chat.completions.parse(**ASK, response_format=Answer)
    ended = records.only()
    assert ended.stop.reason is StopReason.END_TURN
    assert isinstance(ended.error, pydantic.ValidationError)


def test_retries_within_the_sdk_are_one_call(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """500, 500, 200: the SDK asks three times, the record is one."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    server = Server(body({}, 500), body({}, 500), body(WHOLE))
    client = openai.OpenAI(api_key="none", http_client=server.http())
    client.chat.completions.create(**ASK)
    assert len(server.requests) == 3
    assert records.only().stop.reason is StopReason.END_TURN


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        pytest.param("maximum context length is 8192 tokens", StopReason.CONTEXT_WINDOW_EXCEEDED, id="window"),
        pytest.param("no such parameter", StopReason.ERROR, id="other"),
    ],
)
def test_an_error_answer_is_announced_and_raised(records: Records, message: str, reason: StopReason) -> None:
    """The SDK's own exception comes through; what it says of the stop is recorded."""
    error = {"error": {"message": message, "type": "invalid_request_error", "code": None}}
    with pytest.raises(openai.BadRequestError) as raised:
        chat(body(error, 400)).chat.completions.create(**ASK)
    ended = records.only()
    assert ended.stop.reason is reason
    assert ended.error is raised.value


def test_an_answer_that_is_not_json(records: Records) -> None:
    """A proxy's HTML under status 200 tells nothing of the model: `unknown`, not `missing`."""
    page = httpx2.Response(200, headers={"content-type": "text/html"}, stream=Body([b"<html>login</html>"]))
    assert chat(page).chat.completions.create(**ASK) == "<html>login</html>"  # type: ignore[comparison-overlap]
    assert records.only().stop.reason is StopReason.UNKNOWN


def test_no_connection(records: Records) -> None:
    """A provider that is not reached is an error, not a truncation."""
    with pytest.raises(openai.APIConnectionError):
        chat(httpx2.ConnectError("refused")).chat.completions.create(**ASK)
    ended = records.only()
    assert ended.stop.reason is StopReason.ERROR
    assert [turn.outcome for turn in records.turns] == [TurnOutcome.PROVIDER_ERROR]


async def test_a_cancelled_call(records: Records) -> None:
    """A task that is cancelled while it waits for the answer is `cancelled`."""

    async def never(request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(60)
        raise AssertionError

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(never))
    task = asyncio.create_task(openai.AsyncOpenAI(api_key="n", http_client=http).chat.completions.create(**ASK))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert records.only().stop.reason is StopReason.CANCELLED
    assert [turn.outcome for turn in records.turns] == [TurnOutcome.CANCELLED]


# --- Raw answers ---------------------------------------------------------------------------------------------------


def test_with_raw_response(records: Records) -> None:
    """The raw response of a plain call is recorded whether or not it is parsed."""
    raw = chat(body(CUT)).chat.completions.with_raw_response.create(**ASK)
    assert records.only().stop.reason is StopReason.MAX_TOKENS
    assert raw.headers["content-type"] == "application/json"
    assert raw.parse().choices[0].finish_reason == "length"


READERS: dict[str, Callable[[Any], object]] = {
    "parse": lambda raw: raw.parse(),
    "json": lambda raw: raw.json(),
    "text": lambda raw: raw.text(),
    "read": lambda raw: raw.read(),
    "bytes": lambda raw: b"".join(raw.iter_bytes()),
    "lines": lambda raw: list(raw.iter_lines()),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_with_streaming_response(records: Records, read: Callable[[Any], object]) -> None:
    """A body that the host reads itself is seen as it reads it, and never before."""
    reply = body(CUT)
    with chat(reply).chat.completions.with_streaming_response.create(**ASK) as raw:
        assert not records.ended
        read(raw)
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_with_streaming_response_that_is_never_read(records: Records) -> None:
    """Leaving the context manager without reading is `cancelled`."""
    with chat(body(CUT)).chat.completions.with_streaming_response.create(**ASK):
        pass
    assert records.only().stop.reason is StopReason.CANCELLED


def test_a_body_read_before_decompression_is_not_guessed_at(records: Records) -> None:
    """`iter_raw` passes by: the reason is `unknown`, neither `cancelled` nor `missing`."""
    with chat(body(CUT)).chat.completions.with_streaming_response.create(**ASK) as raw:
        list(raw.http_response.iter_raw())
    assert records.only().stop.reason is StopReason.UNKNOWN


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda raw: list(raw.parse()), id="parsed"),
        pytest.param(lambda raw: list(raw.iter_lines()), id="lines"),
    ],
)
def test_a_raw_stream(records: Records, read: Callable[[Any], object]) -> None:
    """A stream behind a raw response is seen as it is read, however it is read."""
    with chat(events(*CUT_STREAM)).chat.completions.with_streaming_response.create(**ASK, stream=True) as raw:
        read(raw)
    ended = records.only()
    assert ended.stop.reason is StopReason.MAX_TOKENS
    assert ended.first_chunk_s is not None


async def test_an_async_raw_stream(records: Records) -> None:
    """The same, asynchronously."""
    client = achat(events(*STREAM), events(*STREAM))
    async with client.chat.completions.with_streaming_response.create(**ASK, stream=True) as raw:
        assert [line async for line in raw.iter_lines() if line][-1] == "data: [DONE]"
    assert records.only().stop.reason is StopReason.END_TURN
    parsed = (await client.chat.completions.with_raw_response.create(**ASK, stream=True)).parse()
    assert len([item async for item in parsed]) == 8
    assert [ended.stop.reason for ended in records.ended] == [StopReason.END_TURN] * 2


# --- Streams -------------------------------------------------------------------------------------------------------


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
    """A transport error within a stream is `missing`, with the SDK's exception."""
    stream = chat(events(*CHUNKS, error=httpx2.ReadError("gone"))).chat.completions.create(**ASK, stream=True)
    with pytest.raises(openai.APIConnectionError) as raised:
        list(stream)
    ended = records.only()
    assert ended.stop.reason is StopReason.MISSING
    assert ended.error is raised.value


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
    assert (stop.reason, stop.detail) == (StopReason.MAX_TOKENS, "APIConnectionError")


@pytest.mark.parametrize("read", [pytest.param(0, id="never read"), pytest.param(2, id="read in part")])
def test_an_abandoned_stream(records: Records, read: int) -> None:
    """A stream that is dropped is cancelled, once the garbage collector has found it."""
    reply = events(*STREAM)
    stream: Any = chat(reply).chat.completions.create(**ASK, stream=True)
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
    janitor.drain()
    assert records.only().stop.detail == "abandoned"


def test_a_stream_that_is_dropped_while_a_lock_is_held(records: Records) -> None:
    """The garbage collector runs anywhere: a destructor of ours announces nothing, so it cannot wait for a lock."""
    lock, waited = threading.Lock(), []

    def locking(record: announce.Record) -> None:
        if isinstance(record, announce.CallEnded):
            here = threading.current_thread() is threading.main_thread()
            waited.append(not here or lock.acquire(timeout=1))

    stop = announce.listen(locking)
    stream: Any = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    next(stream)
    with lock:
        del stream
        gc.collect()
    janitor.drain()
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
    stream = chat(events(*CUT_STREAM)).chat.completions.stream(**ASK, response_format=Answer)
    with pytest.raises(openai.LengthFinishReasonError), stream as opened:
        opened.until_done()
    assert records.only().stop.reason is StopReason.MAX_TOKENS


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


# --- What is watched, and whose it is ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(
            lambda client: client.embeddings.create(model="m", input="x", encoding_format="float"), id="embeddings"
        ),
        pytest.param(lambda client: client.models.list(), id="models"),
        pytest.param(lambda client: client.responses.create(model="m", input="x"), id="responses"),
        pytest.param(lambda client: client.chat.completions.retrieve("c"), id="stored completion"),
        pytest.param(lambda client: client.chat.completions.update("c", metadata={}), id="update"),
    ],
)
def test_other_calls_pass_through(records: Records, ask: Callable[[Any], object]) -> None:
    """Only completions are observed."""
    ask(chat(body({"object": "list", "data": [], "output": []})))
    assert not records


@pytest.mark.parametrize(
    ("url", "provider", "address", "port"),
    [
        pytest.param("https://api.openai.com/v1", "openai", "api.openai.com", None, id="openai"),
        pytest.param("https://api.deepseek.com", "deepseek", "api.deepseek.com", None, id="deepseek"),
        pytest.param("https://api.x.ai/v1", "x_ai", "api.x.ai", None, id="xai"),
        pytest.param("https://openrouter.ai/api/v1", "openrouter", "openrouter.ai", None, id="openrouter"),
        pytest.param("http://localhost:8000/v1", "openai", "localhost", 8000, id="local server"),
        pytest.param("https://notapi.x.ai.evil.com/v1", "openai", "notapi.x.ai.evil.com", None, id="lookalike"),
    ],
)
def test_the_provider_is_who_answers(records: Records, url: str, provider: str, address: str, port: int | None) -> None:
    """The base URL says whose model it is; a host that nobody knows speaks the SDK's own format."""
    chat(body(WHOLE), base_url=url).chat.completions.create(**ASK)
    started = records.only().started
    assert (started.provider, started.server_address, started.server_port) == (provider, address, port)


@pytest.mark.parametrize(
    ("url", "raw", "reason"),
    [
        pytest.param("https://api.openai.com/v1", "eos_token", StopReason.UNKNOWN, id="openai has no such word"),
        pytest.param("http://localhost:8000/v1", "eos_token", StopReason.END_TURN, id="a server of one's own may"),
        pytest.param("https://api.deepseek.com", "insufficient_system_resource", StopReason.ERROR, id="deepseek"),
    ],
)
def test_stop_reasons_are_read_in_the_dialect_of_who_answers(
    records: Records, url: str, raw: str, reason: StopReason
) -> None:
    """OpenAI's own table for OpenAI; the words of all imitators for a host that nobody knows."""
    chat(body(chat_body({"content": "x"}, raw)), base_url=url).chat.completions.create(**ASK)
    stop = records.only().stop
    assert (stop.reason, stop.raw, stop.mapped) == (reason, raw, reason is not StopReason.UNKNOWN)


def test_the_provider_follows_the_base_url(records: Records) -> None:
    """What is remembered of a client is forgotten when its base URL changes."""
    client = chat(body(WHOLE), body(WHOLE))
    client.chat.completions.create(**ASK)
    client.base_url = "https://api.groq.com/openai/v1"
    client.chat.completions.create(**ASK)
    assert [started.provider for started in records.started] == ["openai", "groq"]


def test_azure(records: Records) -> None:
    """Azure rewrites the path later than we look; its deployment is the model."""
    server = Server(body(WHOLE))
    client = openai.AzureOpenAI(
        api_key="n", api_version="2025-01-01", azure_endpoint="https://me.openai.azure.com", http_client=server.http()
    )
    client.chat.completions.create(**ASK)
    assert "/deployments/gpt-5.6-mini/chat/completions" in str(server.requests[0].url)
    assert records.only().started.provider == "azure.ai.openai"


def test_what_extra_body_says_is_asked_too(records: Records) -> None:
    """`extra_body` wins over the arguments, as it does on the wire."""
    chat(body(WHOLE)).chat.completions.create(**ASK, extra_body={"max_tokens": 99})
    assert records.only().started.maximum == 99


# --- Putting in place and taking away ------------------------------------------------------------------------------


def test_instrumenting_twice_is_one_patch_and_all_of_it_is_undone() -> None:
    """The SDK's functions come back, the very same ones; their names and signatures never changed."""
    before = [vars(kind)[name] for kind in (SyncAPIClient, AsyncAPIClient) for name in ("request", "_process_response")]
    instrument()
    instrument()
    during = [vars(kind)[name] for kind in (SyncAPIClient, AsyncAPIClient) for name in ("request", "_process_response")]
    assert all(new is not old and new.__wrapped__ is old for new, old in zip(during, before, strict=True))
    uninstrument()
    after = [vars(kind)[name] for kind in (SyncAPIClient, AsyncAPIClient) for name in ("request", "_process_response")]
    assert all(new is old for new, old in zip(after, before, strict=True))
    uninstrument()


def test_somebody_who_patched_later_keeps_their_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What wraps ours is left alone; ours then lets every call through."""
    kept = Records()
    stop = announce.listen(kept.append)
    instrument()
    ours = SyncAPIClient.request
    monkeypatch.setattr(SyncAPIClient, "request", lambda *args, **kwargs: ours(*args, **kwargs))
    uninstrument()
    chat(body(WHOLE)).chat.completions.create(**ASK)
    stop()
    assert not kept
    monkeypatch.undo()
    SyncAPIClient.request = ours.__wrapped__  # type: ignore[attr-defined, method-assign]


def test_without_a_sdk_the_remedy_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would be recorded: one warning says so, and what to do."""
    monkeypatch.setattr(instrument_module, "_warned", False)
    with caplog.at_level(logging.WARNING, "endturn"):
        for _ in range(2):
            instrument()
            uninstrument()
    assert len([record for record in caplog.records if "endturn.configure()" in record.message]) == 1


IMPORTS = """
import sys, logging
{first}
import endturn
endturn.instrument()
assert not [name for name in ("openai", "anthropic", "httpx", "httpx2") if name in sys.modules] or {early}
import openai, anthropic
from openai._base_client import SyncAPIClient
from anthropic._base_client import AsyncAPIClient
assert hasattr(SyncAPIClient.request, "__wrapped__"), "openai"
assert hasattr(AsyncAPIClient._request, "__wrapped__"), "anthropic"
import importlib, inspect
module = sys.modules["openai._base_client"]
assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
assert "class SyncAPIClient" in inspect.getsource(module)
endturn.uninstrument()
assert not hasattr(SyncAPIClient.request, "__wrapped__")
assert not [finder for finder in sys.meta_path if type(finder).__module__.startswith("endturn")]
"""


@pytest.mark.parametrize(
    ("first", "early"),
    [pytest.param("", False, id="imported later"), pytest.param("import openai", True, id="imported before")],
)
def test_the_sdk_may_be_imported_before_or_after(first: str, early: bool) -> None:
    """Instrumenting imports no SDK; whenever the host imports one, it is observed from then on."""
    code = IMPORTS.format(first=first, early=early)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_process_that_ends_in_mid_stream_ends_its_calls() -> None:
    """At exit, what is being read and what waits for a continuation is announced."""
    code = """
import sys; sys.path.insert(0, ".")
import endturn, openai
from endturn import announce
announce.listen(lambda record: print(type(record).__name__, getattr(record, "outcome", ""), flush=True))
endturn.instrument()
from tests.telemetry.test_instrument_openai import ASK, STREAM, CUT, chat, events, body
stream = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
next(stream)
chat(body(CUT)).chat.completions.create(**ASK)
print("exit", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.split("exit")[1].split()
    assert said == ["CallEnded", "TurnEnded", "cancelled", "TurnEnded", "not_continued"]
    assert not re.search("Traceback|Exception", done.stderr), done.stderr


# --- Signals -------------------------------------------------------------------------------------------------------


async def test_signals_of_every_form(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """One span and one count for each call, retried, streamed, left, cancelled; no span stays current anywhere."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    instrument(tracer_provider=tracers, meter_provider=meters)
    try:
        chat(body({}, 500), body({}, 500), body(WHOLE), max_retries=2).chat.completions.create(**ASK)
        for item in chat(events(*STREAM)).chat.completions.create(**ASK, stream=True):
            assert item
            assert not trace.get_current_span().get_span_context().is_valid
        async with await achat(events(*STREAM)).chat.completions.create(**ASK, stream=True) as stream:
            await anext(stream)
        other: Any = await achat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
        await asyncio.create_task(anext(other))
        del other
        settle()
        await asyncio.sleep(0)
    finally:
        uninstrument()
    assert not trace.get_current_span().get_span_context().is_valid
    reasons = [(span.attributes or {})["endturn.stop.reason"] for span in spans.get_finished_spans()]
    assert sorted(map(str, reasons)) == ["cancelled", "cancelled", "end_turn", "end_turn"]
    data = reader.get_metrics_data()
    assert data is not None
    points = [
        point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "endturn.responses"
        for point in metric.data.data_points
    ]
    assert sum(getattr(point, "value", 0) for point in points) == 4
    assert "detach" not in caplog.text


def test_a_call_that_another_instrumentation_traces_is_enriched() -> None:
    """Where a chat span is current already, ours is not made; that one says why the model stopped."""
    spans, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    instrument(tracer_provider=tracers)
    try:
        with tracers.get_tracer("somebody").start_as_current_span(
            "chat m", kind=trace.SpanKind.CLIENT, attributes={"gen_ai.operation.name": "chat"}
        ):
            chat(body(CUT)).chat.completions.create(**ASK)
        with tracers.get_tracer("somebody").start_as_current_span("agent"):
            chat(body(CUT)).chat.completions.create(**ASK)
    finally:
        uninstrument()
    assert [span.name for span in spans.get_finished_spans()] == ["chat m", "chat gpt-5.6-mini", "agent"]
    assert (spans.get_finished_spans()[0].attributes or {})["endturn.stop.reason"] == "max_tokens"


# --- When telemetry fails ------------------------------------------------------------------------------------------


def explode(*args: object, **kwargs: object) -> Any:
    raise RuntimeError("telemetry")


class Exploding:
    """Raises wherever it is touched."""

    def __init__(self, *args: object) -> None:
        pass

    see = close = explode


BREAKS = {
    "inspect": ("endturn.wires.openai_chat.inspect", explode),
    "watch": ("endturn.wires.openai_chat.watch", explode),
    "see and close": ("endturn.wires.openai_chat.watch", Exploding),
    "open_call": ("endturn.announce.open_call", explode),
    "end": ("endturn.announce.Call.end", explode),
    "step": ("endturn.announce.Call.step", explode),
    "first chunk": ("endturn.announce.Call.first_chunk", explode),
    "listener": ("endturn.telemetry.recorder.Recorder.__call__", explode),
    "resolve": ("endturn.telemetry.infer.Inferring.resolve", explode),
    "ended": ("endturn.telemetry.infer.Inferring.ended", explode),
    "host": ("endturn.telemetry.hosts.of_client", explode),
    "wire": ("endturn.telemetry.sdk_call.wire", explode),
    "error": ("endturn.wires.openai_chat.decode_error", explode),
    "streams": ("endturn.telemetry.streams.begin", explode),
    "bodies": ("endturn.telemetry.bodies.on_close", explode),
}


def outcomes() -> Iterator[object]:
    """What a host sees of every form of call: types, contents, exceptions, and how much was read."""
    yield chat(body(WHOLE)).chat.completions.create(**ASK).model_dump()
    stream = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    yield type(stream)
    yield [item.model_dump() for item in stream]
    with chat(events(*STREAM)).chat.completions.create(**ASK, stream=True) as closed:
        yield next(closed).model_dump()
    yield chat(body(WHOLE)).chat.completions.with_raw_response.create(**ASK).parse().model_dump()
    with chat(body(WHOLE)).chat.completions.with_streaming_response.create(**ASK) as raw:
        yield raw.read()
    with chat(events(*STREAM)).chat.completions.with_streaming_response.create(**ASK, stream=True) as lines:
        yield list(lines.iter_lines())
    for fails in (body({"error": {"message": "no"}}, 400), httpx2.ConnectError("refused"), body(CUT)):
        try:
            chat(fails).chat.completions.parse(**ASK, response_format=Answer)
        except Exception as error:
            yield type(error), str(error)
    lost = chat(events(*CHUNKS, error=httpx2.ReadError("gone"))).chat.completions.create(**ASK, stream=True)
    try:
        yield [item.model_dump() for item in lost]
    except Exception as error:
        yield type(error), str(error)


@pytest.mark.parametrize(("where", "what"), BREAKS.values(), ids=BREAKS.keys())
def test_telemetry_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch, where: str, what: Any) -> None:
    """Whatever of ours raises, the host sees what it would have seen without us."""
    bare = list(outcomes())
    stop = announce.listen(lambda record: None)
    instrument()
    try:
        monkeypatch.setattr(where, what)
        assert list(outcomes()) == bare
    finally:
        monkeypatch.undo()
        uninstrument()
        stop()
