"""What a process does before it ends where exit handlers do not run: `multiprocessing` ends its workers without them.

A worker that was forked, by `fork` or by the fork server, ends with `os._exit` once its function has returned; what
`multiprocessing` does run before that are its own finalizers, which it empties when the worker begins. So the jobs
are registered when the worker has begun, wherever it was forked. A spawned worker ends as any process does, after its
finalizers: there a job runs twice.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from endturn.announce import swallow

Job = Callable[[], object]

_jobs: list[Job] = []
_finalizer: Any = None


class _Anchor:
    """What `multiprocessing` remembers an after-fork hook by."""


_anchor: _Anchor | None = None


def before_worker_ends(job: Job) -> Callable[[], None]:
    """Have a job run at the end of this process, where it is a worker, and of all workers that it will fork.

    Jobs run last first, as exit handlers do.

    Returns:
        A function that calls it off.
    """
    _jobs.append(job)
    try:
        _look_out()
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.parent_process() is not None:
            _begin()  # this is a worker, and it has begun
    except Exception:
        swallow("arranging for a worker's end")

    def call_off() -> None:
        if job in _jobs:
            _jobs.remove(job)

    return call_off


def _look_out() -> None:
    """Be told when a worker begins."""
    global _anchor
    # Not imported here: a process that has no workers need not pay for it. One that forks some has it by then.
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _anchor is None:
        _anchor = _Anchor()
        util.register_after_fork(_anchor, _begin)


def _begin(anchor: object = None) -> None:
    """In a worker: have the jobs run when it ends."""
    global _finalizer
    from multiprocessing.util import Finalize

    # One that was inherited is ignored by any process but the one that made it; a worker that begins drops it.
    if _finalizer is None or _finalizer[0] != os.getpid() or not _finalizer[1].still_active():
        _finalizer = os.getpid(), Finalize(None, _run, exitpriority=0)


def _run() -> None:
    for job in reversed(_jobs):
        try:
            job()
        except Exception:
            swallow("recording a worker's end")


def _forked() -> None:
    try:
        _look_out()
    except Exception:
        swallow("arranging for a worker's end")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
