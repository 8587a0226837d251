"""The recording rules of every indicator: its increments, once a minute.

Everything that looks at more than a few minutes reads these recorded series: dashboards and alerts alike.
"""

from __future__ import annotations

from typing import Final

from endturn.generate import increments, promql
from endturn.generate.config import SITE as SITE
from endturn.generate.config import RuleConfig as RuleConfig
from endturn.generate.increments import WATCHED, Memory
from endturn.generate.promql import JOB, LE, Label, Selector, Vector, Window
from endturn.telemetry.indicators import COUNTS, Count, Part, Rate

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
    """The heartbeat, then of every count what was seen of its counters, and the increments.

    These are recorded by service, provider, model and what else tells them apart.
    """
    window = promql.duration(config.increase)
    beats = "\nor\n".join(f"count(last_over_time({source}[{window}]))" for source in config.heartbeats)
    made = [{"record": name, "expr": beats} for name in (HEARTBEAT.name, WATCHED.name)]
    remembered: set[Selector] = set()
    for count in COUNTS:
        # Several counts may be of one metric, which is remembered once.
        counter = _counter(count)
        if counter not in remembered:
            remembered.add(counter)
            made += increments.recording_rules([counter], memory(config))
        made.append({"record": recorded(count, config).name, "expr": _increments(count, config).text})
    return made


def memory(config: RuleConfig, watched: Selector = WATCHED) -> Memory:
    """How far back the increments of this configuration look at counters."""
    return Memory(
        interval=config.interval,
        window=config.increase,
        lookback=config.lookback,
        known=config.known,
        lead=config.lead,
        watched=watched,
    )


def remembered() -> list[Selector]:
    """Everything that the increments remember of counters."""
    kinds = (increments.SEEN, increments.KNOWN)
    return [WATCHED, *(increments.remembered(_counter(count), kind) for count in COUNTS for kind in kinds)]


def _counter(count: Count) -> Selector:
    return promql.select(count.metric, part="bucket" if count.metric.instrument == "histogram" else "")


def _increments(count: Count, config: RuleConfig) -> Vector:
    series = _counter(count).where(
        *(promql.only(attribute, *values) for attribute, values in count.only),
        *(promql.never(attribute, *values) for attribute, values in count.never),
    )
    gained = increments.increments(series, memory(config))
    return promql.sum_by((JOB, *count.by, *((LE,) if LE in series.labels else ())), gained)


# --- Conditions of alerts -----------------------------------------------------------------------------------------


def at_least(some: Part, config: RuleConfig, *, by: tuple[Label, ...], bad: int, window: int | None = None) -> Vector:
    """How many events, where they are enough."""
    counted = number(some, config, by=by, window=window or config.window)
    return Vector(f"{counted.text} >= {bad}", counted.labels)


def too_high(
    what: Rate, config: RuleConfig, *, by: tuple[Label, ...], above: float, bad: int, window: int | None = None
) -> Vector:
    """A rate, where it is above a share and stands on enough bad events."""
    over = window or config.window
    return promql.guarded(
        rate(what, config, by=by, window=over),
        above=above,
        events=number(what.part, config, by=by, window=over),
        at_least=bad,
    )


def too_far(
    some: Part, config: RuleConfig, *, by: tuple[Label, ...], q: float, above: float, events: int, window: int
) -> Vector:
    """A quantile of a histogram, where it is above a value and stands on enough events."""
    buckets = part(some, config)
    return promql.guarded(
        promql.quantile(q, buckets, by, window),
        above=above,
        events=promql.counted(buckets.where(promql.Matcher(LE, "=", "+Inf")), by, window, overlap=config.overlap),
        at_least=events,
    )
