"""docs/overhead.md: the figures in the terms of somebody who runs an agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.overhead.figures import Row, number
from benchmarks.overhead.groups import BATCH, ERRORS, METRICS, SIMPLE, TASKS, THREADS
from benchmarks.overhead.runner import OWN_ENVIRONMENT, Results, machine
from benchmarks.overhead.situations import SITUATIONS, TOOL_CALLS
from benchmarks.overhead.variants import BARE, ENDTURN, PEERS

ABSENT: Final = "–"
TOKENS_PER_SECOND: Final = 100
COLLECTION_INTERVAL_S: Final = 15
MICROSECONDS: Final = 1e6

Rows = dict[str, Row]


def figure(row: Row | None, unit: str | None = None) -> str:
    """A figure with its spread."""
    if row is None:
        return ABSENT
    return f"{number(row.value)} ({number(row.low)} … {number(row.high)}) {row.unit if unit is None else unit}".rstrip()


def per_thousand(row: Row) -> str:
    """Microseconds of a call, as milliseconds of a thousand, and as a share of a call of one second."""
    share = row.value / MICROSECONDS * 100
    return f"{number(row.value)} ms per thousand calls; {share:.2f} % of a call of one second"


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines))


def costs_table(rows: Rows) -> str:
    """What endturn costs, situation by situation."""
    event = rows["event"]
    stream_share = event.value * TOKENS_PER_SECOND / MICROSECONDS * 100
    collection = rows["collection"]
    collection_share = collection.value / COLLECTION_INTERVAL_S / MICROSECONDS * 100
    memory = rows[f"memory, {ENDTURN}"], rows[f"memory, {BARE}"]
    lines = [
        ("a call, every signal, batch processors", figure(rows["batch"]), per_thousand(rows["batch"])),
        ("a call, every signal, simple processors", figure(rows["simple"]), per_thousand(rows["simple"])),
        ("a call, [metrics alone](#what-each-signal-costs)", figure(rows["metrics"]), per_thousand(rows["metrics"])),
        ("a call whose answer is truncated", figure(rows["truncated"]), per_thousand(rows["truncated"])),
        (
            "an event of a streamed answer",
            figure(event),
            f"{stream_share:.2f} % of a stream of {TOKENS_PER_SECOND} tokens a second with an event each; "
            f"{number(rows['event, share'].value)} % of what the SDK itself spends on an event",
        ),
        (
            "a call that fails: empty body, HTML, `{}`, JSON",
            ", ".join(number(rows[error].value) for error in ERRORS) + " ×",
            "of a call that succeeds",
        ),
        ("a request of 200 KB", figure(rows["large request"]), "of what the SDK itself spends on it"),
        (f"an answer of 1 MB with {TOOL_CALLS:,} tool calls", figure(rows["large answer"]), "of parsing it"),
        ("a call while nobody records", figure(rows["nobody records"]), "no OpenTelemetry SDK is set up"),
        ("an HTTP request to another host", figure(rows["other host"]), "each request asks whether it is a model's"),
        (
            "the start of a process",
            figure(rows["startup"]),
            f"added to `import openai`; {number(rows['startup, API'].value)} ms of this is OpenTelemetry's API",
        ),
        ("the first call of a process", figure(rows["first call"]), "more than the bare SDK's; modules are imported"),
        (
            "a collection of the metrics",
            figure(collection),
            f"besides what calls cost; {collection_share:.3f} % of a CPU at one each {COLLECTION_INTERVAL_S} seconds",
        ),
        (
            "memory of a call that waits for its answer",
            figure(memory[0]),
            f"of which {number(memory[1].value)} KB are the SDK's own",
        ),
    ]
    return table(("situation", "costs", "that is"), lines)


def signals_table(rows: Rows) -> str:
    """What each signal costs, and how it is switched off."""
    lines = [
        ("spans", figure(rows["spans"]), "`OTEL_TRACES_EXPORTER=none`"),
        ("log events", figure(rows["events"]), "`OTEL_LOGS_EXPORTER=none`"),
        ("metrics, all of them", figure(rows["metrics, all"]), "`OTEL_METRICS_EXPORTER=none`"),
        ("… the conventions' (`gen_ai.*`)", figure(rows["conventions' metrics"]), "`gen_ai_metrics=False`"),
        (
            "… histograms of turns and output",
            figure(rows["metrics of turns"]),
            "views of the meter provider that drop `endturn.turn.*` and `endturn.output.*`",
        ),
        ("… exemplars", figure(rows["exemplars"]), "`OTEL_METRICS_EXEMPLAR_FILTER=always_off`"),
        (
            "content, if it is recorded, of a prompt of one line and an answer of 900 characters",
            figure(rows["content"]),
            "off by default",
        ),
    ]
    return table(("signal", "of a call", "switched off by"), lines)


def peers_table(results: Results) -> str:
    """The bare SDK, the signals by hand, endturn and the other instrumentations, side by side."""
    rows = results.rows
    heads = ("", "records", SIMPLE, BATCH, METRICS, THREADS, TASKS, "an open call")

    def line(name: str, records: str, key: Callable[[str], str], variant: str) -> list[str]:
        added = [figure(rows.get(key(prefix)), "") for prefix in ("simple", "batch", "metrics")]
        throughput = [figure(rows.get(f"{threads}, {variant}"), "") for threads in (THREADS, TASKS)]
        return [name, records, *added, *throughput, figure(rows.get(f"memory, {variant}"))]

    lines = [
        line("the SDK alone", ABSENT, lambda prefix: "", BARE),
        line(
            "the same signals by hand, nothing read", "spans, events, metrics", lambda prefix: f"{prefix}, by hand", ""
        ),
        line("endturn", "spans, events, metrics", lambda prefix: prefix, ENDTURN),
    ]
    for peer in PEERS.values():
        version = results.versions.get(peer.environment, {}).get(peer.package, "")
        name = f"`{peer.package}` {version or '(not installed)'}"
        lines.append(line(name, peer.records, lambda prefix, peer=peer: f"{prefix}, {peer.name}", peer.name))  # type: ignore[misc]
    lines.append(
        line(
            "endturn, with the openai 2 that OpenLIT needs",
            "spans, events, metrics",
            lambda prefix: f"{prefix}, endturn beside openlit",
            "",
        )
    )
    return table(heads, lines)


TEXT: Final = """\
# What it costs

<!-- Written by `make bench ARGS=--write`; do not edit. -->

This page shows what endturn adds to an agent: processor time, memory, and the start of the process. The real `openai`
SDK calls a mock transport that answers at once; a model takes seconds, which makes each share smaller. Milliseconds
are those of one machine ([below](#how-it-was-measured)); what is divided by something else holds on others too.

{costs}

In brackets: the spread of the figure. A thread spends this time within the call, but for the collection of the metrics,
and for batch processors, which export in a thread of their own.

## What each signal costs

What a call saves when one signal is switched off and all else stays:

{signals}

The variables are those of `endturn.configure()` and the OpenTelemetry SDK; `gen_ai_metrics` is a keyword of
`configure()` and `instrument()`. A host that sets up its own SDK switches a signal off by leaving its provider out.
What no switch saves is reading the request and the answer, and finding the turn that a call belongs to.

The leanest set-up is metrics alone. Dashboards and alerts work as before; traces and single events are what is missing:

    OTEL_TRACES_EXPORTER=none
    OTEL_LOGS_EXPORTER=none
{sections}
## Beside other instrumentations

CPU added to a call, in µs: as many milliseconds per thousand calls. Then calls per CPU second, the SDK's own work
included, and the memory of a call that waits for its answer. Content recording is off in all of them.

{peers}

Metrics alone: the host has a meter provider and no other. (OpenLIT prints spans and events then; it has providers that
record nothing.) The other instrumentations make spans and, most of them, the conventions' metrics; none records whether
a turn was finished. *By hand* is the least that endturn's own signals can cost: the same spans, log records and
measurements, made with OpenTelemetry's public API from constants.

## How it was measured

On {machine}, with openai {openai} and OpenTelemetry {opentelemetry}. The load average was {load:.1f} before the first
process; on an idle machine it is below 0.5.

Variants take turns in one process, in blocks of {calls} calls or fewer, in up to {rounds} rounds. CPU time is that of
the whole process, its other threads included. A figure is made from the lower quartile of each variant's blocks,
because what disturbs a process only adds to its costs; what a variant adds is the difference to the bare SDK. The
spread is the middle nine tenths of the same figure when the rounds are drawn anew, with repetition. No two prompts are
alike.

The measurement has costs of its own:

- Exporters throw everything away: what serialising and sending costs depends on the exporter, and is not in here.
- A block ends with a collection of the metrics and an export, which count. What the same takes when nothing has
  happened is measured after each block and taken off: it is a row of its own, since it does not depend on calls. A
  request to another host is measured without any collection.
- The loop of the benchmark, making the prompt and the mock transport are in all variants alike, and so in no
  difference. They are in the calls per CPU second, in which the differences between variants are smaller for it.
- The first call after a variant was put in place is not measured, and garbage of what was imported is not looked
  through again (`gc.freeze`). Garbage of calls is collected as always, and counts.
- Tracing memory (`tracemalloc`) slows a process down, so memory is measured apart.

To measure it on your machine:

    .venv/bin/python tests/sdks/build.py peers openlit   # the other instrumentations, once
    make bench                                           # every figure, a line each
    make bench ARGS=--quick                              # fewer rounds, and without OpenLIT
    make bench ARGS=--write                              # writes this page
"""


def sections(results: Results) -> str:
    """What other benchmarks measured, each with its heading."""
    return "".join(
        f"\n## {heading}\n\n{table(('', 'measured'), [(row.title, figure(row)) for row in rows])}\n"
        for heading, rows in results.sections.items()
    )


def text(results: Results) -> str:
    """The whole page."""
    versions = results.versions[OWN_ENVIRONMENT]
    return TEXT.format(
        costs=costs_table(results.rows),
        signals=signals_table(results.rows),
        sections=sections(results),
        peers=peers_table(results),
        machine=machine(),
        openai=versions["openai"],
        opentelemetry=versions["opentelemetry-api"],
        load=results.load,
        calls=SITUATIONS["answer"].calls,
        rounds=results.rounds,
    )
