"""What telemetry adds to a call: against the bare SDK, and against the least that any instrumentation could do.

The real `openai` SDK runs over an in-process transport that answers with a canned body, or a stream of 200 or 600
chunks. Each variant runs in a process of its own, the variants take turns in an order that changes from round to round,
and medians are taken over the rounds.

    bare    the SDK alone
    floor   one span of 10 attributes and two histogram records, written by hand
    ours    every signal: spans, log events, all metrics
    nosdk   ours, with no OpenTelemetry SDK set up

`floor` and `ours` share one pipeline: batch processors, a periodic reader, exporters that throw everything away. Wall
time is the lower quartile of the calls' own, in every variant: what else the machine does only ever adds to a call. CPU
time is that of the whole process, with its exporter threads and the last flush, by batches of calls of which the median
counts. What a variant adds is its time less the bare SDK's of the same round; the ratio that counts is what ours adds
over what the floor adds. The spread is that of single rounds, from the lowest to the highest: where it is wider than
the distance to a goal, the machine was too busy to tell.

What a chunk adds is read off the 400 chunks by which one stream is longer than the other. What a stream adds once, at
its ends, is not divided among its chunks: it runs through code that has left the processor's caches while the SDK read
them, so it costs several times what it costs a plain call. The stream columns show it.

    python benchmarks/overhead.py [--rounds 9] [--calls 1500] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, Final

VARIANTS: Final = ("bare", "floor", "ours", "nosdk")
KINDS: Final = ("chat", "stream", "long")
CHUNKS: Final = {"chat": 0, "stream": 200, "long": 600}
SHARE: Final = {"chat": 1, "stream": 10, "long": 20}
"""How many plain calls are made for each of a kind."""
BATCHES: Final = 25
"""Of one process's calls, for their CPU time: its clock is too coarse for one call."""

MODEL: Final = "gpt-5-mini"
IMPORTS: Final = {
    "api": "import opentelemetry.trace, opentelemetry.metrics, opentelemetry._logs",
    "endturn": "import endturn",
}

USAGE: Final = {"prompt_tokens": 25, "completion_tokens": 180, "total_tokens": 205}
BODY: Final = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-5-mini-2026-08-07",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "word " * 180}}],
    "usage": USAGE,
}
REQUEST: Final[dict[str, Any]] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Say something."}],
    "max_tokens": 1000,
    "temperature": 0.2,
}
GOALS: Final = {"chat wall": 1.3, "chat cpu": 1.3, "per chunk": 1.0, "nosdk": 10.0, "import": 60.0}


def chunk(delta: dict[str, str], finish: str | None = None, usage: dict[str, int] | None = None) -> bytes:
    """One server-sent event of a stream."""
    choices = [] if usage else [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": BODY["model"]}
    return b"data: " + json.dumps(head | {"choices": choices, "usage": usage}).encode() + b"\n\n"


def stream(chunks: int) -> bytes:
    """The body of a whole stream."""
    words = [chunk({"content": "word "})] * (chunks - 2)
    return b"".join([*words, chunk({}, "stop"), chunk({}, usage=USAGE), b"data: [DONE]\n\n"])


# --- One variant, in its own process ------------------------------------------------------------------------------


def client(chunks: int = CHUNKS["stream"]) -> Any:
    """The real SDK over a transport that never leaves the process, with streams of so many chunks."""
    import httpx2
    import openai

    body, events = json.dumps(BODY).encode(), stream(chunks) if chunks else b""

    def answer(request: httpx2.Request) -> httpx2.Response:
        if b'"stream":true' in request.content.replace(b" ", b""):
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=events)
        return httpx2.Response(200, headers={"content-type": "application/json"}, content=body)

    transport = httpx2.MockTransport(answer)
    return openai.OpenAI(api_key="none", max_retries=0, http_client=openai.DefaultHttpxClient(transport=transport))


def pipeline() -> Callable[[], None]:
    """The SDK's own processors and reader in front of exporters that throw everything away. Returns the last flush."""
    from opentelemetry import _logs, metrics, trace
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter, LogRecordExportResult
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Spans(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    class Logs(LogRecordExporter):
        def export(self, batch: Any) -> LogRecordExportResult:
            return LogRecordExportResult.SUCCESS

        def force_flush(self, timeout_millis: int = 0) -> bool:
            return True

        def shutdown(self) -> None:
            """Nothing is held."""

    class Metrics(MetricExporter):
        def export(self, metrics_data: Any, timeout_millis: float = 0, **_: Any) -> MetricExportResult:
            return MetricExportResult.SUCCESS

        def force_flush(self, timeout_millis: float = 0) -> bool:
            return True

        def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:
            """Nothing is held."""

    tracers, loggers = TracerProvider(shutdown_on_exit=False), LoggerProvider(shutdown_on_exit=False)
    meters = MeterProvider([PeriodicExportingMetricReader(Metrics())], shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(Spans()))
    loggers.add_log_record_processor(BatchLogRecordProcessor(Logs()))
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(meters)
    _logs.set_logger_provider(loggers)

    def flush() -> None:
        for provider in (meters, tracers, loggers):
            provider.shutdown()

    return flush


def floor() -> None:
    """The least: a span, its duration and its tokens."""
    from openai.resources.chat.completions import Completions
    from opentelemetry import metrics, trace

    tracer, meter = trace.get_tracer("floor"), metrics.get_meter("floor")
    seconds, tokens = meter.create_histogram("seconds"), meter.create_histogram("tokens")
    create = Completions.create
    labels = {"operation": "chat", "provider": "openai", "model": MODEL}

    def finish(span: trace.Span, began: float) -> None:
        seconds.record(time.perf_counter() - began, labels)
        tokens.record(180, labels)
        span.end()

    def watched(span: trace.Span, began: float, stream: Any) -> Iterator[Any]:
        yield from stream
        finish(span, began)

    def created(self: Any, **asked: Any) -> Any:
        began = time.perf_counter()
        span = tracer.start_span(
            f"chat {MODEL}",
            kind=trace.SpanKind.CLIENT,
            attributes={**labels, **{f"key.{n}": "value" for n in range(7)}},
        )
        got = create(self, **asked)
        if asked.get("stream"):
            return watched(span, began, got)
        finish(span, began)
        return got

    Completions.create = created  # type: ignore[method-assign]


def run(variant: str, kind: str, calls: int) -> dict[str, float]:
    """Seconds of wall and CPU time per call."""
    flush = pipeline() if variant in ("floor", "ours") else nullcontext
    if variant == "floor":
        floor()
    elif variant != "bare":
        import endturn

        endturn.instrument()
    create = client(CHUNKS[kind]).chat.completions.create
    options = {"stream_options": {"include_usage": True}} if kind != "chat" else {}

    def once() -> None:
        if kind == "chat":
            create(**REQUEST)
        else:
            for _ in create(**REQUEST, stream=True, **options):
                pass

    size = max(1, calls // BATCHES)
    for _ in range(2 * size):
        once()
    walls, cpus = [], []
    for _ in range(BATCHES):
        cpu = time.process_time()
        for _ in range(size):
            wall = time.perf_counter()
            once()
            walls.append(time.perf_counter() - wall)
        cpus.append((time.process_time() - cpu) / size)
    cpu = time.process_time()
    flush()
    last = (time.process_time() - cpu) / (size * BATCHES)
    return {"wall": statistics.quantiles(walls, n=4)[0], "cpu": statistics.median(cpus) + last}


# --- All of them --------------------------------------------------------------------------------------------------


def apart(*arguments: str) -> dict[str, float]:
    """Run one variant in a process of its own."""
    command = [sys.executable, __file__, *arguments]
    # One order of every dictionary: it alone moves a call by several microseconds.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def import_ms() -> float:
    """What `import endturn` takes beyond the OpenTelemetry API: the least of several, in milliseconds."""

    def least(code: str) -> float:
        timed = f"import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
        command = [sys.executable, "-c", timed]
        return min(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(9))

    return (least(f"{IMPORTS['api']}; {IMPORTS['endturn']}") - least(IMPORTS["api"])) * 1e3


def measure(rounds: int, calls: int) -> dict[str, Any]:
    """All figures: microseconds added per call, ratios to the floor by round, and what follows from them."""
    got: dict[str, dict[str, list[dict[str, float]]]] = {kind: {v: [] for v in VARIANTS} for kind in KINDS}
    for turn in range(rounds):
        # Nobody always follows the same one, nor always comes first.
        first = turn % len(VARIANTS)
        order = (*VARIANTS[first:], *VARIANTS[:first])
        for kind in KINDS:
            for variant in order if turn % 2 else reversed(order):
                count = max(BATCHES, calls // SHARE[kind])
                got[kind][variant].append(apart("--variant", variant, "--kind", kind, "--calls", str(count)))
    added = {
        kind: {
            variant: {
                clock: statistics.median(
                    (mine[clock] - bare[clock]) * 1e6
                    for mine, bare in zip(got[kind][variant], got[kind]["bare"], strict=True)
                )
                for clock in ("wall", "cpu")
            }
            for variant in VARIANTS[1:]
        }
        for kind in KINDS
    }
    ratios = {
        clock: [
            (ours[clock] - bare[clock]) / (least[clock] - bare[clock])
            for bare, least, ours in zip(*(got["chat"][v] for v in ("bare", "floor", "ours")), strict=True)
        ]
        for clock in ("wall", "cpu")
    }
    return {
        "added_us": added,
        "ratio": {clock: added["chat"]["ours"][clock] / added["chat"]["floor"][clock] for clock in ("wall", "cpu")},
        "spread": {clock: (min(values), max(values)) for clock, values in ratios.items()},
        "per_chunk_us": {
            v: (added["long"][v]["wall"] - added["stream"][v]["wall"]) / (CHUNKS["long"] - CHUNKS["stream"])
            for v in VARIANTS[1:]
        },
        "import_ms": import_ms(),
        "bare_us": {kind: statistics.median(one["wall"] for one in got[kind]["bare"]) * 1e6 for kind in KINDS},
    }


def show(figures: dict[str, Any]) -> None:
    """The figures as a table, each beside its goal."""
    print(
        f"{'':8}{'chat wall µs':>14}{'chat CPU µs':>14}{'stream wall µs':>16}{'stream CPU µs':>16}{'µs per chunk':>14}"
    )
    for variant in VARIANTS[1:]:
        chat, stream = figures["added_us"]["chat"][variant], figures["added_us"]["stream"][variant]
        print(
            f"{variant:8}{chat['wall']:14.1f}{chat['cpu']:14.1f}{stream['wall']:16.1f}{stream['cpu']:16.1f}"
            f"{figures['per_chunk_us'][variant]:14.2f}"
        )
    for clock in ("wall", "cpu"):
        low, high = figures["spread"][clock]
        ratio = figures["ratio"][clock]
        print(f"ours / floor, {clock}: {ratio:.2f} ({low:.2f} … {high:.2f}; goal {GOALS[f'chat {clock}']})")
    print(f"per chunk: {figures['per_chunk_us']['ours']:.2f} µs (goal {GOALS['per chunk']})")
    print(f"no SDK: {figures['added_us']['chat']['nosdk']['wall']:.1f} µs per call (goal {GOALS['nosdk']})")
    print(f"import endturn: {figures['import_ms']:.1f} ms beyond the OpenTelemetry API (goal {GOALS['import']})")


def main() -> None:
    """Measure everything, or one variant for `measure`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=1500)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=KINDS, default="chat", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.variant:
        print(json.dumps(run(given.variant, given.kind, given.calls)))
        return
    figures = measure(given.rounds, given.calls)
    if given.json:
        print(json.dumps(figures, indent=2))
    else:
        show(figures)


if __name__ == "__main__":
    main()
