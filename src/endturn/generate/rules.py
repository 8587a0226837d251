"""The six recorded counts, and the rule groups that they and the alerts are loaded in."""

from __future__ import annotations

from typing import Any, Final

from endturn.generate import promql
from endturn.generate.alerts import Alert, alerts
from endturn.generate.config import RuleConfig
from endturn.generate.promql import CALL, SERVICE
from endturn.telemetry import indicators

INTERVAL: Final = 60
"""How often turns are counted, in seconds."""
ALERTS_INTERVAL: Final = 120
"""How often the alerts are evaluated: they look back on a quarter of an hour and more."""
WINDOW: Final = 300
"""What a recorded count looks back on: so each event stands in exactly `OVERLAP` of them."""
MEMORY: Final = 900
"""For how much longer telemetry may have been absent before; after that EndturnTelemetryAbsent
speaks."""
OVERLAP: Final = WINDOW // INTERVAL
COUNTS: Final = {
    "turns": indicators.TURNS,
    "turns_truncated": indicators.TRUNCATED_TURNS,
    "turns_unfinished": indicators.UNFINISHED_TURNS,
}
"""By service, provider and model; sums of these by service are recorded under `SERVICES`' names."""
SERVICES: Final = {"service_turns": "turns", "service_truncated": "turns_truncated",
                   "service_unfinished": "turns_unfinished"}  # fmt: skip
GROUP, ALERTS = "endturn", "endturn-alerts"


def name(count: str) -> str:
    """The recorded series of a count."""
    return f"endturn:{count}:count5m"


def recorded() -> list[dict[str, str]]:
    """The recording rules."""
    made = []
    for count, of in COUNTS.items():
        events = promql.growth(promql.select(of), (*SERVICE, *CALL), WINDOW, MEMORY)
        # Zero where there were turns and none of these: a share of them then has both sides.
        zero = "" if count == "turns" else f" or {name('turns')} * 0"
        made.append({"record": name(count), "expr": events + zero})
    made += [
        {"record": name(service), "expr": f"sum{promql.by(SERVICE)}({name(count)})"}
        for service, count in SERVICES.items()
    ]
    return made


def groups(config: RuleConfig) -> list[dict[str, Any]]:
    """Both rule groups; the alerts read what the first one records."""
    every, alerted = promql.duration(INTERVAL), promql.duration(ALERTS_INTERVAL)
    return [
        {"name": GROUP, "interval": every, "rules": recorded()},
        {"name": ALERTS, "interval": alerted, "rules": [_rule(alert) for alert in alerts(config)]},
    ]


def _rule(alert: Alert) -> dict[str, Any]:
    rule: dict[str, Any] = {"alert": alert.name, "expr": alert.expr}
    rule |= {"for": alert.hold} if alert.hold else {}
    rule |= {"keep_firing_for": alert.keep} if alert.keep else {}
    return rule | {"labels": labels(alert), "annotations": alert.annotations}


def labels(alert: Alert) -> dict[str, str]:
    """What an alert's rule adds.

    Its severity and, where several have its name, whose limits it asks.
    """
    return {"severity": alert.severity} | ({"limits_of": alert.who} if alert.who else {})
