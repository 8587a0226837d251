"""The end of a worker process: what it recorded is exported before it is gone.

Pools of processes end their workers with `os._exit`, without exit handlers. What each of them runs
before that is used here: the finalizers of `multiprocessing` (`Process`, `Pool`,
`ProcessPoolExecutor`) and of billiard, Celery's signal `worker_process_shutdown`, and for RQ, which
has no such signal, the methods with which a work horse settles its job. A library that is not
imported is left alone. A worker that leaves through exit handlers, as gunicorn's, needs none.
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
"""The last of these that a work horse calls is followed by its end. Each is called after the job's
function, which may be the first to import endturn."""

_jobs: list[Job] = []

_unwrap: list[Callable[[], None]] = []
"""Give RQ's workers their own methods back."""


def before_worker_ends(job: Job) -> None:
    """Run `job` at the end of this process if it is a pool worker, and of each worker it forks.

    The latest job is done first. A spawned worker of `multiprocessing` ends as any process does,
    after its finalizers: there a job is done twice.
    """
    if job not in _jobs:
        _jobs.append(job)
    _attend()
    wrapt.register_post_import_hook(_rq, "rq.worker")


def forget(job: Job) -> None:
    """Have `job` done no longer."""
    if job in _jobs:
        _jobs.remove(job)
    if not _jobs:
        while _unwrap:
            _unwrap.pop()()


def _run(*_: object, **__: object) -> None:
    for job in reversed(_jobs.copy()):
        try:
            job()
        except Exception:
            log_internal_error("flushing before a worker ends")


@cache
def _attend() -> None:
    for name, hook in _HOOKS.items():
        wrapt.register_post_import_hook(hook, name)  # who never imports it has no such workers


def _multiprocessing(util: ModuleType) -> None:
    from multiprocessing.process import parent_process  # imported with that by now

    _finalizers(util, is_worker=parent_process() is not None)


def _billiard(util: ModuleType) -> None:
    current_process = import_module("billiard.process").current_process
    _finalizers(util, is_worker=current_process().name != "MainProcess")


def _finalizers(util: Any, *, is_worker: bool) -> None:
    """Use the finalizers of a library.

    They are emptied when a worker begins, so each worker has to add its own.
    """

    def finalize(anchor: object = None) -> None:
        util.Finalize(None, _run, exitpriority=0)

    util.register_after_fork(finalize, finalize)
    if is_worker:
        finalize()  # it has begun


def _celery(signals: Any) -> None:
    signals.worker_process_shutdown.connect(_run, weak=False)


def _rq(worker: Any) -> None:
    if _unwrap or not _jobs:
        return
    for name in _RQ_METHODS:
        owner = next((kind for kind in worker.Worker.__mro__ if name in kind.__dict__), None)
        if owner is not None:
            ours = wrapt.wrap_function_wrapper(owner, name, _settled)
            _unwrap.append(partial(_restore, owner, name, ours))


def _restore(owner: type, name: str, ours: Any) -> None:
    own = ours.__wrapped__
    if owner.__dict__.get(name) is ours:
        setattr(owner, name, own)


def _settled(wrapped: Any, worker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a method of RQ's worker. In a work horse, the process is about to end."""
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
"""The module of a library, and what uses it."""
