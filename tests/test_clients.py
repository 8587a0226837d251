"""Our HTTP clients: what comes back, whose fault an error is, and what is announced."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import httpx
import httpx2
import pytest

from endturn import formats, hooks
from endturn.chat import ChatResponse, Delta, Message, Request
from endturn.clients import AsyncClient, Client
from endturn.errors import (
    DecodeError,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RequestRejected,
    UsageError,
)
from endturn.events import CallEnded, CallStarted, Record, TurnEnded, TurnOutcome
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


def client(provider: ScriptedProvider, format: str, **options: Any) -> Client:
    """A client whose requests are answered in process."""
    name, path = FORMATS[format]
    return Client(
        name, api_key=KEY, base_url=f"http://scripted{path}", format=format, http=provider.transport(), **options
    )


def async_client(provider: ScriptedProvider, format: str, **options: Any) -> AsyncClient:
    """The same, async."""
    name, path = FORMATS[format]
    url = f"http://scripted{path}"
    return AsyncClient(name, api_key=KEY, base_url=url, format=format, http=provider.transport(), **options)


def answering(content: bytes, *, status: int = 200, kind: str = "application/json") -> Client:
    """A client that is answered with these bytes."""
    answer = httpx.MockTransport(lambda _: httpx.Response(status, headers={"content-type": kind}, content=content))
    return Client("openai", api_key=KEY, http=answer)


def finished(items: list[Delta | ChatResponse]) -> tuple[str, ChatResponse]:
    """The deltas' text, and the response that must come last."""
    *deltas, response = items
    assert isinstance(response, ChatResponse)
    return "".join(delta.text for delta in deltas if isinstance(delta, Delta)), response


async def attempts(provider: ScriptedProvider, format: str) -> list[BaseException]:
    """What each colour raises, whole and streamed."""
    caught: list[BaseException] = []
    with client(provider, format) as sync:
        for attempt in (lambda: sync(ASKED), lambda: list(sync.stream(ASKED))):
            with pytest.raises(ProviderError) as info:
                attempt()
            caught.append(info.value)
    async with async_client(provider, format) as other:
        with pytest.raises(ProviderError) as info:
            await other(ASKED)
        caught.append(info.value)
        with pytest.raises(ProviderError) as info:
            [_ async for _ in other.stream(ASKED)]
        caught.append(info.value)
    return caught


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


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", REPLIES)
async def test_every_colour_returns_the_same_response(name: str, format: str) -> None:
    """Sync and async, streamed and whole, over HTTP and in process: one reply, one response."""
    provider = ScriptedProvider([REPLIES[name]], exhausted="last", format=format)
    if format in NO_WORD.get(name, ()):
        with pytest.raises(UsageError, match=f"the {format} format has no word for"):
            provider.complete(ASKED)
        return
    expected = provider.complete(ASKED)
    with client(provider, format) as sync:
        whole = sync(ASKED)
        said, streamed = finished(list(sync.stream(ASKED)))
    async with async_client(provider, format) as other:
        awaited = await other(ASKED)
        said_async, streamed_async = finished([item async for item in other.stream(ASKED)])
    assert said == said_async == expected.text
    for response in (whole, awaited, streamed, streamed_async):
        if name == "null" and format in NO_NULL:
            assert (response.text, response.stop_reason) == (expected.text, StopReason.MISSING)
            continue
        assert (response.text, response.reasoning, response.stop_reason, response.raw_stop_reason) == (
            expected.text,
            expected.reasoning,
            expected.stop_reason,
            expected.raw_stop_reason,
        )
        assert [made.name for made in response.tool_calls] == [made.name for made in expected.tool_calls]
        if name != "null":  # Anthropic tells a stream's reason and its output tokens in one event
            assert response.usage == expected.usage
    assert whole.tool_calls == awaited.tool_calls
    assert whole.stop == awaited.stop == expected.stop


ERRORS = {
    "key": (fail(401), RequestRejected, 401),
    "model": (fail(404), RequestRejected, 404),
    "parameter": (fail(400), RequestRejected, 400),
    "rate limit": (fail(429, retry_after_s=7), ProviderUnavailable, 429),
    "server": (fail(500), ProviderUnavailable, 500),
    "overloaded": (fail(529), ProviderUnavailable, 529),
    "gateway timeout": (fail(504), ProviderTimeout, 504),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ERRORS)
async def test_errors_say_whose_fault_it_is(name: str, format: str) -> None:
    """Each status is an exception whose type says whose fault it is, with the request's id, in both colours."""
    reply, kind, status = ERRORS[name]
    for error in await attempts(ScriptedProvider([reply], exhausted="last"), format):
        assert isinstance(error, ProviderError)
        assert type(error) is kind
        assert (error.status, error.provider) == (status, FORMATS[format][0])
        assert error.request_id
        assert error.body
        assert error.retryable is not isinstance(error, RequestRejected)
        assert error.retry_after_s == (7 if name == "rate limit" else None)


@pytest.mark.parametrize(
    "format", [format for format in FORMATS if format != "cohere"]
)  # there it is an ordinary end, ERROR
async def test_an_error_inside_a_stream_keeps_the_partial(format: str) -> None:
    provider = ScriptedProvider([fail(529, text="So far")], exhausted="last")
    with client(provider, format) as sync, pytest.raises(ProviderUnavailable) as caught:
        list(sync.stream(ASKED))
    async with async_client(provider, format) as other:
        with pytest.raises(ProviderUnavailable):
            [_ async for _ in other.stream(ASKED)]
    assert caught.value.partial is not None
    assert caught.value.partial.text == "So far"


def test_nobody_there_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Client("openai", api_key=KEY, base_url=f"http://127.0.0.1:{port}/v1") as sync:
        for attempt in (lambda: sync(ASKED), lambda: list(sync.stream(ASKED))):
            with pytest.raises(ProviderUnavailable, match=f"127.0.0.1:{port}.*ConnectError"):
                attempt()


@pytest.mark.parametrize("reply", [hang_up(), cut("Half")], ids=["no answer", "half a body"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_lost_whole_answer_is_unavailable(format: str, reply: Reply) -> None:
    name, path = FORMATS[format]
    failing = pytest.raises(ProviderUnavailable, match="connection failed")
    with (
        ScriptedProvider([reply]).serve() as url,
        Client(name, api_key=KEY, base_url=url + path, format=format) as sync,
        failing,
    ):
        sync(ASKED)


@pytest.mark.parametrize(
    ("reply", "detail"),
    [
        (cut("One two"), "connection"),
        (cut("One two", tidy=True), None),
        (say("One two").but(pace_s=0.05, ending=Ending.BROKEN), "connection"),
    ],
    ids=["broken", "tidy", "broken, slow"],
)
@pytest.mark.parametrize("format", FORMATS)
async def test_a_cut_stream_is_missing(format: str, reply: Reply, detail: str | None) -> None:
    """A stream that ends or breaks before its terminal ends in a response: the partial text, stop `missing`."""
    name, path = FORMATS[format]
    with ScriptedProvider([reply], exhausted="last").serve() as url:
        with Client(name, api_key=KEY, base_url=url + path, format=format) as sync:
            results = [finished(list(sync.stream(ASKED)))]
        async with AsyncClient(name, api_key=KEY, base_url=url + path, format=format) as other:
            results.append(finished([item async for item in other.stream(ASKED)]))
    for said, response in results:
        assert said == response.text == "One two"
        # The Responses API says in its own words that a response which is in progress has not ended.
        said_so = detail or ("stream_cut" if format == "openai_responses" else None)
        assert (response.stop_reason, response.stop.detail) == (StopReason.MISSING, said_so)
        assert response.stop.truncated


def test_a_slow_answer_is_a_timeout() -> None:
    """No answer in time is ProviderTimeout; a stream that stalls is `missing` with the detail "timeout"."""
    provider = ScriptedProvider([say("late").but(delay_s=5), say("one two").but(pace_s=5)])
    with provider.serve() as url, Client("openai", api_key=KEY, base_url=f"{url}/v1", timeout=0.5) as sync:
        with pytest.raises(ProviderTimeout, match="no answer in time"):
            sync(ASKED)
        _, response = finished(list(sync.stream(ASKED)))
    assert (response.stop_reason, response.stop.detail) == (StopReason.MISSING, "timeout")


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"object": "list"}'])
def test_a_foreign_body_is_a_decode_error(content: bytes) -> None:
    """A success whose body is not in the provider's format; of a stream that turns into one, what came is kept."""
    with answering(content) as sync, pytest.raises(DecodeError) as caught:
        sync(ASKED)
    assert (caught.value.provider, caught.value.status) == ("openai", 200)
    chunk = b'data: {"choices": [{"index": 0, "delta": {"content": "So far"}, "finish_reason": null}]}\n\n'
    with answering(chunk + b"data: " + content + b"\n\n", kind="text/event-stream") as sync:
        items = sync.stream(ASKED)
        assert next(items) == Delta(text="So far")
        if content == b"<html>":
            with pytest.raises(DecodeError) as caught:
                list(items)
            assert caught.value.partial is not None
            assert caught.value.partial.text == "So far"


def test_quota_is_read_from_the_headers() -> None:
    reply = say("x").but(headers={"x-ratelimit-remaining-tokens": "1990"})
    with client(ScriptedProvider([reply, reply]), "openai_chat") as sync:
        assert sync(ASKED).quota == finished(list(sync.stream(ASKED)))[1].quota == {"remaining_tokens": "1990"}


# --- Keys and addresses -----------------------------------------------------------------------------------------


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


def test_keys_are_neither_shown_nor_said() -> None:
    quoting = fail(401, message=f"Incorrect API key provided: {KEY}.")
    with client(ScriptedProvider([quoting]), "openai_chat") as sync, pytest.raises(RequestRejected) as caught:
        sync(ASKED)
    for shown in (repr(sync), repr(vars(sync)), str(caught.value), repr(vars(caught.value)), repr(async_client)):
        assert KEY not in shown
    assert "secret" not in repr(Client("x", format="openai_chat", base_url="http://me:secret@host/v1?key=secret"))


@pytest.mark.parametrize("key", [f"{KEY}\n", f"Bearer {KEY}", "schlüssel"], ids=["line end", "space", "umlaut"])
def test_a_key_that_cannot_be_sent_is_refused_unseen(key: str) -> None:
    with pytest.raises(UsageError) as caught:
        Client("openai", api_key=key)
    assert key not in str(caught.value)


def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other provider needs a format and an address, and no key; without them the error says so."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    provider = ScriptedProvider([say("mine"), say("theirs")])
    with provider.serve() as url:
        with Client("mine", format="openai_chat", base_url=f"{url}/v1/") as sync:
            assert (sync(ASKED).text, sync.provider, sync.format) == ("mine", "mine", "openai_chat")
        with Client("openai", base_url=f"{url}/v1") as sync:
            assert sync(ASKED).text == "theirs"
    with pytest.raises(UsageError, match="'mine'"):
        Client("mine", base_url="http://localhost")
    misused: Any = ASKED
    with pytest.raises(UsageError, match="a name like 'openai', not a value of type Request"):
        Client(misused)
    with pytest.raises(UsageError, match="not an address"):
        Client("mine", format="openai_chat", base_url="localhost:8000/v1")


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_the_hosts_own_http_client(library: Any) -> None:
    """A client of httpx or httpx2 that the host made is used, its errors are ours, and it stays open."""
    provider = ScriptedProvider([say("one"), hang_up(), cut("two")])
    with library.Client(transport=provider.transport()) as http:
        with Client("openai", api_key=KEY, http=http) as sync:
            assert sync(ASKED).text == "one"
            with pytest.raises(ProviderUnavailable):
                sync(ASKED)
            assert finished(list(sync.stream(ASKED)))[1].stop_reason is StopReason.MISSING
        assert not http.is_closed


def test_one_client_among_fifty_threads() -> None:
    provider = ScriptedProvider(lambda asked: say(asked.model))

    def ask(number: int) -> tuple[str, str]:
        asked = ASKED.but(model=f"m{number}")
        return sync(asked).text, finished(list(sync.stream(asked)))[0]

    with (
        provider.serve() as url,
        Client("openai", api_key=KEY, base_url=f"{url}/v1") as sync,
        ThreadPoolExecutor(50) as pool,
    ):
        assert list(pool.map(ask, range(200))) == [(f"m{number}",) * 2 for number in range(200)]


# --- What a client is told wrongly, and what it must not tell -----------------------------------------------------


@pytest.mark.parametrize("status", [200, 401])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("key", ["0123456789abcdef" * 2, "bedrock-api-key-YWJjZGVm", "my.own/gateway+key"])
def test_the_clients_own_key_is_never_quoted(key: str, stream: bool, status: int) -> None:
    """Whatever the key looks like, no error shows it, although the provider does."""
    said = json.dumps({"error": {"message": f"Invalid token: {key}", "type": "x", "code": key}}).encode()
    answer = httpx.MockTransport(lambda _: httpx.Response(status, content=said))
    with Client("openai", api_key=key, http=answer) as sync, pytest.raises(ProviderError) as caught:
        list(sync.stream(ASKED)) if stream else sync(ASKED)
    assert key not in repr([str(caught.value), vars(caught.value)])


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        pytest.param(b"<html>Bad gateway</html>", DecodeError, id="a page"),
        pytest.param(b'{"error": {"message": "overloaded", "code": 503}}', ProviderUnavailable, id="an error"),
        pytest.param(b"upstream failed", DecodeError, id="a word"),
    ],
)
@pytest.mark.parametrize("format", ["openai_chat", "openai_responses", "anthropic", "gemini", "cohere", "ollama"])
def test_a_stream_that_is_none_is_an_error(format: str, content: bytes, kind: type[ProviderError]) -> None:
    """A success without a stream where one was asked for is not an empty answer."""
    name, path = FORMATS[format]
    answer = httpx.MockTransport(lambda _: httpx.Response(200, headers={"x-request-id": "r1"}, content=content))
    with (
        Client(name, api_key=KEY, base_url=f"http://h{path}", format=format, http=answer) as sync,
        pytest.raises(kind) as caught,
    ):
        list(sync.stream(ASKED))
    assert caught.value.request_id == "r1"
    assert name in str(caught.value)


def test_a_whole_answer_to_a_request_for_a_stream_is_taken() -> None:
    """Some servers do not stream; what they send is the answer all the same."""
    body = ScriptedProvider([say("All of it.")]).complete(ASKED)
    content = json.dumps(formats.format_of("openai_chat").reply(body, stream=False)).encode()
    with answering(content) as sync:
        said, response = finished(list(sync.stream(ASKED)))
    assert (said, response.text, response.stop_reason) == ("All of it.", "All of it.", StopReason.END_TURN)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param({"provider": "azure"}, "did you mean 'azure.ai.openai'", id="half a name"),
        pytest.param({"provider": "antropic"}, "did you mean 'anthropic'", id="a typing error"),
        pytest.param({"dialect": "nope"}, "no dialect 'nope'; it has: compatible, azure", id="a dialect"),
        pytest.param({"base_url": "http://h/v1/chat/completions"}, "cut it", id="the whole endpoint"),
        pytest.param({"http": httpx.AsyncClient()}, "goes with AsyncClient", id="the other colour"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], says: str) -> None:
    """What is given wrongly is refused at once, with what to do instead."""
    with pytest.raises(UsageError, match=says):
        Client(**{"provider": "openai", "api_key": KEY, **options})


def test_a_request_that_cannot_be_sent_is_named() -> None:
    """A text, and a figure that JSON has no word for, are the caller's mistakes."""
    wrong: Any = "hi"
    with client(ScriptedProvider([]), "openai_chat") as sync:
        with pytest.raises(UsageError, match="not a str"):
            sync(wrong)
        with pytest.raises(UsageError, match="cannot be written as JSON"):
            sync(ASKED.but(temperature=float("nan")))


# --- What is announced ---------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("format", ["openai_chat", "anthropic"])
def test_a_call_is_announced_once(format: str, stream: bool, records: list[Record]) -> None:
    with client(ScriptedProvider([truncate("One two three", after=2)]), format) as sync:
        response = finished(list(sync.stream(ASKED)))[1] if stream else sync(ASKED)
    record = ended(records)
    started = record.started
    assert (started.provider, started.model, started.stream) == (FORMATS[format][0], "m", stream)
    assert (started.maximum, started.temperature, started.server_address) == (50, 0.5, "scripted")
    assert (record.stop, record.usage, record.response_id) == (response.stop, response.usage, response.id)
    assert (record.reasons, record.output_chars, record.error) == ((response.stop.raw,), 7, None)
    assert (record.first_chunk_s is not None) is stream
    assert started.turn.outcome is TurnOutcome.NOT_CONTINUED


def test_a_layer_below_stays_silent(records: list[Record]) -> None:
    """Within the call an HTTP layer that asks to announce is told that it already is."""
    below: list[object] = []

    def answer(_: httpx.Request) -> httpx.Response:
        below.append(open_call(Layer.HTTP, provider="openai", model="m"))
        return httpx.Response(500)

    with Client("openai", api_key=KEY, http=httpx.MockTransport(answer)) as sync:
        with pytest.raises(ProviderUnavailable):
            sync(ASKED)
        with pytest.raises(ProviderUnavailable):
            list(sync.stream(ASKED))
    assert below == [None, None]
    assert [type(record) for record in records].count(CallEnded) == 2


def test_a_wrapper_adds_no_second_record(records: list[Record]) -> None:
    wrapper = open_call(Layer.WRAPPER, provider="openai", model="m")
    assert wrapper is not None
    with client(ScriptedProvider([say("x")]), "openai_chat") as sync, wrapper.step():
        response = sync(ASKED)
    assert wrapper.end(response.stop) is None
    assert ended(records).stop.reason is StopReason.END_TURN


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_error_is_announced(stream: bool, records: list[Record]) -> None:
    replies = [fail(400, "context_length_exceeded")]
    with client(ScriptedProvider(replies), "openai_chat") as sync, pytest.raises(RequestRejected) as caught:
        list(sync.stream(ASKED)) if stream else sync(ASKED)
    record = ended(records)
    assert record.error is caught.value
    assert record.stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED


@pytest.mark.parametrize("format", ["openai_chat", "anthropic"])
def test_a_stream_that_its_consumer_closes_is_cancelled(format: str, records: list[Record]) -> None:
    """Leaving a stream midway is `cancelled`, not truncated and not an error; what had come is counted."""
    with client(ScriptedProvider([say("One two three")]), format) as sync:
        items = sync.stream(ASKED)
        assert next(items) == Delta(text="One")
        items.close()
    record = ended(records)
    assert (record.stop.reason, record.stop.truncated, record.error) == (StopReason.CANCELLED, False, None)
    assert record.output_chars == 3
    assert record.started.turn.outcome is TurnOutcome.CANCELLED


def test_a_stream_taken_to_its_response_is_complete(records: list[Record]) -> None:
    """Whoever stops at the last item has had everything: the call is announced before that item is handed over."""
    with client(ScriptedProvider([say("One")]), "openai_chat") as sync:
        items = sync.stream(ASKED)
        while not isinstance(next(items), ChatResponse):
            pass
        assert ended(records).stop.reason is StopReason.END_TURN
        items.close()
    assert len(records) == 3


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_cancelled_task_is_announced_as_cancelled(stream: bool, records: list[Record]) -> None:
    """Cancelling the task ends the call `cancelled`; the cancellation goes on to the caller."""

    async def ask() -> None:
        async with async_client(provider, "openai_chat") as other:
            if stream:
                [_ async for _ in other.stream(ASKED)]
            else:
                await other(ASKED)

    slow = say("One two").but(pace_s=30) if stream else say("One").but(delay_s=30)
    provider = ScriptedProvider([slow])
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
        async with AsyncClient("openai", api_key=KEY, base_url=f"{url}/v1") as other:
            async with aclosing(other.stream(ASKED)) as items:
                async for _ in items:
                    break
            assert ended(records).stop.reason is StopReason.CANCELLED
            assert (await other(ASKED)).text == "next"
