"""The dashboard *Overview*: is anything truncated and left unfinished, and where?"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard, stat, table, timeseries
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import BigValueTextMode

from endturn.generate.boards import error_budget, frame, links, palettes, panels
from endturn.generate.boards.links import cell, dashboard_link
from endturn.generate.boards.panels import Step, description
from endturn.generate.boards.tables import Column, table_panel
from endturn.generate.config import RuleConfig
from endturn.generate.queries import (
    CALL,
    CLUSTER,
    ENVIRONMENT,
    JOB,
    SERVICE,
    HistogramPart,
    Queries,
    Window,
    duration,
    has_value,
    is_set,
    or_zero,
    variable_matchers,
)
from endturn.telemetry import INDICATORS, Metric, schema

QUERIES: Final = Queries(variable_matchers())
UNFINISHED_SHARE: Final = INDICATORS["unfinished_share"]
TRUNCATION: Final = INDICATORS["truncation"]
UNFINISHED: Final = INDICATORS["unfinished"]
TURNS: Final = INDICATORS["turns"]
RESPONSES: Final = INDICATORS["responses"]

BUDGET_STEPS: Final[tuple[Step, ...]] = (
    (None, "text"),
    (0, "red"),
    (0.000001, "orange"),
    (0.25, "green"),
)
TRUNCATION_STEPS: Final[tuple[Step, ...]] = ((None, "text"), (0.05, "orange"), (0.2, "red"))
UNFINISHED_STEPS: Final[tuple[Step, ...]] = ((None, "text"), (1, "orange"), (10, "red"))
UNFINISHED_SHARE_STEPS: Final[tuple[Step, ...]] = ((None, "text"), (0.01, "orange"), (0.05, "red"))
CONTINUED_COLOR: Final = "orange"
PLAIN_COLOR: Final = "#8ab8ff"


def overview(config: RuleConfig) -> dashboard.Dashboard:
    """Build the dashboard for a configuration of objectives and addresses."""
    board = frame.new_dashboard(
        uid="endturn-overview",
        title="Overview",
        description="Did the model end its turn, or was it cut off? Is everything all right?",
        config=config,
    ).with_variable(frame.window_variable())

    board.with_row(dashboard.Row("State").id(10))
    board.with_panel(unfinished_share().span(5).height(6))
    board.with_panel(unfinished_share_trend().span(7).height(6))
    board.with_panel(truncation_rate().span(3).height(6))
    board.with_panel(unfinished_turns().span(3).height(6))
    board.with_panel(worst_error_budget(config).span(3).height(6))
    board.with_panel(firing_alerts(config).span(3).height(6))

    board.with_row(dashboard.Row("Services").id(20))
    board.with_panel(services(config).span(24).height(8))

    board.with_row(dashboard.Row("Answers").id(30))
    board.with_panel(stop_reasons().span(14).height(9))
    board.with_panel(turn_duration().span(10).height(9))

    board.with_row(dashboard.Row("Models").id(40))
    board.with_panel(models().span(24).height(8))
    return board


# --- State ----------------------------------------------------------------------------------------


def unfinished_share() -> stat.Panel:
    """Show the share of truncated turns that nobody finished."""
    return (
        panels.indicator_stat(11, UNFINISHED_SHARE)
        .no_value("nothing truncated")
        .with_target(panels.latest(QUERIES.ratio(UNFINISHED_SHARE)))
    )


def unfinished_share_trend() -> timeseries.Panel:
    """Show the same share over time."""
    trend = QUERIES.ratio_trend(UNFINISHED_SHARE, over=Window.CHOSEN)
    return (
        panels.indicator_lines(
            18,
            UNFINISHED_SHARE,
            title=f"{UNFINISHED_SHARE.title}, trend",
            scope="over the chosen window",
            legend=None,
        )
        .no_value("nothing truncated")
        .color_scheme(panels.shades("orange"))
        .with_target(panels.over_time(trend).legend_format("all services"))
    )


def truncation_rate() -> stat.Panel:
    """Show the share of responses that were truncated."""
    return panels.indicator_stat(12, TRUNCATION).with_target(
        panels.latest(QUERIES.ratio(TRUNCATION))
    )


def unfinished_turns() -> stat.Panel:
    """Show the number of unfinished turns."""
    return (
        panels.indicator_stat(13, UNFINISHED)
        .no_value("0")
        .with_target(panels.latest(QUERIES.events(UNFINISHED.count)))
    )


def worst_error_budget(config: RuleConfig) -> stat.Panel:
    """Show the error budget of the service that has the least left."""
    return (
        panels.stat_panel(14, "Error budget left")
        .description(
            description(
                question="Is the objective kept?",
                formula=(
                    "of the service that is worst off: what is left of the turns that may be "
                    "handed over unfinished, by an objective of "
                    f"{error_budget.objectives(config)} over {duration(config.period)}. "
                    f"Shown from {error_budget.MIN_TURNS} turns on"
                ),
                advice="Nothing left: the objective is missed. The table below says by whom.",
                source=panels.FROM_RULES,
            )
        )
        .unit(units.PercentUnit)
        .decimals(0)
        .no_value(f"below {error_budget.MIN_TURNS} turns")
        .thresholds(panels.thresholds(*BUDGET_STEPS))
        .with_target(panels.latest(f"clamp_min(min({error_budget.budget_left(config)}), 0)"))
    )


def firing_alerts(config: RuleConfig) -> stat.Panel:
    """Show the number of firing alerts by severity."""
    panel = (
        panels.stat_panel(17, "Alerts firing")
        .description(
            description(
                question="Does anything need somebody?",
                formula=(
                    "our alerts that fire at the end of the time range, for the chosen services "
                    "and about the Collector"
                ),
                advice=(
                    "Each has a runbook. Which they are stands in the annotations of every chart."
                ),
                source=panels.FROM_PROMETHEUS,
            )
        )
        .unit(units.NoUnit)
        .decimals(0)
        .no_value("none")
        .text_mode(BigValueTextMode.VALUE_AND_NAME)
        .data_links(
            [dashboard.DashboardLink("What watches over this").url("/alerting/list?search=Endturn")]
        )
    )
    for ref_id, severity, color in (("A", "critical", "red"), ("B", "warning", "orange")):
        firing = (
            f'count(ALERTS{{alertname=~"Endturn.+", alertstate="firing", severity="{severity}", '
            f'job=~"$job|{config.collector}|", deployment_environment_name=~"$environment|", '
            'cluster=~"$cluster|"}) or vector(0)'
        )
        panel.with_target(panels.latest(firing, ref_id).legend_format(severity))
        panel.override_by_name(severity, [panels.threshold_property((None, "text"), (1, color))])
    return panel


# --- Services -------------------------------------------------------------------------------------


def services(config: RuleConfig) -> table.Panel:
    """List services, most unfinished turns first."""
    columns = [*_service_columns(config), *_worst_model_columns()]
    return table_panel(
        21, "Services, worst first", columns=columns, sort_by="Unfinished"
    ).description(
        description(
            question="Which service should be looked at first?",
            formula=(
                f"everything over the whole time range; the budget over {duration(config.period)}, "
                f"from {error_budget.MIN_TURNS} turns on; the worst model is the one that left "
                "most turns unfinished"
            ),
            advice=(
                "Responses lead to their stop reasons, unfinished turns to how they ended, the "
                "worst model to its own dashboard. Services without endturn in the process have "
                "responses, counted one by one by the Collector, but no turns: nothing tells which "
                "responses answer one question."
            ),
            source=panels.FROM_PROCESS,
        )
    )


def _service_columns(config: RuleConfig) -> list[Column]:
    turns = QUERIES.events(TURNS.count, by=SERVICE)
    unfinished = QUERIES.events(UNFINISHED.count, by=SERVICE)
    return [
        Column(title="Service", label=JOB),
        Column(title="Environment", label=ENVIRONMENT),
        Column(title="Cluster", label=CLUSTER),
        Column(
            title="Responses",
            width=105,
            query=QUERIES.events(RESPONSES.count, by=SERVICE),
            decimals=0,
            link=dashboard_link(
                "Its stop reasons", "endturn-stops", sets=links.ROW_SERVICE, keeps=links.SOURCE
            ),
        ),
        Column(
            title="Truncated",
            width=100,
            query=QUERIES.ratio(TRUNCATION, by=SERVICE),
            unit=units.PercentUnit,
            decimals=1,
            steps=TRUNCATION_STEPS,
        ),
        Column(title="Turns", width=90, query=turns, decimals=0),
        Column(
            title="Unfinished",
            width=110,
            query=or_zero(unfinished, turns),
            decimals=0,
            steps=UNFINISHED_STEPS,
            link=dashboard_link(
                "Its continuations",
                "endturn-continuations",
                sets=links.ROW_SERVICE,
                keeps=links.SOURCE,
            ),
        ),
        Column(
            title="Unfinished share",
            width=135,
            query=QUERIES.ratio(UNFINISHED_SHARE, by=SERVICE),
            unit=units.PercentUnit,
            decimals=1,
            steps=UNFINISHED_SHARE_STEPS,
        ),
        Column(
            title="Budget left",
            width=110,
            query=f"clamp_min({error_budget.budget_left(config)}, 0)",
            unit=units.PercentUnit,
            decimals=0,
            steps=BUDGET_STEPS,
        ),
    ]


def _worst_model_columns() -> list[Column]:
    """Return the model that left most turns of a service unfinished."""
    unfinished_by_model = QUERIES.events(UNFINISHED.count, by=(*SERVICE, *CALL))
    worst_model = {"provider": cell("Its provider"), "model": cell("Worst model")}
    return [
        Column(
            title="Worst model",
            label=schema.REQUEST_MODEL.label,
            link=dashboard_link(
                "This model",
                "endturn-model",
                sets=links.ROW_SERVICE | worst_model,
                keeps=links.SOURCE,
            ),
        ),
        Column(title="Its provider", width=120, label=schema.PROVIDER.label),
        Column(
            title="Unfinished of it",
            width=135,
            query=f"topk by ({', '.join(SERVICE)}) (1, {unfinished_by_model} > 0)",
            decimals=0,
        ),
    ]


# --- Answers --------------------------------------------------------------------------------------


def stop_reasons() -> timeseries.Panel:
    """Show responses over time by stop reason."""
    by_reason = QUERIES.events_per_step(RESPONSES.count, by=(schema.REASON.label,))
    panel = (
        panels.bar_chart(31, "Responses by stop reason", legend=panels.RIGHT)
        .description(
            description(
                question="Why do models stop?",
                formula="responses in each step (a minute or more), by normalised reason",
                advice=(
                    "Green and blue is a model that finished or wants a tool. Orange and red is an "
                    "answer that was cut off."
                ),
                source=panels.FROM_RESPONSES,
            )
        )
        .decimals(0)
        .axis_label("responses per step")
        .with_target(
            panels.over_time(by_reason).legend_format(panels.series_name(schema.REASON.label))
        )
    )
    return panels.paint(panel, palettes.STOP_REASONS)


def turn_duration() -> timeseries.Panel:
    """Compare the duration of continued turns with that of plain turns."""
    panel = (
        panels.line_chart(32, "Turn duration, continued and plain", legend=panels.RIGHT)
        .description(
            description(
                question="How long do people wait, and how much longer for continued turns?",
                formula=(
                    "from a turn's first call to the end of its last, the time in which tools run "
                    "included: quantiles over the chosen window, interpolated within the "
                    "histogram's buckets"
                ),
                advice=(
                    "The gap between the two is what truncation costs in time; a larger max_tokens "
                    "closes it. Where agents run tools, turns of more calls take longer, and are "
                    "cut off more often."
                ),
                source=panels.FROM_TURNS,
            )
        )
        .unit(units.Seconds)
        .axis_label("seconds")
        .override_by_name("continued, p50", [panels.dashed()])
        .override_by_name("plain, p50", [panels.dashed()])
    )
    lines = (
        ("A", "continued", 0.5, CONTINUED_COLOR),
        ("B", "continued", 0.95, CONTINUED_COLOR),
        ("C", "plain", 0.5, PLAIN_COLOR),
        ("D", "plain", 0.95, PLAIN_COLOR),
    )
    for ref_id, kind, quantile, color in lines:
        continued = has_value(schema.CONTINUED, "true" if kind == "continued" else "false")
        name = f"{kind}, p{quantile * 100:g}"
        query = QUERIES.quantile(quantile, schema.TURN_DURATION, continued, over=Window.CHOSEN)
        target = panels.over_time(query, ref_id).legend_format(name)
        panel.with_target(target.exemplar(True) if name == "continued, p95" else target)
        panel.override_by_name(name, [panels.fixed_color(color)])
    return panel


# --- Models ---------------------------------------------------------------------------------------


def models() -> table.Panel:
    """List models, most responses first."""
    return table_panel(
        41, "Models, most used first", columns=_model_columns(), sort_by="Responses"
    ).description(
        description(
            question="How do the models compare?",
            formula=(
                "everything over the whole time range; durations are quantiles of single calls, "
                "tokens go in and come out"
            ),
            advice=(
                "A model that is cut off more often than others at the same work has too small a "
                "limit: its name leads to what would do."
            ),
            source=panels.FROM_CALLS,
        )
    )


def _model_columns() -> list[Column]:
    turns = QUERIES.events(TURNS.count, by=CALL)
    unfinished = QUERIES.events(UNFINISHED.count, by=CALL)
    calls, failed_calls = (
        QUERIES.rate(
            schema.OPERATION_DURATION, HistogramPart.COUNT, *where, by=CALL, over=Window.DASHBOARD
        )
        for where in ((), (is_set(schema.ERROR_TYPE),))
    )
    tokens = QUERIES.rate(schema.TOKEN_USAGE, HistogramPart.SUM, by=CALL, over=Window.DASHBOARD)
    return [
        Column(title="Provider", label=schema.PROVIDER.label),
        Column(
            title="Model",
            label=schema.REQUEST_MODEL.label,
            link=dashboard_link(
                "This model", "endturn-model", sets=links.ROW_MODEL, keeps=links.SERVICE
            ),
        ),
        Column(title="Responses", query=QUERIES.events(RESPONSES.count, by=CALL), decimals=0),
        Column(
            title="Truncated",
            query=QUERIES.ratio(TRUNCATION, by=CALL),
            unit=units.PercentUnit,
            decimals=1,
            steps=TRUNCATION_STEPS,
        ),
        Column(
            title="Unfinished",
            query=or_zero(unfinished, turns),
            decimals=0,
            steps=UNFINISHED_STEPS,
        ),
        _seconds_column("Call p50", schema.OPERATION_DURATION, quantile=0.5),
        _seconds_column("Call p95", schema.OPERATION_DURATION, quantile=0.95),
        _seconds_column("First chunk p95", schema.FIRST_CHUNK, quantile=0.95),
        Column(title="Tokens", query=f"$__range_s * {tokens}", unit=units.Short, decimals=1),
        Column(
            title="Failed calls",
            query=f"{failed_calls} / {calls}",
            unit=units.PercentUnit,
            decimals=1,
            steps=TRUNCATION_STEPS,
        ),
    ]


def _seconds_column(title: str, metric: Metric, *, quantile: float) -> Column:
    return Column(
        title=title,
        query=QUERIES.rate_quantile(quantile, metric, by=CALL),
        unit=units.Seconds,
        decimals=1,
    )
