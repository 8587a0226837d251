"""Programs in processes of their own: how telemetry is set up, started without a line of code, and ended; their
workers lose nothing, and count nothing twice."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, entry_points
from pathlib import Path

import pytest
from opentelemetry.configuration import load_config_file
from opentelemetry.instrumentation import dependencies
from opentelemetry.instrumentation.dependencies import get_dist_dependency_conflicts

from endturn.instrumentation.zero_code import EndturnInstrumentor
from endturn.telemetry.otel_providers import Options
from endturn.testing.scripted import ScriptedProvider, call, essay, say
from endturn.testing.scripted.script import Script
from tests.support.processes import LOOPBACK, REPOSITORY, eventually, free_port
from tests.support.receiver import Receiver, receiving
from tests.telemetry.program_cases import POD, PROGRAMS, PROGRAMS_FOLDER, PYTHON, Program

SCRIPT: Script = {
    "done": [say("Done.")],
    "cut": essay("Twelve short words make an answer that the limit of tokens will cut."),
    "loop": [call("search", {"query": "tides"})],
}
"""`done` ends its turn; `cut` is cut off by any limit of less than 15 tokens; `loop` asks for a tool."""
INSTANCE = re.compile(r"pod-7-\d+-[0-9a-f]{4}")


def flat(names: Mapping[str, Iterable[str]]) -> list[str]:
    return [name for each in names.values() for name in each]


@dataclass(frozen=True)
class World:
    """A provider and a receiver of telemetry.

    Attributes:
        provider: its address.
        received: what has arrived.
    """

    provider: str
    received: Receiver

    def variables(self, **more: str) -> dict[str, str]:
        """An agent's environment: nothing of ours or OpenTelemetry's but where signals go, and `more`."""
        foreign = ("OTEL_", "ENDTURN_", "PYTHONPATH", "PYTHONWARNINGS")
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(foreign)},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OPENAI_BASE_URL": f"{self.provider}/v1",
            "OPENAI_API_KEY": "sk-planted-secret",
            "ANTHROPIC_BASE_URL": self.provider,
            "ANTHROPIC_API_KEY": "sk-ant-planted-secret",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.received.url,
            "OTEL_METRIC_EXPORT_INTERVAL": "600000",  # none of these agents lives that long
            **more,
        }

    def saw(self, done: int, cut: int) -> None:
        """Compare all that arrived with what the agents asked: each response once, in every signal."""
        received, calls = self.received, done + cut
        reasons = {reason: count for reason, count in (("end_turn", done), ("max_tokens", cut)) if count}
        assert received.counts("endturn.responses", "endturn.stop.reason") == reasons
        assert received.total("endturn.turns") == calls
        assert received.total("endturn.truncation.exits") == cut
        assert sorted(flat(received.spans)) == ["chat cut"] * cut + ["chat done"] * done
        events = flat(received.events)
        assert events.count("endturn.stop_reason_observed") == calls
        assert events.count("endturn.continuation_terminated") == cut


@pytest.fixture
def agents() -> Iterator[World]:
    """A scripted provider over HTTP, and a receiver."""
    with ScriptedProvider(SCRIPT, exhausted="last").serve() as url, receiving() as received:
        yield World(url, received)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (isinstance(case, Program) and case.slow))
        for name, case in PROGRAMS.items()
    ],
)
def test_a_program(agents: World, tmp_path: Path, name: str) -> None:
    """Its output, its exit status and the signals that arrive are those of program_cases.py."""
    case, received = PROGRAMS[name], agents.received
    program = case if isinstance(case, Program) else case(tmp_path, received.url)
    if program.crashes_on == platform.python_version():
        pytest.skip("this Python crashes in it, unobserved too")
    for file, content in program.files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(content)
    received.statuses |= program.refusals
    code = [] if program.file is None else [(PROGRAMS_FOLDER / program.file).read_text()]
    done = subprocess.run(
        [*program.command, *code, *program.args], env=agents.variables(**program.env), cwd=REPOSITORY,
        capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert done.returncode == program.status, (done.returncode, done.stdout, done.stderr)
    expect_output(program, done)
    expect_signals(program, agents)


def expect_output(program: Program, done: subprocess.CompletedProcess[str]) -> None:
    """Compare the lines of stdout and stderr."""
    stdout = done.stdout.splitlines()
    output = [*stdout, *done.stderr.splitlines()]
    assert program.tracebacks or "Traceback" not in done.stderr, done.stderr
    assert program.output is None or program.output == output
    assert program.stdout is None or program.stdout == stdout, done.stderr
    assert not [text for text in program.lines if not any(text in line for line in output)], done.stderr
    for text in program.once:
        assert sum(text in line for line in output) == 1, done.stderr
    assert not [text for text in program.silent_on if text in done.stdout + done.stderr]


def expect_signals(program: Program, agents: World) -> None:
    """Compare what has arrived."""
    received = agents.received
    for metric, counts in program.exported.items():
        assert received.counts(metric, "error.type") == counts
    if program.responses is not None:
        agents.saw(*program.responses)
    if program.per_process is not None:
        responses = [sums.get("endturn.responses", 0) for sums in received.sums.values()]
        assert sorted(filter(None, responses)) == program.per_process
    assert not program.own_ids or all(INSTANCE.fullmatch(name) for name in received.sums)
    assert program.services is None or set(program.services) == received.names
    assert program.spans is None or program.spans == flat(received.spans)
    assert program.events is None or program.events == flat(received.events)
    assert program.sums == {metric: received.total(metric) for metric in program.sums}
    assert not [text for text in program.sends if text.encode() not in received.posted]
    assert not [text for text in program.withholds if text.encode() in received.posted]
    assert received.shared == [], "two processes exported over one connection"


@pytest.mark.slow
def test_spans_and_events_outlive_a_collector_that_is_away(agents: World) -> None:
    """For longer than an exporter waits by itself; the metrics say all in their next export."""
    code = (PROGRAMS_FOLDER / "six_hundred_calls.py").read_text()
    port = free_port()
    variables = agents.variables(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{LOOPBACK}:{port}")
    pipe = subprocess.PIPE
    with subprocess.Popen([*PYTHON, code], env=variables, cwd=REPOSITORY, text=True, stdin=pipe, stdout=pipe) as agent:
        assert agent.stdout is not None
        assert agent.stdout.read(6) == "called"
        time.sleep(15)
        with receiving(port) as received:
            eventually(lambda: len(flat(received.spans)) >= 600 <= len(flat(received.events)), what="all", timeout=40)
            agent.communicate("\n", timeout=20)
            assert len(flat(received.spans)) == 600
            assert flat(received.events).count("endturn.stop_reason_observed") == 600
            assert received.total("endturn.responses") == 600


def test_the_documented_file_is_one(tmp_path: Path) -> None:
    """What docs/zero-code.md shows has the file's schema, and our options."""
    shown = (REPOSITORY / "docs" / "zero-code.md").read_text().split("```yaml\n")[1].split("```")[0]
    (tmp_path / "otel.yaml").write_text(shown)
    loaded = load_config_file(tmp_path / "otel.yaml").instrumentation_development
    assert loaded is not None
    assert loaded.python is not None
    options = Options(**loaded.python["endturn"])
    assert options.events == "both"
    assert options.prices is not None
    assert list(options.prices["gpt-5-mini"]) == [0.25, 2.0]


def test_we_are_never_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever of the instrumented libraries is there, in a version of whatever age."""
    api = distribution("opentelemetry-api").version  # a dependency of ours

    def version(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    assert get_dist_dependency_conflicts(distribution("endturn")) is None
    monkeypatch.setattr(dependencies, "version", version)
    for there in ([], ["openai"], ["httpx", "openai"]):
        installed = {"opentelemetry-api": api, **dict.fromkeys(there, "0.0.1b1")}
        assert get_dist_dependency_conflicts(distribution("endturn")) is None
    (found,) = entry_points(group="opentelemetry_instrumentor", name="endturn")
    assert found.load() is EndturnInstrumentor
    required = distribution("endturn").requires or []
    assert any("instruments-any" in each and each.startswith("openai") for each in required)


def gets(url: str) -> str:
    """What answers, by its process; nothing as long as nobody does."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("start", "options"),
    [
        pytest.param([], ["--preload"], id="one line, preload"),
        pytest.param([], [], id="one line in each worker", marks=pytest.mark.slow),
        pytest.param([], ["--max-requests=2"], id="one line, workers that are replaced"),
        pytest.param(["endturn", "run"], [], id="endturn run"),
        pytest.param(
            ["opentelemetry-instrument"], ["--preload"], id="opentelemetry-instrument, preload", marks=pytest.mark.slow
        ),
    ],
)
def test_pre_forked_workers_of_a_server(agents: World, tmp_path: Path, start: list[str], options: list[str]) -> None:
    """gunicorn's workers: each counts its own requests, and exports them when the server is told to stop, or replaces
    it. A parent that loads the application asks and exports before it forks; no worker uses its connections."""
    variables = {} if start else {"CONFIGURE": "1"}
    in_parent = 1 if "--preload" in options and not start else 0
    if in_parent:
        variables["PARENT"] = "exports"
    port = free_port()
    command = [*start, "gunicorn", "--workers=2", f"--bind={LOOPBACK}:{port}", "--no-control-socket"]
    command += [*options, "tests.apps.web:app"]
    log = tmp_path / "log"
    with log.open("wb") as sink:
        server = subprocess.Popen(command, env=agents.variables(**POD, **variables), stdout=sink, stderr=sink)
        try:
            eventually(lambda: gets(f"http://{LOOPBACK}:{port}/"), what="gunicorn to answer")
            with ThreadPoolExecutor(4) as pool:
                served = list(
                    pool.map(lambda path: gets(f"http://{LOOPBACK}:{port}/{path}"), ["done", "done", "cut"] * 4)
                )
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    agents.saw(done=8 + in_parent, cut=4)
    counted = [sums.get("endturn.responses", 0) for sums in agents.received.sums.values()]
    by_worker = [served.count(worker) for worker in set(served)]
    assert sorted(filter(None, counted)) == sorted(by_worker + [1] * in_parent)
    assert agents.received.shared == [], "two processes exported over one connection"


def test_open_loops_of_a_server_s_workers(agents: World, tmp_path: Path) -> None:
    """Whatever waits for tools when gunicorn tells its workers to stop is counted, each turn once."""
    port = free_port()
    command = ["gunicorn", "--workers=2", f"--bind={LOOPBACK}:{port}", "--no-control-socket", "tests.apps.web:app"]
    log = tmp_path / "log"
    with log.open("wb") as sink:
        server = subprocess.Popen(command, env=agents.variables(**POD, CONFIGURE="1"), stdout=sink, stderr=sink)
        try:
            eventually(lambda: gets(f"http://{LOOPBACK}:{port}/"), what="gunicorn to answer")
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda _: gets(f"http://{LOOPBACK}:{port}/loop"), range(6)))
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    assert agents.received.counts("endturn.responses", "endturn.stop.reason") == {"tool_call": 6}
    assert agents.received.total("endturn.turns") == 6
