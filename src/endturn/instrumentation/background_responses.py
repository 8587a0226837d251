"""Responses that a server generates in the background.

Each is one call, which ends with the response.

The request that starts one is answered at once: `queued`. The stop reason is in the response that
the host fetches later, by its id. So the call stays open, and the first fetch in this process with
a final status ends it, whether it fetches or cancels. An error of a fetch is no status of the
response; a fetch of a response that another process started is no call.

A response that is not fetched for an hour, the oldest beyond 1,024, and those that are open when
the process ends are recorded with their latest status: `paused`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from endturn.calls import Call, TurnKind, end_turn
from endturn.formats import Context, Format, ResponseSummary
from endturn.instrumentation.body import end_call
from endturn.telemetry import cleanup
from endturn.vocabulary import Resume

IDLE_S: Final = 3600.0
"""Seconds without a fetch after which a response is given up. Deep research takes half an hour."""

MAX_PENDING: Final = 1_024
"""The most responses that may be open at once."""

Key = tuple[str, str]
"""The format, and the id of a response in it."""


@dataclass(slots=True)
class _PendingResponse:
    """A response in progress.

    Attributes:
        format, context: of the request that started it; summary: its latest one.
        last_fetch_s: the time of its last fetch, by `time.monotonic`.
    """

    format: Format
    context: Context
    call: Call
    summary: ResponseSummary
    last_fetch_s: float


_pending: dict[Key, _PendingResponse] = {}
"""In the order of their last fetches."""


def are_pending() -> bool:
    """Return whether any is in progress; if none is, requests that only fetch are ignored."""
    return bool(_pending)


def pending(key: Key) -> tuple[Format, Context] | None:
    """Return the format and context of the request that started a response; None if unknown."""
    response = _pending.get(key)
    if response is None:
        return None
    response.last_fetch_s = time.monotonic()
    _pending[key] = _pending.pop(key, response)  # the last now
    return response.format, response.context


def keep_open(format: Format, context: Context, call: Call, summary: ResponseSummary) -> bool:
    """Keep a call open if its response is still in progress. Returns False if it is over."""
    if (
        call.started is None
        or not context.request.background
        or summary.facts.id is None
        or summary.stop.resume is not Resume.RETRIEVE_SAME_ID
        # it fetches on its own account, as a continuation
        or call.started.turn.kind is TurnKind.CONTROLLER
    ):
        return False
    sweep()
    key = format.name, summary.facts.id
    _end_response(key)  # a server that repeats its ids
    for oldest in list(_pending)[: len(_pending) - MAX_PENDING + 1]:
        _end_response(oldest)
    _pending[key] = _PendingResponse(format, context, call, summary, time.monotonic())
    turn = call.started.turn
    if call.started.request.stream:
        # Its stream has been read: a turn that waits for its streams does not wait for the
        # response.
        turn.open_streams -= 1
        if turn.pending_end is not None and not turn.open_streams:
            end_turn(turn, turn.pending_end[0], error=turn.pending_end[1])
    return True


def on_fetched(key: Key, summary: ResponseSummary) -> None:
    """Update a response after a fetch has been read."""
    response = _pending.get(key)
    # An error event within the stream, or an exception, is no status of the response.
    if (
        response is not None
        and summary.stop.raw is not None
        and summary.stop.raw in summary.facts.reasons
    ):
        response.summary = summary
        if summary.stop.resume is not Resume.RETRIEVE_SAME_ID:
            _end_response(key)


def sweep() -> None:
    """Record the responses without a fetch for too long."""
    limit = time.monotonic() - IDLE_S
    for key, response in list(_pending.items()):  # in one step: other threads change it
        if response.last_fetch_s <= limit:
            _end_response(key)


def close_all() -> None:
    """Record each with its latest status: the process, or its instrumentation, ends."""
    for key in list(_pending):
        _end_response(key)


def _end_response(key: Key) -> None:
    response = _pending.pop(key, None)
    if response is None:
        return
    started = response.call.ensure_started()
    if started.request.stream:
        started.turn.open_streams += 1  # the end takes it away again
    end_call(response.call, response.summary)


cleanup.register_after_fork(_pending.clear)
