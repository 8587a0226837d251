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

from endturn.scripted import ScriptedProvider, essay
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from tests.support.announced import Announced, observed

TURN = [{"role": "user", "content": "Write."}]
CHAT: dict[str, Any] = {"model": "m", "messages": TURN, "max_tokens": 2}
SDKS = {
    "Cerebras": ("cerebras.cloud.sdk", "", {"warm_tcp_connection": False}),
    "Fireworks": ("fireworks", "", {}),
    "SambaNova": ("sambanova", "/v1", {}),
    "Perplexity": ("perplexity", "", {}),
}
"""Class → package, what its base URL ends with, and options: Cerebras' first request would be one of its own."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A scripted provider that cuts every answer at its limit, and sends it piece by piece."""
    answer = essay("One two three four five six.")
    with ScriptedProvider(lambda request: answer(request).but(pace_s=0.01)).serve() as served:
        yield served


@pytest.fixture
def seen() -> Iterator[Announced]:
    """What was announced."""
    with observed() as announced:
        yield announced


def client_of(name: str, url: str, *, asynchronous: bool = False, **more: Any) -> Any:
    """A client of an SDK."""
    package, path, options = SDKS[name]
    made = getattr(import_module(package), f"Async{name}" if asynchronous else name)
    return made(api_key="none", base_url=url + path, max_retries=0, **options, **more)


@pytest.mark.parametrize("name", SDKS)
def test_chat(seen: Announced, url: str, name: str) -> None:
    """Whole, raw, streamed, left and dropped; asynchronously too."""
    with client_of(name, url) as client:
        ask = client.chat.completions
        assert ask.create(**CHAT).choices[0].finish_reason == "length"
        assert ask.with_raw_response.create(**CHAT).parse().choices[0].finish_reason == "length"
        with ask.with_streaming_response.create(**CHAT) as raw:
            raw.read()
        stream = ask.create(**CHAT, stream=True)
        assert type(stream) is import_module(SDKS[name][0]).Stream
        assert [choice.finish_reason for chunk in stream for choice in chunk.choices or ()][-1] == "length"
        with ask.create(**CHAT, stream=True) as left:
            next(left)
        dropped = ask.create(**CHAT, stream=True)
        next(dropped)
        dropped = None
        gc.collect()
        cleanup.run()

    async def asynchronously() -> None:
        async with client_of(name, url, asynchronous=True) as client:
            await client.chat.completions.create(**CHAT)
            async for _ in await client.chat.completions.create(**CHAT, stream=True):
                pass
            async with await client.chat.completions.create(**CHAT, stream=True) as left:
                await anext(left)

    asyncio.run(asynchronously())
    whole, left = StopReason.MAX_TOKENS, StopReason.CANCELLED
    assert [each.stop.reason for each in seen.calls] == [whole] * 4 + [left] * 2 + [whole] * 2 + [left]
    assert {(each.started.provider, each.started.model) for each in seen.calls} == {("openai", "m")}


def text(client: Any) -> None:
    client.completions.create(model="m", prompt="Once upon", max_tokens=2)


def messages(client: Any) -> None:
    client.messages.create(**CHAT)


def responses(client: Any) -> None:
    client.responses.create(model="m", input="Write.", max_output_tokens=2)


OTHERS = {
    "Cerebras": [text],
    "Fireworks": [text, messages],
    "SambaNova": [text, messages, responses],
    "Perplexity": [responses],
}


@pytest.mark.parametrize(("name", "ask"), [(name, ask) for name, asks in OTHERS.items() for ask in asks])
def test_other_formats(seen: Announced, url: str, name: str, ask: Callable[[Any], None]) -> None:
    """Messages, Responses and text, where the SDK has them."""
    with client_of(name, url) as client:
        ask(client)
    one = seen.only()
    operation = "text_completion" if ask is text else "chat"
    assert (one.stop.reason, one.started.operation) == (StopReason.MAX_TOKENS, operation)


def test_a_job_is_no_call(seen: Announced) -> None:
    """Perplexity's asynchronous API takes a question and answers with a number."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"id": "j", "model": "m", "created_at": 1, "status": "CREATED"})

    http = httpx.Client(transport=httpx.MockTransport(answer))
    with client_of("Perplexity", "http://mock", http_client=http) as client:
        client.async_.chat.completions.create(request={"model": "m", "messages": TURN})
    assert not seen.records


def test_writer(seen: Announced) -> None:
    """Writer's chat has a path of its own, and the usual words."""
    known = {"id": "c", "created": 1, "model": "palmyra-x5"}
    choice = {"index": 0, "finish_reason": "length"}

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/chat"
        if not json.loads(request.content).get("stream"):
            message = {"role": "assistant", "content": "One two", "refusal": None}
            choices = [choice | {"message": message}]
            return httpx.Response(200, json=known | {"object": "chat.completion", "choices": choices})
        piece = known | {"object": "chat.completion.chunk", "choices": [choice | {"delta": {"content": "One two"}}]}
        data = f"data: {json.dumps(piece)}\n\ndata: [DONE]\n\n"
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=data)

    http = httpx.Client(transport=httpx.MockTransport(answer))
    writer = import_module("writerai").Writer
    with writer(api_key="none", base_url="https://api.writer.com", max_retries=0, http_client=http) as client:
        client.chat.chat(model="palmyra-x5", messages=TURN, max_tokens=2)
        assert list(client.chat.chat(model="palmyra-x5", messages=TURN, max_tokens=2, stream=True))
    assert [(each.stop.reason, each.started.provider) for each in seen.calls] == [(StopReason.MAX_TOKENS, "writer")] * 2
