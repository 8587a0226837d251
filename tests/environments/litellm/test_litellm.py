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

from endturn.telemetry import cleanup
from endturn.testing.scripted import ScriptedProvider, break_off, fail, reason, say, truncate
from endturn.vocabulary.stop import StopReason
from tests.support.announced import Announced, observed

litellm.suppress_debug_info = True

MESSAGES: list[Any] = [{"role": "user", "content": "Count."}]
CHAT: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 50}
CONTENTS: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "Count."}]}]}
HALF = truncate("One two three four", after=2)
PACED = say("A long enough answer to be left before its end, in a good many pieces of text.").but(pace_s=0.01)
GPT, CLAUDE, GEMINI = "openai/gpt-4o", "anthropic/claude-sonnet-4-5", "gemini/gemini-3-pro"
VLLM = "hosted_vllm/m"

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


def ask(model: str, url: str, **more: Any) -> list[Any]:
    """Ask for a chat completion, and read it all."""
    answer = litellm.completion(**how(model, url, **CHAT, **more))
    return list(answer) if more.get("stream") else [answer]


# --- Every way of asking -------------------------------------------------------------------------------------------


COMPLETION = litellm.completion, litellm.acompletion, CHAT
TEXT = "text-completion-openai/gpt-3.5-turbo-instruct"
MESSAGE = litellm.anthropic.messages.acreate
WAYS: dict[str, tuple[Callable[..., Any] | None, Callable[..., Any], dict[str, Any], str, str]] = {
    "openai": (*COMPLETION, GPT, "length"),
    "claude": (*COMPLETION, CLAUDE, "max_tokens"),
    "claude pauses": (*COMPLETION, CLAUDE, "pause_turn"),
    "claude says something new": (*COMPLETION, CLAUDE, "novel_value"),
    "gemini calls badly": (*COMPLETION, GEMINI, "MALFORMED_FUNCTION_CALL"),
    "imitates openai": (*COMPLETION, VLLM, "length"),
    "text": (litellm.text_completion, litellm.atext_completion, {"prompt": "Count."}, TEXT, "length"),
    "responses": (litellm.responses, litellm.aresponses, {"input": "Count."}, GPT, "incomplete:max_output_tokens"),
    "contents": (generate_content, agenerate_content, CONTENTS, GEMINI, "MAX_TOKENS"),
    "contents streamed": (generate_content_stream, agenerate_content_stream, CONTENTS, GEMINI, "MAX_TOKENS"),
    "messages": (None, MESSAGE, CHAT, CLAUDE, "max_tokens"),
    "messages of openai": (None, MESSAGE, CHAT, VLLM, "length"),
}
"""The function, its coroutine, what it is asked, the model, the provider's word. Anthropic's format has a coroutine
alone."""
MEANS = {
    "pause_turn": StopReason.PAUSED,
    "novel_value": StopReason.UNKNOWN,
    "MALFORMED_FUNCTION_CALL": StopReason.ERROR,
}
PROVIDERS = {"anthropic": "anthropic", "gemini": "gcp.gemini"}
OPERATIONS = {"text-completion-openai": "text_completion", "gemini": "generate_content"}


@streamed
@both
@pytest.mark.parametrize("way", WAYS)
def test_the_providers_own_reason_is_recorded(seen: Announced, way: str, asynchronous: bool, stream: bool) -> None:
    """LiteLLM says `stop` for much of it, and hands that on as ever; there is one record and one span."""
    plain, awaited, asked, model, raw = WAYS[way]
    more = {} if asked is CONTENTS else {"stream": stream}
    is_streamed = stream if more else way == "contents streamed"
    with ScriptedProvider([reason(raw, "So far") if raw in MEANS else HALF]).serve() as url:
        given = how(model, url, **asked, **more)
        if asynchronous or plain is None:
            answers = asyncio.run(read(partial(awaited, **given)))
        else:
            answer = plain(**given)
            answers = list(answer) if hasattr(answer, "__next__") else [answer]
        # Its synchronous streams of Claude stop before `message_stop`, and are kept: open until observation ends.
        cleanup.end()
        one = seen.only()
    kind, _, name = model.partition("/")
    assert (one.stop.reason, one.stop.raw) == (MEANS.get(raw, StopReason.MAX_TOKENS), raw)
    assert (one.started.endpoint.provider, one.started.request.model) == (PROVIDERS.get(kind, "openai"), name)
    assert (one.started.endpoint.server_address, one.started.request.stream) == ("127.0.0.1", is_streamed)
    assert one.started.endpoint.operation == OPERATIONS.get(kind, "chat")
    if raw == "pause_turn":
        assert answers[-1].choices[0].finish_reason == "stop"


def test_ollama_s_text(seen: Announced) -> None:
    """LiteLLM asks it without a content type, and says `stop` whatever it says."""
    with ScriptedProvider([HALF]).serve() as url:
        ask("ollama/m", url)
    one = seen.only()
    assert (one.stop.reason, one.stop.raw, one.started.endpoint.provider) == (StopReason.MAX_TOKENS, "length", "ollama")


# --- How streams end -----------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("model", [GPT, CLAUDE])
def test_a_stream_that_is_left(seen: Announced, model: str, asynchronous: bool) -> None:
    """Its host forgets or closes it before its reason has come: cancelled."""

    async def main(given: dict[str, Any]) -> None:
        stream = await litellm.acompletion(**given)
        await anext(aiter(stream))
        await stream.aclose()

    with ScriptedProvider([PACED]).serve() as url:
        given = how(model, url, messages=MESSAGES, stream=True)
        if asynchronous:
            asyncio.run(main(given))
        else:
            next(litellm.completion(**given))
        for _ in range(200):  # the threads that LiteLLM logs with hold a stream for a while longer
            gc.collect()
            cleanup.run()
            if seen.ended:
                break
            time.sleep(0.02)
    assert seen.only().stop.reason is StopReason.CANCELLED


@pytest.mark.parametrize("model", [GPT, CLAUDE])
def test_a_stream_that_loses_its_end(seen: Announced, model: str) -> None:
    """LiteLLM closes it with a `stop` that nobody sent, or raises: the reason is missing."""
    with (
        ScriptedProvider([break_off("One two three", after=2, tidy=True)]).serve() as url,
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
