"""Alerts about Collectors that do not answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from endturn.generate.alerts.collector_series import COLLECTOR_METRICS, is_up
from endturn.generate.alerts.conditions import Condition, PrometheusOnly
from endturn.generate.alerts.model import (
    COUNT,
    OF_CLUSTER,
    Alert,
    AlertSettings,
    Component,
    Firing,
    Quiet,
    Runbook,
    Severity,
    collector_up,
    has_collector,
    label_value,
    scraped_series,
)
from endturn.generate.queries import CLUSTER

RUNS: Final = (
    "Does the process run? Its health check answers on port 13133. In Kubernetes: `kubectl -n "
    "endturn get pods -o wide`."
)
LOG: Final = "Its last log lines: out of memory, a rejected configuration, a full disk?"
SCRAPED: Final = (
    "It runs and answers? Check the `job` under which Prometheus scrapes it (`collector` in the "
    "configuration)."
)
RESTART: Final = (
    "Restart it: it then sends the queues on its disk. A gateway behind Kafka that is back within "
    "a minute continues where it was."
)


def _collectors_down(settings: AlertSettings) -> Condition:
    up = is_up(settings.collector)
    return PrometheusOnly(
        f"sum by (cluster) ({up}) < count by (cluster) ({up}) / 2\n"
        f"or 0 * count by (cluster) (last_over_time({up}[1d])) unless on (cluster) {up}",
        COLLECTOR_METRICS,
    )


def _collector_down(settings: AlertSettings) -> Condition:
    up = is_up(settings.collector)
    return PrometheusOnly(
        f"last_over_time({up}[1h]) unless {up} == 1\nand on (cluster) {up} == 1",
        COLLECTOR_METRICS,
    )


COLLECTORS_DOWN: Final = Alert(
    name="EndturnCollectorsDown",
    severity=Severity.CRITICAL,
    component=Component.PIPELINE,
    enabled=has_collector,
    condition=_collectors_down,
    hold=timedelta(minutes=2),
    keep_firing=timedelta(minutes=5),
    dashboard="endturn-pipeline",
    dashboard_labels=(CLUSTER,),
    summary=f"Most Collectors{OF_CLUSTER} are down: {COUNT} answer",
    description=lambda settings: (
        "Fewer than half of a cluster's Collectors answer Prometheus, or none is scraped any "
        f"more, under a job that matches {settings.collector}. Applications keep spans and events "
        "for two minutes, then they drop them. Counters are complete again with their next "
        "export. After a gap of more than 15 minutes its events are missing from the recorded "
        "counts, and no alert includes them."
    ),
    fires_when=lambda _: (
        "fewer than half of a cluster's Collectors answer their scrape, or those that were "
        "scraped within the last day are scraped no more, so no other alert can page. Without "
        "a Collector it is quiet"
    ),
    runbook=Runbook(
        meaning=(
            "Most Collectors of a cluster are down, or Prometheus cannot reach their port 8888."
        ),
        impact=(
            "While none answers, nothing is counted and no other alert pages; traces and events "
            "are lost after two minutes. Data that the Collectors had accepted is on their disks."
        ),
        diagnosis=(
            (
                "Does Prometheus, or Thanos, answer, and are its receivers up? Without them this "
                "alert fires, too."
            ),
            RUNS,
            LOG,
            SCRAPED,
        ),
        actions=(
            RESTART,
            (
                "Out of memory beside applications: give the process more memory (in Compose "
                "`ENDTURN_COLLECTOR_MEM_LIMIT`), and then raise `ENDTURN_COLLECTOR_MEMORY_MIB` "
                "to two thirds of it and `ENDTURN_COLLECTOR_GOMEMLIMIT` to four fifths."
            ),
            (
                "Out of memory as a gateway: the same (in Compose `GATEWAY_MEM_LIMIT`, "
                "`GATEWAY_MEMORY_MIB`, `GATEWAY_GOMEMLIMIT`; in Kubernetes the limit, "
                "`ENDTURN_COLLECTOR_MEMORY_MIB` and `GOMEMLIMIT` of the StatefulSet), or fewer "
                "traces at a time: a shorter `ENDTURN_SAMPLING_WAIT`, or more gateways (`endturn "
                "plan`)."
            ),
            (
                "A cluster that was removed permanently, or was renamed: silence this alert for "
                "its `cluster` for a day. The alert covers clusters that were scraped within the "
                "last day."
            ),
        ),
        recovery=(
            'Each Collector answers: `up{job=~".*collector"}` is 1 for each `instance`. '
            "*Accepted per minute* rises, and shows what applications kept meanwhile."
        ),
    ),
    fires=(
        Firing(
            title="the only Collector does not answer its scrape",
            series=(collector_up("1x20 0x60"),),
            at=timedelta(minutes=10),
            labels={},
            value="0",
        ),
        Firing(
            title="the Collector of a Helm chart does not answer",
            series=(
                scraped_series(
                    "up", "1x20 0x60", job="otel/prod-opentelemetry-collector", instance="a:8888"
                ),
            ),
            at=timedelta(minutes=10),
            labels={},
            value="0",
        ),
        Firing(
            title="the Collectors of a Helm chart's DaemonSet do not answer",
            series=(
                scraped_series(
                    "up", "1x20 0x60", job="otel/opentelemetry-collector-agent", instance="a:8888"
                ),
            ),
            at=timedelta(minutes=10),
            labels={},
            value="0",
        ),
        Firing(
            title="the Collector of the OpenTelemetry Operator does not answer",
            series=(
                scraped_series(
                    "up", "1x20 0x60", job="otel-collector-monitoring", instance="a:8888"
                ),
            ),
            at=timedelta(minutes=10),
            labels={},
            value="0",
        ),
        Firing(
            title="two of three Collectors do not answer",
            series=(
                collector_up("1x20 0x60", instance="one:8888"),
                collector_up("1x20 0x60", instance="two:8888"),
                collector_up("1x80", instance="three:8888"),
            ),
            at=timedelta(minutes=10),
            labels={},
            value="1",
        ),
        Firing(
            title="the Collector of one cluster is no longer scraped",
            series=(
                collector_up("1x80", cluster="east"),
                collector_up("1x20 _x60", cluster="west"),
            ),
            at=timedelta(minutes=14),
            labels={"cluster": "west"},
            value="0",
        ),
        Firing(
            title="the Collector of one cluster has not been scraped for three hours",
            series=(
                collector_up("1x200", cluster="east"),
                collector_up("1x5 _x195", cluster="west"),
            ),
            at=timedelta(hours=3),
            interval=timedelta(minutes=1),
            labels={"cluster": "west"},
            value="0",
        ),
    ),
    quiet=(
        Quiet(
            title="no Collector was ever scraped: metrics come another way",
            series=(scraped_series("up", "1x60", job="prometheus", instance="localhost:9090"),),
            at=timedelta(minutes=10),
        ),
        Quiet(
            title="it answers, and another target is down",
            series=(
                scraped_series("up", "1x60", job="endturn-collector", instance="collector:8888"),
                scraped_series("up", "0x60", job="shop/agent", instance="one"),
            ),
            at=timedelta(minutes=10),
        ),
        Quiet(
            title="one of two does not answer",
            series=(
                collector_up("1x20 0x60", instance="one:8888"),
                collector_up("1x80", instance="two:8888"),
            ),
            at=timedelta(minutes=10),
        ),
        Quiet(
            title="most were removed, and the rest answer",
            series=(
                collector_up("1x20 _x60", instance="one:8888"),
                collector_up("1x20 _x60", instance="two:8888"),
                collector_up("1x80", instance="three:8888"),
            ),
            at=timedelta(minutes=14),
        ),
    ),
)


COLLECTOR_DOWN: Final = Alert(
    name="EndturnCollectorDown",
    severity=Severity.WARNING,
    component=Component.PIPELINE,
    enabled=has_collector,
    condition=_collector_down,
    hold=timedelta(minutes=2),
    keep_firing=timedelta(minutes=5),
    dashboard="endturn-pipeline",
    summary=f"The Collector at {label_value('instance')} does not answer",
    description=lambda _: (
        "One of several Collectors does not answer Prometheus, or was scraped within the last "
        "hour and no longer is: its pod or machine is gone. Others answer."
    ),
    fires_when=lambda _: (
        "one of several Collectors does not answer, or was scraped within the last hour and is gone"
    ),
    runbook=Runbook(
        meaning=(
            "One of several Collectors is down, or gone, or Prometheus cannot reach its port 8888."
        ),
        impact=(
            "A Collector beside applications: applications that send only to it are not counted, "
            "and their traces and events are lost after two minutes. A gateway behind Kafka: its "
            "undecided traces lack the spans that it held, truncated calls and all metrics are "
            "safe, and the other gateways continue after a minute. Any other gateway: nothing is "
            "lost, since its senders keep the data on disk."
        ),
        diagnosis=(
            RUNS,
            LOG,
            SCRAPED,
        ),
        actions=(
            (
                "If it was removed on purpose (a node, a smaller group): nothing. The alert ends "
                "within an hour and a quarter."
            ),
            (
                "A pod that does not come back: `kubectl -n endturn describe pod` shows the "
                "reason (no room on the node, a missing image, a volume that is still bound "
                "elsewhere)."
            ),
            RESTART,
            (
                "Out of memory: EndturnCollectorsDown says what to raise, beside applications "
                "and as a gateway."
            ),
        ),
        recovery=(
            '`up{job=~".*collector"}` is 1 for this `instance`, or has no such `instance` any '
            "more if it was removed."
        ),
    ),
    fires=(
        Firing(
            title="one of two does not answer",
            series=(
                collector_up("1x20 0x60", instance="one:8888"),
                collector_up("1x80", instance="two:8888"),
            ),
            at=timedelta(minutes=10),
            labels={"job": "collector", "instance": "one:8888"},
            value="0",
        ),
        Firing(
            title="the pod of one has been gone for half an hour",
            series=(
                collector_up("1x40 _x160", instance="endturn-gateway-0"),
                collector_up("1x200", instance="endturn-gateway-1"),
            ),
            at=timedelta(minutes=30),
            labels={"job": "collector", "instance": "endturn-gateway-0"},
            value="1",
        ),
    ),
    quiet=(
        Quiet(
            title="all of them answer, and another target is gone",
            series=(
                collector_up("1x80", instance="one:8888"),
                collector_up("1x80", instance="two:8888"),
                scraped_series("up", "1x20 _x60", job="shop/agent", instance="one"),
            ),
            at=timedelta(minutes=14),
        ),
        Quiet(
            title="none answers (another alert covers that)",
            series=(
                collector_up("1x20 0x60", instance="one:8888"),
                collector_up("1x20 0x60", instance="two:8888"),
            ),
            at=timedelta(minutes=14),
        ),
        Quiet(
            title="one was removed more than an hour ago",
            series=(
                collector_up("1x40 _x400", instance="one:8888"),
                collector_up("1x440", instance="two:8888"),
            ),
            at=timedelta(hours=1, minutes=20),
        ),
        Quiet(
            title="its pod was replaced under the same name",
            series=(
                collector_up("1x20 _x30 1x60", instance="endturn-gateway-0"),
                collector_up("1x110", instance="endturn-gateway-1"),
            ),
            at=timedelta(minutes=20),
        ),
    ),
)


ALERTS: Final = (
    COLLECTORS_DOWN,
    COLLECTOR_DOWN,
)
