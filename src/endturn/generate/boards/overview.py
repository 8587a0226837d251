"""The dashboard *Overview*: is anything truncated and left unfinished, and where?"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard, stat, table, timeseries
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import BigValueTextMode
from grafana_foundation_sdk.models.dashboard import GridPos

from endturn.generate.boards import error_budget, frame, limits, links, palettes, panels
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
    bad_or_enough,
    duration,
    has_value,
    is_set,
    or_zero,
    variable_matchers,
)
from endturn.telemetry import ENOUGH_EVENTS, INDICATORS, schema

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
CONTINUED_COLOR: Final = "orange"
PLAIN_COLOR: Final = "#8ab8ff"


def overview(config: RuleConfig) -> dashboard.Dashboard:
    """Build the dashboard for a configuration of objectives and addresses."""
    board = frame.new_dashboard(
        uid="endturn-overview",
        title="Overview",
        description="Did the model end its turn, or was it cut off? What needs attention?",
        config=config,
    ).with_variable(frame.window_variable())

    board.with_row(dashboard.Row("State").id(10))
    board.with_panel(unfinished_share().span(6).height(8))
    board.with_panel(unfinished_share_trend().span(10).height(8))
    # Two by two, so that titles fit on a laptop: the SDK's own layout supports only whole rows.
    board.with_panel(truncation_rate().grid_pos(GridPos(h=4, w=4, x=16, y=1)))
    board.with_panel(unfinished_turns().grid_pos(GridPos(h=4, w=4, x=20, y=1)))
    board.with_panel(worst_error_budget(config).grid_pos(GridPos(h=4, w=4, x=16, y=5)))
    board.with_panel(firing_alerts(config).grid_pos(GridPos(h=4, w=4, x=20, y=5)))

    board.with_row(dashboard.Row("Services").id(20).grid_pos(GridPos(h=1, w=24, x=0, y=9)))
    board.with_panel(services(config).span(24).height(8))

    board.with_row(dashboard.Row("Answers").id(30))
    board.with_panel(stop_reasons().span(14).height(10))
    board.with_panel(turn_duration().span(10).height(10))

    board.with_row(dashboard.Row("Models").id(40))
    board.with_panel(models().span(24).height(8))
    board.with_panel(limits.by_service_and_model().span(24).height(9))
    return board


# --- State ----------------------------------------------------------------------------------------


def unfinished_share() -> stat.Panel:
    """Show the share of truncated turns that stayed unfinished."""
    return panels.verdict_stat(
        11,
        UNFINISHED_SHARE,
        title="Not continued",
        events="truncated turns",
        short="truncated",
    ).with_target(panels.latest(QUERIES.verdict(UNFINISHED_SHARE, at_least=ENOUGH_EVENTS)))


def unfinished_share_trend() -> timeseries.Panel:
    """Show the same share over time."""
    trend = QUERIES.ratio_trend(UNFINISHED_SHARE, over=Window.CHOSEN)
    return (
        panels.indicator_lines(
            18,
            UNFINISHED_SHARE,
            title="Not continued, over time",
            scope="over the chosen window",
            legend=None,
        )
        .no_value("no truncated turns")
        .color_scheme(panels.shades("orange"))
        .with_target(panels.over_time(trend).legend_format("all services"))
    )


def truncation_rate() -> stat.Panel:
    """Show the share of responses that were truncated."""
    return panels.verdict_stat(
        12, TRUNCATION, title="Truncated", events="responses", short="calls"
    ).with_target(panels.latest(QUERIES.verdict(TRUNCATION, at_least=ENOUGH_EVENTS)))


def unfinished_turns() -> stat.Panel:
    """Show the number of unfinished turns."""
    turns, unfinished = QUERIES.events(TURNS.count), QUERIES.events(UNFINISHED.count)
    number = bad_or_enough(
        or_zero(unfinished, turns), part=unfinished, total=turns, at_least=ENOUGH_EVENTS
    )
    return panels.verdict_stat(13, UNFINISHED, title="Unfinished", events="turns").with_target(
        panels.latest(number)
    )


def worst_error_budget(config: RuleConfig) -> stat.Panel:
    """Show the error budget of the service that has the least left."""
    return (
        panels.stat_panel(14, "Budget left")
        .description(
            description(
                question="Do the services meet their objective?",
                formula=(
                    "the error budget that the worst service has left, for an objective of "
                    f"{error_budget.objectives(config)} over {duration(config.period)}. "
                    f"Shown from {error_budget.MIN_TURNS} turns"
                ),
                advice="At 0% the objective is missed. The table below names the service.",
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
                question="Which alerts need attention?",
                formula=(
                    "endturn alerts that fire at the end of the time range, of the selected "
                    "services and of the Collector"
                ),
                advice="Click for the list. Each alert has a runbook; charts mark when it fired.",
                source=panels.FROM_PROMETHEUS,
            )
        )
        .unit(units.NoUnit)
        .decimals(0)
        .no_value("none")
        .text_mode(BigValueTextMode.VALUE_AND_NAME)
        .data_links(
            [dashboard.DashboardLink("The alert rules").url("/alerting/list?search=Endturn")]
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
            question="Which service needs attention first?",
            formula=(
                "one row per service, environment and cluster, over the time range. The budget is "
                f"that of {duration(config.period)}, from {error_budget.MIN_TURNS} turns. The "
                "worst model has most unfinished turns"
            ),
            advice=(
                "Click the responses for their stop reasons, the unfinished turns for how they "
                "ended, the model for its limits. Services without endturn in the process have "
                "responses, but no turns. A process that restarts under the same "
                "service.instance.id adds some 7% to the turns of its window."
            ),
            source=panels.FROM_PROCESS,
        )
    )


def _service_columns(config: RuleConfig) -> list[Column]:
    turns = QUERIES.events(TURNS.count, by=SERVICE)
    unfinished = QUERIES.events(UNFINISHED.count, by=SERVICE)
    return [
        Column(title="Service", label=JOB),
        Column(title="Environment", label=ENVIRONMENT, width=120),
        Column(title="Cluster", label=CLUSTER, is_hidden=True),
        Column(
            title="Responses",
            width=105,
            query=QUERIES.events(RESPONSES.count, by=SERVICE),
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
            steps=panels.TRUNCATION_STEPS,
        ),
        Column(
            title="Unfinished",
            width=110,
            query=or_zero(unfinished, turns),
            steps=panels.UNFINISHED_STEPS,
            link=dashboard_link(
                "Its continuations",
                "endturn-continuations",
                sets=links.ROW_SERVICE,
                keeps=links.SOURCE,
            ),
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
    """Return the columns for the model with the most unfinished turns of a service."""
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
        Column(title="Its provider", label=schema.PROVIDER.label, is_hidden=True),
        Column(
            title="Unfinished of it",
            query=f"topk by ({', '.join(SERVICE)}) (1, {unfinished_by_model} > 0)",
            is_hidden=True,
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
                formula="responses in each step (a minute or more), by normalised stop reason",
                advice=(
                    "Green and blue: the model finished, or calls a tool. Orange and red: the "
                    "response was truncated."
                ),
                source=panels.FROM_RESPONSES,
            )
        )
        .axis_label("responses per step")
        .with_target(
            panels.over_time(by_reason).legend_format(panels.series_name(schema.REASON.label))
        )
    )
    return panels.paint(panel, palettes.STOP_REASONS)


def turn_duration() -> timeseries.Panel:
    """Compare the duration of continued turns with that of plain turns."""
    panel = (
        panels.line_chart(32, "Turn duration, continued and plain", legend=panels.BOTTOM)
        .description(
            description(
                question="How much longer do users wait for continued turns?",
                formula=(
                    "time from a turn's first call to the end of its last, tools included: "
                    "quantiles over the chosen window, interpolated within the histogram's buckets"
                ),
                advice=(
                    "The gap is the time that truncation costs; a larger max_tokens closes it. "
                    "With tools, turns of more calls take longer and are truncated more often."
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
                "over the time range, by provider and model. Durations are quantiles of single "
                "calls; tokens are input and output"
            ),
            advice=(
                "A model that is truncated more often than others at the same work has too low a "
                "limit. Click its name for the limit that it needs."
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
        Column(title="Provider", label=schema.PROVIDER.label, width=110),
        Column(
            title="Model",
            label=schema.REQUEST_MODEL.label,
            link=dashboard_link(
                "This model", "endturn-model", sets=links.ROW_MODEL, keeps=links.SERVICE
            ),
        ),
        Column(title="Responses", query=QUERIES.events(RESPONSES.count, by=CALL), width=105),
        Column(
            title="Truncated",
            query=QUERIES.ratio(TRUNCATION, by=CALL),
            unit=units.PercentUnit,
            decimals=1,
            width=100,
            steps=panels.TRUNCATION_STEPS,
        ),
        Column(
            title="Unfinished",
            query=or_zero(unfinished, turns),
            width=110,
            steps=panels.UNFINISHED_STEPS,
        ),
        Column(
            title="Call p95",
            query=QUERIES.rate_quantile(0.95, schema.OPERATION_DURATION, by=CALL),
            unit=units.Seconds,
            decimals=1,
            width=100,
        ),
        Column(title="Tokens", query=f"$__range_s * {tokens}", width=95),
        Column(
            title="Failed calls",
            query=f"{failed_calls} / {calls}",
            unit=units.PercentUnit,
            decimals=1,
            width=110,
            steps=panels.TRUNCATION_STEPS,
        ),
    ]
