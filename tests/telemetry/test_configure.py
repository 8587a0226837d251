"""`configure()`: one process, set up from the standard variables, and told apart from every other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from endturn.errors import UsageError
from endturn.telemetry.otel_providers import Options
from tests.support.receiver import Receiver, receiving

INSTANCE = re.compile(r"pod-7-\d+-[0-9a-f]{4}")

CALL = """
import os, sys
import endturn
from endturn import hooks
from endturn.scopes import Layer, open_call
from endturn.chat import Usage
from endturn.stop import Stop, StopReason

def call(reason=StopReason.MAX_TOKENS):
    made = open_call(Layer.CLIENT, None, provider="openai", model="gpt-5")
    with made.step():
        pass
    made.end(Stop(reason, "length"), usage=Usage(input_tokens=3, output_tokens=5))

def instance():
    print("instance", telemetry.instance, flush=True)
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as kept:
        yield kept


def start(code: str, **variables: str) -> subprocess.Popen[str]:
    """Start a program in a process of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "ENDTURN_"))}
    command = [sys.executable, "-W", "error", "-c", CALL + code]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=clean | variables, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


def run(
    code: str, receiver: Any = None, *, complaints: object = False, status: object = 0, **variables: str
) -> list[str]:
    """Run a program until it ends; what it printed, line by line. No traceback, but for `complaints`."""
    if receiver is not None:
        variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver.url
    with start(code, **variables) as program:
        out, complained = program.communicate(timeout=60)
    assert program.returncode == status, complained
    assert complaints or "Traceback" not in complained, complained
    return [*out.splitlines(), *complained.splitlines()]


def only(found: dict[str, Any]) -> Any:
    (one,) = found.values()
    return one


def test_an_agent_shorter_than_one_export_interval_is_seen(receiver: Receiver) -> None:
    """Spans, events and metrics leave when the process ends: the open turn too, which ends with it."""
    said = run(
        "telemetry = endturn.configure(service_name='agent')\ncall()\ninstance()",
        receiver,
        OTEL_RESOURCE_ATTRIBUTES="service.instance.id=pod-7",
    )
    assert INSTANCE.fullmatch(said[0].removeprefix("instance "))
    assert list(receiver.spans) == list(receiver.events) == list(receiver.sums) == [said[0].removeprefix("instance ")]
    assert receiver.names == {"agent"}
    assert only(receiver.spans) == ["chat gpt-5"]
    assert only(receiver.events) == ["endturn.stop_reason_observed", "endturn.continuation_terminated"]
    sums = only(receiver.sums)
    assert (sums["endturn.responses"], sums["endturn.turns"], sums["endturn.truncation.exits"]) == (1, 1, 1)
    assert sums["endturn.continuations"] == 0


def test_workers_under_one_configured_id_are_told_apart(receiver: Receiver) -> None:
    """Four spawned processes: four ids, and each process's own sums under its own."""
    program = "telemetry = endturn.configure()\n" + "call(StopReason.END_TURN)\n" * 3
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=pod-7,service.name=workers",
    }
    workers = [start(program, **variables) for _ in range(4)]
    for worker in workers:
        with worker:
            worker.communicate(timeout=60)
    assert [worker.returncode for worker in workers] == [0] * 4
    assert len(receiver.sums) == 4
    assert all(INSTANCE.fullmatch(name) for name in receiver.sums)
    assert [sums["endturn.responses"] for sums in receiver.sums.values()] == [3] * 4


def test_the_handle_flushes_and_shuts_down(receiver: Receiver) -> None:
    """As a context manager; what comes after the block is not recorded."""
    code = """
with endturn.configure(resource={"service.name": "block"}) as telemetry:
    call(StopReason.END_TURN)
    assert telemetry.force_flush()
    print(hooks.listening())
print(hooks.listening())
call(StopReason.END_TURN)
"""
    assert run(code, receiver) == ["True", "False"]
    assert receiver.names == {"block"}
    assert only(receiver.sums)["endturn.responses"] == 1
    assert only(receiver.spans) == ["chat gpt-5"]


@pytest.mark.parametrize(
    "given",
    [{"prices": {"m": 3}}, {"prices": {"m": (1,)}}, {"prices": {"m": ("a", 2)}}, {"prices": "cheap"},
     {"prices": {"m": (1.0, -2)}}, {"agent": "yes"}, {"counted": "no"}, {"gen_ai_metrics": 1},
     {"semconv": "new"}],
    ids=str,
)  # fmt: skip
def test_options_that_cannot_be_used_are_refused(given: dict[str, Any]) -> None:
    """At once, and not where a continuation is counted."""
    with pytest.raises(UsageError, match=f"{next(iter(given))}="):
        Options(**given).check()


NONE = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
AGAIN = "endturn.configure() is telemetry"

PROGRAMS: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "an exporter that is given": (
        """
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
spans = InMemorySpanExporter()
telemetry = endturn.configure(span_exporter=spans, instrument=True)
call()
telemetry.force_flush()
(span,) = spans.get_finished_spans()
print(span.name, span.attributes.get("endturn.counted"))
""",
        {**NONE, "OTEL_TRACES_EXPORTER": "otlp"},
        ["chat gpt-5 None"],
    ),
    "a disabled SDK is left disabled": (
        """
from opentelemetry import trace
telemetry = endturn.configure()
call()
print(type(trace.get_tracer_provider()).__name__, hooks.listening(), repr(telemetry.instance))
assert telemetry.force_flush()
telemetry.shutdown()
""",
        {"OTEL_SDK_DISABLED": "true"},
        ["ProxyTracerProvider False ''"],
    ),
    "providers of the host stay": (
        """
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
logging.getLogger("opentelemetry").setLevel(logging.ERROR)
from opentelemetry import metrics, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
spans, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
telemetry = endturn.configure()
call()
print(trace.get_tracer_provider() is provider, type(metrics.get_meter_provider()).__module__)
print(len(spans.get_finished_spans()))
telemetry.shutdown()
print(provider.get_tracer("still").start_span("open").is_recording())
""",
        {**NONE, "OTEL_TRACES_EXPORTER": "otlp"},
        [
            "endturn: a provider for traces is installed already; it is used as it is",
            "True opentelemetry.metrics._internal",
            "1",
            "True",
        ],
    ),
    "a second call gets the first handle": (
        """
import logging
logging.basicConfig(format="%(message)s", stream=sys.stdout)
telemetry = endturn.configure(service_name="first", instrument=False)
print(endturn.configure(service_name="second") is telemetry)
""",
        NONE,
        ["endturn: telemetry is set up already, and service_name cannot be used any more", "True"],
    ),
    "a resource that is none": (
        """
try:
    endturn.configure(resource="agent")
except endturn.UsageError as error:
    print(error)
""",
        {},
        ["resource='agent': give a Resource, or a mapping of attributes"],
    ),
    "who asked for nothing is not warned": ("telemetry = endturn.configure()\ncall()", NONE, []),
    "one signal's own protocol is asked for first": (
        "telemetry = endturn.configure(instrument=False)\nprint(telemetry.instance != '', hooks.listening())",
        {
            **NONE,
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        },
        ["True False"],
    ),
    "what was undone is done again": (
        f"""
telemetry = endturn.configure(); endturn.uninstrument()
print(hooks.listening())
print({AGAIN}, len(hooks._listeners))
""",
        NONE,
        ["False", "True 1"],
    ),
    "after its shutdown a process is not configured again": (
        f"""
telemetry = endturn.configure(); telemetry.shutdown()
print({AGAIN}, hooks.listening())
""",
        NONE,
        [
            "True False",
            "endturn: this process was configured and shut down, and OpenTelemetry's providers can be set only once: "
            "nothing more is recorded. Call configure() once, and shutdown() where the process ends",
        ],
    ),
    "providers are objects": (
        """
from opentelemetry.sdk.trace import TracerProvider
for given in ({"tracer_provider": "zz"}, {"tracer_provider": TracerProvider}, {"meter_provider": 1}):
    try:
        endturn.instrument(**given)
    except endturn.UsageError as error:
        print(error)
print(hooks.listening())
""",
        {},
        [
            "tracer_provider='zz': give an OpenTelemetry provider object",
            "tracer_provider=<class 'opentelemetry.sdk.trace.TracerProvider'>: give an OpenTelemetry provider object",
            "meter_provider=1: give an OpenTelemetry provider object",
            "False",
        ],
    ),
}


@pytest.mark.parametrize(("code", "variables", "said"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_program(code: str, variables: dict[str, str], said: list[str]) -> None:
    """What it prints, and what is said to it."""
    assert run(code, None, **variables) == said


REFUSED = """
from opentelemetry import trace
{before}
try:
    endturn.configure({arguments})
except endturn.UsageError as error:
    print(error)
print(type(trace.get_tracer_provider()).__name__)
"""


@pytest.mark.parametrize(
    ("variables", "arguments", "before", "said"),
    [
        pytest.param(
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "", "",
            "pip install opentelemetry-exporter-otlp-proto-grpc", id="grpc",
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "grpc"}, "", "",
            "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL='grpc'", id="one signal",
        ),
        pytest.param({"OTEL_TRACES_EXPORTER": "zipkin"}, "", "", "OTEL_TRACES_EXPORTER='zipkin'", id="exporter"),
        pytest.param({}, "span_exporter='console'", "", "variable OTEL_TRACES_EXPORTER", id="name of an exporter"),
        pytest.param({}, "log_exporter=dict", "", "give an exporter object", id="class"),
        pytest.param({}, "events='everywhere'", "", "events='everywhere'", id="place for events"),
        pytest.param({}, "", "sys.modules['opentelemetry.sdk'] = None", "pip install 'endturn[otlp]'", id="no SDK"),
        pytest.param(
            {}, "", "sys.modules['opentelemetry.exporter'] = None", "pip install 'endturn[otlp]'", id="no exporter"
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_before_anything_is(
    variables: dict[str, str], arguments: str, before: str, said: str
) -> None:
    """With the variable or package to change, and nothing set up in part."""
    error, provider = run(REFUSED.format(before=before, arguments=arguments), None, **variables)
    assert said in error
    assert provider == "ProxyTracerProvider"


def register(folder: Path, **entries: str) -> None:
    """Install a package that registers exporters with the SDK: by name, `group value`."""
    (folder / "theirs.py").write_text(THEIRS)
    info = folder / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    lines = [
        f"[opentelemetry_{group}_exporter]\n{name} = {value}\n"
        for name, (group, value) in ((name, entry.split()) for name, entry in entries.items())
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


THEIRS = """
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
    ("variables", "name"),
    [
        pytest.param({"OTEL_TRACES_EXPORTER": "theirs"}, "theirs", id="by name"),
        pytest.param({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "otlp_proto_grpc", id="gRPC"),
    ],
)
def test_exporters_of_other_packages(tmp_path: Path, variables: dict[str, str], name: str) -> None:
    """As the SDK's own loader finds them: by the name that they have registered, a reader of metrics too."""
    register(tmp_path, **{name: "traces theirs:Spans", "fetched": "metrics theirs:Reader"})
    said = run(
        "telemetry = endturn.configure()\ncall()",
        None,
        **{"OTEL_METRICS_EXPORTER": "fetched", "OTEL_LOGS_EXPORTER": "none", "PYTHONPATH": str(tmp_path), **variables},
    )
    assert sorted(said) == ["exported ['chat gpt-5']", "read True"]
