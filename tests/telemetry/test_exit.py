"""The end of a process: what was recorded leaves, nobody who hangs is waited for, nothing of the host's is lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping

import pytest

from tests.support.agents import world
from tests.support.processes import LOOPBACK, eventually, free_port
from tests.support.receiver import receiving
from tests.telemetry.test_configure import NONE, run, start

TERMINATE = """
import signal, threading
def terminate():
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()
"""

THREAD = """
import sys, threading
sys.path.insert(0, "tests/apps")
from bare import ask
ask("cut", "1")
def work():
    threading.main_thread().join()
    ask("done", "2")
    print("finished")
threading.Thread(target=work).start()
"""


def test_a_first_call_after_the_programs_last_line() -> None:
    """In a thread that outlives it: by then the SDK cannot be set up any more, which is said in a line."""
    late = THREAD.replace('ask("cut", "1")\n', "")
    with world() as agents:
        done = agents.run("endturn", "run", "-c", late)
        assert done.stdout == "finished\n"
        (said,) = done.stderr.splitlines()
        assert said.startswith("endturn: nothing is recorded: ")


@pytest.mark.parametrize("where", ["endturn run", "configure()"])
def test_threads_of_the_host_finish_their_work(where: str) -> None:
    """Threads that outlive the program's last line are waited for, as without us, and their calls are recorded."""
    configure = "import endturn; endturn.configure()\n" if where == "configure()" else ""
    command = ["endturn", "run", "-c"] if not configure else ["python", "-c"]
    with world() as agents:
        done = agents.run(*command, configure + THREAD)
        assert (done.stdout, done.stderr) == ("finished\n", "")
        agents.saw(done=1, cut=1)


def test_an_exporter_that_hangs_does_not_keep_the_process() -> None:
    """It ends within the bound, and says so; what went out before is not lost."""
    code = """
import threading
from opentelemetry.sdk.trace.export import SpanExporter
class Stuck(SpanExporter):
    def export(self, spans): threading.Event().wait()
endturn.configure(span_exporter=Stuck())
call()
"""
    said = run(code, OTEL_METRICS_EXPORTER="console", OTEL_LOGS_EXPORTER="none", OTEL_EXPORTER_OTLP_TIMEOUT="0.5")
    assert any("endturn.responses" in line for line in said)
    assert said[-1].startswith("endturn: what was recorded last could not be exported within 0.5 seconds of the end")


def test_an_exporter_that_raises_ends_nothing() -> None:
    """It is said; the others export, and the process ends as it would."""
    code = """
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter
class Broken(ConsoleMetricExporter):
    def shutdown(self, *args, **kwargs): raise OSError("the disk is full")
    force_flush = shutdown
endturn.configure(metric_exporter=Broken())
call()
"""
    said = run(code, OTEL_TRACES_EXPORTER="console", OTEL_LOGS_EXPORTER="none", complaints=True)
    assert any('"name": "chat gpt-5"' in line for line in said)
    assert {"endturn: exporting metrics failed", "endturn: shutting down metrics failed"} <= set(said)


@pytest.mark.parametrize(("ending", "status"), [("", 0), ("terminate()", -signal.SIGTERM)], ids=["ended", "SIGTERM"])
def test_without_a_collector_it_is_said(ending: str, status: int) -> None:
    """What was lost, and what to do: waited for within the bound, however the process ends, as it would have."""
    said = run(
        TERMINATE + "endturn.configure()\ncall()\n" + ending,
        status=status,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{LOOPBACK}:{free_port()}",
        OTEL_EXPORTER_OTLP_TIMEOUT="0.5",
    )
    assert said[-1].startswith("endturn: what was recorded last could not be exported within 0.5 seconds of the end")


def test_a_worker_waits_for_no_provider_that_hangs() -> None:
    """A provider of the host's own: a worker of `multiprocessing` ends all the same."""
    code = """
import multiprocessing, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
class Stuck(SpanExporter):
    def export(self, spans): threading.Event().wait()
    def shutdown(self): pass
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(BatchSpanProcessor(Stuck()))
trace.set_tracer_provider(provider)
endturn.instrument()
worker = multiprocessing.get_context("fork").Process(target=call)
worker.start(); worker.join()
print(worker.exitcode)
"""
    assert run(code) == ["0"]


def test_a_process_that_is_terminated_exports_what_it_has() -> None:
    """SIGTERM ends it as it would have, once that is done."""
    with receiving() as received:
        run(TERMINATE + "endturn.configure(); call(); terminate()", received, status=-signal.SIGTERM)
        assert received.total("endturn.responses") == received.total("endturn.truncation.exits") == 1
        assert [name for names in received.spans.values() for name in names] == ["chat gpt-5"]


OUTAGE = """
telemetry = endturn.configure()
for _ in range(600):
    call()
print("called", flush=True)
sys.stdin.readline()
telemetry.shutdown()
"""


@pytest.mark.slow
def test_spans_and_events_outlive_a_collector_that_is_away() -> None:
    """For longer than an exporter waits by itself; the metrics say all in their next export."""
    port = free_port()
    with start(OUTAGE, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{LOOPBACK}:{port}") as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "called\n"
        time.sleep(15)
        with receiving(port) as received:
            eventually(lambda: _all(received.spans) >= 600 <= _all(received.events), what="all", timeout=40)
            agent.communicate("\n", timeout=20)
            assert _all(received.spans) == 600
            assert sum(names.count("endturn.stop_reason_observed") for names in received.events.values()) == 600
            assert received.total("endturn.responses") == 600


def test_what_the_sdk_drops_is_counted() -> None:
    """By the SDK's own metrics, exported like all others; what it counts for each span stays off."""
    code = """
from opentelemetry import trace
telemetry = endturn.configure()
tracer = trace.get_tracer("shop")
for _ in range(500):
    tracer.start_span("work").end()
telemetry.shutdown()
"""
    with receiving() as received:
        run(code, received, complaints=True, OTEL_BSP_MAX_QUEUE_SIZE="20", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="10")
    [counted] = [points["otel.sdk.processor.span.processed"] for points in received.points.values()]
    dropped = sum(value for labels, value in counted.items() if ("error.type", "queue_full") in labels)
    assert dropped > 400
    assert not {"otel.sdk.span.started", "otel.sdk.exporter.operation.duration"} & {*received.sums.popitem()[1]}


def test_a_handler_of_the_hosts_own_stays() -> None:
    """Whoever handles SIGTERM ends the process itself, and that is when all is exported; SIGINT is never touched."""
    code = """
import signal
def ours(number, frame): raise SystemExit(0)
signal.signal(signal.SIGTERM, ours)
before = signal.getsignal(signal.SIGINT)
endturn.configure()
print(signal.getsignal(signal.SIGTERM) is ours, signal.getsignal(signal.SIGINT) is before)
"""
    assert run(code, None, **NONE) == ["True True"]


def _all(names: Mapping[str, list[str]]) -> int:
    return sum(map(len, names.values()))
