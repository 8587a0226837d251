"""Calls of our HTTP clients as they are announced: once each, with what was asked and what came."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest

from endturn import hooks
from endturn.chat import ChatResponse, Delta, Message, Request
from endturn.clients import AsyncClient, Client
from endturn.errors import ProviderUnavailable, RequestRejected
from endturn.events import CallEnded, CallStarted, Record, TurnEnded, TurnOutcome
from endturn.scopes import Layer, open_call
from endturn.scripted import ScriptedProvider, fail, say, truncate
from endturn.stop import StopReason

FORMATS = {"openai_chat": ("openai", "/v1"), "anthropic": ("anthropic", "")}
ASKED = Request(model="m", messages=(Message(role="user", content="hi"),), max_tokens=50, temperature=0.5)
KEY = "sk-proj-0123456789abcdef"


def client(provider: ScriptedProvider, format: str, **options: Any) -> Client:
    """A client whose requests are answered in process."""
    name, path = FORMATS[format]
    return Client(name, api_key=KEY, base_url=f"http://scripted{path}", http=provider.transport(), **options)


def async_client(provider: ScriptedProvider, format: str, **options: Any) -> AsyncClient:
    """The same, async."""
    name, path = FORMATS[format]
    return AsyncClient(name, api_key=KEY, base_url=f"http://scripted{path}", http=provider.transport(), **options)


def finished(items: list[Delta | ChatResponse]) -> tuple[str, ChatResponse]:
    """The deltas' text, and the response that must come last."""
    *deltas, response = items
    assert isinstance(response, ChatResponse)
    return "".join(delta.text for delta in deltas if isinstance(delta, Delta)), response


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
@pytest.mark.parametrize("format", FORMATS)
def test_a_call_is_announced_once(format: str, stream: bool, records: list[Record]) -> None:
    """One call, one pair of records, with what was asked, where, and what came; its turn ends with it."""
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
    """A wrapper around the client announces nothing of its own."""
    wrapper = open_call(Layer.WRAPPER, provider="openai", model="m")
    assert wrapper is not None
    with client(ScriptedProvider([say("x")]), "openai_chat") as sync, wrapper.step():
        response = sync(ASKED)
    assert wrapper.end(response.stop) is None
    assert ended(records).stop.reason is StopReason.END_TURN


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_error_is_announced(stream: bool, records: list[Record]) -> None:
    """A failed call is announced with its exception and with the stop that the error speaks of."""
    replies = [fail(400, "context_length_exceeded")]
    with client(ScriptedProvider(replies), "openai_chat") as sync, pytest.raises(RequestRejected) as caught:
        list(sync.stream(ASKED)) if stream else sync(ASKED)
    record = ended(records)
    assert record.error is caught.value
    assert record.stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED


@pytest.mark.parametrize("format", FORMATS)
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
