"""Alerts about Kafka between Collectors and gateways."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from endturn.generate import external_metrics as external
from endturn.generate.alerts.collector_series import (
    COLLECTOR_METRICS,
    collector_gauge,
    collector_increase,
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
from endturn.generate.queries import Matcher

BROKERS: Final = '--bootstrap-server "${ENDTURN_KAFKA:-127.0.0.1:9092}"'
CONSUMER_GROUPS: Final = f"kafka-consumer-groups.sh {BROKERS}"
RAISE_RETENTION: Final = (
    f"kafka-configs.sh {BROKERS} --entity-type topics --entity-name endturn.turns --alter "
    "--add-config retention.ms=1209600000"
)


def _gateways_behind(settings: AlertSettings) -> Condition:
    collector = settings.collector
    lag = collector_gauge(external.KAFKA_LAG, collector)
    waiting = (
        f'sum by (cluster, receiver) (label_replace({lag}, "receiver", "kafka/$1", "topic", '
        '".*[.](.+)"))'
    )
    return PrometheusOnly(
        f"1 - (\n  {_spans_read(collector, '6h')}\n  or 0 * {_spans_written(collector, '6h')}\n"
        f") / ({_spans_written(collector, '6h')} > 1000) > 0.1\n"
        f"unless on (cluster, receiver) ({waiting} < 1000\n"
        f"  and {_spans_read(collector, '10m')} >= 0.9 * {_spans_written(collector, '10m')})",
        COLLECTOR_METRICS,
    )


def _spans_read(collector: str, window: str) -> str:
    """Return the number of spans that were read from each topic, by receiver."""
    read_increase = collector_increase(
        external.ACCEPTED_ITEMS["spans"],
        collector,
        window,
        Matcher(external.RECEIVER, "=~", "kafka/.+"),
    )
    return f"sum by (cluster, receiver) ({read_increase})"


def _spans_written(collector: str, window: str) -> str:
    """Return the number of spans that were sent to each topic, named as its receiver is."""
    sent_increase = collector_increase(
        external.SENT_ITEMS["spans"],
        collector,
        window,
        Matcher(external.EXPORTER, "=~", "kafka/.+"),
    )
    renamed = f'label_replace({sent_increase}, "receiver", "$1", "exporter", "(.+)")'
    return f"sum by (cluster, receiver) ({renamed})"


def _kafka_deleting(settings: AlertSettings) -> Condition:
    fetched = collector_increase(external.KAFKA_MESSAGES, settings.collector, "6h")
    offset = collector_gauge(external.KAFKA_OFFSET, settings.collector)
    partition = "max by (cluster, topic, partition)"
    return PrometheusOnly(
        f"1 - sum by (cluster, topic) ({fetched}) / (\n"
        "  sum by (cluster, topic) (\n"
        f"    {partition} ({offset})\n"
        f"    - {partition} (last_over_time({offset}[2d] offset 6h))\n"
        "  ) > 100\n"
        ") > 0.05",
        COLLECTOR_METRICS,
    )


UNALIGNED: Final = timedelta(seconds=16)
"""An interval that puts no sample on the edge of a window, where Prometheus 3 counts differently
from Prometheus 2."""


def _sent_spans(values: str, exporter: str = "kafka/turns", suffix: str = "") -> SampleSeries:
    name = f"otelcol_exporter_sent_spans{suffix}"
    return collector_series(name, values, instance="one:8888", exporter=exporter)


def _read_spans(
    values: str, receiver: str = "kafka/turns", *, gateway: str = "gateway-1:8888"
) -> SampleSeries:
    name = "otelcol_receiver_accepted_spans"
    return collector_series(name, values, instance=gateway, receiver=receiver)


def _lag(values: str, topic: str = "endturn.turns") -> SampleSeries:
    return _of_partition("otelcol_kafka_receiver_offset_lag", values, topic=topic)


def _offset(values: str, *, gateway: str = "gateway-1:8888") -> SampleSeries:
    return _of_partition("otelcol_kafka_receiver_current_offset", values, gateway=gateway)


def _messages(values: str, *, gateway: str = "gateway-1:8888") -> SampleSeries:
    return _of_partition("otelcol_kafka_receiver_messages", values, gateway=gateway)


def _of_partition(
    name: str, values: str, *, topic: str = "endturn.turns", gateway: str = "gateway-1:8888"
) -> SampleSeries:
    return collector_series(name, values, instance=gateway, topic=topic, partition="0")


GATEWAYS_BEHIND: Final = Alert(
    name="EndturnGatewaysBehind",
    severity=Severity.WARNING,
    component=Component.PIPELINE,
    enabled=has_collector,
    condition=_gateways_behind,
    hold=timedelta(minutes=10),
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-pipeline",
    summary=(
        f"{PERCENT} of the spans that were sent to {label_value('receiver')} in six hours were "
        "not read"
    ),
    description=lambda _: (
        "In the last six hours gateways read fewer spans than Collectors sent to Kafka. They are "
        "at least 36 minutes behind, or the unread records were deleted. The alert is quiet if "
        "gateways read as fast as records come, and fewer than 1,000 records wait."
    ),
    fires_when=lambda _: (
        "gateways have read less than 90% of the spans that were sent to Kafka in 6 hours, at "
        "least 1,000, and are not at the end of the topic"
    ),
    runbook=Runbook(
        meaning="Gateways read more slowly than records come into Kafka, or none of them reads.",
        impact=(
            "Traces come late. When the gateways are as far behind as Kafka keeps "
            "(`retention.ms`, `retention.bytes`), unread records are deleted: traces then lack "
            "spans. Truncated calls have a copy in `endturn.truncated`."
        ),
        diagnosis=(
            (
                "Do the gateways run? *Collectors* on the dashboard *Pipeline*; "
                "EndturnCollectorDown fires for those that do not."
            ),
            (
                "*Queues*: a gateway whose queue towards Tempo is full stops reading "
                "(EndturnExportStalled, EndturnQueueFilling)."
            ),
            (
                "*Behind in Kafka*: does it grow, and in all topics? *Collector memory*: near "
                "its limit a gateway reads nothing."
            ),
            (
                "Do all gateways belong to the groups `endturn-turns` and `endturn-truncated`? "
                f"`{CONSUMER_GROUPS} --describe --group endturn-turns`, and the same for "
                "`endturn-truncated`."
            ),
        ),
        actions=(
            "Start the gateways that are down; repair a back end that accepts nothing.",
            (
                "If they are too slow: add gateways, up to a quarter of the partitions (`endturn "
                "plan`)."
            ),
            (
                "If it takes longer than Kafka keeps records: raise the retention before Kafka "
                f"deletes them, for each topic: `{RAISE_RETENTION}` (two weeks)."
            ),
        ),
        recovery=(
            "*Behind in Kafka* falls to nearly zero. The condition looks back on six hours, and "
            "lets the alert end earlier if fewer than 1,000 records wait and gateways read as "
            "fast as records come."
        ),
    ),
    fires=(
        Firing(
            title="the gateways are down for an hour",
            series=(
                _sent_spans("0+100x1680"),
                _read_spans("0+100x1440 _x240"),
            ),
            at=timedelta(hours=7),
            labels={"receiver": "kafka/turns"},
            value="16.63%",
        ),
        Firing(
            title="no gateway has ever read",
            series=(_sent_spans("0+100x1440", "kafka/truncated", suffix="_total"),),
            at=timedelta(hours=1),
            labels={"receiver": "kafka/truncated"},
            value="100%",
        ),
        Firing(
            title=(
                "one of two topics is read, and a gateway no longer reports the other since its "
                "back end accepts nothing"
            ),
            series=(
                _sent_spans("0+100x1680"),
                _sent_spans("0+10x1680", "kafka/truncated"),
                _read_spans("0+100x1200 120000x480"),
                _read_spans("0+10x1680", "kafka/truncated"),
                _lag("3x1680"),
                _lag("3x1680", "endturn.truncated"),
            ),
            at=timedelta(hours=7, minutes=1),
            interval=UNALIGNED,
            labels={"receiver": "kafka/turns"},
            value="28.02%",
        ),
        Firing(
            title="they read as much as comes, and stay two hours behind",
            series=(
                _sent_spans("0+100x1680"),
                _read_spans("0x480 0+100x1200"),
                _lag("4800x1680"),
            ),
            at=timedelta(hours=6),
            labels={"receiver": "kafka/turns"},
            value="33.4%",
        ),
    ),
    quiet=(
        Quiet(
            title="a gateway read much before its first scrape, and has nothing left to read",
            series=(
                _sent_spans("0+100x1680"),
                _read_spans("_x480 48000+100x1200"),
                _lag("_x480 3x1200"),
            ),
            at=timedelta(hours=6),
        ),
        Quiet(
            title="the same, and no more records come",
            series=(
                _sent_spans("0+100x480 48000x1200"),
                _read_spans("_x480 48000x1200"),
                _lag("_x480 0x1200"),
            ),
            at=timedelta(hours=6),
        ),
        Quiet(
            title="they were down for an hour, and have caught up",
            series=(
                _sent_spans("0+100x1920"),
                _read_spans("0+100x1200 _x239 120000+1100x23 146400+100x400"),
            ),
            at=timedelta(hours=6, minutes=30),
        ),
        Quiet(
            title="they read all records",
            series=(
                _sent_spans("0+100x1680"),
                _read_spans("0+50x1680"),
                _read_spans("0+50x1680", gateway="gateway-2:8888"),
            ),
            at=timedelta(hours=7),
        ),
        Quiet(
            title="a few spans in a quiet night are in transit",
            series=(
                _sent_spans("0x1400 900x280"),
                _read_spans("0x1680"),
            ),
            at=timedelta(hours=6, minutes=30),
        ),
    ),
)


KAFKA_DELETING: Final = Alert(
    name="EndturnKafkaDeleting",
    severity=Severity.WARNING,
    component=Component.PIPELINE,
    enabled=has_collector,
    condition=_kafka_deleting,
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-pipeline",
    summary=(
        f"Kafka deleted {PERCENT} of {label_value('topic')}'s records of the last hours before "
        "they were read"
    ),
    description=lambda _: (
        "Gateways advanced in Kafka by more records than they read. Kafka had already deleted "
        "the others when the gateways reached them. The last six hours are counted."
    ),
    fires_when=lambda _: (
        "Kafka deleted more than 5% of the records of 6 hours before a gateway read them"
    ),
    runbook=Runbook(
        meaning="Kafka's retention deleted records that no gateway had read.",
        impact=(
            "The spans in them are lost: traces lack them, or are missing. Metrics are complete. "
            "Each truncated call of `endturn.turns` is also in `endturn.truncated`; records of "
            "that topic have no copy."
        ),
        diagnosis=(
            (
                "*Spans in Kafka that were not read*, on the dashboard *Pipeline*, over the time "
                "of the outage: how many?"
            ),
            (
                "Why were the gateways so far behind? Check for EndturnGatewaysBehind, "
                "EndturnCollectorDown and EndturnExportStalled before it."
            ),
        ),
        actions=(
            (
                f"If it continues, raise Kafka's retention at once: `{RAISE_RETENTION}` (two "
                "weeks; `retention.bytes` limits each partition, too)."
            ),
            "Deleted records cannot be recovered. The alert ends by itself six hours later.",
        ),
        recovery=(
            "*Behind in Kafka* stays below what the retention holds. The condition looks back on "
            "six hours, so the alert ends by then."
        ),
    ),
    fires=(
        Firing(
            title="gateways were down for longer than Kafka keeps records",
            series=(
                _offset("0+10x480 _x960 9000+10x240"),
                _messages("0+10x480 _x960 10+10x240"),
            ),
            at=timedelta(hours=7, minutes=1),
            interval=UNALIGNED,
            labels={"topic": "endturn.turns"},
            value="51.88%",
        ),
    ),
    quiet=(
        Quiet(
            title="they were down for two hours, and have read everything",
            series=(
                _offset("0+10x1440 _x480 16000+100x30 19200+10x240"),
                _messages("0+10x1440 _x480 1600+100x30 4800+10x240"),
            ),
            at=timedelta(hours=9),
        ),
        Quiet(
            title="another gateway continues where one has ended",
            series=(
                _offset("0+10x1800"),
                _messages("0+10x1800"),
                _offset("_x1800 18010+10x240", gateway="gateway-2:8888"),
                _messages("_x1800 10+10x240", gateway="gateway-2:8888"),
            ),
            at=timedelta(hours=8),
        ),
    ),
)


ALERTS: Final = (
    GATEWAYS_BEHIND,
    KAFKA_DELETING,
)
