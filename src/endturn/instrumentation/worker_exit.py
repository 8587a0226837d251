"""What is done before a worker of `multiprocessing` ends, which runs no exit handlers.

A worker that was forked, by `fork` or by the fork server, ends with `os._exit` once its function has returned. What
`multiprocessing` does run before that are its own finalizers, which it empties when the worker begins. So the jobs are
registered when the worker has begun, wherever it was forked. A spawned worker ends as any process does, after its
finalizers: there a job runs twice.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from endturn.announce import swallow

Job = Callable[[], object]


def before_worker_ends(job: Job) -> None:
    """Have a job run at the end of this process, where it is a worker, and of all workers that it will fork."""

    def finalize(anchor: object = None) -> None:
        from multiprocessing.util import Finalize

        Finalize(None, job, exitpriority=0)

    def look_out() -> None:
        # Not imported here: a process that has no workers need not pay for it. One that forks some has it by then.
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(finalize, finalize)

    try:
        look_out()
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.parent_process() is not None:
            finalize()  # this is a worker, and it has begun
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=look_out)
    except Exception:
        swallow("arranging for a worker's end")
