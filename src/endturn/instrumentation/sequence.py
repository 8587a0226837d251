"""Continuations of which only spans tell: recognised by the order of the calls within one turn.

A span says nothing of the history that its call was made with. What is left is order: a call to the same model that
begins in the same agent's span (outside any, in the same parent's) after a truncated one ended, with no tool run in
between, continues that. Its turn is marked as inferred. A call without a parent is alone.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from endturn import announce
from endturn.records import CallEnded, Continuation, ContinuationAttempted, Strategy, Turn, TurnKind, TurnOutcome
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from endturn.telemetry.enclosing import Foreign
from endturn.turns import end_turn, outcome_of

IDLE_S: Final = 30.0
"""A turn that nobody has continued for so long has been left."""

WAITING: Final = 1_024
"""How many turns may wait at once; the oldest ends first."""


@dataclass(slots=True, eq=False)
class _Cut:
    """A truncated response, and when it ended."""

    turn: Turn
    number: int
    provider: str
    model: str
    lost: bool
    ended_ns: int
    touched: float


_waiting: OrderedDict[int, _Cut] = OrderedDict()
"""By the id of the span that the call was made in."""


def _key(one: Foreign) -> int:
    return one.parent if one.around is None or one.declared is not None else one.around.id


def place(one: Foreign, *, provider: str, model: str) -> tuple[Turn, Continuation | None]:
    """The turn of a call that has ended, of which only its span tells, and what the call continued."""
    turn = one.turn_here
    if turn is not None and turn.kind is TurnKind.CONTROLLER:
        return turn, turn.continuation
    cut = _waiting.get(_key(one))
    if cut is None or one.started_ns < cut.ended_ns:
        return turn or Turn(kind=TurnKind.IMPLICIT), None
    del _waiting[_key(one)]
    same = cut.turn is turn if turn is not None else cut.turn.kind is TurnKind.IMPLICIT
    if not same or (cut.provider, cut.model) != (provider, model):
        _end(cut)
        return turn or Turn(kind=TurnKind.IMPLICIT), None
    turn = cut.turn
    turn.continuations += 1
    turn.inferred = True
    strategy = Strategy.RETRY if cut.lost else Strategy.PROMPT
    continuation = Continuation(turn.continuations, strategy, cut.number)
    announce.announce(
        ContinuationAttempted(
            turn=turn,
            provider=turn.provider,
            model=model,
            continuation=continuation,
            output_tokens=turn.output_tokens,
            output_chars=turn.output_chars,
        )
    )
    return turn, continuation


def ended(one: Foreign, call: CallEnded, ended_ns: int) -> None:
    """Such a call has been announced: its turn waits for a continuation, or, where nobody declared it, is over."""
    turn, stop = call.started.turn, call.stop
    if turn.kind is TurnKind.OBSERVED and call.whole:
        turn.cut.clear()  # nothing is known of which call is whose
    key = _key(one)
    if stop.truncated and key and turn.kind is not TurnKind.CONTROLLER:
        left = _waiting.pop(key, None)
        lost = stop.reason is StopReason.MISSING
        _waiting[key] = _Cut(
            turn, call.started.number, call.started.provider, call.started.model, lost, ended_ns, time.monotonic()
        )
        if left is None and len(_waiting) > WAITING:
            left = _waiting.popitem(last=False)[1]
        if left is not None:
            _end(left)
    elif turn.kind is TurnKind.IMPLICIT:
        outcome = outcome_of(call)
        end_turn(turn, TurnOutcome.NOT_CONTINUED if turn.unfinished else outcome, error=call.error)


def interrupted(parent: int, around: Foreign | None) -> None:
    """A tool runs in an agent's span, or in another's: what is asked after it does not continue what came before."""
    _leave(parent if around is None else around.id)


def left(span_id: int) -> None:
    """A span has ended in which calls may have been made."""
    if _waiting:
        _leave(span_id)


def close_all() -> None:
    """End every turn that waits: the process, or its instrumentation, ends."""
    for span_id in list(_waiting):
        _leave(span_id)


def _leave(span_id: int) -> None:
    cut = _waiting.pop(span_id, None)
    if cut is not None:
        _end(cut)


def _sweep() -> None:
    now = time.monotonic()
    for span_id, cut in list(_waiting.items()):
        if cut.touched + IDLE_S <= now:
            _leave(span_id)


cleanup.each_time(_sweep)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_waiting.clear)  # they are the parent's


def _end(cut: _Cut) -> None:
    # An agent's turn ends with its span; only its waiting is over.
    if cut.turn.kind is TurnKind.IMPLICIT and cut.turn.outcome is None:
        end_turn(cut.turn, TurnOutcome.NOT_CONTINUED)
