"""Run by the interpreter of an SDK environment: asks a scripted provider in every way that its SDKs have.

    PYTHONPATH=src python tests/sdks/probe.py URL   prints, as JSON, what each call gave and what was recorded of it

The provider plays `essay` to the chat and messages formats: each question is cut by its limit.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import endturn

QUESTION = [{"role": "user", "content": "Write."}]
TOOLS = [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}]


Calls = dict[str, Callable[[], Any]]
"""Ways of asking: each gives the reason that the SDK shows."""


def openai_calls(url: str) -> Calls:
    """Every way of asking for a chat completion, a text completion or a response."""
    import openai

    how: dict[str, Any] = {"base_url": f"{url}/v1", "api_key": "none", "max_retries": 0}
    client, asks = openai.OpenAI(**how), {"model": "m", "messages": QUESTION, "max_tokens": 2}
    chat: Any = client.chat.completions

    def last(chunks: Iterable[Any]) -> Any:
        return [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1]

    async def asynchronous() -> Any:
        async with openai.AsyncOpenAI(**how) as aclient:
            achat: Any = aclient.chat.completions
            return last([chunk async for chunk in await achat.create(stream=True, **asks)])

    def refused() -> Any:
        try:
            chat.create(**{**asks, "model": "overflow"})
        except openai.BadRequestError as error:
            return error.code

    calls: Calls = {
        "openai whole": lambda: chat.create(**asks).choices[0].finish_reason,
        "openai raw": lambda: chat.with_raw_response.create(**asks).parse().choices[0].finish_reason,
        "openai streamed": lambda: last(chat.create(stream=True, stream_options={"include_usage": True}, **asks)),
        "openai asynchronous": lambda: asyncio.run(asynchronous()),
        "openai tools": lambda: (
            chat.create(**{**asks, "model": "tools", "tools": TOOLS, "max_tokens": 99}).choices[0].finish_reason
        ),
        "openai overflow": refused,
        "openai text": lambda: (
            client.completions.create(model="m", prompt="Write.", max_tokens=2).choices[0].finish_reason
        ),
    }
    return calls | (responses_calls(client, lambda: openai.AsyncOpenAI(**how)) if hasattr(client, "responses") else {})


def responses_calls(client: Any, aclient: Callable[[], Any]) -> Calls:
    """Every way of asking for a response: what the SDK says of its end."""
    asks: dict[str, Any] = {"model": "m", "input": "Write.", "max_output_tokens": 2}
    create = client.responses.create

    def said(response: Any) -> str:
        details = response.incomplete_details
        return f"{response.status}: {details.reason}" if details else str(response.status)

    def last(events: Iterable[Any]) -> str:
        return said([event.response for event in events if hasattr(event, "response")][-1])

    async def asynchronous() -> Any:
        async with aclient() as asking:
            return last([event async for event in await asking.responses.create(stream=True, **asks)])

    def left() -> Any:
        with create(stream=True, **asks) as events:
            return next(iter(events)).type

    def fetched() -> Any:
        made = create(**{**asks, "model": "job"}, extra_body={"background": True})
        return f"{made.status}, {said(client.responses.retrieve(made.id))}"

    return {
        "responses whole": lambda: said(create(**asks)),
        "responses raw": lambda: said(client.responses.with_raw_response.create(**asks).parse()),
        "responses streamed": lambda: last(create(stream=True, **asks)),
        "responses asynchronous": lambda: asyncio.run(asynchronous()),
        "responses left": left,
        "responses fetched": fetched,
    }


def anthropic_calls(url: str) -> Calls:
    """Every way of asking for a message."""
    import anthropic

    how: dict[str, Any] = {"base_url": url, "api_key": "none", "max_retries": 0}
    asks: dict[str, Any] = {"model": "m", "messages": QUESTION, "max_tokens": 2}
    messages = anthropic.Anthropic(**how).messages

    def streamed() -> Any:
        with messages.create(stream=True, **asks) as events:
            return [event.delta.stop_reason for event in events if event.type == "message_delta"][-1]

    def helped() -> Any:
        with messages.stream(**asks) as stream:
            return stream.get_final_message().stop_reason

    async def asynchronous() -> Any:
        async with anthropic.AsyncAnthropic(**how) as client:
            return (await client.messages.create(**asks)).stop_reason

    return {
        "anthropic whole": lambda: messages.create(**asks).stop_reason,
        "anthropic streamed": streamed,
        "anthropic helper": helped,
        "anthropic asynchronous": lambda: asyncio.run(asynchronous()),
    }


CALLS = {"openai": openai_calls, "anthropic": anthropic_calls}


def main(url: str) -> None:
    """Make every call of every SDK that is installed, and print what came of it."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    endturn.instrument(tracer_provider=provider)
    found: dict[str, Any] = {"versions": {name: version(name) for name in CALLS if find_spec(name)}, "calls": {}}
    for name in found["versions"]:
        for says, ask in CALLS[name](url).items():
            spans.clear()
            reason = ask()
            found["calls"][says] = {"reason": reason, "recorded": _reasons(spans.get_finished_spans())}
    endturn.uninstrument()
    print(json.dumps(found))


def _reasons(spans: Iterable[ReadableSpan]) -> list[Any]:
    attributes = [span.attributes or {} for span in spans]
    return [each["endturn.stop.reason"] for each in attributes if "endturn.stop.reason" in each]


if __name__ == "__main__":
    main(sys.argv[1])
