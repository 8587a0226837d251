"""Indicators as panels: their question, formula, advice and thresholds, over what the variables let through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from endturn.generate import panels, promql, rules
from endturn.generate.declare import VARIABLES
from endturn.generate.panels import About, Query
from endturn.generate.promql import JOB, Label, Vector, Window
from endturn.generate.rules import RuleConfig
from endturn.generate.sdk import stat, timeseries
from endturn.telemetry import schema
from endturn.telemetry.indicators import Number, Part, Rate

CALL: Final = (schema.PROVIDER, schema.REQUEST_MODEL)
WHO: Final = f"{{{{{schema.PROVIDER.label}}}}} · {{{{{schema.REQUEST_MODEL.label}}}}}"
FILTERS: Final = (
    promql.chosen(JOB, VARIABLES[JOB]),
    promql.chosen(schema.PROVIDER, VARIABLES[schema.PROVIDER.label]),
    promql.chosen(schema.REQUEST_MODEL, VARIABLES[schema.REQUEST_MODEL.label]),
)
"""What the dashboard's variables let through."""
WHOLE: Final = "in the whole time range"


EVERY_DIGIT: Final = "locale"
"""Grafana's unit for a number of which every digit counts: 2,034 and not 2 K."""


def rate(what: Rate, config: RuleConfig, *, by: tuple[Label, ...], window: Window) -> Vector:
    """A rate of what the variables let through."""
    return rules.rate(what, config, by=by, window=window, where=FILTERS)


def count(what: Number | Part, config: RuleConfig, *, by: tuple[Label, ...], window: Window) -> Vector:
    """A number of what the variables let through."""
    some = what.part if isinstance(what, Number) else what
    return rules.number(some, config, by=by, window=window, where=FILTERS)


def about(what: Rate | Number, id_: int, *, over: str, empty: str, decimals: int | None = None) -> About:
    """An indicator's question, formula and advice, as a panel says them.

    Args:
        over: what the panel looks at: all of it, each step of it, or the window behind each point.
    """
    unit = "percentunit" if isinstance(what, Rate) else EVERY_DIGIT
    return About(
        id=id_,
        title=what.title,
        question=what.question,
        formula=f"{over}: {what.formula}",
        advice=what.advice,
        unit=unit,
        empty=empty,
        decimals=decimals,
    )


def figure(what: Number, id_: int, config: RuleConfig) -> stat.Panel:
    """A number over the whole range."""
    query = Query(count(what, config, by=(), window="$__range"), at="end")
    return panels.number(about(what, id_, over=WHOLE, empty="0", decimals=0), query, what.thresholds)


def percentage(what: Rate, id_: int, config: RuleConfig, *, empty: str) -> stat.Panel:
    """A rate over the whole range."""
    query = Query(rate(what, config, by=(), window="$__range"), at="end")
    return panels.number(about(what, id_, over=WHOLE, empty=empty, decimals=1), query, what.thresholds)


def per_step(
    what: Number,
    id_: int,
    config: RuleConfig,
    *,
    by: schema.Attribute | None = None,
    colours: Mapping[str, str] | None = None,
) -> timeseries.Panel:
    """Counts per step: by one label, or by provider and model. Steps without any have no bar."""
    counted = count(what, config, by=(by,) if by else CALL, window="$__interval")
    query = Query(f"{counted} > 0", f"{{{{{by.label}}}}}" if by else WHO)
    says = about(what, id_, over="in each step", empty="none", decimals=0)
    return panels.bars(says, [query], step=promql.duration(config.increase), colours=colours)
