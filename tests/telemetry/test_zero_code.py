"""`endturn run` and the instrumentor, in process; the programs that they start are in programs.yaml."""

from __future__ import annotations

import logging
import os
import sys
from importlib.metadata import PackageNotFoundError, distribution, entry_points
from pathlib import Path

import pytest
from opentelemetry.configuration import load_config_file
from opentelemetry.instrumentation import dependencies
from opentelemetry.instrumentation.dependencies import get_dist_dependency_conflicts

from endturn import cli, hooks, run
from endturn.instrumentation import zero_code
from endturn.instrumentation.instrument import uninstrument
from endturn.instrumentation.zero_code import EndturnInstrumentor
from endturn.telemetry.otel_providers import Options
from tests.support.processes import REPOSITORY


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_SDK_DISABLED", "TRUE "),
        ("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "flask, endturn"),
        ("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "*"),
    ],
)
def test_what_switches_us_off(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """The standard variables."""
    monkeypatch.setenv(name, value)
    assert zero_code.is_disabled()


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
    ("variable", "value", "said"),
    [
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc", [
            "no metrics are exported: OTEL_EXPORTER_OTLP_METRICS_PROTOCOL='grpc': no exporter of metrics is "
            "registered as 'otlp_proto_grpc': pip install opentelemetry-exporter-otlp-proto-grpc"]),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "smoke", ["OTEL_EXPORTER_OTLP_PROTOCOL='smoke': use http/"] * 3),
        ("OTEL_LOGS_EXPORTER", "loki", ["no logs are exported: OTEL_LOGS_EXPORTER='loki'"]),
        ("OTEL_METRICS_EXPORTER", "prometheus", ["pip install opentelemetry-exporter-prometheus"]),
        ("OTEL_CONFIG_FILE", "/nowhere.yaml", ["'/nowhere.yaml' is not a file"]),
        ("OF_NO_INTEREST", "", []),
    ],
)  # fmt: skip
def test_a_program_runs_whatever_the_variables_ask_for(
    started: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    said: list[str],
) -> None:
    """It may need none of it; what will not be done is said before it starts."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit):
        cli.main(["run", __file__, "done"])
    assert started == [[sys.executable, __file__, "done"]]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(said)
    assert all(expected in line for expected, line in zip(said, lines, strict=True))


def test_without_the_sdk_there_is_nothing_to_run_for(
    started: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is refused; without what reads a configuration file the program runs."""
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "opentelemetry.sdk.resources", None)
        assert cli.main(["run", "true"]) == 2
    said = "endturn: endturn run needs the OpenTelemetry SDK: pip install 'endturn[otlp]'\n"
    assert capsys.readouterr().err == said
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
    made = run.environment({"PYTHONPATH": "/a"})
    assert made["OTEL_EXPORTER_OTLP_PROTOCOL"] == "http/protobuf"
    assert made["PYTHONPATH"].split(os.pathsep) == [str(run.SITE), "/a"]
    again = run.environment({**made, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert again["OTEL_EXPORTER_OTLP_PROTOCOL"] == "grpc"
    assert again["PYTHONPATH"] == made["PYTHONPATH"]


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
