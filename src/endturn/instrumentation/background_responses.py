"""Responses that a server goes on making when nobody listens.

Each is one call, over when the response is.

The request that starts one is answered at once: `queued`. Why the model stopped stands in what the
host fetches later, by the response's id. So the call stays open, and the first fetch in this
process that shows a final status ends it, whether it fetches or cancels. What happens to a fetch
alone says nothing of the response; a fetch of a response that another process began is no call.

A response that nobody fetches for an hour, the oldest beyond 1,024, and those that are open when
the process ends are recorded as they were seen last: `paused`.
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
"""A response that nobody has asked after for so long is nobody's. Deep research takes half an
hour."""

PENDING: Final = 1_024
"""How many may be open at once."""

Key = tuple[str, str]
"""The format, and the id of a response in it."""


@dataclass(slots=True)
class _Response:
    """A response that is being made.

    Attributes:
        format, context: of the request that began it; seen: what was seen of it last.
        asked_s: when it was last asked after.
    """

    format: Format
    context: Context
    call: Call
    seen: ResponseSummary
    asked_s: float


_pending: dict[Key, _Response] = {}
"""Those not asked after for longest come first."""


def are_pending() -> bool:
    """Whether any is being made.

    A request that only fetches is looked at no further where none is.
    """
    return bool(_pending)


def pending(key: Key) -> tuple[Format, Context] | None:
    """Format and context of the request that began that response; None where there is none."""
    response = _pending.get(key)
    if response is None:
        return None
    response.asked_s = time.monotonic()
    _pending[key] = _pending.pop(key, response)  # the last now
    return response.format, response.context


def keep(format: Format, context: Context, call: Call, seen: ResponseSummary) -> bool:
    """Keep the call open whose answer says that the response is still being made.

    False where it is over.
    """
    if (
        call.started is None
        or not context.request.background
        or seen.facts.id is None
        or seen.stop.resume is not Resume.RETRIEVE_SAME_ID
        # it fetches on its own account, as a continuation
        or call.started.turn.kind is TurnKind.CONTROLLER
    ):
        return False
    sweep()
    key = format.name, seen.facts.id
    _give_up(key)  # a server that repeats its ids
    for oldest in list(_pending)[: len(_pending) - PENDING + 1]:
        _give_up(oldest)
    _pending[key] = _Response(format, context, call, seen, time.monotonic())
    turn = call.started.turn
    if call.started.request.stream:
        # Its stream has been read: a turn that waits for its streams need not wait for the
        # response.
        turn.open_streams -= 1
        if turn.ending is not None and not turn.open_streams:
            end_turn(turn, turn.ending[0], error=turn.ending[1])
    return True


def fetched(key: Key, seen: ResponseSummary) -> None:
    """A fetch has been read, as far as it was."""
    response = _pending.get(key)
    # What came as an error within the stream, or was raised, is no status of the response.
    if response is not None and seen.stop.raw is not None and seen.stop.raw in seen.facts.reasons:
        response.seen = seen
        if seen.stop.resume is not Resume.RETRIEVE_SAME_ID:
            _give_up(key)


def sweep() -> None:
    """Record the responses that nobody has asked after for too long."""
    limit = time.monotonic() - IDLE_S
    for key, response in list(_pending.items()):  # in one step: other threads change it
        if response.asked_s <= limit:
            _give_up(key)


def close_all() -> None:
    """Record each as it was seen last: the process, or its instrumentation, ends."""
    for key in list(_pending):
        _give_up(key)


def _give_up(key: Key) -> None:
    response = _pending.pop(key, None)
    if response is None:
        return
    started = response.call.announced()
    if started.request.stream:
        started.turn.open_streams += 1  # the end takes it away again
    end_call(response.call, response.seen)


cleanup.after_fork(_pending.clear)
