"""What an operator of a fleet sees: the panels of the Pipeline dashboard and the alerts, asked of the whole ring."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from itertools import pairwise

from tests.support import faster
from tests.support.fleet import TIMES
from tests.support.processes import REPOSITORY, PrometheusClient, Webhook
from tests.support.searches import EVERYTHING, filled

Labels = frozenset[tuple[str, str]]
OWN = {"tenant_id", "receive", "rule"}
"""Labels that Thanos adds to all that it holds."""
PANELS = {
    panel["title"]: panel["targets"][:1] if panel["type"] == "table" else panel["targets"]
    for row in json.loads((REPOSITORY / "dashboards" / "pipeline.json").read_text())["panels"]
    for panel in (row, *row.get("panels", []))
    if "targets" in panel
}


def asked(text: str, *, seconds: int = 300) -> str:
    """The query as Grafana would send it, of a time range that long."""
    values = EVERYTHING | {"job": ".+", "window": "5m", "__rate_interval": "30s", "__interval": "5s"}
    return filled(text, values | {"__range": f"{seconds}s", "__range_s": f"{seconds}", "__interval_ms": "5000"})


def shown(client: PrometheusClient, title: str, legend: str, *, since: float, lately: float = 1) -> float:
    """The most that a panel of the Pipeline dashboard has shown lately by this name; 0 where it shows nothing.

    Its query is on the clock of the rules, its time range begins at `since`. A table has no names: its first column.
    """
    now = time.time()
    most = [0.0]
    for target in PANELS[title]:
        text = asked(faster.expression(target["expr"], TIMES), seconds=int(now - since) + 1)
        name = target.get("legendFormat", "{{job}}")
        for series in client.query_range(text, start=now - lately, end=now, step=1):
            if _named(name, series.labels) == legend:
                most += [value for _, value in series.points]
    return max(most)


def _named(name: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), name)


def fired(client: PrometheusClient, since: float) -> set[Labels]:
    """The alerts that have fired since then, by their labels: what the rules have recorded of themselves."""
    found = client.query(f'last_over_time(ALERTS{{alertstate="firing"}}[{time.time() - since:.0f}s])')
    return {frozenset(each.labels.items()) for each in found}


def told(webhook: Webhook, since: float) -> set[Labels]:
    """The alerts that Alertmanager has sent on that began to fire after then."""
    return {
        frozenset(alert["labels"].items())
        for alert in webhook.alerts
        if datetime.fromisoformat(alert["startsAt"]).timestamp() > since
    }


def total(client: PrometheusClient, series: str, since: float) -> float:
    """What counters have come to since then, also those that began again at zero."""
    every = client.query(f"{series}[{int(time.time() - since) + 1}s]")
    steps = [step for each in every for step in pairwise([0.0, *(value for _, value in each.points)])]
    return sum(new - old if new >= old else new for old, new in steps)


def sampled(client: PrometheusClient, series: str, since: float) -> list[float]:
    """When there are samples."""
    return sorted(
        when for each in client.query(f"{series}[{int(time.time() - since) + 1}s]") for when, _ in each.points
    )


def firing(client: PrometheusClient, *, pending: bool = False) -> set[Labels]:
    """The alerts that fire, or also those that are about to, by their labels. Thanos spells the key with a capital."""
    [alerts] = client.get("alerts").values()
    return {
        frozenset((key, value) for key, value in alert["labels"].items() if key not in OWN)
        for alert in alerts or []
        if pending or alert["state"] == "firing"
    }
