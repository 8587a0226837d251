"""Hours of plausible telemetry in a Prometheus, always the same: for the pictures of the dashboards.

    PYTHONPATH=. python docs/dashboards/hours.py FOLDER    fills the folder of a Prometheus, and serves it

Three services of an imaginary shop. Six hours before the end one of them is deployed with a token limit that is too
low, two hours before the end that is taken back.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from math import exp, inf, log, pi, sin
from pathlib import Path

import yaml

from endturn.generate.config import RuleConfig
from endturn.generate.recorded_counts import recording_rules
from endturn.generate.rules import AlertRule, alert_rules
from endturn.instrumentation import sdk_providers
from endturn.telemetry import schema
from endturn.telemetry.schema import Metric
from tests.support.processes import LOOPBACK, PrometheusClient, Series, Server, free_port, require_stack

EXPORT = int(sdk_providers.EXPORT_MS) // 1000
MINUTE = 60
BLOCK = 2 * 60 * MINUTE
"""How long Prometheus' own blocks are."""
SIGNALS = ("spans", "log_records", "metric_points")
BAD_FROM, BAD_TO = 6 * 60, 2 * 60
"""Minutes before the end between which the limit was too low."""
DENSE = 9 * 60
"""Minutes before the end that have a sample each export; what is older serves comparisons, and one a minute will do."""

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Work:
    """What one service asks of one model.

    Attributes:
        rate: turns per minute at noon.
        typical: tokens of a typical answer; spread: of their logarithm.
        limit: max_tokens; cut: what the bad deployment made of it.
        continues: the turn is finished by a policy. tools: turns begin with a tool call, by this share.
    """

    job: str
    provider: str
    model: str
    rate: float
    typical: float
    limit: int
    spread: float = 0.5
    cut: int | None = None
    continues: bool = True
    tools: float = 0.0
    per_token: float = 0.008
    price: float = 0.0
    environment: str = "production"


WORKS = (
    Work("shop/assistant", "openai", "gpt-5-mini", 2.5, 260, 1024, cut=320, continues=False, per_token=0.006),
    Work("shop/assistant", "anthropic", "claude-haiku-4-5", 1.6, 330, 768, tools=0.35, per_token=0.006, price=5e-6),
    Work("shop/writer", "openai", "gpt-5", 1.1, 1500, 2048, spread=0.6, per_token=0.008, price=1e-5),
    Work("shop/writer", "anthropic", "claude-sonnet-5-5", 1.2, 800, 1024, spread=0.6, tools=0.3, price=1.5e-5),
    Work("support/triage", "gcp.gemini", "gemini-3-flash", 2.0, 120, 512, tools=0.2, per_token=0.004),
    Work("support/triage", "openai", "gpt-oss-120b", 0.5, 300, 640, spread=0.4, continues=False),
    Work("support/triage", "openai", "gpt-oss-120b", 0.3, 280, 1024, spread=0.4, environment="staging"),
)


class Book:
    """Counters and histograms, and what each held at the end of every minute."""

    def __init__(self) -> None:
        self.now: dict[tuple[str, Labels], float] = {}
        self.late: dict[tuple[str, Labels], float] = {}
        self.types: dict[str, str] = {}
        self.written: dict[tuple[str, Labels], list[tuple[int, float]]] = defaultdict(list)

    def add(self, what: Metric, labels: Mapping[str, str], by: float = 1.0) -> None:
        """A counter grows."""
        self.types[what.prometheus] = "counter"
        self._grow(what.prometheus, _named(labels), by)

    def observe(self, what: Metric, value: float, labels: Mapping[str, str]) -> None:
        """A histogram takes in a value."""
        name, carried = what.prometheus, _named(labels)
        self.types[name] = "histogram"
        first = bisect_left(what.buckets, value)
        for place, bound in enumerate(what.buckets):
            self._grow(f"{name}_bucket", (*carried, ("le", f"{float(bound)}")), place >= first)
        self._grow(f"{name}_bucket", (*carried, ("le", "+Inf")), 1)
        self._grow(f"{name}_sum", carried, value)
        self._grow(f"{name}_count", carried, 1)

    def _grow(self, name: str, labels: Labels, by: float) -> None:
        """A new series is zero in its first sample, and has its value from the next on."""
        key = name, labels
        if key not in self.now:
            self.now[key], self.late[key] = 0.0, 0.0
        if key in self.late:
            self.late[key] += by
        else:
            self.now[key] += by

    def other(self, name: str, labels: Mapping[str, str], value: float, *, type_: str = "gauge") -> None:
        """A series of somebody else is at this value."""
        self.types[name] = type_
        self.now[name, _named(labels)] = value

    def tick(self, at: int, *, dense: bool) -> None:
        """An export: everything is written down; of what is long ago, once a minute and whatever has just begun."""
        for key, value in self.now.items():
            if dense or not at % MINUTE or key in self.late:
                self.written[key].append((at, value))
        for key, value in self.late.items():
            self.now[key] += value
        self.late.clear()

    def lines(self, begin: float = 0, end: float = inf) -> Iterator[str]:
        """What was written in a time, as OpenMetrics, family by family."""
        families: dict[str, list[tuple[str, Labels]]] = defaultdict(list)
        for name, labels in self.written:
            family = next(
                base
                for base in (name, *(name.removesuffix(end) for end in ("_bucket", "_sum", "_count")))
                if base in self.types
            )
            families[family].append((name, labels))
        for family, members in sorted(families.items()):
            type_ = self.types[family]
            yield f"# TYPE {family.removesuffix('_total') if type_ == 'counter' else family} {type_}"
            for name, labels in members:
                carried = ",".join(f'{key}="{value}"' for key, value in labels)
                written = self.written[name, labels]
                first = bisect_left(written, (begin,))
                for at, value in written[first : bisect_left(written, (end,))]:
                    yield f"{name}{{{carried}}} {value:.12g} {at}"
        yield "# EOF"


def _named(labels: Mapping[str, str]) -> Labels:
    return tuple(labels.items())


def play(hours: int, end: int) -> Book:
    """Hours of work, up to `end` (seconds since the epoch)."""
    dice, book = random.Random(4711), Book()
    begin = end - hours * 3600
    for minute in range(hours * 60):
        left = hours * 60 - minute
        daily = 1 + 0.45 * sin(2 * pi * (minute - 300) / 1440)
        for second in range(0, MINUTE, EXPORT):
            for work in WORKS:
                for _ in range(_poisson(dice, work.rate * daily * EXPORT / MINUTE)):
                    _turn(dice, book, work, bad=BAD_TO < left <= BAD_FROM)
            _others(dice, book, minute, left)
            book.tick(begin + minute * MINUTE + second, dense=left <= DENSE)
    return book


def _poisson(dice: random.Random, mean: float) -> int:
    floor, count, product = exp(-mean), 0, dice.random()
    while product > floor:
        count, product = count + 1, product * dice.random()
    return count


def _turn(dice: random.Random, book: Book, work: Work, *, bad: bool) -> None:
    who = {"job": work.job, "instance": f"{work.job.rpartition('/')[2]}-{work.environment}-1",
           "deployment_environment_name": work.environment}  # fmt: skip
    model = who | {schema.PROVIDER.label: work.provider, schema.REQUEST_MODEL.label: work.model}
    limit = work.cut if bad and work.cut else work.limit
    wanted = max(8, round(exp(dice.gauss(log(work.typical), work.spread))))
    tool = dice.random() < work.tools
    prompt, calls, got, seconds, rare = 400 + round(work.typical), 0, 0, 0.0, dice.random()
    continuations, longest = 0, 0
    strategy = "prompt" if work.provider == "openai" else "prefill"
    outcome, truncated, unfinished = "completed", False, False
    while True:
        calls += 1
        out = min(limit, wanted - got)
        got += out
        reason = "max_tokens" if got < wanted else "tool_call" if tool else "end_turn"
        if rare < 0.004:
            reason = dice.choice(("safety_blocked", "refused", "missing"))
        elif rare < 0.03 and work.model == "gpt-oss-120b":
            reason = "unknown"
            book.add(schema.UNMAPPED, model)
        took = 0.4 + out * work.per_token * dice.uniform(0.7, 1.5)
        seconds += took
        _call(dice, book, work, model, reason=reason, out=out, limit=limit, prompt=prompt, took=took)
        longest = max(longest, got)
        if calls > 1:
            continuations += 1
            book.add(schema.CONTINUATIONS_METRIC, model | {schema.STRATEGY.label: strategy})
            for type_, tokens in (("input", prompt), ("output", out)):
                book.add(schema.CONTINUATION_TOKENS, model | {schema.TOKEN_TYPE.label: type_}, tokens)
            if work.price:
                book.add(schema.CONTINUATION_COST, model, work.price * (out + prompt / 5))
        if reason == "tool_call":  # its result is sent, and answered
            seconds += dice.uniform(0.2, 2)
            tool, calls, got, prompt = False, 0, 0, prompt + out + 200
            wanted = max(8, round(exp(dice.gauss(log(work.typical), work.spread))))
            continue
        if reason not in ("max_tokens", "missing"):
            outcome = {"safety_blocked": "safety_blocked", "refused": "refused", "unknown": "unknown_reason"}.get(
                reason, outcome
            )
            break
        truncated = True
        if tool and calls == 1:
            book.add(schema.BLOCKED, model | {schema.BLOCK_REASON.label: "truncated"})
            mended = "succeeded" if dice.random() < 0.85 else "failed"
            book.add(schema.REPAIRS, model | {schema.REPAIR_RESULT.label: mended})
        if not work.continues or calls > 3 or reason == "missing":
            unfinished = True
            outcome = "retry_limit" if calls > 3 else "stream_cut" if work.continues else "not_continued"
            break
        prompt += out
    _ended(book, model, outcome, continuations, seconds, longest, truncated=truncated, unfinished=unfinished)


def _call(
    dice: random.Random, book: Book, work: Work, model: dict[str, str], *,
    reason: str, out: int, limit: int, prompt: int, took: float,
) -> None:  # fmt: skip
    book.add(schema.RESPONSES, model | {schema.REASON.label: reason})
    book.observe(schema.BUDGET_USED, out / limit, model)
    asked = {**model, schema.OPERATION.label: "chat", schema.RESPONSE_MODEL.label: work.model}
    book.observe(schema.OPERATION_DURATION, took, asked)
    book.observe(schema.FIRST_CHUNK, dice.uniform(0.15, 0.6), asked)
    for type_, tokens in (("input", prompt), ("output", out)):
        book.observe(schema.TOKEN_USAGE, tokens, asked | {schema.TOKEN_TYPE.label: type_})
    if dice.random() < 0.03:
        book.observe(schema.OPERATION_DURATION, 0.3, asked | {schema.ERROR_TYPE.label: "RateLimitError"})
    if dice.random() < 0.02 and work.model == "gpt-oss-120b":
        book.add(schema.SUSPECTED_METRIC, model)


def _ended(
    book: Book, model: dict[str, str], outcome: str, continuations: int, seconds: float, tokens: int, *,
    truncated: bool, unfinished: bool,
) -> None:  # fmt: skip
    how = {schema.TRUNCATED.label: str(truncated).lower(), schema.CONTINUED.label: str(continuations > 0).lower()}
    book.add(schema.TURNS, model | how | {schema.OUTCOME.label: outcome})
    book.observe(schema.TURN_DURATION, seconds, model | how)
    whole = str(not unfinished and outcome == "completed").lower()
    book.observe(schema.TURN_OUTPUT, tokens, model | {schema.COMPLETE.label: whole})
    if truncated:
        book.observe(schema.TURN_CONTINUATIONS, continuations, model)
    if unfinished:
        book.add(schema.TRUNCATION_EXITS, model | {schema.OUTCOME.label: outcome})


def _others(dice: random.Random, book: Book, minute: int, left: int) -> None:
    """What the Collector, Prometheus and a model server say of themselves."""
    scraped = {"job": "collector", "instance": "collector:8888"}
    exporters = {"spans": "otlp_grpc/tempo", "log_records": "otlp_http/loki", "metric_points": "otlp_http/prometheus"}
    held = {"spans": "traces", "log_records": "logs", "metric_points": "metrics"}
    outage = 200 < left <= 215  # Loki is away for a quarter of an hour
    for signal in SIGNALS:
        items = {"spans": 6, "log_records": 4, "metric_points": 900}[signal] * (1 + dice.uniform(-0.1, 0.1))
        received, sent = scraped | {"receiver": "otlp", "transport": "http"}, scraped | {"exporter": exporters[signal]}
        away = outage and signal == "log_records"
        for name, labels, by in (
            (f"otelcol_receiver_accepted_{signal}", received, items),
            (f"otelcol_exporter_sent_{signal}", sent, 0 if away else items),
            (f"otelcol_exporter_send_failed_{signal}", sent, 3 if away and left == 201 else 0),
            (f"otelcol_receiver_refused_{signal}", received, 0),
        ):
            before = book.now.get((name, _named(labels)), 0.0)
            book.other(name, labels, before + round(by), type_="unknown")
        queue = sent | {"data_type": held[signal]}
        full = 45_000_000 * (216 - left) / 15 if away else 200_000 + dice.uniform(0, 400_000)
        book.other("otelcol_exporter_queue_size", queue, round(full))
        book.other("otelcol_exporter_queue_capacity", queue, 67_108_864)
    book.other("otelcol_process_memory_rss", scraped, round(1.1e8 + 2e7 * sin(minute / 90) + dice.uniform(0, 5e6)))
    book.other("up", scraped, 1)
    if outage:
        for job, lost in (("support/triage", 3), ("shop/writer", 1)):
            drops = {"job": job, "deployment_environment_name": "production", "error_type": "queue_full"}
            before = book.now.get(("otel_sdk_processor_log_processed_total", _named(drops)), 0.0)
            book.other("otel_sdk_processor_log_processed_total", drops, before + lost, type_="counter")
    prometheus = {"job": "prometheus", "instance": "localhost:9090"}
    book.other("prometheus_tsdb_head_series", prometheus, 9200 + minute // 20)
    for name in ("endturn", "endturn-alerts"):
        group = prometheus | {"rule_group": f"/etc/prometheus/rules/endturn.yaml;{name}"}
        book.other("prometheus_rule_group_iterations_missed_total", group, 0, type_="counter")
        book.other("prometheus_rule_evaluation_failures_total", group, 0, type_="counter")
    for reason, each in (("stop", 5), ("length", 0.35), ("abort", 0.08), ("error", 0.012), ("repetition", 0.005)):
        labels = {"job": "vllm", "instance": "vllm:8000", "model_name": "gpt-oss-120b", "finished_reason": reason}
        before = book.now.get(("vllm:request_success_total", _named(labels)), 0.0)
        book.other("vllm:request_success_total", labels, before + _poisson(dice, each), type_="counter")
    _versions(book, left)


def _versions(book: Book, left: int) -> None:
    version = "1.5.0" if BAD_TO < left <= BAD_FROM else "1.5.1" if left <= BAD_TO else "1.4.2"
    for job in sorted({work.job for work in WORKS}):
        mine = version if job == "shop/assistant" else "2.0.3"
        for known in ("1.4.2", "1.5.0", "1.5.1", "2.0.3"):
            book.now.pop(("target_info", (("job", job), ("service_version", known))), None)
        book.other("target_info", {"job": job, "service_version": mine}, 1)


# --- As a Prometheus has it ---------------------------------------------------------------------------------------


def fill(folder: Path, book: Book, begin: int, end: int) -> None:
    """The samples as blocks of a Prometheus, with what its rules and alerts would have made of them."""
    promtool = require_stack("prometheus")["promtool"]
    data = folder / "data"
    for start in range(begin, end, BLOCK):  # promtool reads its file once for each block
        _blocks(promtool, folder / "hours.om", book.lines(start, start + BLOCK), data)
    for rule in recording_rules():  # each reads what those before it recorded
        file = folder / "recorded.yaml"
        file.write_text(yaml.safe_dump({"groups": [{"name": "recorded", "rules": [rule]}]}))
        with Stored(folder) as stored:
            times = [f"--start={begin}", f"--end={end}", f"--url={stored.url}", f"--output-dir={data}"]
            _run(promtool, "tsdb", "create-blocks-from", "rules", *times, file)
    with Stored(folder) as stored:
        fired = Book()
        for alert_rule in alert_rules(RuleConfig()):
            found = stored.client.query_range(alert_rule.expression, start=begin, end=end, step=MINUTE)
            _fire(fired, alert_rule, found)
    _blocks(promtool, folder / "alerts.om", fired.lines(), data)


def _fire(book: Book, rule: AlertRule, found: Iterable[Series]) -> None:
    """`ALERTS` of one alert: it fires where its condition held for as long as it asks, and a while afterwards."""
    alert = rule.alert
    hold, keep = (int(length.total_seconds()) for length in (alert.hold or timedelta(), alert.keep_firing))
    for series in found:
        labels = {key: value for key, value in series.labels.items() if key != "__name__"}
        labels |= {"alertname": alert.name, "alertstate": "firing", "severity": str(alert.severity)}
        key = "ALERTS", _named(labels)
        book.types["ALERTS"] = "gauge"
        since = last = 0.0
        firing: set[int] = set()
        for at, _ in series.points:
            since = since if at - last <= MINUTE else at
            last = at
            if at - since >= hold:
                firing |= {*range(int(at), int(at) + keep + MINUTE, MINUTE)}
        if firing:
            book.written[key] = [(at, 1.0) for at in sorted(firing)]


class Stored(Server):
    """A Prometheus that only serves what its folder holds."""

    def __init__(self, folder: Path) -> None:
        address = f"{LOOPBACK}:{free_port()}"
        config = folder / "prometheus.yml"
        config.write_text("{}")
        self.url = f"http://{address}"
        self.client = PrometheusClient(self.url)
        command: list[str | Path] = [
            require_stack("prometheus")["prometheus"],
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--storage.tsdb.retention.time=10y",
            f"--web.listen-address={address}",
        ]
        super().__init__("prometheus", command, log=folder / "prometheus.log", ready=f"{self.url}/-/ready")


def _blocks(promtool: Path, file: Path, lines: Iterable[str], data: Path) -> None:
    with file.open("w") as out:
        out.writelines(f"{line}\n" for line in lines)
    _run(promtool, "tsdb", "create-blocks-from", "openmetrics", file, data)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    """From the command line: fills the folder, then serves it until it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hours", type=int, default=30)
    parser.add_argument("--end", type=int, default=0, help="seconds since the epoch; now, if not given")
    given = parser.parse_args()
    end = given.end or int(time.time()) // BLOCK * BLOCK
    begin = end - given.hours * 3600
    given.folder.mkdir(parents=True, exist_ok=True)
    if not (given.folder / "data").exists():
        fill(given.folder, play(given.hours, end), begin, end)
    with Stored(given.folder) as stored:
        print(f"{stored.url} from {begin}000 to {end}000", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
