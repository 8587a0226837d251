"""What telemetry adds to a model call: ours, other instrumentations, and the least that any could do.

The real `openai` SDK sends through httpx's mock transport. No socket, server or second thread adds its own noise to
what is looked for, which is a fraction of a call.

    bare    the SDK alone
    floor   one span of 10 attributes and two histogram records, written by hand
    signals what ours records of a call, written by hand with nothing read: the least that its telemetry can cost
    ours    `endturn.instrument()`: spans, log events, all metrics
    others  OpenTelemetry's, OpenLLMetry's, OpenInference's, OpenLIT: each in a process with bare, floor and ours

All variants of a comparison run in one process, in blocks of calls that take turns. Only one is in place at a time, and
each has providers of its own, whose exporters throw everything away. No two prompts are alike. A round is four blocks
of each variant; the last ends with one collection of the metrics and a flush, which count. What a variant adds is the
difference to the bare SDK in the same round; figures are medians of these, the spread is that of the middle half of the
rounds. CPU time is that of the whole process.

    python benchmarks/overhead.py [--rounds 40] [--quick] [--write]

`--quick` leaves the others out. `--write` writes docs/overhead.md.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import openai
from openai.resources.chat.completions import Completions
from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk._logs import LoggerProvider, export as logs_export
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider, export as trace_export

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "overhead.md"
MODEL: Final = "gpt-5-mini"
BLOCKS: Final = 4
"""Blocks of each variant in a round."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What is called.

    Attributes:
        calls: in one block; warm: before the first one.
        batch: spans and log records go through batch processors, else through simple ones.
        finish: why the answers stop.
        events: of a streamed answer, each in a chunk of its own; 0: the answer is whole.
        messages: of the request, 1 KB each but for the first.
        records: there are providers.
    """

    says: str
    calls: int = 25
    warm: int = 300
    batch: bool = False
    finish: str = "stop"
    events: int = 0
    messages: int = 1
    records: bool = True
    asks_model: bool = True


SITUATIONS: Final = {
    "simple": Situation("simple processors"),
    "batch": Situation("batch processors", batch=True),
    # As many turns wait for a continuation as may: each call ends the oldest.
    "cut": Situation("every answer cut, simple processors", finish="length", warm=1_100),
    "short": Situation("streams of 100 events", calls=5, warm=20, events=100),
    "long": Situation("streams of 400 events", calls=5, warm=20, events=400),
    "large": Situation("requests of 200 KB", calls=5, warm=20, messages=201),
    "nobody": Situation("no OpenTelemetry SDK", records=False),
    "other": Situation("requests to no model", asks_model=False),
}
COMPARED: Final = ("simple", "batch", "cut")
"""Situations in which the floor and the others are measured too."""

PEERS: Final = {
    "genai": ("peers", "opentelemetry-instrumentation-genai-openai", "opentelemetry.instrumentation.genai.openai"),
    "openllmetry": ("peers", "opentelemetry-instrumentation-openai", "opentelemetry.instrumentation.openai"),
    "openinference": ("peers", "openinference-instrumentation-openai", "openinference.instrumentation.openai"),
    "openlit": ("openlit", "openlit", "openlit"),
}
"""Of each other instrumentation the environment of tests/sdks/envs.toml, its package, and its module."""

# --- One comparison, in a process of its own ----------------------------------------------------------------------


class Spans(trace_export.SpanExporter):
    """Throws spans away."""

    def export(self, spans: Any) -> trace_export.SpanExportResult:
        return trace_export.SpanExportResult.SUCCESS


class Logs(logs_export.LogRecordExporter):
    """Throws log records away."""

    def export(self, batch: Any) -> logs_export.LogRecordExportResult:
        return logs_export.LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True

    def shutdown(self) -> None:
        """Nothing is held."""


class Providers:
    """The SDK's providers, for one variant."""

    def __init__(self, *, batch: bool) -> None:
        spans = trace_export.BatchSpanProcessor if batch else trace_export.SimpleSpanProcessor
        logs = logs_export.BatchLogRecordProcessor if batch else logs_export.SimpleLogRecordProcessor
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(spans(Spans()))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        self.loggers.add_log_record_processor(logs(Logs()))

    def finish(self) -> None:
        """Collect the metrics, and flush the rest."""
        self._reader.get_metrics_data()
        self.tracers.force_flush()
        self.loggers.force_flush()


def install_floor(given: Providers) -> None:
    """The least: a span, its duration and its tokens."""
    tracer, meter = given.tracers.get_tracer("floor"), given.meters.get_meter("floor")
    seconds, tokens = meter.create_histogram("seconds"), meter.create_histogram("tokens")
    create = Completions.create
    labels = {"operation": "chat", "provider": "openai", "model": MODEL}
    attributes = {**labels, **{f"key.{n}": "value" for n in range(7)}}

    def created(self: Any, **asked: Any) -> Any:
        began = time.perf_counter()
        span = tracer.start_span(f"chat {MODEL}", kind=trace.SpanKind.CLIENT, attributes=attributes)
        answer = create(self, **asked)
        seconds.record(time.perf_counter() - began, labels)
        tokens.record(180, labels)
        span.end()
        return answer

    Completions.create = created  # type: ignore[method-assign]


def install_signals(given: Providers, *, is_cut: bool) -> None:
    """What ours records of a call: a span of 19 attributes, a log record and six measurements.

    Of one that is cut, two log records and seven measurements: its turn is told of too.
    """
    tracer, meter = given.tracers.get_tracer("signals"), given.meters.get_meter("signals")
    logger = given.loggers.get_logger("signals")
    measured = [
        (meter.create_histogram(f"measured.{n}"), labels) for n, labels in enumerate((6, 6, 6, 2, 4, 3) + (2,) * is_cut)
    ]
    create = Completions.create
    keys = {f"key.{n}": "value" for n in range(19)}
    asked, answered = (dict(list(keys.items())[part]) for part in (slice(9), slice(9, None)))
    told = [{name: keys[name] for name in list(keys)[:each]} for each in (6, *(8,) * is_cut)]

    def created(self: Any, **request: Any) -> Any:
        span = tracer.start_span(f"chat {MODEL}", kind=trace.SpanKind.CLIENT, attributes=asked)
        context = trace.set_span_in_context(span)
        answer = create(self, **request)
        span.set_attributes(answered)
        for one in told:
            logger.emit(event_name="told", attributes=one, context=context, timestamp=time.time_ns())
        for histogram, labels in measured:
            histogram.record(1.0, {name: keys[name] for name in list(keys)[:labels]}, context)
        span.end()
        return answer

    Completions.create = created  # type: ignore[method-assign]


def install_ours(given: Providers | None) -> None:
    """As its documentation says."""
    import endturn

    if given is None:
        endturn.instrument()
    else:
        endturn.instrument(tracer_provider=given.tracers, meter_provider=given.meters, logger_provider=given.loggers)


def install_peer(name: str, given: Providers) -> None:
    """As its documentation says: with the global providers."""
    trace.set_tracer_provider(given.tracers)
    metrics.set_meter_provider(given.meters)
    _logs.set_logger_provider(given.loggers)
    module: Any = importlib.import_module(PEERS[name][2])
    if name == "openlit":  # prices would be fetched, and content is on by default
        module.init(pricing_json=os.devnull, capture_message_content=False)
    else:
        module.OpenAIInstrumentor().instrument()


def caller(situation: Situation, httpx: Any) -> Callable[[int], object]:
    """What makes one call, given its number."""
    usage = {"prompt_tokens": 25, "completion_tokens": 180, "total_tokens": 205}
    head = {"id": "chatcmpl-1", "created": 1, "model": f"{MODEL}-2026-08-07", "object": "chat.completion"}

    def said(where: str, finish: str | None, message: dict[str, str]) -> bytes:
        choice = {"index": 0, "finish_reason": finish, where: message}
        return json.dumps({**head, "choices": [choice], "usage": usage if finish else None}).encode()

    whole = said("message", situation.finish, {"role": "assistant", "content": "word " * 180})
    data = [said("delta", None, {"content": "word "})] * situation.events + [
        said("delta", situation.finish, {}),
        b"[DONE]",
    ]
    events = [b"data: " + each + b"\n\n" for each in data]

    def written() -> Iterator[bytes]:
        yield from events

    def answer(request: Any) -> Any:
        if situation.events:
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=written())
        return httpx.Response(200, headers={"content-type": "application/json"}, content=whole)

    http = openai.DefaultHttpxClient(transport=httpx.MockTransport(answer))
    client = openai.OpenAI(api_key="none", max_retries=0, http_client=http)
    options: dict[str, Any] = {"max_tokens": 1000, "temperature": 0.2, "stream": situation.events > 0}

    def call(number: int) -> object:
        if not situation.asks_model:
            return http.post("https://api.example.com/v1/things", content=b"{}")
        texts = [f"Say something, {number}.", *["word " * 200] * (situation.messages - 1)]
        messages = [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(texts)]
        got: Any = client.chat.completions.create(model=MODEL, messages=messages, **options)  # type: ignore[arg-type]
        return sum(1 for _ in got) if situation.events else got

    return call


def compare(name: str, variants: list[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Microseconds of wall and CPU time per call of each variant, a figure for each round."""
    situation = SITUATIONS[name]
    calls = min(situation.calls, 4 * rounds)  # a few rounds are only there to see that it runs
    # openai 3 brings httpx2, and no httpx.
    httpx: Any = importlib.import_module("httpx2" if openai.__version__.startswith("3") else "httpx")
    call, numbers = caller(situation, httpx), iter(range(10**9))
    methods: tuple[tuple[Any, str], ...] = ((Completions, "create"), (openai.OpenAI, "request"), (httpx.Client, "send"))

    def stand() -> list[Any]:
        """What stands in place of the methods that instrumentations wrap; None where one is inherited."""
        return [vars(owner).get(method) for owner, method in methods]

    def put(these: list[Any]) -> None:
        for (owner, method), value in zip(methods, these, strict=True):
            if value is not None:
                setattr(owner, method, value)
            elif method in vars(owner):
                delattr(owner, method)

    bare = stand()
    places: dict[str, tuple[list[Any], Callable[[], None]]] = {}
    for variant in variants:
        given = Providers(batch=situation.batch) if situation.records and variant != "bare" else None
        if variant == "ours":
            install_ours(given)
        elif variant == "floor" and given is not None:
            install_floor(given)
        elif variant == "signals" and given is not None:
            install_signals(given, is_cut=situation.finish == "length")
        elif given is not None:
            install_peer(variant, given)
        places[variant] = stand(), given.finish if given is not None else lambda: None
        for _ in range(min(situation.warm, 30 * rounds)):
            call(next(numbers))
        put(bare)
    # A full collection of all that was imported takes as long as a hundred calls.
    gc.collect()
    gc.freeze()
    found: dict[str, dict[str, list[float]]] = {
        each: {"wall": [0.0] * rounds, "cpu": [0.0] * rounds} for each in variants
    }
    for block in range(rounds * BLOCKS):
        first = block % len(variants)
        for variant in (*variants[first:], *variants[:first]):
            these, finish = places[variant]
            put(these)
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(calls):
                call(next(numbers))
            if block % BLOCKS == BLOCKS - 1:
                finish()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            for clock, spent in (("wall", wall), ("cpu", cpu)):
                found[variant][clock][block // BLOCKS] += spent / calls / BLOCKS * 1e6
            put(bare)
    return found


# --- All of them --------------------------------------------------------------------------------------------------


class Comparison:
    """What `compare` found in a process of its own."""

    def __init__(self, python: str, name: str, *variants: str, rounds: int) -> None:
        self._found = apart(python, "--compare", name, "bare", *variants, "--rounds", str(rounds))

    def bare(self, clock: str) -> float:
        """Microseconds of a bare call."""
        return float(statistics.median(self._found["bare"][clock]))

    def added(self, variant: str, clock: str) -> list[float]:
        """Microseconds that a variant adds to a call, a figure for each round."""
        pairs = zip(self._found[variant][clock], self._found["bare"][clock], strict=True)
        return [mine - alone for mine, alone in pairs]

    def ratio(self, variant: str, clock: str) -> list[float]:
        """What a variant adds over what the floor adds; the middle one is the ratio of the medians."""
        mine, floor = self.added(variant, clock), statistics.median(self.added("floor", clock))
        return [one / floor for one in mine]


def apart(python: str, *arguments: str) -> Any:
    """Run this file in a process of its own."""
    # One order of every set: it alone moves a call by several microseconds.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT / "src")}
    command = [python, __file__, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed in {python}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def shown(values: list[float]) -> str:
    """The median, and the quartiles around it."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f} … {high:.2f})"


def start_ms() -> float:
    """Milliseconds that `import endturn` and `instrument()` take beyond the import of the OpenTelemetry API."""
    api = "import opentelemetry.trace, opentelemetry.metrics, opentelemetry._logs"

    def once(code: str) -> float:
        timed = f"import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
        return float(subprocess.run([sys.executable, "-c", timed], check=True, capture_output=True).stdout) * 1e3

    return once(f"{api}; import endturn; endturn.instrument()") - once(api)


def goals(rounds: int) -> list[str]:
    """A table of the figures that there is a goal for."""
    runs = {
        name: Comparison(
            sys.executable, name, *(("floor", "signals") if name in COMPARED else ()), "ours", rounds=rounds
        )
        for name in SITUATIONS
    }
    rows: list[tuple[str, list[float], float | None]] = []
    for name in COMPARED:
        rows.append((f"{SITUATIONS[name].says}: wall, × floor", runs[name].ratio("ours", "wall"), 1.5))
        rows.append((f"{SITUATIONS[name].says}: CPU, × floor", runs[name].ratio("ours", "cpu"), 1.8))
        rows.append(("the same signals by hand, nothing read: CPU, × floor", runs[name].ratio("signals", "cpu"), None))
    pairs = zip(runs["long"].added("ours", "cpu"), runs["short"].added("ours", "cpu"), strict=True)
    more = SITUATIONS["long"].events - SITUATIONS["short"].events
    rows.append(("a streamed event: CPU, µs", [(long - short) / more for long, short in pairs], 3))
    rows.append(("a call where nothing records: CPU, µs", runs["nobody"].added("ours", "cpu"), 5))
    small, spent = statistics.median(runs["simple"].added("ours", "cpu")), runs["large"].bare("cpu")
    share = [(added - small) / spent * 100 for added in runs["large"].added("ours", "cpu")]
    rows.append(("200 KB of request: CPU, % of the SDK's", share, 2))
    rows.append(("a request to no model: CPU, µs", runs["other"].added("ours", "cpu"), 1))
    rows.append(("`import endturn` and `instrument()`: ms", [start_ms() for _ in range(max(2, rounds // 4))], 40))
    lines = ["| what it adds | measured (middle half) | goal | |", "| --- | --- | --- | --- |"]
    for says, values, goal in rows:
        is_missed = goal is not None and statistics.median(values) > goal
        lines.append(
            f"| {says} | {shown(values)} | {'' if goal is None else f'≤ {goal}'} | {'missed' if is_missed else ''} |"
        )
    call, least = runs["simple"].bare("wall"), statistics.median(runs["simple"].added("floor", "wall"))
    return [
        *lines,
        "",
        f"A bare call takes {call:.0f} µs here; the floor adds {least:.0f} µs behind simple processors.",
    ]


def others(rounds: int) -> list[str]:
    """A table of the other instrumentations, each beside ours in its own environment."""
    from tests.sdks.build import envs

    columns = [f"{SITUATIONS[name].says}: {clock}" for name in COMPARED for clock in ("wall", "CPU")]
    lines = [f"| × floor | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
    for name, (environment, package, _) in PEERS.items():
        env = envs()[environment]
        if not env.built:
            lines.append(f"| {package}: not built |" + " |" * len(columns))
            continue
        runs = [Comparison(str(env.python), each, "floor", "ours", name, rounds=rounds) for each in COMPARED]
        is_pinned = next(pin for pin in (*env.packages, *env.alone) if pin.startswith(f"{package}=="))
        for variant, says in ((name, is_pinned.replace("==", " ")), ("ours", "ours beside it")):
            cells = [shown(run.ratio(variant, clock)) for run in runs for clock in ("wall", "cpu")]
            lines.append(f"| {says} | {' | '.join(cells)} |")
    return lines


TEXT: Final = """\
# What it costs

<!-- Written by `make bench ARGS=--write`; do not edit. -->

What telemetry adds to one call of the real `openai` SDK, which sends through a mock transport. The *floor* is the least
that any instrumentation could do: one span with 10 attributes and two histogram records, written by hand. *Ours* is
every signal: spans, log events, all metrics. Compare ratios, not microseconds: those are the machine's.

{goals}

Where a goal of the recording is missed, this is why: a call's telemetry is a span of some twenty attributes, a log
record and six measurements, of a cut call two records and seven, and that alone, written by hand with OpenTelemetry's
public API and with nothing read, costs what the rows *by hand* say. The rest is reading the request and the answer, and
finding the turn that a call belongs to. Nothing private of OpenTelemetry is reached into to save any of it. A third of
the start is the import of wrapt, which imports asyncio.

## Beside other instrumentations

{others}

They make spans and, most of them, the conventions' metrics; none says whether a turn was finished.

## How it was measured

On {machine}, with openai {openai} and OpenTelemetry {sdk}:
medians of {rounds} rounds, and in brackets the quartiles of single rounds. The variants take turns in one process, and
what one adds is its difference to the bare SDK in the same round. A collection of the metrics after every {calls} calls
counts, and what batch processors do meanwhile. No two prompts are alike. How each figure is taken stands at the top of
`benchmarks/overhead.py`.

    .venv/bin/python tests/sdks/build.py peers openlit   # the other instrumentations, once
    make bench                                           # the tables above, on your machine
    make bench ARGS=--quick                              # without the others
    make bench ARGS=--write                              # writes this page
"""


def main() -> None:
    """Measure everything, or make one comparison for that."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="without the other instrumentations")
    parser.add_argument("--write", nargs="?", type=Path, const=PAGE, metavar="FILE", help="write docs/overhead.md")
    parser.add_argument("--compare", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.compare:
        print(json.dumps(compare(given.compare[0], given.compare[1:], given.rounds)))
        return
    sys.path.insert(0, str(ROOT))
    text = TEXT.format(
        goals="\n".join(goals(given.rounds)),
        others="Left out." if given.quick else "\n".join(others(given.rounds)),
        machine=f"{os.cpu_count()} CPUs, {platform.system()} {platform.machine()}, Python {platform.python_version()}",
        openai=version("openai"),
        sdk=version("opentelemetry-sdk"),
        rounds=given.rounds,
        calls=SITUATIONS["simple"].calls * BLOCKS,
    )
    print(text)
    if given.write:
        given.write.write_text(text)


if __name__ == "__main__":
    main()
