"""How long the local page's queries take over a million turns.

    python benchmarks/page.py [--turns 1000000] [--file PATH]

Fills a DuckDB file with turns as an agent fleet makes them (a day of three services, five models; one turn in eight cut
off, two in three of those continued, an export every 15 seconds), then asks what each page asks, five times each.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from endturn.telemetry import schema
from endturn.ui import alerts, charts, limits, panels, reasons, search, turn_page, turns
from endturn.ui.rows import LABELS, Batch, Point, Row, SeriesKey
from endturn.ui.store import DAY_NS, Store
from endturn.ui.views import View

SECOND: Final = 1_000_000_000
SERVICES: Final = ("shop/assistant", "shop/search", "back-office/reports")
MODELS: Final = (("openai", "gpt-5"), ("openai", "gpt-5-mini"), ("anthropic", "claude-sonnet-4-5"),
                 ("anthropic", "claude-haiku-4-5"), ("google", "gemini-3-pro"))  # fmt: skip
TURNS: Final = (("false", "false", "completed", 0.87), ("true", "true", "completed", 0.08),
                ("true", "false", "not_continued", 0.04))  # fmt: skip
"""Turns by truncated, continued and outcome, with their part of all."""
ROOTS: Final = ("order", "parcel", "refund", "invoice", "address", "ticket", "policy", "delay")
WORDS: Final = [root + end for root in ROOTS for end in ("", "s", "ed", "ing", "er", "ly", "less", "ment", "able")]
BATCH: Final = 20_000
LIMIT_MS: Final = 300


def spans(count: int, since_ns: int, chance: random.Random) -> Iterator[tuple[Row, ...]]:
    """The calls of each turn."""
    empty = dict.fromkeys(
        (
            "parent_id",
            "agent",
            "iteration",
            "continuation",
            "outcome",
            "complete",
            "error",
            "max_tokens",
            "cluster",
            "environment",
        )
    )
    for number in range(count):
        service = chance.choice(SERVICES)
        provider, model = chance.choice(MODELS)
        start = since_ns + number * DAY_NS // count
        cut = chance.random() < 1 / 8
        calls = (True, False) if cut and chance.random() < 2 / 3 else (cut,)
        rows = []
        for iteration, truncated in enumerate(calls):
            reason, raw = ("max_tokens", "length") if truncated else ("end_turn", "stop")
            duration = int(chance.lognormvariate(0.5, 0.7) * SECOND)
            rows.append(
                empty
                | {
                    "trace_id": f"{number:032x}", "span_id": f"{number * 2 + iteration:016x}", "name": f"chat {model}",
                    "scope": "endturn", "service": service, "start_ns": start, "end_ns": start + duration,
                    "operation": "chat", "provider": provider, "model": model, "turn_id": f"{number:016x}",
                    "iteration": iteration + 1, "continuation": iteration or None, "reason": reason, "raw": raw,
                    "truncated": truncated, "max_tokens": 1024, "input_tokens": chance.randrange(50, 5000),
                    "output_tokens": 1024 if truncated else chance.randrange(5, 1000), "links": "[]",
                    "attributes": json.dumps({"gen_ai.request.model": model, "endturn.turn.id": f"{number:016x}"}),
                    "conversation": f"conversation {number // 3}", "response_id": f"response {number * 2 + iteration}",
                }
            )  # fmt: skip
            start += duration
        yield tuple(rows)


def text(row: Row, chance: random.Random) -> Row:
    """What is recorded of the messages of a call: some hundred words of a small language."""
    words = " ".join(chance.choices(WORDS, k=120))
    return {"at_ns": row["start_ns"], "span_id": row["span_id"], "turn_id": row["turn_id"],
            "question": words[:100], "words": words}  # fmt: skip


def points(count: int, since_ns: int, chance: random.Random) -> Iterator[list[Point]]:
    """What each export of a service says, each 15 seconds: every counter and histogram that the page reads."""
    series: list[tuple[SeriesKey, schema.Metric, float]] = []
    each = count / (DAY_NS / SECOND / 15) / len(SERVICES) / len(MODELS)
    for service in SERVICES:
        for provider, model in MODELS:
            call = {schema.PROVIDER.label: provider, schema.REQUEST_MODEL.label: model}

            def add(metric: schema.Metric, share: float, service: str = service, call: Any = call, **more: str) -> None:
                said = call | more
                key = SeriesKey(metric.name, service, "one", tuple(said.get(label) for label in LABELS))
                series.append((key, metric, share * each))

            for reason, share in (("end_turn", 1), ("tool_call", 0.3), ("max_tokens", 0.12), ("error", 0.01)):
                add(schema.RESPONSES, share, endturn_stop_reason=reason)
            for cut, continued, outcome, share in TURNS:
                labels = {"endturn_turn_truncated": cut, "endturn_turn_continued": continued}
                add(schema.TURNS, share, endturn_turn_outcome=outcome, **labels)
                add(schema.TURN_DURATION, share, **labels)
            add(schema.TRUNCATION_EXITS, 0.04, endturn_turn_outcome="not_continued")
            add(schema.CONTINUATIONS_METRIC, 0.08, endturn_continuation_strategy="prompt")
            add(schema.CONTINUATION_TOKENS, 40, gen_ai_token_type="input")
            add(schema.CONTINUATION_TOKENS, 20, gen_ai_token_type="output")
            add(schema.TURN_CONTINUATIONS, 0.12)
            add(schema.BUDGET_USED, 1)
    values = {key: [0.0] * (len(metric.buckets) + 2 if metric.buckets else 1) for key, metric, _ in series}
    for export in range(DAY_NS // SECOND // 15):
        at = since_ns + export * 15 * SECOND
        said = []
        for key, metric, share in series:
            mine = values[key]
            added = int(share) + (chance.random() < share % 1)
            if metric.buckets:
                for _ in range(added):
                    mine[min(len(mine) - 1, 1 + int(chance.triangular(0, len(metric.buckets), 3)))] += 1
            else:
                mine[0] += added
            bounds = (*metric.buckets, float("inf")) if metric.buckets else ()
            said.append(Point(key, since_ns, at, False, tuple(mine), bounds))
        yield said


def fill(store: Store, count: int) -> float:
    """Write it all, and return how many seconds that took."""
    chance, began, since = random.Random(7), time.perf_counter(), time.time_ns() - DAY_NS
    batch = Batch()
    for exported in points(count, since, chance):
        batch.points += exported
        if len(batch.points) > BATCH:
            store.write(batch)
            batch = Batch()
    for rows in spans(count, since, chance):
        batch.spans += rows
        batch.texts += [text(row, chance) for row in rows]
        if len(batch.spans) > BATCH:
            store.write(batch)
            batch = Batch()
    store.write(batch)
    return time.perf_counter() - began


def measure(store: Store) -> tuple[dict[str, float], list[tuple[float, str]]]:
    """Each page's median milliseconds, and its queries, the slowest first."""
    ((turn, trace),) = store.read_tuples("SELECT turn_id, trace_id FROM turns WHERE continuations > 0 LIMIT 1")
    ((response,),) = store.read_tuples("SELECT response_id FROM spans WHERE turn_id = $1 LIMIT 1", [turn])
    pages: dict[str, tuple[Callable[[View, Store], Any], dict[str, str]]] = {
        "overview, 24 h": (panels.overview, {"range": "24h"}),
        "overview, 1 h": (panels.overview, {"range": "1h"}),
        "overview, 24 h, one model": (panels.overview, {"range": "24h", "model": "gpt-5"}),
        "turns, newest": (turns.turn_list, {"range": "24h"}),
        "turns, worst": (turns.turn_list, {"range": "24h", "sort": "worst"}),
        "turns, unfinished, page 100": (turns.turn_list, {"range": "24h", "state": "unfinished", "page": "100"}),
        "turns with a frequent word": (turns.turn_list, {"range": "24h", "q": "order"}),
        "turns with five words": (turns.turn_list, {"range": "24h", "q": "order parcel refund gpt-5 length"}),
        "turns with a word that none has": (turns.turn_list, {"range": "24h", "q": "zebra"}),
        "id of a trace": (search.address_of, {"q": trace}),
        "id of a response": (search.address_of, {"q": response}),
        "id of a conversation": (search.address_of, {"q": "conversation 7"}),
        "id of nothing": (search.address_of, {"q": "f" * 32}),
        "one turn": (turn_page.turn_page, {"turn_id": turn}),
        "reasons": (reasons.reasons_page, {"range": "24h"}),
        "alerts": (alerts.alerts_page, {"range": "24h"}),
        "one runbook": (alerts.runbook_page, {"alert": "EndturnTurnsUnfinished", "range": "24h"}),
        "truncated turns by cause": (limits.truncated_turns, {"range": "24h"}),
        "limits of requests": (limits.requested_limits, {"range": "24h"}),
    }
    queries: dict[str, list[float]] = {}
    read, read_rows, connection = store.read_tuples, store.read_rows, store.connection

    def timed(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(query: str, parameters: Any = ()) -> Any:
            began = time.perf_counter()
            found = ask(query, parameters)
            queries.setdefault(query, []).append((time.perf_counter() - began) * 1000)
            return found

        return asked

    class Timed:
        """A connection, timed."""

        def __init__(self) -> None:
            self.execute = timed(connection().execute)

    store.read_tuples, store.read_rows = timed(read), timed(read_rows)  # type: ignore[method-assign]
    store.connection = Timed  # type: ignore[method-assign,assignment]
    took = {}
    for name, (page, given) in pages.items():
        each = []
        for _ in range(5):
            began = time.perf_counter()
            page(View.of(store, given, time.time_ns()), store)
            each.append((time.perf_counter() - began) * 1000)
        took[name] = statistics.median(each)
    store.read_tuples, store.read_rows, store.connection = read, read_rows, connection  # type: ignore[method-assign]
    took["drawing the overview's charts, 24 h"] = drawing(store)
    return took, sorted(((statistics.median(each), query) for query, each in queries.items()), reverse=True)


def drawing(store: Store) -> float:
    """The median milliseconds in which the charts of the overview become SVG, without their queries."""
    view = View.of(store, {"range": "24h"}, time.time_ns())
    drawn = panels.overview(view, store)["charts"]
    assert isinstance(drawn, dict)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        text = "".join(charts.figure(chart) for chart in drawn.values())
        times.append((time.perf_counter() - began) * 1000)
    print(f"the charts of the overview have {len(text) / 1000:.0f} kB")
    return statistics.median(times)


def main() -> int:
    """Print the table; exit with 1 where a query takes longer than it may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=1_000_000)
    parser.add_argument("--file", type=Path, help="keep the file, or measure one that is there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.file or Path(folder, "page.duckdb")
        there = path.exists()
        store = Store(path, keep_ns=30 * DAY_NS, most_bytes=1 << 40)
        if not there:
            seconds = fill(store, arguments.turns)
            print(f"{arguments.turns} turns written in {seconds:.0f} s, {store.size() / 1e6:.0f} MB")
        took, queries = measure(store)
        store.close()
    for name, milliseconds in took.items():
        print(f"{name:<36} {milliseconds:7.0f} ms")
    print(f"the slowest of {len(queries)} queries: {queries[0][0]:.0f} ms\n  {queries[0][1][:400]}")
    return int(queries[0][0] > LIMIT_MS)


if __name__ == "__main__":
    raise SystemExit(main())
