"""The cohere SDK, observed: both versions of its chat, streamed and not, one record of every call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import cohere
import httpx
import pytest

from endturn.chat import Usage
from endturn.scripted import Reply, ScriptedProvider, cut, fail, hang_up, say, truncate
from endturn.stop import StopReason
from tests.telemetry.mocked import Records, settle
from tests.wires import replies_completions as completions
from tests.wires.replies_cohere import BODIES, STREAMS

ASK: dict[str, Any] = {"model": "command-a", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 99}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK waits between its attempts."""
    monkeypatch.setattr("cohere.core.http_client._retry_timeout", lambda **how: 0.0)
    monkeypatch.setattr("cohere.core.http_client._retry_timeout_from_retries", lambda **how: 0.0)


def client(*replies: Reply) -> cohere.ClientV2:
    """A client at a host that is nobody's, which gets these replies."""
    http = httpx.Client(transport=ScriptedProvider(list(replies)).transport())
    return cohere.ClientV2(api_key="none", base_url="http://proxy.internal:8080", httpx_client=http)


def aclient(*replies: Reply) -> cohere.AsyncClientV2:
    """The same, async."""
    http = httpx.AsyncClient(transport=ScriptedProvider(list(replies)).transport())
    return cohere.AsyncClientV2(api_key="none", base_url="http://proxy.internal:8080", httpx_client=http)


def test_a_call(records: Records) -> None:
    """A proxy speaks for cohere; the SDK's own object comes back."""
    answer = client(truncate("One two three", after=2)).chat(**ASK)
    assert type(answer) is cohere.V2ChatResponse
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "MAX_TOKENS")
    assert (ended.started.provider, ended.started.model, ended.started.maximum) == ("cohere", "command-a", 99)
    assert (ended.started.server_address, ended.started.server_port) == ("proxy.internal", 8080)
    assert (ended.response_id, ended.output_chars) == (answer.id, 7)
    assert ended.usage is not None


async def test_an_async_call(records: Records) -> None:
    """The same, async."""
    await aclient(say("Hello")).chat(**ASK)
    assert records.only().stop.reason is StopReason.END_TURN


def test_a_raw_response(records: Records) -> None:
    """`with_raw_response` keeps its headers, and is one record."""
    answer = client(say("Hello")).with_raw_response.chat(**ASK)
    assert answer.headers["content-type"] == "application/json"
    assert records.only().stop.reason is StopReason.END_TURN


def test_a_stream(records: Records) -> None:
    """Every event passes; the call begins when the host begins to read."""
    events = client(truncate("One two three", after=2)).chat_stream(**ASK)
    assert not records.started
    assert [event.type for event in events][-1] == "message-end"
    ended = records.only()
    assert (ended.stop.reason, ended.started.stream, ended.output_chars) == (StopReason.MAX_TOKENS, True, 7)


async def test_an_async_stream(records: Records) -> None:
    """The same, async."""
    assert [event async for event in aclient(truncate("One two three", after=2)).chat_stream(**ASK)]
    ended = records.only()
    assert (ended.stop.reason, ended.output_chars) == (StopReason.MAX_TOKENS, 7)


def test_a_stream_that_is_never_begun(records: Records) -> None:
    """A generator that nobody reads has asked nobody."""
    client(say("Hello")).chat_stream(**ASK)
    settle()
    assert not records


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_a_stream_that_is_left(records: Records, how: str) -> None:
    """Its host has cancelled."""
    events: Any = client(say("One two three four")).chat_stream(**ASK)
    next(events)
    if how == "closed":
        events.close()
    del events
    settle()
    assert records.only().stop.reason is StopReason.CANCELLED


async def test_an_async_stream_that_is_cancelled(records: Records) -> None:
    """With its task."""
    begun = asyncio.Event()

    async def ask() -> None:
        async for _ in aclient(say("One two three four")).chat_stream(**ASK):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(ask())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while not records.ended:
        await asyncio.sleep(0)
        settle()
    assert records.only().stop.reason is StopReason.CANCELLED


def test_a_stream_that_is_cut(records: Records) -> None:
    """Without its end it is `missing`; broken, with the error that the SDK lets through."""
    list(client(cut("One two three", after=2, tidy=True)).chat_stream(**ASK))
    with pytest.raises(httpx.RemoteProtocolError) as raised:
        list(client(cut("One two three", after=2)).chat_stream(**ASK))
    tidy, broken = records.ended
    assert (tidy.stop.reason, tidy.error) == (StopReason.MISSING, None)
    assert (broken.stop.reason, broken.error) == (StopReason.MISSING, raised.value)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_error_answer(records: Records, streamed: bool) -> None:
    """The SDK's own exception comes through; the record says what the answer says."""
    asking = client(fail(400, message="too many tokens: the model's context length is 4096"))
    with pytest.raises(cohere.BadRequestError):
        list(asking.chat_stream(**ASK)) if streamed else asking.chat(**ASK)
    ended = records.only()
    assert ended.stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED
    assert ended.error is not None


def test_no_answer(records: Records) -> None:
    """The exception that the SDK lets through is the record's."""
    with pytest.raises(httpx.RemoteProtocolError) as raised:
        client(hang_up()).chat(**ASK)
    ended = records.only()
    assert (ended.stop.reason, ended.error) == (StopReason.ERROR, raised.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("v1 text", StopReason.END_TURN), ("v1 limit", StopReason.CONTEXT_WINDOW_EXCEEDED)],
    ids=["text", "limit"],
)
def test_v1(records: Records, name: str, reason: StopReason) -> None:
    """The first API: its own bodies and words, and lines of JSON for a stream."""

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/chat"
        if not json.loads(request.content).get("stream"):
            return httpx.Response(200, json=BODIES[name])
        lines = (json.dumps(event.data).encode() + b"\n" for event in STREAMS[name])
        return httpx.Response(200, headers={"content-type": "application/stream+json"}, stream=Lines(list(lines)))

    class Lines(httpx.SyncByteStream):
        def __init__(self, lines: list[bytes]) -> None:
            self.lines = lines

        def __iter__(self) -> Iterator[bytes]:
            yield from self.lines

    http = httpx.Client(transport=httpx.MockTransport(answer))
    asking = cohere.Client(api_key="none", base_url="http://proxy", httpx_client=http)
    asking.chat(message="hi", model="command-r")
    assert list(asking.chat_stream(message="hi", model="command-r"))
    assert [ended.stop.reason for ended in records.ended] == [reason] * 2
    assert [started.stream for started in records.started] == [False, True]
    assert {started.model for started in records.started} == {"command-r"}


GENERATED = completions.BODIES["command: cohere"]
PROMPT: dict[str, Any] = {"model": "command", "prompt": "One", "max_tokens": 9, "num_generations": 1}


def generating(request: httpx.Request) -> httpx.Response:
    """Answers /v1/generate as it is asked to: in one piece, or in lines of JSON."""
    assert request.url.path == "/v1/generate"
    if not json.loads(request.content).get("stream"):
        return httpx.Response(200, json=GENERATED)
    lines = (json.dumps(event.data).encode() + b"\n" for event in completions.STREAMS["command: cohere"])
    return httpx.Response(200, headers={"content-type": "application/stream+json"}, content=b"".join(lines))


def check_generated(records: Records) -> None:
    whole, streamed = records.ended
    assert [each.started.stream for each in records.ended] == [False, True]
    for ended in records.ended:
        assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "MAX_TOKENS")
        assert (ended.started.provider, ended.started.operation) == ("cohere", "text_completion")
        assert (ended.started.model, ended.started.maximum) == ("command", 9)
    assert (whole.usage, whole.output_chars, whole.response_id) == (Usage(12, 9), 10, "g-1")
    assert streamed.output_chars == 7


def test_generate(records: Records) -> None:
    """The first API's text completion, whole and streamed."""
    http = httpx.Client(transport=httpx.MockTransport(generating))
    asking = cohere.Client(api_key="none", base_url="http://proxy", httpx_client=http)
    assert asking.generate(**PROMPT).generations[0].text == "The answer"
    assert [event.event_type for event in asking.generate_stream(**PROMPT)][-1] == "stream-end"
    check_generated(records)


async def test_async_generate(records: Records) -> None:
    """The same, async."""
    http = httpx.AsyncClient(transport=httpx.MockTransport(generating))
    asking = cohere.AsyncClient(api_key="none", base_url="http://proxy", httpx_client=http)
    await asking.generate(**PROMPT)
    assert [event.event_type async for event in asking.generate_stream(**PROMPT)][-1] == "stream-end"
    check_generated(records)


def test_generate_over_plain_http(records: Records) -> None:
    """To Cohere's host, without its SDK."""
    http = httpx.Client(transport=httpx.MockTransport(generating))
    for more in ({}, {"stream": True}):
        http.post("https://api.cohere.com/v1/generate", json={**PROMPT, **more})
    check_generated(records)
    assert {started.server_address for started in records.started} == {"api.cohere.com"}


def test_a_generation_that_is_cut(records: Records) -> None:
    """Without its last line it is `missing`."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=generating(request).content.rpartition(b'{"event_type": "stream-end"')[0])

    http = httpx.Client(transport=httpx.MockTransport(answer))
    asking = cohere.Client(api_key="none", base_url="http://proxy", httpx_client=http)
    assert len(list(asking.generate_stream(**PROMPT))) == 2
    assert records.only().stop.reason is StopReason.MISSING


def test_what_is_no_chat(records: Records) -> None:
    """Embeddings and the rest pass."""
    http = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json={"tokens": [], "x": 1})))
    cohere.ClientV2(api_key="none", httpx_client=http).tokenize(text="hi", model="command-a", offline=False)
    assert not records
