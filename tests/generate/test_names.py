"""Every metric and label that generated queries read is declared, by the schema, the rules or `external_metrics`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn.generate.external_metrics import EXTERNAL_METRICS
from tests.support.processes import REPOSITORY
from tests.support.promql import DECLARED, selectors, undeclared

DASHBOARDS = REPOSITORY / "dashboards"


def expressions() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each query: of panels, annotations and rules."""
    for file in sorted(DASHBOARDS.glob("*.json")):
        board = json.loads(file.read_text())
        panels = [inner for panel in board["panels"] for inner in (panel, *panel.get("panels", []))]
        annotations = [{"id": each["name"], "targets": [each["target"]]} for each in board["annotations"]["list"]]
        for panel in (*panels, *annotations):
            for target in panel.get("targets", []):
                if target.get("datasource", {}).get("type", "prometheus") == "prometheus":
                    yield f"{file.stem}-{panel['id']}-{target['refId']}", target["expr"]
    for name in ("rules/endturn.yaml", "kubernetes/prometheusrule.yaml"):
        content: dict[str, Any] = yaml.safe_load((DASHBOARDS / name).read_text())
        for group in content.get("spec", content)["groups"]:
            for number, rule in enumerate(group["rules"]):
                yield f"{Path(name).stem}-{group['name']}-{number}", rule["expr"]


EXPRESSIONS = dict(expressions())


def test_there_are_queries_of_every_kind() -> None:
    assert len(EXPRESSIONS) > 150
    assert {name.partition("-")[0] for name in EXPRESSIONS} >= {"overview", "pipeline", "endturn", "prometheusrule"}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_query_reads_declared_names(name: str) -> None:
    """Its metrics, the labels of its matchers, and the labels that it groups by."""
    assert undeclared(EXPRESSIONS[name]) == []


@pytest.mark.parametrize("name", [name for name in EXPRESSIONS if name.startswith("pipeline-")])
def test_a_query_reads_every_spelling_of_a_collectors_metric(name: str) -> None:
    """The Collector's configuration decides whether its Prometheus reader adds units and types to names."""
    patterns = [dict(matchers).get("__name__", re.escape(read)) for read, matchers in selectors(EXPRESSIONS[name])]
    for metric in EXTERNAL_METRICS:
        read = {each for each in metric.names if any(re.fullmatch(pattern, each) for pattern in patterns)}
        assert read in (set(), set(metric.names))


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("sum(endturn_turn_total)", ["endturn_turn_total"]),
        ('sum(endturn_turns_total{agent="a"})', ["endturn_turns_total{agent}"]),
        ('rate(otelcol_exporter_sent_spans{recevier="a"}[5m])', ["otelcol_exporter_sent_spans{recevier}"]),
        ("sum(otelcol_exporter_sent_spam)", ["otelcol_exporter_sent_spam"]),
        ("sum by (endturn_stop_reason) (endturn_turns_total)", ["by (endturn_stop_reason): endturn_stop_reason"]),
        ("topk by (modle) (1, endturn_turns_total > 0)", ["by (modle): modle"]),
        ("sum_over_time(endturn:service_turn:count5m[1h])", ["endturn:service_turn:count5m"]),
        ('{__name__=~"otelcol_exporter_sent_spam(_total)?"}', ["{'__name__': 'otelcol_exporter_sent_spam(_total)?'}"]),
    ],
)
def test_finds_an_undeclared_name(expression: str, wrong: list[str]) -> None:
    assert undeclared(expression) == wrong


def test_later_names_of_the_conventions_are_declared() -> None:
    assert "gen_ai_client_inference_operation_input_tokens_sum" in DECLARED
