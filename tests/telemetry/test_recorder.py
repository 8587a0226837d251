"""The recorder: what is announced becomes spans, events and metrics, as the schema declares them."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import yaml
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.metrics import Meter, MeterProvider as APIMeterProvider
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from endturn.calls import listeners
from endturn.calls.outcomes import Strategy, TurnKind, TurnOutcome
from endturn.generate.cardinality import bound, bounds
from endturn.telemetry import instruments, schema
from endturn.telemetry.instruments import instruments_of
from endturn.telemetry.otel_providers import CURRENT, Options, OTelProviders
from endturn.telemetry.recorder import Recorder
from endturn.telemetry.series import LENGTH, MetricSeries
from endturn.vocabulary.stop import Stop, StopReason
from tests.telemetry.scenes import SCENES, a_turn_of_everything
from tests.telemetry.stage import (
    CUT,
    DONE,
    METRICS,
    USAGE,
    Stage,
    counted,
    in_a_child,
    points,
    spans_outside_their_turn,
)

RECORDED: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("recorded.yaml").read_text())
OPENAI = ("openai", "gpt-5")
DELTA: dict[type, AggregationTemporality] = dict.fromkeys(
    (Counter, ObservableCounter, Histogram), AggregationTemporality.DELTA
)

# --- What is announced, in scenes.py, and what is recorded of it, in recorded.yaml ----------------------------------


def plain(value: Any) -> Any:
    """As YAML has it."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, float):
        return round(value, 9)
    return [plain(each) for each in value] if isinstance(value, tuple | list) else value


def series(found: dict[str, dict[tuple[Any, ...], Any]]) -> dict[str, dict[str, Any]]:
    """What is not zero, by the values of the attributes in a line."""

    def line(key: tuple[Any, ...]) -> str:
        return " ".join("-" if part is None else str(part) for part in key)

    return {name: {line(key): plain(value) for key, value in counted(sets).items()} for name, sets in found.items()}


def agree(found: Sequence[dict[str, Any]], expected: Sequence[Any], *, wholly: bool) -> None:
    """Each has what is said of it; and nothing else, where that is all."""
    assert len(found) == len(expected), found
    for each, said in zip(found, expected, strict=True):
        shown = each if wholly and len(said) > 1 else {key: each.get(key) for key in said}
        assert shown == said


def test_each_scene_has_a_row() -> None:
    assert SCENES.keys() == RECORDED.keys()


@pytest.mark.parametrize("name", RECORDED)
def test_what_is_recorded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As recorded.yaml says of it."""
    monkeypatch.setattr(listeners, "_failure_counts", {})
    row = RECORDED[name]
    for variable, value in row.get("env", {}).items():
        monkeypatch.setenv(variable, value)
    readers = [InMemoryMetricReader() for _ in range(row.get("readers", 1))]
    options = Options(**row.get("options", {}))
    with listeners.strict():
        stage = Stage(options=options, readers=readers, sampler=None if row.get("sampler", True) else ALWAYS_OFF)
        SCENES[name](stage)
    assert spans_outside_their_turn(stage.finished()) == []
    spans = [{**{name: value for name, value in span.items() if name != "attributes"}, **span["attributes"]}
             for span in stage.finished()]  # fmt: skip
    if "spans" in row:
        agree(plain(spans), row["spans"], wholly="only" in row)
    if "events" in row:
        lines = [one.log_record.body for one in stage.logs.get_finished_logs()]
        told = [{**event, "body": line} for event, line in zip(stage.events(), lines, strict=True)]
        expected = [{"name": each} if isinstance(each, str) else each for each in row["events"]]
        agree(plain(told), expected, wholly="only" in row)
    if "metrics" in row:
        found = series(stage.points())
        assert {each: found.get(each, {}) for each in (METRICS if "all" in row else row["metrics"])} == row["metrics"]
        assert "all" not in row or set(found) == set(METRICS)
    assert "planted" not in "".join(span.to_json() for span in stage.spans.get_finished_spans())


FINE = {TurnOutcome.COMPLETED, TurnOutcome.IMPLICIT_COMPLETION}
GIVEN_UP = {outcome for outcome in TurnOutcome if outcome.group == "budget_exhausted"} | {TurnOutcome.RETRY_LIMIT}


@pytest.mark.parametrize("outcome", TurnOutcome)
def test_how_bad_the_end_of_a_truncated_turn_is(stage: Stage, outcome: TurnOutcome) -> None:
    """A whole answer is INFO, the four budgets and the retry limit are ERROR, all else is WARN; of others nothing.

    Who turned continuing off is not told of an error each time that an answer is cut.
    """
    for stops, level in (((CUT, DONE), "INFO"), ((CUT,), "WARN")) if outcome in FINE else ():
        turn = stage.turn(TurnKind.CONTROLLER)  # of another, a whole response finishes only what it continues
        for stop in stops:
            stage.call(turn, stop)
        stage.close(turn, outcome)
        assert stage.events()[-1]["severity"] == level
    expected = "ERROR" if outcome in GIVEN_UP else "WARN"
    is_limit = outcome in (TurnOutcome.RETRY_LIMIT, TurnOutcome.RESUME_LIMIT)
    for stop, attempts, severity in ((CUT, 1, expected), (CUT, 0, "INFO" if is_limit else expected), (DONE, 1, None)):
        turn = stage.turn()
        stage.call(turn, stop)
        turn.continuations = turn.resumes = attempts
        before = len(stage.events())
        stage.close(turn, outcome)
        told = [(event["name"], event["severity"]) for event in stage.events()[before:]]
        assert told == ([("endturn.continuation_terminated", severity)] if severity else [])


def test_sums_are_born_at_zero(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a model's first call on, before anything has been counted: the first increment is seen as one. Failures of
    listeners are counted by name."""
    stage.start(stage.turn())
    found = stage.points()
    assert found["endturn.responses"] == {(*OPENAI, reason.value): 0 for reason in StopReason}
    assert found["endturn.truncation.exits"][*OPENAI, None, "not_continued"] == 0
    assert found["endturn.turns"][*OPENAI, None, True, False, "not_continued"] == 0
    assert found["endturn.continuations"] == {(*OPENAI, strategy.value): 0 for strategy in Strategy}
    assert found["endturn.listener.failures"] == {("Recorder",): 0}
    assert set(found["endturn.series.capped"].values()) == {0}
    monkeypatch.setattr(listeners, "_failure_counts", {"Recorder": 2, "mine": 1})
    assert stage.points()["endturn.listener.failures"] == {("Recorder",): 2, ("mine",): 1}


def test_an_error_is_not_kept_until_the_collection(stage: Stage) -> None:
    """Its traceback would keep the caller's frames alive."""

    class Failure(Exception):
        pass

    turn = stage.turn()
    stage.call(turn, Stop(StopReason.ERROR), error=Failure())
    stage.close(turn, TurnOutcome.PROVIDER_ERROR, error=Failure())
    gc.collect()
    assert not any(isinstance(thing, Failure) for thing in gc.get_objects())


def exemplars(stage: Stage) -> dict[str, set[int | None]]:
    """The spans that the histograms of a collection lead to."""
    data = stage.collected()
    return {
        metric.name: {exemplar.span_id for point in metric.data.data_points for exemplar in point.exemplars}
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if isinstance(metric.data.data_points[0], HistogramDataPoint)
    }


def test_exemplars_lead_to_the_call(stage: Stage) -> None:
    """A histogram's exemplar is the call's span; an implicit turn's is its truncated call, whose trace is kept. A call
    without a span has none, whatever is current where the metrics are collected."""
    turn = stage.turn()
    stage.call(turn, CUT)
    stage.call(turn, usage=USAGE)
    stage.close(turn)
    found = exemplars(stage)
    assert (found["endturn.turn.duration"], found["gen_ai.client.token.usage"]) == ({1}, {2})
    other = Stage()
    other.recorder = Recorder(trace.NoOpTracerProvider(), other.meters, other.loggers, clock=other.clock)
    other.call(other.turn())
    with other.tracers.get_tracer("host").start_as_current_span("a request"):
        assert set().union(*exemplars(other).values()) == set()


# --- The number of series is bounded by a formula, whatever names come ----------------------------------------------

RUNS = 10_000
SDK_LIMIT = 2_000
"""Attribute sets of one instrument, in OpenTelemetry's SDK."""
HOSTILE = ('"} 1\n# HELP x', "é" * 1_000, "\x00", "a\nb", "{}[],=~\\", "\u202e", " ", "🦀" * 300)


def attacked() -> Stage:
    """A process that was told 10,000 names of everything that is open, in every combination with what is closed."""
    stage = Stage(options=Options(agent=True, semconv="gen_ai_latest_experimental/dup"))
    chosen = random.Random(7)
    outcomes, reasons = [*TurnOutcome], [*StopReason]
    for number in range(RUNS):
        name = f"{chosen.choice(HOSTILE)}{number}" if number % 2 else f"{number}{chosen.choice(HOSTILE)}"
        provider = chosen.choice(("openai", "anthropic", name))
        asked: dict[str, Any] = {"provider": provider, "model": name, "max_tokens": 100}
        asked |= {"server_address": f"{name}.example", "server_port": number % 65_536}
        turn = stage.turn(TurnKind.OBSERVED, agent=chosen.choice((None, name)))
        error = type(name.replace("\x00", "") or "E", (Exception,), {})() if number % 3 else None
        stop = Stop(chosen.choice(reasons), "raw", incomplete=chosen.random() < 0.5)
        stage.call(turn, stop, usage=USAGE, error=error, first_chunk_s=0.1, chunk_gaps_s=(0.1,), **asked)
        turn.continuations = chosen.randrange(3)
        stage.close(turn, chosen.choice(outcomes))
    return stage


def test_no_names_take_a_metric_above_its_bound() -> None:
    """Nor the whole process; and what came is counted, if under `other`. No label is longer than the cut, and the SDK's
    own encoder takes them all."""
    data = attacked().collected()
    found = points(data)
    assert {name for name, sets in found.items() if len(sets) > bound(METRICS[name]).sets} == set()
    series = sum(len(sets) * bound(METRICS[name]).series for name, sets in found.items())
    every = bounds("gen_ai_latest_experimental/dup")
    assert series <= sum(each.total for each in every)
    assert max(each.sets for each in every) < SDK_LIMIT  # beyond it a set without any label would take what comes
    assert sum(found["endturn.responses"].values()) == sum(found["endturn.turns"].values()) == RUNS
    assert sum(count for count, _ in found["gen_ai.client.operation.duration"].values()) == RUNS
    capped = {key[0]: value for key, value in found["endturn.series.capped"].items()}
    assert {label for label, value in capped.items() if value} == set(schema.CAPPED.values)
    labels = {each for sets in found.values() for key in sets for each in key if isinstance(each, str)}
    assert max(map(len, labels)) == LENGTH
    assert encode_metrics(data).ByteSize() > 0


def test_a_bound_is_the_product_of_its_labels() -> None:
    """By hand, for a metric that stays below the limit of sets, and for one that does not."""
    strategies = bound(schema.CONTINUATIONS_METRIC)
    assert strategies.sets == strategies.total == (100 + 32 + 1) * len(schema.STRATEGY.values)
    assert bound(schema.TURNS).sets == 1_400 + 2 * 2 * 2 * 2 * len(TurnOutcome)
    assert bound(schema.TURN_DURATION).total == 133 * 2 * 2 * (12 + 3)


def test_the_size_of_one_model(stage: Stage) -> None:
    """A process that meets all that commonly happens has at most 150 series of ours per provider and model."""
    a_turn_of_everything(stage)
    for reason in StopReason:
        stage.call(stage.turn(), Stop(reason), usage=USAGE, max_tokens=100)
    for stop, outcomes in (
        (DONE, ("COMPLETED", "PROVIDER_ERROR", "SAFETY_BLOCKED", "REFUSED")),
        (CUT, ("NOT_CONTINUED", "RETRY_LIMIT", "TOKEN_BUDGET", "CANCELLED")),
    ):
        for outcome in outcomes:
            turn = stage.turn()
            stage.call(turn, stop, usage=USAGE)
            turn.continuations = 3 if outcome != "NOT_CONTINUED" and stop is CUT else 0
            stage.close(turn, TurnOutcome[outcome])
    total = 0
    for name, found in stage.points().items():
        if name.startswith("endturn."):
            buckets = METRICS[name].buckets
            total += sum(OPENAI[1] in key for key in found) * (len(buckets) + 3 if buckets else 1)
    assert total <= 150


# --- Collection -----------------------------------------------------------------------------------------------------


def test_what_is_queued_is_in_the_next_collection_of_every_reader() -> None:
    """Readers that collect at different times, one of them what happened since it last did: each sees everything."""
    cumulative, delta = InMemoryMetricReader(), InMemoryMetricReader(preferred_temporality=DELTA)
    stage = Stage(readers=[cumulative, delta])
    total = 0
    for calls in (2, 0, 1):
        for _ in range(calls):
            stage.call(stage.turn(), usage=USAGE)
        total += calls
        for reader, count in ((delta, calls), (cumulative, total)):
            found = stage.points(reader)
            assert found["endturn.responses"].get((*OPENAI, "end_turn"), 0) == count
            usage = found.get("gen_ai.client.token.usage", {})
            assert usage.get(("chat", *OPENAI, None, None, None, "output"), (0, 0)) == (count, 20 * count)


def test_a_full_queue_loses_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is recorded where it overflows, one for each that comes, from many threads at once."""
    monkeypatch.setattr(instruments, "QUEUED", 16)

    def work(number: int) -> None:
        for _ in range(200):
            turn = stage.turn()
            stage.call(turn, usage=USAGE)
            stage.close(turn)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    found = stage.points()
    assert counted(found["endturn.responses"]) == {(*OPENAI, "end_turn"): 800}
    assert found["endturn.turn.output"] == {(*OPENAI, True): (800, 16_000)}


def test_threads_that_find_a_provider_at_once_make_one_set_of_instruments() -> None:
    """The SDK would never ask a second set of observable instruments: what it counted would be lost.

    Logfire's provider is a dataclass that compares by value, and has no hash.
    """

    class Unhashable(MeterProvider):
        __hash__ = None  # type: ignore[assignment]

        def get_meter(self, *given: Any, **options: Any) -> Any:
            time.sleep(0.02)
            return super().get_meter(*given, **options)

    provider = Unhashable(shutdown_on_exit=False)
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: instruments_of(provider), range(4)))
    assert len({id(each) for each in made}) == 1


def test_threads_that_find_a_provider_at_once_both_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is past the question before the other has an answer."""
    together, tracers = Barrier(2), TracerProvider(shutdown_on_exit=False)
    out = OTelProviders((None, None, None), Options())

    def current() -> TracerProvider:
        together.wait(timeout=60)
        return tracers

    monkeypatch.setitem(CURRENT, "tracer", current)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: out.look_up(), range(2)))
    assert out.tracer is not None


def test_a_signal_that_comes_while_something_is_counted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler may flush, in the very thread: what is being counted is seen by the next collection."""
    seen: list[dict[Any, Any]] = []
    add = MetricSeries.add

    def interrupted(counter: Any, *given: Any) -> None:
        if not seen:
            seen.append({})  # the collection counts too
            seen[0] = stage.points().get("endturn.responses", {})
        add(counter, *given)

    monkeypatch.setattr(MetricSeries, "add", interrupted)
    stage.call(stage.turn())
    assert counted(seen[0]) == {}
    assert counted(stage.points()["endturn.responses"]) == {(*OPENAI, "end_turn"): 1}


@pytest.mark.parametrize("temporality", [None, DELTA], ids=["cumulative", "delta"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_counts_its_own(temporality: dict[type, AggregationTemporality] | None) -> None:
    """It starts at zero, keeps the known sets, and its parent's queue, sums and histograms stay with the parent."""
    stage = Stage(readers=[InMemoryMetricReader(preferred_temporality=temporality)])
    stage.call(stage.turn(), usage=USAGE)
    stage.points()
    open_call = stage.start(stage.turn())
    stage.call(stage.turn(), CUT, usage=USAGE)

    def child() -> object:
        stage.call(stage.turn(), usage=USAGE)
        stage.end(open_call)
        found = stage.points()
        return (
            counted(found["endturn.responses"]),
            (*OPENAI, "refused") in found["endturn.responses"],
            found["gen_ai.client.token.usage"]["chat", *OPENAI, None, None, None, "input"],
            len(stage.finished()),
        )

    # The call that was under way in the parent is counted where it ends; its span is the parent's.
    assert in_a_child(child) == repr(({(*OPENAI, "end_turn"): 2}, True, (1, 100), 3))
    assert counted(stage.points()["endturn.responses"])[*OPENAI, "max_tokens"] == 1


def test_a_reader_is_known_before_it_collects() -> None:
    """From the first span on, also one that is added later."""
    late, reader = Stage(readers=[]), InMemoryMetricReader()
    late.call(late.turn())
    late.meters.add_metric_reader(reader)
    late.call(late.turn())
    assert [span["attributes"].get("endturn.counted") for span in late.finished()] == [None, True]


def test_a_provider_before_the_sdk_s_is_known_to_export_once_it_was_collected() -> None:
    """It gives the SDK's meters, and has no readers that could be looked up."""

    class Front(APIMeterProvider):
        def get_meter(self, *args: Any, **more: Any) -> Meter:
            return behind.get_meter(*args, **more)

    stage, front, reader = Stage(), Front(), InMemoryMetricReader()
    behind = MeterProvider([reader], shutdown_on_exit=False)
    stage.recorder.use((stage.tracers, front, stage.loggers), Options())
    stage.call(stage.turn())
    reader.collect()
    stage.call(stage.turn())
    assert [span["attributes"].get("endturn.counted") for span in stage.finished()] == [None, True]


@pytest.mark.parametrize("temporality", [None, DELTA], ids=["cumulative", "delta"])
def test_a_series_starts_a_millisecond_before_its_first_sample(temporality: Any) -> None:
    """Of each reader. A back end that adds a zero at the start time, as Prometheus does, then sees the first value as
    an increment; in the same millisecond it adds none."""
    readers = [InMemoryMetricReader(temporality), InMemoryMetricReader()]
    stage = Stage(readers=readers)
    stage.call(stage.turn(), CUT)
    for reader in readers:
        first = stage.collected(reader)
        stage.call(stage.turn(), Stop(StopReason.REFUSED, "refusal"))  # its turn ends in a series of its own
        for data in (first, stage.collected(reader)):
            apart = [
                (metric.name, point.start_time_unix_nano, point.time_unix_nano)
                for scope in data.resource_metrics[0].scope_metrics
                for metric in scope.metrics
                for point in metric.data.data_points
                if point.start_time_unix_nano // 1_000_000 >= point.time_unix_nano // 1_000_000
            ]
            assert apart == []


def test_a_call_that_never_ends_is_let_go(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in flight is bounded."""
    monkeypatch.setattr("endturn.telemetry.recorder.MAX_OPEN_CALLS", 10)
    for started in [stage.start(stage.turn()) for _ in range(15)]:
        stage.end(started)
    assert len(stage.finished()) == 10
