"""What the alerts' examples are made of: series of one model of one process, and a heartbeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from endturn.generate import promql
from endturn.generate.declare import Example
from endturn.generate.promql import JOB, Selector
from endturn.generate.rules import RuleConfig
from endturn.telemetry import schema

LABELS: Final = {JOB: "shop/agent", schema.PROVIDER.label: "openai", schema.REQUEST_MODEL.label: "gpt-5"}
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


def events(
    config: RuleConfig, what: schema.Metric, count: int, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """A counter that is there from the beginning and gains `count` at once."""
    return series(what, f"0x{START - 1} {count}x{after(config)}", extra)


def beating(config: RuleConfig, steps: int) -> dict[str, str]:
    return {named(promql.foreign(config.heartbeats[0].name), {JOB: "endturn-collector"}): f"0+1x{steps}"}


def example(
    config: RuleConfig,
    says: str,
    series: Mapping[str, str],
    *,
    labels: Mapping[str, str] | None = None,
    shows: str = "",
) -> Example:
    looked = after(config)
    return Example(says=says, series=beating(config, looked) | dict(series), after=looked, labels=labels, shows=shows)
