"""Calls over plain httpx and httpx2: what these two have of their own, and what stands on them.

What every client does alike is in tests/instrumentation/test_exchanges.py.
"""

from __future__ import annotations

import copy
import gzip
import inspect
import json
import pickle
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import httpx2
import openai
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

import endturn
from endturn import hooks
from endturn.chat import ChatResponse, Message, Request
from endturn.formats import Context, format_of
from endturn.formats.framing import frame
from endturn.instrumentation.decorators import observe_provider_call
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.scripted import Reply, ScriptedProvider, fail, say, truncate
from endturn.stop import StopReason
from endturn.telemetry import attributes, cleanup
from tests.telemetry.mocked import CHUNKS, CUT_STREAM, Records, settle
from tests.telemetry.stage import points

OPENAI = "https://api.openai.com/v1/chat/completions"
ASK: dict[str, Any] = {"model": "gpt-5.6", "messages": [{"role": "user", "content": "hi"}]}
STREAM: dict[str, Any] = {**ASK, "stream": True}
FRAMES = [frame(event) for event in CUT_STREAM]


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Any:
    """Both libraries, which are alike."""
    return request.param


def scripted(library: Any, *replies: Reply, **options: Any) -> Any:
    """A client whose every request is answered by the next reply, wherever it goes."""
    return library.Client(transport=ScriptedProvider(list(replies)).transport(), **options)


class Pieces:
    """A body's pieces, and how many have been asked for."""

    def __init__(self, library: Any, pieces: list[bytes], error: Exception | None = None) -> None:
        self.taken = 0
        self.closed = False
        outer = self

        class Body(library.SyncByteStream):  # type: ignore[misc]  # either library's
            def __iter__(self) -> Iterator[bytes]:
                for piece in pieces:
                    outer.taken += 1
                    yield piece
                if error is not None:
                    raise error

            def close(self) -> None:
                outer.closed = True

        self.body = Body()

    def client(self, library: Any, **headers: str) -> Any:
        headers = {"content-type": "text/event-stream", **headers}
        return library.Client(
            transport=library.MockTransport(lambda request: library.Response(200, headers=headers, stream=self.body))
        )


# --- Formats at home -----------------------------------------------------------------------------------------------

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
def test_every_format_at_its_home(records: Records, url: str, body: Any, provider: str) -> None:
    """Host and path say who answers and in which format: lines, events and AWS's messages are read alike."""
    response = scripted(httpx, truncate("One two three", after=2)).post(url, json=body)
    assert response.is_success, response.text
    ended = records.only()
    assert (ended.started.provider, ended.stop.reason) == (provider, StopReason.MAX_TOKENS)
    assert ended.output_chars == len("One two")
    assert ended.started.stream is ("stream" in url or "api/generate" in url)
    if "bedrock" in url or "gemini" in url:
        assert ended.started.model in ("eu.anthropic.claude-9:0", "gemini-3-pro")


def test_gemini_streams_an_array(records: Records) -> None:
    """Without `alt=sse` the stream is one JSON array, whose items are read as events; cut, it is no answer."""
    one = {"candidates": [{"content": {"parts": [{"text": "One "}], "role": "model"}}], "modelVersion": "gemini-3-pro"}
    last = {"candidates": [{"content": {"parts": [{"text": "two"}], "role": "model"}, "finishReason": "MAX_TOKENS"}]}
    data = json.dumps([one, last]).encode()
    for pieces in ([data[:50], data[50:]], [data[:50]]):
        client = Pieces(httpx, pieces).client(httpx, **{"content-type": "application/json"})
        assert client.post(f"{GEMINI}:streamGenerateContent", json=CONTENTS).content == b"".join(pieces)
    whole, part = records.ended
    assert (whole.stop.reason, whole.output_chars) == (StopReason.MAX_TOKENS, 7)
    assert part.stop.reason is StopReason.MISSING


@pytest.mark.parametrize("sent", [b"{", b"[]", b""], ids=["broken", "no object", "nothing"])
def test_a_request_that_is_refused_unread_is_a_call(records: Records, sent: bytes) -> None:
    """Of a body that is no JSON object nothing is known but that the provider said no to it."""
    refusal = httpx.Response(400, json={"error": {"message": "could not parse", "type": "invalid_request_error"}})
    client = httpx.Client(transport=httpx.MockTransport(lambda request: refusal))
    assert client.post(OPENAI, content=sent, headers={"content-type": "application/json"}).status_code == 400
    ended = records.only()
    assert (ended.started.model, ended.stop.reason) == ("", StopReason.ERROR)
    assert attributes.error_type(ended.error) == "400"


# --- The response is the library's ---------------------------------------------------------------------------------


def test_the_response_is_untouched(records: Records, library: Any) -> None:
    """Its type, what it measures, and what a copy or a pickle of it has, whole and streamed."""
    assert inspect.iscoroutinefunction(library.AsyncClient.send)
    whole = scripted(library, say("Hello")).post(OPENAI, json=ASK)
    with scripted(library, say("Hello")).stream("POST", OPENAI, json=STREAM) as streamed:
        assert not {name for name, value in vars(streamed).items() if callable(value) and name != "stream"}
        streamed.read()
    for response in (whole, streamed):
        assert type(response) is library.Response
        assert response.is_closed
        assert response.elapsed.total_seconds() >= 0
        assert response.num_bytes_downloaded == len(response.content)
        assert pickle.loads(pickle.dumps(response)).content == copy.copy(response).content == response.content
    assert len(records.ended) == 2


READS: dict[str, Callable[[Any], Any]] = {
    "iter_lines": lambda response: "\n".join(response.iter_lines()),
    "iter_text": lambda response: "".join(response.iter_text()),
    "iter_bytes": lambda response: b"".join(response.iter_bytes(7)),
    "iter_raw": lambda response: b"".join(response.iter_raw()),
    "read": lambda response: response.read(),
}


def test_a_stream_by_every_way_of_reading(records: Records, library: Any) -> None:
    """However the host reads it, or has it read whole, every byte reaches it, and the end is one record."""
    client = scripted(library, *[truncate("One two three", after=2)] * (len(READS) + 1))
    for read in READS.values():
        with client.stream("POST", OPENAI, json=STREAM) as response:
            assert not records.ended
            data = read(response)
        assert "finish_reason" in (data if isinstance(data, str) else data.decode())
        ended = records.only()
        assert (ended.stop.reason, ended.output_chars, ended.started.stream) == (StopReason.MAX_TOKENS, 7, True)
        assert ended.first_chunk_s is not None
        records.clear()
    assert client.post(OPENAI, json=STREAM).text.startswith("data:")
    assert records.only().stop.reason is StopReason.MAX_TOKENS


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [(1, 0), (2, 1), (8, 7), (9, 4), (16, 7), (17, 4), (1_000, 7)],
)
def test_the_times_between_chunks(records: Records, pieces: int, kept: int) -> None:
    """Of a short stream all of them; of a long one as many as a short one has, from all of its length."""
    word, *end = FRAMES[1:2] + FRAMES[-3:]
    client = Pieces(httpx, [word] * (pieces - 1) + [b"".join(end)]).client(httpx)
    with client.stream("POST", OPENAI, json=STREAM) as response:
        assert sum(1 for _ in response.iter_raw()) == pieces
    ended = records.only()
    assert ended.first_chunk_s is not None
    assert len(ended.chunk_gaps_s) == kept
    assert min(ended.chunk_gaps_s, default=0) >= 0
    assert sum(ended.chunk_gaps_s) <= ended.duration_s - ended.first_chunk_s


@pytest.mark.parametrize("how", ["aiter_lines", "aiter_text", "aiter_bytes", "aiter_raw"])
async def test_an_async_stream_by_every_way_of_reading(records: Records, library: Any, how: str) -> None:
    """The same, async."""
    transport = ScriptedProvider([truncate("One two three", after=2)]).transport()
    async with library.AsyncClient(transport=transport) as client, client.stream("POST", OPENAI, json=STREAM) as found:
        assert [piece async for piece in getattr(found, how)()]
    ended = records.only()
    assert (ended.stop.reason, ended.output_chars) == (StopReason.MAX_TOKENS, 7)


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
        stop = hooks.subscribe(lambda record: None)
        assert taken() == bare
        stop()
    finally:
        uninstrument()


async def test_a_reader_that_stops_closes_what_it_read_from(records: Records, library: Any) -> None:
    """A body's generator ends with the reader, where the library sees to that, and not whenever the loop finds it."""

    async def finished(url: str) -> bool:
        left: list[bool] = []

        class Slow(library.AsyncByteStream):  # type: ignore[misc]  # either library's
            async def __aiter__(self) -> AsyncIterator[bytes]:
                try:
                    for piece in FRAMES:
                        yield piece
                finally:
                    left.append(True)

        async def answer(request: Any) -> Any:
            return library.Response(200, headers={"content-type": "text/event-stream"}, stream=Slow())

        client = library.AsyncClient(transport=library.MockTransport(answer))
        async with client.stream("POST", url, json=STREAM) as response:
            chunks = response.aiter_bytes()
            await anext(chunks)
            await chunks.aclose()
            return bool(left)

    assert await finished(OPENAI) == await finished("https://example.com/")
    settle()
    assert records.only().stop.reason is StopReason.CANCELLED


# --- Compressed ----------------------------------------------------------------------------------------------------


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


def packed(data: bytes, encoding: str) -> Any:
    """A client that is answered with these bytes."""
    pieces = [data[at : at + 40] for at in range(0, len(data), 40)]
    return Pieces(httpx2, pieces).client(httpx2, **{"content-encoding": encoding})


@pytest.mark.parametrize("raw", [False, True], ids=["iter_bytes", "iter_raw"])
@pytest.mark.parametrize(("encoding", "pack"), PACKERS.values(), ids=PACKERS)
def test_a_compressed_stream(records: Records, encoding: str, pack: Callable[[bytes], bytes], raw: bool) -> None:
    """It is unpacked once more, for us alone, also where the host takes the bytes as they travel."""
    data = pack(b"".join(FRAMES))
    with packed(data, encoding).stream("POST", OPENAI, json=STREAM) as response:
        read = b"".join(response.iter_raw() if raw else response.iter_bytes())
    assert read == (data if raw else b"".join(FRAMES))
    assert records.only().stop.reason is StopReason.MAX_TOKENS


@pytest.mark.parametrize(("encoding", "pack"), PACKERS.values(), ids=PACKERS)
def test_a_compressed_stream_that_is_cut(records: Records, encoding: str, pack: Callable[[bytes], bytes]) -> None:
    """Without a reason it is `missing`."""
    data = pack(b"".join(frame(event) for event in CHUNKS))[:-12]
    with packed(data, encoding).stream("POST", OPENAI, json=STREAM) as response:
        assert b"".join(response.iter_raw()) == data
    assert records.only().stop.reason is StopReason.MISSING


@pytest.mark.parametrize("streamed", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip", "deflate"])
def test_what_cannot_be_unpacked(
    records: Records, caplog: pytest.LogCaptureFixture, library: Any, encoding: str, streamed: bool
) -> None:
    """Without a decoder, or with one that it does not fit, a body is unreadable: no truncation, no word in the log."""
    data = bytes(range(128, 256)) * 3
    kind = "text/event-stream" if streamed else "application/json"
    client = Pieces(library, [data]).client(library, **{"content-type": kind, "content-encoding": encoding})
    with client.stream("POST", OPENAI, json={**ASK, "stream": streamed}) as response:
        assert b"".join(response.iter_raw()) == data
    stop = records.only().stop
    assert (stop.reason, stop.detail) == (StopReason.UNKNOWN, "unreadable")
    assert not caplog.records


# --- Errors and hooks ----------------------------------------------------------------------------------------------


def test_an_error_answer(records: Records, library: Any) -> None:
    """What it says of the stop is recorded; nobody raised, so the error is the one that the answer means."""
    client = scripted(library, fail(400, "context_length_exceeded"), fail(500))
    assert client.post(OPENAI, json=ASK).status_code == 400
    with client.stream("POST", OPENAI, json=STREAM) as response:  # which nobody reads
        assert response.status_code == 500
    window, error = records.ended
    assert (window.stop.reason, error.stop.reason) == (StopReason.CONTEXT_WINDOW_EXCEEDED, StopReason.ERROR)
    assert [getattr(ended.error, "status", None) for ended in records.ended] == [400, 500]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_error_that_a_hook_raises(records: Records, library: Any, streamed: bool) -> None:
    """`raise_for_status` in an event hook: the exception is the host's, and comes through."""
    client = scripted(
        library, fail(429), event_hooks={"response": [lambda response: response.raise_for_status() and None]}
    )
    with pytest.raises(library.HTTPStatusError):
        client.send(library.Request("POST", OPENAI, json=STREAM if streamed else ASK), stream=streamed)
    ended = records.only()
    assert (ended.stop.reason, attributes.error_type(ended.error)) == (StopReason.ERROR, "429")


@pytest.mark.parametrize(
    ("hook", "reason"),
    [("read", StopReason.MAX_TOKENS), ("close", StopReason.CANCELLED)],
)
def test_a_hook_that_has_done_with_the_stream(records: Records, library: Any, hook: str, reason: StopReason) -> None:
    """What it has read is read, what it closed is cancelled, before the host has the response."""
    hooks = {"response": [lambda response: getattr(response, hook)() and None]}
    with scripted(library, truncate("One two", after=1), event_hooks=hooks).stream("POST", OPENAI, json=STREAM):
        assert records.only().stop.reason is reason


@pytest.mark.parametrize(
    ("error", "detail"), [("ConnectError", None), ("ReadTimeout", "timeout")], ids=["no connection", "timeout"]
)
def test_no_answer(records: Records, library: Any, error: str, detail: str | None) -> None:
    """The library's exception comes through, and is the record's; within a stream, too."""
    made = getattr(library, error)("gone")

    def answer(request: Any) -> Any:
        raise made

    with pytest.raises(getattr(library, error)):
        library.Client(transport=library.MockTransport(answer)).post(OPENAI, json=ASK)
    client = Pieces(library, FRAMES[:3], made).client(library)
    with pytest.raises(getattr(library, error)), client.stream("POST", OPENAI, json=STREAM) as response:
        response.read()
    none, lost = records.ended
    assert (none.stop.reason, none.stop.detail, none.error) == (StopReason.ERROR, detail, made)
    assert (lost.stop.reason, lost.stop.truncated, lost.error) == (StopReason.MISSING, True, made)


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


def test_a_clients_subclass_is_observed(records: Records, library: Any) -> None:
    """One that has a `send` of its own, too."""

    class Mine(library.Client):  # type: ignore[misc]  # either library's
        def send(self, *args: Any, **kwargs: Any) -> Any:
            return super().send(*args, **kwargs)

    Mine(transport=ScriptedProvider([say("Hello")]).transport()).post(OPENAI, json=ASK)
    assert records.only().stop.reason is StopReason.END_TURN


# --- Layers --------------------------------------------------------------------------------------------------------


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
    speaks = format_of("openai_chat")

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
