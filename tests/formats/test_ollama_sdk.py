"""The real Ollama SDK, asking a scripted provider over a socket: chat, streamed and not, sync and async."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import ollama as sdk
import pytest

from endturn.formats import Context
from endturn.formats.ollama import FORMAT as ollama
from endturn.scripted import Reply, ScriptedProvider, call, cut, fail, say, think, truncate
from endturn.sdk_objects import dumped
from endturn.stop import StopReason

ASKED: Any = [{"role": "user", "content": "hi"}]
CASES = {
    "text": (say("All of it. 👋🏽"), "All of it. 👋🏽", StopReason.END_TURN),
    "length": (truncate("One two three", after=2), "One two", StopReason.MAX_TOKENS),
    "thinking": (think("Let me see", text="Yes"), "Yes", StopReason.END_TURN),
    "calls": (call("read", {"path": "a b.txt"}, text="Reading.").also("list", {}), "Reading.", StopReason.TOOL_CALL),
}
each = pytest.mark.parametrize("name", CASES)


@contextmanager
def client(*replies: Reply) -> Iterator[sdk.Client]:
    """A client of a server that plays these replies."""
    with ScriptedProvider(replies, format="ollama").serve() as url:
        asking: Any = sdk.Client(host=url)
        try:
            yield asking
        finally:
            asking.close()


@asynccontextmanager
async def async_client(*replies: Reply) -> Any:
    """The same, asynchronous."""
    with ScriptedProvider(replies, format="ollama").serve() as url:
        asking: Any = sdk.AsyncClient(host=url)
        try:
            yield asking
        finally:
            await asking.close()


def seen(things: list[Any]) -> StopReason:
    """What a summarizer makes of the SDK's objects."""
    summarizer = ollama.summarizer(Context())
    for thing in things:
        summarizer.feed(dumped(thing))
    return summarizer.close().stop.reason


@each
def test_chat(name: str) -> None:
    """A body, and the lines of a stream, are the SDK's objects, and the summarizer reads them."""
    reply, text, reason = CASES[name]
    with client(reply, reply) as asking:
        body = asking.chat("m", ASKED, options={"num_predict": 1000})
        lines = list(asking.chat("m", ASKED, stream=True, options={"num_predict": 1000}))
    assert body.message.content == text
    assert "".join(each.message.content or "" for each in lines) == text
    assert lines[-1].done_reason == body.done_reason
    assert (seen([body]), seen(lines)) == (reason, reason)


@each
async def test_chat_async(name: str) -> None:
    """The same with the asynchronous client."""
    reply, text, reason = CASES[name]
    async with async_client(reply, reply) as asking:
        body = await asking.chat("m", ASKED)
        lines = [each async for each in await asking.chat("m", ASKED, stream=True)]
    assert body.message.content == text
    assert (seen([body]), seen(lines)) == (reason, reason)


def test_calls_and_thinking_reach_the_sdk() -> None:
    """Arguments are objects; thinking is beside the content."""
    with client(CASES["calls"][0], CASES["thinking"][0]) as asking:
        calls = asking.chat("m", ASKED).message.tool_calls or ()
        assert [(c.function.name, c.function.arguments) for c in calls] == [("read", {"path": "a b.txt"}), ("list", {})]
        assert asking.chat("m", ASKED).message.thinking == "Let me see"


def test_a_cut_stream_ends_without_a_reason() -> None:
    """The SDK just stops; the summarizer says that the end is missing."""
    with client(cut("One two three", after=2, tidy=True)) as asking:
        lines = list(asking.chat("m", ASKED, stream=True))
    assert not any(each.done for each in lines)
    assert seen(lines) is StopReason.MISSING


def test_failures_are_the_sdks_own() -> None:
    """An error answer, and an error line within a stream, raise the SDK's ResponseError."""
    with client(fail(404), fail(500, text="So far")) as asking:
        with pytest.raises(sdk.ResponseError, match="not found") as raised:
            asking.chat("m", ASKED)
        assert raised.value.status_code == 404
        with pytest.raises(sdk.ResponseError, match="running the model"):
            list(asking.chat("m", ASKED, stream=True))


def test_the_reason_is_still_plain_text() -> None:
    """Canary: the SDK declares no set of reasons. Once it does, each must have its row."""
    declared = sdk.ChatResponse.model_fields["done_reason"].annotation
    assert declared == str | None, f"the SDK declares {declared}: compare it with {sorted(ollama.reasons[''])}"
