"""The public API as its users write it: never run, only type-checked (`mypy` is part of `make check`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

import endturn
from endturn import (
    AsyncClient,
    AsyncContinuationController,
    ChatResponse,
    Client,
    ContinuationController,
    ContinuationPolicy,
    Delta,
    Message,
    Request,
    Resume,
    ScriptedProvider,
    Stop,
    StopReason,
    Tool,
    ToolCall,
    TurnOutcome,
    TurnResult,
    Usage,
    normalize,
    read,
)
from endturn.formats.apis.anthropic import FORMAT as anthropic
from endturn.formats.apis.openai_chat import FORMAT as openai_chat
from endturn.formats.format import Format
from endturn.testing.scripted import say

REQUEST = Request(model="m", messages=(Message(role="user", content="hello"),), max_tokens=10)


def formats() -> tuple[Format, Format]:
    """The format modules have every name of the protocol."""
    return openai_chat, anthropic


def vocabulary() -> None:
    """A Stop from a raw value, and a response with it."""
    stop = normalize("length", provider="openrouter", format="openai_chat", calls=0, output_tokens=5, maximum=5)
    assert_type(stop, Stop)
    assert_type(read({"choices": []}, format="openai_chat", provider="groq", request=REQUEST), ChatResponse)
    assert_type(stop.truncated, bool)
    assert_type(stop.reason, StopReason)
    assert_type(stop.resume, Resume)
    assert_type(ChatResponse(text="Half", stop=stop, usage=Usage(output_tokens=5)).stop, Stop)
    assert_type(Usage(1, 2) + Usage(3, 4), Usage)


def clients() -> None:
    """A client is a provider function, and streams."""
    client = Client("openai", api_key="none")
    assert_type(client(REQUEST), ChatResponse)
    stream: Iterator[Delta | ChatResponse] = client.stream(REQUEST)
    assert stream


async def async_clients() -> None:
    """The async one likewise."""
    client = AsyncClient("openai", api_key="none")
    assert_type(await client(REQUEST), ChatResponse)
    stream: AsyncIterator[Delta | ChatResponse] = client.stream(REQUEST)
    assert stream


def search(call: ToolCall) -> str:
    """A tool's function."""
    return call.name


def controllers() -> None:
    """Around any provider function; tools by name, or with their declarations."""
    policy = ContinuationPolicy(continuation_max_attempts=2)
    controller = ContinuationController(
        ScriptedProvider([say("hi")]), tools=[(Tool(name="search"), search)], policy=policy
    )
    result = controller.run(REQUEST)
    assert_type(result, TurnResult)
    assert_type(result.outcome, TurnOutcome)
    for item in ContinuationController(Client("openai").stream, tools={"search": search}).stream(REQUEST):
        assert_type(item, Delta | TurnResult)


async def async_controllers() -> None:
    """The same, awaited."""
    controller = AsyncContinuationController(AsyncClient("openai"))
    assert_type(await controller.run(REQUEST), TurnResult)


@endturn.observe_turn
def turn(question: str) -> str:
    """A decorated function keeps its signature."""
    return question


@endturn.observe_provider_call(provider="openai", model="m")
async def call(question: str) -> dict[str, str]:
    """So does a coroutine function under a decorator with arguments."""
    return {question: question}


def telemetry() -> None:
    """One line to set up, one to instrument, one to undo."""
    with endturn.configure(service_name="s", semconv="gen_ai_latest_experimental") as handle:
        assert_type(handle.force_flush(), bool)
    endturn.configure(event="spans")  # type: ignore[call-arg]  # options are known by name
    endturn.instrument(prices={"gpt-5": "cheap"})  # type: ignore[dict-item]  # and by type
    endturn.uninstrument()
    assert_type(turn("q"), str)


async def observed() -> None:
    """The decorated coroutine is awaited as before."""
    assert_type(await call("q"), dict[str, str])
