"""The PromQL helpers refuse what the schema lacks, and write what an independent parser understands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from endturn.errors import UsageError
from endturn.generate import promql
from endturn.generate.increments import Memory, increments
from endturn.generate.promql import LE, UnknownName, Vector
from endturn.telemetry import schema
from endturn.telemetry.schema import Attribute, Metric
from tests.generate.parsed import labels, parse, selectors
from tests.support.processes import require_stack

TURNS = promql.select(schema.TURNS)
BUCKETS = promql.select(schema.TURN_DURATION, part="bucket")
MEMORY = Memory(interval=60, window=300, lookback=3600, known=86400, lead=120)


def test_an_unknown_metric_is_refused_with_the_nearest_name() -> None:
    """A misspelt metric is refused, whether in OpenTelemetry's spelling or in Prometheus', and the right one named."""
    with pytest.raises(UnknownName, match=r"no metric 'endturn\.turnz'; the nearest is 'endturn\.turns'"):
        promql.select("endturn.turnz")
    with pytest.raises(UnknownName, match="nearest is 'endturn_turns_total'"):
        promql.select("endturn_turn_total")
    with pytest.raises(UnknownName):
        promql.select(Metric("endturn.new", "counter", "1", "", (), ""))


def test_both_spellings_of_a_metric_select_the_same() -> None:
    """OpenTelemetry's and Prometheus' name of a metric mean the same series."""
    assert promql.select("endturn.turns") == promql.select("endturn_turns_total") == TURNS


def test_an_undeclared_attribute_is_refused() -> None:
    """An attribute that the schema lacks is no label, however well it is typed."""
    with pytest.raises(UnknownName, match=r"no attribute 'endturn\.turn\.outcom'.*'endturn\.turn\.outcome'"):
        promql.label(Attribute("endturn.turn.outcom", "string", ""))


def test_a_label_that_the_metric_lacks_is_refused() -> None:
    """A declared attribute is refused on a metric that does not carry it."""
    with pytest.raises(UnknownName, match="'endturn_turns_total' declares no label 'endturn_stop_reason'"):
        promql.select(schema.TURNS, promql.only(schema.REASON, "end_turn"))
    with pytest.raises(UnknownName, match="no label 'endturn_stop_reason'"):
        promql.sum_by((schema.REASON,), Vector(str(TURNS), TURNS.labels))


@pytest.mark.parametrize("make", [promql.only, promql.never], ids=["only", "never"])
def test_a_value_outside_a_closed_set_is_refused(make: object) -> None:
    """A value that the attribute does not have is refused, with the nearest one."""
    assert callable(make)
    with pytest.raises(UnknownName, match="declares no value 'max_token'; the nearest is 'max_tokens'"):
        make(schema.REASON, "max_token")
    with pytest.raises(UnknownName, match="declares no value 'yes'"):
        make(schema.COMPLETE, "yes")
    with pytest.raises(UsageError, match="needs a value"):
        make(schema.REASON)


def test_a_foreign_metric_must_be_declared() -> None:
    """What others expose is read only where it is declared, too."""
    with pytest.raises(UnknownName, match=r"promql\.FOREIGN"):
        promql.foreign("otelcol_process_uptime_seconds")


def test_a_histogram_is_read_by_its_parts() -> None:
    """A histogram has no series of its own name, and a counter has no parts."""
    with pytest.raises(UsageError, match="is a histogram"):
        promql.select(schema.TURN_DURATION)
    with pytest.raises(UsageError, match="is a counter"):
        promql.select(schema.TURNS, part="bucket")
    assert LE in BUCKETS.labels
    assert str(BUCKETS) == "endturn_turn_duration_seconds_bucket"


@pytest.mark.parametrize(
    ("matcher", "written"),
    [
        (promql.only(schema.TRUNCATED, "true"), 'endturn_turn_truncated="true"'),
        (promql.never(schema.OUTCOME, "stopped", "cancelled"), 'endturn_turn_outcome!~"cancelled|stopped"'),
        (promql.only(schema.PROVIDER, "gcp.gemini"), 'gen_ai_provider_name="gcp.gemini"'),
        (promql.only(schema.PROVIDER, "openai", "x.ai"), 'gen_ai_provider_name=~"openai|x\\\\.ai"'),
        (promql.chosen("job", "job"), 'job=~"$job"'),
    ],
    ids=["equal", "none of several, sorted", "a dot in an equality", "a dot in a pattern", "a variable"],
)
def test_matchers_are_quoted(matcher: promql.Matcher, written: str) -> None:
    """A condition is written with the right operator and escapes."""
    assert str(matcher) == written


@pytest.mark.parametrize(
    ("seconds", "written"), [(1, "1s"), (90, "90s"), (300, "5m"), (5400, "90m"), (3600, "1h"), (86400, "1d")]
)
def test_durations(seconds: int, written: str) -> None:
    """A duration is written in the largest unit that fits."""
    assert promql.duration(seconds) == written
    with pytest.raises(UsageError):
        promql.duration(-seconds)


def test_the_rate_interval_is_for_throughput_alone() -> None:
    """`$__rate_interval` is refused as a window for counts."""
    with pytest.raises(UsageError, match="no window for counts"):
        promql.span("$__rate_interval")  # type: ignore[arg-type]


def test_both_generations_of_a_name_are_joined_before_aggregation() -> None:
    """The sum is over either name's rate: who emits both at once is not counted twice."""
    rate = promql.throughput(schema.OPERATION_DURATION, (schema.PROVIDER,), part="count")
    assert rate.text == (
        "sum by (gen_ai_provider_name) (rate(gen_ai_client_operation_duration_seconds_count[$__rate_interval])"
        " or rate(gen_ai_client_inference_duration_seconds_count[$__rate_interval]))"
    )


def test_tokens_of_either_generation_are_told_apart_by_the_same_label() -> None:
    """The new metrics have the type in their name: it becomes a label, and what is not asked for is not read."""
    text = promql.throughput(
        schema.TOKEN_USAGE, (schema.TOKEN_TYPE,), promql.only(schema.TOKEN_TYPE, "output"), part="sum"
    ).text
    assert text == (
        'sum by (gen_ai_token_type) (rate(gen_ai_client_token_usage_sum{gen_ai_token_type="output"}[$__rate_interval])'
        " or label_replace(rate(gen_ai_client_inference_operation_output_tokens_sum[$__rate_interval]),"
        ' "gen_ai_token_type", "output", "", ""))'
    )
    both = promql.throughput(schema.TOKEN_USAGE, (schema.PROVIDER,), part="count").text
    assert [name for name, _ in selectors(both)] == [
        "gen_ai_client_token_usage_count",
        "gen_ai_client_inference_operation_input_tokens_count",
        "gen_ai_client_inference_operation_output_tokens_count",
    ]


@pytest.mark.stack
def test_emitters_of_both_generations_at_once_are_counted_once(tmp_path: Path) -> None:
    """Of three processes, one emits the old names, one the new ones and one both: promtool sums each once."""
    metric = schema.TOKEN_USAGE
    series = promql.select(metric, promql.only(schema.TOKEN_TYPE, "output"), part="sum")
    rate = promql.sum_by((schema.TOKEN_TYPE,), Vector(promql.joined(series, of=metric, window=300), series.labels))
    old = 'gen_ai_client_token_usage_sum{{job="a",instance="{}",gen_ai_token_type="output"}}'
    new = 'gen_ai_client_inference_operation_output_tokens_sum{{job="a",instance="{}"}}'
    names = [old.format("1"), new.format("2"), old.format("3"), new.format("3")]
    test = {
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": "0+60x20"} for name in names],
                "promql_expr_test": [
                    {
                        "expr": rate.text,
                        "eval_time": "15m",
                        "exp_samples": [{"labels": '{gen_ai_token_type="output"}', "value": 3}],
                    }
                ],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    done = subprocess.run(
        [require_stack("prometheus")["promtool"], "test", "rules", "test.yaml"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_sides_with_different_labels_are_refused() -> None:
    """A ratio, a guard or a default of things that do not match would silently be empty."""
    one, other = Vector("a", frozenset({"job"})), Vector("b", frozenset())
    with pytest.raises(UsageError, match="same labels"):
        promql.ratio(one, other)
    with pytest.raises(UsageError, match="same labels"):
        promql.or_zero(one, other)
    with pytest.raises(UsageError, match="same labels"):
        promql.guarded(one, above=0.1, events=other, at_least=1)


def test_every_helper_is_understood_and_keeps_its_labels() -> None:
    """An independent parser finds in each helper's text exactly the labels that the helper says it has."""
    recorded = promql.Selector("endturn:turns:increase5m", TURNS.labels)
    histogram = promql.Selector("endturn:turn_duration:increase5m", BUCKETS.labels)
    by: tuple[promql.Label, ...] = (promql.JOB, schema.PROVIDER)
    whole = promql.summed(recorded, by, "$window")
    vectors = [
        promql.sum_by(by, increments(TURNS, MEMORY)),
        whole,
        promql.counted(recorded, by, "$__range", overlap=5),
        promql.ratio(promql.summed(recorded.where(promql.only(schema.TRUNCATED, "true")), by, "$window"), whole),
        promql.guarded(promql.ratio(whole, whole), above=0.05, events=whole, at_least=3),
        promql.or_zero(whole, whole),
        promql.quantile(0.95, histogram, by, 3600),
        promql.throughput(schema.OPERATION_DURATION, by, part="count"),
    ]
    for vector in vectors:
        assert labels(parse(vector.text)) - {LE} == vector.labels == {"job", "gen_ai_provider_name"}
    share = promql.share(recorded, (*by, schema.OUTCOME), by, 3600)
    assert labels(parse(share.text)) == share.labels == {"job", "gen_ai_provider_name", "endturn_turn_outcome"}
