"""The number of series is bounded by a formula, whatever names come: of models, providers, addresses, errors."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from endturn.cardinality import bound, bounds
from endturn.events import TurnKind, TurnOutcome
from endturn.stop import Stop, StopReason
from endturn.telemetry import schema
from endturn.telemetry.instruments import LENGTH
from endturn.telemetry.otel_providers import Options
from tests.support.otlp import Sent, post, spans
from tests.support.processes import Collector, eventually, samples
from tests.telemetry.stage import METRICS, USAGE, Stage, points

RUNS = 10_000
SDK_LIMIT = 2_000
"""Attribute sets of one instrument, in OpenTelemetry's SDK."""
HOSTILE = ('"} 1\n# HELP x', "é" * 1_000, "\x00", "a\nb", "{}[],=~\\", "\u202e", " ", "🦀" * 300)


def series(found: Mapping[str, Mapping[tuple[Any, ...], Any]]) -> dict[str, int]:
    """How many series in Prometheus the points of each metric are."""
    return {name: len(sets) * bound(METRICS[name]).series for name, sets in found.items()}


@pytest.fixture(scope="module")
def attacked() -> Stage:
    """A process that was told 10,000 names of everything that is open, in every combination with what is closed."""
    stage = Stage(options=Options(agent=True, semconv="gen_ai_latest_experimental/dup"))
    chosen = random.Random(7)
    outcomes, reasons = [*TurnOutcome], [*StopReason]
    for number in range(RUNS):
        name = f"{chosen.choice(HOSTILE)}{number}" if number % 2 else f"{number}{chosen.choice(HOSTILE)}"
        asked = {
            "provider": chosen.choice(("openai", "anthropic", name)),
            "model": name,
            "server_address": f"{name}.example",
            "server_port": number % 65_536,
            "maximum": 100,
        }
        turn = stage.turn(TurnKind.OBSERVED, agent=chosen.choice((None, name)))
        error = type(name.replace("\x00", "") or "E", (Exception,), {})() if number % 3 else None
        cut = chosen.random() < 0.5
        stop = Stop(chosen.choice(reasons), "raw", incomplete=cut)
        stage.call(turn, stop, usage=USAGE, asked=asked, error=error, first_chunk_s=0.1, chunk_gaps_s=(0.1,))
        turn.continuations = chosen.randrange(3)
        stage.close(turn, chosen.choice(outcomes))
    return stage


def test_no_names_take_a_metric_above_its_bound(attacked: Stage) -> None:
    """Nor the whole process; and what came is counted, if under `other`."""
    found = attacked.points()
    assert {name for name, sets in found.items() if len(sets) > bound(METRICS[name]).sets} == set()
    assert sum(series(found).values()) <= sum(each.total for each in bounds("gen_ai_latest_experimental/dup"))
    assert sum(found["endturn.responses"].values()) == RUNS
    assert sum(found["endturn.turns"].values()) == RUNS
    assert sum(count for count, _ in found["gen_ai.client.operation.duration"].values()) == RUNS
    capped = {key[0]: value for key, value in found["endturn.series.capped"].items()}
    assert {label for label, value in capped.items() if value} == set(schema.CAPPED.values)


def test_hostile_names_are_cut_and_can_be_exported(attacked: Stage) -> None:
    """No label is longer than the cut, and the SDK's own encoder takes them all."""
    reader = attacked.readers[0]
    assert isinstance(reader, InMemoryMetricReader)
    data = reader.get_metrics_data()
    assert data is not None
    labels = {each for sets in points(data).values() for key in sets for each in key if isinstance(each, str)}
    assert max(map(len, labels)) == LENGTH
    assert encode_metrics(data).ByteSize() > 0


def test_every_bound_is_below_the_limit_of_the_sdk() -> None:
    """Beyond it a set without any label would take what comes."""
    assert max(each.sets for each in bounds("gen_ai_latest_experimental/dup")) < SDK_LIMIT


def test_a_bound_is_the_product_of_its_labels() -> None:
    """By hand, for a metric that stays below the limit of sets, and for one that does not."""
    strategies = bound(schema.CONTINUATIONS_METRIC)
    assert strategies.sets == (100 + 32 + 1) * len(schema.STRATEGY.values)
    assert strategies.total == strategies.sets
    turns = bound(schema.TURNS)
    assert turns.sets == 1_400 + 2 * 2 * 2 * 2 * len(TurnOutcome)
    durations = bound(schema.TURN_DURATION)
    assert durations.total == 133 * 2 * 2 * (12 + 3)


@pytest.mark.stack
def test_a_collector_that_counts_short_jobs_adds_none(tmp_path: Path) -> None:
    """What stops it: spans alone, counted by the Collector, which leaves the process's id out."""
    sent = Sent(
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-5",
            "gen_ai.response.finish_reasons": ["length"],
        }
    )
    with Collector(tmp_path, environment={"ENDTURN_COLLECTOR_ID": "here"}) as collector:
        for _ in range(50):  # each body has an id of its own
            assert post(f"{collector.url}/v1/traces", spans([sent])) == 200
        found = eventually(
            lambda: (
                counts
                if sum((counts := samples(collector.counts_address, "endturn_responses_total")).values()) == 50
                else {}
            ),
            what="fifty counted responses",
        )
    assert len(found) == 1
