"""The end of a process: everything is exported at once, and nobody is waited for too long."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import pytest

from endturn.instrumentation import closing
from tests.support.processes import LOOPBACK, free_port
from tests.telemetry.test_setup import run


def test_all_jobs_run_at_once() -> None:
    """Three that wait for each other are done; their results have their names, and one that raised gave False."""
    met = threading.Barrier(3)
    jobs = {"one": met.wait, "two": met.wait, "three": met.wait}
    assert sorted(closing.together(jobs, 30).values()) == [0, 1, 2]  # type: ignore[type-var]
    assert closing.together({"fails": lambda: 1 / 0, "works": lambda: "done"}, 30) == {"fails": False, "works": "done"}


def test_what_takes_too_long_is_left_to_itself() -> None:
    """What is done is told; the rest is not waited for."""
    forever = threading.Event()
    try:
        assert closing.together({"stuck": forever.wait, "quick": lambda: True}, 0.2) == {"quick": True}
    finally:
        forever.set()


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({}, 5.0),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "2"}, 2.0),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "2", "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": "20"}, 20.0),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, 5.0),
    ],
    ids=["default", "all", "one signal", "no number"],
)
def test_how_long_an_end_may_take(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], seconds: float) -> None:
    """As long as the host lets an export take, where it says so."""
    for name in closing.TIMEOUTS:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert closing.seconds() == seconds


def test_exporters_say_it_once(caplog: pytest.LogCaptureFixture) -> None:
    """The first warning of all of them; what they say at other times is theirs."""
    with closing.said_once({"exporters.of.spans", "exporters.of.logs"}):
        for name in ("exporters.of.spans", "exporters.of.logs", "exporters.of.spans", "somebody.else"):
            logging.getLogger(name).warning("again")
    logging.getLogger("exporters.of.spans").warning("later")
    assert [(record.name, record.message) for record in caplog.records] == [
        ("exporters.of.spans", "again"), ("somebody.else", "again"), ("exporters.of.spans", "later"),
    ]  # fmt: skip


def test_exit_handlers_that_can_start_no_threads_have_some() -> None:
    """As since Python 3.12: those that stand by were started before, and run the jobs at once."""
    code = """
import atexit, threading
from endturn.instrumentation import closing
def refuse(self):
    raise RuntimeError("can't create new thread at interpreter shutdown")
def end():
    threading.Thread.start = refuse
    met = threading.Barrier(3)
    print(len(closing.together(dict.fromkeys("abc", met.wait) , 30)), flush=True)
atexit.register(end)
closing.stand_by()
closing.stand_by()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_without_threads_jobs_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none stand by and none can be started, nothing is lost all the same."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert closing.together({"one": lambda: 1, "two": lambda: 2}, 30) == {"one": 1, "two": 2}


def test_an_exporter_that_hangs_does_not_keep_the_process() -> None:
    """It ends within the bound, and says what was lost; what others export is not."""
    code = """
import threading
from opentelemetry.sdk.trace.export import SpanExporter
class Stuck(SpanExporter):
    def export(self, spans): threading.Event().wait()
endturn.configure(span_exporter=Stuck())
call()
"""
    said = run(code, OTEL_METRICS_EXPORTER="none", OTEL_LOGS_EXPORTER="console", OTEL_EXPORTER_OTLP_TIMEOUT="0.5")
    assert any("endturn.stop_reason_observed" in line for line in said)
    assert said[-1].startswith("endturn: traces could not be exported within 0.5 seconds of the end, and are lost")


def test_without_a_collector_two_lines_say_so() -> None:
    """The first of what the exporters say, and what was lost: not a line for each signal and attempt."""
    said = run(
        "endturn.configure()\ncall()",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{LOOPBACK}:{free_port()}",
        OTEL_EXPORTER_OTLP_TRACES_TIMEOUT="1",
    )
    assert len(said) == 2, said
    assert "export" in said[0]
    assert not said[0].startswith("endturn")
    assert "are lost: is a Collector listening?" in said[1]
