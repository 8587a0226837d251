"""Run by the interpreter of an SDK environment: asks a scripted provider in every way that its SDKs have.

    PYTHONPATH=src python tests/sdks/probe.py URL   prints, as JSON, what each call gave and what was recorded of it

The provider plays `essay` to the chat and messages formats: each question is cut by its limit.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import endturn

QUESTION = [{"role": "user", "content": "Write."}]
TOOLS = [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}]


def openai_calls(url: str) -> Iterable[tuple[str, Callable[[], Any]]]:
    """Every way of asking for a chat completion: the reason that the SDK shows."""
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    asks: dict[str, Any] = {"model": "m", "messages": QUESTION, "max_tokens": 2}

    def whole() -> Any:
        return client.chat.completions.create(**asks).choices[0].finish_reason

    def raw() -> Any:
        return client.chat.completions.with_raw_response.create(**asks).parse().choices[0].finish_reason

    def streamed() -> Any:
        with client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **asks) as chunks:
            return [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1]

    def asynchronous() -> Any:
        async def ask() -> Any:
            async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as aclient:
                found = await aclient.chat.completions.create(stream=True, **asks)
                return [choice.finish_reason async for chunk in found for choice in chunk.choices][-1]

        return _run(ask)

    def called() -> Any:
        answer = client.chat.completions.create(**{**asks, "model": "tools", "tools": TOOLS, "max_tokens": 99})
        return answer.choices[0].finish_reason

    def refused() -> Any:
        try:
            client.chat.completions.create(**{**asks, "model": "overflow"})
        except openai.BadRequestError as error:
            return error.code
        return None

    def text() -> Any:
        return client.completions.create(model="m", prompt="Write.", max_tokens=2).choices[0].finish_reason

    yield from {
        "openai whole": whole,
        "openai raw": raw,
        "openai streamed": streamed,
        "openai asynchronous": asynchronous,
        "openai tools": called,
        "openai overflow": refused,
        "openai text": text,
    }.items()
    if hasattr(client, "responses"):
        yield from responses_calls(url, client)
    client.close()


def responses_calls(url: str, client: Any) -> Iterable[tuple[str, Callable[[], Any]]]:
    """Every way of asking for a response: what the SDK says of its end."""
    import openai

    asks: dict[str, Any] = {"model": "m", "input": "Write.", "max_output_tokens": 2}

    def said(response: Any) -> str:
        details = response.incomplete_details
        return f"{response.status}: {details.reason}" if details else str(response.status)

    def whole() -> Any:
        return said(client.responses.create(**asks))

    def raw() -> Any:
        return said(client.responses.with_raw_response.create(**asks).parse())

    def streamed() -> Any:
        with client.responses.create(stream=True, **asks) as events:
            return said([event.response for event in events if hasattr(event, "response")][-1])

    def asynchronous() -> Any:
        async def ask() -> Any:
            async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as aclient:
                found = await aclient.responses.create(stream=True, **asks)
                return said([event.response async for event in found if hasattr(event, "response")][-1])

        return _run(ask)

    def left() -> Any:
        with client.responses.create(stream=True, **asks) as events:
            return next(iter(events)).type

    def fetched() -> Any:
        made = client.responses.create(**{**asks, "model": "job"}, extra_body={"background": True})
        return f"{made.status}, {said(client.responses.retrieve(made.id))}"

    yield from {
        "responses whole": whole,
        "responses raw": raw,
        "responses streamed": streamed,
        "responses asynchronous": asynchronous,
        "responses left": left,
        "responses fetched": fetched,
    }.items()


def anthropic_calls(url: str) -> Iterable[tuple[str, Callable[[], Any]]]:
    """Every way of asking for a message: the reason that the SDK shows."""
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    asks: dict[str, Any] = {"model": "m", "messages": QUESTION, "max_tokens": 2}

    def whole() -> Any:
        return client.messages.create(**asks).stop_reason

    def streamed() -> Any:
        with client.messages.create(stream=True, **asks) as events:
            return [event.delta.stop_reason for event in events if event.type == "message_delta"][-1]

    def helped() -> Any:
        with client.messages.stream(**asks) as stream:
            return stream.get_final_message().stop_reason

    def asynchronous() -> Any:
        async def ask() -> Any:
            async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as aclient:
                return (await aclient.messages.create(**asks)).stop_reason

        return _run(ask)

    yield from {
        "anthropic whole": whole,
        "anthropic streamed": streamed,
        "anthropic helper": helped,
        "anthropic asynchronous": asynchronous,
    }.items()
    client.close()


CALLS = {"openai": openai_calls, "anthropic": anthropic_calls}


def _run(ask: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(ask())  # type: ignore[arg-type]  # each is a coroutine function


def main(url: str) -> None:
    """Make every call of every SDK that is installed, and print what came of it."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    endturn.instrument(tracer_provider=provider)
    found: dict[str, Any] = {"versions": {name: version(name) for name in CALLS if find_spec(name)}, "calls": {}}
    for name in found["versions"]:
        for says, ask in CALLS[name](url):
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
