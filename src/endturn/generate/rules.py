"""The one configuration of all rules, and the recording rules: each indicator's increments, once a minute.

Everything that looks at more than a few minutes reads these recorded series: dashboards and alerts alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from endturn.errors import UsageError
from endturn.generate import promql
from endturn.generate.promql import JOB, LE, Label, Selector, Vector, Window
from endturn.telemetry import schema
from endturn.telemetry.indicators import COUNTS, NOT_CONTINUED, REPAIR_FAILURE, Count, Part, Rate

SITE: Final = "https://github.com/endturn/endturn/blob/main"
HEARTBEATS: Final = (
    promql.foreign("otelcol_process_uptime_seconds_total", job="(.+/)?endturn-collector"),
    promql.select(schema.RESPONSES),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleConfig:
    """Windows, thresholds and addresses of all rules; the defaults are production's. Durations are whole seconds.

    Attributes:
        interval: how often rules are evaluated.
        increase: the window of one recorded increment; a multiple of `interval`.
        lookback: how far back a counter's previous value is looked for. Who exports less often is overcounted.
        lead: how much earlier than an application's next export the heartbeat may arrive after an outage.
        heartbeats: series that travel the same path as the metrics; the first that exists is taken. The Collector
            pushes its own uptime through its OTLP receiver; without it, our own metrics say that something arrives.
        window: what alerts look back on.
        hold: how long a condition must last before its alert fires; keep: how long it fires on after the last time.
        absent: how long nothing may arrive; remembered: how long after that it is still missed.
        not_continued, repair_failure: shares above which somebody should act.
        unfinished, given_up, failed_repairs, unmapped, failures: bad events below which an alert stays quiet.
        runbooks, grafana: where the runbook pages and the dashboards are found.
    """

    interval: int = 60
    increase: int = 300
    lookback: int = 3600
    lead: int = 120
    heartbeats: tuple[Selector, ...] = HEARTBEATS
    window: int = 3600
    hold: int = 120
    keep: int = 900
    absent: int = 600
    remembered: int = 86400
    not_continued: float = NOT_CONTINUED.thresholds.act
    repair_failure: float = REPAIR_FAILURE.thresholds.act
    unfinished: int = 3
    given_up: int = 3
    failed_repairs: int = 3
    unmapped: int = 1
    failures: int = 1
    runbooks: str = f"{SITE}/docs/runbooks"
    grafana: str = "http://127.0.0.1:3000"

    def __post_init__(self) -> None:
        if self.increase % self.interval:
            raise UsageError(
                f"the increase window ({self.increase} s) is no multiple of the interval ({self.interval} s)"
            )
        if not self.heartbeats:
            raise UsageError(
                "name at least one heartbeat: without it, new counters cannot be told from a path that was down"
            )

    @property
    def overlap(self) -> int:
        """In how many recorded increments one event stands."""
        return self.increase // self.interval

    def steps(self, seconds: int) -> int:
        """Evaluations in a duration, rounded up."""
        return -(-seconds // self.interval)

    def faster(self, times: int) -> RuleConfig:
        """The same rules on a clock that runs faster, for tests: every duration divided, at least one interval long."""
        names = ("interval", "increase", "lookback", "lead", "window", "hold", "keep", "absent", "remembered")
        return replace(self, **{name: max(getattr(self, name) // times, 1) for name in names})


HEARTBEAT: Final = Selector("endturn:heartbeat", frozenset())


def recorded(count: Count, config: RuleConfig) -> Selector:
    """The recorded increments of a count, as series to select from."""
    buckets = {LE} if count.metric.instrument == "histogram" else set()
    labels = {JOB, *map(promql.label, count.by), *buckets}
    return Selector(f"endturn:{count.name}:increase{promql.duration(config.increase)}", frozenset(labels))


def part(some: Part, config: RuleConfig) -> Selector:
    """The recorded increments of a part of a count."""
    return recorded(some.count, config).where(*(promql.only(attribute, *values) for attribute, values in some.only))


def rate(
    what: Rate, config: RuleConfig, *, by: tuple[Label, ...], window: Window, where: tuple[promql.Matcher, ...] = ()
) -> Vector:
    """A rate over recorded increments."""
    return promql.ratio(
        promql.summed(part(what.part, config).where(*where), by, window),
        promql.summed(part(what.whole, config).where(*where), by, window),
    )


def number(
    what: Part, config: RuleConfig, *, by: tuple[Label, ...], window: Window, where: tuple[promql.Matcher, ...] = ()
) -> Vector:
    """How many events, as whole numbers, over recorded increments."""
    return promql.counted(part(what, config).where(*where), by, window, overlap=config.overlap)


def recording_rules(config: RuleConfig) -> list[dict[str, str]]:
    """The heartbeat, then the increments of every count, by service, provider, model and what else tells them apart."""
    window = promql.duration(config.increase)
    beats = "\nor\n".join(f"count(last_over_time({source}[{window}]))" for source in config.heartbeats)
    return [{"record": HEARTBEAT.name, "expr": beats}] + [
        {"record": recorded(count, config).name, "expr": _increments(count, config).text} for count in COUNTS
    ]


def _increments(count: Count, config: RuleConfig) -> Vector:
    histogram = count.metric.instrument == "histogram"
    series = promql.select(
        count.metric,
        *(promql.only(attribute, *values) for attribute, values in count.only),
        *(promql.never(attribute, *values) for attribute, values in count.never),
        part="bucket" if histogram else "",
    )
    gained = promql.increments(
        series, window=config.increase, lookback=config.lookback, heartbeat=HEARTBEAT, lead=config.lead
    )
    return promql.sum_by((JOB, *count.by, *((LE,) if histogram else ())), gained)
