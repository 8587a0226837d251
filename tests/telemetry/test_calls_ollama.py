"""The ollama SDK, observed: chat and generate, streamed and not, one record of every call."""

from __future__ import annotations

from typing import Any

import httpx
import ollama
import pytest

from endturn.scripted import Reply, ScriptedProvider, cut, fail, say, truncate
from endturn.stop import StopReason
from tests.telemetry.mocked import Records, settle

CHAT: dict[str, Any] = {
    "model": "qwen3",
    "messages": [{"role": "user", "content": "hi"}],
    "options": {"num_predict": 9},
}
GENERATE: dict[str, Any] = {"model": "qwen3", "prompt": "hi", "options": {"num_predict": 9}}
WAYS = pytest.mark.parametrize("way", ["chat", "generate"])


def client(*replies: Reply) -> ollama.Client:
    """A client at a host that is nobody's, which gets these replies."""
    return ollama.Client("http://gpu.internal:8000", transport=ScriptedProvider(list(replies)).transport())


def aclient(*replies: Reply) -> ollama.AsyncClient:
    """The same, async."""
    return ollama.AsyncClient("http://gpu.internal:8000", transport=ScriptedProvider(list(replies)).transport())


def asked(way: str) -> dict[str, Any]:
    return CHAT if way == "chat" else GENERATE


@WAYS
def test_a_call(records: Records, way: str) -> None:
    """Wherever the server is, it is Ollama; the SDK's own object comes back."""
    answer: Any = getattr(client(truncate("One two three", after=2)), way)(**asked(way))
    assert type(answer) in (ollama.ChatResponse, ollama.GenerateResponse)
    assert answer.done_reason == "length"
    ended = records.only()
    assert ended.started.operation == ("chat" if way == "chat" else "text_completion")
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "length")
    assert (ended.started.provider, ended.started.model, ended.started.maximum) == ("ollama", "qwen3", 9)
    assert (ended.started.server_address, ended.started.server_port) == ("gpu.internal", 8000)
    assert (ended.started.stream, ended.output_chars) == (False, 7)
    assert ended.usage is not None


@WAYS
def test_a_stream(records: Records, way: str) -> None:
    """Every line passes; the call begins when the host begins to read."""
    parts: Any = getattr(client(truncate("One two three", after=2)), way)(**asked(way), stream=True)
    assert not records.started
    assert next(reversed(list(parts))).done_reason == "length"
    ended = records.only()
    assert (ended.stop.reason, ended.started.stream, ended.output_chars) == (StopReason.MAX_TOKENS, True, 7)


@WAYS
async def test_async_calls_and_streams(records: Records, way: str) -> None:
    """The same, async."""
    asking = aclient(truncate("One two three", after=2), say("Hello"))
    await getattr(asking, way)(**asked(way))
    assert [part async for part in await getattr(asking, way)(**asked(way), stream=True)]
    whole, streamed = records.ended
    assert (whole.stop.reason, streamed.stop.reason) == (StopReason.MAX_TOKENS, StopReason.END_TURN)
    assert len(records.started) == 2


def test_a_stream_that_is_never_begun(records: Records) -> None:
    """A generator that nobody reads has asked nobody."""
    client(say("Hello")).chat(**CHAT, stream=True)
    settle()
    assert not records


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_a_stream_that_is_left(records: Records, how: str) -> None:
    """Its host has cancelled; what came is counted."""
    parts: Any = client(say("One two three four")).chat(**CHAT, stream=True)
    next(parts)
    if how == "closed":
        parts.close()
    del parts
    settle()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.truncated) == (StopReason.CANCELLED, False)


def test_a_stream_that_is_cut(records: Records) -> None:
    """Without its last line it is `missing`; broken, with the error that the SDK lets through."""
    list(client(cut("One two three", after=2, tidy=True)).chat(**CHAT, stream=True))
    with pytest.raises(httpx.RemoteProtocolError) as raised:
        list(client(cut("One two three", after=2)).chat(**CHAT, stream=True))
    tidy, broken = records.ended
    assert (tidy.stop.reason, tidy.error) == (StopReason.MISSING, None)
    assert (broken.stop.reason, broken.error) == (StopReason.MISSING, raised.value)


def test_an_error_within_a_stream(records: Records) -> None:
    """A line that is an error: the SDK raises it, and the record is no truncation."""
    with pytest.raises(ollama.ResponseError):
        list(client(fail(500, text="One two")).chat(**CHAT, stream=True))
    assert records.only().stop.reason is StopReason.ERROR


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_error_answer(records: Records, streamed: bool) -> None:
    """The SDK's own exception comes through."""
    asking: Any = client(fail(404, message="model 'qwen3' not found"))
    with pytest.raises(ollama.ResponseError, match="not found"):
        list(asking.chat(**CHAT, stream=streamed))
    ended = records.only()
    assert ended.stop.reason is StopReason.ERROR
    assert ended.error is not None


def test_no_server(records: Records) -> None:
    """The SDK raises its own word for it; the record has what it hides."""

    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(ConnectionError):
        ollama.Client("http://gpu.internal", transport=httpx.MockTransport(answer)).chat(**CHAT)
    ended = records.only()
    assert ended.stop.reason is StopReason.ERROR
    assert isinstance(ended.error, httpx.ConnectError)


def test_what_is_no_chat(records: Records) -> None:
    """Embeddings and the rest pass."""
    answer = httpx.Response(200, json={"model": "m", "embeddings": [[0.5]]})
    asking = ollama.Client("http://gpu.internal", transport=httpx.MockTransport(lambda request: answer))
    asking.embed(model="m", input="hi")
    assert not records
