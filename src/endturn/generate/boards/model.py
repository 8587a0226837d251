"""The dashboard *Model*: what limits one model's answers, and how fast do they come?"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard, stat, timeseries
from grafana_foundation_sdk.models import units

from endturn.generate.boards import frame, palettes, panels
from endturn.generate.boards.panels import description, series_name
from endturn.generate.config import RuleConfig
from endturn.generate.queries import (
    HistogramPart,
    Matcher,
    Queries,
    Window,
    has_value,
    is_set,
    variable_matchers,
)
from endturn.telemetry import INDICATORS, Metric, schema

QUERIES: Final = Queries(variable_matchers())
COMPLETE: Final = has_value(schema.COMPLETE, "true")
LIMIT_MIN_TURNS: Final = 100
"""No limit is recommended below this many turns: a 99th percentile needs them."""
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
TOKEN_TYPE: Final = schema.TOKEN_TYPE.label


def model(config: RuleConfig) -> dashboard.Dashboard:
    """Build the dashboard for a configuration of addresses."""
    board = frame.new_dashboard(
        uid="endturn-model",
        title="Model",
        description="One provider and model: what limits its answers, and how fast they come.",
        config=config,
        single=("provider", "model"),
    ).with_variable(frame.window_variable())

    board.with_row(dashboard.Row("Limit").id(10))
    board.with_panel(recommended_limit().span(5).height(6))
    board.with_panel(incomplete_turns().span(4).height(6))
    board.with_panel(budget_used().span(15).height(6))

    board.with_row(dashboard.Row("Answers").id(20))
    board.with_panel(output_tokens().span(12).height(8))
    board.with_panel(tokens_per_minute().span(6).height(8))
    board.with_panel(tokens_per_call().span(6).height(8))

    board.with_row(dashboard.Row("Speed").id(40))
    board.with_panel(call_duration().span(8).height(8))
    board.with_panel(first_chunk().span(8).height(8))
    board.with_panel(failed_calls().span(8).height(8))
    return board


# --- Limit ----------------------------------------------------------------------------------------


def recommended_limit() -> stat.Panel:
    """Show the limit that would have let answers finish."""
    longest = QUERIES.quantile(0.99, schema.TURN_OUTPUT, COMPLETE, over=Window.DASHBOARD)
    turns = QUERIES.histogram(schema.TURN_OUTPUT, HistogramPart.COUNT, COMPLETE)
    return (
        panels.stat_panel(13, "max_tokens that would do")
        .description(
            description(
                question="What limit would have let answers finish?",
                formula=(
                    "in the whole time range: 99th percentile of the output tokens of each "
                    "complete turn's longest answer, its continuations included, where there are "
                    f"{LIMIT_MIN_TURNS} or more"
                ),
                advice=(
                    "Set max_tokens to at least this, reasoning tokens included. A lower bound "
                    "where more than 1% of the turns are incomplete: the longest answers are then "
                    "among those. The calls of a turn that asked for tools count one by one, as "
                    "max_tokens limits them."
                ),
                source=panels.FROM_TURNS,
            )
        )
        .unit(units.LocaleFormat)
        .decimals(0)
        .no_value(f"below {LIMIT_MIN_TURNS} turns")
        .with_target(
            panels.latest(
                f"{longest}\n"
                f"and on () sum(increase({turns}[{Window.DASHBOARD}])) >= {LIMIT_MIN_TURNS}"
            )
        )
    )


def incomplete_turns() -> stat.Panel:
    """Show the share of turns whose answer is incomplete."""
    incomplete = INDICATORS["incomplete"]
    return panels.indicator_stat(14, incomplete).with_target(
        panels.latest(QUERIES.ratio(incomplete))
    )


def _quantiles(panel: timeseries.Panel, metric: Metric, *where: Matcher) -> timeseries.Panel:
    """Draw p50, p90 and p99 of a histogram of ours."""
    panels.lines(
        panel,
        {
            name: QUERIES.quantile(quantile, metric, *where, over=Window.CHOSEN)
            for name, quantile in QUANTILES.items()
        },
    )
    return panels.paint(panel, palettes.QUANTILES)


def budget_used() -> timeseries.Panel:
    """Show how close answers come to the limit."""
    panel = (
        panels.line_chart(32, "Token budget used", legend=panels.RIGHT)
        .description(
            description(
                question="How close to the limit do answers come, before any is cut?",
                formula=(
                    "output tokens ÷ the request's max_tokens, quantiles over the chosen window"
                ),
                advice=(
                    "p90 at 100% means that one answer in ten uses up its limit. A crowd that "
                    "moves towards 100% is truncation that begins tomorrow: raise max_tokens now. "
                    "Calls that set no limit are not in it."
                ),
                source=panels.FROM_PROCESS,
            )
        )
        .unit(units.PercentUnit)
        .no_value("no limit is set")
    )
    panels.threshold_lines(panel, 0.9, 1).axis_soft_max(1.05)
    return _quantiles(panel, schema.BUDGET_USED)


# --- Answers --------------------------------------------------------------------------------------


def output_tokens() -> timeseries.Panel:
    """Show how long whole answers are."""
    panel = (
        panels.line_chart(33, "Output tokens of whole answers", legend=panels.RIGHT)
        .description(
            description(
                question="How long are whole answers?",
                formula=(
                    "output tokens of each complete turn's longest answer, its continuations "
                    "included: quantiles over the chosen window"
                ),
                advice=(
                    "The limit of one call should be above p99: below it, one turn in a hundred "
                    "needs a continuation."
                ),
                source=panels.FROM_TURNS,
            )
        )
        .unit(units.Short)
        .axis_label("tokens")
    )
    return _quantiles(panel, schema.TURN_OUTPUT, COMPLETE)


def _tokens(part: HistogramPart) -> str:
    return QUERIES.rate(schema.TOKEN_USAGE, part, by=(TOKEN_TYPE,), over=Window.CHOSEN)


def tokens_per_minute() -> timeseries.Panel:
    """Show how many tokens go in and come out."""
    panel = (
        panels.line_chart(43, "Tokens per minute", legend=panels.BOTTOM)
        .description(
            description(
                question="How many tokens go in and come out?",
                formula="input and output tokens per minute, over the chosen window",
                advice=(
                    "Input that grows while calls do not is a history that is never shortened; the "
                    "context window ends it."
                ),
                source=panels.FROM_CALLS,
            )
        )
        .unit(units.Short)
        .axis_label("tokens per minute")
    )
    panels.lines(panel, {series_name(TOKEN_TYPE): f"60 * {_tokens(HistogramPart.SUM)}"})
    return panels.paint(panel, palettes.TOKEN_TYPES)


def tokens_per_call() -> timeseries.Panel:
    """Show how large prompts and answers are."""
    average = f"{_tokens(HistogramPart.SUM)} / ({_tokens(HistogramPart.COUNT)} > 0)"
    panel = (
        panels.line_chart(45, "Tokens per call", legend=panels.BOTTOM)
        .description(
            description(
                question="How large are prompts and answers?",
                formula="tokens ÷ calls, by input and output, over the chosen window",
                advice="An average: the quantiles of whole answers say more about limits.",
                source=panels.FROM_CALLS,
            )
        )
        .unit(units.Short)
        .axis_label("tokens")
    )
    panels.lines(panel, {series_name(TOKEN_TYPE): average})
    return panels.paint(panel, palettes.TOKEN_TYPES)


# --- Speed ----------------------------------------------------------------------------------------


def _seconds(panel_id: int, title: str) -> timeseries.Panel:
    return (
        panels.line_chart(panel_id, title, legend=panels.RIGHT)
        .unit(units.Seconds)
        .axis_label("seconds")
        .no_value("no such calls")
    )


def call_duration() -> timeseries.Panel:
    """Show how long one call takes."""
    median, slow = (
        QUERIES.rate_quantile(quantile, schema.OPERATION_DURATION, over=Window.CHOSEN)
        for quantile in (0.5, 0.95)
    )
    panel = (
        _seconds(41, "Call duration")
        .description(
            description(
                question="How long does one call take?",
                formula=(
                    "quantiles over the chosen window; the points are single calls whose traces "
                    "can be opened"
                ),
                advice=(
                    "Compare p50 and p95: a gap that widens is a provider under load, or answers "
                    "that got longer."
                ),
                source=panels.FROM_CALLS,
            )
        )
        .with_target(panels.over_time(median, "A").legend_format("p50"))
        .with_target(panels.over_time(slow, "B").legend_format("p95").exemplar(True))
    )
    return panels.paint(panel, palettes.QUANTILES)


def first_chunk() -> timeseries.Panel:
    """Show how long until something is seen."""
    panel = _seconds(42, "Time to the first chunk").description(
        description(
            question="How long until something is seen?",
            formula="quantiles over the chosen window, of calls that stream",
            advice="A long wait before a short answer is the provider's queue, or a long prompt.",
            source=panels.FROM_CALLS,
        )
    )
    panels.lines(
        panel,
        {
            "p50": QUERIES.rate_quantile(0.5, schema.FIRST_CHUNK, over=Window.CHOSEN),
            "p95": QUERIES.rate_quantile(0.95, schema.FIRST_CHUNK, over=Window.CHOSEN),
        },
    )
    return panels.paint(panel, palettes.QUANTILES)


def failed_calls() -> timeseries.Panel:
    """Show calls that ended in an error, by its class."""
    error = schema.ERROR_TYPE
    failures = QUERIES.rate(
        schema.OPERATION_DURATION,
        HistogramPart.COUNT,
        is_set(error),
        by=(error.label,),
        over=Window.CHOSEN,
    )
    panel = (
        panels.line_chart(44, "Failed calls per hour", legend=panels.RIGHT)
        .description(
            description(
                question="Which calls give no answer at all?",
                formula=(
                    "calls that ended in an error, per hour, by its class, over the chosen window"
                ),
                advice=(
                    "No truncation, but the next thing that people notice. RateLimitError: spread "
                    "the load, or ask for more."
                ),
                source=panels.FROM_CALLS,
            )
        )
        .unit(units.Short)
        .axis_label("calls per hour")
        .no_value("none")
        .color_scheme(panels.shades("red"))
    )
    return panels.lines(panel, {series_name(error.label): f"3600 * {failures}"})
