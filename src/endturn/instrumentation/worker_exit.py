"""The end of a worker process: its records are exported before it exits.

Pools of processes end their workers with `os._exit`, without exit handlers. This module uses the
hooks that each of them runs before that: the finalizers of `multiprocessing` (`Process`, `Pool`,
`ProcessPoolExecutor`) and of billiard, Celery's signal `worker_process_shutdown`, and for RQ, which
has no such signal, the methods with which a work horse finishes its job. A library that is not
imported is left alone. Workers that run exit handlers, such as gunicorn's, need no hook.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import wrapt

from endturn.calls import log_internal_error

Job = Callable[[], object]

_RQ_METHODS: Final = ("handle_job_success", "handle_job_failure", "handle_job_retry")
"""A work horse ends after the last of these that it calls. Each is called after the job's function,
which may be the first to import endturn."""

_jobs: list[Job] = []

_undo_functions: list[Callable[[], None]] = []
"""Restore the methods of RQ's workers."""


def before_worker_ends(job: Job) -> None:
    """Run `job` at the end of this process if it is a pool worker, and of each worker it forks.

    The latest job runs first. A spawned worker of `multiprocessing` ends as any process does, after
    its finalizers: there a job runs twice.
    """
    if job not in _jobs:
        _jobs.append(job)
    _register_hooks()
    wrapt.register_post_import_hook(_rq, "rq.worker")


def forget(job: Job) -> None:
    """Remove a job."""
    if job in _jobs:
        _jobs.remove(job)
    if not _jobs:
        while _undo_functions:
            _undo_functions.pop()()


def _run(*_: object, **__: object) -> None:
    for job in reversed(_jobs.copy()):
        try:
            job()
        except Exception:
            log_internal_error("flushing before a worker ends")


@cache
def _register_hooks() -> None:
    for name, hook in _HOOKS.items():
        wrapt.register_post_import_hook(hook, name)  # without the import there are no such workers


def _multiprocessing(util: ModuleType) -> None:
    from multiprocessing.process import parent_process  # imported with that by now

    _add_finalizer(util, is_worker=parent_process() is not None)


def _billiard(util: ModuleType) -> None:
    current_process = import_module("billiard.process").current_process
    _add_finalizer(util, is_worker=current_process().name != "MainProcess")


def _add_finalizer(util: Any, *, is_worker: bool) -> None:
    """Add a finalizer of a library. A new worker clears them, so each has to add its own."""

    def finalize(anchor: object = None) -> None:
        util.Finalize(None, _run, exitpriority=0)

    util.register_after_fork(finalize, finalize)
    if is_worker:
        finalize()  # it has begun


def _celery(signals: Any) -> None:
    signals.worker_process_shutdown.connect(_run, weak=False)


def _rq(worker: Any) -> None:
    if _undo_functions or not _jobs:
        return
    for name in _RQ_METHODS:
        owner = next((base for base in worker.Worker.__mro__ if name in base.__dict__), None)
        if owner is not None:
            wrapper = wrapt.wrap_function_wrapper(owner, name, _run_after_method)
            _undo_functions.append(partial(_restore, owner, name, wrapper))


def _restore(owner: type, name: str, wrapper: Any) -> None:
    original = wrapper.__wrapped__
    if owner.__dict__.get(name) is wrapper:
        setattr(owner, name, original)


def _run_after_method(
    wrapped: Any, worker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a method of RQ's worker, then the jobs: a work horse is about to end."""
    try:
        return wrapped(*args, **kwargs)
    finally:
        if worker is not None and getattr(worker, "is_horse", False):
            _run()


_HOOKS: Final = {
    "multiprocessing.util": _multiprocessing,
    "billiard.util": _billiard,
    "celery.signals": _celery,
}
"""A library's module → the function that adds the hook."""
