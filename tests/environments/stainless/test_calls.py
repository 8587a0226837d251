"""SDKs of the same generator as openai's and anthropic's: each way of asking is one record, with the right reason."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import httpx
import pytest

from endturn import hooks
from endturn.events import CallEnded, Record
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.scripted import ScriptedProvider, essay
from endturn.stop import StopReason
from endturn.telemetry import cleanup

TURN = [{"role": "user", "content": "Write."}]
CHAT: dict[str, Any] = {"model": "m", "messages": TURN, "max_tokens": 2}
TEXT: dict[str, Any] = {"model": "m", "prompt": "Once upon", "max_tokens": 2}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A scripted provider that cuts every answer at its limit, and sends it piece by piece."""
    answer = essay("One two three four five six.")
    with ScriptedProvider(lambda request: answer(request).but(pace_s=0.01)).serve() as served:
        yield served


@pytest.fixture
def ended() -> Iterator[list[CallEnded]]:
    """The calls that ended while the SDKs were instrumented."""
    found: list[CallEnded] = []

    def listener(record: Record) -> None:
        if isinstance(record, CallEnded):
            found.append(record)

    stop = hooks.subscribe(listener)
    instrument()
    try:
        yield found
    finally:
        uninstrument()
        stop()


def client_of(package: str, name: str, url: str, **more: Any) -> Any:
    """A client of an SDK; the first of Cerebras' requests would otherwise be one of its own."""
    options = {"warm_tcp_connection": False} if name.endswith("Cerebras") else {}
    made = getattr(import_module(package), name)
    return made(api_key="none", base_url=url, max_retries=0, **options, **more)


SDKS = {
    "cerebras": ("cerebras.cloud.sdk", "Cerebras", ""),
    "fireworks": ("fireworks", "Fireworks", ""),
    "sambanova": ("sambanova", "SambaNova", "/v1"),
    "perplexity": ("perplexity", "Perplexity", ""),
}


@pytest.mark.parametrize(("package", "name", "path"), SDKS.values(), ids=SDKS.keys())
def test_chat(ended: list[CallEnded], url: str, package: str, name: str, path: str) -> None:
    """Whole, raw, streamed, left and dropped."""
    with client_of(package, name, url + path) as client:
        ask = client.chat.completions
        assert ask.create(**CHAT).choices[0].finish_reason == "length"
        assert ask.with_raw_response.create(**CHAT).parse().choices[0].finish_reason == "length"
        with ask.with_streaming_response.create(**CHAT) as raw:
            raw.read()
        stream = ask.create(**CHAT, stream=True)
        assert type(stream) is import_module(package).Stream
        assert [choice.finish_reason for chunk in stream for choice in chunk.choices or ()][-1] == "length"
        with ask.create(**CHAT, stream=True) as left:
            next(left)
        dropped = ask.create(**CHAT, stream=True)
        next(dropped)
        dropped = None
        gc.collect()
        cleanup.run()
    assert [each.stop.reason for each in ended] == [StopReason.MAX_TOKENS] * 4 + [StopReason.CANCELLED] * 2
    assert {each.started.provider for each in ended} == {"openai"}
    assert {each.started.model for each in ended} == {"m"}


@pytest.mark.parametrize(("package", "name", "path"), SDKS.values(), ids=SDKS.keys())
def test_async_chat(ended: list[CallEnded], url: str, package: str, name: str, path: str) -> None:
    """The same, asynchronously: whole, streamed and left."""

    async def ask() -> None:
        async with client_of(package, f"Async{name}", url + path) as client:
            await client.chat.completions.create(**CHAT)
            async for _ in await client.chat.completions.create(**CHAT, stream=True):
                pass
            async with await client.chat.completions.create(**CHAT, stream=True) as left:
                await anext(left)

    asyncio.run(ask())
    assert [each.stop.reason for each in ended] == [StopReason.MAX_TOKENS] * 2 + [StopReason.CANCELLED]


OTHERS: dict[str, tuple[str, str, str, Callable[[Any], Any], str]] = {
    "cerebras text": (
        "cerebras.cloud.sdk",
        "Cerebras",
        "",
        lambda client: client.completions.create(**TEXT),
        "text_completion",
    ),
    "fireworks text": (
        "fireworks",
        "Fireworks",
        "",
        lambda client: client.completions.create(**TEXT),
        "text_completion",
    ),
    "fireworks messages": ("fireworks", "Fireworks", "", lambda client: client.messages.create(**CHAT), "chat"),
    "sambanova messages": ("sambanova", "SambaNova", "/v1", lambda client: client.messages.create(**CHAT), "chat"),
    "sambanova text": (
        "sambanova",
        "SambaNova",
        "/v1",
        lambda client: client.completions.create(**TEXT),
        "text_completion",
    ),
    "sambanova responses": (
        "sambanova",
        "SambaNova",
        "/v1",
        lambda client: client.responses.create(model="m", input="Write.", max_output_tokens=2),
        "chat",
    ),
    "perplexity responses": (
        "perplexity",
        "Perplexity",
        "",
        lambda client: client.responses.create(model="m", input="Write.", max_output_tokens=2),
        "chat",
    ),
}


@pytest.mark.parametrize(("package", "name", "path", "ask", "operation"), OTHERS.values(), ids=OTHERS.keys())
def test_other_formats(
    ended: list[CallEnded], url: str, package: str, name: str, path: str, ask: Callable[[Any], Any], operation: str
) -> None:
    """Messages, Responses and text, where the SDK has them."""
    with client_of(package, name, url + path) as client:
        ask(client)
    (only,) = ended
    assert (only.stop.reason, only.started.operation) == (StopReason.MAX_TOKENS, operation)


def test_a_job_is_no_call(ended: list[CallEnded]) -> None:
    """Perplexity's asynchronous API takes a question and answers with a number."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"id": "j", "model": "m", "created_at": 1, "status": "CREATED"})

    http = httpx.Client(transport=httpx.MockTransport(answer))
    with client_of("perplexity", "Perplexity", "http://mock", http_client=http) as client:
        client.async_.chat.completions.create(request={"model": "m", "messages": TURN})
    assert not ended


def test_writer(ended: list[CallEnded]) -> None:
    """Writer's chat has a path of its own, and the usual words."""

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/chat"
        choice = {"index": 0, "finish_reason": "length"}
        if not json.loads(request.content).get("stream"):
            message = {"role": "assistant", "content": "One two", "refusal": None}
            whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "palmyra-x5"}
            return httpx.Response(200, json={**whole, "choices": [{**choice, "message": message}]})
        part = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "palmyra-x5"}
        lines = [{**part, "choices": [{**choice, "delta": {"content": "One two"}}]}]
        data = "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=data)

    http = httpx.Client(transport=httpx.MockTransport(answer))
    with client_of("writerai", "Writer", "https://api.writer.com", http_client=http) as client:
        client.chat.chat(model="palmyra-x5", messages=TURN, max_tokens=2)
        assert list(client.chat.chat(model="palmyra-x5", messages=TURN, max_tokens=2, stream=True))
    assert [each.stop.reason for each in ended] == [StopReason.MAX_TOKENS] * 2
    assert {each.started.provider for each in ended} == {"writer"}
