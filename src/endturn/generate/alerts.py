"""The alerts of `alerts.yaml`, filled in with a configuration, and their tests for promtool."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote_plus

import yaml

from endturn.generate import promql
from endturn.generate.config import Cell, Limits, RuleConfig
from endturn.generate.promql import SCOPES, SERVICE
from endturn.telemetry import schema

VARIABLES: Final[Mapping[str, str]] = {
    "job": "job",
    "deployment_environment_name": "environment",
    "cluster": "cluster",
    schema.PROVIDER.label: "provider",
    schema.REQUEST_MODEL.label: "model",
}
"""The dashboards' variables, by the label that each one filters."""
OTHERS: Final = {
    "sent": '__name__=~"otelcol_exporter_sent_(spans|metric_points|log_records)(_total)?"',
    "written": '__name__=~"otelcol_exporter_sent_spans(_total)?",exporter=~"kafka/.+"',
    "read": '__name__=~"otelcol_receiver_accepted_spans(_total)?",receiver=~"kafka/.+"',
    "fetched": '__name__=~"otelcol_kafka_receiver_messages(_total)?"',
    "losses": '__name__=~"otelcol_(exporter_(send|enqueue)_failed|receiver_refused)_(spans'
              '|metric_points|log_records)'
              '(_total)?"',
    # Without `error` it counts what was added up.
    "limited": '__name__=~"otelcol_deltatocumulative_datapoints(_total)?",error="limit"',
    "drops": '__name__=~"otel_sdk_(processor_(span|log)_processed|exporter_(span'
             '|log)_exported)_total",error_type!=""',
}  # fmt: skip
"""What selects counters of others: of a Collector, and of an SDK (`drops`)."""
WHO: Final = "{{ $labels.job }}{{ with $labels.deployment_environment_name }} in {{ . }}{{ end }}"
"""Whom an alert is about, in its summary."""
EXAMPLE: Final = {"job": "shop/agent", "instance": "one", "gen_ai_provider_name": "openai",
                  "gen_ai_request_model": "gpt-5"}  # fmt: skip
"""Labels of an example's series, where it says no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert rule.

    Durations are as Prometheus writes them; `fires` and `quiet` are the row's examples.

    Attributes:
        who: the services that it is about, where the configuration asks them something of their
            own; "" for all others.
    """

    name: str
    who: str
    severity: str
    expr: str
    hold: str
    keep: str
    dashboard: str
    annotations: Mapping[str, str]
    meaning: str
    impact: str
    look: tuple[str, ...]
    act: tuple[str, ...]
    fires: tuple[Mapping[str, Any], ...]
    quiet: tuple[Mapping[str, Any], ...]


def alerts(config: RuleConfig) -> list[Alert]:
    """All of them, the central one first.

    One of the same name for each group of services that is asked something else.

    What the configuration switches off is left out.
    """
    return [alert for row in _rows() for alert in _of(row, config)]


@cache
def _rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = yaml.safe_load(
        files(__package__).joinpath("alerts.yaml").read_text(encoding="utf-8")
    )
    return rows


def _of(row: Mapping[str, Any], config: RuleConfig) -> Iterator[Alert]:
    """The alerts that a row is: one, where all services are asked the same."""
    every = [*config.cells()]
    asked = [cell for cell in every if _is_on(row, cell.limits, config)]
    alike = {promql.expand(row["expr"], _values(cell, config)) for cell in asked}
    if len(asked) == len(every) and len(alike) == 1:
        asked = [asked[0]._replace(who="", where=())]
    for cell in asked:
        yield _alert(row, cell, config)


def _alert(row: Mapping[str, Any], cell: Cell, config: RuleConfig) -> Alert:
    values = _values(cell, config)
    links = {
        "runbook_url": f"{config.runbooks}/{row['name']}.md",
        "dashboard_url": f"{config.grafana}/d/{row['dashboard']}{_chosen(row['link'])}",
    }
    said: dict[str, Any] = {name: tuple(row[name]) for name in ("look", "act", "fires", "quiet")}
    for name in ("name", "severity", "hold", "keep", "dashboard", "meaning", "impact"):
        said[name] = row.get(name, "")
    return Alert(
        who=cell.who,
        expr=promql.expand(row["expr"], values, cell.where),
        annotations={key: promql.expand(row[key], values) for key in ("summary", "description")}
        | links,
        **said,
    )


def _is_on(row: Mapping[str, Any], limits: Limits, config: RuleConfig) -> bool:
    switch = row["switch"]
    return bool(config.collector if switch == "collector" else getattr(limits, switch))


def _values(cell: Cell, config: RuleConfig) -> dict[str, str]:
    """What expressions and texts are filled in with."""
    return cell.limits.values | {
        "collector": config.collector,
        "service": ", ".join(SERVICE),
        **{
            name: of if name == "drops" else f'{of},job=~"{config.collector}"'
            for name, of in OTHERS.items()
        },
        "seen": collectors(config),
        "who": WHO,
    }


def collectors(config: RuleConfig) -> str:
    """Whether each Collector answers its scrape; nothing where there is none."""
    return f'up{{job=~"{config.collector}"}}' if config.collector else ""


def _chosen(scope: str) -> str:
    """The part of a link that sets the dashboard's variables to the alert's labels.

    Of several, `job` it always has.
    """
    sets = ""
    for name in map(promql.label, SCOPES.get(scope, (scope,))):
        if name == promql.JOB:
            sets = f"?var-job={{{{ $labels.{name} | urlquery }}}}"
        else:
            mark = "&" if sets else "?"
            sets += (
                f"{{{{ with $labels.{name} }}}}"
                f"{mark}var-{VARIABLES[name]}={{{{ . | urlquery }}}}{{{{ end }}}}"
            )
    return sets


# --- Tests for promtool ---------------------------------------------------------------------------


def tests(declared: list[Alert]) -> list[dict[str, Any]]:
    """Each example as a test.

    The alert fires as it says, with its annotations filled in, or does not.
    """
    return [
        _test(alert, example, fires)
        for alert in declared
        for examples, fires in ((alert.fires, True), (alert.quiet, False))
        for example in examples
    ]


def _test(alert: Alert, example: Mapping[str, Any], fires: bool) -> dict[str, Any]:
    looked: dict[str, Any] = {"alertname": alert.name, "eval_time": example["at"]}
    if fires:
        labels = {"severity": alert.severity, **example["labels"]}
        looked["exp_alerts"] = [{"exp_labels": labels, "exp_annotations": shown(alert, example)}]
    return {
        "name": f"{alert.name} {'fires' if fires else 'is quiet'}: {example['says']}",
        "interval": example.get("every", "15s"),
        "input_series": [
            {"series": _series(name), "values": values}
            for name, values in example["series"].items()
        ],
        "alert_rule_test": [looked],
    }


def _series(text: str) -> str:
    """A series with the labels that an example leaves out.

    Those of the Collector and of targets it says itself.
    """
    name, _, inner = text.partition("{")
    if name.startswith("otelcol_") or name == "up":
        return text
    said = inner.rstrip("}")
    carried = {
        "job",
        "instance",
        *(a.label for m in schema.METRICS if m.prometheus == name for a in m.attributes),
    }
    added = [
        f'{key}="{value}"' for key, value in EXAMPLE.items() if key in carried and key not in said
    ]
    return f"{name}{{{','.join((*filter(None, [said]), *added))}}}"


def shown(alert: Alert, example: Mapping[str, Any]) -> dict[str, str]:
    """The annotations as Prometheus fills them in for an example that fires."""
    labels = example["labels"]

    def value(found: re.Match[str]) -> str:
        text = str(labels.get(found[1], "")) if found[1] else str(example["shows"])
        return quote_plus(text) if found[2] == "urlquery" else text

    def block(found: re.Match[str]) -> str:
        there = str(labels.get(found[1], ""))
        filled = found[2].replace("{{ . | urlquery }}", quote_plus(there)).replace("{{ . }}", there)
        return filled if there else ""

    def fill(text: str) -> str:
        text = re.sub(r"\{\{ with \$labels\.(\w+) \}\}(.*?)\{\{ end \}\}", block, text)
        return re.sub(r"\{\{ \$(?:labels\.(\w+)|value)(?: \| (\w+)[^}]*)? \}\}", value, text)

    return {key: fill(text) for key, text in alert.annotations.items()}
