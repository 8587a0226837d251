"""One daemon thread for what must not happen where it is noticed: the ends of dropped streams, and of idle turns.

A destructor runs wherever the garbage collector happens to, perhaps inside a locked region of the very code that it
would call: what it notices is queued. `SimpleQueue.put` is made for that (it is reentrant); nothing else here is
called from a destructor. The thread starts with the first stream or truncated turn, never before: a host may have
replaced what threads are made of until then, as gevent and eventlet do.
"""

from __future__ import annotations

import heapq
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Final

log = logging.getLogger("endturn")

Job = Callable[[], object]

WAIT_S: Final = 2.0
"""How long `drain` waits for the thread: a process that ends must not hang on telemetry."""

_jobs: queue.SimpleQueue[tuple[float, Job]] | None = None
"""Made when it is first wanted, of what a queue is by then."""
_thread: threading.Thread | None = None
_starting = threading.Lock()


def later(job: Job) -> None:
    """Run `job` soon, in another thread. The only function here that a destructor may call."""
    _queued().put((0.0, job))


def after(seconds: float, job: Job) -> None:
    """Run `job` once that much time has passed."""
    ensure()
    _queued().put((time.monotonic() + seconds, job))


def _queued() -> queue.SimpleQueue[tuple[float, Job]]:
    global _jobs
    if _jobs is None:
        _jobs = queue.SimpleQueue()
    return _jobs


def ensure() -> None:
    """Have the thread running: call it where something is begun that a destructor may have to end."""
    global _thread
    if _thread is not None and _thread.is_alive():
        return
    if not _starting.acquire(blocking=False):  # somebody is at it: to begin a green thread lets others run
        return
    try:
        if _thread is None or not _thread.is_alive():
            thread = threading.Thread(target=_run, args=(_queued(),), name="endturn-janitor", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is shutting down: `drain` does the work
                return
            _thread = thread
    finally:
        _starting.release()


def drain() -> None:
    """Return when everything queued so far, save what is not due yet, has been done."""
    thread = _thread
    if thread is threading.current_thread():
        return
    if thread is not None and thread.is_alive():
        done = threading.Event()
        later(done.set)
        done.wait(WAIT_S)
        return
    waiting = []
    while True:
        try:
            at, job = _queued().get_nowait()
        except queue.Empty:
            break
        if at > time.monotonic():
            waiting.append((at, job))
        else:
            _do(job)
    for row in waiting:
        _queued().put(row)


def _do(job: Job) -> None:
    try:
        job()
    except Exception:
        log.debug("endturn: a job of the janitor failed", exc_info=True)


def _run(jobs: queue.SimpleQueue[tuple[float, Job]]) -> None:
    due: list[tuple[float, int, Job]] = []
    order = count()
    while True:
        try:
            at, job = jobs.get(timeout=max(0.0, due[0][0] - time.monotonic()) if due else None)
        except queue.Empty:
            _do(heapq.heappop(due)[2])
            continue
        if at > time.monotonic():
            heapq.heappush(due, (at, next(order), job))
        else:
            _do(job)


def _forget() -> None:
    """In a forked child: its parent's thread is not here, and what the parent queued is the parent's."""
    global _jobs, _thread, _starting
    _jobs, _thread, _starting = None, None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
