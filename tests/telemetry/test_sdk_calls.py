"""What SDKs have of their own beside plain calls and streams: clients of other clouds, helpers, middleware.

What all of them do alike is in tests/instrumentation/test_exchanges.py, every path in test_recognition.py.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import anthropic
import groq
import httpx
import httpx2
import openai
import pytest
import together
from anthropic.lib.bedrock import AnthropicBedrockMantle

from endturn.scripted import ScriptedProvider, truncate
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from tests.formats.replies import anthropic_stream, said
from tests.telemetry.mocked import (
    ASK,
    WHOLE,
    Records,
    body,
    claude,
    events,
)

CLAUDE: dict[str, Any] = {"model": "claude-sonnet-5-5", "max_tokens": 17, "messages": ASK["messages"]}
MESSAGES = anthropic_stream([said("w0 ", "w1 ", "w2 ")])


# --- Routes and clients --------------------------------------------------------------------------------------------


def both(create: Callable[..., Any], **asked: Any) -> None:
    """Whole and streamed."""
    create(**asked)
    list(create(**asked, stream=True))


def azure(http: Any) -> None:
    own: dict[str, Any] = {"azure_endpoint": "http://gateway.local", "api_version": "2025-03-01"}
    both(openai.AzureOpenAI(api_key="n", http_client=http, **own).chat.completions.create, **ASK)


def on_claude(make: Callable[..., Any], **how: Any) -> Callable[[Any], None]:
    return lambda http: both(make(http_client=http, max_retries=0, **how).messages.create, **CLAUDE)


PROMPT: dict[str, Any] = {"model": "codestral", "prompt": "def", "max_tokens": 9}
KEYS: dict[str, Any] = {"aws_access_key": "a", "aws_secret_key": "s", "aws_region": "us-east-1"}
MANTLE: dict[str, Any] = {"api_key": "k", "aws_region": "us-east-1"}
ROUTES: dict[str, tuple[Any, Callable[[Any], None], tuple[str, str, str]]] = {
    "groq": (
        httpx, lambda http: both(groq.Groq(api_key="n", http_client=http).chat.completions.create, **ASK),
        ("groq", ASK["model"], "chat"),
    ),
    "together": (
        httpx, lambda http: both(together.Together(api_key="n", http_client=http).completions.create, **PROMPT),
        ("together", "codestral", "text_completion"),
    ),
    "azure": (httpx2, azure, ("azure.ai.openai", ASK["model"], "chat")),
    "foundry": (
        httpx2, on_claude(anthropic.AnthropicFoundry, api_key="k", resource="me"),
        ("azure.ai.inference", CLAUDE["model"], "chat"),
    ),
    "bedrock": (httpx2, on_claude(anthropic.AnthropicBedrock, **KEYS), ("aws.bedrock", CLAUDE["model"], "chat")),
    "mantle": (httpx2, on_claude(AnthropicBedrockMantle, **MANTLE), ("aws.bedrock", CLAUDE["model"], "chat")),
}  # fmt: skip
"""A library, who asks by a client of it, and what each record says of provider, model and operation."""


@pytest.mark.parametrize(("library", "ask", "said"), ROUTES.values(), ids=ROUTES)
def test_a_route(records: Records, library: Any, ask: Callable[[Any], None], said: tuple[str, str, str]) -> None:
    """Path and host say who answers and in which format, wherever the SDK puts the model; whole and streamed."""
    ask(library.Client(transport=ScriptedProvider([truncate("One two", after=1)] * 2).transport()))
    assert records.reasons() == [StopReason.MAX_TOKENS] * 2
    assert [started.stream for started in records.started] == [False, True]
    assert {(started.provider, started.model, started.operation) for started in records.started} == {said}


# --- What is between an SDK and its provider -----------------------------------------------------------------------


def test_a_transport_that_hands_a_call_on_makes_no_other(records: Records) -> None:
    """A transport that sends what it is given by another HTTP client is a part of the call."""
    inner = httpx2.Client(transport=httpx2.MockTransport(lambda request: body(WHOLE)))

    def forward(request: httpx2.Request) -> httpx2.Response:
        answer = inner.post(str(request.url), content=request.content, headers={"content-type": "application/json"})
        return httpx2.Response(200, content=answer.content, headers={"content-type": "application/json"})

    http = httpx2.Client(transport=httpx2.MockTransport(forward))
    openai.OpenAI(api_key="none", max_retries=0, http_client=http).chat.completions.create(**ASK)
    assert records.only().started.model == ASK["model"]


# --- What a host does with its instrumentation ---------------------------------------------------------------------


@pytest.mark.parametrize("read", [pytest.param(0, id="never read"), pytest.param(2, id="read in part")])
def test_an_abandoned_stream_goes_at_once(records: Records, read: int) -> None:
    """No cycle of ours keeps a dropped stream: its response is freed without the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        stream: Any = claude(events(*MESSAGES)).messages.create(**CLAUDE, stream=True)
        here = weakref.ref(stream)
        for _ in range(read):
            next(stream)
        del stream
        assert here() is None
        cleanup.run()
    finally:
        gc.enable()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.detail) == (StopReason.CANCELLED, "abandoned")
