"""Panels that more than one dashboard shows, each under its own number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from endturn.generate import panels, promql, rules, tables
from endturn.generate.panels import About, Query
from endturn.generate.promql import LE, Label
from endturn.generate.rules import RuleConfig
from endturn.generate.sdk import bargauge, table, timeseries
from endturn.generate.shown import CALL, EVERY_DIGIT, FILTERS, ROW_LINKS, about, count, per_step, rate, steps
from endturn.generate.tables import Column
from endturn.telemetry import indicators, schema
from endturn.telemetry.indicators import Number, Part

PLAIN, CONTINUED = "#8ab8ff", "orange"
STRATEGIES: Final[Mapping[str, str]] = {
    "native_token": "green",
    "resend": "blue",
    "retrieve": "super-light-blue",
    "prefill": "light-blue",
    "prompt": "purple",
    "retry": "yellow",
    "repair": "orange",
}
OUTCOMES: Final[Mapping[str, str]] = {
    "completed": "green",
    "implicit_completion": "light-green",
    "not_continued": "red",
    "retry_limit": "orange",
    "stream_cut": "purple",
}
RESULTS: Final[Mapping[str, str]] = {"succeeded": "green", "failed": "red", "not_attempted": "#8e8e8e"}
REASONS: Final[Mapping[str, str]] = {reason.value: colour for reason, colour in indicators.REASON_COLOURS.items()}

UNFINISHED: Final = Number(
    name="unfinished",
    title="Unfinished turns by outcome",
    question="How did the turns end that were left unfinished?",
    part=Part(count=indicators.EXITS),
    formula="turns that ended while a truncated response stood unfinished, by outcome",
    advice="`not_continued`: the loop never asks for the rest. `retry_limit` or a budget: the policy gave up. "
    "`stream_cut`: the connection broke.",
)


def reasons(id_: int, config: RuleConfig) -> timeseries.Panel:
    """Responses over time, by stop reason in its colour."""
    over_time = About(
        id=id_,
        title="Responses by stop reason",
        question="Why do models stop?",
        formula="responses in each step, by normalised reason",
        advice="Green and blue is a model that finished or wants a tool. Orange and red is an answer that was cut off.",
        unit="short",
        needs="responses",
        decimals=0,
    )
    by_reason = steps(indicators.RESPONSE_NUMBER.part, config, by=(schema.REASON,))
    query = Query(by_reason, f"{{{{{schema.REASON.label}}}}}")
    return panels.bars(over_time, [query], step=promql.duration(config.increase), colours=REASONS)


def reasons_by_model(id_: int, config: RuleConfig) -> table.Panel:
    """Which model stops how often for which reason."""
    recorded = rules.recorded(indicators.RESPONSES, config).where(*FILTERS)
    by = (*CALL, schema.REASON)
    by_model = About(
        id=id_,
        title="Stop reasons by provider and model",
        question="Who stops for which reason?",
        formula="responses in the whole time range; the share is of that model's responses",
        advice="Look for a model that is cut off much more often than others at the same work.",
        unit=EVERY_DIGIT,
        needs="responses",
    )
    # Every reason's counter exists at zero; what did not happen need not be listed.
    counted = count(indicators.RESPONSE_NUMBER, config, by=by, window="$__range")
    counts = Query(f"{counted} > 0", at="end", form="table")
    shares = Query(f"{promql.share(recorded, by, CALL, '$__range')} > 0", at="end", form="table")
    columns = (
        Column(name="Provider", label=schema.PROVIDER.label, width=110),
        Column(name="Model", label=schema.REQUEST_MODEL.label, link=ROW_LINKS[0]),
        Column(name="Stop reason", label=schema.REASON.label, colours=REASONS),
        Column(name="Responses", value_of="A", width=100),
        Column(name="Share", value_of="B", unit="percentunit", bar=True),
    )
    return tables.rows(by_model, [counts, shares], columns, sort="Responses")


def ranking(id_: int, config: RuleConfig) -> table.Panel:
    """Every model with its truncation and what became of it, the worst first."""

    def total(part: Part) -> promql.Vector:
        return count(part, config, by=CALL, window="$__range")

    responses = total(indicators.RESPONSE_NUMBER.part)
    queries = [
        Query(expression, at="end", form="table")
        for expression in (
            responses,
            rate(indicators.TRUNCATION, config, by=CALL, window="$__range"),
            promql.or_zero(total(Part(count=indicators.TRUNCATED_TURNS)), responses),
            promql.or_zero(total(Part(count=indicators.EXITS)), responses),
            rate(indicators.NOT_CONTINUED, config, by=CALL, window="$__range"),
        )
    ]
    left = indicators.NOT_CONTINUED.thresholds
    columns = (
        Column(name="Provider", label=schema.PROVIDER.label),
        Column(name="Model", label=schema.REQUEST_MODEL.label, link=ROW_LINKS[0]),
        Column(name="Responses", value_of="A"),
        Column(name="Truncation rate", value_of="B", unit="percentunit", limits=indicators.TRUNCATION.thresholds),
        Column(name="Truncated turns", value_of="C", link=ROW_LINKS[1]),
        Column(name="Left unfinished", value_of="D", link=ROW_LINKS[1]),
        Column(name="Left unfinished, rate", value_of="E", unit="percentunit", limits=left),
    )
    says = About(
        id=id_,
        title="Models, worst first",
        question="Which model should be looked at first?",
        formula="everything over the whole time range",
        advice="A model's name leads to its dashboard, its numbers of turns to their traces and events. The first two "
        "numbers are there without endturn in the process too; turns are not.",
        unit=EVERY_DIGIT,
        empty="–",
    )
    return tables.rows(says, queries, columns, sort="Left unfinished, rate")


def strategies(id_: int, config: RuleConfig) -> timeseries.Panel:
    """Continuations over time, by how the rest was asked for."""
    return per_step(indicators.CONTINUATION_NUMBER, id_, config, by=schema.STRATEGY, colours=STRATEGIES)


def unfinished(id_: int, config: RuleConfig) -> timeseries.Panel:
    """Turns that were left unfinished over time, by how they ended."""
    return per_step(UNFINISHED, id_, config, by=schema.OUTCOME, colours=OUTCOMES)


def attempts(id_: int, config: RuleConfig) -> bargauge.Panel:
    """Truncated turns of the whole range, by how many continuations they took."""
    spread = indicators.ATTEMPT_SPREAD
    over = "truncated turns in the whole time range, by their continuations"
    says = about(spread, id_, over=over, empty="nothing truncated", decimals=0)
    by_bound: tuple[Label, ...] = (LE,)
    series = rules.part(spread.part, config).where(*FILTERS)
    events = promql.counted(series, by_bound, "$__range", overlap=config.overlap)
    query = Query(events, f"{{{{{LE}}}}}", at="end", form="heatmap")
    return panels.buckets(says, query, _names(schema.TURN_CONTINUATIONS.buckets))


def _names(bounds: tuple[float, ...]) -> dict[str, str]:
    """What to call the buckets of whole numbers, by a pattern for their bounds: Prometheus 3 writes 1 as "1.0"."""
    names, below = {}, -1
    for bound in map(int, bounds):
        text = f"{bound}" if bound == below + 1 else f"{below + 1} to {bound}"
        names[f"^{bound}(\\.0)?$"] = "none" if bound == 0 else text
        below = bound
    return names | {r"^(\+Inf|Inf|Infinity)$": f"more than {below}"}


def durations(id_: int, config: RuleConfig, *, exemplars: bool = False) -> timeseries.Panel:
    """How long turns take, those that were continued beside those that needed nothing.

    Args:
        exemplars: add the truncated turns of right now, whose traces sampling keeps, with some of these traces.
    """
    spread = indicators.DURATION_SPREAD
    over = "quantiles over the chosen window, interpolated within the histogram's buckets"
    if exemplars:
        over += "; *cut, now* is the 95th percentile of truncated turns right now, with some of them as points"
    says = about(spread, id_, over=over, empty="no traffic", title=f"{spread.title}, continued and plain")
    series = rules.part(spread.part, config).where(*FILTERS)
    queries = [
        Query(
            promql.quantile(q, series.where(promql.only(schema.CONTINUED, continued)), (), "$window"),
            f"{name}, p{q * 100:g}",
        )
        for continued, name in (("true", "continued"), ("false", "plain"))
        for q in (0.5, 0.95)
    ]
    if exemplars:
        cut = promql.only(schema.TRUNCATED, "true")
        queries.append(
            Query(promql.quantile_now(0.95, schema.TURN_DURATION, (), *FILTERS, cut), "cut, now", exemplars=True)
        )
    colours = {f"{name}, p{q}": c for name, c in (("continued", CONTINUED), ("plain", PLAIN)) for q in (50, 95)}
    if exemplars:
        colours |= {"cut, now": "red"}
    dashed = ["continued, p50", "plain, p50"]
    now = ["cut, now"] if exemplars else []
    return panels.lines(says, queries, colours=colours, dashed=dashed, dotted=now, step="5m" if exemplars else "1m")


def blocked(id_: int, config: RuleConfig) -> timeseries.Panel:
    """Tool calls that were not run over time, by reason."""
    return per_step(indicators.BLOCKED_NUMBER, id_, config, by=schema.BLOCK_REASON, colours={})


def repairs(id_: int, config: RuleConfig) -> timeseries.Panel:
    """Tool payload repairs over time, by result."""
    return per_step(indicators.REPAIR_NUMBER, id_, config, by=schema.REPAIR_RESULT, colours=RESULTS)
