"""The benchmark of the overhead: each figure can be measured, and the page has the figures that it writes.

How long anything takes is asserted nowhere.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.resources.chat.completions import Completions
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import endturn
from benchmarks import turns
from benchmarks.overhead import __main__ as command, page, runner
from benchmarks.overhead.by_hand import Signals
from benchmarks.overhead.figures import Definition, Goal, Row, lower_quartile, row_of_rounds
from benchmarks.overhead.groups import GROUPS
from benchmarks.overhead.providers import ALL_SIGNALS, METRICS_ALONE, NO_SDK, Providers, Setup
from benchmarks.overhead.situations import LONG_STREAM, SHORT_STREAM, SITUATIONS, make_call
from benchmarks.overhead.variants import ENDTURN, PEERS, Variant, put_bare_methods
from endturn.calls import infer_with, listeners
from endturn.telemetry.turn_inference import TurnInference
from tests.support.work import functions_entered

ROOT = Path(__file__).resolve().parents[2]

MEASURE_EACH_GROUP = """
import json, sys
from benchmarks.overhead import concurrent, process
from benchmarks.overhead.groups import GROUPS
concurrent.THREADS = concurrent.TASKS = concurrent.OPEN_CALLS = 3
for name, group in GROUPS.items():
    if group.rows_without_peers:
        rounds = 1 if group.kind == "startup" else 2
        print(json.dumps([name, process.measure(group, rounds, with_peers=False)]))
"""


@pytest.mark.slow
def test_each_figure_can_be_measured() -> None:
    """Two rounds of each group, in one process: each row that needs no other instrumentation is a finite number."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE_EACH_GROUP], capture_output=True, text=True, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stderr
    costs = dict(json.loads(line) for line in done.stdout.splitlines())
    rows = [row.row(costs[name]) for name in costs for row in GROUPS[name].rows_without_peers]
    assert len(rows) > 30
    for row in rows:
        assert all(map(math.isfinite, (row.value, row.low, row.high))), row
        assert row.title in row.line()


def test_rows_have_keys_and_titles_of_their_own() -> None:
    definitions = all_definitions()
    assert len({row.key for row in definitions}) == len(definitions)
    assert len({row.title for row in definitions}) == len(definitions)


def test_each_peer_is_in_a_group_of_its_environment() -> None:
    for name, group in GROUPS.items():
        for variant in {variant for _, variant in group.arms} & PEERS.keys():
            assert PEERS[variant].environment == group.environment, name


# --- The page -----------------------------------------------------------------------------------------------------


def test_the_page_has_the_figures_that_it_is_written_with() -> None:
    """The committed page, but for its figures and versions, is what the writer makes of every row."""
    rows = {row.key: a_row(row) for row in all_definitions()}
    versions = {environment: {"openai": "1.0", "opentelemetry-api": "1.0"} for environment in ("", "peers", "openlit")}
    for peer in PEERS.values():
        versions[peer.environment][peer.package] = "1.0"
    written = page.text(runner.Results(rows=rows, versions=versions))
    committed = (ROOT / "docs" / "overhead.md").read_text()
    for section in runner.SECTIONS:  # only measuring them says which rows they have
        committed = re.sub(rf"\n## {section.heading}\n.*?(?=\n## )", "", committed, flags=re.DOTALL)
    assert without_figures(committed) == without_figures(written)


def test_the_page_is_written_without_the_other_instrumentations_too() -> None:
    rows = {row.key: a_row(row) for group in GROUPS.values() for row in group.rows_without_peers}
    results = runner.Results(rows=rows, versions={"": {"openai": "1.0", "opentelemetry-api": "1.0"}})
    assert "`openlit` (not installed)" in page.text(results)


def test_rows_of_other_benchmarks_are_on_the_page() -> None:
    rows = {row.key: a_row(row) for row in all_definitions()}
    row = Row(key="k", title="finding a turn", unit="µs", value=12, low=11, high=13)
    results = runner.Results(
        rows=rows, versions={"": {"openai": "1", "opentelemetry-api": "1"}}, sections={"Turns": [row]}
    )
    assert "\n## Turns\n\n|  | measured |\n| --- | --- |\n| finding a turn | 12.0 (11.0 … 13.0) µs |\n\n" in page.text(
        results
    )


def test_what_finding_a_turn_costs_is_a_section(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the benchmark of turns are shown with their units, and their goals are checked."""

    def measured(rounds: int, most_open: int) -> list[turns.Row]:
        return [("a call, 1,000 turns open: CPU, µs", [float(rounds)] * 3, 10.0), ("a turn: bytes", [2.0] * 2, None)]

    monkeypatch.setattr(turns, "rows", measured)
    results, lines = runner.Results(), list[Row]()
    runner.measure_sections(results, is_quick=True, report=lines.append)
    assert [(row.title, row.unit, row.value) for row in lines] == [
        ("a call, 1,000 turns open", "µs", 4.0),
        ("a turn", "bytes", 2.0),
    ]
    assert lines[0].goal == Goal(10.0)
    assert list(results.sections.values()) == [lines]


def all_definitions() -> list[Definition]:
    return [row for group in GROUPS.values() for row in group.rows]


def a_row(definition: Definition) -> Row:
    return Row(key=definition.key, title=definition.title, unit=definition.unit, value=1, low=1, high=1)


def without_figures(text: str) -> list[str]:
    """The lines of the page without what differs from machine to machine, and from release to release of a peer."""
    text = re.sub(r"\nOn .*?, with openai .*?\. The load", "\nThe load", text, flags=re.DOTALL)
    text = re.sub(r"` (?:\d\S*|\(not installed\)) \|", "` # |", text)
    text = re.sub(r"[-−]?\d[\d,.]*\d|[-−]?\d", "#", text)
    return [re.sub(r"\| (?:–|# \(# … #\)(?: [^ |]+)?) (?=\|)", "| # ", line) for line in text.splitlines()]


# --- By hand ------------------------------------------------------------------------------------------------------


class RecordingProviders(Providers):
    """Providers whose signals can be looked at."""

    def __init__(self) -> None:
        super().__init__(NO_SDK)
        self.span_exporter = InMemorySpanExporter()
        self.log_exporter = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
        self.reader = InMemoryMetricReader()
        self.tracer_provider = TracerProvider(shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.span_exporter))
        self.logger_provider = LoggerProvider(shutdown_on_exit=False)
        self.logger_provider.add_log_record_processor(SimpleLogRecordProcessor(self.log_exporter))
        self.meter_provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def signals(self) -> list[Any]:
        """What was recorded: spans, log records, measurements and sums above zero, each with its attributes."""
        found: list[Any] = [
            ("span", span.name, plain(span.attributes)) for span in self.span_exporter.get_finished_spans()
        ]
        for data in self.log_exporter.get_finished_logs():
            record = data.log_record
            found.append(("log record", record.event_name, record.body, plain(record.attributes)))
        collected: Any = self.reader.get_metrics_data()
        for metric in collected.resource_metrics[0].scope_metrics[0].metrics:
            for point in metric.data.data_points:
                count = getattr(point, "count", None) or point.value
                found.append((type(metric.data).__name__, metric.name, count, plain(point.attributes)))
        return sorted((signal for signal in found if signal[2] != 0), key=repr)


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes, but for the id of the turn, in an order that can be compared."""
    return {name: "id" if name == "endturn.turn.id" else attributes[name] for name in sorted(attributes)}


@pytest.fixture
def bare_methods() -> Iterator[None]:
    yield
    endturn.uninstrument()
    put_bare_methods()


@pytest.mark.usefixtures("bare_methods")
@pytest.mark.parametrize("situation", ["answer", "truncated answer"])
def test_the_signals_by_hand_are_those_that_endturn_records(situation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "_failure_counts", {})  # other tests of this process may have made listeners fail
    observed, by_hand = RecordingProviders(), RecordingProviders()
    endturn.instrument(**observed.arguments())
    make_call(SITUATIONS[situation])(1)
    endturn.uninstrument()  # the turn of a truncated answer ends here
    signals = Signals(by_hand, truncated=situation == "truncated answer")
    Completions.create = signals.wrap(Completions.create)  # type: ignore[method-assign]
    make_call(SITUATIONS[situation])(1)
    assert by_hand.signals() == observed.signals()


# --- Work: it is counted, since time differs from run to run ------------------------------------------------------


def functions_of_a_call(situation: str, setup: Setup) -> int:
    """Count the functions of the package that a call enters."""
    Variant(ENDTURN, setup).enter()
    call = make_call(SITUATIONS[situation])
    for number in range(3):  # the first ones fill caches
        call(number)
    return functions_entered(lambda: call(3))


@pytest.mark.usefixtures("bare_methods")
@pytest.mark.parametrize(("setup", "most"), [(ALL_SIGNALS, 227), (METRICS_ALONE, 187)], ids=["all", "metrics alone"])
def test_a_call_enters_few_functions(setup: Setup, most: int) -> None:
    assert functions_of_a_call("answer", setup) <= most


@pytest.mark.usefixtures("bare_methods")
def test_a_streamed_event_enters_few_functions() -> None:
    short, long = (functions_of_a_call(f"{length} stream", ALL_SIGNALS) for length in ("short", "long"))
    assert (long - short) / (LONG_STREAM - SHORT_STREAM) < 17.5


@pytest.mark.parametrize(("is_step", "most"), [(False, 26), (True, 64)], ids=["call", "step of a tool loop"])
def test_finding_the_turn_of_a_call_enters_few_functions(is_step: bool, most: int) -> None:
    """While other turns wait for the results of their tools: what is entered besides what recording enters."""
    told, inference = turns.ToldTurns(), TurnInference(tools_idle_s=turns.DAY_S)
    with turns.observed():
        infer_with(inference)
        for _ in range(10):
            turns.Loop(2)
        for _ in range(2):  # the first round fills caches
            inferred, recorded = (functions_of_a_turn(way, is_step) for way in (inference, told))
        infer_with(None)
    assert inferred - recorded <= most


def functions_of_a_turn(inference: turns.ToldTurns | TurnInference, is_step: bool) -> int:
    """Count the functions that a question, or the step of a loop, enters: with a history of 200 KB."""
    infer_with(inference)
    if not is_step:
        return functions_entered(turns.Sent(turns.question(200), turns.ANSWER, "stop"))
    loop = turns.Loop(200)
    with turns.told(inference, loop.turn):
        return functions_entered(loop.step())


# --- Figures ------------------------------------------------------------------------------------------------------


def test_a_figure_is_made_from_lower_quartiles() -> None:
    """Of 8 rounds the third lowest, so that six that something has disturbed do not count."""
    assert lower_quartile([90, 10, 80, 30, 70, 20, 60, 50]) == 30
    costs = {"slow": [8.0, 9.0, 30.0, 40.0], "fast": [1.0, 3.0, 4.0, 5.0]}
    row = Definition(key="k", title="t", unit="×", figure=lambda quartiles: quartiles["slow"] / quartiles["fast"])
    assert row.row(costs).value == 3  # 9 / 3
    assert row.row(costs).low <= 3 <= row.row(costs).high


def test_a_figure_of_each_round_is_shown_by_its_median() -> None:
    row = row_of_rounds("t", "µs", [9.0, 1.0, 5.0, 7.0, 3.0], Goal(4))
    assert (row.value, row.verdict()) == (5, "missed")
    assert row.low <= 5 <= row.high


@pytest.mark.parametrize(
    ("goal", "value", "line"),
    [
        (Goal(2.1), 2.1, "goal ≤ 2.1: met"),
        (Goal(2.1), 2.2, "goal ≤ 2.1: missed"),
        (Goal(1.1, at_least=True), 1, "goal ≥ 1.1: missed"),
    ],
)
def test_a_line_says_whether_the_goal_is_met(goal: Goal, value: float, line: str) -> None:
    row = Row(key="k", title="a call", unit="×", value=value, low=1, high=3, goal=goal)
    assert row.line().startswith("a call ")
    assert row.line().endswith(line)


# --- The command --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--rounds", "1"], "--rounds 1: give 2 or more"),
        (["--rounds", "many"], "invalid int value: 'many'"),
        (["--only", "simpel"], "invalid choice: 'simpel'"),
        (["--only", "simple", "--write"], "--write needs all figures"),
        (["--write", "no/such/folder/page.md"], "--write no/such/folder/page.md: there is no folder 'no/such/folder'"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: list[str], error: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["make bench", *arguments])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert error in capsys.readouterr().err


def test_missing_environments_are_named_and_the_rest_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[tuple[str, bool]] = []

    def measure_group(name: str, rounds: int, env: Any) -> tuple[dict[str, list[float]], dict[str, str]]:
        measured.append((name, env is None))
        return {arm: [1.0, 2.0] for arm in ("answer: bare", "answer: endturn", "answer: by hand")}, {}

    monkeypatch.setattr(sys, "argv", ["make bench", "--only", "batch", "simple, openai 2"])
    monkeypatch.setattr(runner, "built_environment", lambda name: None)
    monkeypatch.setattr(runner, "_measure_group", measure_group)
    monkeypatch.setattr(Definition, "row", lambda definition, costs: a_row(definition))
    assert command.main() == 0
    output = capsys.readouterr()
    assert "Run: python tests/sdks/build.py peers" in output.err
    assert "Run: python tests/sdks/build.py openlit" in output.err
    assert measured == [("batch", True)]
    assert "batch processors: CPU, × the same signals by hand" in output.out
    assert "openinference" not in output.out


@pytest.mark.slow
def test_a_group_that_fails_is_reported_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(name: str, rounds: int, env: Any) -> tuple[dict[str, list[float]], dict[str, str]]:
        raise runner.MeasurementError(f"measuring {name!r} failed")

    monkeypatch.setattr(sys, "argv", ["make bench", "--quick", "--write", str(tmp_path / "page.md")])
    monkeypatch.setattr(runner, "_measure_group", fail)
    assert command.main() == 1
    assert "measuring 'streams' failed" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
