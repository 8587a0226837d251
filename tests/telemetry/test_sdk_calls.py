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

from endturn.instrumentation.instrument import uninstrument
from endturn.scripted import ScriptedProvider, truncate
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from tests.formats.replies import DONE_EVENT, anthropic_stream, message, named, said, say
from tests.telemetry.mocked import (
    ASK,
    CHUNKS,
    CUT_STREAM,
    STREAM,
    WHOLE,
    Records,
    body,
    chat,
    claude,
    events,
    settle,
)

CLAUDE: dict[str, Any] = {"model": "claude-sonnet-5-5", "max_tokens": 17, "messages": ASK["messages"]}
CUT_MESSAGE = message([say("Hello the")], "max_tokens")
MESSAGES = anthropic_stream([said("w0 ", "w1 ", "w2 ")])
CUT_MESSAGES = anthropic_stream([said("w0 ", "w1 ", "w2 ")], "max_tokens")
OVERLOADED = named({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})


def chats(*replies: httpx2.Response) -> Any:
    return chat(*replies).chat.completions


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


# --- The end of a stream -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_a_stream_that_is_left_after_its_reason_came(records: Records, how: str) -> None:
    """Hosts stop at the event that has it: that reason stands."""
    stream: Any = claude(events(*CUT_MESSAGES)).messages.create(**CLAUDE, stream=True)
    for event in stream:
        if event.type == "message_delta":
            break
    if how == "closed":
        stream.close()
    event = stream = None
    settle()
    assert (records.only().stop.reason, records.ended[0].stop.truncated) == (StopReason.MAX_TOKENS, True)


def test_an_error_after_the_reason_is_a_detail(records: Records) -> None:
    """The answer was cut; what happened to the stream afterwards changes nothing."""
    with pytest.raises(openai.APIConnectionError):
        list(chats(events(*CUT_STREAM[:-2], error=httpx2.ReadError("gone"))).create(**ASK, stream=True))
    with pytest.raises(anthropic.APIStatusError):
        list(claude(events(*CUT_MESSAGES[:-1], OVERLOADED)).messages.create(**CLAUDE, stream=True))
    assert [(ended.stop.reason, ended.stop.detail) for ended in records.ended] == [
        (StopReason.MAX_TOKENS, "ReadError"),
        (StopReason.MAX_TOKENS, "Overloaded"),
    ]


@pytest.mark.behaviour(3)
def test_a_connection_that_is_lost_after_the_reason(records: Records) -> None:
    """Without `message_stop`, and without a host that had read enough, a stream of Claude is cut."""
    list(claude(events(*CUT_MESSAGES[:-1])).messages.create(**CLAUDE, stream=True))
    with pytest.raises(httpx2.ReadError):
        list(claude(events(*CUT_MESSAGES[:-1], error=httpx2.ReadError("x"))).messages.create(**CLAUDE, stream=True))
    assert [ended.stop.reason for ended in records.ended] == [StopReason.MISSING] * 2


@pytest.mark.parametrize("lost", [False, True])
def test_a_stream_without_a_reason_read_to_done(records: Records, lost: bool) -> None:
    """It is `missing`; what follows `[DONE]` is not the answer, nor is its failure that of the call."""
    reply = events(*CHUNKS, DONE_EVENT, error=httpx2.ReadError("gone") if lost else None)
    assert len(list(chats(reply).with_raw_response.create(**ASK, stream=True).parse())) == len(CHUNKS)
    ended = records.only()
    assert (ended.stop.reason, ended.error) == (StopReason.MISSING, None)


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


def test_a_stream_that_is_open_when_instrumentation_ends(records: Records) -> None:
    """`uninstrument`, and the end of the process, end what is still being read."""
    stream = chats(events(*STREAM)).create(**ASK, stream=True)
    next(stream)
    uninstrument()
    assert records.only().stop.reason is StopReason.CANCELLED
    assert len(list(stream)) == 7  # `[DONE]` is none
    assert len(records.ended) == 1


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
