"""Programs in processes of their own: how telemetry is set up, started without a line of code, and ended."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn import run
from endturn.errors import UsageError
from endturn.telemetry.otel_providers import Options
from tests.support.agents import World, world
from tests.support.processes import LOOPBACK, eventually, free_port
from tests.support.receiver import receiving

PROGRAMS: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("programs.yaml").read_text())
PRELUDES = PROGRAMS.pop("preludes")
PYTHON = [sys.executable, "-W", "error", "-c"]
INSTANCE = re.compile(r"pod-7-\d+-[0-9a-f]{4}")
OTHERS_OFF = {"OTEL_TRACES_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}


@pytest.fixture
def agents() -> Iterator[World]:
    with world() as made:
        yield made


def filled(value: Any, places: Mapping[str, object]) -> Any:
    """The value with each place that it names filled in."""
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda found: str(places.get(found[1], found[0])), value)
    if isinstance(value, dict):
        return {name: filled(each, places) for name, each in value.items()}
    return [filled(each, places) for each in value] if isinstance(value, list) else value


def flat(names: Mapping[str, Iterable[str]]) -> list[str]:
    return [name for each in names.values() for name in each]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(agents: World, tmp_path: Path, name: str) -> None:
    """It does, says and sends what programs.yaml says of it."""
    places = {"tmp": tmp_path, "url": agents.received.url, "closed": f"{LOOPBACK}:{free_port()}", "pid": os.getpid()}
    given = filled(
        {key: value for key, value in PROGRAMS[name].items() if key != "code"},
        {**places, "python": sys.executable, "site": run.SITE},
    )
    if given.get("crashes") == platform.python_version():
        pytest.skip("this Python crashes in it, unobserved too")
    for file, content in given.get("files", {}).items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(content)
    code = PROGRAMS[name].get("code")
    preludes = ["call"] * ("command" not in given) + given.get("preludes", [])
    command = [*given.get("command", PYTHON), *given.get("args", [])]
    if code is not None:
        command.insert(len(given.get("command", PYTHON)), "".join(PRELUDES[each] for each in preludes) + code)
    done = agents.run(*command, status=given.get("status", 0), env=given.get("env"))

    out, err, received = done.stdout.splitlines(), done.stderr.splitlines(), agents.received
    assert given.get("tracebacks") or "Traceback" not in done.stderr, done.stderr
    assert given.get("says", [*out, *err]) == [*out, *err]
    assert given.get("out", out) == out, done.stderr
    assert not [each for each in given.get("some", []) if not any(each in line for line in (*out, *err))], done.stderr
    if "saw" in given:
        agents.saw(*given["saw"])
    if "each" in given:
        assert sorted(sums.get("endturn.responses", 0) for sums in received.sums.values()) == given["each"]
    assert set(given.get("names", received.names)) == received.names
    assert given.get("spans", flat(received.spans)) == flat(received.spans)
    assert given.get("events", flat(received.events)) == flat(received.events)
    assert given.get("sums", {}) == {metric: received.total(metric) for metric in given.get("sums", {})}
    assert not [each for each in given.get("has", []) if each.encode() not in received.posted]
    assert not [each for each in given.get("hides", []) if each.encode() in received.posted]


# --- configure() ---------------------------------------------------------------------------------------------------


def configured(agents: World, code: str, **variables: str) -> list[str]:
    """What a program prints."""
    return agents.run(*PYTHON, PRELUDES["call"] + code, env=variables).stdout.splitlines()


def test_what_is_collected_at_the_end_of_a_short_process(agents: World) -> None:
    """Everything is 0 first, and what it is then; back ends that keep milliseconds tell the two apart."""
    code = PRELUDES["kept"] + "sys.argv.append('detailed')\nconfigure()\ncall(); call()"
    _, first, earlier, _, second, later = configured(agents, code, **OTHERS_OFF)
    *size, total = first.split()
    assert total == "0"
    assert second.split()[:2] == size
    assert int(later) > int(earlier)


def test_what_the_sdk_drops_is_counted(agents: World) -> None:
    """By the SDK's own metrics, exported like all others; what it counts for each span stays off."""
    code = """
from opentelemetry import trace
telemetry = endturn.configure()
tracer = trace.get_tracer("shop")
for _ in range(500):
    tracer.start_span("work").end()
telemetry.shutdown()
"""
    configured(agents, code, OTEL_BSP_MAX_QUEUE_SIZE="20", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="10")
    [found] = agents.received.points.values()
    processed = found["otel.sdk.processor.span.processed"].items()
    assert sum(value for labels, value in processed if ("error.type", "queue_full") in labels) > 400
    assert not {"otel.sdk.span.started", "otel.sdk.exporter.operation.duration"} & found.keys()


@pytest.mark.slow
def test_spans_and_events_outlive_a_collector_that_is_away(agents: World) -> None:
    """For longer than an exporter waits by itself; the metrics say all in their next export."""
    code = """
telemetry = endturn.configure()
for _ in range(600):
    call()
sys.stdout.write("called")
sys.stdout.flush()
sys.stdin.readline()
telemetry.shutdown()
"""
    port = free_port()
    variables = agents.variables(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{LOOPBACK}:{port}")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*PYTHON, PRELUDES["call"] + code], env=variables, text=True, stdin=pipe, stdout=pipe
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdout.read(6) == "called"
        time.sleep(15)
        with receiving(port) as received:
            eventually(lambda: len(flat(received.spans)) >= 600 <= len(flat(received.events)), what="all", timeout=40)
            agent.communicate("\n", timeout=20)
            assert len(flat(received.spans)) == 600
            assert flat(received.events).count("endturn.stop_reason_observed") == 600
            assert received.total("endturn.responses") == 600


@pytest.mark.parametrize(
    "given",
    [{"prices": {"m": 3}}, {"prices": {"m": (1,)}}, {"prices": {"m": ("a", 2)}}, {"prices": "cheap"},
     {"prices": {"m": (1.0, -2)}}, {"agent": "yes"}, {"counted": "no"}, {"gen_ai_metrics": 1},
     {"semconv": "new"}, {"content": "some"}, {"content": "true"}, {"content_max_chars": 0}, {"content_max_chars": "9"},
     {"redact": "strict"}],
    ids=str,
)  # fmt: skip
def test_options_that_cannot_be_used_are_refused(given: dict[str, Any]) -> None:
    """At once, and not where a continuation is counted."""
    with pytest.raises(UsageError, match=next(iter(given))):
        Options(**given).check()
