"""Increments are what happened, also when Prometheus hears of it late: a real one, to which old samples are sent."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from endturn.generate.config import RuleConfig
from endturn.generate.increments import KNOWN, SEEN, Memory, increments, recording_rules, remembered
from endturn.generate.manifests import rule_files
from endturn.generate.promql import select
from endturn.generate.rules import recorded
from endturn.telemetry import indicators, schema
from tests.generate.parsed import labels, parse, selectors
from tests.support import otlp
from tests.support.processes import Prometheus

FAST = RuleConfig().faster(60)
TURNS = select(schema.TURNS)
MEMORY = Memory(interval=60, window=300, lookback=3600, known=86400, lead=120)
LABELS = {"gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5", "endturn.stop.reason": "end_turn"}


def test_the_past_is_what_was_seen() -> None:
    """Raw series are read within the window only; what lies before it comes from what was recorded then."""
    gained = increments(TURNS, MEMORY)
    assert {name for name, _ in selectors(gained.text)} == {
        TURNS.name,
        remembered(TURNS, SEEN).name,
        remembered(TURNS, KNOWN).name,
        MEMORY.watched.name,
    }
    assert f"{TURNS}[1h]" not in gained.text
    assert "last_over_time(endturn:heartbeat:seen[5m] offset 7m)" in gained.text


def test_what_is_remembered_keeps_every_label() -> None:
    """Each counter is remembered by itself: nothing is summed before it is compared."""
    for rule in recording_rules([TURNS], MEMORY):
        assert "by" not in rule["expr"]
        assert labels(parse(rule["expr"])) - {"le"} == TURNS.labels


def _send(to: str, name: str, service: str, value: int, at: float, began: float) -> None:
    def pairs(of: dict[str, str]) -> list[KeyValue]:
        return [KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in of.items()]

    point = NumberDataPoint(
        time_unix_nano=int(at * 1e9),
        start_time_unix_nano=int(began * 1e9),
        as_int=value,
        attributes=pairs(LABELS if name == schema.RESPONSES.name else {}),
    )
    cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    total = Sum(aggregation_temporality=cumulative, is_monotonic=True, data_points=[point])
    scope = ScopeMetrics(metrics=[Metric(name=name, sum=total)])
    resource = Resource(attributes=pairs({"service.name": service, "service.instance.id": "one"}))
    body = ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope])])
    assert otlp.post(f"{to}/api/v1/otlp/v1/metrics", body.SerializeToString()) == 200


@pytest.mark.stack
def test_samples_that_arrive_late_are_counted(tmp_path: Path) -> None:
    """After an outage a queue sends old samples under their old times: all events count, those of the outage too."""
    rules = tmp_path / "increments.yaml"
    rules.write_text(rule_files(FAST)["dashboards/rules/increments.yaml"])
    total = recorded(indicators.RESPONSES, FAST)
    counted = f"sum(sum_over_time({total}[5m])) / {FAST.overlap}"
    with Prometheus(tmp_path, rules=[rules], rule_query_offset="1s") as prometheus:
        began, ask = time.time(), prometheus.client.query

        def sample(at: float, value: int) -> None:
            _send(prometheus.url, schema.RESPONSES.name, "shop", value, at, began)
            _send(prometheus.url, "otelcol_process_uptime_seconds", "endturn-collector", int(at - began) + 1, at, began)

        def exported(until: str, value: int) -> float:
            deadline = time.monotonic() + 60
            while not ask(until):
                assert time.monotonic() < deadline, until
                sample(time.time(), value)
                time.sleep(0.25)
            return time.time()

        # The counter's birth is counted like any other: the heartbeat has been there for longer than the window.
        exported(f"count_over_time({remembered(select(schema.RESPONSES), SEEN)}[5m]) > 15", 0)
        cut = exported(f"{counted} >= 0", 0)
        prometheus.client.wait_for("absent(endturn:heartbeat)", timeout=60)
        back = time.time()
        for step in range(int((back - cut) * 4)):
            sample(cut + step / 4, 10 * step)
        events = 10 * int((back - cut) * 4)
        exported(f"{counted} >= {events}", events)
        # A few evaluations more: none of them counts anything again.
        seen = remembered(select(schema.RESPONSES), SEEN)
        exported(f"count_over_time(({seen} == {events})[5m:1s]) > {3 * FAST.overlap}", events)
        [after] = ask(counted)
        assert after.value == events
