"""The six recorded counts, and the rule groups that they and the alerts are loaded in."""

from __future__ import annotations

from typing import Any, Final

from endturn.generate import promql
from endturn.generate.alerts import Alert, alerts
from endturn.generate.config import RuleConfig
from endturn.generate.promql import CALL, SERVICE
from endturn.telemetry import indicators

INTERVAL: Final = 60
"""How often rules are evaluated, in seconds."""
WINDOW: Final = 300
"""What a recorded count looks back on, and one export more: so each event stands in exactly `OVERLAP` of them."""
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


def recorded(config: RuleConfig) -> list[dict[str, str]]:
    """The recording rules."""
    window = promql.duration(WINDOW + config.export)
    made = []
    for count, of in COUNTS.items():
        events = promql.number(promql.select(of), (*SERVICE, *CALL), window)
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
    interval = promql.duration(INTERVAL)
    return [
        {"name": GROUP, "interval": interval, "rules": recorded(config)},
        {"name": ALERTS, "interval": interval, "rules": [_rule(alert) for alert in alerts(config)]},
    ]


def _rule(alert: Alert) -> dict[str, Any]:
    rule: dict[str, Any] = {"alert": alert.name, "expr": alert.expr}
    rule |= {"for": alert.hold} if alert.hold else {}
    rule |= {"keep_firing_for": alert.keep} if alert.keep else {}
    return rule | {"labels": {"severity": alert.severity}, "annotations": alert.annotations}
