"""The current turn: where it is kept, how it begins and ends, and who infers it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

from endturn.calls.listeners import Activation, emit, log_internal_error, number
from endturn.calls.outcomes import COMPLETE, Continuation, RequestedCall, TurnKind, TurnOutcome
from endturn.calls.records import (
    CallEnded,
    CallStarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnJoined,
    TurnStarted,
)
from endturn.calls.turn import Turn
from endturn.vocabulary import StopReason, lines, shipped

if TYPE_CHECKING:
    from endturn.calls.facts import SummarizedRequest

log = logging.getLogger("endturn")


TURN: ContextVar[Turn | None] = ContextVar("endturn_turn", default=None)
"""What a turn's step sets; `declared_turn` says what it means."""


_find_turn: Callable[[], Turn | None] | None = None


def find_turns_with(find: Callable[[], Turn | None] | None) -> None:
    """Where no turn was declared, have `find` say which one the running code is part of.

    An agent's span is one.
    """
    global _find_turn
    _find_turn = find


def declared_turn() -> Turn | None:
    """Return the turn of a controller or an observed function that the running code is part of.

    One that is over gives way to the one around it: what a turn started, a worker say, may run on
    when it has ended.
    """
    turn = TURN.get()
    return turn if turn is None or turn.outcome is None else turn.still_open()


def current_turn() -> Turn | None:
    """Return the explicit turn that the running code is part of: declared before recognised."""
    turn = declared_turn()
    if turn is None and _find_turn is not None:
        turn = _find_turn()
    return turn


class Step:
    """Makes a scope current for one step.

    Around one synchronous stretch or one `await`, never a `yield`.

    Once left, it may be entered again.
    """

    __slots__ = ("_activations", "_entered", "_token", "_value", "_variable")

    def __init__(
        self, variable: ContextVar[Any], value: object, activations: tuple[Activation, ...]
    ) -> None:
        self._variable = variable
        self._value = value
        self._activations = activations

    def __enter__(self) -> None:
        self._token: Token[Any] = self._variable.set(self._value)
        self._entered: list[AbstractContextManager[object]] = []
        for activation in self._activations:
            try:
                current = activation()
                current.__enter__()
                self._entered.append(current)
            except Exception:
                log_internal_error("making a span current")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._entered:
            try:
                self._entered.pop().__exit__(kind, value, trace)
            except Exception:
                log_internal_error("leaving a span")
        try:
            self._variable.reset(self._token)
        # a host that drives one coroutine from several contexts: the step was the other's
        except ValueError:
            log.debug("endturn: a step ended in another context than it began in")


def start_turn(turn: Turn) -> TurnScope:
    """Announce an explicit turn and open its scope.

    A controller's turn within an observed one is a part of that, and is not announced: its records
    have the id, the agent and the conversation of the outer turn, which gets its tally and its
    outcome.
    """
    turn.around = declared_turn()
    if turn.around is not None and turn.around.around is not None:
        # turns that start each other may have no end
        turn.around.around = turn.around.around.still_open()
    outer = current_turn() if turn.kind is TurnKind.CONTROLLER else None
    if outer is not None and outer.kind is TurnKind.OBSERVED and outer.outcome is None:
        turn.join(outer)
        return TurnScope(turn, emit(TurnJoined(turn=turn)))
    return TurnScope(turn, emit(TurnStarted(turn=turn)))


@dataclass(slots=True, eq=False)
class TurnScope:
    """An explicit turn as a scope."""

    turn: Turn
    activations: tuple[Activation, ...]

    def step(self) -> Step:
        """Make this turn, and its span, current for one step."""
        return Step(TURN, self.turn, self.activations)

    def end(
        self,
        outcome: TurnOutcome,
        *,
        error: BaseException | None = None,
        over_s: float | None = None,
    ) -> None:
        """Announce the end, once."""
        end_turn(self.turn, outcome, error=error, over_s=over_s)


def end_turn(
    turn: Turn,
    outcome: TurnOutcome,
    *,
    error: BaseException | None = None,
    over_s: float | None = None,
    tools_unanswered: bool = False,
) -> None:
    """Announce that a turn ended, once: a turn that already has an outcome stays as it is.

    An observed turn whose function returned a stream ends when the stream has been read. One that
    completed, or raised though its last call did not fail, but leaves a truncated response
    unfinished, ends `not_continued`. The end of one that is a part of another is not announced: the
    outer turn, where it completes, ends as the last of its parts. An agent's run that leaves a
    truncated response without raising ends when nobody has continued it in another run.

    Args:
        over_s: when it was over, by `time.perf_counter`; None: now.
        tools_unanswered: its last response asked for tools, and no call sent their results.
    """
    if turn.outcome is not None:
        return
    if over_s is None:
        over_s = time.perf_counter()
    if turn.kind is TurnKind.OBSERVED:
        if turn.open_streams:
            turn.ending = outcome, error
            return
        # A framework may raise because an answer was cut: no call has failed.
        is_raised_on_cut = (
            outcome is TurnOutcome.PROVIDER_ERROR and turn.unfinished and not turn.failed
        )
        if outcome is TurnOutcome.COMPLETED or is_raised_on_cut:
            outcome = completed(turn)
        is_left = outcome is TurnOutcome.NOT_CONTINUED and not is_raised_on_cut
        if is_left and turn.waits is None and inference().waits(turn):
            turn.waits = over_s
            return
    turn.outcome = outcome
    if (outer := turn.within) is not None:
        turn.leave(outer)
        if outer.ending is not None and not outer.open_streams:
            end_turn(outer, outer.ending[0], error=outer.ending[1])
        return
    if turn.kind is TurnKind.IMPLICIT and turn.last_s is not None:
        # over with its last call, though that is known only later: nobody took up what was cut
        over_s = turn.last_s
    emit(
        TurnEnded(
            turn=turn,
            outcome=outcome,
            complete=outcome in COMPLETE and not turn.unfinished,
            duration_s=over_s - turn.started_s,
            error=error,
            tools_unanswered=tools_unanswered,
        )
    )


def completed(turn: Turn) -> TurnOutcome:
    """Return the outcome of an observed turn that its host calls complete."""
    outcome = turn.inner or TurnOutcome.COMPLETED
    return TurnOutcome.NOT_CONTINUED if outcome in COMPLETE and turn.unfinished else outcome


def outcome_of(ended: CallEnded) -> TurnOutcome:
    """Return the outcome of an undeclared turn, from how its last call ended."""
    if ended.error is not None and ended.stop.reason is not StopReason.CANCELLED:
        return TurnOutcome.PROVIDER_ERROR
    return OUTCOMES[ended.stop.reason]


OUTCOMES: Final = {
    StopReason(reason): TurnOutcome(outcome)
    for _, (outcome, _, _, after, _) in lines(shipped(), "outcomes.tsv", range(5, 6))
    for reason in after.split()
}
"""How a turn ends whose last response stopped for that reason, where nothing else is known."""


class Inference(Protocol):
    """Says which turn a call belongs to, where nobody declared one, and when such a turn is over.

    By default a call inside an explicit turn belongs to it; outside it is its own turn, and ends
    with the call.
    """

    def resolve(
        self, asked: SummarizedRequest | None, turn: Turn | None
    ) -> tuple[Turn, Continuation | None]:
        """Return the turn of a call, and what it continues.

        Args:
            asked: what the call asks for; None where it could not be read.
            turn: the explicit turn that the call is made in.
        """
        return (Turn(kind=TurnKind.IMPLICIT), None) if turn is None else (turn, turn.continuation)

    def withdrawn(self, started: CallStarted, asked: SummarizedRequest | None) -> None:
        """Take back a call that was none: what it continued still waits."""

    def answered(self, ended: CallEnded, asked: SummarizedRequest | None) -> None:
        """Remove the answers that an ending call finishes from the turn's `cut`.

        This happens before the end of the call is announced.
        """
        turn = ended.started.turn
        if turn.kind is TurnKind.OBSERVED and ended.whole:
            turn.cut = frozenset()  # nothing is known of which call is whose

    def waits(self, turn: Turn) -> bool:
        """Return whether an observed turn that its host left unfinished may be continued."""
        return False

    def turn_of_tool_call(self, call_id: str) -> Turn | None:
        """Return the undeclared turn that waits for the result of a tool call."""
        return None

    def ended(
        self,
        ended: CallEnded,
        asked: SummarizedRequest | None,
        tail: str,
        tool_calls: tuple[RequestedCall, ...] = (),
    ) -> None:
        """Note that a call has ended and has been announced.

        Args:
            tail: the last visible characters of the response.
            tool_calls: the client tool calls that the response asks for.
        """
        turn = ended.started.turn
        if turn.kind is TurnKind.IMPLICIT:
            end_turn(turn, TurnOutcome.NOT_CONTINUED if turn.unfinished else outcome_of(ended))


class NoInference(Inference):
    """The default."""

    def withdrawn(self, started: CallStarted, asked: SummarizedRequest | None) -> None:
        """Nothing waits here."""


_inference: Inference = NoInference()


def inference() -> Inference:
    """Return what decides which turn a call belongs to."""
    return _inference


def infer_with(by: Inference | None) -> None:
    """Have calls outside any explicit turn assigned to turns `by` this.

    None returns to the default.
    """
    global _inference
    _inference = by or NoInference()


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
        emit(
            ToolEnded(
                started=self.started, error=error, duration_s=time.perf_counter() - self.began_s
            )
        )


def start_tool(scope: TurnScope, *, name: str, call_id: str) -> ToolRun:
    """Announce that a tool call of a turn is about to be run.

    The tool's span is a child of the turn's.
    """
    started = ToolStarted(number=number(), turn=scope.turn, name=name, call_id=call_id)
    with scope.step():
        activations = emit(started)
    return ToolRun(started, (*scope.activations, *activations), time.perf_counter())
