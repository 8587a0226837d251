"""What the alerts' examples are made of: series of one model of one process, and a heartbeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from endturn.generate import promql
from endturn.generate.declare import Example
from endturn.generate.promql import JOB, Selector
from endturn.generate.rules import RuleConfig
from endturn.telemetry import schema

LABELS: Final = {JOB: "shop/agent", schema.PROVIDER.label: "openai", schema.REQUEST_MODEL.label: "gpt-5"}
MODEL: Final = (JOB, schema.PROVIDER, schema.REQUEST_MODEL)
"""By what most alerts are told apart."""
WHO: Final = "{{ $labels.gen_ai_request_model }} in {{ $labels.job }}"
"""The same, in words."""
LASTING: Final = 200
"""Evaluations for which an example's series go on: longer than any example is looked at."""
START: Final = 15
"""Evaluations before the events: by then the heartbeat has been there for long enough."""


def named(selector: Selector, labels: Mapping[str, str]) -> str:
    """A series as promtool spells it; raises UnknownName for a label that it cannot have."""
    return str(selector.where(*(promql.Matcher(name, "=", value) for name, value in labels.items())))


def series(what: schema.Metric, values: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """One process' series of a metric, for the examples' model."""
    selector = promql.select(what)
    carried = {name: value for name, value in LABELS.items() if name in selector.labels}
    return {named(selector, carried | {promql.INSTANCE: "one"} | dict(extra or {})): values}


def after(config: RuleConfig) -> int:
    """When an example's events have been recorded as often as they will be, and have lasted for long enough."""
    return START + config.overlap + config.steps(config.hold) + 2


def events(what: schema.Metric, count: int, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """A counter that is there from the beginning and gains `count` at once."""
    return series(what, _gains(count), extra)


def buckets(what: schema.Metric, upto: Mapping[float, int], extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """A histogram's buckets that gain at once what lies below each bound; above the highest there is nothing more."""
    selector = promql.select(what, part="bucket")
    carried = {name: value for name, value in LABELS.items() if name in selector.labels} | dict(extra or {})
    bounds = {f"{bound:g}": count for bound, count in sorted(upto.items())} | {"+Inf": max(upto.values())}
    return {
        named(selector, carried | {promql.INSTANCE: "one", promql.LE: bound}): _gains(count)
        for bound, count in bounds.items()
    }


def around(bounds: Sequence[float], limit: float) -> tuple[float, float, float, float]:
    """Two buckets of a histogram: (from, to) where no value is above the limit, (from, to) where every value is."""
    below = max(bound for bound in bounds if bound <= limit)
    above = min(bound for bound in bounds if bound >= limit)
    under = max((bound for bound in bounds if bound < below), default=0.0)
    return under, below, above, min((bound for bound in bounds if bound > above), default=above)


def _gains(count: int) -> str:
    return f"0x{START - 1} {count}x{LASTING}"


def beating(config: RuleConfig, steps: int) -> dict[str, str]:
    """The Collector's heartbeat, for so many evaluations."""
    return {named(promql.foreign(config.heartbeats[0].name), {JOB: "endturn-collector"}): f"0+1x{steps}"}


def example(
    config: RuleConfig,
    says: str,
    series: Mapping[str, str],
    *,
    labels: Mapping[str, str] | None = None,
    shows: str = "",
    looked: int | None = None,
) -> Example:
    """An example with a heartbeat.

    Args:
        looked: after how many evaluations the alert is looked at, where not as soon as it can be told.
    """
    at = looked or after(config)
    return Example(says=says, series=beating(config, at) | dict(series), after=at, labels=labels, shows=shows)
