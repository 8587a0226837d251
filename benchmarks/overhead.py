"""What telemetry adds to a call: ours beside other instrumentations, the bare SDK, and the least that any could do.

The real `openai` SDK runs over an in-process transport that answers with a canned body, or a stream of 200 or 600
chunks. Each variant runs in a process of its own, the variants take turns in an order that changes from round to round,
and medians are taken over the rounds.

    bare    the SDK alone
    floor   one span of 10 attributes and two histogram records, written by hand
    ours    every signal: spans, log events, all metrics
    nosdk   ours, with no OpenTelemetry SDK set up
    others  opentelemetry-instrumentation-genai-openai, Traceloop's, OpenInference's, OpenLIT

Others run in the environments that `tests/sdks/build.py` makes, with bare, floor and ours beside them there: a ratio is
always to the floor of the same environment. An environment that is not there is left out, and said to be.

All but bare and nosdk share one pipeline: batch processors, a periodic reader, exporters that throw everything away.
Wall time is the lower quartile of the calls' own, in every variant: what else the machine does only ever adds to a
call. CPU time is that of the whole process, with its exporter threads and the last flush, over the number of calls.
What a variant adds is the median of its rounds less that of the bare SDK's; the ratio that counts is what it adds over
what the floor adds. The spread is that of single rounds, from the lowest to the highest: where it is wider than the
distance to a goal, the machine was too busy to tell.

What a chunk adds is read off the 400 chunks by which one stream is longer than the other. What a stream adds once, at
its ends, is not divided among its chunks: it runs through code that has left the processor's caches while the SDK read
them, so it costs several times what it costs a plain call.

    python benchmarks/overhead.py [--rounds 5] [--calls 1000] [--quick] [--json] [--write]

`--quick` makes fewer and shorter rounds, without others, in under 90 seconds; `--write` writes docs/overhead.md.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
DOCUMENT: Final = ROOT / "docs" / "overhead.md"

KINDS: Final = ("chat", "stream", "long")
CHUNKS: Final = {"chat": 0, "stream": 200, "long": 600}
SHARE: Final = {"chat": 1, "stream": 10, "long": 20}
"""How many plain calls are made for each of a kind."""
WARM: Final = 3
"""For how many measured calls one is made before."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another instrumentation.

    Attributes:
        package: what it is installed as; instrumentor: its module and class, "" where `module.init` starts it.
    """

    package: str
    instrumentor: tuple[str, str]


PEERS: Final = {
    "genai": Peer(
        "opentelemetry-instrumentation-genai-openai",
        ("opentelemetry.instrumentation.genai.openai", "OpenAIInstrumentor"),
    ),
    "traceloop": Peer(
        "opentelemetry-instrumentation-openai", ("opentelemetry.instrumentation.openai", "OpenAIInstrumentor")
    ),
    "openinference": Peer(
        "openinference-instrumentation-openai", ("openinference.instrumentation.openai", "OpenAIInstrumentor")
    ),
    "openlit": Peer("openlit", ("openlit", "")),
}
OURS: Final = ("bare", "floor", "ours")
VARIANTS: Final = (*OURS, "nosdk", *PEERS)
ENVIRONMENTS: Final = {
    "dev": (*OURS, "nosdk"),
    "peers": (*OURS, "genai", "traceloop", "openinference"),
    "openlit": (*OURS, "openlit"),
}
"""The environments that variants run in: this one, and those of tests/sdks/envs.toml."""

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
GOALS: Final = {"wall": 1.5, "cpu": 1.8, "chunk": 3.0, "nosdk": 5.0, "import": 40.0}


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
    import openai

    # openai 3 brings httpx2, and no httpx.
    httpx: Any = importlib.import_module("httpx2" if openai.__version__.partition(".")[0] >= "3" else "httpx")
    body, events = json.dumps(BODY).encode(), stream(chunks) if chunks else b""

    def answer(request: Any) -> Any:
        if b'"stream":true' in request.content.replace(b" ", b""):
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=events)
        return httpx.Response(200, headers={"content-type": "application/json"}, content=body)

    transport = httpx.MockTransport(answer)
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


def begin(variant: str) -> Callable[[], object]:
    """Put a variant in place, as its documentation says. Returns the last flush."""
    if variant in ("bare", "nosdk"):
        flush: Callable[[], object] = nullcontext
    else:
        flush = pipeline()
    if variant == "floor":
        floor()
    elif variant in ("ours", "nosdk"):
        import endturn

        endturn.instrument()
    elif variant in PEERS:
        module, name = PEERS[variant].instrumentor
        found: Any = importlib.import_module(module)
        if name:
            getattr(found, name)().instrument()
        else:
            # It takes the providers that are there. Prices would be fetched, and content is on by default.
            found.init(pricing_json=os.devnull, capture_message_content=False)
    return flush


def run(variant: str, kind: str, calls: int) -> dict[str, float]:
    """Seconds of wall and CPU time per call."""
    flush = begin(variant)
    create = client(CHUNKS[kind]).chat.completions.create
    options = {"stream_options": {"include_usage": True}} if kind != "chat" else {}

    def once() -> None:
        if kind == "chat":
            create(**REQUEST)
        else:
            for _ in create(**REQUEST, stream=True, **options):
                pass

    for _ in range(max(1, calls // WARM)):
        once()
    # A full collection of all that was imported takes as long as a hundred calls: which variant comes to one within its
    # few calls is chance.
    gc.collect()
    gc.freeze()
    walls = []
    cpu = time.process_time()
    for _ in range(calls):
        wall = time.perf_counter()
        once()
        walls.append(time.perf_counter() - wall)
    flush()
    spent = (time.process_time() - cpu) / calls
    least = statistics.quantiles(walls, n=4)[0] if len(walls) > 1 else walls[0]
    return {"wall": least, "cpu": spent}


# --- All of them --------------------------------------------------------------------------------------------------


def interpreter(name: str) -> str | None:
    """The Python of an environment; None where that has not been built."""
    if name == "dev":
        return sys.executable
    sys.path.insert(0, str(ROOT))
    from tests.sdks.build import envs

    env = envs().get(name)
    return str(env.python) if env is not None and env.built else None


def apart(python: str, *arguments: str) -> Any:
    """Run one variant in a process of its own."""
    # One order of every dictionary: it alone moves a call by several microseconds.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT / "src")}
    command = [python, __file__, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed in {python}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def import_ms() -> float:
    """What `import endturn` takes beyond the OpenTelemetry API: the least of several, taking turns, in milliseconds."""

    def once(code: str) -> float:
        timed = f"import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
        command = [sys.executable, "-c", timed]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    both, api = f"{IMPORTS['api']}; {IMPORTS['endturn']}", IMPORTS["api"]
    rounds = [(once(both), once(api)) for _ in range(9)]
    return (min(ours for ours, _ in rounds) - min(without for _, without in rounds)) * 1e3


def versions() -> dict[str, str]:
    """What is installed here, of what matters."""
    names = ["openai", "opentelemetry-sdk", *(peer.package for peer in PEERS.values())]
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except ImportError:
            continue
    return found


def measure(rounds: int, calls: int, environments: Sequence[str]) -> dict[str, Any]:
    """All figures, by environment."""
    pythons = {name: python for name in environments if (python := interpreter(name)) is not None}
    got: dict[str, dict[str, dict[str, list[dict[str, float]]]]] = {
        name: {kind: {variant: [] for variant in ENVIRONMENTS[name]} for kind in KINDS} for name in pythons
    }
    for turn in range(rounds):
        for name, python in pythons.items():
            variants = ENVIRONMENTS[name]
            # Nobody always follows the same one, nor always comes first.
            first = turn % len(variants)
            order = (*variants[first:], *variants[:first])
            for kind in KINDS:
                for variant in order if turn % 2 else reversed(order):
                    count = max(1, calls // SHARE[kind])
                    asked = ("--variant", variant, "--kind", kind, "--calls", str(count))
                    got[name][kind][variant].append(apart(python, *asked))
    found = {name: {**figures(got[name]), "versions": apart(python, "--versions")} for name, python in pythons.items()}
    return {
        "environments": found,
        "missing": [name for name in environments if name not in pythons],
        "import_ms": import_ms(),
        "rounds": rounds,
        "calls": calls,
        "machine": machine(),
    }


def machine() -> dict[str, Any]:
    """What it ran on."""
    return {
        "cpu": processor(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def processor() -> str:
    """What the machine calls its processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def figures(got: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> dict[str, Any]:
    """Of one environment: microseconds that each variant adds, its ratios to the floor, and what a chunk adds."""

    def added(kind: str, variant: str, clock: str) -> list[float]:
        pairs = zip(got[kind][variant], got[kind]["bare"], strict=True)
        return [(mine[clock] - alone[clock]) * 1e6 for mine, alone in pairs]

    def typical(kind: str, variant: str, clock: str) -> float:
        mine, alone = (statistics.median(one[clock] for one in got[kind][name]) for name in (variant, "bare"))
        return (mine - alone) * 1e6

    found: dict[str, Any] = {}
    for variant in got["chat"]:
        if variant == "bare":
            continue
        row: dict[str, Any] = {}
        for clock in ("wall", "cpu"):
            chat, of_floor = added("chat", variant, clock), added("chat", "floor", clock)
            ratios = [mine / base for mine, base in zip(chat, of_floor, strict=True) if base > 0]
            row[f"{clock}_us"] = typical("chat", variant, clock)
            row[f"{clock}_ratio"] = typical("chat", variant, clock) / typical("chat", "floor", clock)
            row[f"{clock}_spread"] = [min(ratios, default=0.0), max(ratios, default=0.0)]
        more = CHUNKS["long"] - CHUNKS["stream"]
        pairs = zip(added("long", variant, "wall"), added("stream", variant, "wall"), strict=True)
        chunks = [(long - short) / more for long, short in pairs]
        row["chunk_us"] = (typical("long", variant, "wall") - typical("stream", variant, "wall")) / more
        row["chunk_spread"] = [min(chunks), max(chunks)]
        found[variant] = row
    return {
        "bare_us": {kind: statistics.median(one["wall"] for one in got[kind]["bare"]) * 1e6 for kind in KINDS},
        "variants": found,
    }


def table(found: Mapping[str, Any]) -> list[str]:
    """The figures as a Markdown table: a row for each variant of each environment."""
    lines = [
        "| variant | wall, µs per call | × floor (spread) | CPU, µs per call | × floor (spread) | wall, µs per chunk |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, environment in found["environments"].items():
        installed = environment["versions"]
        bare = environment["bare_us"]["chat"]
        lines.append(f"| **openai {installed['openai']}** ({name}) | bare: {bare:.0f} | | | | |")
        for variant, row in environment["variants"].items():
            of = f" {installed.get(PEERS[variant].package, '')}" if variant in PEERS else ""
            # Without an SDK there is no span to compare with.
            shown = [
                f"{row[f'{clock}_ratio']:.2f} ({row[f'{clock}_spread'][0]:.2f} … {row[f'{clock}_spread'][1]:.2f})"
                if variant != "nosdk"
                else ""
                for clock in ("wall", "cpu")
            ]
            low, high = row["chunk_spread"]
            cells = (
                f"{variant}{of}",
                f"{row['wall_us']:.1f}",
                shown[0],
                f"{row['cpu_us']:.1f}",
                shown[1],
                f"{row['chunk_us']:.2f} ({low:.2f} … {high:.2f})",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def goals(found: Mapping[str, Any]) -> list[str]:
    """The figures that there is a goal for, each beside it."""
    if "dev" not in found["environments"]:
        return []
    variants = found["environments"]["dev"]["variants"]
    ours = variants["ours"]
    reached = (
        ("added per call, wall, × floor", ours["wall_ratio"], GOALS["wall"]),
        ("added per call, CPU, × floor", ours["cpu_ratio"], GOALS["cpu"]),
        ("added per chunk, µs", ours["chunk_us"], GOALS["chunk"]),
        ("added per call where nothing records, µs", variants["nosdk"]["wall_us"], GOALS["nosdk"]),
        ("`import endturn` beyond the OpenTelemetry API, ms", found["import_ms"], GOALS["import"]),
    )
    return [
        "| what | measured | goal | |",
        "| --- | --- | --- | --- |",
        *(
            f"| {what} | {is_:.2f} | ≤ {goal} | {'reached' if is_ <= goal else 'not reached'} |"
            for what, is_, goal in reached
        ),
    ]


PAGE: Final = """\
# What it costs

<!-- Written by `make bench ARGS=--write`; do not edit. -->

What telemetry adds to one call of the real `openai` SDK over an in-process transport, measured side by side in one run.
The *floor* is the least that any instrumentation could do: one span with 10 attributes and two histogram records,
written by hand. *ours* is every signal switched on: spans, log events, all metrics. *nosdk* is ours where no
OpenTelemetry SDK is set up. Compare ratios, not microseconds: those are the machine's.

{goals}

{table}

Measured on {machine}; medians of {rounds} rounds of {calls} calls, every variant in a process of its own. The spread is
that of single rounds.{missing}

| environment | packages |
| --- | --- |
{packages}

## To reproduce it

    .venv/bin/python tests/sdks/build.py peers openlit   # the other instrumentations, once
    make bench                                           # the tables above, on your machine
    make bench ARGS=--quick                              # without the others, in under 90 seconds
    make bench ARGS=--write                              # writes this page

How each figure is taken stands at the top of `benchmarks/overhead.py`.

## What is done about it

- A call's span starts when the call does and ends with it; its attributes are set together, and one log record is
  emitted, all through OpenTelemetry's public API. What the SDK takes for that is part of what a call costs.
- Counters are dictionaries that a reader reads.
- Measurements of histograms wait in a queue of 256, and are recorded when a reader collects; past that, one is recorded
  for each that comes.
- Nothing is built while nobody listens.
- Of a stream nothing is kept but a count and 64 characters: each chunk is looked at as it passes.
"""


def document(found: Mapping[str, Any]) -> str:
    """docs/overhead.md."""
    on, missing = found["machine"], ", ".join(found["missing"])
    installed = {name: environment["versions"].items() for name, environment in found["environments"].items()}
    packages = (
        f"| {name} | {', '.join(f'{what} {which}' for what, which in rows)} |" for name, rows in installed.items()
    )
    return PAGE.format(
        goals="\n".join(goals(found)),
        table="\n".join(table(found)),
        machine=f"{on['cpu']}, {on['cpus']} CPUs, {on['system']}, Python {on['python']}",
        rounds=found["rounds"],
        calls=found["calls"],
        missing=f" Not built, and so left out: {missing}." if missing else "",
        packages="\n".join(packages),
    )


def main() -> None:
    """Measure everything, or one variant for `measure`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--calls", type=int)
    parser.add_argument("--environments", nargs="+", choices=ENVIRONMENTS)
    parser.add_argument("--quick", action="store_true", help="without others, in under 90 seconds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="write docs/overhead.md")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=KINDS, default="chat", help=argparse.SUPPRESS)
    parser.add_argument("--versions", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.versions:
        print(json.dumps(versions()))
        return
    if given.variant:
        print(json.dumps(run(given.variant, given.kind, given.calls or 1000)))
        return
    environments = given.environments or (("dev",) if given.quick else tuple(ENVIRONMENTS))
    rounds, calls = (3, 600) if given.quick else (5, 1000)
    found = measure(given.rounds or rounds, given.calls or calls, environments)
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join([*goals(found), "", *table(found)]))
    for name in found["missing"]:
        print(f"not built, and left out: {name} (python tests/sdks/build.py {name})", file=sys.stderr)
    if given.write:
        DOCUMENT.write_text(document(found))


if __name__ == "__main__":
    main()
