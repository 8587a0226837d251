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


def rate(what: Rate, config: RuleConfig, *, by: tuple[Label, ...], window: Window) -> Vector:
    return rules.rate(what, config, by=by, window=window, where=FILTERS)


def count(what: Number | Part, config: RuleConfig, *, by: tuple[Label, ...], window: Window) -> Vector:
    some = what.part if isinstance(what, Number) else what
    return rules.number(some, config, by=by, window=window, where=FILTERS)


def of_rate(what: Rate, id_: int, *, empty: str, over: str, decimals: int | None = None) -> About:
    formula = f"{what.formula}, {over}"
    return About(
        id=id_,
        title=what.title,
        question=what.question,
        formula=formula,
        advice=what.advice,
        unit="percentunit",
        empty=empty,
        decimals=decimals,
    )


def of_number(what: Number, id_: int, *, formula: str = "", empty: str = "0") -> About:
    says = formula or what.part.count.says.rstrip(".")
    return About(
        id=id_,
        title=what.title,
        question=what.question,
        formula=says,
        advice=what.advice,
        unit="short",
        empty=empty,
        decimals=0,
    )


def figure(what: Number, id_: int, config: RuleConfig) -> stat.Panel:
    says = f"{what.part.count.says.rstrip('.')}, in the whole time range"
    query = Query(count(what, config, by=(), window="$__range"), at="end")
    return panels.number(of_number(what, id_, formula=says), query, what.thresholds)


def percentage(what: Rate, id_: int, config: RuleConfig, *, empty: str) -> stat.Panel:
    query = Query(rate(what, config, by=(), window="$__range"), at="end")
    return panels.number(
        of_rate(what, id_, empty=empty, over="in the whole time range", decimals=1), query, what.thresholds
    )


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
    formula = f"{what.part.count.says.rstrip('.')}, as many as came in each step"
    about = of_number(what, id_, formula=formula, empty="none")
    return panels.bars(about, [query], step=promql.duration(config.increase), colours=colours)
