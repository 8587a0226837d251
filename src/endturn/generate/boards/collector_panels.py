"""Panels of the dashboard *Pipeline* about Collectors, and about a fleet's gateways."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import BigValueTextMode

from endturn.generate import external_metrics as external
from endturn.generate.boards import panels
from endturn.generate.boards.palettes import PLAIN, Palette
from endturn.generate.boards.panels import Step, description, series_name
from endturn.generate.boards.tables import Column, table_panel
from endturn.generate.config import RuleConfig
from endturn.generate.queries import (
    ALL,
    INSTANCE,
    JOB,
    Labels,
    Matcher,
    Window,
    by_clause,
    selector,
    sum_by,
)

LOSS_STEPS: Final[tuple[Step, ...]] = ((None, "text"), (1, "orange"), (100, "red"))
SIGNALS: Final[Palette] = {
    "/spans$/": "purple",
    "/log records$/": "green",
    "/metric points$/": "blue",
}
"""Regular expression of the series' names -> color."""
NOT_SCRAPED: Final = "no Collector is scraped"
LOSSES: Final = external.ALL_LOSSES.name_matcher
DELTA_POINTS: Final = external.family(external.DELTA_POINTS).name_matcher


# --- Collector ------------------------------------------------------------------------------------


def collectors(config: RuleConfig) -> stat.Panel:
    """Show the number of Collectors that answer, and of those that do not."""
    up = external.UP.select(Matcher(JOB, "=~", config.collector))
    silent = f"count(last_over_time({up}[1h])) - (sum({up}) or vector(0))"
    return (
        panels.stat_panel(26, "Collectors")
        .description(
            description(
                question="Do all Collectors answer?",
                formula="Collectors that Prometheus scraped in the last hour",
                advice=(
                    "A Collector that was removed counts as silent for an hour. See the runbook of "
                    "EndturnCollectorDown."
                ),
                source=panels.FROM_COLLECTOR,
            )
        )
        .unit(units.NoUnit)
        .decimals(0)
        .no_value("none is scraped")
        .text_mode(BigValueTextMode.VALUE_AND_NAME)
        .with_target(panels.latest(f"sum({up})", "A").legend_format("answering"))
        .with_target(panels.latest(silent, "B").legend_format("silent"))
        .override_by_name("silent", [panels.threshold_property((None, "text"), (1, "red"))])
    )


def _items_per_minute(panel_id: int, title: str) -> timeseries.Panel:
    panel = (
        panels.line_chart(panel_id, title, legend=panels.BOTTOM)
        .unit(panels.COUNT)
        .axis_label("items per minute")
        .no_value(NOT_SCRAPED)
    )
    for pattern, color in SIGNALS.items():
        panel.override_by_regexp(pattern, [panels.fixed_color(color)])
    return panels.logarithmic(panel)


def _per_minute(metric: external.ExternalMetric, by: Labels) -> str:
    return f"60 * {sum_by(by, metric.over('rate', Window.RATE))}"


def accepted() -> timeseries.Panel:
    """Show how much comes in."""
    panel = _items_per_minute(21, "Accepted per minute").description(
        description(
            question="How much telemetry do Collectors receive?",
            formula="items that receivers accepted, by signal, on a logarithmic scale",
            advice="None, although agents run: they export elsewhere, or are refused.",
            source=panels.FROM_COLLECTOR,
        )
    )
    return panels.lines(
        panel,
        {signal: _per_minute(metric, ALL) for signal, metric in external.ACCEPTED_ITEMS.items()},
    )


def delivered() -> timeseries.Panel:
    """Show what every back end gets."""
    panel = _items_per_minute(22, "Delivered per minute").description(
        description(
            question="Does every back end receive telemetry?",
            formula="items that each exporter sent, on a logarithmic scale",
            advice=(
                "Fewer than are accepted is no loss by itself: gateways sample traces, and content "
                "is dropped. The table below shows losses."
            ),
            source=panels.FROM_COLLECTOR,
        )
    )
    by = (external.EXPORTER,)
    return panels.lines(
        panel,
        {
            f"{series_name(*by)} {signal}": _per_minute(metric, by)
            for signal, metric in external.SENT_ITEMS.items()
        },
    )


def lost_by_collectors() -> table.Panel:
    """List what Collectors gave up or refused."""
    by = ("__name__", INSTANCE, external.EXPORTER, external.RECEIVER)
    limited = selector("", (DELTA_POINTS, Matcher(external.ERROR, "=", "limit")))
    counters = f"\n  {selector('', (LOSSES,))} or {limited}\n"
    columns = [
        Column(title="Counter", label="__name__", width=330),
        Column(title="Collector", label=INSTANCE),
        Column(title="Exporter", label=external.EXPORTER),
        Column(title="Receiver", label=external.RECEIVER),
        Column(
            title="Records",
            query=f"{sum_by(by, counters)} > 0",
            width=100,
            steps=LOSS_STEPS,
        ),
    ]
    return (
        table_panel(24, "Lost or refused by the Collector", columns=columns, sort_by="Records")
        .description(
            description(
                question="Which records do Collectors lose or refuse?",
                formula=(
                    "records since each Collector started: `send_failed` was rejected by a back "
                    "end, `enqueue_failed` did not fit into a queue, `refused` was returned to the "
                    "sender, `deltatocumulative` exceeded the number of counters"
                ),
                advice=(
                    "`send_failed`: repair the back end. `enqueue_failed`: it is too slow, or the "
                    "queue too small. See the runbook of EndturnCollectorLosing."
                ),
                source=panels.FROM_COLLECTOR,
            )
        )
        .no_value("no losses reported")
    )


def queues() -> timeseries.Panel:
    """Show how full the Collector's queues are."""
    by = (external.EXPORTER, external.DATA_TYPE)
    fill = f"{external.QUEUE_SIZE.name} / ({external.QUEUE_CAPACITY.name} > 0)"
    panel = (
        panels.line_chart(23, "Queues", legend=panels.BOTTOM)
        .description(
            description(
                question="How full are the Collector's queues?",
                formula=(
                    "queue size ÷ capacity, by exporter and kind of data, of the Collector with "
                    "the fullest queue"
                ),
                advice=(
                    "A queue fills: the back end is too slow. EndturnQueueFilling fires at 50%, "
                    "EndturnQueueFull at 90%. At 100% senders are refused, or data are lost."
                ),
                source=panels.FROM_COLLECTOR,
            )
        )
        .unit(units.PercentUnit)
        .no_value(NOT_SCRAPED)
        .color_scheme(panels.shades(PLAIN))
        .with_target(
            panels.over_time(f"max{by_clause(by)}({fill})").legend_format(
                series_name(*by, separator=", ")
            )
        )
    )
    return panels.threshold_lines(panel, 0.5, 0.9).axis_soft_max(1)


def memory() -> timeseries.Panel:
    """Show the memory of each Collector."""
    return (
        panels.line_chart(25, "Collector memory", legend=panels.BOTTOM)
        .description(
            description(
                question="Do Collectors approach their memory limit?",
                formula="resident memory of each Collector",
                advice=("Near its limit a Collector refuses data; senders retry for two minutes."),
                source=panels.FROM_COLLECTOR,
            )
        )
        .unit(units.BytesIEC)
        .no_value(NOT_SCRAPED)
        .color_scheme(panels.shades(PLAIN))
        .with_target(
            panels.over_time(f"max by ({INSTANCE}) ({external.MEMORY.select()})").legend_format(
                series_name(INSTANCE)
            )
        )
    )


def undecided_traces() -> timeseries.Panel:
    """Show traces that a gateway dropped before it decided on them."""
    removed, decided = (
        sum_by((INSTANCE,), metric.select())
        for metric in (external.TRACES_REMOVED, external.TRACES_DECIDED)
    )
    return (
        panels.line_chart(27, "Traces without a decision", legend=panels.BOTTOM)
        .description(
            description(
                question="Does a gateway drop traces before it decides on them?",
                formula=(
                    "traces that left the gateway's memory minus those that it decided on, since "
                    "it started"
                ),
                advice=(
                    "Raise ENDTURN_SAMPLING_TRACES, and the memory with it. A Collector that does "
                    "not sample has no value."
                ),
                source=panels.FROM_COLLECTOR,
            )
        )
        .unit(panels.COUNT)
        .color_scheme(panels.shades(PLAIN))
        .axis_label("traces")
        .no_value("nothing is sampled")
        .with_target(
            panels.over_time(f"{removed}\n- {decided}").legend_format(series_name(INSTANCE))
        )
    )


def dropped_delta_points() -> timeseries.Panel:
    """Show points of delta counters that could not be added up."""
    is_dropped = Matcher(external.ERROR, "!=", "")
    dropped = external.DELTA_POINTS.over("rate", Window.RATE, is_dropped)
    return (
        panels.line_chart(28, "Delta points dropped", legend=panels.BOTTOM)
        .description(
            description(
                question="Are counters lost because a sender exports deltas?",
                formula="delta points that could not be added up, per second, by cause",
                advice=(
                    "`limit`: too many series, raise max_streams. Other causes: make the sender "
                    "export cumulative values."
                ),
                source=panels.FROM_COLLECTOR,
            )
        )
        .unit(panels.COUNT)
        .color_scheme(panels.shades(PLAIN))
        .axis_label("points per second")
        .no_value("none dropped")
        .with_target(
            panels.over_time(sum_by((external.ERROR,), dropped)).legend_format(
                series_name(external.ERROR)
            )
        )
    )


# --- A fleet's gateways, behind Kafka -------------------------------------------------------------


def kafka_lag() -> timeseries.Panel:
    """Show how much of each topic the gateways have not read yet."""
    return (
        panels.line_chart(41, "Behind in Kafka", legend=panels.BOTTOM)
        .description(
            description(
                question="Do the gateways keep up?",
                formula="records of each topic that the gateways have not read, as last reported",
                advice=(
                    "It grows: a gateway is slow, or its queue to the back end is full. Kafka's "
                    "retention deletes records that nobody read. A gateway that is down reports "
                    "nothing: see *Collectors*."
                ),
                source=panels.FROM_COLLECTOR,
            )
        )
        .unit(panels.COUNT)
        .color_scheme(panels.shades(PLAIN))
        .axis_label("records")
        .no_value("nothing is read from Kafka")
        .with_target(
            panels.over_time(sum_by((external.TOPIC,), external.KAFKA_LAG.select())).legend_format(
                series_name(external.TOPIC)
            )
        )
    )


def kafka_unread() -> stat.Panel:
    """Show spans that were sent to Kafka and not read."""
    panel = (
        panels.stat_panel(42, "Spans in Kafka that were not read")
        .description(
            description(
                question="Did Kafka delete records that nobody had read?",
                formula=(
                    "spans that Collectors sent to Kafka minus spans that gateways read, in the "
                    "time range, by topic. The last seconds of a killed Collector are not counted; "
                    "below zero, spans were read twice"
                ),
                advice=(
                    "Up to *Behind in Kafka* they are still to be read. More: Kafka's retention "
                    "deleted them (`retention.bytes` applies to each partition). Truncated "
                    "responses have a topic of their own; metrics are complete."
                ),
                source=panels.FROM_COLLECTOR,
            )
        )
        .unit(panels.COUNT)
        .no_value("nothing is sent to Kafka")
        .text_mode(BigValueTextMode.VALUE_AND_NAME)
    )
    for ref_id, topic, name in (("A", "turns", "turns"), ("B", "truncated", "cut off")):
        exporter, receiver = (
            Matcher(label, "=", f"kafka/{topic}")
            for label in (external.EXPORTER, external.RECEIVER)
        )
        sent_increase = external.SENT_ITEMS["spans"].over("increase", Window.DASHBOARD, exporter)
        read_increase = external.ACCEPTED_ITEMS["spans"].over(
            "increase", Window.DASHBOARD, receiver
        )
        panel.with_target(
            panels.latest(
                f"sum({sent_increase}) - (sum({read_increase}) or vector(0))", ref_id
            ).legend_format(name)
        )
    return panel


def traces_lost_with_gateways() -> timeseries.Panel:
    """Show traces that a gateway had in memory when it was killed."""
    in_memory = external.TRACES_IN_MEMORY.over("last_over_time", "1d", offset="1m")
    uptime_before = external.UPTIME.over("last_over_time", "1d", offset="1m")
    undecided_traces = (
        "sum by (instance) (sum_over_time((\n"
        f"  {in_memory}\n"
        "  and on (job, instance, cluster)\n"
        f"    ({external.UPTIME.select()}) < ({uptime_before})\n"
        f")[{Window.STEP}:1m]))"
    )
    return (
        panels.bar_chart(43, "Traces that ended with a gateway", legend=panels.BOTTOM)
        .description(
            description(
                question="How many traces did a killed gateway lose?",
                formula=(
                    "undecided traces in a gateway's memory at its last scrape, if it is back "
                    "within a day. A gateway that is stopped, not killed, decides on them first"
                ),
                advice=(
                    "Spans of truncated responses, events and metrics are not lost. Killed for "
                    "lack of memory: raise ENDTURN_COLLECTOR_MEMORY_MIB, or keep fewer traces with "
                    "ENDTURN_SAMPLING_WAIT."
                ),
                source=panels.FROM_COLLECTOR,
            )
        )
        .axis_label("traces per step")
        .no_value("none")
        .color_scheme(panels.shades("red"))
        .with_target(panels.over_time(undecided_traces).legend_format(series_name(INSTANCE)))
    )
