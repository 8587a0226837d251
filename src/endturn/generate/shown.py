"""Indicators as panels: their question, formula, advice and thresholds, over what the variables let through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from endturn.generate import panels, promql, rules
from endturn.generate.declare import VARIABLES
from endturn.generate.panels import About, Link, Needs, Query
from endturn.generate.promql import JOB, LE, Label, Vector, Window
from endturn.generate.rules import RuleConfig
from endturn.generate.sdk import heatmap, stat, timeseries
from endturn.telemetry import schema
from endturn.telemetry.indicators import Number, Part, Rate, Spread

CALL: Final = (schema.PROVIDER, schema.REQUEST_MODEL)
WHO: Final = f"{{{{{schema.PROVIDER.label}}}}} · {{{{{schema.REQUEST_MODEL.label}}}}}"
FILTERS: Final = (
    promql.chosen(JOB, VARIABLES[JOB]),
    promql.chosen(schema.PROVIDER, VARIABLES[schema.PROVIDER.label]),
    promql.chosen(schema.REQUEST_MODEL, VARIABLES[schema.REQUEST_MODEL.label]),
)
"""What the dashboard's variables let through."""
WHOLE: Final = "in the whole time range"

MODEL_BOARD, TURNS_BOARD = "endturn-model", "endturn-turns"
COLLECTOR_COUNTS: Final = (schema.RESPONSES, schema.SUSPECTED_METRIC, schema.UNMAPPED)
"""What the Collector counts from spans of any language, under the names that endturn itself uses."""

EVERY_DIGIT: Final = "locale"
"""Grafana's unit for a number of which every digit counts: 2,034 and not 2 K."""
UNITS: Final = {"events": EVERY_DIGIT, "share": "percentunit", "seconds": "s"}


def rate(what: Rate, config: RuleConfig, *, by: tuple[Label, ...], window: Window) -> Vector:
    """A rate of what the variables let through."""
    return rules.rate(what, config, by=by, window=window, where=FILTERS)


def count(what: Number | Part, config: RuleConfig, *, by: tuple[Label, ...], window: Window) -> Vector:
    """A number of what the variables let through."""
    some = what.part if isinstance(what, Number) else what
    return rules.number(some, config, by=by, window=window, where=FILTERS)


def needs(*parts: Part) -> Needs:
    """Where these come from: what the Collector counts by itself is there without endturn in the process."""
    return "responses" if all(part.count.metric in COLLECTOR_COUNTS for part in parts) else "process"


def about(
    what: Rate | Number | Spread, id_: int, *, over: str, empty: str, decimals: int | None = None, title: str = ""
) -> About:
    """An indicator's question, formula and advice, as a panel says them.

    Args:
        over: what the panel looks at: all of it, each step of it, or the window behind each point.
        title: where the same indicator is shown in another way.
    """
    match what:
        case Rate():
            unit, formula, source = "percentunit", f"{over}: {what.formula}", needs(what.part, what.whole)
        case Number():
            unit, formula, source = EVERY_DIGIT, f"{over}: {what.formula}", needs(what.part)
        case Spread():
            unit, formula, source = UNITS[what.unit], over, needs(what.part)
    return About(
        id=id_,
        title=title or what.title,
        question=what.question,
        formula=formula,
        advice=what.advice,
        unit=unit,
        needs=source,
        empty=empty,
        decimals=decimals,
    )


def steps(
    some: Part, config: RuleConfig, *, by: tuple[Label, ...], where: tuple[promql.Matcher, ...] = FILTERS
) -> Vector:
    """Events per step of a chart, of what happened at all in its time range."""
    recorded = rules.part(some, config).where(*where)
    counted = promql.counted(recorded, by, "$__interval", overlap=config.overlap)
    return promql.happened(counted, recorded, by)


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
    title: str = "",
) -> timeseries.Panel:
    """Counts per step: by one label, or by provider and model."""
    query = Query(steps(what.part, config, by=(by,) if by else CALL), f"{{{{{by.label}}}}}" if by else WHO)
    says = about(what, id_, over="in each step", empty="none", decimals=0, title=title)
    return panels.bars(
        says, [query], step=promql.duration(config.increase), colours=colours, links=() if by else SERIES_LINKS
    )


def by_model(what: Rate, id_: int, config: RuleConfig, *, empty: str) -> timeseries.Panel:
    """A rate over the chosen window, a line for each provider and model."""
    says = about(what, id_, over="over the chosen window, by provider and model", empty=empty)
    query = Query(rate(what, config, by=CALL, window="$window"), WHO)
    limits = what.thresholds
    return panels.lines(says, [query], limits=limits, soft_max=2 * limits.act, links=SERIES_LINKS)


def distribution(what: Spread, id_: int, config: RuleConfig, *, empty: str, title: str = "") -> heatmap.Panel:
    """How many values fell into each bucket, in each step."""
    digits = 1 if what.unit == "share" else 0
    says = about(what, id_, over="in each step, by the histogram's buckets", empty=empty, decimals=digits, title=title)
    bounds: tuple[Label, ...] = (LE,)
    series = rules.part(what.part, config).where(*FILTERS)
    events = promql.counted(series, bounds, "$__interval", overlap=config.overlap)
    step = promql.duration(config.increase)
    return panels.heat(says, Query(events, f"{{{{{LE}}}}}", form="heatmap"), step=step)


def _link(title: str, board: str, provider: str, model: str) -> Link:
    chosen = "${prometheus_datasource:queryparam}&${job:queryparam}&${__url_time_range}"
    return Link(title, f"/d/{board}?var-provider={provider}&var-model={model}&{chosen}")


def _to_model(provider: str, model: str) -> tuple[Link, Link]:
    return (
        _link("This model", MODEL_BOARD, provider, model),
        _link("Its truncated turns", TURNS_BOARD, provider, model),
    )


SERIES_LINKS: Final = _to_model(
    f"${{__field.labels.{schema.PROVIDER.label}}}", f"${{__field.labels.{schema.REQUEST_MODEL.label}}}"
)
"""From a line or bar of one provider and model."""
ROW_LINKS: Final = _to_model("${__data.fields.Provider}", "${__data.fields.Model}")
"""From a row of a table that has these two columns."""
