"""A host that makes very many calls, as a process: what time each block of them took, and what memory.

`python -m tests.instrumentation.enduring calls|events|cancelled` prints a line of JSON for each block.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import httpx
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import endturn
from endturn.calls import listeners
from endturn.calls.records import CallEnded

BLOCKS = 10
URL = "http://models.internal/v1/chat/completions"
WAYS = {"calls": 10_000, "events": 100_000, "cancelled": 1_000}
"""What there is of each in a block."""
EVENTS = 100
"""Events of one stream."""

numbers = itertools.count()
reasons: Counter[str] = Counter()


def asked(*, stream: bool = False) -> dict[str, object]:
    """A request whose prompt no other has."""
    messages = [{"role": "user", "content": f"Say something, {next(numbers)}."}]
    return {"model": "m", "messages": messages, "stream": stream, "max_tokens": 9}


def body(reason: str) -> bytes:
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": "One two three"}}
    return json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode()


def event(delta: dict[str, str], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return b"data: " + json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode() + b"\n\n"


WHOLE = [body("stop"), body("stop"), body("length")]
STREAM = event({"content": "word "}) * (EVENTS - 1) + event({}, "length") + b"data: [DONE]\n\n"


def calls(count: int) -> None:
    """Of every three one is cut, and one of seven fails."""
    answers = itertools.cycle(WHOLE)

    def respond(request: httpx.Request) -> httpx.Response:
        status = 503 if next(numbers) % 7 == 0 else 200
        return httpx.Response(status, content=b"" if status == 503 else next(answers))

    with httpx.Client(transport=httpx.MockTransport(respond)) as client:
        for _ in range(count):
            client.post(URL, json=asked())


def events(count: int) -> None:
    headers = {"content-type": "text/event-stream"}
    respond = httpx.MockTransport(lambda request: httpx.Response(200, headers=headers, content=STREAM))
    with httpx.Client(transport=respond) as client:
        for _ in range(count // EVENTS):
            client.post(URL, json=asked(stream=True))


class Endless(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield event({"content": "word "})
        await asyncio.sleep(3600)


def cancelled(count: int) -> None:
    """Half of the tasks read a stream when they are cancelled, half wait for their response."""

    async def respond(request: httpx.Request) -> httpx.Response:
        if json.loads(request.content)["stream"]:
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Endless())
        await asyncio.sleep(3600)
        raise AssertionError

    async def main() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as client:

            async def ask(*, stream: bool) -> None:
                async with client.stream("POST", URL, json=asked(stream=stream)) as response:
                    async for _ in response.aiter_raw():
                        pass

            for _ in range(count // 50):
                tasks = [asyncio.create_task(ask(stream=number % 2 == 0)) for number in range(50)]
                for _ in range(10):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                for task in tasks:
                    with suppress(asyncio.CancelledError):
                        await task

    asyncio.run(main())


RUN: dict[str, Callable[[int], None]] = {"calls": calls, "events": events, "cancelled": cancelled}


def main() -> None:
    way = sys.argv[1]
    spans, logs, reader = InMemorySpanExporter(), InMemoryLogRecordExporter(), InMemoryMetricReader()  # type: ignore[no-untyped-call]  # of the SDK
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))
    listeners.subscribe(lambda record: reasons.update([record.stop.reason]) if isinstance(record, CallEnded) else None)
    endturn.instrument(tracer_provider=tracers, meter_provider=MeterProvider([reader]), logger_provider=loggers)
    for _ in range(BLOCKS + 1):
        began, before = time.process_time(), sum(reasons.values())
        for _ in range(10):
            RUN[way](WAYS[way] // 10)
            spans.clear()
            logs.clear()
        reader.get_metrics_data()
        took = time.process_time() - began
        gc.collect()
        told = {"s": took, "calls": sum(reasons.values()) - before, "objects": len(gc.get_objects())}
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**told, "mb": peak_mb, "reasons": dict(reasons)}), flush=True)


if __name__ == "__main__":
    main()
