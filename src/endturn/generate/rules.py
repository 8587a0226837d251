"""The alerting rules of a configuration, and the groups in which rules are loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from endturn.generate.alerts import ALERTS
from endturn.generate.alerts.conditions import to_promql
from endturn.generate.alerts.model import Alert, AlertSettings
from endturn.generate.config import RuleConfig
from endturn.generate.queries import JOB, VARIABLES, Labels, duration
from endturn.generate.recorded_counts import INTERVAL, recording_rules

ALERTS_INTERVAL: Final = 120
"""Seconds between two evaluations of the alerts, which look back on 15 minutes or more."""
RECORDING_GROUP: Final = "endturn"
ALERTS_GROUP: Final = "endturn-alerts"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """An alert with the limits of a group of services.

    Attributes:
        limits_of: The name of the group; "" if all services have the same limits, or for the group
            of services without their own limits.
    """

    alert: Alert
    limits_of: str
    expression: str
    summary: str
    description: str
    runbook_url: str
    dashboard_url: str

    @property
    def labels(self) -> dict[str, str]:
        """The labels that the rule adds to an alert."""
        alert = self.alert
        own = {"severity": str(alert.severity), "component": str(alert.component)}
        return own | ({"limits_of": self.limits_of} if self.limits_of else {})

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of the rule."""
        names = ("summary", "description", "runbook_url", "dashboard_url")
        return {name: getattr(self, name) for name in names}

    @property
    def hold(self) -> str:
        """The time that the condition must hold before the alert fires, in Prometheus' notation."""
        return duration(int(self.alert.hold.total_seconds())) if self.alert.hold else ""

    @property
    def keep_firing(self) -> str:
        """The time that the alert keeps firing after its condition, in Prometheus' notation."""
        return duration(int(self.alert.keep_firing.total_seconds()))


def alert_rules(config: RuleConfig) -> list[AlertRule]:
    """Return the rules of every enabled alert.

    An alert has several rules if its limits differ between groups of services.
    """
    return [rule for alert in ALERTS for rule in _rules_of(alert, config)]


def _rules_of(alert: Alert, config: RuleConfig) -> Iterator[AlertRule]:
    groups = list(config.cells())
    settings = [AlertSettings(limits=group.limits, collector=config.collector) for group in groups]
    enabled = [alert.enabled(setting) for setting in settings]
    if all(enabled) and len({alert.condition(setting) for setting in settings}) == 1:
        yield _rule(alert, settings[0], config)
        return
    for group, is_enabled in zip(groups, enabled, strict=True):
        if is_enabled:
            own = AlertSettings(
                limits=group.limits, collector=config.collector, services=group.matchers
            )
            yield _rule(alert, own, config, limits_of=group.who)


def _rule(
    alert: Alert, settings: AlertSettings, config: RuleConfig, *, limits_of: str = ""
) -> AlertRule:
    variables = _dashboard_variables(alert.dashboard_labels)
    return AlertRule(
        alert=alert,
        limits_of=limits_of,
        expression=to_promql(alert.condition(settings), settings.services),
        summary=alert.summary,
        description=alert.description(settings),
        runbook_url=f"{config.runbooks}/{alert.name}.md",
        dashboard_url=f"{config.grafana}/d/{alert.dashboard}{variables}",
    )


def _dashboard_variables(labels: Labels) -> str:
    """Return the query of a link that sets a dashboard's variables to the alert's labels."""
    variable_of = {label: variable for variable, label in VARIABLES.items()}
    query = ""
    for label in labels:
        if label == JOB:  # every alert about a service has this label
            query = f"?var-job={{{{ $labels.{label} | urlquery }}}}"
            continue
        separator = "&" if query else "?"
        value = f"{separator}var-{variable_of[label]}={{{{ . | urlquery }}}}"
        query += f"{{{{ with $labels.{label} }}}}{value}{{{{ end }}}}"
    return query


def groups(config: RuleConfig) -> list[dict[str, Any]]:
    """Return the rule groups in Prometheus' form; the alerts read the results of the first."""
    return [
        {"name": RECORDING_GROUP, "interval": duration(INTERVAL), "rules": recording_rules()},
        {
            "name": ALERTS_GROUP,
            "interval": duration(ALERTS_INTERVAL),
            "rules": [_prometheus_rule(rule) for rule in alert_rules(config)],
        },
    ]


def groups_for(rule: AlertRule, config: RuleConfig) -> list[dict[str, Any]]:
    """Return the rule groups with just an alert's rule and the rules whose results it reads."""
    return [
        group | {"rules": needed}
        for group in groups(config)
        if (needed := [content for content in group["rules"] if _is_read(content, rule)])
    ]


def _is_read(content: dict[str, Any], rule: AlertRule) -> bool:
    """Return whether a rule is the alert's own, or one whose result it reads."""
    if "record" in content:
        return content["record"] in rule.expression
    name = content["alert"]
    return name == rule.alert.name or f'alertname="{name}"' in rule.expression


def _prometheus_rule(rule: AlertRule) -> dict[str, Any]:
    content: dict[str, Any] = {"alert": rule.alert.name, "expr": rule.expression}
    if rule.hold:
        content["for"] = rule.hold
    content["keep_firing_for"] = rule.keep_firing
    return content | {"labels": rule.labels, "annotations": rule.annotations}
