"""The current turn: its context variable, its start and end, and its inference."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

from endturn.calls.listeners import Activation, emit, log_internal_error, next_id
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
from endturn.vocabulary import StopReason, package_data, read_tsv

if TYPE_CHECKING:
    from endturn.calls.facts import SummarizedRequest

log = logging.getLogger("endturn")


TURN: ContextVar[Turn | None] = ContextVar("endturn_turn", default=None)
"""Set by a turn's step; read it with `declared_turn`."""


_find_turn: Callable[[], Turn | None] | None = None


def find_turns_with(find_turn: Callable[[], Turn | None] | None) -> None:
    """Set the function that returns the turn of running code without a declared turn.

    Such a turn is an agent's span.
    """
    global _find_turn
    _find_turn = find_turn


def declared_turn() -> Turn | None:
    """Return the turn of a controller or an observed function that the running code is part of.

    A turn that is over is replaced by the enclosing one: a worker that a turn has started may run
    on after the turn's end.
    """
    turn = TURN.get()
    return turn if turn is None or turn.outcome is None else turn.open_turn()


def current_turn() -> Turn | None:
    """Return the explicit turn of the running code: the declared one, else a recognised one."""
    turn = declared_turn()
    if turn is None and _find_turn is not None:
        turn = _find_turn()
    return turn


class ScopeStep:
    """A context manager that makes a scope current for one step.

    A step is a block of synchronous code or one `await`, and never contains a `yield`. The context
    manager can be used again.
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
        self._entered: tuple[AbstractContextManager[object], ...] = ()
        for activation in self._activations:
            try:
                current = activation()
                current.__enter__()
                self._entered = (current, *self._entered)
            except Exception:
                log_internal_error("making a span current")

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for current in self._entered:  # the innermost first
            try:
                current.__exit__(error_class, value, trace)
            except Exception:
                log_internal_error("leaving a span")
        try:
            self._variable.reset(self._token)
        # a host that drives one coroutine from several contexts: the step began in another one
        except ValueError:
            log.debug("endturn: a step ended in another context than it began in")


def start_turn(turn: Turn) -> TurnScope:
    """Announce an explicit turn and open its scope.

    A controller's turn within an observed one is a part of that, and is not announced: its records
    have the id, the agent and the conversation of the outer turn, which gets its totals and its
    outcome.
    """
    turn.enclosing = declared_turn()
    if turn.enclosing is not None and turn.enclosing.enclosing is not None:
        # turns that start each other may have no end
        turn.enclosing.enclosing = turn.enclosing.enclosing.open_turn()
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

    def step(self) -> ScopeStep:
        """Make this turn, and its span, current for one step."""
        return ScopeStep(TURN, self.turn, self.activations)

    def end(
        self,
        outcome: TurnOutcome,
        *,
        error: BaseException | None = None,
        ended_s: float | None = None,
    ) -> None:
        """Announce the end, once."""
        end_turn(self.turn, outcome, error=error, ended_s=ended_s)


def end_turn(
    turn: Turn,
    outcome: TurnOutcome,
    *,
    error: BaseException | None = None,
    ended_s: float | None = None,
    tools_unanswered: bool = False,
) -> None:
    """Announce that a turn ended, once: a turn that already has an outcome stays as it is.

    An observed turn whose function returned a stream ends when the stream has been read. One that
    completed, or raised though its last call did not fail, but leaves a truncated response
    unfinished, ends `not_continued`. The end of one that is a part of another is not announced: the
    outer turn, where it completes, ends as the last of its parts. An agent's run that leaves a
    truncated response without raising ends if no other run continues it.

    Args:
        ended_s: the end of the turn, by `time.perf_counter`. Defaults to now.
        tools_unanswered: its last response requested tool calls, and no call sent their results.
    """
    if turn.outcome is not None:
        return
    if ended_s is None:
        ended_s = time.perf_counter()
    if turn.kind is TurnKind.OBSERVED:
        if turn.open_streams:
            turn.pending_end = outcome, error
            return
        # A framework may raise because an answer was truncated: no call has failed.
        is_raised_on_truncation = (
            outcome is TurnOutcome.PROVIDER_ERROR and turn.unfinished and not turn.last_call_failed
        )
        if outcome is TurnOutcome.COMPLETED or is_raised_on_truncation:
            outcome = completed_outcome(turn)
        is_unfinished = outcome is TurnOutcome.NOT_CONTINUED and not is_raised_on_truncation
        if is_unfinished and turn.waiting_since_s is None and inference().may_be_continued(turn):
            turn.waiting_since_s = ended_s
            return
    turn.outcome = outcome
    if (outer := turn.parent) is not None:
        turn.add_to(outer)
        if outer.pending_end is not None and not outer.open_streams:
            end_turn(outer, outer.pending_end[0], error=outer.pending_end[1])
        return
    if turn.kind is TurnKind.IMPLICIT and turn.last_s is not None:
        # It ended with its last call; only now is it known that no call continued that one.
        ended_s = turn.last_s
    emit(
        TurnEnded(
            turn=turn,
            outcome=outcome,
            complete=outcome in COMPLETE and not turn.unfinished,
            duration_s=ended_s - turn.started_s,
            error=error,
            tools_unanswered=tools_unanswered,
        )
    )


def completed_outcome(turn: Turn) -> TurnOutcome:
    """Return the outcome of an observed turn that its host calls complete."""
    outcome = turn.last_part_outcome or TurnOutcome.COMPLETED
    return TurnOutcome.NOT_CONTINUED if outcome in COMPLETE and turn.unfinished else outcome


def outcome_of(ended: CallEnded) -> TurnOutcome:
    """Return the outcome of an undeclared turn, from how its last call ended."""
    reason = ended.response.stop.reason
    if ended.error is not None and reason is not StopReason.CANCELLED:
        return TurnOutcome.PROVIDER_ERROR
    return OUTCOMES[reason]


OUTCOMES: Final = {
    StopReason(reason): TurnOutcome(outcome)
    for _, (outcome, _, _, after, _) in read_tsv(package_data(), "outcomes.tsv", range(5, 6))
    for reason in after.split()
}
"""The outcome of a turn by the stop reason of its last response, if nothing else is known."""


class Inference(Protocol):
    """Assigns calls without a declared turn to turns, and ends such turns.

    By default a call inside an explicit turn belongs to it; outside it is its own turn, and ends
    with the call.
    """

    def resolve(
        self, summary: SummarizedRequest | None, turn: Turn | None
    ) -> tuple[Turn, Continuation | None]:
        """Return the turn of a call, and its continuation if it is one.

        Args:
            summary: the call's request; None if it could not be read.
            turn: the explicit turn that the call is made in.
        """
        return (Turn(kind=TurnKind.IMPLICIT), None) if turn is None else (turn, turn.continuation)

    def on_cancel(self, started: CallStarted, summary: SummarizedRequest | None) -> None:
        """Undo a request that was no call to a model: the call that it continued waits again."""

    def on_response(self, ended: CallEnded, summary: SummarizedRequest | None) -> None:
        """Remove the calls that an ending call finishes from the turn's `truncated_calls`.

        This happens before the end of the call is announced.
        """
        turn = ended.started.turn
        if turn.kind is TurnKind.OBSERVED and ended.is_finished:
            turn.truncated_calls = frozenset()  # which call finishes which one is unknown

    def may_be_continued(self, turn: Turn) -> bool:
        """Return whether an observed turn that its host left unfinished may be continued."""
        return False

    def turn_of_tool_call(self, call_id: str) -> Turn | None:
        """Return the undeclared turn that waits for the result of a tool call."""
        return None

    def on_call_end(
        self,
        ended: CallEnded,
        summary: SummarizedRequest | None,
        tail: str,
        tool_calls: tuple[RequestedCall, ...] = (),
    ) -> None:
        """Note that a call has ended and has been announced.

        Args:
            tail: the last visible characters of the response.
            tool_calls: the client tool calls that the response requests.
        """
        turn = ended.started.turn
        if turn.kind is TurnKind.IMPLICIT:
            end_turn(turn, TurnOutcome.NOT_CONTINUED if turn.unfinished else outcome_of(ended))


class NoInference(Inference):
    """The default."""

    def on_cancel(self, started: CallStarted, summary: SummarizedRequest | None) -> None:
        """Nothing waits here."""


_inference: Inference = NoInference()


def inference() -> Inference:
    """Return the inference in use."""
    return _inference


def infer_with(inference: Inference | None) -> None:
    """Set the inference that assigns calls outside any explicit turn; None restores the default."""
    global _inference
    _inference = inference or NoInference()


@dataclass(slots=True, eq=False)
class ToolRun:
    """One tool call being run, as a scope."""

    started: ToolStarted
    activations: tuple[Activation, ...]
    started_s: float

    def step(self) -> ScopeStep:
        """Make the tool's span current for one step."""
        return ScopeStep(TURN, self.started.turn, self.activations)

    def end(self, error: BaseException | None = None) -> None:
        """Announce that the tool has run."""
        emit(
            ToolEnded(
                started=self.started, error=error, duration_s=time.perf_counter() - self.started_s
            )
        )


def start_tool(scope: TurnScope, *, name: str, call_id: str) -> ToolRun:
    """Announce that a tool call of a turn is about to be run.

    The tool's span is a child of the turn's.
    """
    started = ToolStarted(number=next_id(), turn=scope.turn, name=name, call_id=call_id)
    with scope.step():
        activations = emit(started)
    return ToolRun(started, (*scope.activations, *activations), time.perf_counter())


# Removed in 0.2: the names of 0.1.
completed = completed_outcome
