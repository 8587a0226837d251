"""The PromQL helpers refuse what the schema lacks, and count what happened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from endturn.errors import UsageError
from endturn.generate import promql
from endturn.generate.promql import UnknownName
from endturn.telemetry import schema
from endturn.telemetry.indicators import Count
from endturn.telemetry.schema import Attribute
from tests.support.processes import Prometheus
from tests.support.promtool import evaluate


def test_what_the_schema_lacks_is_refused_with_the_nearest_name() -> None:
    """Metrics in either spelling, labels, those of a metric, values of a closed set, labels to sum by."""
    with pytest.raises(UnknownName, match=r"no metric 'endturn\.turnz'; the nearest is 'endturn\.turns'"):
        promql.metric("endturn.turnz")
    with pytest.raises(UnknownName, match="nearest is 'endturn_turns_total'"):
        promql.metric("endturn_turn_total")
    with pytest.raises(UnknownName, match="no label 'endturn_turn_outcom'"):
        promql.label(Attribute("endturn.turn.outcom", "string", ""))
    with pytest.raises(UnknownName, match=r"endturn\.turns declares no label"):
        promql.select(Count(schema.TURNS, only=((schema.REASON, frozenset({"end_turn"})),)))
    with pytest.raises(UnknownName, match="declares no value 'max_token'; the nearest is 'max_tokens'"):
        promql.matching(schema.REASON, ["max_token"])
    with pytest.raises(UnknownName, match="declares no value 'yes'"):
        promql.matching(schema.COMPLETE, ["yes"], never=True)


def test_both_spellings_of_a_name_are_the_same() -> None:
    """OpenTelemetry's and Prometheus'."""
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


def test_a_histogram_is_read_by_its_parts() -> None:
    """A histogram has no series of its own name, and a counter has no parts."""
    with pytest.raises(UsageError, match="is a histogram"):
        promql.select(schema.TURN_DURATION)
    with pytest.raises(UsageError, match="is a counter"):
        promql.select(schema.TURNS, part="bucket")
    assert promql.select(schema.TURN_DURATION, part="bucket") == "endturn_turn_duration_seconds_bucket"


@pytest.mark.parametrize(
    ("attribute", "values", "never", "written"),
    [
        (schema.TRUNCATED, ["true"], False, 'endturn_turn_truncated="true"'),
        (schema.OUTCOME, ["stopped", "cancelled"], True, 'endturn_turn_outcome!~"cancelled|stopped"'),
        (schema.PROVIDER, ["gcp.gemini"], False, 'gen_ai_provider_name="gcp.gemini"'),
        (schema.PROVIDER, ["openai", "x.ai"], False, 'gen_ai_provider_name=~"openai|x\\\\.ai"'),
    ],
)
def test_conditions_are_quoted(attribute: Attribute, values: list[str], never: bool, written: str) -> None:
    """With the right operator and escapes."""
    assert promql.matching(attribute, values, never=never) == written


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(1, "1s"), (90, "90s"), (300, "5m"), (315, "5m15s"), (5400, "90m"), (3600, "1h"), (86400, "1d")],
)
def test_durations(seconds: int, written: str) -> None:
    """In the largest unit that fits."""
    assert promql.duration(seconds) == written
    with pytest.raises(UsageError):
        promql.duration(-seconds)


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


# --- What the forms count ----------------------------------------------------------------------------------------

RESPONSES = promql.select(schema.RESPONSES)
FINE = {
    "born with zero, exported once more, and gone": ("_x20 0 3 _x200", 3),
    "three, then none for long": ("0 3x400", 3),
    "one every minute": ("0 1x3 2x3 3x3 4x3 5x3 6x400", 6),
    "a gap of minutes, in which two came": ("0 4x20 _x60 6x300", 6),
    "an old one, to which nothing is added": ("500x400", 0),
    "a process after the other, each with its own series": ("0 5x20 _x380", 5),
}
"""A counter's life, a sample each 15 seconds for 100 minutes, and how many events it shows."""


@pytest.mark.stack
@pytest.mark.parametrize("says", FINE)
def test_a_number_is_exact(says: str, tmp_path: Path) -> None:
    """Whatever the counter's life, as long as its id is its own."""
    values, events = FINE[says]
    number = promql.number(RESPONSES, ("job",), "2h")
    evaluate(tmp_path, {'endturn_responses_total{job="a"}': values}, [(number, "100m", {'{job="a"}': events})])


@pytest.mark.stack
def test_an_id_that_is_used_again_is_increases_guess(tmp_path: Path) -> None:
    """A counter that starts anew counts what came after, and loses nothing of before."""
    number = f"round({promql.number(RESPONSES, (), '2h')})"
    evaluate(tmp_path, {"endturn_responses_total": "0 1x59 2x59 0x100 4x179"}, [(number, "100m", {"{}": 6})])


@pytest.mark.stack
def test_each_event_is_in_one_step_and_in_five_recorded_counts(tmp_path: Path) -> None:
    """Of a step and one sample more, and of five minutes and one sample more."""
    step, recorded = promql.number(RESPONSES, (), "1m15s"), promql.number(RESPONSES, (), "5m15s")
    sums = {f"sum_over_time(({step})[100m:1m])": 7, f"sum_over_time(({recorded})[100m:1m])": 35}
    series = {"endturn_responses_total": "0x30 7x369"}  # at 7 minutes and 45 seconds
    evaluate(tmp_path, series, [(expr, "100m", {"{}": count}) for expr, count in sums.items()])


@pytest.mark.stack
def test_a_share_is_zero_where_nothing_bad_happened_and_nothing_where_nothing_did(tmp_path: Path) -> None:
    """Never NaN, and never a hundred percent for want of a series."""
    cut = promql.select(Count(schema.RESPONSES, only=((schema.REASON, frozenset({"max_tokens"})),)))
    share = promql.share(*(promql.increases(series, ("job",), "1h") for series in (cut, RESPONSES)))
    series = {
        'endturn_responses_total{job="half",endturn_stop_reason="max_tokens"}': "0+1x400",
        'endturn_responses_total{job="half",endturn_stop_reason="end_turn"}': "0+1x400",
        'endturn_responses_total{job="fine",endturn_stop_reason="end_turn"}': "0+1x400",
        'endturn_responses_total{job="idle",endturn_stop_reason="end_turn"}': "7x400",
    }
    evaluate(tmp_path, series, [(share, "100m", {'{job="half"}': 0.5, '{job="fine"}': 0})])


def test_every_form_is_understood() -> None:
    """A parser reads each."""
    buckets = promql.select(schema.TURN_DURATION, 'job=~"$job"', part="bucket")
    for text in (
        promql.number(RESPONSES, (*promql.SERVICE, *promql.CALL), "$__range"),
        promql.steps(RESPONSES, (schema.REASON,)),
        promql.quantile(0.95, buckets, (), "$window"),
        promql.share(promql.increases(RESPONSES, (), "1h"), promql.increases(RESPONSES, (), "1h")),
    ):
        assert [*promql.selectors(text)]
