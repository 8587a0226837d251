"""The dashboard *Continuations*: outcomes of truncated answers, and the cost of continuing them."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import bargauge, dashboard, stat, timeseries
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import LegendPlacement
from grafana_foundation_sdk.models.dashboard import DynamicConfigValue

from endturn.generate.boards import frame, links, palettes, panels
from endturn.generate.boards.panels import description, indicator_description, series_name
from endturn.generate.config import RuleConfig
from endturn.generate.queries import (
    BUCKET_BOUND,
    CALL,
    Queries,
    Window,
    has_value,
    or_zero,
    variable_matchers,
)
from endturn.telemetry import INDICATORS, Attribute, Indicator, schema

QUERIES: Final = Queries(variable_matchers())
UNFINISHED_SHARE: Final = INDICATORS["unfinished_share"]
CONTINUATION_TOKENS: Final = INDICATORS["continuation_tokens"]

BUCKET_NAMES: Final = {
    "0": "none",
    "1": "1",
    "2": "2",
    "3": "3",
    "4": "4",
    "5": "5",
    "8": "6 to 8",
    "13": "9 to 13",
    "+Inf": "more than 13",
}
"""Upper bound of a bucket -> the numbers of continuations in it."""


def continuations(config: RuleConfig) -> dashboard.Dashboard:
    """Build the dashboard for a configuration of addresses."""
    board = frame.new_dashboard(
        uid="endturn-continuations",
        title="Continuations",
        description=(
            "How did truncated turns end, and what do continuations cost in calls, tokens, money "
            "and time?"
        ),
        config=config,
    ).with_variable(frame.window_variable())

    board.with_row(dashboard.Row("Totals").id(10))
    board.with_panel(total(11, INDICATORS["truncated_turns"]).span(5).height(5))
    board.with_panel(total(12, INDICATORS["continuations"]).span(5).height(5))
    board.with_panel(tokens_spent().span(5).height(5))
    board.with_panel(money_spent().span(4).height(5))
    board.with_panel(added_wait().span(5).height(5))

    board.with_row(dashboard.Row("Endings").id(30))
    board.with_panel(unfinished_by_outcome().span(12).height(9))
    board.with_panel(unfinished_share_by_model().span(12).height(9))

    board.with_row(dashboard.Row("Number").id(20))
    board.with_panel(continuations_per_turn().span(8).height(9))
    board.with_panel(continuations_by_strategy().span(8).height(9))
    board.with_panel(tokens_by_type().span(8).height(9))

    board.with_row(dashboard.Row("Tools").id(60))
    board.with_panel(repairs().span(8).height(9))
    board.with_panel(repair_failures().span(8).height(9))
    board.with_panel(blocked_calls().span(8).height(9))
    return board


# --- Totals ---------------------------------------------------------------------------------------


def total(panel_id: int, indicator: Indicator) -> stat.Panel:
    """Show the number of an indicator's events in the time range; zero if there were only turns."""
    turns = QUERIES.events(INDICATORS["turns"].count)
    return panels.indicator_stat(panel_id, indicator).with_target(
        panels.latest(or_zero(QUERIES.events(indicator.count), turns))
    )


def tokens_spent() -> stat.Panel:
    """Show the tokens of continuation calls."""
    return (
        total(15, CONTINUATION_TOKENS)
        .title("Tokens spent")
        .description(
            indicator_description(
                CONTINUATION_TOKENS,
                advice=(
                    "Each continuation sends the prompt again as input. A larger max_tokens saves "
                    "these calls."
                ),
            )
        )
    )


def money_spent() -> stat.Panel:
    """Show the cost of continuation calls."""
    cost = INDICATORS["continuation_cost"]
    return (
        panels.indicator_stat(16, cost)
        .title("Money spent")
        .unit(units.Dollars)
        .decimals(2)
        .no_value("no prices")
        .with_target(panels.latest(QUERIES.events(cost.count)))
    )


def added_wait() -> stat.Panel:
    """Show how much longer a continued turn takes than one without a continuation."""
    continued, plain = (
        QUERIES.quantile(
            0.5, schema.TURN_DURATION, has_value(schema.CONTINUED, value), over=Window.DASHBOARD
        )
        for value in ("true", "false")
    )
    return (
        panels.stat_panel(17, "Added wait")
        .description(
            description(
                question="How much longer does a continued turn take?",
                formula=(
                    "median duration of continued turns minus that of turns without a "
                    "continuation, in the time range, from a turn's first call to the end of its "
                    "last, tools included"
                ),
                advice=(
                    "The time that truncation costs users, even if every answer is finished. With "
                    "tools, turns of more calls take longer and are truncated more often."
                ),
                source=panels.FROM_TURNS,
            )
        )
        .unit(units.Seconds)
        .decimals(1)
        .no_value("–")
        .with_target(panels.latest(f"{continued}\n- on () {plain}"))
    )


# --- Endings --------------------------------------------------------------------------------------


def _bars(
    panel_id: int,
    indicator: Indicator,
    attribute: Attribute,
    *,
    noun: str,
    title: str = "",
    legend: LegendPlacement = panels.BOTTOM,
) -> timeseries.Panel:
    """Start a bar chart of an indicator by one attribute."""
    return panels.indicator_bars(
        panel_id,
        indicator,
        title=title,
        noun=noun,
        legend=legend,
    ).with_target(
        panels.over_time(
            QUERIES.events_per_step(indicator.count, by=(attribute.label,))
        ).legend_format(series_name(attribute.label))
    )


def unfinished_by_outcome() -> timeseries.Panel:
    """Show unfinished turns over time by outcome."""
    panel = _bars(
        32,
        INDICATORS["unfinished"],
        schema.OUTCOME,
        title="Unfinished turns by outcome",
        noun="turns",
        legend=panels.RIGHT,
    )
    return panels.paint(panel, palettes.OUTCOMES)


def unfinished_share_by_model() -> timeseries.Panel:
    """Show the share of truncated turns that nobody finished, by model."""
    trend = QUERIES.ratio_trend(UNFINISHED_SHARE, by=CALL, over=Window.CHOSEN)
    panel = (
        panels.indicator_lines(
            33,
            UNFINISHED_SHARE,
            title="Not continued, by model",
            scope="over the chosen window, by provider and model",
            legend=panels.BOTTOM,
        )
        .no_value("no truncated turns")
        .data_links(panels.data_links(links.model_links()))
        .with_target(panels.over_time(trend).legend_format(series_name(*CALL)))
    )
    return panels.paint_models(panel)


# --- Number ---------------------------------------------------------------------------------------


def continuations_per_turn() -> bargauge.Panel:
    """Show how many continuations truncated turns take."""
    values = QUERIES.values_below(schema.TURN_CONTINUATIONS)
    panel = (
        panels.bucket_gauge(22, "Continuations per truncated turn")
        .description(
            description(
                question="How many continuations does a truncated turn take?",
                formula=(
                    "truncated turns in the time range, by the number of calls that asked for the "
                    "rest of an answer, or again for a truncated tool call"
                ),
                advice=(
                    "Mostly one: fine. Often three or more: max_tokens is far too small for these "
                    "requests."
                ),
                source=panels.FROM_TURNS,
            )
        )
        .no_value("no truncated turns")
        .with_target(panels.buckets(values).legend_format(series_name(BUCKET_BOUND)))
    )
    for bound, name in BUCKET_NAMES.items():
        # Prometheus 3 writes 1 as 1.0.
        names = r"^(\+Inf|Inf|Infinity)$" if bound == "+Inf" else rf"^{bound}(\.0)?$"
        panel.override_by_regexp(names, [DynamicConfigValue("displayName", name)])
    return panel


def continuations_by_strategy() -> timeseries.Panel:
    """Show continuations over time by strategy."""
    panel = _bars(
        23,
        INDICATORS["continuations"],
        schema.STRATEGY,
        title="Continuations by strategy",
        noun="continuations",
    )
    return panels.paint(panel, palettes.STRATEGIES)


def tokens_by_type() -> timeseries.Panel:
    """Show the tokens of continuation calls over time."""
    panel = _bars(41, CONTINUATION_TOKENS, schema.TOKEN_TYPE, noun="tokens")
    return panels.paint(panel, palettes.TOKEN_TYPES)


# --- Tools ----------------------------------------------------------------------------------------


def repairs() -> timeseries.Panel:
    """Show repairs of truncated tool payloads over time by result."""
    panel = _bars(61, INDICATORS["repairs"], schema.REPAIR_RESULT, noun="repairs")
    return panels.paint(panel, palettes.REPAIR_RESULTS)


def repair_failures() -> timeseries.Panel:
    """Show the share of repairs that fail, by model."""
    indicator = INDICATORS["repair_failure"]
    trend = QUERIES.ratio_trend(indicator, by=CALL, over=Window.CHOSEN)
    panel = (
        panels.indicator_lines(
            62,
            indicator,
            title=indicator.title,
            scope="over the chosen window, by provider and model",
            legend=panels.BOTTOM,
        )
        .no_value("nothing repaired")
        .data_links(panels.data_links(links.model_links()))
        .with_target(panels.over_time(trend).legend_format(series_name(*CALL)))
    )
    return panels.paint_models(panel)


def blocked_calls() -> timeseries.Panel:
    """Show tool calls that the gate blocked, over time by reason."""
    return _bars(63, INDICATORS["blocked"], schema.BLOCK_REASON, noun="calls").color_scheme(
        panels.shades("orange")
    )
