"""The PromQL helpers reject names that the schema lacks, and count events exactly."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from endturn.generate import manifests, queries
from endturn.generate.queries import HistogramPart, Matcher, Queries
from endturn.telemetry import INDICATORS, Count, schema
from tests.support.processes import REPOSITORY, Prometheus
from tests.support.promql import selectors
from tests.support.promtool import evaluate

JOB = (queries.JOB,)
RESPONSES = INDICATORS["responses"].count


# --- Names --------------------------------------------------------------------------------------------------------


@pytest.mark.stack
def test_prometheus_names_the_metrics_as_they_are_declared(tmp_path: Path) -> None:
    """All metrics, pushed by OTLP; no name has a capital."""
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
    """The sum is over both names' rates, and the type in the new names becomes the label of the old one."""
    assert Queries().rate(schema.OPERATION_DURATION, HistogramPart.COUNT, by=(schema.PROVIDER.label,), over="1h") == (
        "sum by (gen_ai_provider_name) (rate(gen_ai_client_operation_duration_seconds_count[1h])"
        " or rate(gen_ai_client_inference_duration_seconds_count[1h]))"
    )
    both = Queries(queries.variable_matchers(["job"])).rate(
        schema.TOKEN_USAGE, HistogramPart.SUM, by=(schema.TOKEN_TYPE.label,), over="1h"
    )
    assert [name for name, _ in selectors(both)] == [
        "gen_ai_client_token_usage_sum",
        "gen_ai_client_inference_operation_input_tokens_sum",
        "gen_ai_client_inference_operation_output_tokens_sum",
    ]
    assert 'label_replace(rate(gen_ai_client_inference_operation_input_tokens_sum{job=~"$job"}' in both


def test_a_condition_on_what_a_later_name_says_selects_names() -> None:
    output = queries.has_value(schema.TOKEN_TYPE, "output")
    rate = Queries().rate(schema.TOKEN_USAGE, HistogramPart.SUM, output, over="1h")
    assert list(selectors(rate)) == [
        ("gen_ai_client_token_usage_sum", [("gen_ai_token_type", "output")]),
        ("gen_ai_client_inference_operation_output_tokens_sum", []),
    ]


# --- What expressions give ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    """Series in promtool's notation, a sample each 15 seconds, and the result of an expression at a time."""

    at: str
    series: Mapping[str, str]
    expression: str
    gives: Mapping[str, float]


RECORDED_TURNS = "round(sum_over_time(endturn:service_turns:count5m[2h]) / 5)"
CASES = {
    "a number is exact whatever the counter's life, as long as its id is its own": Case(
        at="100m",
        series={
            'endturn_responses_total{job="born with zero, exported once more, and gone"}': "_x20 0 3 _x200",
            'endturn_responses_total{job="three, then none for long"}': "0 3x400",
            'endturn_responses_total{job="one every minute"}': "0 1x3 2x3 3x3 4x3 5x3 6x400",
            'endturn_responses_total{job="a gap of minutes, in which two came"}': "0 4x20 _x60 6x300",
            'endturn_responses_total{job="an old one, to which nothing is added"}': "500x400",
            'endturn_responses_total{job="a process after the other, each with its own series"}': "0 5x20 _x380",
        },
        expression=Queries().events(RESPONSES, by=JOB, over="2h"),
        gives={
            '{job="born with zero, exported once more, and gone"}': 3,
            '{job="three, then none for long"}': 3,
            '{job="one every minute"}': 6,
            '{job="a gap of minutes, in which two came"}': 6,
            '{job="an old one, to which nothing is added"}': 0,
            '{job="a process after the other, each with its own series"}': 5,
        },
    ),
    "a counter that starts anew under its id counts what came after, and loses nothing of before": Case(
        at="100m",
        series={"endturn_responses_total": "0 1x59 2x59 0x100 4x179"},
        expression=f"round({Queries().events(RESPONSES, over='2h')})",
        gives={"{}": 6},
    ),
    "an event is in one step and one sample more": Case(
        at="100m",
        series={"endturn_responses_total": "0x30 7x369"},  # at 7 minutes and 45 seconds
        expression=f"sum_over_time(({Queries().events(RESPONSES, over='1m15s')})[100m:1m])",
        gives={"{}": 7},
    ),
    "an event is in five counts of five minutes and one sample more": Case(
        at="100m",
        series={"endturn_responses_total": "0x30 7x369"},
        expression=f"sum_over_time(({Queries().events(RESPONSES, over='5m15s')})[100m:1m])",
        gives={"{}": 35},
    ),
    "a share is zero where nothing bad happened, and nothing where nothing did; never NaN": Case(
        at="100m",
        series={
            'endturn_responses_total{job="half",endturn_stop_reason="max_tokens"}': "0+1x400",
            'endturn_responses_total{job="half",endturn_stop_reason="end_turn"}': "0+1x400",
            'endturn_responses_total{job="fine",endturn_stop_reason="end_turn"}': "0+1x400",
            'endturn_responses_total{job="idle",endturn_stop_reason="end_turn"}': "7x400",
        },
        expression=Queries().ratio(INDICATORS["truncation"], by=JOB, over="1h"),
        gives={'{job="half"}': 0.5, '{job="fine"}': 0},
    ),
    "losses of a counter that is born with its first loss are counted, of one that is seen late they are not": Case(
        at="100m",
        series={
            'up{job="collector",instance="here all the time"}': "1x400",
            'otelcol_exporter_send_failed_spans_total{instance="here all the time"}': "_x396 7 7 7 9",
            'otelcol_exporter_send_failed_spans_total{instance="seen late"}': "_x396 500 500 500 501",
            'up{job="collector",instance="seen late"}': "_x396 1x3",
        },
        expression=queries.losses(
            "otelcol_exporter_send_failed_spans_total",
            by=(queries.INSTANCE,),
            over="5m",
            observed='up{job="collector"}',
            on=(queries.INSTANCE,),
        ),
        gives={'{instance="here all the time"}': 9},
    ),
    "each turn is in five recorded counts, whatever gaps there are": Case(
        at="2h",
        series={
            f'endturn_turns_total{{job="{job}",endturn_turn_outcome="completed"}}': values
            for job, values in {
                "telemetry without a gap": "0x40 0+10x40 400x60",
                "a gap of three minutes": "0x40 _x12 400x90",
                "a gap of nearly ten minutes": "0x40 _x38 400x90",
                "a gap of twenty, which is a new beginning": "7x40 _x80 400x90",
                "a process that ends at once": "0 7 _x100",
                "a first value that had no zero before it": "_x3 7x100",
                "an id that begins anew": "0+10x40 400x19 0+10x10 100x60",
                "an id that comes as far again": "0+12x40 480x20 0 0 0+12x40 480x60",
            }.items()
        },
        expression=RECORDED_TURNS,
        gives={
            '{job="telemetry without a gap"}': 400,
            '{job="a gap of three minutes"}': 400,
            '{job="a gap of nearly ten minutes"}': 400,
            '{job="a gap of twenty, which is a new beginning"}': 0,
            '{job="a process that ends at once"}': 7,
            '{job="a first value that had no zero before it"}': 0,
            '{job="an id that begins anew"}': 500,
            '{job="an id that comes as far again"}': 960,
        },
    ),
    "but two in a hundred of an id that begins anew after a gap: `increase` sees no zero in its window": Case(
        at="2h",
        series={'endturn_turns_total{job="a",endturn_turn_outcome="completed"}': "500x40 _x6 0+10x20 200x60"},
        expression="round(sum_over_time(endturn:service_turns:count5m[2h]) / 5, 10)",
        gives={'{job="a"}': 200},
    ),
}


@pytest.mark.stack
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_an_expression_gives_what_happened(case: Case, tmp_path: Path) -> None:
    rules = (REPOSITORY / manifests.RULES).read_text()
    evaluate(tmp_path, case.series, [(case.expression, case.at, case.gives)], rules=rules)


# --- Parts of queries ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1s"), (90, "90s"), (300, "5m"), (315, "5m15s"), (5400, "90m"), (3600, "1h"), (86400, "1d")],
)
def test_writes_a_duration(seconds: int, text: str) -> None:
    assert queries.duration(seconds) == text


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a duration of nothing": (lambda: queries.duration(0), "at least one second, not 0"),
    "a duration below it": (lambda: queries.duration(-1), "at least one second, not -1"),
    "a value that the schema does not declare": (
        lambda: queries.has_value(schema.REASON, "max_token"),
        r"'endturn\.stop\.reason' has no value 'max_token'; it has: .*max_tokens",
    ),
    "a boolean's value": (
        lambda: queries.lacks_value(schema.COMPLETE, "yes"),
        "has no value 'yes'; it has: true, false",
    ),
    "an attribute that the metric lacks": (
        lambda: Queries().counter(Count(schema.TURNS, only=((schema.REASON, frozenset({"end_turn"})),))),
        r"'endturn\.turns' has no attribute 'endturn\.stop\.reason'",
    ),
    "a part of a counter": (
        lambda: Queries().histogram(schema.TURNS, HistogramPart.BUCKET),
        r"'endturn\.turns' is a counter, which has no bucket",
    ),
    "a share of a number": (lambda: Queries().ratio(INDICATORS["turns"]), "'Turns' is a number, not a share"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_rejects_names_that_the_schema_does_not_declare(name: str) -> None:
    build, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message):
        build()


def test_counts_the_values_of_a_histogram() -> None:
    assert Queries().counter(Count(schema.TURN_OUTPUT)) == "endturn_turn_output_count"


@pytest.mark.parametrize(
    ("matcher", "text"),
    [
        (queries.has_value(schema.TRUNCATED, "true"), 'endturn_turn_truncated="true"'),
        (queries.lacks_value(schema.OUTCOME, "stopped", "cancelled"), 'endturn_turn_outcome!~"cancelled|stopped"'),
        (queries.has_value(schema.PROVIDER, "gcp.gemini"), 'gen_ai_provider_name="gcp.gemini"'),
        (queries.has_value(schema.PROVIDER, "openai", "x.ai"), 'gen_ai_provider_name=~"openai|x\\\\.ai"'),
        (queries.is_set(schema.ERROR_TYPE), 'error_type!=""'),
    ],
)
def test_writes_a_label_matcher(matcher: Matcher, text: str) -> None:
    assert str(matcher) == text
