"""LiteLLM over OpenAI's SDK and over a client of its own: each exchange is one record, with the provider's reason."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import litellm
import pytest
from litellm.google_genai import agenerate_content, agenerate_content_stream, generate_content, generate_content_stream

from endturn.scripted import ScriptedProvider, cut, fail, reason, say, truncate
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from tests.support.announced import Announced, observed

litellm.suppress_debug_info = True

MESSAGES: list[Any] = [{"role": "user", "content": "Count."}]
CONTENTS: list[Any] = [{"role": "user", "parts": [{"text": "Count."}]}]
HALF = truncate("One two three four", after=2)
PACED = say("A long enough answer to be left before its end, in a good many pieces of text.").but(pace_s=0.01)
GPT, CLAUDE, GEMINI = "openai/gpt-4o", "anthropic/claude-sonnet-4-5", "gemini/gemini-3-pro"

streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
both = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@pytest.fixture
def seen() -> Iterator[Announced]:
    """What was announced. LiteLLM was imported before anything was instrumented, as in a host."""
    with observed() as announced:
        yield announced


def how(model: str, url: str, **more: Any) -> dict[str, Any]:
    base = url if model.startswith(("anthropic", "gemini", "ollama")) else f"{url}/v1"
    return {"model": model, "api_base": base, "api_key": "none", "max_retries": 0, **more}


async def read(asks: Callable[[], Any]) -> list[Any]:
    """The answer, or each of its pieces."""
    answer = await asks()
    return [piece async for piece in answer] if isinstance(answer, AsyncIterator) else [answer]


def ask(model: str, url: str, *, asynchronous: bool = False, **more: Any) -> list[Any]:
    """Ask for a chat completion, and read it all."""
    given = how(model, url, messages=MESSAGES, max_tokens=50, **more)
    if asynchronous:
        return asyncio.run(read(partial(litellm.acompletion, **given)))
    answer = litellm.completion(**given)
    return list(answer) if more.get("stream") else [answer]


def settle(seen: Announced) -> None:
    """Have what was dropped noticed: the threads that LiteLLM logs with hold a stream for a while longer."""
    for _ in range(200):
        gc.collect()
        cleanup.run()
        if seen.ended:
            return
        time.sleep(0.02)


# --- Every way of asking -------------------------------------------------------------------------------------------


@streamed
@both
@pytest.mark.parametrize(
    ("model", "raw", "means", "provider"),
    [
        pytest.param(GPT, "length", StopReason.MAX_TOKENS, "openai", id="openai-budget"),
        pytest.param(CLAUDE, "max_tokens", StopReason.MAX_TOKENS, "anthropic", id="claude-budget"),
        pytest.param(CLAUDE, "pause_turn", StopReason.PAUSED, "anthropic", id="claude-pause"),
        pytest.param(CLAUDE, "novel_value", StopReason.UNKNOWN, "anthropic", id="claude-unknown"),
        pytest.param(GEMINI, "MALFORMED_FUNCTION_CALL", StopReason.ERROR, "gcp.gemini", id="gemini-malformed"),
        pytest.param("hosted_vllm/m", "length", StopReason.MAX_TOKENS, "openai", id="imitates-openai"),
    ],
)
def test_the_providers_own_reason_is_recorded(
    seen: Announced, model: str, raw: str, means: StopReason, provider: str, asynchronous: bool, stream: bool
) -> None:
    """LiteLLM says `stop` for much of it, and hands that on as ever; there is one record and one span."""
    with ScriptedProvider([reason(raw, "So far")]).serve() as url:
        answers = ask(model, url, asynchronous=asynchronous, stream=stream)
        # Its synchronous streams of Claude stop before `message_stop`, and are kept: open until observation ends.
        cleanup.end()
        one = seen.only()
    assert (one.stop.reason, one.stop.raw) == (means, raw)
    assert (one.started.provider, one.started.model) == (provider, model.partition("/")[2])
    assert (one.started.server_address, one.started.stream) == ("127.0.0.1", stream)
    assert one.started.operation == ("generate_content" if model is GEMINI else "chat")
    if raw == "pause_turn":
        assert answers[-1].choices[0].finish_reason == "stop"


def test_ollama_s_text(seen: Announced) -> None:
    """LiteLLM asks it without a content type, and says `stop` whatever it says."""
    with ScriptedProvider([HALF]).serve() as url:
        ask("ollama/m", url)
    one = seen.only()
    assert (one.stop.reason, one.stop.raw, one.started.provider) == (StopReason.MAX_TOKENS, "length", "ollama")


TEXT = "text-completion-openai/gpt-3.5-turbo-instruct"
STREAMS = generate_content_stream, agenerate_content_stream
OTHER_WAYS: dict[str, tuple[Callable[..., Any] | None, Callable[..., Any], str, dict[str, Any], str]] = {
    "text": (litellm.text_completion, litellm.atext_completion, TEXT, {"prompt": "Count."}, "length"),
    "responses": (litellm.responses, litellm.aresponses, GPT, {"input": "Count."}, "incomplete:max_output_tokens"),
    "contents": (generate_content, agenerate_content, GEMINI, {"contents": CONTENTS}, "MAX_TOKENS"),
    "contents streamed": (*STREAMS, GEMINI, {"contents": CONTENTS}, "MAX_TOKENS"),
    "messages": (None, litellm.anthropic.messages.acreate, CLAUDE, {"messages": MESSAGES}, "max_tokens"),
    "messages of openai": (None, litellm.anthropic.messages.acreate, "hosted_vllm/m", {"messages": MESSAGES}, "length"),
}
"""The function, its coroutine, the model, what it is asked, the provider's word. Anthropic's format has a coroutine
alone."""


@both
@streamed
@pytest.mark.parametrize("way", OTHER_WAYS)
def test_other_functions(seen: Announced, way: str, asynchronous: bool, stream: bool) -> None:
    """Text completions, Responses and the formats of Google and Anthropic: one record, with the provider's reason."""
    plain, awaited, model, asked, raw = OTHER_WAYS[way]
    if "messages" in asked:
        asked = asked | {"max_tokens": 50}
    if "contents" not in asked:
        asked = asked | {"stream": stream}
    with ScriptedProvider([HALF]).serve() as url:
        if asynchronous or plain is None:
            asyncio.run(read(partial(awaited, **how(model, url, **asked))))
        else:
            answer = plain(**how(model, url, **asked))
            list(answer if hasattr(answer, "__next__") else ())
        settle(seen)
    one = seen.only()
    assert (one.stop.reason, one.stop.raw) == (StopReason.MAX_TOKENS, raw)
    operation = {"text": "text_completion", "contents": "generate_content"}.get(way.partition(" ")[0], "chat")
    assert one.started.operation == operation


# --- How streams end -----------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("begun", [True, False], ids=["read in part", "never read"])
@pytest.mark.parametrize("model", [GPT, CLAUDE])
def test_a_stream_that_is_left(seen: Announced, model: str, begun: bool, asynchronous: bool) -> None:
    """Its host forgets or closes it before its reason has come: cancelled."""

    async def main(given: dict[str, Any]) -> None:
        stream = await litellm.acompletion(**given)
        if begun:
            await anext(aiter(stream))
        await stream.aclose()

    with ScriptedProvider([PACED]).serve() as url:
        given = how(model, url, messages=MESSAGES, stream=True)
        if asynchronous:
            asyncio.run(main(given))
        else:
            stream = litellm.completion(**given)
            if begun:
                next(stream)
            del stream
        settle(seen)
    assert seen.only().stop.reason is StopReason.CANCELLED


@pytest.mark.parametrize("model", [GPT, CLAUDE])
def test_a_stream_that_loses_its_end(seen: Announced, model: str) -> None:
    """LiteLLM closes it with a `stop` that nobody sent, or raises: the reason is missing."""
    with (
        ScriptedProvider([cut("One two three", after=2, tidy=True)]).serve() as url,
        contextlib.suppress(litellm.exceptions.MidStreamFallbackError),
    ):
        assert ask(model, url, stream=True)[-1].choices[0].finish_reason == "stop"
    assert seen.only().stop.reason is StopReason.MISSING


# --- Retries, and what is no exchange (errors and requests of no text are the HTTP clients') ----------------------


@pytest.mark.parametrize("model", [GPT, CLAUDE])
def test_the_routers_retries_are_exchanges(seen: Announced, model: str) -> None:
    """Two errors, then an answer; what the Router puts around a stream makes no further record."""
    with ScriptedProvider([fail(500), fail(500), HALF]).serve() as url:
        deployment = {"model_name": "m", "litellm_params": {**how(model, url)}}
        router = litellm.Router([deployment], num_retries=2, retry_after=0, disable_cooldowns=True)
        asyncio.run(read(partial(router.acompletion, "m", MESSAGES, stream=True)))
        cleanup.end()
    assert seen.reasons() == ["error", "error", "max_tokens"]
    assert len(seen.spans) == 3


def test_what_litellm_says_by_itself(seen: Announced, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mock asks nobody, and what the cache remembers is asked once."""
    litellm.completion(CLAUDE, MESSAGES, mock_response="Hi there, you.")
    assert not seen
    monkeypatch.setattr(litellm, "cache", litellm.Cache())
    with ScriptedProvider([HALF]).serve() as url:
        for _ in range(2):
            ask(CLAUDE, url, caching=True)
    assert seen.only().stop.raw == "max_tokens"
