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


def test_an_agent_shorter_than_one_export_interval_is_seen(agents: World) -> None:
    """Spans, events and metrics leave when the process ends: the open turn too, which ends with it."""
    code = "telemetry = endturn.configure(service_name='agent')\ncall()\ninstance()"
    (said,) = configured(agents, code, OTEL_RESOURCE_ATTRIBUTES="service.instance.id=pod-7")
    instance, received = said.removeprefix("instance "), agents.received
    assert INSTANCE.fullmatch(instance)
    assert received.names == {"agent"}
    assert received.spans == {instance: ["chat gpt-5"]}
    assert received.events == {instance: ["endturn.stop_reason_observed", "endturn.continuation_terminated"]}
    sums = received.sums[instance]
    assert (sums["endturn.responses"], sums["endturn.turns"], sums["endturn.truncation.exits"]) == (1, 1, 1)
    assert sums["endturn.continuations"] == 0


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


REFUSED = """
from opentelemetry import trace
{before}
try:
    endturn.configure({arguments})
except endturn.UsageError as error:
    print(error)
print(type(trace.get_tracer_provider()).__name__)
"""
INSTALL = "pip install 'endturn[otlp]'"


@pytest.mark.parametrize(
    ("variables", "arguments", "before", "said"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "", "", "pip install opentelemetry-exporter-otlp-proto-grpc"),
        ({"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "grpc"}, "", "", "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL='grpc'"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "", "", "OTEL_TRACES_EXPORTER='zipkin'"),
        ({}, "span_exporter='console'", "", "variable OTEL_TRACES_EXPORTER"),
        ({}, "log_exporter=dict", "", "give an exporter object"),
        ({}, "events='everywhere'", "", "events='everywhere'"),
        ({}, "", "sys.modules['opentelemetry.sdk'] = None", INSTALL),
        ({}, "", "sys.modules['opentelemetry.exporter'] = None", INSTALL),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is(
    agents: World, variables: dict[str, str], arguments: str, before: str, said: str
) -> None:
    """With the variable or package to change, and nothing set up in part."""
    error, provider = configured(agents, REFUSED.format(before=before, arguments=arguments), **variables)
    assert said in error
    assert provider == "ProxyTracerProvider"


THEIRS = """
import subprocess
import sys
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
class Spans(SpanExporter):
    def export(self, spans):
        sys.stdout.write(f"exported {[span.name for span in spans]}\\n")
        return SpanExportResult.SUCCESS
class Reader(InMemoryMetricReader):
    def shutdown(self, **options):
        sys.stdout.write(f"read {self.get_metrics_data() is not None}\\n")
        super().shutdown(**options)
"""


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [("OTEL_TRACES_EXPORTER", "theirs", "theirs"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "otlp_proto_grpc")],
)
def test_exporters_of_other_packages(agents: World, tmp_path: Path, variable: str, value: str, name: str) -> None:
    """As the SDK's own loader finds them: by the name that they have registered, a reader of metrics too."""
    (tmp_path / "theirs.py").write_text(THEIRS)
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        f"[opentelemetry_traces_exporter]\n{name} = theirs:Spans\n"
        "[opentelemetry_metrics_exporter]\nfetched = theirs:Reader\n"
    )
    env = {"OTEL_METRICS_EXPORTER": "fetched", "OTEL_LOGS_EXPORTER": "none", "PYTHONPATH": str(tmp_path)}
    said = configured(agents, "telemetry = endturn.configure()\ncall()", **env, **{variable: value})
    assert sorted(said) == ["exported ['chat gpt-5']", "read True"]
