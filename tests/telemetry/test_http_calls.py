"""Calls over plain httpx and httpx2 to a provider's host: one record of each, and nothing else changed."""

from __future__ import annotations

import asyncio
import copy
import gzip
import inspect
import json
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import Any

import httpx
import httpx2
import openai
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

import endturn
from endturn import announce
from endturn.chat import ChatResponse, Message, Request
from endturn.instrumentation import exchange
from endturn.instrumentation.decorators import observe_provider_call
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.scripted import Reply, ScriptedProvider, cut, fail, hang_up, say, truncate
from endturn.stop import StopReason
from endturn.telemetry import attributes, cleanup
from endturn.wires import Context, Event, wire
from endturn.wires.framing import frame
from tests.telemetry.mocked import Records, settle
from tests.telemetry.stage import points
from tests.wires.replies import DONE_EVENT, chat_body, chunk

OPENAI = "https://api.openai.com/v1/chat/completions"
ASK: dict[str, Any] = {"model": "gpt-5.6", "messages": [{"role": "user", "content": "hi"}]}
STREAM: dict[str, Any] = {**ASK, "stream": True}
CHUNKS = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": f"w{i} "}) for i in range(5))]
FRAMES = [frame(event) for event in (*CHUNKS, chunk({}, "length"), DONE_EVENT)]


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Any:
    """Both libraries, which are alike."""
    return request.param


def scripted(library: Any, *replies: Reply, **options: Any) -> Any:
    """A client whose every request is answered by the next reply, wherever it goes."""
    return library.Client(transport=ScriptedProvider(list(replies)).transport(), **options)


def ascripted(library: Any, *replies: Reply, **options: Any) -> Any:
    """The same, async."""
    return library.AsyncClient(transport=ScriptedProvider(list(replies)).transport(), **options)


class Pieces:
    """A body's pieces, and how many have been asked for."""

    def __init__(self, library: Any, pieces: list[bytes], error: Exception | None = None) -> None:
        self.taken = 0
        self.closed = False
        outer = self

        class Body(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[misc]  # either library's
            def __iter__(self) -> Iterator[bytes]:
                for piece in pieces:
                    outer.taken += 1
                    yield piece
                if error is not None:
                    raise error

            async def __aiter__(self) -> AsyncIterator[bytes]:
                for piece in self:
                    yield piece

            def close(self) -> None:
                outer.closed = True

            async def aclose(self) -> None:
                outer.closed = True

        self.body = Body()

    def client(self, library: Any, **headers: str) -> Any:
        headers = {"content-type": "text/event-stream", **headers}
        return library.Client(
            transport=library.MockTransport(lambda request: library.Response(200, headers=headers, stream=self.body))
        )

    def aclient(self, library: Any) -> Any:
        async def answer(request: Any) -> Any:
            return library.Response(200, headers={"content-type": "text/event-stream"}, stream=self.body)

        return library.AsyncClient(transport=library.MockTransport(answer))


# --- Whole answers -------------------------------------------------------------------------------------------------


def test_a_call_is_announced_with_what_was_asked_and_what_came(records: Records, library: Any) -> None:
    """One record holds the request's facts and the response's stop, usage, id and model; the response is untouched."""
    client = scripted(library, truncate("One two three", after=2))
    response = client.post(OPENAI, json={**ASK, "max_completion_tokens": 17, "temperature": 0.5, "seed": 3})
    assert type(response) is library.Response
    assert response.json()["choices"][0]["finish_reason"] == "length"
    assert response.is_closed
    assert response.elapsed.total_seconds() >= 0
    assert response.num_bytes_downloaded == len(response.content)
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw, ended.error) == (StopReason.MAX_TOKENS, "length", None)
    assert ended.usage is not None
    assert ended.usage.output_tokens == 2
    assert ended.response_id == response.json()["id"]
    started = ended.started
    assert (started.provider, started.model, started.maximum) == ("openai", "gpt-5.6", 17)
    assert (started.temperature, started.seed, started.stream) == (0.5, 3, False)
    assert (started.server_address, started.server_port) == ("api.openai.com", None)


async def test_an_async_call_is_announced(records: Records, library: Any) -> None:
    """`AsyncClient` is observed as `Client` is, and its `send` is still a coroutine function."""
    assert inspect.iscoroutinefunction(library.AsyncClient.send)
    async with ascripted(library, say("Hello")) as client:
        response = await client.post(OPENAI, json=ASK)
    assert type(response) is library.Response
    assert records.only().stop.reason is StopReason.END_TURN


BEDROCK = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/eu.anthropic.claude-9%3A0"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/gemini-3-pro"
VERTEX = (
    "https://europe-west4-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google/models/gemini-3-pro"
)
MESSAGES = [{"role": "user", "content": "hi"}]
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
CONVERSE = {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}

HOSTS = [
    pytest.param("https://api.openai.com/v1/responses", {"model": "m", "input": "hi"}, "openai", id="responses"),
    pytest.param("https://api.openai.com/v1/completions", {"model": "m", "prompt": "hi"}, "openai", id="completions"),
    pytest.param("https://api.groq.com/openai/v1/chat/completions", ASK, "groq", id="groq"),
    pytest.param("https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=1",
                 {"messages": MESSAGES}, "azure.ai.openai", id="azure"),
    pytest.param("https://api.anthropic.com/v1/messages", {**ASK, "max_tokens": 9}, "anthropic", id="anthropic"),
    pytest.param("https://api.deepseek.com/anthropic/v1/messages", {**ASK, "max_tokens": 9}, "deepseek", id="deepseek"),
    pytest.param("https://api.cohere.com/v2/chat", ASK, "cohere", id="cohere"),
    pytest.param("http://localhost:11434/api/chat", {**ASK, "stream": False}, "ollama", id="ollama"),
    pytest.param("http://127.0.0.1:11434/api/generate", {"model": "m", "prompt": "hi"}, "ollama", id="generate"),
    pytest.param("http://localhost:1234/v1/chat/completions", ASK, "lmstudio", id="lmstudio"),
    pytest.param(f"{GEMINI}:generateContent", CONTENTS, "gcp.gemini", id="gemini"),
    pytest.param(f"{GEMINI}:streamGenerateContent?alt=sse", CONTENTS, "gcp.gemini", id="gemini stream"),
    pytest.param(f"{VERTEX}:generateContent", CONTENTS, "gcp.vertex_ai", id="vertex"),
    pytest.param(f"{BEDROCK}/converse", CONVERSE, "aws.bedrock", id="converse"),
    pytest.param(f"{BEDROCK}/converse-stream", CONVERSE, "aws.bedrock", id="converse stream"),
    pytest.param(f"{BEDROCK}/invoke-with-response-stream", {"messages": MESSAGES, "max_tokens": 9,
                 "anthropic_version": "bedrock-2023-05-31"}, "aws.bedrock", id="invoke stream"),
]  # fmt: skip


@pytest.mark.parametrize(("url", "body", "provider"), HOSTS)
def test_every_format_at_its_home(records: Records, library: Any, url: str, body: Any, provider: str) -> None:
    """Host and path say who answers and in which format: lines, events and AWS's messages are read alike."""
    response = scripted(library, truncate("One two three", after=2)).post(url, json=body)
    assert response.is_success, response.text
    ended = records.only()
    assert (ended.started.provider, ended.stop.reason) == (provider, StopReason.MAX_TOKENS)
    assert ended.output_chars == len("One two")
    assert ended.started.stream is ("stream" in url or "api/generate" in url)
    if "bedrock" in url or "gemini" in url:
        assert ended.started.model in ("eu.anthropic.claude-9:0", "gemini-3-pro")


def test_gemini_streams_an_array(records: Records, library: Any) -> None:
    """Without `alt=sse` the stream is one JSON array, whose items are read as events; cut, it is no answer."""
    one = {"candidates": [{"content": {"parts": [{"text": "One "}], "role": "model"}}], "modelVersion": "gemini-3-pro"}
    last = {"candidates": [{"content": {"parts": [{"text": "two"}], "role": "model"}, "finishReason": "MAX_TOKENS"}]}
    data = json.dumps([one, last]).encode()
    for pieces in ([data[:50], data[50:]], [data[:50]]):
        client = Pieces(library, pieces).client(library, **{"content-type": "application/json"})
        with client.stream("POST", f"{GEMINI}:streamGenerateContent", json=CONTENTS) as response:
            assert response.read() == b"".join(pieces)
    whole, part = records.ended
    assert (whole.stop.reason, whole.output_chars) == (StopReason.MAX_TOKENS, 7)
    assert part.stop.reason is StopReason.MISSING


ELSEWHERE = [
    pytest.param("https://example.com/v1/chat/completions", {"json": ASK}, id="an answer that is no model's"),
    pytest.param("https://example.com/v1/chat/completions", {"json": {"a": "b"}}, id="a request that asks no model"),
    pytest.param("https://api.openai.com/v1/embeddings", {"json": {"model": "m", "input": "hi"}}, id="embeddings"),
    pytest.param("http://localhost:11434/api/embed", {"json": {"model": "m", "input": "hi"}}, id="ollama's"),
    pytest.param("https://api.anthropic.com/v1/messages/count_tokens", {"json": ASK}, id="counting"),
]  # fmt: skip


@pytest.mark.parametrize(("url", "how"), ELSEWHERE)
def test_what_is_no_call_of_a_model_passes(records: Records, library: Any, url: str, how: dict[str, Any]) -> None:
    """Other hosts, other paths, other bodies: nothing is announced, and what comes back comes back."""
    client = library.Client(transport=library.MockTransport(lambda request: library.Response(200, text="fine")))
    assert client.post(url, **how).text == "fine"
    assert client.get(url).text == "fine"
    assert not records.ended


@pytest.mark.parametrize("sent", [b"{", b"[]", b""], ids=["broken", "no object", "nothing"])
def test_a_request_that_is_refused_unread_is_a_call(records: Records, library: Any, sent: bytes) -> None:
    """Of a body that is no JSON object nothing is known but that the provider said no to it."""
    refusal = library.Response(400, json={"error": {"message": "could not parse", "type": "invalid_request_error"}})
    client = library.Client(transport=library.MockTransport(lambda request: refusal))
    assert client.post(OPENAI, content=sent, headers={"content-type": "application/json"}).status_code == 400
    ended = records.only()
    assert (ended.started.model, ended.stop.reason) == ("", StopReason.ERROR)
    assert attributes.error_type(ended.error) == "400"


def test_fetching_a_response_is_no_call(records: Records, library: Any) -> None:
    """GET of a response by its id asks no model."""
    client = library.Client(transport=library.MockTransport(lambda request: library.Response(200, json={})))
    client.get("https://api.openai.com/v1/responses/resp_1")
    assert not records


def test_a_request_whose_body_is_a_stream_is_not_read(records: Records, library: Any) -> None:
    """The call is announced without what it asks for: its body is the transport's to read, once."""
    data = json.dumps(ASK).encode()
    client = scripted(library, say("Hello"))
    headers = {"content-type": "application/json", "content-length": str(len(data))}
    response = client.post(OPENAI, content=iter([data]), headers=headers)
    assert response.is_success
    ended = records.only()
    assert (ended.started.model, ended.stop.reason) == ("", StopReason.END_TURN)


def test_an_answer_that_is_not_json(records: Records, library: Any) -> None:
    """A page instead of an answer: unreadable, and the host gets it."""
    page = library.Response(200, text="<html>", headers={"content-type": "text/html"})
    client = library.Client(transport=library.MockTransport(lambda request: page))
    assert client.post(OPENAI, json=ASK).text == "<html>"
    stop = records.only().stop
    assert (stop.reason, stop.detail) == (StopReason.UNKNOWN, exchange.UNREADABLE)


# --- Streams -------------------------------------------------------------------------------------------------------

READS: dict[str, Callable[[Any], Any]] = {
    "iter_lines": lambda response: "\n".join(response.iter_lines()),
    "iter_text": lambda response: "".join(response.iter_text()),
    "iter_bytes": lambda response: b"".join(response.iter_bytes(7)),
    "iter_raw": lambda response: b"".join(response.iter_raw()),
    "read": lambda response: response.read(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_stream_read_to_its_end(records: Records, library: Any, read: Callable[[Any], Any]) -> None:
    """However the host reads it, every byte reaches it, and the end is one record."""
    client = scripted(library, truncate("One two three", after=2))
    with client.stream("POST", OPENAI, json=STREAM) as response:
        assert not records.ended
        assert type(response) is library.Response
        data = read(response)
    assert "finish_reason" in (data if isinstance(data, str) else data.decode())
    assert response.is_closed
    assert response.num_bytes_downloaded > 100
    assert response.elapsed.total_seconds() >= 0
    ended = records.only()
    assert (ended.stop.reason, ended.output_chars, ended.started.stream) == (StopReason.MAX_TOKENS, 7, True)
    assert ended.first_chunk_s is not None


@pytest.mark.parametrize("how", ["aiter_lines", "aiter_text", "aiter_bytes", "aiter_raw", "aread"])
async def test_an_async_stream_read_to_its_end(records: Records, library: Any, how: str) -> None:
    """The same, async."""
    async with ascripted(library, truncate("One two three", after=2)) as client:
        async with client.stream("POST", OPENAI, json=STREAM) as response:
            if how == "aread":
                await response.aread()
            else:
                assert [piece async for piece in getattr(response, how)()]
        assert response.is_closed
    ended = records.only()
    assert (ended.stop.reason, ended.output_chars) == (StopReason.MAX_TOKENS, 7)


def test_a_stream_that_is_fetched_whole(records: Records, library: Any) -> None:
    """A host that streams without saying so to the library gets all of the events at once; so do we."""
    response = scripted(library, truncate("One two three", after=2)).post(OPENAI, json=STREAM)
    assert response.text.startswith("data:")
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_nothing_is_read_ahead(library: Any) -> None:
    """The transport gives as many pieces as without us, when the host asks and not before."""

    def taken() -> list[int]:
        pieces = Pieces(library, FRAMES)
        request = library.Request("POST", OPENAI, json=STREAM)
        response = pieces.client(library).send(request, stream=True)
        counts = [pieces.taken]
        chunks = response.iter_bytes()
        for _ in range(3):
            next(chunks)
            counts.append(pieces.taken)
        response.close()
        assert pieces.closed
        return counts

    bare = taken()
    instrument()
    try:
        stop = announce.listen(lambda record: None)
        assert taken() == bare
        stop()
    finally:
        uninstrument()


def test_a_stream_that_its_host_leaves(records: Records, library: Any) -> None:
    """Closed before its reason came, it is cancelled, and not truncated."""
    with Pieces(library, FRAMES).client(library).stream("POST", OPENAI, json=STREAM) as response:
        next(response.iter_lines())
    settle()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.truncated, ended.error) == (StopReason.CANCELLED, False, None)


def test_a_stream_that_is_closed_after_its_reason_came(records: Records, library: Any) -> None:
    """Hosts break at `[DONE]`: the reason stands."""
    pieces = [*FRAMES, b": more\n\n"]
    with Pieces(library, pieces).client(library).stream("POST", OPENAI, json=STREAM) as response:
        for line in response.iter_lines():
            if line == "data: [DONE]":
                break
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_a_host_that_raises_within_the_block(records: Records, library: Any) -> None:
    """Its exception is its own, and comes through; the call was cancelled."""
    client = Pieces(library, FRAMES).client(library)

    def ask() -> None:
        with client.stream("POST", OPENAI, json=STREAM) as response:
            next(response.iter_lines())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask()
    settle()
    assert records.only().stop.reason is StopReason.CANCELLED


@pytest.mark.parametrize("read", [pytest.param(0, id="never read"), pytest.param(2, id="read in part")])
def test_an_abandoned_stream(records: Records, library: Any, read: int) -> None:
    """A response that is dropped is cancelled, once the garbage collector has found it."""
    request = library.Request("POST", OPENAI, json=STREAM)
    response = Pieces(library, FRAMES).client(library).send(request, stream=True)
    chunks = response.iter_bytes()
    for _ in range(read):
        next(chunks)
    assert not records.ended
    del response, chunks
    settle()
    stop = records.only().stop
    assert stop.reason is StopReason.CANCELLED
    assert stop.detail == exchange.ABANDONED


async def test_an_abandoned_async_stream(records: Records, library: Any) -> None:
    """The same, async, read in part."""
    request = library.Request("POST", OPENAI, json=STREAM)
    response = await Pieces(library, FRAMES).aclient(library).send(request, stream=True)
    chunks = response.aiter_bytes()
    await anext(chunks)
    del response, chunks
    while not records.ended:
        await asyncio.sleep(0)  # the loop closes the library's generators
        settle()
    assert records.only().stop.reason is StopReason.CANCELLED


def test_abandoned_streams_leave_nothing(records: Records, library: Any) -> None:
    """Neither a reading nor a client that nobody has any more is kept."""
    for _ in range(200):
        request = library.Request("POST", OPENAI, json=STREAM)
        Pieces(library, FRAMES).client(library).send(request, stream=True)
        del request
    settle()
    assert len(records.ended) == 200
    assert len(records.started) == len(records.ended)


def test_a_stream_that_is_cut_without_an_error(records: Records, library: Any) -> None:
    """The end of the body without a finish reason is `missing`, which is a truncation."""
    client = scripted(library, cut("One two three", after=2, tidy=True))
    with client.stream("POST", OPENAI, json=STREAM) as response:
        response.read()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.truncated, ended.error) == (StopReason.MISSING, True, None)


def test_a_stream_that_loses_its_connection(records: Records, library: Any) -> None:
    """A transport error within a stream is `missing`, with the library's exception, which comes through."""
    client = scripted(library, cut("One two three", after=2))
    with (
        pytest.raises(library.RemoteProtocolError) as raised,
        client.stream("POST", OPENAI, json=STREAM) as response,
    ):
        response.read()
    ended = records.only()
    assert (ended.stop.reason, ended.error) == (StopReason.MISSING, raised.value)


def test_a_stream_whose_provider_sends_an_error(records: Records, library: Any) -> None:
    """An error event is an error, not a truncation, although nobody raises it."""
    error = frame(Event(None, {"error": {"message": "overloaded", "type": "server_error"}}))
    with Pieces(library, [*FRAMES[:3], error]).client(library).stream("POST", OPENAI, json=STREAM) as response:
        response.read()
    ended = records.only()
    assert ended.stop.reason is StopReason.ERROR
    assert ended.error is not None


async def test_a_cancelled_stream(records: Records, library: Any) -> None:
    """A task that is cancelled while it waits for bytes has cancelled its call."""
    begun = asyncio.Event()

    class Waits(library.AsyncByteStream):  # type: ignore[misc]  # either library's
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield FRAMES[0]
            begun.set()
            await asyncio.Event().wait()

    async def answer(request: Any) -> Any:
        return library.Response(200, headers={"content-type": "text/event-stream"}, stream=Waits())

    async def ask() -> None:
        client = library.AsyncClient(transport=library.MockTransport(answer))
        async with client.stream("POST", OPENAI, json=STREAM) as response:
            await response.aread()

    task = asyncio.create_task(ask())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert records.only().stop.reason is StopReason.CANCELLED


async def test_a_request_that_is_cancelled(records: Records, library: Any) -> None:
    """Before any answer came, too."""
    begun = asyncio.Event()

    async def answer(request: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    client = library.AsyncClient(transport=library.MockTransport(answer))
    task = asyncio.create_task(client.post(OPENAI, json=ASK))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert records.only().stop.reason is StopReason.CANCELLED


@pytest.mark.parametrize("raw", [False, True], ids=["iter_bytes", "iter_raw"])
def test_a_compressed_stream(records: Records, library: Any, raw: bool) -> None:
    """It is unpacked once more, for us alone, also where the host takes the bytes as they travel."""
    packed = gzip.compress(b"".join(FRAMES))
    pieces = [packed[at : at + 40] for at in range(0, len(packed), 40)]
    client = Pieces(library, pieces).client(library, **{"content-encoding": "gzip"})
    with client.stream("POST", OPENAI, json=STREAM) as response:
        read = b"".join(response.iter_raw() if raw else response.iter_bytes())
    assert read == (packed if raw else b"".join(FRAMES))
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_what_the_host_calls_while_it_reads_is_its_own(records: Records, library: Any) -> None:
    """The scope of a call is open while it is sent, not while the host reads: a call in between is another."""
    client = scripted(library, say("One two"), say("Three"))
    with client.stream("POST", OPENAI, json=STREAM) as response:
        lines = response.iter_lines()
        next(lines)
        client.post(OPENAI, json=ASK)
        list(lines)
    assert [ended.stop.reason for ended in records.ended] == [StopReason.END_TURN] * 2
    assert len(records.started) == 2


def test_a_response_may_be_copied_and_pickled(records: Records, library: Any) -> None:
    """Nothing of ours stays in the way."""
    response = scripted(library, say("Hello")).post(OPENAI, json=ASK)
    with scripted(library, say("Hello")).stream("POST", OPENAI, json=STREAM) as streamed:
        streamed.read()
    for read in (response, streamed):
        assert pickle.loads(pickle.dumps(read)).content == read.content
        assert copy.copy(read).content == read.content


# --- Errors, redirects, hooks --------------------------------------------------------------------------------------

ERRORS = [
    pytest.param(fail(400, "context_length_exceeded"), StopReason.CONTEXT_WINDOW_EXCEEDED, id="window"),
    pytest.param(fail(429), StopReason.ERROR, id="rate limit"),
    pytest.param(fail(500), StopReason.ERROR, id="server"),
]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("reply", "reason"), ERRORS)
def test_an_error_answer(records: Records, library: Any, reply: Reply, reason: StopReason, streamed: bool) -> None:
    """What it says of the stop is recorded; nobody raised, so the error is the one that the answer means."""
    client = scripted(library, reply)
    if streamed:
        with client.stream("POST", OPENAI, json=STREAM) as response:
            response.read()
    else:
        response = client.post(OPENAI, json=ASK)
    ended = records.only()
    assert response.is_error
    assert ended.stop.reason is reason
    assert isinstance(ended.error, endturn.ProviderError)
    assert ended.error.status == response.status_code


def test_an_error_answer_that_nobody_reads(records: Records, library: Any) -> None:
    """Its status alone makes it an error, and not a cancellation."""
    with scripted(library, fail(500)).stream("POST", OPENAI, json=STREAM) as response:
        assert response.status_code == 500
    assert records.only().stop.reason is StopReason.ERROR


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_error_that_a_hook_raises(records: Records, library: Any, streamed: bool) -> None:
    """`raise_for_status` in an event hook: the exception is the host's, and comes through."""
    client = scripted(
        library, fail(429), event_hooks={"response": [lambda response: response.raise_for_status() and None]}
    )
    with pytest.raises(library.HTTPStatusError) as raised:
        client.send(library.Request("POST", OPENAI, json=STREAM if streamed else ASK), stream=streamed)
    ended = records.only()
    assert (ended.stop.reason, ended.error) == (StopReason.ERROR, raised.value)


def test_a_hook_that_reads_the_stream(records: Records, library: Any) -> None:
    """What a hook has read is read: the answer is there before the host has the response."""
    client = scripted(
        library, truncate("One two", after=1), event_hooks={"response": [lambda found: found.read() and None]}
    )
    with client.stream("POST", OPENAI, json=STREAM) as response:
        assert records.only().stop.reason is StopReason.MAX_TOKENS
        assert b"".join(response.iter_bytes()) == response.content


@pytest.mark.parametrize(
    ("error", "detail"), [("ConnectError", None), ("ReadTimeout", "timeout")], ids=["no connection", "timeout"]
)
def test_no_answer(records: Records, library: Any, error: str, detail: str | None) -> None:
    """The library's exception comes through, and is the record's."""
    made = getattr(library, error)("gone")

    def answer(request: Any) -> Any:
        raise made

    with pytest.raises(getattr(library, error)):
        library.Client(transport=library.MockTransport(answer)).post(OPENAI, json=ASK)
    ended = records.only()
    assert (ended.stop.reason, ended.stop.detail, ended.error) == (StopReason.ERROR, detail, made)


def test_a_server_that_hangs_up(records: Records, library: Any) -> None:
    """No answer at all is an error."""
    with pytest.raises(library.RemoteProtocolError):
        scripted(library, hang_up()).post(OPENAI, json=ASK)
    assert records.only().stop.reason is StopReason.ERROR


def redirecting(library: Any, **options: Any) -> Any:
    """A client whose first request is sent on."""

    def answer(request: Any) -> Any:
        if request.url.path.startswith("/v1"):
            return library.Response(307, headers={"location": "/proxy/v1/chat/completions"})
        return library.Response(200, json=chat_body({"content": "Hello"}))

    return library.Client(transport=library.MockTransport(answer), **options)


def test_a_redirect_that_is_followed(records: Records, library: Any) -> None:
    """Two requests, one call."""
    response = redirecting(library, follow_redirects=True).post(OPENAI, json=ASK)
    assert len(response.history) == 1
    assert records.only().stop.reason is StopReason.END_TURN


def test_a_redirect_that_is_not_followed(records: Records, library: Any) -> None:
    """It is no answer: the request that follows it is the one that is recorded."""
    assert redirecting(library).post(OPENAI, json=ASK).status_code == 307
    assert not records.ended


def test_an_auth_flow_is_part_of_the_call(records: Records, library: Any) -> None:
    """A 401 that its auth flow answers is no call of its own."""

    class Auth(library.Auth):  # type: ignore[misc]  # either library's
        def auth_flow(self, request: Any) -> Iterator[Any]:
            response: Any = yield request
            if response.status_code == 401:
                request.headers["authorization"] = "Bearer new"
                yield request

    client = scripted(library, fail(401), say("Hello"))
    assert client.post(OPENAI, json=ASK, auth=Auth()).is_success
    assert records.only().stop.reason is StopReason.END_TURN


# --- Layers --------------------------------------------------------------------------------------------------------


def test_an_sdks_attempts_are_counted_once_each(records: Records) -> None:
    """openai sends through httpx2: each attempt is recorded, and nothing beside it."""
    provider = ScriptedProvider([fail(500, retry_after_s=0), say("Hello"), truncate("One two", after=1)])
    client = openai.OpenAI(api_key="none", http_client=httpx2.Client(transport=provider.transport()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", lambda seconds: None)
        client.chat.completions.create(**ASK)
    list(client.chat.completions.create(**STREAM))
    assert [ended.stop.reason for ended in records.ended] == [
        StopReason.ERROR,
        StopReason.END_TURN,
        StopReason.MAX_TOKENS,
    ]
    assert len(records.started) == 3


def test_our_own_client_is_not_counted_again(records: Records, library: Any) -> None:
    """What endturn's client sends through the host's httpx is one call."""
    request = Request(model="m", messages=(Message(role="user", content="hi"),))
    client = endturn.Client("openai", api_key="none", http=scripted(library, say("Hello"), say("Hello")))
    client.complete(request)
    list(client.stream(request))
    assert len(records.started) == len(records.ended) == 2


def test_a_wrapper_over_http_is_one_call(records: Records, library: Any) -> None:
    """The record is that of the HTTP call, which knows more."""
    client = scripted(library, truncate("One two", after=1))

    @observe_provider_call(provider="outer")
    def ask(text: str) -> Any:
        return client.post(OPENAI, json=ASK).json()

    ask("hi")
    ended = records.only()
    assert (ended.started.provider, ended.stop.reason) == ("openai", StopReason.MAX_TOKENS)


def test_all_layers_at_once_count_each_attempt_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Controller, decorator, SDK, HTTP client over 500, 500, 200: one answer, two errors, one turn."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    provider = ScriptedProvider([fail(500), fail(500), say("Hello")])
    client = openai.OpenAI(api_key="n", http_client=httpx2.Client(transport=provider.transport()), max_retries=2)
    speaks = wire("openai_chat")

    @observe_provider_call(provider="outer")
    def ask(request: Request) -> ChatResponse:
        answer = client.chat.completions.create(**speaks.encode(request))
        return speaks.decode(answer.model_dump(), ctx=Context())

    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    instrument(tracer_provider=TracerProvider(shutdown_on_exit=False), meter_provider=meters)
    try:
        request = Request(model="m", messages=(Message(role="user", content="hi"),))
        result = endturn.ContinuationController(ask, provider_name="openai").run(request)
        counted = points(reader.get_metrics_data())
    finally:
        uninstrument()
        cleanup.run()
        meters.shutdown()
    assert result.text == "Hello"
    assert len(provider.received) == 3
    responses = {key: value for key, value in counted["endturn.responses"].items() if value}
    assert responses == {("openai", "m", "end_turn"): 1, ("openai", "m", "error"): 2}
    assert sum(counted["endturn.turns"].values()) == 1


# --- Patching ------------------------------------------------------------------------------------------------------


def test_a_clients_subclass_is_observed(records: Records, library: ModuleType) -> None:
    """One that has a `send` of its own, too."""

    class Mine(library.Client):  # type: ignore[misc,name-defined]  # either library's
        def send(self, *args: Any, **kwargs: Any) -> Any:
            return super().send(*args, **kwargs)

    Mine(transport=ScriptedProvider([say("Hello")]).transport()).post(OPENAI, json=ASK)
    assert records.only().stop.reason is StopReason.END_TURN
