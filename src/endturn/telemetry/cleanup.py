"""Deferred jobs: the end of dropped responses, and of turns that were not continued.

A destructor runs at any point of any thread, perhaps while a lock is held that its work needs. So
it only appends a job here. Jobs run when the next call begins, before a metric reader collects, at
a flush and at the end of the process. No thread is started for them. `remember` limits the entries
that are kept meanwhile.
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
_last: Final[list[Job]] = []


def later(job: Job) -> None:
    """Run `job` later, when no lock is held. Destructors may call only this function."""
    _jobs.append(job)


def each_time(sweep: Job) -> None:
    """Run `sweep` at each run of the deferred jobs. It ends turns that waited too long."""
    _sweeps.append(sweep)


def at_the_end(job: Job) -> None:
    """Run `job` when observation ends. It ends open calls."""
    _last.append(job)


def after_fork(job: Job) -> None:
    """Run `job` in each child forked from now on. It forgets the calls that the parent ends."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=job)


def end() -> None:
    """Run the deferred jobs and end open calls, at the end of the process or of observation."""
    run()
    for job in _last:
        _do(job)


def run() -> None:
    """Run the deferred jobs and the sweeps. The caller holds no lock that a job may need."""
    run_jobs()
    for sweep in _sweeps:
        _do(sweep)


def run_jobs() -> None:
    """Run the deferred jobs without the sweeps, for callers that sweep themselves."""
    while _jobs:
        try:
            job = _jobs.popleft()
        except IndexError:
            break  # another thread took it
        _do(job)


def remember(values: OrderedDict[Key, Value], key: Key, value: Value, *, most: int) -> None:
    """Keep a value, and drop the oldest one beyond `most`.

    The dictionary is ordered, because a plain `dict` takes long to find its oldest entry.
    """
    values[key] = value
    if len(values) > most:
        values.popitem(last=False)


def _do(job: Job) -> None:
    try:
        job()
    except Exception:
        log_internal_error("ending what was dropped")


after_fork(_jobs.clear)  # they are the parent's
