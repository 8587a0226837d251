"""The openai SDK, observed: one record of every call, and nothing else changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletion
from opentelemetry.instrumentation.utils import suppress_instrumentation

from endturn.errors import ProviderError
from endturn.records import TurnOutcome
from endturn.scripted import ScriptedProvider, cut
from endturn.stop import StopReason
from endturn.wires import Event
from endturn.wires.framing import frame
from tests.telemetry.mocked import (
    ASK,
    CHUNKS,
    CUT,
    CUT_STREAM,
    STREAM,
    WHOLE,
    Answer,
    Body,
    Records,
    Server,
    achat,
    body,
    chat,
    events,
    settle,
)
from tests.wires.replies import DONE_EVENT, chat_body

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


def test_a_host_may_have_nothing_observed(records: Records) -> None:
    """OpenTelemetry's own way to say so counts here too."""
    with suppress_instrumentation():
        chat(body(WHOLE)).chat.completions.create(**ASK)
    assert not records.ended


async def test_an_async_call_is_announced(records: Records) -> None:
    """`AsyncOpenAI` is observed as `OpenAI` is."""
    result = await achat(body(WHOLE)).chat.completions.create(**ASK)
    assert type(result) is ChatCompletion
    assert records.only().stop.reason is StopReason.END_TURN
    assert [turn.outcome for turn in records.turns] == [TurnOutcome.COMPLETED]


def test_parse_of_a_whole_answer(records: Records) -> None:
    """`parse()` returns its parsed completion, and is one record."""
    result = chat(body(chat_body({"content": '{"value": 7}'}))).chat.completions.parse(**ASK, response_format=Answer)
    assert result.choices[0].message.parsed == Answer(value=7)
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
    with pytest.raises(openai.BadRequestError):
        chat(body(error, 400)).chat.completions.create(**ASK)
    ended = records.only()
    assert ended.stop.reason is reason
    assert isinstance(ended.error, ProviderError)


def test_an_answer_that_is_not_json(records: Records) -> None:
    """A proxy's HTML under status 200 tells nothing of the model: `unknown`, not `missing`."""
    page = httpx2.Response(200, headers={"content-type": "text/html"}, stream=Body([b"<html>login</html>"]))
    assert chat(page).chat.completions.create(**ASK) == "<html>login</html>"
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


def test_a_body_read_before_decompression(records: Records) -> None:
    """`iter_raw` is one way of reading among the others."""
    with chat(body(CUT)).chat.completions.with_streaming_response.create(**ASK) as raw:
        list(raw.http_response.iter_raw())
    assert records.only().stop.reason is StopReason.MAX_TOKENS


HALF = json.dumps(WHOLE).encode()[:-90]


def answer(data: bytes, error: Exception | None = None) -> httpx2.Response:
    """These bytes as a JSON body, and perhaps the loss of the connection."""
    return httpx2.Response(200, headers={"content-type": "application/json"}, stream=Body([data], error))


def test_a_raw_body_that_is_cut(records: Records, caplog: pytest.LogCaptureFixture) -> None:
    """Half a JSON body is `missing`, a truncation; that it cannot be parsed is no failure of ours."""
    client = chat(answer(HALF), answer(HALF), *scripted_cut())
    assert client.chat.completions.with_raw_response.create(**ASK).content == HALF
    with client.chat.completions.with_streaming_response.create(**ASK) as raw:
        assert raw.read() == HALF
    with client.chat.completions.with_streaming_response.create(**ASK) as raw:
        raw.read()
    assert [(ended.stop.reason, ended.stop.truncated) for ended in records.ended] == [(StopReason.MISSING, True)] * 4
    assert [ended.error for ended in records.ended] == [None] * 4
    assert not caplog.records


def scripted_cut() -> list[httpx2.Response]:
    """The scripted provider's idea of a cut body; to ask for it is an exchange, too."""
    provider = ScriptedProvider([cut("Hello there, and more.", after=2, tidy=True)])
    with httpx2.Client(transport=provider.transport()) as http:
        found = http.post("http://scripted/v1/chat/completions", json={**ASK, "max_tokens": 100})
    return [answer(found.content)]


async def test_an_async_raw_body_that_is_cut(records: Records, caplog: pytest.LogCaptureFixture) -> None:
    """The same, asynchronously."""
    client = achat(answer(HALF), answer(HALF))
    await client.chat.completions.with_raw_response.create(**ASK)
    async with client.chat.completions.with_streaming_response.create(**ASK) as raw:
        await raw.read()
    assert [ended.stop.reason for ended in records.ended] == [StopReason.MISSING] * 2
    assert not caplog.records


def test_a_raw_body_whose_connection_is_lost(records: Records, caplog: pytest.LogCaptureFixture) -> None:
    """`missing`, with what the host got."""
    client = chat(answer(HALF, httpx2.ReadError("gone")))
    with (
        pytest.raises(httpx2.ReadError) as raised,
        client.chat.completions.with_streaming_response.create(**ASK) as raw,
    ):
        raw.read()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.truncated, ended.error) == (StopReason.MISSING, True, raised.value)
    assert not caplog.records


def test_a_raw_body_that_is_left_in_part(records: Records, caplog: pytest.LogCaptureFixture) -> None:
    """A host that stops within the body has cancelled."""
    data = json.dumps(WHOLE).encode()
    reply = httpx2.Response(200, headers={"content-type": "application/json"}, stream=Body([data[:50], data[50:]]))
    with chat(reply).chat.completions.with_streaming_response.create(**ASK) as raw:
        next(raw.iter_bytes())
    settle()
    assert records.only().stop.reason is StopReason.CANCELLED
    assert not caplog.records


@pytest.mark.parametrize("data", [b"<html>login</html>", b"{'a': 1}", b'{"choices": []} and more', b'{"a": nope'])
def test_a_raw_body_that_is_not_json(records: Records, caplog: pytest.LogCaptureFixture, data: bytes) -> None:
    """It is not the beginning of an answer either: `unknown`, without a word in the log."""
    client = chat(answer(data), answer(data))
    client.chat.completions.with_raw_response.create(**ASK)
    with client.chat.completions.with_streaming_response.create(**ASK) as raw:
        raw.read()
    assert [(ended.stop.reason, ended.stop.detail) for ended in records.ended] == [
        (StopReason.UNKNOWN, "unreadable")
    ] * 2
    assert not caplog.records


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


def pieces(*made: Event, at_once: bool) -> httpx2.Response:
    """A stream of these events, each for itself or all in one piece."""
    data = [frame(event) for event in made]
    body = Body([b"".join(data)] if at_once else data)
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=body)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_raw_stream_without_a_reason(records: Records, at_once: bool) -> None:
    """Read to `[DONE]` it is `missing`, as the plain stream is: it is the SDK that closes the response then."""
    made = [*CHUNKS, DONE_EVENT]
    client = chat(*(pieces(*made, at_once=at_once) for _ in range(3)))
    list(client.chat.completions.create(**ASK, stream=True))
    assert len(list(client.chat.completions.with_raw_response.create(**ASK, stream=True).parse())) == 6
    with client.chat.completions.with_streaming_response.create(**ASK, stream=True) as raw:
        list(raw.parse())
    assert [ended.stop for ended in records.ended] == [records.ended[0].stop] * 3
    assert records.ended[0].stop.reason is StopReason.MISSING


@pytest.mark.parametrize("how", ["closed", "dropped", "raised"])
def test_a_raw_stream_that_is_left(records: Records, how: str) -> None:
    """A host that stops before the end has cancelled."""
    reply = pieces(*CHUNKS, DONE_EVENT, at_once=False)
    stream: Any = chat(reply).chat.completions.with_raw_response.create(**ASK, stream=True).parse()
    next(stream)
    if how == "raised":
        with pytest.raises(KeyError), stream:
            raise KeyError
    if how == "closed":
        stream.close()
    del stream
    settle()
    assert records.only().stop.reason is StopReason.CANCELLED


async def test_an_async_raw_stream_without_a_reason(records: Records) -> None:
    """The same, asynchronously: read, and left."""
    client = achat(*(pieces(*CHUNKS, DONE_EVENT, at_once=False) for _ in range(2)))
    stream = (await client.chat.completions.with_raw_response.create(**ASK, stream=True)).parse()
    assert len([item async for item in stream]) == 6
    async with (await client.chat.completions.with_raw_response.create(**ASK, stream=True)).parse() as left:
        await anext(left)
    assert [ended.stop.reason for ended in records.ended] == [StopReason.MISSING, StopReason.CANCELLED]


@pytest.mark.parametrize("at_once", [False, True])
def test_a_raw_stream_whose_provider_sends_an_error(records: Records, at_once: bool) -> None:
    """What the provider said is an error, whatever the SDK raises of it."""
    error = Event(None, {"error": {"message": "overloaded", "type": "server_error"}})
    client = chat(*(pieces(*CHUNKS, error, DONE_EVENT, at_once=at_once) for _ in range(2)))
    with pytest.raises(openai.APIError):
        list(client.chat.completions.with_raw_response.create(**ASK, stream=True).parse())
    with client.chat.completions.with_streaming_response.create(**ASK, stream=True) as raw:
        list(raw.iter_lines())
    assert [ended.stop.reason for ended in records.ended] == [StopReason.ERROR] * 2
    assert all(isinstance(ended.error, ProviderError) for ended in records.ended)


async def test_an_async_raw_stream(records: Records) -> None:
    """The same, asynchronously."""
    client = achat(events(*STREAM), events(*STREAM))
    async with client.chat.completions.with_streaming_response.create(**ASK, stream=True) as raw:
        assert [line async for line in raw.iter_lines() if line][-1] == "data: [DONE]"
    assert records.only().stop.reason is StopReason.END_TURN
    parsed = (await client.chat.completions.with_raw_response.create(**ASK, stream=True)).parse()
    assert len([item async for item in parsed]) == 8
    assert [ended.stop.reason for ended in records.ended] == [StopReason.END_TURN] * 2


# --- What is watched, and whose it is ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(
            lambda client: client.embeddings.create(model="m", input="x", encoding_format="float"), id="embeddings"
        ),
        pytest.param(lambda client: client.models.list(), id="models"),
        pytest.param(lambda client: client.images.generate(model="m", prompt="x"), id="images"),
        pytest.param(lambda client: client.moderations.create(model="m", input="x"), id="moderations"),
        pytest.param(lambda client: client.files.content("f"), id="files"),
        pytest.param(
            lambda client: client.batches.create(
                completion_window="24h", endpoint="/v1/chat/completions", input_file_id="f"
            ),
            id="batches",
        ),
        pytest.param(lambda client: client.chat.completions.retrieve("c"), id="stored completion"),
        pytest.param(lambda client: client.chat.completions.update("c", metadata={}), id="update"),
    ],
)
def test_other_calls_pass_through(records: Records, ask: Callable[[Any], object]) -> None:
    """Only what asks a model for an answer is observed."""
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


def test_what_a_hook_asks_another_client_is_another_call(records: Records) -> None:
    """A guardrail that an HTTP hook asks by a client of its own is a call of its own, once; the outer stays one."""
    guard = chat(body(chat_body({"content": "fine"})))

    def ask(request: Any) -> None:
        guard.chat.completions.create(model="guard", messages=[{"role": "user", "content": "x"}])

    http = httpx2.Client(
        transport=httpx2.MockTransport(lambda request: body(chat_body({"content": "x"}, "length"))),
        event_hooks={"request": [ask]},
    )
    openai.OpenAI(api_key="none", max_retries=0, http_client=http).chat.completions.create(**ASK)
    assert [(ended.started.model, ended.stop.reason) for ended in records.ended] == [
        ("guard", StopReason.END_TURN),
        (ASK["model"], StopReason.MAX_TOKENS),
    ]


def test_what_a_hook_asks_over_http_is_another_call(records: Records) -> None:
    """So is what it asks by an HTTP client of its own; what the SDK's client sends stays a part of the call."""
    plain = httpx2.Client(transport=httpx2.MockTransport(lambda request: body(chat_body({"content": "fine"}))))

    def ask(request: Any) -> None:
        plain.post("https://api.openai.com/v1/chat/completions", json={"model": "guard", "messages": []})

    http = httpx2.Client(
        transport=httpx2.MockTransport(lambda request: body(chat_body({"content": "x"}))),
        event_hooks={"request": [ask]},
    )
    openai.OpenAI(api_key="none", max_retries=0, http_client=http).chat.completions.create(**ASK)
    assert [ended.started.model for ended in records.ended] == ["guard", ASK["model"]]


def test_a_transport_that_hands_a_call_on_makes_no_other(records: Records) -> None:
    """A transport that sends what it is given by another HTTP client is a part of the call."""
    inner = httpx2.Client(transport=httpx2.MockTransport(lambda request: body(chat_body({"content": "x"}))))

    def forward(request: httpx2.Request) -> httpx2.Response:
        answer = inner.post(str(request.url), content=request.content, headers={"content-type": "application/json"})
        return httpx2.Response(200, content=answer.content, headers={"content-type": "application/json"})

    http = httpx2.Client(transport=httpx2.MockTransport(forward))
    openai.OpenAI(api_key="none", max_retries=0, http_client=http).chat.completions.create(**ASK)
    assert records.only().started.model == ASK["model"]
