"""The PromQL helpers refuse what the schema lacks, and count what happened."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from endturn.generate import manifests, promql
from endturn.generate.promql import UnknownName
from endturn.telemetry import schema
from endturn.telemetry.indicators import Count
from tests.support.processes import REPOSITORY, Prometheus
from tests.support.promtool import evaluate


def test_a_count_has_only_labels_of_its_metric() -> None:
    """Either spelling names the metric; what else the schema lacks is refused in tests/functions/promql.json."""
    with pytest.raises(UnknownName, match=r"endturn\.turns declares no label"):
        promql.select(Count(schema.TURNS, only=((schema.REASON, frozenset({"end_turn"})),)))
    assert promql.metric("endturn.turns") is promql.metric("endturn_turns_total") is schema.TURNS


@pytest.mark.stack
def test_prometheus_names_the_metrics_as_they_are_declared(tmp_path: Path) -> None:
    """All of them, pushed by OTLP; no name has a capital."""
    with Prometheus(tmp_path) as prometheus:
        exporter = OTLPMetricExporter(endpoint=f"{prometheus.url}/api/v1/otlp/v1/metrics")
        provider = MeterProvider([PeriodicExportingMetricReader(exporter)], shutdown_on_exit=False)
        meter = provider.get_meter("names")
        for each in schema.METRICS:
            if each.instrument == "counter":
                meter.create_counter(each.name, each.unit).add(1)
            else:
                meter.create_histogram(each.name, each.unit).record(1)
        provider.shutdown()
        found = prometheus.client.get("label/__name__/values")
    told = {re.sub("_(bucket|sum|count)$", "", name) for name in found if name.startswith(("endturn_", "gen_ai_"))}
    assert told == {each.prometheus for each in schema.METRICS}
    assert {name.lower() for name in told} == told


def test_both_generations_of_a_name_are_joined_before_aggregation() -> None:
    """The sum is over either name's rate, and the type that the new names carry becomes the label of the old one."""
    assert promql.rates(schema.OPERATION_DURATION, (schema.PROVIDER,), "1h", part="count") == (
        "sum by (gen_ai_provider_name) (rate(gen_ai_client_operation_duration_seconds_count[1h])"
        " or rate(gen_ai_client_inference_duration_seconds_count[1h]))"
    )
    both = promql.rates(schema.TOKEN_USAGE, (schema.TOKEN_TYPE,), "1h", 'job=~"$job"', part="sum")
    assert [name for name, _ in promql.selectors(both)] == [
        "gen_ai_client_token_usage_sum",
        "gen_ai_client_inference_operation_input_tokens_sum",
        "gen_ai_client_inference_operation_output_tokens_sum",
    ]
    assert 'label_replace(rate(gen_ai_client_inference_operation_input_tokens_sum{job=~"$job"}' in both


CASES = yaml.safe_load(Path(__file__).with_name("series.yaml").read_text())


@pytest.mark.stack
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_an_expression_gives_what_happened(case: dict[str, Any], tmp_path: Path) -> None:
    """Each row of `series.yaml`."""
    gives = [(promql.expand(expr, {}), case["at"], samples) for expr, samples in case["gives"].items()]
    evaluate(tmp_path, case["series"], gives, rules=(REPOSITORY / manifests.RULES).read_text())
