"""Our HTTP clients: results, errors by whose fault they are, and announced calls."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

import httpx
import httpx2
import pytest

from endturn.calls.call_scope import Layer, open_call
from endturn.calls.facts import EndpointFacts, RequestFacts, ResponseFacts
from endturn.calls.outcomes import TurnOutcome
from endturn.calls.records import CallEnded, CallStarted, Record, TurnEnded
from endturn.errors import DecodeError, ProviderError, ProviderUnavailable, RequestRejected, UsageError
from endturn.formats import format_of
from endturn.providers.http_client import AsyncClient, Client
from endturn.testing.scripted import ScriptedProvider, break_off, fail, hang_up, say, truncate
from endturn.vocabulary.messages import ChatResponse, Delta, Message, Request
from endturn.vocabulary.providers import PROVIDERS
from endturn.vocabulary.stop import StopReason
from tests.support.turns import heard

ASKED = Request(model="m", messages=(Message(role="user", content="hi"),), max_tokens=50, temperature=0.5)
KEY = "sk-proj-0123456789abcdef"

streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def made(kind: Any, format: str, where: ScriptedProvider | str, timeout: float = 30, **options: Any) -> Any:
    """A client of a server, or of a provider that answers in process."""
    name, url = format_of(format).provider, where
    if isinstance(where, ScriptedProvider):
        url, options = "http://scripted", {"http": where.transport(), **options}
    path = urlsplit(PROVIDERS[name].base_url or "").path
    return kind(name, api_key=KEY, base_url=f"{url}{path}", format=format, timeout=timeout, **options)


def answering(content: bytes, *, status: int = 200, key: str = KEY, format: str = "openai_chat") -> Client:
    """Return a client whose server returns these bytes."""
    answer = httpx.MockTransport(lambda _: httpx.Response(status, headers={"x-request-id": "r1"}, content=content))
    return Client(format_of(format).provider, api_key=key, base_url="http://h/v1", format=format, http=answer)


def finished(items: list[Delta | ChatResponse]) -> tuple[str, ChatResponse]:
    """The deltas' text, and the response that must come last."""
    *deltas, response = items
    assert isinstance(response, ChatResponse)
    return "".join(delta.text for delta in deltas if isinstance(delta, Delta)), response


def asks(client: Client, stream: bool) -> ChatResponse:
    return finished(list(client.stream(ASKED)))[1] if stream else client(ASKED)


# --- Whose fault it is; tests/providers/test_sdk_client.py has the statuses ---


def test_a_refused_connection_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with made(Client, "openai_chat", f"http://127.0.0.1:{port}") as sync:
        for stream in (False, True):
            with pytest.raises(ProviderUnavailable, match=f"127.0.0.1:{port}.*ConnectError"):
                asks(sync, stream)


def test_a_stream_that_stalls_is_missing() -> None:
    """With the detail "timeout"."""
    provider = ScriptedProvider([say("one two").but(pace_s=5)])
    with provider.serve() as url, made(Client, "openai_chat", url, timeout=0.2) as sync:
        response = asks(sync, stream=True)
    assert (response.stop_reason, response.stop.detail) == (StopReason.MISSING, "timeout")


FOREIGN = {
    b"<html>Bad gateway</html>": DecodeError,
    b'{"error": {"message": "overloaded", "code": 503}}': ProviderUnavailable,
    b"upstream failed": DecodeError,
}


@streamed
@pytest.mark.parametrize("content", FOREIGN)
@pytest.mark.parametrize("format", ["openai_chat", "openai_responses", "anthropic", "gemini", "cohere", "ollama"])
def test_a_success_status_without_an_answer_is_an_error(format: str, content: bytes, stream: bool) -> None:
    """A body in another format is no empty answer, also if a stream was requested."""
    with answering(content, format=format) as sync, pytest.raises(FOREIGN[content]) as caught:
        asks(sync, stream)
    assert (caught.value.provider, caught.value.request_id) == (format_of(format).provider, "r1")
    assert format_of(format).provider in str(caught.value)


@pytest.mark.parametrize("content", [b"<html>", b"[]"])
def test_a_stream_that_turns_into_something_else_is_an_error(content: bytes) -> None:
    """The received part is kept; other objects are skipped."""
    chunk = b'data: {"choices": [{"index": 0, "delta": {"content": "So far"}, "finish_reason": null}]}\n\n'
    with answering(chunk + b'data: {"object": "list"}\n\ndata: ' + content + b"\n\n") as sync:
        items = sync.stream(ASKED)
        assert next(items) == Delta(text="So far")
        with pytest.raises(DecodeError) as raised:
            list(items)
    assert raised.value.partial is not None
    assert raised.value.partial.text == "So far"


def test_a_body_in_place_of_a_stream_is_accepted() -> None:
    """Some servers do not stream; their body is the answer."""
    body = ScriptedProvider([say("All of it.")]).complete(ASKED)
    with answering(json.dumps(format_of("openai_chat").reply(body, stream=False)).encode()) as sync:
        said, response = finished(list(sync.stream(ASKED)))
    assert (said, response.text, response.stop_reason) == ("All of it.", "All of it.", StopReason.END_TURN)


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


def test_an_own_server_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """A text, or a number that JSON cannot represent, is the caller's mistake."""
    with made(Client, "openai_chat", ScriptedProvider([])) as sync, pytest.raises(UsageError, match=says):
        sync(request_)


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_the_hosts_own_http_client(library: Any) -> None:
    """A client of httpx or httpx2 that the host made is used, its errors are ours, and it stays open."""
    provider = ScriptedProvider([say("one"), hang_up(), break_off("two")])
    with library.Client(transport=provider.transport()) as http:
        with pytest.raises(UsageError, match="needs Client; this is AsyncClient"):
            AsyncClient("openai", api_key=KEY, http=http)
        with Client("openai", api_key=KEY, http=http) as sync:
            assert sync(ASKED).text == "one"
            with pytest.raises(ProviderUnavailable):
                sync(ASKED)
            assert asks(sync, stream=True).stop_reason is StopReason.MISSING
        assert not http.is_closed


# --- What is announced --------------------------------------------------------------------------------------------


def ended(records: list[Record]) -> CallEnded:
    """The one call that was announced."""
    assert [type(record) for record in records] == [CallStarted, CallEnded, TurnEnded]
    record = records[1]
    assert isinstance(record, CallEnded)
    return record


@streamed
@pytest.mark.parametrize("format", ["openai_chat", "anthropic"])
def test_a_call_is_announced_once(format: str, stream: bool) -> None:
    """Only the client announces it: a decorator around it adds no record. A consumer may stop at the response."""
    wrapper = open_call(Layer.WRAPPER, RequestFacts(model="m"), EndpointFacts(provider="openai"))
    assert wrapper is not None
    script = [truncate("One two three", after=2)]
    with heard() as records, made(Client, format, ScriptedProvider(script)) as sync, wrapper.step():
        items = sync.stream(ASKED) if stream else iter([sync(ASKED)])
        response = next(item for item in items if isinstance(item, ChatResponse))
        record = ended(records)
        del items
    assert wrapper.end(ResponseFacts(stop=response.stop)) is None
    assert ended(records) is record
    started = record.started
    assert (started.endpoint.provider, started.request.model, started.request.stream) == (
        format_of(format).provider,
        "m",
        stream,
    )
    assert (started.request.max_tokens, started.request.temperature) == (50, 0.5)
    assert started.endpoint.server_address == "scripted"
    assert (record.stop, record.usage, record.response_id) == (response.stop, response.usage, response.id)
    assert (record.reasons, record.output_chars, record.error) == ((response.stop.raw,), 7, None)
    assert (record.first_chunk_s is not None) is stream
    assert started.turn.outcome is TurnOutcome.NOT_CONTINUED


@streamed
def test_an_error_is_announced(stream: bool) -> None:
    """Within the call, an HTTP layer below sees that the call is already announced."""
    below: list[object] = []

    def answer(request: httpx.Request) -> Any:
        below.append(open_call(Layer.HTTP, RequestFacts(model="m"), EndpointFacts(provider="openai")))
        return overflow.handle_request(request)

    overflow = ScriptedProvider([fail(400, "context_length_exceeded")]).transport()
    http = httpx.MockTransport(answer)
    announced, client = heard(), Client("openai", api_key=KEY, http=http)
    with announced as records, client as sync, pytest.raises(RequestRejected) as caught:
        asks(sync, stream)
    assert below == [None]
    record = ended(records)
    assert record.error is caught.value
    assert record.stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED


async def test_an_abandoned_async_stream_is_cancelled() -> None:
    """Closing an async stream midway is `cancelled`, and the connection is free for the next call."""
    with heard() as records, ScriptedProvider([say("One two").but(pace_s=0.01), say("next")]).serve() as url:
        async with made(AsyncClient, "openai_chat", url) as other:
            async with aclosing(other.stream(ASKED)) as items:
                await anext(items)
            assert ended(records).stop.reason is StopReason.CANCELLED
            assert (await other(ASKED)).text == "next"


async def test_a_task_that_is_cancelled_after_the_stop_reason() -> None:
    """The response is complete and the call has not failed, even if its host did not wait for the last bytes."""
    chunks = [b'data: {"choices": [{"index": 0, "delta": {"content": "One"}, "finish_reason": "stop"}]}\n\n']
    is_read = asyncio.Event()

    class Body(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield chunks[0]
            is_read.set()
            await asyncio.sleep(60)

    kind = {"content-type": "text/event-stream"}
    http = httpx.MockTransport(lambda request: httpx.Response(200, headers=kind, stream=Body()))

    async def read(client: AsyncClient) -> None:
        async for _ in client.stream(ASKED):
            pass

    with heard() as records:
        async with AsyncClient("openai", api_key=KEY, http=http) as client:
            task = asyncio.create_task(read(client))
            await is_read.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    record = ended(records)
    assert (record.stop.reason, record.error) == (StopReason.END_TURN, None)


# --- Wrong arguments ------------------------------------------------------------------------------

NO_KEY = "^the API key for 'openai' contains a space, a line end or another character that is invalid in keys$"


@pytest.mark.parametrize(
    ("provider", "options", "message"),
    [
        ("azure", {}, r"did you mean 'azure\.ai\.openai'"),
        ("antropic", {}, "did you mean 'anthropic'"),
        ("mine", {"base_url": "http://localhost"}, "'mine'"),
        ({"model": "m"}, {}, "a name like 'openai', not a value of type dict"),
        ("openai", {"dialect": "nope"}, "no dialect 'nope'; it has: compatible, azure"),
        ("openai", {"base_url": "http://h/v1/chat/completions"}, "remove it"),
        ("openai", {"base_url": "localhost:8000/v1"}, "not an address"),
        ("openai", {"api_key": "sk-1\n"}, NO_KEY),
        ("openai", {"api_key": "Bearer sk-1"}, NO_KEY),
        ("openai", {"api_key": "schlüssel"}, NO_KEY),
    ],
)
def test_rejects_wrong_arguments(provider: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Client(provider, **{"api_key": "sk", **options})
