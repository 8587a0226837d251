"""Agents without a line of telemetry: `opentelemetry-instrument`, a configuration file, and `endturn run`."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, entry_points
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.configuration import load_config_file
from opentelemetry.instrumentation import dependencies
from opentelemetry.instrumentation.dependencies import get_dist_dependency_conflicts

from endturn import cli, hooks, run
from endturn.instrumentation import zero_code
from endturn.instrumentation.instrument import uninstrument
from endturn.instrumentation.zero_code import EndturnInstrumentor
from endturn.telemetry.otel_providers import Options
from tests.support.agents import APPS, World, world
from tests.support.processes import REPOSITORY

BARE = APPS / "bare.py"
HTTP = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}

CONFIGURED = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
kept, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
sys.path.insert(0, "tests/apps")
import bare
with trace.get_tracer("agent").start_as_current_span("agent"):
    bare.ask("cut", "Why?")
print(trace.get_tracer_provider() is provider, [span.name for span in kept.get_finished_spans()])
"""
"""An agent that sets up a tracer provider of its own."""


@pytest.fixture
def agents() -> Iterator[World]:
    with world() as made:
        yield made


# --- endturn run ---------------------------------------------------------------------------------------------------


COMMANDS: dict[str, list[str | Path]] = {
    "module": ["-m", "tests.apps.bare"],
    "shell": ["--", "sh", "-c", f'python {BARE} "$@"', "sh"],
}


@pytest.mark.parametrize("form", COMMANDS)
def test_a_program_is_observed(agents: World, form: str) -> None:
    """Its calls are counted, and it sees its own arguments, whatever form the command has."""
    agents.run("endturn", "run", *COMMANDS[form], "done", "cut", "done", env={"OTEL_SERVICE_NAME": "bare"})
    agents.saw(done=2, cut=1)
    assert agents.received.names == {"bare"}
    assert b"planted" not in agents.received.posted


def test_a_program_whose_threads_are_green(agents: World) -> None:
    """gevent replaces what threads are made of after endturn was imported: calls are observed, and nobody is kept."""
    done = agents.run("endturn", "run", "-m", "tests.apps.green", "done", "cut", "done", env=HTTP)
    agents.saw(done=2, cut=1)
    assert done.stdout == "others run True\n"


ENDINGS = {"exit": 3, "raise": 1, "term": -signal.SIGTERM}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_as_it_would(agents: World, ending: str) -> None:
    """Its exit status is its own, and all is exported before; but a signal that nothing handles ends it on the spot."""
    done = agents.run("endturn", "run", BARE, "done", "cut", status=ENDINGS[ending], env={"ENDING": ending})
    assert ("RuntimeError: the agent failed" in done.stderr) is (ending == "raise")
    if ending != "term":
        agents.saw(done=1, cut=1)


def test_a_program_that_calls_no_model_is_left_as_it_is(agents: World) -> None:
    """No provider is set, nothing imported or sent; it is no child: what has the terminal is the program itself."""
    code = """
import os, sys
from opentelemetry import trace
print(os.getppid(), sys.argv[1:], "ENDTURN_RUN" in os.environ)
print(type(trace.get_tracer_provider()).__name__, "opentelemetry.sdk.trace" in sys.modules, "openai" in sys.modules)
"""
    done = agents.run("endturn", "run", "-c", code, "--version", "-h")
    assert done.stdout.splitlines() == [f"{os.getpid()} ['--version', '-h'] False", "ProxyTracerProvider False False"]
    assert agents.received.posted == b""


def test_an_agent_that_sets_up_opentelemetry_keeps_what_it_sets_up(agents: World) -> None:
    """Its provider is not refused, and gets our spans; the signals that it does not care for are ours."""
    done = agents.run("endturn", "run", "-c", CONFIGURED)
    assert done.stdout == "True ['chat cut', 'agent']\n"
    received = agents.received
    assert not received.spans
    assert received.counts("endturn.responses", "endturn.stop.reason") == {"max_tokens": 1}
    assert received.total("endturn.turns") == 1


SET_BY_THE_HOST = """
import logging, os, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
import endturn
sys.path.insert(0, "tests/apps")
import bare
if "late" in sys.argv:
    bare.ask("done", "of no interest")
def redact(text):
    return text.replace("planted", "[hidden]")
endturn.configure(content="SPAN_AND_EVENT", redact=redact, events="both", service_name="mine")
bare.ask("cut", "a planted word")
"""


@pytest.mark.parametrize(
    ("by", "when"), [("endturn", "first"), ("endturn", "late"), ("opentelemetry-instrument", "first")]
)
def test_what_the_agent_itself_asks_for_is_done(agents: World, by: str, when: str) -> None:
    """Its redaction, above all, however it was started and however late its own line comes; a late name is said."""
    command = ["endturn", "run"] if by == "endturn" else [by, "python"]
    done = agents.run(*command, "-c", SET_BY_THE_HOST, when, env=HTTP)
    posted = bytes(agents.received.posted)
    assert b"a [hidden] word" in posted
    assert b"planted" not in posted
    agents.saw(done=int(when == "late"), cut=1)
    if by == "endturn" and when == "first":
        assert (done.stdout, agents.received.names) == ("", {"mine"})
    else:
        assert "service" in done.stdout
        assert "keep their names" in done.stdout or "service_name cannot be used any more" in done.stdout
        assert "mine" not in agents.received.names


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_SDK_DISABLED": "TRUE "},
        {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "flask, endturn"},
        {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*"},
    ],
    ids=["SDK", "by name", "all"],
)
def test_what_switches_us_off(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """The standard variables."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert zero_code.is_disabled()


def test_another_sitecustomize_still_runs(agents: World, tmp_path: Path) -> None:
    """Ours stands in front of it, and hands over; it finds itself under its name."""
    (tmp_path / "sitecustomize.py").write_text("import sys; print('theirs', sys.modules[__name__].__file__)")
    done = agents.run("endturn", "run", BARE, "done", env={"PYTHONPATH": str(tmp_path)})
    # Once in the command line's own Python, once in the agent's.
    assert done.stdout == f"theirs {tmp_path / 'sitecustomize.py'}\n" * 2
    agents.saw(done=1, cut=0)


def test_a_python_without_endturn_runs_unobserved(agents: World, tmp_path: Path) -> None:
    """It is said, once, and the program runs."""
    (tmp_path / "endturn").mkdir()
    (tmp_path / "endturn" / "__init__.py").write_text("raise ImportError('not here')")
    code = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'print(1)']))"
    env = {"PYTHONPATH": f"{run.SITE}{os.pathsep}{tmp_path}", "ENDTURN_RUN": "1"}
    done = agents.run(sys.executable, "-c", code, env=env)
    assert done.stdout == "1\n"
    assert done.stderr == f"endturn: {sys.executable} is not observed, endturn cannot be imported there: not here\n"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The programs that this process would have become."""
    for name in [name for name in os.environ if name.startswith(("OTEL_", "ENDTURN_"))]:
        monkeypatch.delenv(name)
    found: list[list[str]] = []

    def become(path: str, command: list[str], variables: object) -> None:
        found.append(command)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", become)
    return found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param([], "nothing to run", id="nothing"),
        pytest.param(["no-such-program"], "'no-such-program' is not a program on the PATH", id="not found"),
        pytest.param(["nowhere/agent.py"], "'nowhere/agent.py' is not a file", id="no file"),
        pytest.param(["-m"], "-m of what?", id="no module"),
        pytest.param(["--reload", "x"], "'--reload' is no option of endturn run", id="option"),
    ],
)
def test_what_cannot_be_run_is_refused(
    started: list[list[str]], capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """Status 2, one line, and what to change."""
    assert cli.main(["run", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not started


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc"},
            ["no metrics are exported: OTEL_EXPORTER_OTLP_METRICS_PROTOCOL='grpc': no exporter of metrics is "
             "registered as 'otlp_proto_grpc': pip install opentelemetry-exporter-otlp-proto-grpc"],
            id="grpc",
        ),
        pytest.param({"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"}, ["OTEL_EXPORTER_OTLP_PROTOCOL='smoke': use http/"] * 3,
                     id="protocol"),
        pytest.param({"OTEL_LOGS_EXPORTER": "loki"}, ["no logs are exported: OTEL_LOGS_EXPORTER='loki'"],
                     id="exporter"),
        pytest.param({"OTEL_METRICS_EXPORTER": "prometheus"}, ["pip install opentelemetry-exporter-prometheus"],
                     id="prometheus"),
        pytest.param({"OTEL_CONFIG_FILE": "/nowhere.yaml"}, ["'/nowhere.yaml' is not a file"], id="configuration file"),
    ],
)  # fmt: skip
def test_a_program_runs_whatever_the_variables_ask_for(
    started: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    said: list[str],
) -> None:
    """It may need none of it; what will not be done is said before it starts."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        cli.main(["run", str(BARE), "done"])
    assert started == [[sys.executable, str(BARE), "done"]]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(said)
    assert all(expected in line for expected, line in zip(said, lines, strict=True))


def test_what_one_signal_asks_for_in_vain_the_others_do_not_lack(agents: World) -> None:
    """No exporter for metrics, and a word for events that is none: both are said, and the calls are traced."""
    variables = {"OTEL_METRICS_EXPORTER": "prometheus", "ENDTURN_EVENTS": "loud"}
    done = agents.run("endturn", "run", BARE, "cut", env=variables)
    assert done.stderr.count("no metrics are exported") == 2  # before it starts, and when it would be needed
    assert "ENDTURN_EVENTS is none of logs, spans, both: events go to logs" in done.stderr
    assert list(agents.received.spans.values()) == [["chat cut"]]
    assert agents.received.events
    assert not agents.received.sums


def test_without_the_sdk_there_is_nothing_to_run_for(
    started: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is refused; without what reads a configuration file the program runs."""
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "opentelemetry.sdk.resources", None)
        assert cli.main(["run", "true"]) == 2
    assert capsys.readouterr().err == (
        "endturn: endturn run needs the OpenTelemetry SDK: pip install 'endturn[otlp]'\n"
    )
    monkeypatch.setitem(sys.modules, "opentelemetry.configuration", None)
    monkeypatch.delattr("opentelemetry.configuration", raising=False)
    monkeypatch.setenv("OTEL_CONFIG_FILE", str(tmp_path / "otel.yaml"))
    (tmp_path / "otel.yaml").touch()
    with pytest.raises(SystemExit):
        cli.main(["run", "true"])
    assert "the program is not observed: OTEL_CONFIG_FILE is set" in capsys.readouterr().err
    assert [Path(command[0]).name for command in started] == ["true"]


def test_the_protocol_is_set_where_none_is() -> None:
    """And our folder leads PYTHONPATH, once, before what was there."""
    site = str(run.SITE)
    made = run.environment({"PYTHONPATH": "/a"})
    assert made["OTEL_EXPORTER_OTLP_PROTOCOL"] == "http/protobuf"
    assert made["PYTHONPATH"].split(os.pathsep) == [site, "/a"]
    again = run.environment({**made, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert again["OTEL_EXPORTER_OTLP_PROTOCOL"] == "grpc"
    assert again["PYTHONPATH"] == made["PYTHONPATH"]


# --- opentelemetry-instrument, and the configuration file ----------------------------------------------------------


def config(agents: World, folder: Path, **endturn: Any) -> dict[str, str]:
    """The variable that names a configuration file, in which endturn has these options."""
    exporter = {"otlp_http": {"endpoint": f"{agents.received.url}/v1/%s"}}

    def to(signal: str) -> dict[str, Any]:
        return json.loads(json.dumps(exporter).replace("%s", signal))  # type: ignore[no-any-return]

    (folder / "otel.yaml").write_text(
        json.dumps(  # JSON is YAML
            {
                "file_format": "1.1",
                "resource": {"attributes": [{"name": "service.name", "value": "from-file"}]},
                "tracer_provider": {"processors": [{"batch": {"exporter": to("traces")}}]},
                "meter_provider": {"readers": [{"periodic": {"exporter": to("metrics")}}]},
                "logger_provider": {"processors": [{"batch": {"exporter": to("logs")}}]},
                "instrumentation/development": {"python": {"endturn": endturn}},
            }
        )
    )
    return {"OTEL_CONFIG_FILE": str(folder / "otel.yaml")}


@pytest.mark.parametrize(
    "command", [["opentelemetry-instrument", "python"], ["endturn", "run"]], ids=["opentelemetry", "endturn"]
)
def test_a_configuration_file_sets_the_options(agents: World, tmp_path: Path, command: list[str]) -> None:
    """The SDK is set up as it says, and `instrumentation/development: python: endturn` are our options."""
    variables = config(agents, tmp_path, enabled=True, events="spans", gen_ai_metrics=False)
    done = agents.run(*command, BARE, "done", "cut", env=variables)
    assert "endturn" not in done.stderr
    received = agents.received
    assert received.names == {"from-file"}
    assert received.counts("endturn.responses", "endturn.stop.reason") == {"end_turn": 1, "max_tokens": 1}
    assert b"endturn.stop_reason_observed" in received.posted  # on the span
    assert b"gen_ai.client.operation.duration" not in received.posted


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


def test_a_configuration_file_switches_us_off(agents: World, tmp_path: Path) -> None:
    """`enabled: false` under `endturn run`."""
    agents.run("endturn", "run", BARE, "done", env=config(agents, tmp_path, enabled=False))
    assert agents.received.total("endturn.responses") == 0


def test_a_configuration_file_that_cannot_be_used_breaks_nothing(agents: World, tmp_path: Path) -> None:
    """The agent runs; one line says why it is not observed."""
    (tmp_path / "otel.yaml").write_text("file_format: '9.9'\n")
    done = agents.run("endturn", "run", BARE, "done", env={"OTEL_CONFIG_FILE": str(tmp_path / "otel.yaml")})
    assert "endturn: this process is not observed" in done.stderr
    assert "9.9" in done.stderr  # by whoever reads it
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("installed", [(), ("openai",), ("httpx", "openai")])
def test_we_are_never_skipped(monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...]) -> None:
    """Whatever of the instrumented libraries is there, in a version of whatever age."""

    def version(name: str) -> str:
        if name == "opentelemetry-api":  # a dependency of ours
            return distribution(name).version
        if name in installed:
            return "0.0.1b1"
        raise PackageNotFoundError(name)

    assert get_dist_dependency_conflicts(distribution("endturn")) is None
    monkeypatch.setattr(dependencies, "version", version)
    assert get_dist_dependency_conflicts(distribution("endturn")) is None
    (found,) = entry_points(group="opentelemetry_instrumentor", name="endturn")
    assert found.load() is EndturnInstrumentor
    required = distribution("endturn").requires or []
    assert any("instruments-any" in each and each.startswith("openai") for each in required)


def test_the_instrumentor_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be done is logged: one that raises would keep the loader from all others."""
    instrumentor = EndturnInstrumentor()
    with caplog.at_level(logging.WARNING, "endturn"):
        instrumentor.instrument(events="everywhere", skip_dep_check=True)
        assert not instrumentor.is_instrumented_by_opentelemetry
        instrumentor.instrument(tracer_provider="none")
        assert not hooks.listening()
        instrumentor.instrument(evnts="logs", agent=True, raise_exception_on_conflict=True)
        instrumentor.instrument()
    try:
        said = "\n".join(record.getMessage() for record in caplog.records if "SDK is set up" not in record.getMessage())
        assert "events='everywhere'" in said
        assert "give an OpenTelemetry provider object" in said
        assert "no such option: evnts; there are: agent, " in said
        assert EndturnInstrumentor().is_instrumented_by_opentelemetry
        assert EndturnInstrumentor().instrumentation_dependencies() == ()
    finally:
        instrumentor.uninstrument()
        instrumentor.uninstrument()
    assert not instrumentor.is_instrumented_by_opentelemetry
    uninstrument()


def test_the_instrumentor_needs_no_package_of_theirs(agents: World) -> None:
    """The configuration file's package loads it, and does not depend on opentelemetry-instrumentation."""
    code = """
import sys; sys.modules["opentelemetry.instrumentation"] = None
from endturn.instrumentation.zero_code import EndturnInstrumentor
made = EndturnInstrumentor()
made.instrument(); print(made.is_instrumented_by_opentelemetry); made.uninstrument()
"""
    assert agents.run(sys.executable, "-c", code).stdout == "True\n"
