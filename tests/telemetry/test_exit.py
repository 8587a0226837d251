"""The end of a process: what was recorded leaves, nobody who hangs is waited for, nothing of the host's is lost."""

from __future__ import annotations

import pytest

from tests.support.agents import world
from tests.support.processes import LOOPBACK, free_port
from tests.telemetry.test_configure import run

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


def test_without_a_collector_it_is_said() -> None:
    """What was lost, and what to do; the process ends as it would."""
    said = run(
        "endturn.configure()\ncall()",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{LOOPBACK}:{free_port()}",
        OTEL_EXPORTER_OTLP_TIMEOUT="0.5",
    )
    assert any("Failed to export" in line or "Transient error" in line for line in said)


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
