"""`endturn plan`: its figures agree with a simulated fleet and with a calculation by hand."""

from __future__ import annotations

import json
import math
import os
import random
import re
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from endturn.calls.outcomes import Continuation, Strategy, TurnKind, TurnOutcome
from endturn.calls.records import ContinuationAttempted
from endturn.cli import _main
from endturn.errors import UsageError
from endturn.generate import cardinality, plan
from endturn.vocabulary.messages import Usage
from endturn.vocabulary.stop import Stop, StopReason
from tests.stack.test_kubernetes import render
from tests.support.processes import REPOSITORY
from tests.telemetry.stage import METRICS, Stage, points

KNOWN: dict[str, float] = {"turns": 5000, "calls": 3, "tools": 2, "truncated": 0.04, "models": 5, "services": 40}


def computed(**inputs: float) -> dict[str, float]:
    fleet = plan.Fleet(**inputs)
    return {figure.name: figure.compute(fleet) for figure in plan.FIGURES}


CONSTANTS = {name: value for name, value, _ in plan.constants()}

# --- A fleet in miniature -----------------------------------------------------------------------------------------

TURNS, PROCESSES, MODELS, CALLS, TRUNCATED = 100, 2, 3, 2, 0.1
"""Of each process so many turns; in each turn so many calls; one turn in ten is cut, and continued once."""
USAGE = Usage(input_tokens=812, output_tokens=311)
DONE, CUT = Stop(StopReason.END_TURN, "stop"), Stop(StopReason.MAX_TOKENS, "length", incomplete=True)


def process(number: int) -> Stage:
    """One process of the fleet: its turns, over its models in turn."""
    stage = Stage()
    chosen = random.Random(number)
    cut = set(chosen.sample(range(TURNS), round(TURNS * TRUNCATED)))
    for each in range(TURNS):
        asked: dict[str, Any] = {"model": f"gpt-5-mini-{each % MODELS}", "max_tokens": 1024}
        asked |= {"server_address": "api.openai.com", "server_port": 443}
        turn = stage.turn(TurnKind.OBSERVED, agent="support")
        stops = [CUT, DONE, *[DONE] * (CALLS - 1)] if each in cut else [DONE] * CALLS
        for index, stop in enumerate(stops):
            if each in cut and index == 1:
                turn.continuations = 1
                continuation = Continuation(index=1, strategy=Strategy.PROMPT, of=1)
                attempt = {"provider": "openai", "model": asked["model"], "output_tokens": 311, "output_chars": 1500}
                stage.tell(ContinuationAttempted(turn=turn, continuation=continuation, **attempt))
                asked |= {"continuation": continuation}
            stage.call(turn, stop, usage=USAGE, response_model=asked["model"], response_id=f"r-{each:032x}", **asked)
        stage.close(turn, TurnOutcome.COMPLETED)
    return stage


def series(stage: Stage) -> int:
    """Return the number of a process's series in Prometheus, including `target_info`."""
    reader = stage.readers[0]
    assert isinstance(reader, InMemoryMetricReader)
    found = points(reader.get_metrics_data())
    return 1 + sum(len(sets) * cardinality.bound(METRICS[name]).series for name, sets in found.items())


def test_a_fleet_in_miniature_makes_what_the_plan_says() -> None:
    """Spans, events and series are as computed; the sizes of spans and events agree within 20%."""
    stages = [process(number) for number in range(PROCESSES)]
    spans = [span for stage in stages for span in stage.spans.get_finished_spans()]
    logs = [log for stage in stages for log in stage.logs.get_finished_logs()]
    known = {"calls": CALLS, "tools": 0, "truncated": TRUNCATED, "models": MODELS, "processes": PROCESSES, "streams": 0}
    found = computed(turns=TURNS * PROCESSES, **known)  # as though all were made in a second
    assert len(spans) == pytest.approx(found["spans"], rel=0.001)
    assert len(logs) == pytest.approx(found["events"], rel=0.001)
    one = computed(turns=1, **known)
    recorded = 3 + 3 * MODELS
    assert sum(map(series, stages)) == pytest.approx(one["series"] - recorded, rel=0.2)
    assert encode_spans(spans).ByteSize() / len(spans) == pytest.approx(CONSTANTS["span_bytes"], rel=0.2)
    assert encode_logs(logs).ByteSize() / len(logs) == pytest.approx(CONSTANTS["event_bytes"], rel=0.2)


def test_a_stream_has_the_series_that_are_planned_for_it() -> None:
    """A streaming model has two more histograms."""
    found = []
    streamed: dict[str, Any] = {"first_chunk_s": 0.2, "chunk_gaps_s": (0.02,)}
    for chunks in ({}, streamed):
        stage = Stage()
        turn = stage.turn(TurnKind.OBSERVED)
        stage.call(turn, DONE, usage=USAGE, **chunks)
        stage.close(turn, TurnOutcome.COMPLETED)
        found.append(series(stage))
    assert found[1] - found[0] == CONSTANTS["stream_series"]


# --- By hand -----------------------------------------------------------------------------------------------------


def test_the_formulas_by_hand() -> None:
    """Written out for one fleet, with the constants as they are."""
    found, c = computed(**KNOWN), CONSTANTS
    assert found["calls_made"] == 5000 * 3.04
    assert found["spans"] == 5000 * 3 + 5000 * 3.04
    assert found["agent_processes"] == 500
    made = 500 * (c["process_series"] + 5 * (c["model_series"] + c["stream_series"])) + 40 * 18
    assert found["series"] == pytest.approx(made)
    assert found["samples"] == pytest.approx(made / 15)
    bytes_each = c["span_bytes"] * c["packed"]
    assert found["kafka_mb"] == pytest.approx((30_200 + 400) * bytes_each / 1e6)
    by_cpu = ceil(30_200 * c["gateway_us"] / 1e6 / (c["cores"] * c["busy"]))
    held = 600 * (5000 * c["trace_bytes"] + 30_200 * c["weighed_bytes"])
    assert found["gateways"] == 1 + max(1, by_cpu, ceil(held / (c["heap_bytes"] * c["busy"])))
    assert found["partitions"] == 8 * found["gateways"]
    assert found["trace_gb_day"] == pytest.approx(30_200 * (0.05 + 0.95 * 0.1) * bytes_each * 86_400 / 1e9)
    assert found["metric_gb"] == pytest.approx(made / 15 * c["sample_bytes"] * 86_400 / 1e9 * 30 * 3)


@pytest.mark.parametrize("option", plan.OPTIONS, ids=lambda option: str(option.name))
def test_every_input_changes_something(option: plan.Option) -> None:
    """An input that changes no figure is useless."""
    inputs = KNOWN | {"processes": 600}
    value = inputs.get(option.name, option.default or 0)
    changed = inputs | {option.name: value * 2 if option.input.is_whole else value * 0.9}
    assert computed(**inputs) != computed(**changed)


def inputs_of_fleets() -> st.SearchStrategy[dict[str, float]]:
    """Any inputs within their bounds."""

    def values(option: plan.Option) -> st.SearchStrategy[float]:
        least, most = option.input.at_least, min(option.input.at_most, 10_000)
        if option.name in ("truncated", "failed"):
            most = 0.5  # together they are at most 1
        if option.input.is_whole:
            return st.integers(ceil(least), int(most)).map(float)
        return st.floats(least, most)

    return st.fixed_dictionaries({option.name: values(option) for option in plan.OPTIONS})


@given(inputs_of_fleets())
def test_the_formula_that_is_shown_is_computed(inputs: dict[str, float]) -> None:
    """The text of each formula, evaluated as Python, has the value of its function."""
    values = CONSTANTS | computed(**inputs) | inputs
    functions = {"__builtins__": {}, "ceil": ceil, "max": max}
    for figure in plan.FIGURES:
        value = eval(figure.text, functions, values)
        assert math.isclose(values[figure.name], value), figure.name


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"turns": 0}, "--turns must be at least 0.01, not 0 (turns per second"),
        ({"turns": -1}, "--turns must be at least 0.01, not -1"),
        ({"turns": math.nan}, "--turns must be at least 0.01, not nan"),
        ({"turns": math.inf}, "--turns must be at least 0.01, not inf"),
        ({"truncated": 2}, "--truncated must be at least 0 and at most 1, not 2"),
        ({"interval": 0}, "--interval must be at least 1, not 0"),
        ({"models": 0}, "--models must be at least 1, not 0"),
        ({"services": 1.5}, "--services must be a whole number, not 1.5"),
        ({"copies": 2.5}, "--copies must be a whole number, not 2.5"),
        ({"trace_days": -1}, "--trace-days must be at least 0, not -1"),
        ({"truncated": 0.6, "failed": 0.6}, "together they must be at most 1, not 1.2"),
    ],
)
def test_an_input_out_of_its_bounds_is_refused(inputs: dict[str, float], message: str) -> None:
    """The message names the option, its bounds and the value."""
    with pytest.raises(UsageError, match=re.escape(message)):
        plan.Fleet(**{"turns": 10} | inputs)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--turns 1000 --values compose",
            "needs 9 gateways, and docker-compose.fleet.yml starts 3: use --values kustomize",
        ),
        ("--turns 10 --json --values compose", "use only one of them"),
        ("--turns 0", "--turns must be at least 0.01, not 0"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With exit status 2 and one line."""
    assert _main.main(["plan", *line.split()]) == 2
    assert message in capsys.readouterr().err


# --- The command --------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *words: str, turns: int = 1000) -> str:
    assert _main.main(["plan", "--turns", f"{turns}", *words]) == 0
    return capsys.readouterr().out


def test_every_figure_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """With its formula, a line each; and for programs as JSON."""
    lines = run(capsys).splitlines()
    assert [line.split(" = ")[1] for line in lines] == [figure.text for figure in plan.FIGURES]
    rows = json.loads(run(capsys, "--json", "--trace-days", "3"))
    assert {row["name"]: row["value"] for row in rows} == computed(turns=1000, trace_days=3)
    assert rows[1] == {
        "name": "spans",
        "says": "Spans",
        "unit": "1/s",
        "formula": "turns * (1 + tools) + calls_made",
        "value": 4020.0,
    }


def test_as_settings_of_compose(capsys: pytest.CaptureFixture[str]) -> None:
    """Each is a variable of the fleet's Compose file, which starts as many gateways as the command assumes."""
    written = dict(line.split("=") for line in run(capsys, "--values", "compose", turns=100).splitlines())
    text = (REPOSITORY / "docker-compose.fleet.yml").read_text()
    assert written.keys() <= set(re.findall(r"\$\{(\w+):-", text))
    assert written["KAFKA_PARTITIONS"] == str(computed(turns=100)["partitions"])
    assert written["ENDTURN_SAMPLING_WAIT"] == "600s"
    assert sum(name.startswith("gateway-") for name in yaml.safe_load(text)["services"]) == plan.COMPOSE_GATEWAYS


@pytest.mark.stack
def test_as_settings_of_kustomize(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As an overlay of the manifests, they change the number of gateways, and values that a gateway reads."""
    overlay = tmp_path / "overlay"
    (overlay / "sizes").mkdir(parents=True)
    below = os.path.relpath(REPOSITORY / "kubernetes", overlay)
    written = run(capsys, "--values", "kustomize")
    (overlay / "sizes/kustomization.yaml").write_text(f"{written}\n")
    own = "configMapGenerator: [{name: endturn-fleet, behavior: merge, literals: [ENDTURN_KAFKA=mine:9093]}]"
    overlaid = f"resources: [{below}]\ncomponents: [sizes]\nnamespace: endturn\n{own}\n"
    (overlay / "kustomization.yaml").write_text(overlaid)
    rendered = render(overlay)
    assert rendered["StatefulSet", "endturn-gateway"]["spec"]["replicas"] == computed(turns=1000)["gateways"]
    fleet = plan.Fleet(turns=1000)
    settings = {name: value for name, value in plan.settings(fleet).items() if name.startswith("ENDTURN_")}
    read = rendered["ConfigMap", "endturn-fleet"]["data"]
    assert settings.items() | {("ENDTURN_KAFKA", "mine:9093")} <= read.items()
    assert settings.keys() <= set(re.findall(r"env:(\w+)", (REPOSITORY / "collector/kafka_gateway.yaml").read_text()))
