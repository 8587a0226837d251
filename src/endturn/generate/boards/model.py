"""The dashboard *Model*: what limits one model's answers, and how fast do they come?"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard, stat, timeseries
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import GridPos

from endturn.generate.boards import frame, limits, palettes, panels
from endturn.generate.boards.panels import description, series_name
from endturn.generate.config import RuleConfig
from endturn.generate.queries import (
    HistogramPart,
    Matcher,
    Queries,
    Window,
    is_set,
    variable_matchers,
)
from endturn.telemetry import ENOUGH_EVENTS, INDICATORS, Metric, schema

QUERIES: Final = Queries(variable_matchers())
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
TOKEN_TYPE: Final = schema.TOKEN_TYPE.label


def model(config: RuleConfig) -> dashboard.Dashboard:
    """Build the dashboard for a configuration of addresses."""
    board = frame.new_dashboard(
        uid="endturn-model",
        title="Model",
        description="One provider and model: is its limit large enough, and how fast is it?",
        config=config,
        single=("provider", "model"),
    ).with_variable(frame.window_variable())

    board.with_row(dashboard.Row("Limit").id(10))
    board.with_panel(recommended_limit().span(5).height(4))
    board.with_panel(present_limit().grid_pos(GridPos(h=4, w=5, x=0, y=5)))
    board.with_panel(incomplete_turns().grid_pos(GridPos(h=4, w=5, x=0, y=9)))
    board.with_panel(budget_used().grid_pos(GridPos(h=12, w=19, x=5, y=1)))

    board.with_row(dashboard.Row("Answers").id(20).grid_pos(GridPos(h=1, w=24, x=0, y=13)))
    board.with_panel(output_tokens().span(8).height(9))
    board.with_panel(tokens_per_minute().span(8).height(9))
    board.with_panel(tokens_per_call().span(8).height(9))

    board.with_row(dashboard.Row("Speed").id(40))
    board.with_panel(call_duration().span(8).height(8))
    board.with_panel(first_chunk().span(8).height(8))
    board.with_panel(failed_calls().span(8).height(8))
    return board


# --- Limit ----------------------------------------------------------------------------------------


def recommended_limit() -> stat.Panel:
    """Show the limit that would have let answers finish."""
    return (
        panels.stat_panel(13, "Limit needed")
        .description(
            description(
                question="Which max_tokens would let answers finish?",
                formula=(
                    "99th percentile of the output tokens of each complete turn's longest answer, "
                    f"continuations included, in the time range, from {limits.MIN_TURNS} turns"
                ),
                advice=(
                    "Set max_tokens to at least this value; reasoning tokens are included. If more "
                    "than 1% of the turns are incomplete it is a lower bound, because the longest "
                    "answers are among those."
                ),
                source=panels.FROM_TURNS,
            )
        )
        .unit(units.NoUnit)
        .decimals(0)
        .no_value(f"below {limits.MIN_TURNS} turns")
        .with_target(panels.latest(limits.needed_limit()))
    )


def present_limit() -> stat.Panel:
    """Show the limit that requests set."""
    return (
        panels.stat_panel(15, "Limit now")
        .description(
            description(
                question="Which max_tokens do requests set?",
                formula=(
                    "output tokens ÷ token budget used, in the time range: a mean if requests set "
                    f"different limits. Shown if at least {limits.LIMITED_SHARE:.0%} of the calls "
                    "set one"
                ),
                advice="Below *Limit needed*: raise max_tokens.",
                source=panels.FROM_PROCESS,
            )
        )
        .unit(units.NoUnit)
        .decimals(0)
        .no_value("not set by all")
        .with_target(panels.latest(limits.present_limit()))
    )


def incomplete_turns() -> stat.Panel:
    """Show the share of turns whose answer is incomplete."""
    incomplete = INDICATORS["incomplete"]
    return panels.verdict_stat(14, incomplete, events="turns").with_target(
        panels.latest(QUERIES.verdict(incomplete, at_least=ENOUGH_EVENTS))
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
                question="How close do answers come to the limit?",
                formula=(
                    "output tokens ÷ the request's max_tokens: quantiles over the chosen window"
                ),
                advice=(
                    "p90 at 100%: one answer in ten uses its entire limit. Quantiles that approach "
                    "100% announce truncation: raise max_tokens now. Calls without a limit are not "
                    "included."
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
        panels.line_chart(33, "Output tokens of complete answers", legend=panels.BOTTOM)
        .description(
            description(
                question="How long are complete answers?",
                formula=(
                    "output tokens of each complete turn's longest answer, continuations included: "
                    "quantiles over the chosen window"
                ),
                advice=(
                    "Set max_tokens above p99. At p99, one turn in a hundred needs a continuation."
                ),
                source=panels.FROM_TURNS,
            )
        )
        .unit(panels.COUNT)
        .axis_label("tokens")
    )
    return _quantiles(panel, schema.TURN_OUTPUT, limits.COMPLETE)


def _tokens(part: HistogramPart) -> str:
    return QUERIES.rate(schema.TOKEN_USAGE, part, by=(TOKEN_TYPE,), over=Window.CHOSEN)


def tokens_per_minute() -> timeseries.Panel:
    """Show how many tokens go in and come out."""
    panel = (
        panels.line_chart(43, "Tokens per minute", legend=panels.BOTTOM)
        .description(
            description(
                question="How many input and output tokens does the model process?",
                formula="input and output tokens per minute, over the chosen window",
                advice=(
                    "Input grows and calls do not: the history is never shortened, and will exceed "
                    "the context window."
                ),
                source=panels.FROM_CALLS,
            )
        )
        .unit(panels.COUNT)
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
                formula="tokens ÷ calls, for input and output, over the chosen window",
                advice="This is a mean. For limits, use the quantiles of complete answers.",
                source=panels.FROM_CALLS,
            )
        )
        .unit(panels.COUNT)
        .axis_label("tokens")
    )
    panels.lines(panel, {series_name(TOKEN_TYPE): average})
    return panels.paint(panel, palettes.TOKEN_TYPES)


# --- Speed ----------------------------------------------------------------------------------------


def _seconds(panel_id: int, title: str) -> timeseries.Panel:
    return (
        panels.line_chart(panel_id, title, legend=panels.BOTTOM)
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
                    "quantiles over the chosen window. Points are single calls; click one for its "
                    "trace"
                ),
                advice=(
                    "The gap between p50 and p95 widens: the provider is under load, or answers "
                    "became longer."
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
            question="How long do users wait for the first text?",
            formula="quantiles over the chosen window, of streamed calls",
            advice="A long wait before a short answer: the provider's queue, or a long prompt.",
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
        panels.line_chart(44, "Failed calls per hour", legend=panels.BOTTOM)
        .description(
            description(
                question="Which calls fail?",
                formula=(
                    "calls that ended in an error, per hour, by error class, over the chosen window"
                ),
                advice=(
                    "These are no truncations. RateLimitError: spread the load, or request a "
                    "higher rate limit."
                ),
                source=panels.FROM_CALLS,
            )
        )
        .unit(panels.COUNT)
        .axis_label("calls per hour")
        .no_value("none")
        .color_scheme(panels.shades("red"))
    )
    return panels.lines(panel, {series_name(error.label): f"3600 * {failures}"})
