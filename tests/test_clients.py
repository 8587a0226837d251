"""Our HTTP clients: what comes back, whose fault an error is, and what is announced."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, nullcontext
from itertools import product
from typing import Any

import httpx
import httpx2
import pytest

from endturn import hooks
from endturn.chat import ChatResponse, Delta, Message, Request
from endturn.clients import AsyncClient, Client
from endturn.errors import DecodeError, ProviderError, ProviderTimeout, ProviderUnavailable, RequestRejected, UsageError
from endturn.events import CallEnded, CallStarted, Record, TurnEnded, TurnOutcome
from endturn.formats import format_of
from endturn.scopes import Layer, open_call
from endturn.scripted import (
    Ending,
    Reply,
    ScriptedProvider,
    call,
    cut,
    empty,
    fail,
    hang_up,
    partial_call,
    reason,
    refuse,
    say,
    think,
    truncate,
)
from endturn.stop import StopReason

FORMATS = {
    "openai_chat": ("openai", "/v1"),
    "openai_responses": ("openai", "/v1"),
    "anthropic": ("anthropic", ""),
    "gemini": ("gcp.gemini", "/v1beta"),
    "gemini_interactions": ("gcp.gemini", "/v1beta"),
    "bedrock_converse": ("aws.bedrock", ""),
    "bedrock_invoke": ("aws.bedrock", ""),
    "cohere": ("cohere", ""),
    "completions": ("openai", "/v1"),
    "ollama": ("ollama", ""),
}
"""Format → a provider that speaks it, and what stands between its host and the format's own path."""
NO_WORD = {
    "refuse": {"bedrock_converse", "cohere", "completions", "gemini", "gemini_interactions", "ollama"},
    "call": {"completions"},
}
"""Formats that cannot say it: there a model declines in plain text, or has no tools."""
NO_NULL = {"openai_responses", "gemini_interactions"}
"""Formats whose reason is the status of the whole: a stream that never says it was still in progress."""
ASKED = Request(model="m", messages=(Message(role="user", content="hi"),), max_tokens=50, temperature=0.5)
KEY = "sk-proj-0123456789abcdef"

each_format = pytest.mark.parametrize("format", FORMATS)
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def made(kind: Any, format: str, where: ScriptedProvider | str, **options: Any) -> Any:
    """A client of a server, or of a provider that answers in process."""
    name, path = FORMATS[format]
    url = where
    if isinstance(where, ScriptedProvider):
        url, options = "http://scripted", {"http": where.transport(), **options}
    return kind(name, api_key=KEY, base_url=f"{url}{path}", format=format, **options)


def answering(content: bytes, *, status: int = 200, key: str = KEY, format: str = "openai_chat") -> Client:
    """A client that is answered with these bytes."""
    answer = httpx.MockTransport(lambda _: httpx.Response(status, headers={"x-request-id": "r1"}, content=content))
    return Client(FORMATS[format][0], api_key=key, base_url="http://h/v1", format=format, http=answer)


def finished(items: list[Delta | ChatResponse]) -> tuple[str, ChatResponse]:
    """The deltas' text, and the response that must come last."""
    *deltas, response = items
    assert isinstance(response, ChatResponse)
    return "".join(delta.text for delta in deltas if isinstance(delta, Delta)), response


def asks(client: Client, stream: bool) -> ChatResponse:
    return finished(list(client.stream(ASKED)))[1] if stream else client(ASKED)


async def four(format: str, where: ScriptedProvider | str) -> list[tuple[bool, str, Any]]:
    """What each colour is given: whether it was streamed, the deltas' text, and the response or the error."""
    heard: list[tuple[bool, str, Any]] = []
    with made(Client, format, where) as sync:
        async with made(AsyncClient, format, where) as other:
            for asynchronous, stream in product((False, True), repeat=2):
                try:
                    if stream:
                        items = [item async for item in other.stream(ASKED)] if asynchronous else [*sync.stream(ASKED)]
                        heard.append((True, *finished(items)))
                    else:
                        heard.append((False, "", await other(ASKED) if asynchronous else sync(ASKED)))
                except ProviderError as error:
                    heard.append((stream, "", error))
    return heard


REPLIES = {
    "say": say("All of it."),
    "truncate": truncate("One two three", after=2),
    "refuse": refuse("No."),
    "empty": empty(),
    "unknown value": reason("some_new_value", "Hm"),
    "null": reason(None, "Hm").but(usage=None),
    "thinking alone": think("Let me see"),
    "call": call("read", {"path": "a"}, text="Reading.", id="1").also("list", {}, id="2"),
    "cut call": partial_call("write", {"path": "a.txt", "text": "long"}, after=2, id="1"),
}


@each_format
@pytest.mark.parametrize("name", REPLIES)
async def test_every_colour_returns_the_same_response(name: str, format: str) -> None:
    """Sync and async, streamed and whole, over HTTP and in process: one reply, one response."""
    provider = ScriptedProvider([REPLIES[name]], exhausted="last", format=format)
    if format in NO_WORD.get(name, ()):
        with pytest.raises(UsageError, match=f"the {format} format has no word for"):
            provider.complete(ASKED)
        return
    expected = provider.complete(ASKED)
    for stream, said, response in await four(format, provider):
        assert not stream or said == expected.text
        assert (response.text, response.reasoning) == (expected.text, expected.reasoning)
        assert [each.name for each in response.tool_calls] == [each.name for each in expected.tool_calls]
        if not stream:
            assert (response.stop, response.tool_calls) == (expected.stop, expected.tool_calls)
        elif name == "null" and format in NO_NULL:
            assert response.stop_reason is StopReason.MISSING
        else:
            assert (response.stop.reason, response.stop.raw) == (expected.stop.reason, expected.stop.raw)
        if name != "null":  # Anthropic tells a stream's reason and its output tokens in one event
            assert response.usage == expected.usage


# --- Whose fault it is --------------------------------------------------------------------------------------------


ERRORS = {
    "key": (fail(401), RequestRejected),
    "model": (fail(404), RequestRejected),
    "parameter": (fail(400), RequestRejected),
    "rate limit": (fail(429, retry_after_s=7), ProviderUnavailable),
    "server": (fail(500), ProviderUnavailable),
    "gateway timeout": (fail(504), ProviderTimeout),
    "within a stream": (fail(529, text="So far"), ProviderUnavailable),
}


@each_format
@pytest.mark.parametrize("name", ERRORS)
async def test_errors_say_whose_fault_it_is(name: str, format: str) -> None:
    """Each status is an exception whose type says whose fault it is, with the request's id; what had come is kept."""
    reply, kind = ERRORS[name]
    for stream, _, error in await four(format, ScriptedProvider([reply], exhausted="last")):
        if stream and reply.text:
            if format == "cohere":  # there it is an ordinary end
                assert error.stop_reason is StopReason.ERROR
            else:
                assert (type(error), error.partial.text) == (kind, "So far")
            continue
        assert reply.failure is not None
        assert type(error) is kind
        assert (error.status, error.provider) == (reply.failure.status, FORMATS[format][0])
        assert error.request_id
        assert error.body
        assert error.retryable is (kind is not RequestRejected)
        assert error.retry_after_s == (7 if name == "rate limit" else None)


LOST: dict[str, tuple[Reply, type[ProviderError], str | None]] = {
    "no answer": (hang_up(), ProviderUnavailable, "raises"),
    "broken": (cut("One two"), ProviderUnavailable, "connection"),
    "broken, slow": (say("One two").but(pace_s=0.05, ending=Ending.BROKEN), ProviderUnavailable, "connection"),
    "tidy": (cut("One two", tidy=True), DecodeError, None),
}
"""A reply, what it raises where it is not streamed, and the detail of a stream's stop."""


@each_format
@pytest.mark.parametrize("name", LOST)
async def test_what_a_lost_connection_means(name: str, format: str) -> None:
    """A stream that ends or breaks before its terminal ends in a response, `missing`; any other answer is an error."""
    reply, kind, detail = LOST[name]
    with ScriptedProvider([reply], exhausted="last").serve() as url:
        for stream, said, came in await four(format, url):
            if stream and detail != "raises":
                assert said == came.text == "One two"
                # The Responses API says in its own words that a response which is in progress has not ended.
                told = detail or ("stream_cut" if format == "openai_responses" else None)
                assert (came.stop_reason, came.stop.detail, came.stop.truncated) == (StopReason.MISSING, told, True)
            else:
                assert type(came) is kind
                assert kind is DecodeError or "connection failed" in str(came)


def test_nobody_there_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with made(Client, "openai_chat", f"http://127.0.0.1:{port}") as sync:
        for stream in (False, True):
            with pytest.raises(ProviderUnavailable, match=f"127.0.0.1:{port}.*ConnectError"):
                asks(sync, stream)


def test_a_slow_answer_is_a_timeout() -> None:
    """No answer in time is ProviderTimeout; a stream that stalls is `missing` with the detail "timeout"."""
    provider = ScriptedProvider([say("late").but(delay_s=5), say("one two").but(pace_s=5)])
    with provider.serve() as url, made(Client, "openai_chat", url, timeout=0.5) as sync:
        with pytest.raises(ProviderTimeout, match="no answer in time"):
            sync(ASKED)
        response = asks(sync, stream=True)
    assert (response.stop_reason, response.stop.detail) == (StopReason.MISSING, "timeout")


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"object": "list"}'])
def test_a_foreign_body_is_a_decode_error(content: bytes) -> None:
    """A success whose body is not in the provider's format; of a stream that turns into one, what came is kept."""
    with answering(content) as sync, pytest.raises(DecodeError) as caught:
        sync(ASKED)
    assert (caught.value.provider, caught.value.status) == ("openai", 200)
    chunk = b'data: {"choices": [{"index": 0, "delta": {"content": "So far"}, "finish_reason": null}]}\n\n'
    with answering(chunk + b"data: " + content + b"\n\n") as sync:
        items = sync.stream(ASKED)
        assert next(items) == Delta(text="So far")
        with nullcontext() if content.startswith(b"{") else pytest.raises(DecodeError) as raised:
            list(items)
        assert raised is None or (raised.value.partial is not None and raised.value.partial.text == "So far")


NO_STREAM = {
    b"<html>Bad gateway</html>": DecodeError,
    b'{"error": {"message": "overloaded", "code": 503}}': ProviderUnavailable,
    b"upstream failed": DecodeError,
}


@pytest.mark.parametrize("content", NO_STREAM)
@pytest.mark.parametrize("format", ["openai_chat", "openai_responses", "anthropic", "gemini", "cohere", "ollama"])
def test_a_stream_that_is_none_is_an_error(format: str, content: bytes) -> None:
    """A success without a stream where one was asked for is not an empty answer."""
    with answering(content, format=format) as sync, pytest.raises(NO_STREAM[content]) as caught:
        asks(sync, stream=True)
    assert caught.value.request_id == "r1"
    assert FORMATS[format][0] in str(caught.value)


def test_a_whole_answer_to_a_request_for_a_stream_is_taken() -> None:
    """Some servers do not stream; what they send is the answer all the same."""
    body = ScriptedProvider([say("All of it.")]).complete(ASKED)
    with answering(json.dumps(format_of("openai_chat").reply(body, stream=False)).encode()) as sync:
        said, response = finished(list(sync.stream(ASKED)))
    assert (said, response.text, response.stop_reason) == ("All of it.", "All of it.", StopReason.END_TURN)


def test_quota_is_read_from_the_headers() -> None:
    reply = say("x").but(headers={"x-ratelimit-remaining-tokens": "1990"})
    with made(Client, "openai_chat", ScriptedProvider([reply, reply])) as sync:
        assert asks(sync, False).quota == asks(sync, True).quota == {"remaining_tokens": "1990"}


# --- Keys and addresses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("provider", "header"), [("openai", ""), ("anthropic", "x-api-key"), ("deepseek", "")])
def test_the_key_comes_from_the_environment(provider: str, header: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each provider's key is read from its own variable and sent in its own header; without it there is no client."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(500)

    variable = f"{provider.upper()}_API_KEY"
    monkeypatch.setenv(variable, KEY)
    with Client(provider, http=httpx.MockTransport(answer)) as sync, pytest.raises(ProviderUnavailable):
        sync(ASKED)
    assert seen[0].headers[header or "authorization"] == (KEY if header else f"Bearer {KEY}")
    assert seen[0].url.scheme == "https"
    monkeypatch.delenv(variable)
    with pytest.raises(UsageError, match=variable):
        Client(provider)


@pytest.mark.parametrize("status", [200, 401])
@streamed
@pytest.mark.parametrize("key", [KEY, "0123456789abcdef" * 2, "bedrock-api-key-YWJjZGVm", "my.own/gateway+key"])
def test_the_clients_own_key_is_never_quoted(key: str, stream: bool, status: int) -> None:
    """Whatever the key looks like, neither a client nor an error shows it, although the provider does."""
    said = json.dumps({"error": {"message": f"Invalid token: {key}", "type": "x", "code": key}}).encode()
    with answering(said, status=status, key=key) as sync, pytest.raises(ProviderError) as caught:
        asks(sync, stream)
    assert key not in repr([str(caught.value), vars(caught.value), sync, vars(sync)])
    assert "secret" not in repr(Client("x", format="openai_chat", base_url="http://me:secret@host/v1?key=secret"))


def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other provider needs a format and an address, and no key."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with ScriptedProvider([say("mine"), say("theirs")]).serve() as url:
        with Client("mine", format="openai_chat", base_url=f"{url}/v1/") as sync:
            assert (sync(ASKED).text, sync.provider, sync.format) == ("mine", "mine", "openai_chat")
        with Client("openai", base_url=f"{url}/v1") as sync:
            assert sync(ASKED).text == "theirs"


@pytest.mark.parametrize(
    ("request_", "says"), [("hi", "not a str"), (ASKED.but(temperature=float("nan")), "cannot be written as JSON")]
)
def test_a_request_that_cannot_be_sent_is_named(request_: Any, says: str) -> None:
    """A text, and a figure that JSON has no word for, are the caller's mistakes."""
    with made(Client, "openai_chat", ScriptedProvider([])) as sync, pytest.raises(UsageError, match=says):
        sync(request_)


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_the_hosts_own_http_client(library: Any) -> None:
    """A client of httpx or httpx2 that the host made is used, its errors are ours, and it stays open."""
    provider = ScriptedProvider([say("one"), hang_up(), cut("two")])
    with library.Client(transport=provider.transport()) as http:
        with pytest.raises(UsageError, match="goes with Client; this is AsyncClient"):
            AsyncClient("openai", api_key=KEY, http=http)
        with Client("openai", api_key=KEY, http=http) as sync:
            assert sync(ASKED).text == "one"
            with pytest.raises(ProviderUnavailable):
                sync(ASKED)
            assert asks(sync, stream=True).stop_reason is StopReason.MISSING
        assert not http.is_closed


def test_one_client_among_fifty_threads() -> None:
    def ask(number: int) -> tuple[str, str]:
        asked = ASKED.but(model=f"m{number}")
        return sync(asked).text, finished(list(sync.stream(asked)))[0]

    provider = ScriptedProvider(lambda asked: say(asked.model))
    with provider.serve() as url, made(Client, "openai_chat", url) as sync, ThreadPoolExecutor(50) as pool:
        assert list(pool.map(ask, range(200))) == [(f"m{number}",) * 2 for number in range(200)]


# --- What is announced --------------------------------------------------------------------------------------------


@pytest.fixture
def records() -> Iterator[list[Record]]:
    """What is announced; a listener's exception fails the test."""
    heard: list[Record] = []
    stop = hooks.subscribe(heard.append)
    with hooks.strict():
        yield heard
    stop()


def ended(records: list[Record]) -> CallEnded:
    """The one call that was announced."""
    assert [type(record) for record in records] == [CallStarted, CallEnded, TurnEnded]
    record = records[1]
    assert isinstance(record, CallEnded)
    return record


@streamed
@pytest.mark.parametrize("format", ["openai_chat", "anthropic"])
def test_a_call_is_announced_once(format: str, stream: bool, records: list[Record]) -> None:
    """By the client alone: a decorator around it adds no record."""
    wrapper = open_call(Layer.WRAPPER, provider="openai", model="m")
    assert wrapper is not None
    with made(Client, format, ScriptedProvider([truncate("One two three", after=2)])) as sync, wrapper.step():
        response = asks(sync, stream)
    assert wrapper.end(response.stop) is None
    record = ended(records)
    started = record.started
    assert (started.provider, started.model, started.stream) == (FORMATS[format][0], "m", stream)
    assert (started.maximum, started.temperature, started.server_address) == (50, 0.5, "scripted")
    assert (record.stop, record.usage, record.response_id) == (response.stop, response.usage, response.id)
    assert (record.reasons, record.output_chars, record.error) == ((response.stop.raw,), 7, None)
    assert (record.first_chunk_s is not None) is stream
    assert started.turn.outcome is TurnOutcome.NOT_CONTINUED


@streamed
def test_an_error_is_announced(stream: bool, records: list[Record]) -> None:
    """Within the call an HTTP layer that asks to announce is told that it already is."""
    below: list[object] = []

    def answer(request: httpx.Request) -> Any:
        below.append(open_call(Layer.HTTP, provider="openai", model="m"))
        return overflow.handle_request(request)

    overflow = ScriptedProvider([fail(400, "context_length_exceeded")]).transport()
    http = httpx.MockTransport(answer)
    with Client("openai", api_key=KEY, http=http) as sync, pytest.raises(RequestRejected) as caught:
        asks(sync, stream)
    assert below == [None]
    record = ended(records)
    assert record.error is caught.value
    assert record.stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED


@pytest.mark.parametrize("format", ["openai_chat", "anthropic"])
def test_a_stream_that_its_consumer_closes_is_cancelled(format: str, records: list[Record]) -> None:
    """Leaving a stream midway is `cancelled`, not truncated and not an error; what had come is counted."""
    with made(Client, format, ScriptedProvider([say("One two three")])) as sync:
        items = sync.stream(ASKED)
        assert next(items) == Delta(text="One")
        items.close()
    record = ended(records)
    assert (record.stop.reason, record.stop.truncated, record.error) == (StopReason.CANCELLED, False, None)
    assert record.output_chars == 3
    assert record.started.turn.outcome is TurnOutcome.CANCELLED


def test_a_stream_taken_to_its_response_is_complete(records: list[Record]) -> None:
    """Whoever stops at the last item has had everything: the call is announced before that item is handed over."""
    with made(Client, "openai_chat", ScriptedProvider([say("One")])) as sync:
        items = sync.stream(ASKED)
        while not isinstance(next(items), ChatResponse):
            pass
        assert ended(records).stop.reason is StopReason.END_TURN
        items.close()
    assert len(records) == 3


@streamed
async def test_a_cancelled_task_is_announced_as_cancelled(stream: bool, records: list[Record]) -> None:
    """Cancelling the task ends the call `cancelled`; the cancellation goes on to the caller."""
    provider = ScriptedProvider([say("One two").but(pace_s=30) if stream else say("One").but(delay_s=30)])

    async def ask() -> None:
        async with made(AsyncClient, "openai_chat", provider) as other:
            [_ async for _ in other.stream(ASKED)] if stream else await other(ASKED)

    task = asyncio.create_task(ask())
    while not provider.received:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    record = ended(records)
    assert record.stop.reason is StopReason.CANCELLED
    assert isinstance(record.error, asyncio.CancelledError)


async def test_an_async_stream_that_is_left_is_cancelled(records: list[Record]) -> None:
    """Closing an async stream midway is `cancelled`, and the connection is free for the next call."""
    with ScriptedProvider([say("One two").but(pace_s=0.01), say("next")]).serve() as url:
        async with made(AsyncClient, "openai_chat", url) as other:
            async with aclosing(other.stream(ASKED)) as items:
                await anext(items)
            assert ended(records).stop.reason is StopReason.CANCELLED
            assert (await other(ASKED)).text == "next"
