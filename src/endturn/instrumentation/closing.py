"""The end of a process: what is to be sent is sent at once, each thing from a thread of its own, within a bound.

An exporter that nobody answers tries again for ten seconds, and the SDK shuts down one provider after the other.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

log = logging.getLogger("endturn")

Job = Callable[[], object]

SECONDS: Final = 5.0
"""How long a process that ends waits for its telemetry, where the host has not said how long an export may take."""

TIMEOUTS: Final = (
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT",
    "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT",
)
THREADS: Final = 3
"""One for each signal."""

_standing_by: queue.SimpleQueue[Job] | None = None
"""What the threads that stand by are given their work through."""
_is_asked = False


def seconds() -> float:
    """How long to wait: the longest timeout of an export that the variables name, in the SDK's seconds, else 5."""
    named = []
    for variable in TIMEOUTS:
        try:
            named.append(float(os.environ.get(variable, "")))
        except ValueError:
            continue  # the exporter says so
    return max(named, default=SECONDS)


def together(jobs: Mapping[str, Job], within_s: float) -> dict[str, object]:
    """Run all jobs at once, and wait for them no longer than that. What takes longer is left to itself.

    Returns:
        The results of those that are done, by name. One that raised is logged, and gave False.
    """
    results: dict[str, object] = {}
    done = threading.Semaphore(0)

    def runs(name: str, job: Job) -> Job:
        def run() -> None:
            try:
                results[name] = job()
            except Exception:
                results[name] = False
                log.warning("endturn: %s failed", name, exc_info=True)
            finally:
                done.release()

        return run

    for name, job in jobs.items():
        _start(runs(name, job))
    deadline = time.monotonic() + within_s
    for _ in jobs:
        if not done.acquire(timeout=max(0.0, deadline - time.monotonic())):
            break
    return dict(results)


def _start(run: Job) -> None:
    if _standing_by is not None:
        _standing_by.put(run)
        return
    try:
        threading.Thread(target=run, name="endturn-closing", daemon=True).start()
    except RuntimeError:  # too late for threads: one after the other, then, and without a bound
        run()


def stand_by() -> None:
    """Have threads ready when exit handlers run: since Python 3.12 these cannot start any."""
    global _is_asked
    if _is_asked:
        return
    _is_asked = True
    # Before it waits for the host's threads; concurrent.futures uses it so. There is no public form.
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        try:
            register(_line_up)
        except RuntimeError:
            log.debug("endturn: the process ends already", exc_info=True)


def _line_up() -> None:
    global _standing_by
    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for _ in range(THREADS):
        threading.Thread(target=_work, args=(jobs,), name="endturn-closing", daemon=True).start()
    _standing_by = jobs


def _work(jobs: queue.SimpleQueue[Job]) -> None:
    while True:
        jobs.get()()


@contextmanager
def said_once(modules: set[str]) -> Iterator[None]:
    """Of what exporters log meanwhile, let only the first line of all through: they repeat it with every attempt.

    Args:
        modules: where the exporters are; their loggers are called so.
    """
    said = threading.Lock()

    def first(record: logging.LogRecord) -> bool:
        return record.levelno < logging.WARNING or said.acquire(blocking=False)

    loggers = [logging.getLogger(name) for name in modules]
    for logger in loggers:
        logger.addFilter(first)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(first)


def _forked() -> None:
    """In the child: the threads are the parent's."""
    global _standing_by
    _standing_by = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
