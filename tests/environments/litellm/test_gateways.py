"""LiteLLM asking a host that nobody knows: the provider's own reason is recorded, whatever LiteLLM makes of it."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import litellm
import pytest
from litellm.google_genai import (
    agenerate_content,
    agenerate_content_stream,
    generate_content,
    generate_content_stream,
)
from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

from endturn.errors import ProviderError
from endturn.events import CallEnded
from endturn.scripted import ScriptedProvider, fail, reason, say, truncate
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from tests.environments.litellm.conftest import end_what_is_open
from tests.support.announced import Announced

ASK: list[Any] = [{"role": "user", "content": "Count."}]
SAY: list[Any] = [{"role": "user", "parts": [{"text": "Count."}]}]
HALF = truncate("One two three four", after=2)
CLAUDE, GEMINI = "anthropic/claude-sonnet-4-5", "gemini/gemini-3-pro"


def how(model: str, url: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": ASK, "api_base": url, "api_key": "none", "max_tokens": 50, **more}


def ask(given: dict[str, Any], *, asynchronous: bool = False) -> list[str | None]:
    """Ask, and read it all. Returns the finish reasons that LiteLLM hands to its host."""
    if not asynchronous:
        answer = litellm.completion(**given)
        return [one.choices[0].finish_reason for one in (answer if given.get("stream") else (answer,))]

    async def main() -> list[str | None]:
        answer = await litellm.acompletion(**given)
        if not given.get("stream"):
            return [answer.choices[0].finish_reason]
        return [chunk.choices[0].finish_reason async for chunk in answer]

    return asyncio.run(main())


def settle(seen: Announced) -> None:
    """Have what was dropped noticed: the threads that LiteLLM logs with hold a stream for a while longer."""
    for _ in range(200):
        gc.collect()
        cleanup.run()
        if any(isinstance(record, CallEnded) for record in seen.records):
            return
        time.sleep(0.02)


streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
both = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


# --- The provider's own word ---------------------------------------------------------------------------------------


@streamed
@both
@pytest.mark.parametrize(
    ("model", "raw", "means", "truncated"),
    [
        pytest.param(CLAUDE, "end_turn", StopReason.END_TURN, False, id="claude-end"),
        pytest.param(CLAUDE, "max_tokens", StopReason.MAX_TOKENS, True, id="claude-budget"),
        pytest.param(
            CLAUDE, "model_context_window_exceeded", StopReason.CONTEXT_WINDOW_EXCEEDED, True, id="claude-window"
        ),
        pytest.param(CLAUDE, "pause_turn", StopReason.PAUSED, False, id="claude-pause"),
        pytest.param(CLAUDE, "refusal", StopReason.REFUSED, False, id="claude-refusal"),
        pytest.param(CLAUDE, "novel_value", StopReason.UNKNOWN, False, id="claude-unknown"),
        pytest.param(GEMINI, "STOP", StopReason.END_TURN, False, id="gemini-end"),
        pytest.param(GEMINI, "MAX_TOKENS", StopReason.MAX_TOKENS, True, id="gemini-budget"),
        pytest.param(GEMINI, "MALFORMED_FUNCTION_CALL", StopReason.ERROR, False, id="gemini-malformed"),
        pytest.param(GEMINI, "LANGUAGE", StopReason.ERROR, False, id="gemini-language"),
        pytest.param(GEMINI, "NOVEL_VALUE", StopReason.UNKNOWN, False, id="gemini-unknown"),
    ],
)
def test_a_reason(
    seen: Announced,
    model: str,
    raw: str,
    means: StopReason,
    truncated: bool,
    asynchronous: bool,
    stream: bool,
) -> None:
    """It is what the provider said: LiteLLM says `stop` for most of it. Told when its host has read the answer."""
    with ScriptedProvider([reason(raw, "So far")]).serve() as url:
        ask(how(model, url, stream=stream), asynchronous=asynchronous)
        end_what_is_open()
        one = seen.only()
    assert (one.stop.reason, one.stop.raw, one.stop.truncated) == (means, raw, truncated)
    assert one.started.provider == ("anthropic" if model is CLAUDE else "gcp.gemini")
    assert (one.started.model, one.started.server_address) == (model.partition("/")[2], "127.0.0.1")
    assert one.started.stream is stream
    assert len(seen.spans) == 1


def test_its_host_is_given_what_litellm_makes_of_it(seen: Announced) -> None:
    """That the provider's word is seen changes nothing of what LiteLLM hands on."""
    with ScriptedProvider([reason("pause_turn", "So far")] * 2).serve() as url:
        watched = ask(how(CLAUDE, url, stream=True))
        assert watched[-1] == "stop"
    end_what_is_open()
    assert seen.only().stop.raw == "pause_turn"


@streamed
@pytest.mark.parametrize("prefix", ["hosted_vllm", "litellm_proxy", "mistral", "openrouter", "deepseek"])
def test_a_server_that_imitates_openai(seen: Announced, prefix: str, stream: bool) -> None:
    """Whether LiteLLM asks it through OpenAI's SDK or by itself, it is one record, of whose format it speaks."""
    with ScriptedProvider([HALF]).serve() as url:
        ask(how(f"{prefix}/m", f"{url}/v1", stream=stream))
    one = seen.only()
    assert (one.stop.reason, one.stop.raw) == (StopReason.MAX_TOKENS, "length")
    assert (one.started.provider, one.started.model, len(seen.spans)) == ("openai", "m", 1)


def test_ollama_s_text(seen: Announced) -> None:
    """LiteLLM asks it without a content type, and says `stop` whatever it says."""
    with ScriptedProvider([HALF]).serve() as url:
        ask(how("ollama/m", url))
    one = seen.only()
    assert (one.stop.reason, one.stop.raw, one.started.provider) == (StopReason.MAX_TOKENS, "length", "ollama")


# --- One call ------------------------------------------------------------------------------------------------------


def test_what_litellm_tries_again(seen: Announced) -> None:
    """A connection that was lost is one exchange, its next attempt another."""

    def lose(request: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError("lost", request=request)

    async def main(url: str) -> None:
        handler = AsyncHTTPHandler()
        handler.client = httpx.AsyncClient(transport=httpx.MockTransport(lose))  # its second attempt has one of its own
        await litellm.acompletion(**how(CLAUDE, url, client=handler))

    with ScriptedProvider([HALF]).serve() as url:
        asyncio.run(main(url))
    lost, one = seen.calls
    assert (lost.stop.reason, type(lost.error)) == (StopReason.ERROR, httpx.RemoteProtocolError)
    assert (one.stop.reason, one.stop.raw, one.error) == (StopReason.MAX_TOKENS, "max_tokens", None)
    assert len(seen.spans) == 2


@streamed
@both
def test_an_error(seen: Announced, asynchronous: bool, stream: bool) -> None:
    """It is one record, told before LiteLLM raises, with what the answer says."""
    with ScriptedProvider([fail(429)]).serve() as url, pytest.raises(litellm.exceptions.RateLimitError):
        ask(how(CLAUDE, url, stream=stream, max_retries=0), asynchronous=asynchronous)
    one = seen.only()
    assert one.stop.reason is StopReason.ERROR
    assert isinstance(one.error, ProviderError)


@both
def test_a_fallback(seen: Announced, asynchronous: bool) -> None:
    """The provider that failed and the one that took its place are two calls, of two providers."""
    with ScriptedProvider([fail(500), HALF]).serve() as url:
        other = {"model": GEMINI, "api_base": url, "api_key": "none"}
        ask(how(CLAUDE, url, fallbacks=[other], num_retries=0, max_retries=0), asynchronous=asynchronous)
    assert [(one.started.provider, one.stop.reason) for one in seen.calls] == [
        ("anthropic", StopReason.ERROR),
        ("gcp.gemini", StopReason.MAX_TOKENS),
    ]


@both
def test_a_stream_that_is_left(seen: Announced, asynchronous: bool) -> None:
    """Its host forgets it before its reason has come: cancelled."""
    paced = say("A long enough answer to be left before its end, in a good many pieces.").but(pace_s=0.01)

    async def main(given: dict[str, Any]) -> None:
        stream = await litellm.acompletion(**given)
        async for _ in stream:
            break
        await stream.aclose()

    with ScriptedProvider([paced]).serve() as url:
        given = how(CLAUDE, url, stream=True)
        if asynchronous:
            asyncio.run(main(given))
        else:
            stream = litellm.completion(**given)
            next(stream)
            del stream
        settle(seen)
    assert seen.only().stop.reason is StopReason.CANCELLED


def test_the_cache(seen: Announced, monkeypatch: pytest.MonkeyPatch) -> None:
    """What LiteLLM remembers is no provider's call."""
    monkeypatch.setattr(litellm, "cache", litellm.Cache())
    with ScriptedProvider([HALF]).serve() as url:
        for _ in range(2):
            ask(how(CLAUDE, url, caching=True))
    assert seen.only().stop.raw == "max_tokens"


# --- A provider's own format ---------------------------------------------------------------------------------------


def messages(url: str, **more: Any) -> Any:
    """Anthropic's format: LiteLLM has no synchronous way of asking Anthropic in it."""

    async def main() -> Any:
        answer = await litellm.anthropic.messages.acreate(**how(CLAUDE, url, **more))
        return [chunk async for chunk in answer] if isinstance(answer, AsyncIterator) else answer

    return asyncio.run(main())


def routed(url: str, **more: Any) -> Any:
    """The same, through the Router."""
    deployment = {"model_name": "m", "litellm_params": {"model": CLAUDE, "api_base": url, "api_key": "none"}}
    router = litellm.Router([deployment], num_retries=0)

    async def main() -> Any:
        answer = await router.aanthropic_messages(model="m", messages=ASK, max_tokens=50, **more)
        return [chunk async for chunk in answer] if isinstance(answer, AsyncIterator) else answer

    return asyncio.run(main())


def contents(url: str, *, stream: bool = False) -> Any:
    """Google's format."""
    given: dict[str, Any] = {"model": GEMINI, "contents": SAY, "api_base": url, "api_key": "none"}
    return list(generate_content_stream(**given)) if stream else generate_content(**given)


def acontents(url: str, *, stream: bool = False) -> Any:
    """The same, async."""
    given: dict[str, Any] = {"model": GEMINI, "contents": SAY, "api_base": url, "api_key": "none"}

    async def main() -> Any:
        if not stream:
            return await agenerate_content(**given)
        return [chunk async for chunk in await agenerate_content_stream(**given)]

    return asyncio.run(main())


@streamed
@pytest.mark.parametrize(
    ("asks", "raw", "means", "provider"),
    [
        pytest.param(messages, "pause_turn", StopReason.PAUSED, "anthropic", id="messages"),
        pytest.param(routed, "novel_value", StopReason.UNKNOWN, "anthropic", id="routed"),
        pytest.param(contents, "MALFORMED_FUNCTION_CALL", StopReason.ERROR, "gcp.gemini", id="contents"),
        pytest.param(acontents, "MAX_TOKENS", StopReason.MAX_TOKENS, "gcp.gemini", id="acontents"),
    ],
)
def test_its_own_format(
    seen: Announced, asks: Callable[..., Any], raw: str, means: StopReason, provider: str, stream: bool
) -> None:
    """One record, made where the provider answers."""
    with ScriptedProvider([reason(raw, "So far")]).serve() as url:
        assert asks(url, stream=stream)
    settle(seen)
    one = seen.only()
    assert (one.stop.reason, one.stop.raw, one.started.stream) == (means, raw, stream)
    assert (one.started.provider, one.started.server_address, len(seen.spans)) == (provider, "127.0.0.1", 1)


def test_its_own_format_tried_again(seen: Announced) -> None:
    """LiteLLM leaves out the thinking that Anthropic refuses, and asks again within the call: two exchanges."""
    refused = fail(400, message="messages.1.content.0: Invalid `signature` in `thinking` block")
    with ScriptedProvider([refused, HALF]).serve() as url:
        assert messages(url)["stop_reason"] == "max_tokens"
    assert [one.stop.reason for one in seen.calls] == [StopReason.ERROR, StopReason.MAX_TOKENS]
    assert [one.error is None for one in seen.calls] == [False, True]


def test_its_own_format_refused(seen: Announced) -> None:
    """An error is a record too."""
    with ScriptedProvider([fail(500)]).serve() as url, pytest.raises(litellm.exceptions.InternalServerError):
        messages(url)
    assert seen.only().stop.reason is StopReason.ERROR


def test_another_provider_in_its_format(seen: Announced) -> None:
    """LiteLLM makes it a chat completion: that one is the call."""
    with ScriptedProvider([HALF]).serve() as url:

        async def main() -> None:
            await litellm.anthropic.messages.acreate(**how("hosted_vllm/m", f"{url}/v1"))

        asyncio.run(main())
    one = seen.only()
    assert (one.stop.raw, one.started.provider) == ("length", "openai")
