"""The alerts' examples as tests for promtool."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from urllib.parse import quote_plus

from endturn.generate.alerts.model import Firing, Quiet
from endturn.generate.rules import AlertRule


def rule_tests(rules: Iterable[AlertRule]) -> list[dict[str, Any]]:
    """Return a test for each example: the alert fires with its annotations, or is quiet."""
    return [_rule_test(rule, example) for rule in rules for example in rule.alert.examples]


def _rule_test(rule: AlertRule, example: Firing | Quiet) -> dict[str, Any]:
    name = rule.alert.name
    expected: dict[str, Any] = {"alertname": name, "eval_time": _duration(example.at)}
    if isinstance(example, Firing):
        expected["exp_alerts"] = [
            {
                "exp_labels": {**rule.labels, **example.labels},
                "exp_annotations": filled_annotations(rule, example),
            }
        ]
    verb = "fires" if isinstance(example, Firing) else "is quiet"
    return {
        "name": f"{name} {verb}: {example.title}",
        "interval": _duration(example.interval),
        "input_series": [
            {"series": str(series), "values": series.values} for series in example.series
        ],
        "alert_rule_test": [expected],
    }


def _duration(length: timedelta) -> str:
    minutes, seconds = divmod(int(length.total_seconds()), 60)
    units = ((minutes // 60, "h"), (minutes % 60, "m"), (seconds, "s"))
    return "".join(f"{number}{unit}" for number, unit in units if number)


def filled_annotations(rule: AlertRule, example: Firing) -> dict[str, str]:
    """Return the annotations with an example's labels and value, as Prometheus fills them in."""

    def value(template: re.Match[str]) -> str:
        text = example.labels.get(template[1], "") if template[1] else example.value
        return quote_plus(text) if template[2] == "urlquery" else text

    def block(template: re.Match[str]) -> str:
        text = example.labels.get(template[1], "")
        content = template[2].replace("{{ . | urlquery }}", quote_plus(text))
        return content.replace("{{ . }}", text) if text else ""

    def fill(text: str) -> str:
        text = re.sub(r"\{\{ with \$labels\.(\w+) \}\}(.*?)\{\{ end \}\}", block, text)
        return re.sub(r"\{\{ \$(?:labels\.(\w+)|value)(?: \| (\w+)[^}]*)? \}\}", value, text)

    return {name: fill(text) for name, text in rule.annotations.items()}
