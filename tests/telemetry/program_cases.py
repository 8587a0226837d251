"""Programs that run in processes of their own, and the output and signals expected of each; test_programs.py runs them.

A program is a file in `programs/`, or a command. What several programs use is in `programs/parts/`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from endturn.cli import run
from tests.support.processes import LOOPBACK

PROGRAMS_FOLDER = Path(__file__).with_name("programs")

PYTHON = [sys.executable, "-W", "error", "-c"]
PLAIN_PYTHON = [sys.executable, "-c"]
ENDTURN_RUN = ["endturn", "run", "-c"]
OPENTELEMETRY_INSTRUMENT = ["opentelemetry-instrument", "python", "-c"]
CLOSED = f"{LOOPBACK}:1"
"""An address at which nobody listens."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program with what is expected of it. None or empty: it may be anything.

    Attributes:
        file: a file in `programs/`; its text is the argument of the command's `-c`. By its path it would have a name,
            which `endturn run` makes the service's.
        command: the words before the text and `args`.
        env: further variables.
        files: further files, written to the test's own folder.
        refusals: the status with which the OTLP endpoint answers a path.
        slow: run by `make test-all` alone.
        crashes_on: a version of Python on which it cannot run.

        status: the exit status.
        tracebacks: some may be in its output.
        output: all lines, those of stdout before those of stderr.
        stdout: all lines of stdout.
        lines: texts, each in some line of the output.
        once: texts, each in exactly one line.
        silent_on: texts that are in no line.

        services: the names of the services that exported.
        responses: how many were complete and how many were cut, each of them once in every signal.
        per_process: how many responses each of the processes counts.
        own_ids: each process has an id of its own, made of the configured one.
        spans, events: all of their names, in order.
        sums: the totals of metrics.
        exported: counters of the SDK by error type, "" without one.
        sends, withholds: texts that are in the exported bytes, and that are not.
    """

    file: str | None = None
    command: Sequence[str] = tuple(PYTHON)
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    refusals: Mapping[str, int] = field(default_factory=dict)
    slow: bool = False
    crashes_on: str | None = None

    status: int = 0
    tracebacks: bool = False
    output: list[str] | None = None
    stdout: list[str] | None = None
    lines: Sequence[str] = ()
    once: Sequence[str] = ()
    silent_on: Sequence[str] = ()

    services: Sequence[str] | None = None
    responses: tuple[int, int] | None = None
    per_process: list[int] | None = None
    own_ids: bool = False
    spans: list[str] | None = None
    events: list[str] | None = None
    sums: Mapping[str, int] = field(default_factory=dict)
    exported: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sends: Sequence[str] = ()
    withholds: Sequence[str] = ()


POD = {
    "OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=pod-7,service.name=workers",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
}
HTTP = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
ONLY_TRACES = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
NO_SIGNALS = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
ONLY_METRICS = {"OTEL_TRACES_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
NOBODY_LISTENS = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{CLOSED}", "OTEL_EXPORTER_OTLP_TIMEOUT": "0.5"}
THEIRS = {
    "theirs.py": (PROGRAMS_FOLDER / "parts/theirs.py").read_text(),
    "theirs-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: theirs\nVersion: 1\n",
    "theirs-1.dist-info/entry_points.txt": (
        "[opentelemetry_traces_exporter]\n"
        "theirs = theirs:Spans\n"
        "otlp_proto_grpc = theirs:Spans\n"
        "[opentelemetry_metrics_exporter]\n"
        "fetched = theirs:Reader\n"
    ),
}


def otlp_http(url: str, signal: str) -> str:
    """Return the exporter of a signal, as a configuration file has it."""
    return f'{{exporter: {{otlp_http: {{endpoint: "{url}/v1/{signal}"}}}}}}'


def otel_file(url: str) -> dict[str, str]:
    """Return a configuration file that exports to this URL."""
    return {
        "otel.yaml": (
            'file_format: "1.1"\n'
            "resource: {attributes: [{name: service.name, value: from-file}]}\n"
            f"tracer_provider: {{processors: [{{batch: {otlp_http(url, 'traces')}}}]}}\n"
            f"meter_provider: {{readers: [{{periodic: {otlp_http(url, 'metrics')}}}]}}\n"
            f"logger_provider: {{processors: [{{batch: {otlp_http(url, 'logs')}}}]}}\n"
            "instrumentation/development: {python: {endturn: {enabled: true, events: spans, gen_ai_metrics: false}}}\n"
        )
    }


PROGRAMS: dict[str, Program | Callable[[Path, str], Program]] = {
    # --- configure() ---
    # Spans, events and metrics leave when the process ends: the open turn too, which ends with it.
    "an agent shorter than one export interval": Program(
        file="one_call_of_a_named_service.py",
        services=["agent"],
        spans=["chat gpt-5"],
        events=["endturn.stop_reason_observed", "endturn.continuation_terminated"],
        sums={"endturn.responses": 1, "endturn.turns": 1, "endturn.truncation.exits": 1, "endturn.continuations": 0},
    ),
    # What cannot be done is refused with the keyword or package to change, and nothing is set up in part. A
    # variable breaks
    # no host: it is warned of.
    "what cannot be done": Program(
        file="refused_set_ups.py",
        lines=[
            "configure() needs the OpenTelemetry SDK: pip install 'endturn[otlp]'",
            "could not be imported: No module named 'opentelemetry.exporter.otlp'",
            (
                "span_exporter='console': give an exporter object; for a name (otlp, console, none) "
                "set the variable OTEL_TRACES_EXPORTER"
            ),
            "log_exporter=<class 'dict'>: give an exporter object",
            "events='everywhere': use one of logs, spans, both",
            "resource='agent': give a Resource, or a mapping of attributes",
            "tracer_provider='zz': give an OpenTelemetry provider object",
            ("tracer_provider=<class 'opentelemetry.sdk.trace.TracerProvider'>: give an OpenTelemetry provider object"),
            "meter_provider=1: give an OpenTelemetry provider object",
        ],
    ),
    "variables that cannot be used": Program(
        file="variables_that_cannot_be_used.py",
        env={
            "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "grpc",
            "OTEL_METRICS_EXPORTER": "statsd",
            "OTEL_BSP_MAX_QUEUE_SIZE": "0",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "20000",
            "ENDTURN_EVENT": "logs",
        },
        output=[
            (
                "endturn: OTEL_BSP_MAX_QUEUE_SIZE='0' cannot be used: use a whole number of spans, "
                "such as 8192; it is 8192"
            ),
            "endturn: ENDTURN_EVENT is not a variable of endturn; did you mean 'ENDTURN_EVENTS'?",
            (
                "endturn: no metrics are exported: OTEL_METRICS_EXPORTER='statsd': no exporter is "
                "registered as 'statsd': pip install the package that registers it, use otlp "
                "(http/protobuf), console or none, or pass an exporter object to configure()"
            ),
            (
                "endturn: no logs are exported: OTEL_EXPORTER_OTLP_LOGS_PROTOCOL='grpc': no exporter "
                "is registered as 'otlp_proto_grpc': pip install "
                "opentelemetry-exporter-otlp-proto-grpc, use otlp (http/protobuf), console or none, "
                "or pass an exporter object to configure()"
            ),
            (
                "endturn: OTEL_BSP_MAX_EXPORT_BATCH_SIZE='20000' cannot be used: it is more than "
                "OTEL_BSP_MAX_QUEUE_SIZE (8192), so it is 8192"
            ),
        ],
        stdout=[],
        spans=["chat gpt-5"],
    ),
    # As the SDK's own loader finds them: by the name that they have registered, a reader of metrics too.
    "exporters of other packages": lambda tmp, url: Program(
        file="one_call.py",
        env={
            "PYTHONPATH": f"{tmp}",
            "OTEL_TRACES_EXPORTER": "theirs",
            "OTEL_METRICS_EXPORTER": "fetched",
            "OTEL_LOGS_EXPORTER": "none",
        },
        files=THEIRS,
        lines=["exported ['chat gpt-5']", "read True"],
    ),
    "exporters of other packages, by protocol": lambda tmp, url: Program(
        file="one_call.py",
        env={
            "PYTHONPATH": f"{tmp}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_METRICS_EXPORTER": "fetched",
            "OTEL_LOGS_EXPORTER": "none",
        },
        files=THEIRS,
        lines=["exported ['chat gpt-5']", "read True"],
    ),
    "the handle flushes and shuts down": Program(
        file="handle_flushes_and_shuts_down.py",
        output=["True", "False"],
        services=["block"],
        spans=["chat gpt-5"],
        sums={"endturn.responses": 1},
    ),
    "an exporter that is given": Program(
        file="exporter_that_is_given.py",
        env=ONLY_TRACES,
        output=["chat gpt-5 None"],
    ),
    "a disabled SDK is left disabled": Program(
        file="disabled_sdk_is_left_disabled.py",
        env={"OTEL_SDK_DISABLED": "true"},
        output=["False", "ProxyTracerProvider False ''"],
    ),
    "providers of the host stay": Program(
        file="providers_of_the_host_stay.py",
        env=ONLY_TRACES,
        output=[
            "endturn: a provider for traces is already installed; it is used unchanged",
            "True opentelemetry.metrics._internal",
            "1",
            "True",
        ],
    ),
    # From the first on, before anything is collected: a Collector would count a span without it a second time.
    "spans say that the metrics of the host's own provider count them": Program(
        file="spans_counted_by_the_hosts_metrics.py",
        lines=["True True True"],
    ),
    # Nobody asked for a signal, so nobody is warned that there is none.
    "a process has one handle": Program(
        file="process_has_one_handle.py",
        env=NO_SIGNALS,
        output=[
            "endturn: telemetry is already set up, so service_name cannot be used",
            "True",
            "False",
            "True 1",
            (
                "endturn: this process was configured and shut down, and OpenTelemetry's providers "
                "can be set only once: nothing more is recorded. Call configure() once, and "
                "shutdown() when the process ends"
            ),
            "True False",
        ],
    ),
    "one signal's own protocol is asked for first": Program(
        file="one_signals_own_protocol_is_asked_for_first.py",
        env={
            **ONLY_TRACES,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        },
        output=["True False"],
    ),
    # --- On a provider of configure()'s own a new series is 0 first ---
    # Everything is 0 first, and what it is then; back ends that keep milliseconds tell the two apart.
    "a short process is collected twice at its end": Program(
        file="short_process_is_collected_twice_at_its_end.py",
        env=ONLY_METRICS,
        output=["cut 0", "cut 2", "True 0 True"],
    ),
    "a delta is carried over": Program(
        file="delta_is_carried_over.py",
        env=ONLY_METRICS,
        output=["cut 0", "cut 2", "cut 0", "cut 0"],
    ),
    "a series that comes later is new too": Program(
        file="series_that_comes_later_is_new_too.py",
        env=ONLY_METRICS,
        output=["cut", "cut 0", "cut 1", "cut 2", "cut 2", "cut 2"],
    ),
    # `force_flush` collects again where something was withheld, and only there.
    "the handle exports what has been recorded": Program(
        file="handle_exports_what_has_been_recorded.py",
        env=ONLY_METRICS,
        output=["cut 0", "cut 1", "again", "cut 1"],
    ),
    # `multiprocessing` has its workers export before they end.
    "forked processes have series of their own": Program(
        file="forked_processes_have_series_of_their_own.py",
        env=ONLY_METRICS,
        output=["cut 0", "cut 1", "cut 0", "cut 1", "cut 0", "cut 1", "cut 1"],
    ),
    # Nothing is known of its readers: one collection may be all there is.
    "a provider of the host gets the value at once": Program(
        file="provider_of_the_host_gets_the_value_at_once.py",
        env=ONLY_METRICS,
        output=["cut 1"],
    ),
    # By the SDK's own metrics, exported like all others; what it counts for each span stays off.
    "what the SDK drops is counted": Program(
        file="spans_that_the_sdk_drops.py",
        env={"OTEL_BSP_MAX_QUEUE_SIZE": "20", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10"},
        sends=["otel.sdk.processor.span.processed", "queue_full"],
        withholds=["otel.sdk.span.started", "otel.sdk.exporter.operation.duration"],
    ),
    # By its status; the endpoint's log may say more. No key is in the line.
    "a batch that is refused is counted as dropped, and reported once": lambda tmp, url: Program(
        file="refused_batches.py",
        env={"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer sk-planted-secret"},
        refusals={"/v1/traces": 404, "/v1/logs": 401},
        once=[
            (
                f"endturn: traces are refused: {url}/v1/traces answered 404 Not Found; no OTLP "
                "receiver of traces has this path"
            ),
            (
                f"endturn: logs are refused: {url}/v1/logs answered 401 Unauthorized; check the key "
                "or token in OTEL_EXPORTER_OTLP_HEADERS"
            ),
        ],
        silent_on=["sk-planted-secret"],
        spans=[],
        events=[],
        sums={"endturn.responses": 2},
        exported={"otel.sdk.exporter.span.exported": {"404": 2}, "otel.sdk.exporter.log.exported": {"401": 2}},
    ),
    # --- The end of a process ---
    # By then the SDK cannot be set up any more, which is said in a line.
    "a first call after the program's last line": Program(
        command=ENDTURN_RUN,
        file="first_call_after_the_end.py",
        stdout=["finished"],
        lines=["endturn: nothing is recorded: "],
    ),
    # Threads that outlive the program's last line are waited for, as without us, and their calls are recorded.
    "threads finish their work, endturn run": Program(
        command=ENDTURN_RUN,
        file="thread_that_outlives_the_program.py",
        args=["ENDTURN"],
        output=["finished"],
        responses=(1, 1),
    ),
    "threads finish their work, configure()": Program(
        slow=True,
        command=PLAIN_PYTHON,
        file="thread_that_outlives_the_program.py",
        output=["finished"],
        responses=(1, 1),
    ),
    "an exporter that hangs does not keep the process": Program(
        file="exporter_that_hangs_does_not_keep_the_process.py",
        env={"OTEL_METRICS_EXPORTER": "console", "OTEL_LOGS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_TIMEOUT": "0.5"},
        lines=["endturn.responses", "endturn: the last records could not be exported within 0.5 seconds of the end"],
    ),
    "an exporter that raises ends nothing": Program(
        file="exporter_that_raises_ends_nothing.py",
        env={"OTEL_TRACES_EXPORTER": "console", "OTEL_LOGS_EXPORTER": "none"},
        tracebacks=True,
        lines=['"name": "chat gpt-5"', "endturn: exporting metrics failed", "endturn: shutting down metrics failed"],
    ),
    "the SDK's own metrics are enabled only while its exporters and processors are constructed": Program(
        file="sdk_metrics_while_it_is_set_up.py",
        stdout=["set_meter_provider None", "set_tracer_provider None", "set_logger_provider None"],
    ),
    "without a collector it is said": Program(
        file="one_call.py",
        env=NOBODY_LISTENS,
        lines=["endturn: the last records could not be exported within 0.5 seconds of the end"],
    ),
    "without a collector it is said when the process is terminated, too": Program(
        file="sigterm_without_a_collector.py",
        env=NOBODY_LISTENS,
        status=-15,
        lines=["endturn: the last records could not be exported within 0.5 seconds of the end"],
    ),
    "a process that is terminated exports what it has": Program(
        file="process_that_is_terminated_exports_what_it_has.py",
        status=-15,
        spans=["chat gpt-5"],
        sums={"endturn.responses": 1, "endturn.truncation.exits": 1},
    ),
    # A provider of the host's own: a worker of `multiprocessing` ends all the same.
    "a worker waits for no provider that hangs": Program(
        file="worker_waits_for_no_provider_that_hangs.py",
        output=["0"],
    ),
    # Whoever handles SIGTERM ends the process itself, and that is when all is exported; SIGINT is never touched.
    "a handler of the host's own stays": Program(
        file="handler_of_the_hosts_own_stays.py",
        env=NO_SIGNALS,
        output=["True True"],
    ),
    # What was flushed before is there, the rest is lost.
    "an end that runs no exit handlers": Program(
        file="end_that_runs_no_exit_handlers.py",
        spans=["chat gpt-5"],
        events=["endturn.stop_reason_observed"],
        sums={"endturn.responses": 1},
    ),
    # A stream and a cut turn that are open when a process forks end in the parent, once.
    "what the parent reads is its own": Program(
        crashes_on="3.13.0",
        command=PLAIN_PYTHON,
        file="stream_open_at_a_fork.py",
        responses=(2, 1),
        per_process=[1, 2],
    ),
    # --- Loops that are open ---
    "a loop that is open when the process ends": Program(
        file="loop_open_at_the_end.py",
        spans=["chat gpt-5", "chat gpt-5"],
        events=["endturn.stop_reason_observed", "endturn.stop_reason_observed"],
        sums={"endturn.responses": 2, "endturn.turns": 1, "endturn.truncation.exits": 0},
    ),
    "a loop that is open when the process ends, in which a truncated call was run": Program(
        file="loop_open_at_the_end_after_a_truncated_call.py",
        events=["endturn.stop_reason_observed", "endturn.stop_reason_observed", "endturn.continuation_terminated"],
        sums={"endturn.responses": 2, "endturn.turns": 1, "endturn.truncation.exits": 1},
        sends=["endturn.turn.tools_unanswered"],
    ),
    # The parent's turn is the parent's alone: in the child the same results begin a turn.
    "a loop that is open when a process forks": Program(
        file="loop_open_at_a_fork.py",
        per_process=[1, 2],
        sums={"endturn.responses": 3, "endturn.turns": 2},
    ),
    "a loop that is open when a process forks, and is left": Program(
        file="loop_open_at_a_fork_and_left.py",
        per_process=[1],
        sums={"endturn.responses": 1, "endturn.turns": 1},
    ),
    "a loop that is open when the process is terminated": Program(
        file="loop_open_at_sigterm.py",
        status=-15,
        sums={"endturn.responses": 1, "endturn.turns": 1},
    ),
    "a loop that is open when the host handles its termination": Program(
        file="loop_open_at_a_handled_sigterm.py",
        sums={"endturn.responses": 1, "endturn.turns": 1},
    ),
    # --- Workers ---
    # However they are started, and wherever telemetry is set up: each has a name and counts of its own.
    # `multiprocessing` ends forked workers without exit handlers; the cut answer's turn, which still waits for its
    # continuation then, is not lost either. os.fork: gunicorn's, in test_programs.py.
    "workers of a program that configures, fork": Program(
        command=[sys.executable, "tests/apps/workers.py", "fork", "2"],
        env={**POD, "PARENT": "exports", "CONFIGURE": "main"},
        responses=(5, 3),
        per_process=[2, 3, 3],
        own_ids=True,
    ),
    "workers of a program that configures, os.fork": Program(
        command=[sys.executable, "tests/apps/workers.py", "os.fork", "2"],
        env={**POD, "PARENT": "exports", "CONFIGURE": "main"},
        responses=(5, 3),
        per_process=[2, 3, 3],
        own_ids=True,
    ),
    "workers of a program that configures, forkserver": Program(
        slow=True,
        command=[sys.executable, "tests/apps/workers.py", "forkserver", "2"],
        env={**POD, "PARENT": "exports", "CONFIGURE": "main"},
        responses=(5, 3),
        per_process=[2, 3, 3],
        own_ids=True,
    ),
    "workers of a program that configures, spawn": Program(
        slow=True,
        command=[sys.executable, "tests/apps/workers.py", "spawn", "2"],
        env={**POD, "PARENT": "exports", "CONFIGURE": "main"},
        responses=(5, 3),
        per_process=[2, 3, 3],
        own_ids=True,
    ),
    "workers of a pool, each for one task": Program(
        command=[sys.executable, "tests/apps/workers.py", "pool", "2"],
        env={**POD, "PARENT": "exports", "CONFIGURE": "main"},
        responses=(5, 3),
        per_process=[2, 3, 3],
        own_ids=True,
    ),
    "workers of an executor, each for one task": Program(
        command=[sys.executable, "tests/apps/workers.py", "executor", "2"],
        env={**POD, "PARENT": "exports", "CONFIGURE": "main"},
        responses=(5, 3),
        per_process=[2, 3, 3],
        own_ids=True,
    ),
    "workers that configure, forkserver": Program(
        command=[sys.executable, "tests/apps/workers.py", "forkserver", "2"],
        env={**POD, "CONFIGURE": "task"},
        responses=(4, 2),
        per_process=[3, 3],
        own_ids=True,
    ),
    "workers that configure, fork": Program(
        slow=True,
        command=[sys.executable, "tests/apps/workers.py", "fork", "2"],
        env={**POD, "CONFIGURE": "task"},
        responses=(4, 2),
        per_process=[3, 3],
        own_ids=True,
    ),
    "workers under endturn run, os.fork": Program(
        slow=True,
        command=["endturn", "run", "python", "tests/apps/workers.py", "os.fork", "2"],
        env={**HTTP, "PARENT": "exports"},
        responses=(5, 3),
        per_process=[2, 3, 3],
    ),
    "workers under endturn run, fork": Program(
        slow=True,
        command=["endturn", "run", "python", "tests/apps/workers.py", "fork", "2"],
        env={**HTTP, "PARENT": "exports"},
        responses=(5, 3),
        per_process=[2, 3, 3],
    ),
    "workers under endturn run, forkserver": Program(
        slow=True,
        command=["endturn", "run", "python", "tests/apps/workers.py", "forkserver", "2"],
        env={**HTTP, "PARENT": "exports"},
        responses=(5, 3),
        per_process=[2, 3, 3],
    ),
    # Its exporters are OpenTelemetry's own: children share the connections of a parent that has exported.
    "workers under opentelemetry-instrument, fork": Program(
        slow=True,
        command=["opentelemetry-instrument", "python", "tests/apps/workers.py", "fork", "2"],
        env={**HTTP, "PARENT": "1"},
        responses=(5, 3),
        per_process=[2, 3, 3],
    ),
    "workers under opentelemetry-instrument, spawn": Program(
        slow=True,
        command=["opentelemetry-instrument", "python", "tests/apps/workers.py", "spawn", "2"],
        env={**HTTP, "PARENT": "1"},
        responses=(5, 3),
        per_process=[2, 3, 3],
    ),
    "processes under one configured id are told apart": Program(
        slow=True,
        command=PLAIN_PYTHON,
        file="processes_under_one_configured_id_are_told_apart.py",
        env={**POD, "PYTHONPATH": "tests/apps"},
        responses=(12, 0),
        per_process=[3, 3, 3, 3],
        own_ids=True,
    ),
    # --- instrument() ---
    # Nothing is imported or said: by its first call they are there, and it is recorded; spans of others are
    # heard as long
    # as we are instrumented. OpenTelemetry's functions are as they were.
    "a host that sets up its providers later is not warned": Program(
        file="providers_set_up_later.py",
        output=["False", "end_turn", "1 completed", "['chat gpt-5']", "end_turn", "max_tokens", "2 not_continued"],
    ),
    # Once, at the first model call that goes unrecorded.
    "without an SDK the remedy is said": Program(
        file="without_an_sdk_the_remedy_is_said.py",
        output=[
            "instrumented",
            (
                "endturn: no OpenTelemetry SDK is set up, so this model call is not recorded, nor "
                "any until one is; call endturn.configure() (pip install 'endturn[otlp]'), use "
                "endturn run or opentelemetry-instrument, or set the global providers"
            ),
            "instrumented",
        ],
    ),
    # Metrics alone are enough to be heard, however late their provider comes.
    "a host that sets up its metrics later is heard": Program(
        file="metrics_set_up_later.py",
        output=["False", "True", "True"],
    ),
    # A host's own provider that is named by a variable would mix the series of all its processes.
    "a name that processes share is warned of": Program(
        file="name_that_processes_share_is_warned_of.py",
        env={"OTEL_RESOURCE_ATTRIBUTES": "service.name=a,service.instance.id=worker"},
        lines=["one service.instance.id"],
    ),
    "a name that is a process's own is not warned of": Program(
        file="name_that_processes_share_is_warned_of.py",
        env={"OTEL_RESOURCE_ATTRIBUTES": "service.name=a"},
        output=[],
        lines=[],
    ),
    # What is being read and what waits for a continuation is announced.
    "a process that ends in mid-stream ends its calls": Program(
        file="stream_open_at_the_end.py",
        stdout=["CallEnded ", "TurnEnded cancelled", "TurnEnded not_continued"],
    ),
    # --- endturn run, and opentelemetry-instrument ---
    # Its exit status is its own, and all is exported before; but a signal that nothing handles ends it on the spot.
    "a module that exits": Program(
        command=["endturn", "run", "-m", "tests.apps.bare", "done", "cut", "done"],
        env={"OTEL_SERVICE_NAME": "bare", "ENDING": "exit"},
        status=3,
        services=["bare"],
        responses=(2, 1),
        withholds=["planted"],
    ),
    "a program that a shell starts, and that raises": Program(
        command=["endturn", "run", "--", "sh", "-c", 'python tests/apps/bare.py "$@"', "sh", "done", "cut", "done"],
        env={"OTEL_SERVICE_NAME": "bare", "ENDING": "raise"},
        status=1,
        tracebacks=True,
        lines=["RuntimeError: the agent failed"],
        services=["bare"],
        responses=(2, 1),
        withholds=["planted"],
    ),
    "a program without a name, endturn run": Program(
        command=["endturn", "run", "tests/apps/bare.py", "done"],
        lines=[("endturn: service.name is 'bare', unless the program sets another; OTEL_SERVICE_NAME changes it")],
        services=["bare"],
    ),
    "a program without a name that a shell starts, endturn run": Program(
        command=["endturn", "run", "--", "sh", "-c", 'python -m tests.apps.bare "$@"', "sh", "done"],
        services=["tests.apps.bare"],
    ),
    "a program without a script, endturn run": Program(
        command=[
            "endturn",
            "run",
            "-c",
            ("import runpy, sys; sys.argv = ['x', 'done']; runpy.run_module('tests.apps.bare', run_name='__main__')"),
        ],
        output=[],
        services=["unknown_service:python"],
    ),
    "a name in the resource's attributes, endturn run": Program(
        command=["endturn", "run", "tests/apps/bare.py", "done"],
        env={"OTEL_RESOURCE_ATTRIBUTES": "service.name=support,a=b"},
        output=[],
        services=["support"],
    ),
    "a program that is terminated": Program(
        command=["endturn", "run", "tests/apps/bare.py", "done", "cut"],
        env={"ENDING": "term"},
        status=-15,
    ),
    # gevent replaces what threads are made of after endturn was imported: calls are observed, and nobody is kept.
    "a program whose threads are green": Program(
        command=["endturn", "run", "-m", "tests.apps.green", "done", "cut", "done"],
        env=HTTP,
        stdout=["others run True"],
        responses=(2, 1),
    ),
    # No provider is set, nothing imported or sent; it is no child: what has the terminal is the program itself.
    "a program that calls no model is left as it is": Program(
        command=ENDTURN_RUN,
        file="program_that_calls_no_model_is_left_as_it_is.py",
        args=["--version", "-h"],
        output=[f"{os.getpid()} ['--version', '-h'] False", "ProxyTracerProvider False False"],
        spans=[],
        sums={"endturn.responses": 0},
    ),
    # Its provider is not refused, and gets our spans; the signals that it does not care for are ours.
    "an agent that sets up OpenTelemetry keeps what it sets up": Program(
        command=ENDTURN_RUN,
        file="opentelemetry_set_up_by_the_agent.py",
        stdout=["True ['chat cut', 'agent']"],
        spans=[],
        sums={"endturn.responses": 1, "endturn.turns": 1},
    ),
    # The spans that are open at the first model call, and what ended within them, are exported; what was over
    # before is not.
    "an agent whose span began before its first model call": Program(
        command=ENDTURN_RUN,
        file="spans_before_the_first_model_call.py",
        env=HTTP,
        stdout=["TracerProvider True"],
        spans=["of a decorated function", "invoke_agent A", "request", "of a decorated function", "chat cut"],
        sums={"endturn.responses": 1, "endturn.turns": 1, "endturn.truncation.exits": 1},
    ),
    "an agent whose span began before its first model call, under opentelemetry-instrument": Program(
        command=OPENTELEMETRY_INSTRUMENT,
        file="spans_before_the_first_model_call.py",
        env=HTTP,
        stdout=["TracerProvider True"],
        spans=[
            "over before",
            "of a decorated function",
            "invoke_agent A",
            "request",
            "of a decorated function",
            "chat cut",
        ],
        sums={"endturn.responses": 1, "endturn.turns": 1},
    ),
    # Whatever began before: it has no part in what the program sets up, and is not in its way.
    "an agent that sets up OpenTelemetry after spans have begun": Program(
        command=ENDTURN_RUN,
        file="opentelemetry_set_up_after_spans_began.py",
        env=HTTP,
        stdout=["True ['chat cut', 'agent']"],
        spans=[],
        sums={"endturn.responses": 1, "endturn.turns": 1},
    ),
    "an agent that calls endturn.configure after spans have begun": Program(
        command=ENDTURN_RUN,
        file="configure_after_spans_began.py",
        env=HTTP,
        stdout=[],
        services=["mine"],
        spans=["chat cut", "agent"],
        sums={"endturn.responses": 1, "endturn.turns": 1},
    ),
    "a program that makes spans and calls no model exports nothing": Program(
        command=ENDTURN_RUN,
        file="spans_without_a_model_call.py",
        env=HTTP,
        output=["ProxyTracerProvider 1"],
        spans=[],
        sums={"endturn.responses": 0},
    ),
    "early spans that nobody is to export are none": Program(
        command=ENDTURN_RUN,
        file="spans_before_the_first_model_call.py",
        env={**HTTP, "OTEL_TRACES_EXPORTER": "none"},
        stdout=["ProxyTracerProvider False"],
        spans=[],
        sums={"endturn.responses": 1, "endturn.turns": 1},
    ),
    "early spans are sampled as the variables say": Program(
        command=ENDTURN_RUN,
        file="spans_before_the_first_model_call.py",
        env={**HTTP, "OTEL_TRACES_SAMPLER": "always_off"},
        stdout=["TracerProvider False"],
        spans=[],
        sums={"endturn.responses": 1, "endturn.turns": 1},
    ),
    "early spans are not begun where all is switched off": Program(
        command=ENDTURN_RUN,
        file="spans_before_the_first_model_call.py",
        env={**HTTP, "OTEL_SDK_DISABLED": "true"},
        stdout=["ProxyTracerProvider False"],
        spans=[],
        sums={"endturn.responses": 0},
    ),
    # The parent's spans are the parent's; a child's own agent is one turn of the child.
    "early spans and a fork": Program(
        command=ENDTURN_RUN,
        file="early_spans_and_a_fork.py",
        env=POD,
        per_process=[1, 1],
        sums={"endturn.turns": 2},
    ),
    "async functions with early spans": Program(
        command=ENDTURN_RUN,
        file="async_functions_with_early_spans.py",
        env=HTTP,
        stdout=["True agent"],
        spans=["chat cut", "invoke_agent A"],
        sums={"endturn.responses": 1, "endturn.turns": 1},
    ),
    # Its redaction, above all, however it was started and however late its own line comes; a late name is said.
    "what the agent itself asks for is done": Program(
        command=ENDTURN_RUN,
        file="agent_that_configures_itself.py",
        env=HTTP,
        stdout=[],
        services=["mine"],
        responses=(0, 1),
        sends=["a [hidden] word"],
        withholds=["planted"],
    ),
    "what the agent itself asks for late is done": Program(
        command=ENDTURN_RUN,
        file="agent_that_configures_itself.py",
        args=["late"],
        env=HTTP,
        lines=["service_name cannot be used"],
        responses=(1, 1),
        sends=["a [hidden] word"],
        withholds=["planted"],
    ),
    "what the agent itself asks for is done under opentelemetry-instrument": Program(
        command=OPENTELEMETRY_INSTRUMENT,
        file="agent_that_configures_itself.py",
        env=HTTP,
        lines=["keep their names"],
        responses=(0, 1),
        sends=["a [hidden] word"],
        withholds=["planted"],
    ),
    # Ours stands in front of it, and hands over; it finds itself under its name. Once in the command line's
    # own Python, too.
    "another sitecustomize still runs": lambda tmp, url: Program(
        command=["endturn", "run", "tests/apps/bare.py", "done"],
        env={"PYTHONPATH": f"{tmp}"},
        files={"sitecustomize.py": "import sys; print('theirs', sys.modules[__name__].__file__)"},
        stdout=[f"theirs {tmp}/sitecustomize.py", f"theirs {tmp}/sitecustomize.py"],
        responses=(1, 0),
    ),
    # It is said, once, and the program runs.
    "a Python without endturn runs unobserved": lambda tmp, url: Program(
        command=[
            sys.executable,
            "-c",
            "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'print(1)']))",
        ],
        env={"PYTHONPATH": f"{run.SITE}:{tmp}", "ENDTURN_RUN": "1"},
        files={"endturn/__init__.py": "raise ImportError('not here')"},
        output=["1", f"endturn: {sys.executable} is not observed, endturn cannot be imported there: not here"],
    ),
    # No exporter for metrics, and a word for events that is none: both are said once, before the program
    # starts, and the
    # calls are traced.
    "what one signal asks for in vain the others do not lack": Program(
        command=["endturn", "run", "tests/apps/bare.py", "cut"],
        env={"OTEL_METRICS_EXPORTER": "prometheus", "ENDTURN_EVENTS": "loud"},
        once=[
            "no metrics are exported",
            "ENDTURN_EVENTS='loud' cannot be used: use one of logs, spans, both; events go to logs",
        ],
        spans=["chat cut"],
        events=["endturn.stop_reason_observed", "endturn.continuation_terminated"],
        sums={"endturn.responses": 0},
    ),
    "the instrumentor needs no package of theirs": Program(
        file="instrumentor_needs_no_package_of_theirs.py",
        stdout=["True"],
    ),
    # What cannot be done is logged: one that raises would keep the loader from all others.
    "the instrumentor never raises": Program(
        file="instrumentor_never_raises.py",
        stdout=["False False", "True ()", "False"],
        lines=[
            "events='everywhere'",
            "give an OpenTelemetry provider object",
            "unknown option evnts; the options are: agent, ",
        ],
    ),
    # A program runs whatever the variables ask for: it may need none of it; what will not be done is said before.
    "an exporter of metrics that is not installed, endturn run": Program(
        command=["endturn", "run", "-c", "pass"],
        env={"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc"},
        output=[
            (
                "endturn: unless the program sets them up itself, no metrics are exported: "
                "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL='grpc': no exporter is registered as "
                "'otlp_proto_grpc': pip install opentelemetry-exporter-otlp-proto-grpc, use otlp "
                "(http/protobuf), console or none, or pass an exporter object to configure()"
            )
        ],
    ),
    "a protocol that nobody knows, endturn run": Program(
        command=["endturn", "run", "-c", "pass"],
        env={"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"},
        output=[
            (
                "endturn: OTEL_EXPORTER_OTLP_PROTOCOL='smoke' cannot be used: use http/protobuf "
                "(port 4318) or grpc (port 4317); the signal is not exported"
            )
        ],
    ),
    "a configuration file that is not there, endturn run": Program(
        command=["endturn", "run", "-c", "pass"],
        env={"OTEL_CONFIG_FILE": "/nowhere.yaml"},
        lines=["the program is not observed: OTEL_CONFIG_FILE='/nowhere.yaml' is not a file"],
    ),
    "what reads a configuration file is not installed, endturn run": lambda tmp, url: Program(
        command=["endturn", "run", "-c", "pass"],
        env={"PYTHONPATH": f"{tmp}", "OTEL_CONFIG_FILE": f"{tmp}/sitecustomize.py"},
        files={"sitecustomize.py": "import sys; sys.modules['opentelemetry.configuration'] = None"},
        lines=["the program is not observed: OTEL_CONFIG_FILE is set, and its reader is not installed"],
    ),
    # Without the SDK there is nothing to run for.
    "no SDK is installed, endturn run": lambda tmp, url: Program(
        command=["endturn", "run", "-c", "pass"],
        env={"PYTHONPATH": f"{tmp}"},
        files={"sitecustomize.py": "import sys; sys.modules['opentelemetry.sdk.resources'] = None"},
        status=2,
        output=["endturn: endturn run needs the OpenTelemetry SDK: pip install 'endturn[otlp]'"],
    ),
    # By the standard variables.
    "what switches an instrumentation off": Program(
        command=["endturn", "run", "tests/apps/bare.py", "done"],
        env={"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "flask, endturn"},
        output=[],
        sums={"endturn.responses": 0},
    ),
    "what switches all instrumentations off": Program(
        slow=True,
        command=["endturn", "run", "tests/apps/bare.py", "done"],
        env={"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*"},
        output=[],
        sums={"endturn.responses": 0},
    ),
    "what switches the SDK off": Program(
        command=["endturn", "run", "tests/apps/bare.py", "done"],
        env={"OTEL_SDK_DISABLED": "TRUE "},
        output=[],
        sums={"endturn.responses": 0},
    ),
    # --- The configuration file ---
    # The SDK is set up as it says, and `instrumentation/development: python: endturn` are our options.
    "a configuration file sets the options": lambda tmp, url: Program(
        command=["endturn", "run", "tests/apps/bare.py", "done", "cut"],
        env={"OTEL_CONFIG_FILE": f"{tmp}/otel.yaml"},
        files=otel_file(url),
        output=[],
        services=["from-file"],
        sums={"endturn.responses": 2, "endturn.truncation.exits": 1},
        sends=["endturn.stop_reason_observed"],
        withholds=["gen_ai.client.operation.duration"],
    ),
    "a configuration file sets the options under opentelemetry-instrument": lambda tmp, url: Program(
        command=["opentelemetry-instrument", "python", "tests/apps/bare.py", "done", "cut"],
        env={"OTEL_CONFIG_FILE": f"{tmp}/otel.yaml"},
        files=otel_file(url),
        services=["from-file"],
        sums={"endturn.responses": 2, "endturn.truncation.exits": 1},
        sends=["endturn.stop_reason_observed"],
        withholds=["gen_ai.client.operation.duration"],
    ),
    "a configuration file switches us off": lambda tmp, url: Program(
        command=["endturn", "run", "tests/apps/bare.py", "done"],
        env={"OTEL_CONFIG_FILE": f"{tmp}/otel.yaml"},
        files={
            "otel.yaml": (
                'file_format: "1.1"\n'
                f"meter_provider: {{readers: [{{periodic: {otlp_http(url, 'metrics')}}}]}}\n"
                "instrumentation/development: {python: {endturn: {enabled: false}}}\n"
            )
        },
        sums={"endturn.responses": 0},
    ),
    "a configuration file that cannot be used breaks nothing": lambda tmp, url: Program(
        command=["endturn", "run", "tests/apps/bare.py", "done"],
        env={"OTEL_CONFIG_FILE": f"{tmp}/otel.yaml"},
        files={"otel.yaml": "file_format: '9.9'"},
        lines=["endturn: this process is not observed", "9.9"],
    ),
}
"""By the name of the test; functions of the test's own folder and of the OTLP endpoint's address."""
