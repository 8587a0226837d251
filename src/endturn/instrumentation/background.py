"""Responses that a server goes on making when nobody listens: each is one call, over when the response is.

The call that starts such a job is answered at once: `queued`. Why the model stopped stands in what the host fetches
later, by the response's id. So the call stays open, and the first fetch in this process that shows a final status ends
it, whichever way it fetches: whole, streamed, or by cancelling. One call, one record; a fetch is none of its own (the
conventions' `fetch_response`), nor is that of a response which another process began.

A job that nobody fetches for an hour, the oldest beyond 1,024, and those that are open when the process ends are
recorded as what was seen of them last: `paused`. In a controller's turn nothing waits: the controller fetches on its
own account, as a continuation.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from dataclasses import replace
from typing import Any, Final

from endturn.calls import Call
from endturn.records import TurnKind
from endturn.stop import Resume, Stop
from endturn.telemetry import janitor
from endturn.turns import end_turn
from endturn.wires import Context, Wire

IDLE_S: Final = 3600.0
"""A job that nobody has asked after for so long is nobody's. Deep research takes half an hour."""

JOBS: Final = 1_024
"""How many may be open at once."""


class Job:
    """Stands for the call that starts a job, where its answer is read: does not end it while the job goes on.

    Args:
        wire: what reads its answers; context: what that must know.
    """

    __slots__ = ("asked_s", "call", "context", "ended", "last", "wire")

    def __init__(self, call: Call, wire: Wire, context: Context) -> None:
        self.call = call
        self.wire = wire
        self.context = context
        self.ended = False
        self.last: tuple[Stop, dict[str, Any]] | None = None
        self.asked_s = time.monotonic()

    @property
    def first_chunk_s(self) -> float | None:
        """As of the call."""
        return self.call.first_chunk_s

    def first_chunk(self) -> None:
        """As of the call."""
        self.call.first_chunk()

    def end(self, stop: Stop, *, response_id: str | None = None, **seen: Any) -> None:
        """The answer has been read: the end of the call, unless it says that the response is still being made."""
        if self.ended:
            return
        self.ended = True
        started = self.call.started
        alone = started is not None and started.turn.kind is not TurnKind.CONTROLLER
        if response_id is not None and alone and stop.resume is Resume.RETRIEVE_SAME_ID:
            self.last = stop, {"response_id": response_id, **seen}
            _wait(self, response_id)
        else:
            self.call.end(stop, response_id=response_id, **seen)


class Fetch:
    """Stands for the call that started a job, where what was fetched of it is read: ends it with what is final.

    What happens to the fetch alone (a lost connection, a host that stops reading) says nothing of the response.
    """

    __slots__ = ("ended", "first_chunk_s", "job")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.ended = False
        self.first_chunk_s: float | None = None

    def first_chunk(self) -> None:
        """Of the fetch; the call's own, if it had one, was long ago."""
        self.first_chunk_s = time.perf_counter() - self.job.call.started_s

    def end(self, stop: Stop, *, response_id: str | None = None, **seen: Any) -> None:
        """The fetch has been read, or failed."""
        if self.ended:
            return
        self.ended = True
        job = self.job
        # What raised, or came as an error within the stream, is no status of the response.
        told = stop.raw is not None and stop.raw in seen.get("reasons", ())
        if told and stop.resume is Resume.RETRIEVE_SAME_ID:
            job.last = stop, {"response_id": response_id, **seen}
        elif told:
            _leave(job)
            _end(job, stop, {"response_id": response_id, **seen})


Scope = Call | Job | Fetch
"""What is ended by what was read of a response."""

_jobs: OrderedDict[tuple[str, str], Job] = OrderedDict()
_lock = threading.Lock()
_sweeping = False


def waiting() -> bool:
    """Whether any job is open: nothing costs a call that fetches nothing more than this."""
    return bool(_jobs)


def fetched(wire: str, response_id: str, *, stream: bool) -> Fetch | None:
    """A job of this process that somebody is about to fetch; None where there is none of that id."""
    with _lock:
        job = _jobs.get((wire, response_id))
        if job is None:
            return None
        job.asked_s = time.monotonic()
        _jobs.move_to_end((wire, response_id))
    asked = job.context.asked
    if asked.stream is not stream:
        job.context = replace(job.context, asked=replace(asked, stream=stream))
    return Fetch(job)


def close_all() -> None:
    """Record every open job as it was seen last: the process, or its instrumentation, ends."""
    with _lock:
        over = list(_jobs.values())
        _jobs.clear()
    for job in over:
        _give_up(job)


def sweep() -> None:
    """Record the jobs that nobody has asked after for too long."""
    global _sweeping
    limit = time.monotonic() - IDLE_S
    with _lock:
        _sweeping = False
        over = [(key, job) for key, job in _jobs.items() if job.asked_s <= limit]
        for key, _ in over:
            del _jobs[key]
        _schedule()
    for _, job in over:
        _give_up(job)


def _wait(job: Job, response_id: str) -> None:
    turn = job.call.started.turn if job.call.started is not None else None
    key = job.wire.NAME, response_id
    with _lock:
        over = [other for other in (_jobs.pop(key, None),) if other is not None]  # a server that repeats its ids
        _jobs[key] = job
        if len(_jobs) > JOBS:
            over.append(_jobs.popitem(last=False)[1])
        _schedule()
    for other in over:
        _give_up(other)
    if turn is not None and job.call.facts.get("stream"):
        # Its stream has been read: a turn that waits for its streams need not wait for the job.
        turn.open_streams -= 1
        if turn.ending is not None and not turn.open_streams:
            end_turn(turn, turn.ending[0], error=turn.ending[1])


def _leave(job: Job) -> None:
    with _lock:
        for key in [key for key, other in _jobs.items() if other is job]:
            del _jobs[key]


def _end(job: Job, stop: Stop, seen: dict[str, Any]) -> None:
    if job.call.ended:
        return
    if job.call.started is not None and job.call.facts.get("stream"):
        job.call.started.turn.open_streams += 1  # the end takes it away again
    job.call.end(stop, **seen)


def _give_up(job: Job) -> None:
    if job.last is not None:
        _end(job, *job.last)


def _schedule() -> None:
    """Have `sweep` run when the first may have waited long enough; once, however many wait."""
    global _sweeping
    if _jobs and not _sweeping:
        _sweeping = True
        oldest = next(iter(_jobs.values()))
        janitor.after(max(0.0, oldest.asked_s + IDLE_S - time.monotonic()), sweep)


def _forget() -> None:
    """In a forked child: what its parent began, its parent ends."""
    global _lock, _sweeping
    _jobs.clear()
    _lock, _sweeping = threading.Lock(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
