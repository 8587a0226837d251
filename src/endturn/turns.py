"""Turns as scopes: which one the running code is part of, and how each ends.

A scope is a context variable that is set and reset inside one step; it never stays set across a `yield`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol

from endturn.events import (
    COMPLETE,
    CallEnded,
    CallStarted,
    Continuation,
    ToolEnded,
    ToolStarted,
    Turn,
    TurnEnded,
    TurnKind,
    TurnOutcome,
    TurnStarted,
)
from endturn.hooks import Activation, emit, is_strict, number
from endturn.stop import StopReason

log = logging.getLogger("endturn")

TURN: ContextVar[Turn | None] = ContextVar("endturn_turn", default=None)
"""What a turn's step sets; `declared_turn` says what it means."""

_find_turn: Callable[[], Turn | None] | None = None


def find_turns_with(find: Callable[[], Turn | None] | None) -> None:
    """Where no turn was declared, have `find` say which one the running code is part of: an agent's span is one."""
    global _find_turn
    _find_turn = find


def declared_turn() -> Turn | None:
    """The turn of a controller or an observed function that the running code is part of.

    One that is over gives way to the one around it: what a turn started, a worker say, may run on when it has ended.
    """
    turn = TURN.get()
    return turn if turn is None or turn.outcome is None else turn.still_open()


def current_turn() -> Turn | None:
    """The explicit turn that the running code is part of: what was declared comes before what is recognised."""
    turn = declared_turn()
    if turn is None and _find_turn is not None:
        turn = _find_turn()
    return turn


class Step:
    """Makes a scope current for one step: around one synchronous stretch or one `await`, never a `yield`.

    Once left, it may be entered again.
    """

    __slots__ = ("_activations", "_entered", "_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: object, activations: tuple[Activation, ...]) -> None:
        self._variable = variable
        self._value = value
        self._activations = activations

    def __enter__(self) -> None:
        self._token: Token[Any] = self._variable.set(self._value)
        self._entered = self._activated() if self._activations else ()

    def _activated(self) -> tuple[AbstractContextManager[object], ...]:
        entered: tuple[AbstractContextManager[object], ...] = ()
        for activation in self._activations:
            try:
                manager = activation()
                manager.__enter__()
            except Exception:
                if is_strict():
                    raise
                log.debug("endturn: an activation failed", exc_info=True)
            else:
                entered = (manager, *entered)
        return entered

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for manager in self._entered:
            try:
                manager.__exit__(kind, value, trace)
            except Exception:
                if is_strict():
                    raise
                log.debug("endturn: an activation failed", exc_info=True)
        try:
            self._variable.reset(self._token)
        except ValueError:  # a host that drives one coroutine from several contexts: the step was the other's
            log.debug("endturn: a step ended in another context than it began in")


def start_turn(turn: Turn) -> TurnScope:
    """Announce an explicit turn and open its scope.

    A controller's turn within an observed one is a part of that, and is not announced: its records have the id, the
    agent and the conversation of the outer turn, which gets its tally and its outcome.
    """
    turn.around = declared_turn()
    if turn.around is not None and turn.around.around is not None:
        turn.around.around = turn.around.around.still_open()  # turns that start each other may have no end
    outer = current_turn() if turn.kind is TurnKind.CONTROLLER else None
    if outer is not None and outer.kind is TurnKind.OBSERVED and outer.outcome is None:
        turn.join(outer)
        return TurnScope(turn, ())
    return TurnScope(turn, emit(TurnStarted(turn=turn)))


@dataclass(slots=True, eq=False)
class TurnScope:
    """An explicit turn as a scope."""

    turn: Turn
    activations: tuple[Activation, ...]

    def step(self) -> Step:
        """Make this turn, and its span, current for one step."""
        return Step(TURN, self.turn, self.activations)

    def end(self, outcome: TurnOutcome, *, error: BaseException | None = None, over_s: float | None = None) -> None:
        """Announce the end, once."""
        end_turn(self.turn, outcome, error=error, over_s=over_s)


def end_turn(
    turn: Turn, outcome: TurnOutcome, *, error: BaseException | None = None, over_s: float | None = None
) -> None:
    """Announce that a turn ended, once: a turn that already has an outcome stays as it is.

    An observed turn whose function returned a stream ends when the stream has been read. One that completed, but leaves
    a truncated response unfinished, ends `not_continued`. The end of one that is a part of another is not announced:
    the outer turn, where it completes, ends as the last of its parts.

    Args:
        over_s: when it was over, by `time.perf_counter`; None: now.
    """
    if turn.outcome is not None:
        return
    if over_s is None:
        over_s = time.perf_counter()
    if turn.kind is TurnKind.OBSERVED:
        if turn.open_streams:
            turn.ending = outcome, error
            return
        if outcome is TurnOutcome.COMPLETED:
            outcome = completed(turn)
    turn.outcome = outcome
    if (outer := turn.within) is not None:
        turn.leave(outer)
        if outer.ending is not None and not outer.open_streams:
            end_turn(outer, outer.ending[0], error=outer.ending[1])
        return
    if turn.kind is TurnKind.IMPLICIT and turn.last_s is not None:
        over_s = turn.last_s  # over with its last call, though that is known only later: nobody took up what was cut
    emit(
        TurnEnded(
            turn=turn,
            outcome=outcome,
            complete=outcome in COMPLETE and not turn.unfinished,
            duration_s=over_s - turn.started_s,
            error=error,
        )
    )


def completed(turn: Turn) -> TurnOutcome:
    """The outcome of an observed turn of which its host says that it is complete."""
    outcome = turn.inner or TurnOutcome.COMPLETED
    return TurnOutcome.NOT_CONTINUED if outcome in COMPLETE and turn.unfinished else outcome


def outcome_of(ended: CallEnded) -> TurnOutcome:
    """The outcome of a turn whose last call ended so, and which nobody declared."""
    if ended.error is not None and ended.stop.reason is not StopReason.CANCELLED:
        return TurnOutcome.PROVIDER_ERROR
    return OUTCOMES[ended.stop.reason]


OUTCOMES: Final = {
    StopReason.END_TURN: TurnOutcome.COMPLETED,
    StopReason.TOOL_CALL: TurnOutcome.COMPLETED,
    StopReason.MAX_TOKENS: TurnOutcome.NOT_CONTINUED,
    StopReason.CONTEXT_WINDOW_EXCEEDED: TurnOutcome.NOT_CONTINUED,
    StopReason.MISSING: TurnOutcome.NOT_CONTINUED,
    StopReason.SAFETY_BLOCKED: TurnOutcome.SAFETY_BLOCKED,
    StopReason.REFUSED: TurnOutcome.REFUSED,
    StopReason.PAUSED: TurnOutcome.LEFT_PAUSED,
    StopReason.CANCELLED: TurnOutcome.CANCELLED,
    StopReason.ERROR: TurnOutcome.PROVIDER_ERROR,
    StopReason.UNKNOWN: TurnOutcome.UNKNOWN_REASON,
}
"""How a turn ends whose last response stopped for that reason, where nothing else is known."""


class Inference(Protocol):
    """Says which turn a call belongs to, where nobody declared one, and when such a turn is over."""

    def resolve(self, asked: object, turn: Turn | None) -> tuple[Turn, Continuation | None]:
        """The turn of a call that asks for `asked` (a format's RequestSummary, or None), and what the call continues.

        Args:
            turn: the explicit turn that the call is made in.
        """
        ...

    def withdrawn(self, started: CallStarted) -> None:
        """What was taken for a call was none: what it continued still waits."""
        ...

    def answered(self, ended: CallEnded, asked: object) -> None:
        """A call is about to be announced as ended: take out of its turn's `cut` the answers that this one finishes."""
        ...

    def ended(self, ended: CallEnded, asked: object, tail: str) -> None:
        """A call has ended, which has been announced."""
        ...


class Alone:
    """The default: inside an explicit turn a call belongs to it, outside it is its own turn and ends with the call."""

    def resolve(self, asked: object, turn: Turn | None) -> tuple[Turn, Continuation | None]:
        return (Turn(kind=TurnKind.IMPLICIT), None) if turn is None else (turn, turn.continuation)

    def withdrawn(self, started: CallStarted) -> None:
        """Nothing waits here."""

    def answered(self, ended: CallEnded, asked: object) -> None:
        turn = ended.started.turn
        if turn.kind is TurnKind.OBSERVED and ended.whole:
            turn.cut.clear()  # nothing is known of which call is whose

    def ended(self, ended: CallEnded, asked: object, tail: str) -> None:
        turn = ended.started.turn
        if turn.kind is TurnKind.IMPLICIT:
            end_turn(turn, TurnOutcome.NOT_CONTINUED if turn.unfinished else outcome_of(ended))


_inference: Inference = Alone()


def inference() -> Inference:
    """What says which turn a call belongs to."""
    return _inference


def infer_with(by: Inference | None) -> None:
    """Have calls outside any explicit turn assigned to turns `by` this; None returns to the default."""
    global _inference
    _inference = by or Alone()


@dataclass(slots=True, eq=False)
class ToolRun:
    """One tool call being run, as a scope."""

    started: ToolStarted
    activations: tuple[Activation, ...]
    began_s: float

    def step(self) -> Step:
        """Make the tool's span current for one step."""
        return Step(TURN, self.started.turn, self.activations)

    def end(self, error: BaseException | None = None) -> None:
        """Announce that the tool has run."""
        emit(ToolEnded(started=self.started, error=error, duration_s=time.perf_counter() - self.began_s))


def start_tool(turn: Turn, *, name: str, call_id: str) -> ToolRun:
    """Announce that a tool call is about to be run."""
    started = ToolStarted(number=number(), turn=turn, name=name, call_id=call_id)
    return ToolRun(started, emit(started), time.perf_counter())
