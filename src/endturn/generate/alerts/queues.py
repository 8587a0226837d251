"""Alerts about the Collectors' queues."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from endturn.generate import external_metrics as external
from endturn.generate.alerts.collector_series import (
    COLLECTOR_METRICS,
    collector_counters,
    collector_gauge,
)
from endturn.generate.alerts.conditions import Condition, PrometheusOnly
from endturn.generate.alerts.model import (
    PERCENT,
    Alert,
    AlertSettings,
    Component,
    Firing,
    Quiet,
    Runbook,
    SampleSeries,
    Severity,
    collector_series,
    has_collector,
    label_value,
)
from endturn.generate.queries import CLUSTER


def _queue_full(settings: AlertSettings) -> Condition:
    return PrometheusOnly(f"{_fullness(settings.collector)} > 0.9", COLLECTOR_METRICS)


def _queue_filling(settings: AlertSettings) -> Condition:
    return PrometheusOnly(f"{_fullness(settings.collector)} > 0.5", COLLECTOR_METRICS)


def _fullness(collector: str) -> str:
    size = collector_gauge(external.QUEUE_SIZE, collector)
    capacity = collector_gauge(external.QUEUE_CAPACITY, collector)
    return f"max by (job, instance, cluster, exporter) (\n  {size} / ({capacity} > 0)\n)"


def _export_stalled(settings: AlertSettings) -> Condition:
    labels = "job, instance, cluster, exporter, data_type"
    size = collector_gauge(external.QUEUE_SIZE, settings.collector)
    now, before = (_sent_counters(settings.collector, offset) for offset in ("", " offset 10m"))
    return PrometheusOnly(
        f"max by ({labels}) (min_over_time({size}[10m]) and min_over_time({size}[2m])) > 0\n"
        f"unless on ({labels}) (\n"
        f"  sum by ({labels}) ({now})\n"
        f"  != (sum by ({labels}) ({before})\n"
        f"    or 0 * sum by ({labels}) ({now}))\n"
        ")",
        COLLECTOR_METRICS,
    )


def _sent_counters(collector: str, offset: str) -> str:
    """Return the counters of sent items, with their signal in the label `data_type`."""
    counters = collector_counters(external.ALL_SENT, collector)
    pattern = ".+_(log|metric)_[a-z]+(s)(_total)?"
    return (
        f'label_replace(label_replace({counters}{offset}, "data_type", "traces", "", ""), '
        f'"data_type", "$1$2", "__name__", "{pattern}")'
    )


def _size(values: str, exporter: str = "kafka/turns", data_type: str = "traces") -> SampleSeries:
    name = "otelcol_exporter_queue_size"
    return collector_series(
        name, values, instance="one:8888", exporter=exporter, data_type=data_type
    )


def _capacity(values: str) -> SampleSeries:
    return collector_series(
        "otelcol_exporter_queue_capacity",
        values,
        instance="one:8888",
        exporter="kafka/turns",
        data_type="traces",
    )


def _sent_items(values: str, items: str = "spans", exporter: str = "kafka/turns") -> SampleSeries:
    name = f"otelcol_exporter_sent_{items}"
    return collector_series(name, values, instance="one:8888", exporter=exporter)


QUEUE_FULL: Final = Alert(
    name="EndturnQueueFull",
    severity=Severity.CRITICAL,
    component=Component.PIPELINE,
    enabled=has_collector,
    condition=_queue_full,
    hold=timedelta(minutes=5),
    keep_firing=timedelta(minutes=5),
    dashboard="endturn-pipeline",
    dashboard_labels=(CLUSTER,),
    summary=(
        f"The queue of the Collector at {label_value('instance')} towards "
        f"{label_value('exporter')} is {PERCENT} full: further records are lost"
    ),
    description=lambda _: (
        "For five minutes a queue has been nearly full. When it is full, new records are refused "
        "or dropped."
    ),
    fires_when=lambda _: (
        "a Collector's queue is more than 90% full for 5 minutes: further records are lost"
    ),
    runbook=Runbook(
        meaning=(
            "The target of a Collector has accepted too little for so long that its queue is "
            "full, or nearly full."
        ),
        impact=(
            "Records that do not fit are lost: senders retry for two minutes, then they drop "
            "them. The records in the queue are on disk, and are sent when the target accepts "
            "them."
        ),
        diagnosis=(
            (
                "Which exporter? `kafka/…`: do the brokers answer? `otlp_grpc/tempo`, "
                "`otlp_http/loki`: does the back end answer, and does it throttle?"
            ),
            (
                "Does EndturnExportStalled fire too? Then the target accepts nothing, and that "
                "runbook says where to look. Otherwise it accepts too little."
            ),
            (
                "One Collector, or all? The dashboard *Pipeline*, *Queues* and *Lost or refused "
                "by the Collector*."
            ),
        ),
        actions=(
            "Repair the target first; the queue empties by itself.",
            (
                "If it takes longer, and the disk has room: set a larger "
                "`ENDTURN_COLLECTOR_QUEUE_BYTES`, and restart that Collector. A queue on disk "
                "keeps its records."
            ),
        ),
        recovery="*Queues* falls, and *Lost or refused by the Collector* shows no new records.",
    ),
    fires=(
        Firing(
            title="Kafka is down for hours",
            series=(
                _size("0+10x95 950x100"),
                _capacity("1000x240"),
            ),
            at=timedelta(minutes=40),
            labels={"job": "collector", "instance": "one:8888", "exporter": "kafka/turns"},
            value="95%",
        ),
    ),
    quiet=(
        Quiet(
            title="it fills, and has room",
            series=(
                _size("800x240"),
                _capacity("1000x240"),
            ),
            at=timedelta(minutes=40),
        ),
        Quiet(
            title="it is full for a moment",
            series=(
                _size("0x100 1000x12 0x100"),
                _capacity("1000x240"),
            ),
            at=timedelta(minutes=29),
        ),
    ),
)


QUEUE_FILLING: Final = Alert(
    name="EndturnQueueFilling",
    severity=Severity.WARNING,
    component=Component.PIPELINE,
    enabled=has_collector,
    condition=_queue_filling,
    hold=timedelta(minutes=5),
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-pipeline",
    summary=(
        f"The queue of the Collector at {label_value('instance')} towards "
        f"{label_value('exporter')} is {PERCENT} full"
    ),
    description=lambda _: (
        "For five minutes more than half of a queue has been in use. Nothing is lost yet. When "
        "the queue is full, new records are refused or dropped."
    ),
    fires_when=lambda _: "a Collector's queue is more than half full for 5 minutes",
    runbook=Runbook(
        meaning=(
            "A queue of a Collector, beside applications or a gateway, fills faster than its "
            "target accepts."
        ),
        impact=(
            "None yet. When it is full, traces and events are lost (EndturnQueueFull pages at 90%)."
        ),
        diagnosis=(
            (
                "The dashboard *Pipeline*, *Queues*: how fast does it fill? The rest of the "
                "queue at that rate is the remaining time."
            ),
            (
                "`kafka/…`: do the brokers answer? `otlp_grpc/tempo`, `otlp_http/loki`: does the "
                "back end answer, and does it throttle?"
            ),
        ),
        actions=(
            "Repair the target first; the queue empties by itself.",
            (
                "To gain time: set a larger `ENDTURN_COLLECTOR_QUEUE_BYTES`, with as much disk, "
                "and restart that Collector. A queue on disk keeps its records."
            ),
            (
                "If it fills each day at the busiest hour, the back end is too small. `endturn "
                "plan` shows the load that it has to accept."
            ),
        ),
        recovery="*Queues* falls. It may take as long to empty as it took to fill.",
    ),
    fires=(
        Firing(
            title="it fills for an hour",
            series=(
                _size("0+5x240"),
                _capacity("1000x240"),
            ),
            at=timedelta(minutes=40),
            labels={"job": "collector", "instance": "one:8888", "exporter": "kafka/turns"},
            value="80%",
        ),
    ),
    quiet=(
        Quiet(
            title="it is half full",
            series=(
                _size("500x240"),
                _capacity("1000x240"),
            ),
            at=timedelta(minutes=40),
        ),
        Quiet(
            title="it is full for a moment",
            series=(
                _size("0x100 900x12 0x100"),
                _capacity("1000x240"),
            ),
            at=timedelta(minutes=30),
        ),
    ),
)


EXPORT_STALLED: Final = Alert(
    name="EndturnExportStalled",
    severity=Severity.WARNING,
    component=Component.PIPELINE,
    enabled=has_collector,
    condition=_export_stalled,
    hold=timedelta(minutes=2),
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-pipeline",
    summary=(
        f"The Collector at {label_value('instance')} has {label_value('data_type')} to send to "
        f"{label_value('exporter')}, and has sent none for ten minutes"
    ),
    description=lambda _: (
        "For ten minutes a signal's queue was never empty, and nothing left it. Kafka, a gateway "
        "or a back end is down, or refuses everything. Agents and gateways still accept data, "
        "and keep it on disk."
    ),
    fires_when=lambda _: (
        "a Collector has had spans, events or metrics to send for 10 minutes and sent none: "
        "Kafka, a gateway or a back end does not accept them"
    ),
    runbook=Runbook(
        meaning="A target of a Collector no longer accepts data.",
        impact=(
            "None yet: data waits on disk until the queue is full "
            "(`ENDTURN_COLLECTOR_QUEUE_BYTES`; EndturnQueueFilling fires at half of it). Until "
            "the repair, traces or events of the last minutes are not visible."
        ),
        diagnosis=(
            (
                "Which exporter? `kafka/…`: do the brokers answer, and do the topics exist? Any "
                "other: that back end, its address, its certificate, its token."
            ),
            "One Collector, or all? If only one, the problem is in its own connection.",
            "The Collector's log has the response that it got.",
            (
                "The dashboard *Pipeline*: *Delivered per minute* shows since when, *Queues* how "
                "full."
            ),
        ),
        actions=(
            "Repair the target: the Collector retries by itself, at least every half minute.",
            (
                "If the repair takes longer than the queue has room for: set a larger "
                "`ENDTURN_COLLECTOR_QUEUE_BYTES`, and restart that Collector."
            ),
        ),
        recovery=(
            "*Delivered per minute* rises above its usual height until the queue is empty, then "
            "returns to it."
        ),
    ),
    fires=(
        Firing(
            title="Kafka is down",
            series=(
                _size("0x40 1+1x160"),
                _sent_items("0+9x40 360x160"),
            ),
            at=timedelta(minutes=30),
            labels={
                "job": "collector",
                "instance": "one:8888",
                "exporter": "kafka/turns",
                "data_type": "traces",
            },
            value="0",
        ),
        Firing(
            title="nothing was ever sent",
            series=(_size("5x200", "otlp_http/loki", "logs"),),
            at=timedelta(minutes=20),
            labels={
                "job": "collector",
                "instance": "one:8888",
                "exporter": "otlp_http/loki",
                "data_type": "logs",
            },
            value="5",
        ),
        Firing(
            title="traces are stuck, while the same exporter sends events",
            series=(
                _size("0x40 1+1x160", "otlp_grpc/gateway"),
                _size("3x200", "otlp_grpc/gateway", "logs"),
                _sent_items("0+9x40 360x160", "spans", "otlp_grpc/gateway"),
                _sent_items("0+9x200", "log_records", "otlp_grpc/gateway"),
                _sent_items("0+9x200", "metric_points", "otlp_grpc/gateway"),
            ),
            at=timedelta(minutes=30),
            labels={
                "job": "collector",
                "instance": "one:8888",
                "exporter": "otlp_grpc/gateway",
                "data_type": "traces",
            },
            value="41",
        ),
    ),
    quiet=(
        Quiet(
            title="it is busy, and delivers",
            series=(
                _size("700x200"),
                _sent_items("0+9x200"),
            ),
            at=timedelta(minutes=30),
        ),
        Quiet(
            title="there is nothing to send",
            series=(
                _size("0x200"),
                _sent_items("360x200"),
            ),
            at=timedelta(minutes=30),
        ),
        Quiet(
            title="it is new, and has delivered since its start",
            series=(
                _size("_x40 7x200", "otlp_http/loki", "logs"),
                _sent_items("_x40 9+9x200", "log_records_total", "otlp_http/loki"),
            ),
            at=timedelta(minutes=15),
        ),
        Quiet(
            title="it delivered until its samples ended",
            series=(
                _size("7x80 _x120", "otlp_http/loki", "logs"),
                _sent_items("0+9x80 _x120", "log_records", "otlp_http/loki"),
            ),
            at=timedelta(minutes=28),
        ),
    ),
)


ALERTS: Final = (
    QUEUE_FULL,
    QUEUE_FILLING,
    EXPORT_STALLED,
)
