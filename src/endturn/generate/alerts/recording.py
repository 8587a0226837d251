"""Alerts about an agent's own telemetry."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from endturn.generate.alerts.collector_series import collectors_down_within
from endturn.generate.alerts.conditions import Condition, CountAtLeast, PrometheusOnly
from endturn.generate.alerts.model import (
    COUNT,
    SERVICE_NAME,
    Alert,
    AlertSettings,
    Component,
    Firing,
    Quiet,
    Runbook,
    Severity,
    collector_up,
    label_value,
    opens_tickets,
    sample_series,
)
from endturn.generate.queries import SERVICE, selector
from endturn.generate.recorded_counts import SERVICE_COUNTS
from endturn.telemetry import INDICATORS, TURNS, schema


def _recording_failing(settings: AlertSettings) -> Condition:
    return CountAtLeast(
        count=INDICATORS["recording_failures"].count,
        over=timedelta(minutes=15),
        number=settings.limits.failures,
        noun=("lost record", "lost records"),
    )


def _series_capped(settings: AlertSettings) -> Condition:
    return CountAtLeast(
        count=INDICATORS["capped"].count,
        over=timedelta(minutes=30),
        number=settings.limits.capped,
        noun=("measurement recorded as other", "measurements recorded as other"),
        by=(*SERVICE, schema.CAPPED.label),
    )


def _telemetry_absent(settings: AlertSettings) -> Condition:
    turns = selector(SERVICE_COUNTS[TURNS], settings.services)
    reports = selector(schema.LISTENER_FAILURES.prometheus, settings.services)
    return PrometheusOnly(
        f"count_over_time((count_over_time({turns}[1d]) > 1300)[1d:3h])\n"
        f"unless last_over_time({turns}[10m])\n"
        f"unless on ({', '.join(SERVICE)}) last_over_time({reports}[10m])\n"
        f"unless on (cluster) {collectors_down_within('4m')}",
        "a day of counts that Prometheus recorded",
    )


RECORDING_FAILING: Final = Alert(
    name="EndturnRecordingFailing",
    severity=Severity.WARNING,
    component=Component.SERVICE,
    enabled=opens_tickets,
    condition=_recording_failing,
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-pipeline",
    dashboard_labels=SERVICE,
    summary=f"endturn failed to record {COUNT} times in {SERVICE_NAME}",
    description=lambda _: (
        "A listener, or an internal step of endturn, raised instead of recording. The label "
        "`endturn_listener_name` names it. The observed calls continued, but their records are "
        "missing. A listener is detached after 100 failures in a row."
    ),
    fires_when=lambda settings: (
        f"a listener, or a step of endturn's own work, raised {settings.limits.failures} times "
        "in 15 minutes"
    ),
    runbook=Runbook(
        meaning=(
            "Code that records telemetry raised an exception. endturn catches it, so that no "
            "call breaks."
        ),
        impact="The numbers are too low for that process, and every rate may be wrong.",
        diagnosis=(
            "The logger `endturn` of that process has the first exception with its traceback.",
        ),
        actions=(
            (
                "A listener of your own: fix it. endturn's own `Recorder`, or one of its steps "
                "(`opening a call`): report the traceback."
            ),
        ),
        recovery="*Recording failures, by listener* shows no new failures for 15 minutes.",
    ),
    fires=(
        Firing(
            title="the recorder raises",
            series=(
                sample_series(
                    schema.LISTENER_FAILURES, "0x200 3x280", {schema.LISTENER.label: "Recorder"}
                ),
            ),
            at=timedelta(hours=1),
            value="3",
        ),
    ),
    quiet=(
        Quiet(
            title="it raised long ago",
            series=(
                sample_series(
                    schema.LISTENER_FAILURES, "7x480", {schema.LISTENER.label: "Recorder"}
                ),
            ),
            at=timedelta(hours=1),
        ),
    ),
)


SERIES_CAPPED: Final = Alert(
    name="EndturnSeriesCapped",
    severity=Severity.WARNING,
    component=Component.SERVICE,
    enabled=opens_tickets,
    condition=_series_capped,
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-pipeline",
    dashboard_labels=SERVICE,
    summary=(
        f"{COUNT} measurements of {SERVICE_NAME} were recorded as `other`: too many values of "
        f"{label_value(schema.CAPPED.label)}"
    ),
    description=lambda settings: (
        "A process admits a limited number of values for each open label, and of label sets for "
        f"each metric. Later values are recorded as `other`. At least {settings.limits.capped} "
        "measurements of one label were, in the last half hour."
    ),
    fires_when=lambda settings: (
        f"a label has more values than a process admits: {settings.limits.capped} measurements "
        "of 30 minutes were recorded as `other`"
    ),
    runbook=Runbook(
        meaning=(
            "A label of the metrics has more values than a process admits. The bound holds: the "
            "number of series does not grow."
        ),
        impact=(
            "The values that came after the limit cannot be distinguished. Totals by service are "
            "right and include them; traces and events have the original names."
        ),
        diagnosis=(
            (
                "A process admits 100 models, 32 providers, 64 addresses, 32 types of error and 10 "
                "agents, and 1,400 label sets for each metric."
            ),
            (
                "The dashboard *Pipeline*, *Labels capped, by label*: which label, and since "
                "when? `all` is a metric with too many label sets, although no single label has "
                "too many values."
            ),
            (
                'Which names? Traces in Tempo: `{ resource.service.name = "its name" }`, by '
                "`gen_ai.request.model`. Does the name contain an id, a date, a path or a user's "
                "name?"
            ),
        ),
        actions=(
            (
                "`model`: send one of a small set of names; put the id of a router or a "
                "deployment into an attribute of your own span."
            ),
            (
                "`server_address`: an address for each tenant or job is unbounded; send through "
                "one name."
            ),
            (
                "`error_type`: use few exception classes. `agent`: turn `ENDTURN_METRICS_AGENT` "
                "off, or name agents by their kind."
            ),
            (
                "`all`: turn `ENDTURN_METRICS_AGENT` off first; or let several processes serve "
                "different models."
            ),
            (
                "A process keeps the values that it has admitted until it ends; restart it after "
                "you fix the names."
            ),
        ),
        recovery=(
            "*Labels capped, by label* shows no new measurements for half an hour. A process "
            "admits new values only after a restart."
        ),
    ),
    fires=(
        Firing(
            title="a model's name contains an id",
            series=(
                sample_series(schema.SERIES_CAPPED, "0x200 40x280", {schema.CAPPED.label: "model"}),
                sample_series(schema.SERIES_CAPPED, "0+0x480", {schema.CAPPED.label: "agent"}),
            ),
            at=timedelta(hours=1),
            labels={"job": "shop/agent", schema.CAPPED.label: "model"},
            value="40",
        ),
    ),
    quiet=(
        Quiet(
            title="one name too many is used nine times",
            series=(
                sample_series(schema.SERIES_CAPPED, "0x200 9x280", {schema.CAPPED.label: "model"}),
            ),
            at=timedelta(hours=1),
        ),
        Quiet(
            title="they were used long ago",
            series=(sample_series(schema.SERIES_CAPPED, "40x480", {schema.CAPPED.label: "model"}),),
            at=timedelta(hours=1, minutes=30),
        ),
    ),
)


TELEMETRY_ABSENT: Final = Alert(
    name="EndturnTelemetryAbsent",
    severity=Severity.WARNING,
    component=Component.SERVICE,
    enabled=opens_tickets,
    condition=_telemetry_absent,
    hold=timedelta(minutes=5),
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-pipeline",
    dashboard_labels=SERVICE,
    summary=f"{SERVICE_NAME} has sent nothing for 15 minutes",
    description=lambda _: (
        "This service reported throughout an entire day, and reports no longer. An idle service "
        "reports, too. A service that runs only at times is ignored."
    ),
    fires_when=lambda _: (
        "a service that reported in nine of ten minutes for a day has sent nothing for 15 minutes"
    ),
    runbook=Runbook(
        meaning="A service that usually sends telemetry all the time sends none.",
        impact=(
            "It may be down. If it is up, nothing in it is observed, and no alert can fire for it."
        ),
        diagnosis=(
            "Does the service run, and does it answer?",
            (
                "Are others absent too? Then the pipeline is interrupted: the Collector (port "
                "13133, its log), or Prometheus, which accepts metrics only if it was started "
                "with `--web.enable-otlp-receiver`."
            ),
            (
                "Only this one? Check where it exports to (`OTEL_EXPORTER_OTLP_ENDPOINT`), and "
                "its log."
            ),
        ),
        actions=(
            (
                "Restart the component that is down. Applications keep spans and events for two "
                "minutes; the Collector keeps everything that is on its disk."
            ),
            (
                "If it was taken out of service, silence the alert. It ends by itself about a "
                "day after the last report."
            ),
        ),
        recovery=(
            "The service is in *Services, the longest silent first* with a silence of less than "
            "a minute or two."
        ),
    ),
    fires=(
        Firing(
            title="a service that always reports stops, beside an idle service and a new one",
            series=(
                sample_series(schema.TURNS, "0+1x1440 _x60"),
                sample_series(schema.TURNS, "7x1500", {"job": "shop/idle"}),
                sample_series(schema.TURNS, "_x720 0+1x720 _x60", {"job": "shop/new"}),
                collector_up("1x4200"),
            ),
            at=timedelta(hours=24, minutes=25),
            interval=timedelta(minutes=1),
            value="",
        ),
        Firing(
            title="it is absent for six hours",
            series=(
                sample_series(schema.TURNS, "0+1x2520 _x400"),
                collector_up("1x4200"),
            ),
            at=timedelta(hours=48),
            interval=timedelta(minutes=1),
            value="",
        ),
        Firing(
            title="a service that is thirty hours old is absent for ten",
            series=(
                sample_series(schema.TURNS, "0+1x1800 _x1600"),
                collector_up("1x4200"),
            ),
            at=timedelta(hours=40),
            interval=timedelta(minutes=1),
            value="",
        ),
    ),
    quiet=(
        Quiet(
            title="it has been absent for more than a day",
            series=(
                sample_series(schema.TURNS, "0+1x1500 _x1700"),
                collector_up("1x4200"),
            ),
            at=timedelta(hours=53),
            interval=timedelta(minutes=1),
        ),
        Quiet(
            title="no Collector answered for an hour (another alert covers that)",
            series=(
                sample_series(schema.TURNS, "0+1x1600 _x59 1660+1x300"),
                collector_up("1x1600 0x59 1x300"),
            ),
            at=timedelta(hours=27, minutes=45),
            interval=timedelta(minutes=1),
        ),
        Quiet(
            title="a service that reported for an hour is gone",
            series=(
                sample_series(schema.TURNS, "0+1x60 _x60"),
                collector_up("1x4200"),
            ),
            at=timedelta(hours=1, minutes=50),
            interval=timedelta(minutes=1),
        ),
    ),
)


ALERTS: Final = (
    RECORDING_FAILING,
    SERIES_CAPPED,
    TELEMETRY_ABSENT,
)
