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
    """Either spelling names the metric."""
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


# --- Parts of queries -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1s"), (90, "90s"), (300, "5m"), (315, "5m15s"), (5400, "90m"), (3600, "1h"), (86400, "1d")],
)
def test_writes_a_duration(seconds: int, text: str) -> None:
    assert promql.duration(seconds) == text


@pytest.mark.parametrize("seconds", [0, -1])
def test_rejects_a_duration_below_one_second(seconds: int) -> None:
    with pytest.raises(ValueError, match=f"at least one second, not {seconds}"):
        promql.duration(seconds)


def test_an_unknown_metric_has_a_suggestion() -> None:
    with pytest.raises(UnknownName, match=r"no metric 'endturn\.turnz'; the nearest is 'endturn\.turns'"):
        promql.metric("endturn.turnz")


def test_rejects_an_attribute_that_is_no_label() -> None:
    attribute = schema.Attribute(key="endturn.turn.outcom", type="string", brief="")
    with pytest.raises(UnknownName, match="no label 'endturn_turn_outcom'"):
        promql.label(attribute)


def test_a_histogram_is_selected_by_part() -> None:
    with pytest.raises(ValueError, match="is a histogram"):
        promql.select(schema.TURN_DURATION)


def test_a_counter_has_no_parts() -> None:
    with pytest.raises(ValueError, match="is a counter"):
        promql.select(schema.TURNS, part="bucket")


@pytest.mark.parametrize(
    ("attribute", "values", "never", "message"),
    [
        (schema.REASON, ["max_token"], False, "declares no value 'max_token'; the nearest is 'max_tokens'"),
        (schema.COMPLETE, ["yes"], True, "declares no value 'yes'"),
    ],
)
def test_rejects_values_that_the_schema_does_not_declare(
    attribute: schema.Attribute, values: list[str], never: bool, message: str
) -> None:
    with pytest.raises(UnknownName, match=message):
        promql.matching(attribute, values, never=never)


@pytest.mark.parametrize(
    ("attribute", "values", "never", "matcher"),
    [
        (schema.TRUNCATED, ["true"], False, 'endturn_turn_truncated="true"'),
        (schema.OUTCOME, ["stopped", "cancelled"], True, 'endturn_turn_outcome!~"cancelled|stopped"'),
        (schema.PROVIDER, ["gcp.gemini"], False, 'gen_ai_provider_name="gcp.gemini"'),
        (schema.PROVIDER, ["openai", "x.ai"], False, 'gen_ai_provider_name=~"openai|x\\\\.ai"'),
    ],
)
def test_writes_a_label_matcher(attribute: schema.Attribute, values: list[str], never: bool, matcher: str) -> None:
    assert promql.matching(attribute, values, never=never) == matcher
