"""Deferred jobs: the end of dropped responses, and of turns that were not continued.

A destructor runs at any point of any thread, perhaps while a lock is held that its work needs. So
it only appends a job here. Jobs run when the next call begins, before a metric reader collects, at
a flush and at the end of the process. No thread is started for them. `put_bounded` limits the
entries that are kept meanwhile.
"""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, TypeVar

from endturn.calls import log_internal_error

Key = TypeVar("Key")
Value = TypeVar("Value")
Job = Callable[[], object]

_jobs: Final[deque[Job]] = deque()
_sweeps: Final[list[Job]] = []
_shutdown_jobs: Final[list[Job]] = []


def defer(job: Job) -> None:
    """Run `job` later, when no lock is held. Destructors may call only this function."""
    _jobs.append(job)


def register_sweep(sweep: Job) -> None:
    """Run `sweep` at each run of the deferred jobs. It ends turns that waited too long."""
    _sweeps.append(sweep)


def register_shutdown(job: Job) -> None:
    """Run `job` when the process or the instrumentation ends. It ends open calls."""
    _shutdown_jobs.append(job)


def register_after_fork(job: Job) -> None:
    """Run `job` in each child forked from now on. It forgets the calls that the parent ends."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=job)


def end() -> None:
    """Run the deferred jobs and end open calls, at the end of the process or of observation."""
    run()
    for job in _shutdown_jobs:
        _run_safely(job)


def run() -> None:
    """Run the deferred jobs and the sweeps. The caller holds no lock that a job may need."""
    run_jobs()
    for sweep in _sweeps:
        _run_safely(sweep)


def run_jobs() -> None:
    """Run the deferred jobs without the sweeps, for callers that sweep themselves."""
    while _jobs:
        try:
            job = _jobs.popleft()
        except IndexError:
            break  # another thread took it
        _run_safely(job)


def put_bounded(values: OrderedDict[Key, Value], key: Key, value: Value, *, limit: int) -> None:
    """Add a value, and drop the oldest one beyond `limit`.

    The dictionary is ordered, because a plain `dict` takes long to find its oldest entry.
    """
    values[key] = value
    if len(values) > limit:
        values.popitem(last=False)


def _run_safely(job: Job) -> None:
    try:
        job()
    except Exception:
        log_internal_error("ending what was dropped")


register_after_fork(_jobs.clear)  # they are the parent's
