"""What a PromQL expression reads, and which of it nobody declares."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import promql_parser
import yaml

from endturn.generate.external_metrics import EXTERNAL_METRICS
from endturn.generate.queries import BUCKET_BOUND, CALL, INSTANCE, SERVICE
from endturn.telemetry import schema

RULES: Final = Path(__file__).parents[2] / "dashboards" / "rules" / "endturn.yaml"
WINDOWS: Final = {
    "$__range_s": "21600",
    "$__rate_interval": "4m",
    "$__interval": "5m",
    "$__range": "6h",
    "$window": "1h",
}
"""What Grafana might put in for a dashboard's times."""
EVERY_SERIES: Final = {"__name__", INSTANCE, *SERVICE}


def filled(expression: str) -> str:
    """The expression with values for a dashboard's variables."""
    for variable, window in WINDOWS.items():
        expression = expression.replace(variable, window)
    return re.sub(r"\$\w+", ".*", expression)


def selectors(expression: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Each series that an expression reads: its name, if it has one, and its matchers' labels with their values."""
    for name, matchers in _series(promql_parser.parse(filled(expression))):
        yield name, list(matchers.items())


def undeclared(expression: str) -> list[str]:
    """Metrics and labels in an expression that neither the schema, nor the rules, nor `external_metrics` declare."""
    parsed = promql_parser.parse(filled(expression))
    found = []
    for name, matchers in _series(parsed):
        metrics = _metrics(name, matchers)
        known = EVERY_SERIES.union(*metrics.values())
        found += (
            [f"{name}{{{label}}}" for label in matchers if label not in known] if metrics else [name or str(matchers)]
        )
    for node in _nodes(parsed):
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            known = EVERY_SERIES | _labels(node.expr)
            found += [f"{node.modifier}: {label}" for label in node.modifier.labels if label not in known]
    return found


def _series(parsed: Any) -> Iterator[tuple[str, dict[str, str]]]:
    for node in _nodes(parsed):
        if isinstance(node, promql_parser.VectorSelector):
            yield str(node.name or ""), {each.name: each.value for each in node.matchers.matchers}


def _metrics(name: str, matchers: Mapping[str, str]) -> dict[str, set[str]]:
    """The declared metrics that a selector reads, with their labels."""
    pattern = re.escape(name) if name else matchers["__name__"]
    return {each: labels for each, labels in DECLARED.items() if re.fullmatch(pattern, each)}


def _labels(parsed: Any) -> set[str]:
    """The labels that the series within an expression may have, and those that it adds."""
    labels = {each for series in _series(parsed) for labels in _metrics(*series).values() for each in labels}
    for node in _nodes(parsed):
        if isinstance(node, promql_parser.Call) and node.func.name == "label_replace":
            labels.add(node.args[1].val)
    return labels


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        if (child := getattr(node, name, None)) is not None:
            yield from _nodes(child)
    for child in getattr(node, "args", None) or ():
        yield from _nodes(child)


def _declared() -> dict[str, set[str]]:
    """The names of every metric, with the labels of its series."""
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    names: dict[str, set[str]] = {rule["record"]: set(CALL) for rule in rules if "record" in rule}
    for metric in schema.METRICS:
        labels = {attribute.label for attribute in metric.attributes}
        # A later name of the conventions says what was a label; `label_replace` adds it.
        generations = {metric, *(new for new, _ in schema.SUCCESSORS.get(metric, ()))}
        for each in generations:
            if each.instrument == "histogram":
                names |= {f"{each.prometheus}_{part}": {BUCKET_BOUND, *labels} for part in ("bucket", "sum", "count")}
            else:
                names[each.prometheus] = labels
    for external in EXTERNAL_METRICS:
        for name in external.names:
            names[name] = {*names.get(name, ()), *external.labels}
    return names


DECLARED: Final = _declared()
