"""Work that waits for a safe moment: ending what was dropped, and the turns that nobody continued.

A destructor runs wherever the garbage collector happens to, perhaps inside a locked region of the
very code that it would call: all it does is to append here. The work is done when the next call
begins, before a metric reader collects, on flush and at the end. No thread waits for it. What is
kept meanwhile is bounded: `remember` lets go of the oldest.
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
    """Have `job` done at the next safe moment.

    The only function here that a destructor may call.
    """
    _jobs.append(job)


def each_time(sweep: Job) -> None:
    """Have `sweep` done at every safe moment from now on.

    It ends what has been idle for too long.
    """
    _sweeps.append(sweep)


def at_the_end(job: Job) -> None:
    """Have `job` done when observation ends: it ends what is open."""
    _last.append(job)


def after_fork(job: Job) -> None:
    """Have `job` done in every child that is forked from now on.

    What is open is its parent's to end.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=job)


def end() -> None:
    """Do what waits, and end what is open: the process, or its instrumentation, ends."""
    run()
    for job in _last:
        _do(job)


def run() -> None:
    """Do what waits. This is a safe moment: no lock is held that a job may need."""
    run_jobs()
    for sweep in _sweeps:
        _do(sweep)


def run_jobs() -> None:
    """Do what waits, but sweep nothing: finding the turn of a call does."""
    while _jobs:
        try:
            job = _jobs.popleft()
        except IndexError:
            break  # another thread took it
        _do(job)


def remember(values: OrderedDict[Key, Value], key: Key, value: Value, *, most: int) -> None:
    """Keep a value, and let go of the oldest where there are too many.

    A plain `dict` would look for it for long.
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
