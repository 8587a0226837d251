"""The dashboard *Pipeline*: is telemetry arriving, and is anything lost on the way?"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard, table, timeseries
from grafana_foundation_sdk.models import units

from endturn.generate import external_metrics as external
from endturn.generate.alerts.collector_series import is_up, sdk_drops
from endturn.generate.boards import collector_panels, frame, panels
from endturn.generate.boards.palettes import PLAIN
from endturn.generate.boards.panels import Step, description, series_name
from endturn.generate.boards.tables import Column, table_panel
from endturn.generate.config import RuleConfig
from endturn.generate.queries import (
    ALL,
    CLUSTER,
    ENVIRONMENT,
    INSTANCE,
    JOB,
    SERVICE,
    Matcher,
    Queries,
    Window,
    by_clause,
    losses,
    selector,
    sum_by,
    variable_matchers,
)
from endturn.telemetry import INDICATORS, Attribute, Indicator, schema

VARIABLES: Final = ("job", "environment", "cluster")
MATCHERS: Final = variable_matchers(VARIABLES)
QUERIES: Final = Queries(MATCHERS)
SILENCE_STEPS: Final[tuple[Step, ...]] = ((None, "text"), (180, "orange"), (600, "red"))


def pipeline(config: RuleConfig) -> dashboard.Dashboard:
    """Build the dashboard for a configuration of addresses."""
    board = frame.new_dashboard(
        uid="endturn-pipeline",
        title="Pipeline",
        description="Is telemetry arriving, and is anything lost on the way?",
        config=config,
        variables=VARIABLES,
    )

    board.with_row(dashboard.Row("Agents").id(10))
    board.with_panel(silent_services().span(14).height(9))
    board.with_panel(dropped_by_sdks(config).span(10).height(9))
    board.with_panel(
        own_failures(
            12,
            INDICATORS["capped"],
            schema.CAPPED,
            title="Labels capped, by label",
            noun="measurements",
        )
        .span(12)
        .height(5)
    )
    board.with_panel(
        own_failures(
            13,
            INDICATORS["recording_failures"],
            schema.LISTENER,
            title="Recording failures, by listener",
            noun="records",
        )
        .span(12)
        .height(5)
    )

    board.with_row(dashboard.Row("Collector").id(20))
    board.with_panel(collector_panels.collectors(config).span(4).height(9))
    board.with_panel(collector_panels.accepted().span(10).height(9))
    board.with_panel(collector_panels.delivered().span(10).height(9))
    board.with_panel(collector_panels.lost_by_collectors().span(24).height(6))
    board.with_panel(collector_panels.queues().span(12).height(8))
    board.with_panel(collector_panels.memory().span(12).height(8))
    board.with_panel(collector_panels.undecided_traces().span(12).height(6))
    board.with_panel(collector_panels.dropped_delta_points().span(12).height(6))

    board.with_row(dashboard.Row("Prometheus").id(30))
    board.with_panel(rule_evaluations().span(12).height(6))
    board.with_panel(series_in_prometheus().span(12).height(6))

    # Collapsed: few installations have Kafka.
    board.with_row(
        dashboard.Row("A fleet's gateways, behind Kafka")
        .id(40)
        .with_panel(collector_panels.kafka_lag().span(8).height(8))
        .with_panel(collector_panels.kafka_unread().span(8).height(8))
        .with_panel(collector_panels.traces_lost_with_gateways().span(8).height(8))
    )
    return board


# --- Agents ---------------------------------------------------------------------------------------


def silent_services() -> table.Panel:
    """List services, the longest silent first."""
    by = by_clause(SERVICE)
    responses = selector(schema.RESPONSES.prometheus, MATCHERS)
    turns = selector(schema.TURNS.prometheus, MATCHERS)
    processes = f"count{by_clause((*SERVICE, INSTANCE))}(last_over_time({turns}[15m]))"
    columns = [
        Column(title="Service", label=JOB),
        Column(title="Environment", label=ENVIRONMENT, width=110),
        Column(title="Cluster", label=CLUSTER, is_hidden=True),
        Column(
            title="Silent for",
            query=(
                f"time() - max{by}(\n"
                f"  timestamp({responses})\n"
                f"  or max_over_time(timestamp({responses})[1d:5m])\n"
                ")"
            ),
            unit=units.Seconds,
            width=100,
            steps=SILENCE_STEPS,
        ),
        Column(title="Processes", width=95, query=f"count{by}({processes})"),
        Column(title="Series", width=75, query=f"count{by}(last_over_time({responses}[1d]))"),
    ]
    return table_panel(
        11, "Services, the longest silent first", columns=columns, sort_by="Silent for"
    ).description(
        description(
            question="Which services have stopped reporting?",
            formula=(
                "services with counters in the last day: time since their last sample, number of "
                "processes, number of series of responses"
            ),
            advice=(
                "Silent for longer than the export interval: the process ended, or its telemetry "
                "does not arrive. No processes: the Collector counts the responses."
            ),
            source=panels.FROM_PROCESS,
        )
    )


def dropped_by_sdks(config: RuleConfig) -> timeseries.Panel:
    """Show what agents lose before it is sent."""
    by = (JOB, ENVIRONMENT, external.ERROR_TYPE)
    drops = sdk_drops(MATCHERS)
    dropped = losses(drops, by=by, over=Window.STEP, observed=is_up(config.collector), on=ALL)
    total = f"count{by_clause(by)}(last_over_time({drops}[{Window.DASHBOARD}] @ end()))"
    legend = f"{series_name(JOB, ENVIRONMENT, separator=' ')}, {series_name(external.ERROR_TYPE)}"
    return (
        panels.bar_chart(14, "Dropped by SDKs", legend=panels.BOTTOM)
        .description(
            description(
                question="Which spans and events do agents lose before they are sent?",
                formula=(
                    "spans and events that an SDK dropped because its queue was full, or because "
                    "the Collector refused them or did not answer for two minutes, in each step (a "
                    "minute or more), by service, environment and cause"
                ),
                advice=(
                    "`queue_full`: raise OTEL_BSP_MAX_QUEUE_SIZE and OTEL_BLRP_MAX_QUEUE_SIZE, or "
                    "run a Collector beside the agent. A number is the HTTP status of a refusal: "
                    "the service's log says what to do. `ConnectionError`: nobody answered for two "
                    "minutes; counts are complete again when the Collector is back, these records "
                    "are lost."
                ),
                source=panels.FROM_SDK,
            )
        )
        .axis_label("records per step")
        .no_value("no drops reported")
        .color_scheme(panels.shades("red"))
        .with_target(panels.over_time(f"{dropped}\nor 0 * {total}").legend_format(legend))
    )


def own_failures(
    panel_id: int, indicator: Indicator, attribute: Attribute, *, title: str, noun: str
) -> timeseries.Panel:
    """Show failures of endturn itself over time."""
    return (
        panels.indicator_bars(panel_id, indicator, title=title, noun=noun, legend=panels.RIGHT)
        .color_scheme(panels.shades("red"))
        .with_target(
            panels.over_time(
                QUERIES.events_per_step(indicator.count, by=(attribute.label,))
            ).legend_format(series_name(attribute.label))
        )
    )


# --- Prometheus -----------------------------------------------------------------------------------


def rule_evaluations() -> timeseries.Panel:
    """Show evaluations of our rules that were missed or failed."""
    ours = Matcher(external.RULE_GROUP, "=~", ".*;endturn.*")
    panel = (
        panels.bar_chart(31, "Rule evaluations missed or failed", legend=panels.RIGHT)
        .description(
            description(
                question="Does Prometheus evaluate the rules?",
                formula=(
                    "missed and failed evaluations of endturn's rule groups, in each step (a "
                    "minute or more)"
                ),
                advice=(
                    "Prometheus is overloaded, or was restarted. Recorded counts lack the events "
                    "of such a minute; shares stay right."
                ),
                source=panels.FROM_PROMETHEUS,
            )
        )
        .axis_label("evaluations per step")
        .no_value("none")
    )
    panels.lines(
        panel,
        {
            name: f"round(sum(increase({metric.select(ours)}[{Window.RATE}])))"
            for name, metric in (
                ("missed", external.RULES_MISSED),
                ("failed", external.RULES_FAILED),
            )
        },
    )
    return panels.paint(panel, {"missed": "orange", "failed": "red"})


def series_in_prometheus() -> timeseries.Panel:
    """Show how many series Prometheus holds."""
    return (
        panels.line_chart(33, "Series in Prometheus", legend=panels.BOTTOM)
        .description(
            description(
                question="Does the number of series grow without end?",
                formula=(
                    "all series in the head block of each Prometheus, or of each receiver of a "
                    "fleet"
                ),
                advice=(
                    "It grows with each restart: labels contain process ids. Of endturn's labels, "
                    "only `instance` does."
                ),
                source=panels.FROM_PROMETHEUS,
            )
        )
        .unit(panels.COUNT)
        .axis_label("series")
        .color_scheme(panels.shades(PLAIN))
        .with_target(
            panels.over_time(sum_by((INSTANCE,), external.HEAD_SERIES.name)).legend_format(
                series_name(INSTANCE)
            )
        )
    )
