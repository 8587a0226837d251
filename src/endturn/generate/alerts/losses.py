"""Alerts about telemetry that is lost."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from endturn.generate import external_metrics as external
from endturn.generate.alerts.collector_series import (
    COLLECTOR_METRICS,
    collector_counters,
    collectors_down_within,
    is_up,
    sdk_drops,
)
from endturn.generate.alerts.conditions import Condition, PrometheusOnly
from endturn.generate.alerts.model import (
    COUNT,
    SERVICE_NAME,
    Alert,
    AlertSettings,
    Component,
    Firing,
    Quiet,
    Runbook,
    SampleSeries,
    Severity,
    collector_series,
    collector_up,
    has_collector,
    label_value,
    opens_tickets,
    sdk_series,
)
from endturn.generate.queries import ALL, CLUSTER, INSTANCE, JOB, SERVICE, Labels, Matcher, losses

COLLECTOR: Final[Labels] = (JOB, INSTANCE, CLUSTER)
"""Labels that identify a Collector."""
NO_ROOM: Final = Matcher(external.ERROR, "=", "limit")
"""Without `error`, `DELTA_POINTS` counts what was accepted."""


def _collector_losing(settings: AlertSettings) -> Condition:
    collector = settings.collector
    counters = (
        collector_counters(external.ALL_LOSSES, collector),
        collector_counters(external.family(external.DELTA_POINTS), collector, NO_ROOM),
    )
    loss_counters = (
        losses(loss, by=COLLECTOR, over="15m", observed=is_up(collector), on=COLLECTOR)
        for loss in counters
    )
    return PrometheusOnly(
        "\nor ".join(f"{counter} > 0" for counter in loss_counters), COLLECTOR_METRICS
    )


def _sdk_dropping(settings: AlertSettings) -> Condition:
    drops = losses(
        sdk_drops(settings.services),
        by=SERVICE,
        over="15m",
        observed=is_up(settings.collector),
        on=ALL,
    )
    return PrometheusOnly(
        f"{drops} > 0\nunless on (cluster) {collectors_down_within('30m')}",
        "the metrics of OpenTelemetry SDKs about themselves",
    )


TEMPO: Final = "otlp_grpc/tempo"


def _send_failed(values: str, suffix: str = "") -> SampleSeries:
    name = f"otelcol_exporter_send_failed_spans{suffix}"
    return collector_series(name, values, exporter=TEMPO)


def _no_room(values: str) -> SampleSeries:
    return collector_series("otelcol_deltatocumulative_datapoints", values, error="limit")


def _dropped(values: str) -> SampleSeries:
    return sdk_series("otel_sdk_processor_span_processed_total", values, error_type="queue_full")


COLLECTOR_LOSING: Final = Alert(
    name="EndturnCollectorLosing",
    severity=Severity.WARNING,
    component=Component.PIPELINE,
    enabled=has_collector,
    condition=_collector_losing,
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-pipeline",
    summary=f"The Collector at {label_value('instance')} lost or refused {COUNT} records",
    description=lambda _: (
        "In the last 15 minutes the Collector dropped records that it had accepted, had no room "
        "for them in a queue, or had no room for another counter. Records that it returned to "
        "senders are included. Senders retry for two minutes."
    ),
    fires_when=lambda _: (
        "the Collector lost or refused records, or had no room for a new counter, in the last "
        "15 minutes"
    ),
    runbook=Runbook(
        meaning=(
            "Telemetry is lost in the Collector. `send_failed`: a back end refused it "
            "permanently. `enqueue_failed`: there was no room in the queue towards it. "
            "`refused`: its memory limiter or a full queue returned it to the sender. "
            "`deltatocumulative`: the number of counters is at its limit, and new ones are "
            "dropped."
        ),
        impact=(
            "Traces and events of truncated turns are missing. Counters are complete again with "
            "the next export; recorded counts, which alerts read, lack the events of a gap of "
            "more than 15 minutes."
        ),
        diagnosis=(
            (
                "The dashboard *Pipeline*: *Lost or refused by the Collector* shows the exporter "
                "and signal, *Queues* how full they are."
            ),
            "The Collector's log has the back end's response.",
            (
                "The alert does not include what a Collector loses in the 15 minutes after its "
                "first scrape, since a counter that appears then may be an old one: *Lost or "
                "refused by the Collector* shows it."
            ),
            (
                "`deltatocumulative`: what grows? `topk(10, count by (job) "
                '({__name__=~"endturn_.*"}))`, then by model and by `instance`.'
            ),
        ),
        actions=(
            (
                "`send_failed`: repair the back end; a response that says the data is wrong "
                "(4xx) is a bug to report."
            ),
            (
                "`enqueue_failed`: a faster back end, a larger `sending_queue.queue_size`, or a "
                "queue on disk."
            ),
            (
                "`refused`: raise `ENDTURN_COLLECTOR_MEMORY_MIB` with the memory of the process, "
                "or run more Collectors."
            ),
            (
                "`send_failed` of a Collector beside an agent (`agent.yaml`): does it have the "
                "gateway's token (`ENDTURN_GATEWAY_TOKEN`)? With a wrong token it is refused "
                "permanently (401), and drops its data."
            ),
            (
                "`deltatocumulative`: fix unbounded names (EndturnSeriesCapped). For short-lived "
                "processes that export deltas: a shorter `ENDTURN_COLLECTOR_STALE`, or "
                "`OTEL_METRICS_EXPORTER=none`, so that the Collector counts their responses. If "
                "there really are that many: raise `max_streams` and the memory, or run more "
                "Collectors."
            ),
        ),
        recovery="*Lost or refused by the Collector* shows no new records for 15 minutes.",
    ),
    fires=(
        Firing(
            title="a counter begins with its first loss",
            series=(
                _send_failed("_x40 7x60"),
                collector_series(
                    "otelcol_exporter_enqueue_failed_spans", "_x40 3x60", exporter=TEMPO
                ),
                collector_up("1x200"),
            ),
            at=timedelta(minutes=15),
            labels={"job": "collector", "instance": "collector:8888"},
            value="10",
        ),
        Firing(
            title="it restarts under the same id, and loses some at once",
            series=(
                _send_failed("500x99 _x4 8x60"),
                collector_up("1x200"),
            ),
            at=timedelta(minutes=30),
            labels={"job": "collector", "instance": "collector:8888"},
            value="8",
        ),
        Firing(
            title="it has no room for another counter",
            series=(
                _no_room("_x40 7x60"),
                collector_up("1x200"),
            ),
            at=timedelta(minutes=15),
            labels={"job": "collector", "instance": "collector:8888"},
            value="7",
        ),
        Firing(
            title="senders are refused",
            series=(
                collector_series("otelcol_receiver_refused_log_records_total", "5x100 9x60"),
                collector_up("1x600"),
            ),
            at=timedelta(minutes=30),
            labels={"job": "collector", "instance": "collector:8888"},
            value="4",
        ),
    ),
    quiet=(
        Quiet(
            title="delta points were accepted, or were old",
            series=(
                collector_series("otelcol_deltatocumulative_datapoints", "_x40 9x60"),
                collector_series(
                    "otelcol_deltatocumulative_datapoints", "_x40 7x60", error="delta.ErrOutOfOrder"
                ),
                collector_up("1x200"),
            ),
            at=timedelta(minutes=15),
        ),
        Quiet(
            title="its first scrape shows earlier losses",
            series=(
                _send_failed("500x400", suffix="_total"),
                collector_up("1x400"),
            ),
            at=timedelta(minutes=4),
        ),
        Quiet(
            title="it was not scraped for more than a day, and lost them meanwhile",
            series=(
                _send_failed("_x1560 500x60", suffix="_total"),
                collector_up("1x60 _x1499 1x60"),
            ),
            at=timedelta(hours=26, minutes=5),
            interval=timedelta(minutes=1),
        ),
        Quiet(
            title="it was not scraped for an hour, and lost none since",
            series=(
                _send_failed("5x200 _x240 5x60"),
                collector_up("1x600"),
            ),
            at=timedelta(hours=1, minutes=55),
        ),
        Quiet(
            title="it was not scraped for an hour, and had room for every counter since",
            series=(
                _no_room("5x200 _x240 5x60"),
                collector_up("1x600"),
            ),
            at=timedelta(hours=1, minutes=55),
        ),
        Quiet(
            title="its first scrape shows that it had no room earlier",
            series=(
                _no_room("500x400"),
                collector_up("1x400"),
            ),
            at=timedelta(minutes=4),
        ),
        Quiet(
            title="it lost some long ago",
            series=(
                _send_failed("5x200"),
                collector_up("1x600"),
            ),
            at=timedelta(minutes=30),
        ),
    ),
)


SDK_DROPPING: Final = Alert(
    name="EndturnSdkDropping",
    severity=Severity.WARNING,
    component=Component.SERVICE,
    enabled=opens_tickets,
    condition=_sdk_dropping,
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-pipeline",
    dashboard_labels=SERVICE,
    summary=f"{SERVICE_NAME} dropped {COUNT} spans or events before they were sent",
    description=lambda _: (
        "In the last 15 minutes the OpenTelemetry SDK in this service could not pass on its "
        "records. Its queue was full, or the Collector refused them, or did not accept them for "
        "two minutes."
    ),
    fires_when=lambda _: (
        "an agent's own SDK dropped spans or events in the last 15 minutes; where no Collector "
        "is scraped, the first drops of a process are seen 15 minutes later"
    ),
    runbook=Runbook(
        meaning="Telemetry is lost in the agent's own process; the SDK counts what it drops.",
        impact=(
            "Traces and events of truncated turns are missing. Counters are complete again with "
            "the next export; recorded counts, which alerts read, lack the events of a gap of "
            "more than 15 minutes."
        ),
        diagnosis=(
            (
                "The dashboard *Pipeline*, *Dropped by SDKs*: `queue_full` means too much at "
                "once; a number is the HTTP status with which the receiver refused the records; "
                "`ConnectionError` and `ReadTimeout` mean that nobody answered for two minutes."
            ),
            "Do EndturnCollectorDown or EndturnCollectorLosing fire too? Then begin there.",
        ),
        actions=(
            (
                "`queue_full`: raise `OTEL_BSP_MAX_QUEUE_SIZE` and `OTEL_BLRP_MAX_QUEUE_SIZE`, "
                "or put a Collector beside the agent."
            ),
            (
                "A number: the service's log (logger `endturn`) says what to do. 404: "
                "`OTEL_EXPORTER_OTLP_ENDPOINT` is wrong. 401, 403: the key in "
                "`OTEL_EXPORTER_OTLP_HEADERS`. 413: a smaller `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`."
            ),
            "Otherwise: repair the connection from the service to the Collector.",
        ),
        recovery="*Dropped by SDKs* shows no new records for 15 minutes.",
    ),
    fires=(
        Firing(
            title="a queue is full for the first time",
            series=(
                _dropped("_x40 560x60"),
                sdk_series("otel_sdk_processor_span_processed_total", "0+9x100"),
                collector_up("1x200"),
            ),
            at=timedelta(minutes=15),
            value="560",
        ),
        Firing(
            title="the receiver refuses spans, as a wrong address does",
            series=(
                sdk_series("otel_sdk_exporter_span_exported_total", "_x40 84x60", error_type="404"),
                collector_up("1x200"),
            ),
            at=timedelta(minutes=15),
            value="84",
        ),
    ),
    quiet=(
        Quiet(
            title="Prometheus is new, and they were dropped earlier",
            series=(
                _dropped("560x400"),
                collector_up("1x400"),
            ),
            at=timedelta(minutes=4),
        ),
        Quiet(
            title=(
                "no Collector answered for ten minutes (another alert covers that), or shortly "
                "after"
            ),
            series=(
                _dropped("_x120 560x200"),
                collector_up("1x80 0x39 1x200"),
            ),
            at=timedelta(minutes=32),
        ),
        Quiet(
            title="the same, just before the drops leave the window",
            series=(
                _dropped("_x120 560x200"),
                collector_up("1x80 0x39 1x200"),
            ),
            at=timedelta(minutes=45),
        ),
        Quiet(
            title="nothing arrived for an hour, and nothing was dropped since",
            series=(
                _dropped("560x200 _x240 560x60"),
                collector_up("1x600"),
            ),
            at=timedelta(hours=1, minutes=55),
        ),
        Quiet(
            title="everything was passed on, after some were dropped long ago",
            series=(
                _dropped("560x200"),
                sdk_series("otel_sdk_exporter_span_exported_total", "0+9x200"),
                collector_up("1x600"),
            ),
            at=timedelta(minutes=30),
        ),
    ),
)


ALERTS: Final = (
    COLLECTOR_LOSING,
    SDK_DROPPING,
)
