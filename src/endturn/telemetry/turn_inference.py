"""Turns inferred from calls: a call's turn, and the truncated response that it continues.

A turn stays open after a truncated response (until its continuation, see `truncated_turns`), after
a response with tool calls (until their results are sent, see `tool_loops`) and after a failed
attempt (until the next one, see `retries`). It is found again by the content of the calls, in the
whole process: never by trace, task or thread (frameworks run one agent in many tasks, and many
agents in one thread).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from endturn.calls import (
    CallEnded,
    CallStarted,
    Continuation,
    RequestedCall,
    Strategy,
    SummarizedRequest,
    Turn,
    TurnKind,
    TurnOutcome,
    end_turn,
    listeners,
    outcome_of,
    records,
    turn_scope,
)
from endturn.formats import RequestSummary
from endturn.telemetry import cleanup, foreign_spans
from endturn.telemetry.fingerprints import ContinuePrompts, question_of
from endturn.telemetry.recent_prompts import RecentPrompts, prompt_of
from endturn.telemetry.retries import (
    FailedAttempt,
    FailedAttempts,
    is_retried,
    request_key,
    retry_wait_s,
)
from endturn.telemetry.tool_loops import (
    TOOLS_IDLE_S,
    OpenToolLoops,
    ToolLoop,
    results_at_end,
    tool_loop,
)
from endturn.telemetry.truncated_turns import PendingTurn, PendingTurns, Relation, pending_turn
from endturn.vocabulary import StopReason

IDLE_S: Final = 30.0
"""Seconds after which a truncated turn without a continuation ends."""


class TurnInference:
    """An `Inference` of implicit turns, and of continuations in observed turns.

    Args:
        idle_s: how long a truncated turn waits for its continuation.
        tools_idle_s: how long a turn waits for the results of its tools.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        *,
        idle_s: float = IDLE_S,
        tools_idle_s: float = TOOLS_IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._idle_s = idle_s
        self.tools_idle_s = tools_idle_s
        self._clock = clock
        self._prompts = ContinuePrompts()
        self.forget()

    def forget(self) -> None:
        """Reset all state. Called in a forked child, whose parent ends the open turns."""
        # Reentrant: another instrumentation's destructor may end a span, and with it a call, while
        # this thread holds the lock.
        self._lock = threading.RLock()
        self._recent = RecentPrompts()
        self._loops = OpenToolLoops()
        self._truncated = PendingTurns(
            self._lock,
            self._clock,
            self._prompts,
            self._recent,
            self._end_truncated,
            self._loops.is_known_id,
        )
        self._failed = FailedAttempts()
        self._continued: dict[int, PendingTurn] = {}
        """The truncated turns that open calls continue, by the number of the truncated call."""
        self._resumed: dict[str, PendingTurn | ToolLoop | FailedAttempt] = {}
        """The former waiting entries of turns that an open call resumed, by turn id: if the call is
        cancelled, its turn waits again."""

    # --- Inference ---

    def resolve(
        self, summary: SummarizedRequest | None, turn: Turn | None
    ) -> tuple[Turn, Continuation | None]:
        """Return the turn of a call that is about to start, and its continuation if it is one.

        Args:
            summary: the summary of the request.
            turn: the explicit turn of the call; None if it is in none.
        """
        self.sweep()
        if turn is not None and turn.kind is TurnKind.CONTROLLER:
            continuation = turn.continuation
            if (
                continuation is not None
                and continuation.strategy is Strategy.PROMPT
                and isinstance(summary, RequestSummary)
            ):
                self._prompts.learn(summary)
            return turn, continuation
        if not isinstance(summary, RequestSummary):
            return turn or Turn(kind=TurnKind.IMPLICIT), None
        has_truncated = bool(self._truncated.waiting.by_number)
        implicit_turn = (
            self._resume_loop(summary, is_certain=has_truncated) if turn is None else None
        )
        if (
            has_truncated
            and implicit_turn is None
            and (match := self._truncated.pop_match(summary, turn)) is not None
        ):
            pending, relation = match
            if isinstance(relation, Strategy):
                self._continued[pending.number] = pending
                if (
                    pending.turn is not turn
                    and turn is not None
                    and foreign_spans.reassign_span(turn, pending.turn)
                ):
                    pending.turn.waiting_since_s = None  # the new run will end it
                self._remember_prompt(summary, pending.turn)
                return _continue(pending, relation, summary)
            if relation is Relation.SENDS_RESULTS and pending.turn.waiting_since_s is None:
                pending.turn.abandoned |= {pending.number}
                self._resumed[pending.turn.id] = pending
                return pending.turn, None
            if relation is Relation.SENDS_OTHER_CHOICE and pending.turn.waiting_since_s is None:
                pending.turn.truncated_calls -= {pending.number}
                self._resumed[pending.turn.id] = pending
                return pending.turn, None
            _end_pending(pending)
        if turn is not None:
            return turn, None
        if has_truncated and implicit_turn is None:
            implicit_turn = self._resume_loop(summary)
        implicit_turn = (
            implicit_turn or self._resume_failed(summary) or Turn(kind=TurnKind.IMPLICIT)
        )
        self._remember_prompt(summary, implicit_turn)
        return implicit_turn, None

    def _remember_prompt(self, request: RequestSummary, turn: Turn) -> None:
        """Remember the prompt of an implicit turn."""
        if turn.kind is TurnKind.IMPLICIT:
            prompt = prompt_of(request)
            with self._lock:
                self._recent.note(prompt, turn, self._clock())

    def _resume_loop(self, request: RequestSummary, *, is_certain: bool = False) -> Turn | None:
        """Find the turn whose tool results a call sends.

        Args:
            is_certain: accept only a match by a unique tool call id, or by the text before the
                results.
        """
        if not self._loops.waiting.by_number or not results_at_end(request)[0]:
            return None
        with self._lock:
            loop = self._loops.find(request)
            if loop is None or (is_certain and not self._loops.is_certain_match(loop, request)):
                return None
            self._loops.remove(loop)
            self._resumed[loop.turn.id] = loop
        return loop.turn

    def _resume_failed(self, request: RequestSummary) -> Turn | None:
        """Find the turn whose failed attempt a call repeats."""
        if not self._failed.waiting.by_number:
            return None
        with self._lock:
            failure = self._failed.find(request)
            if failure is None:
                return None
            if failure.attempt is None and self._recent.is_used_by_another(
                prompt_of(request), failure.turn, self._clock()
            ):
                return None
            self._failed.remove(failure)
            self._resumed[failure.turn.id] = failure
        return failure.turn

    def on_cancel(self, started: CallStarted, summary: SummarizedRequest | None) -> None:
        """Restore the turn's entry if its request turned out not to be a call."""
        with self._lock:
            if isinstance(summary, RequestSummary) and not started.turn.iterations:
                self._recent.withdraw(prompt_of(summary), started.turn)
            match self._resumed.pop(started.turn.id, None):
                case ToolLoop() as loop:
                    self._loops.add(loop)
                case FailedAttempt() as failure:
                    self._failed.add(failure)
                case PendingTurn() as pending:
                    pending.turn.abandoned -= {pending.number}
                    pending.turn.truncated_calls |= {pending.number}
                    self._truncated.add(pending)
                case None:
                    pass
        continued = (
            None
            if started.continuation is None
            else self._continued.pop(started.continuation.of or 0, None)
        )
        if continued is not None and started.continuation is not None:
            _count_continuation(continued.turn, started.continuation.strategy, -1)
            with self._lock:
                self._truncated.add(continued)

    def on_response(self, ended: CallEnded, summary: SummarizedRequest | None) -> None:
        """Forget truncated responses of an observed turn after a complete one to the same message.

        The agent has then repeated or continued them, so they no longer count as unfinished.
        """
        turn = ended.started.turn
        if (
            turn.kind is not TurnKind.OBSERVED
            or turn.outcome is not None
            or not (ended.is_finished and turn.truncated_calls)
        ):
            return
        question = question_of(summary) if isinstance(summary, RequestSummary) else None
        with self._lock:
            waiting = self._truncated.of_turn(turn)
        other_numbers = {pending.number for pending in waiting if pending.question != question}
        # Without a question, the response may answer any of the turn's messages.
        turn.truncated_calls &= (other_numbers if question is not None else set()) | turn.abandoned

    def on_call_end(
        self,
        ended: CallEnded,
        summary: SummarizedRequest | None,
        tail: str,
        tool_calls: tuple[RequestedCall, ...] = (),
    ) -> None:
        """End the turn of a call that has ended, or have it wait for its next call."""
        started, stop = ended.started, ended.response.stop
        turn, continuation = started.turn, started.continuation
        if turn.kind is TurnKind.CONTROLLER:
            return
        resumed = self._resumed.pop(turn.id, None)
        continued = (
            None if continuation is None else self._continued.pop(continuation.of or 0, None)
        )
        if turn.outcome is not None:
            return
        # After a failed continuation the answer is still truncated: it is often retried.
        is_failure = ended.error is not None and stop.reason is not StopReason.CANCELLED
        is_failure |= stop.reason is StopReason.ERROR
        if tool_calls:
            with self._lock:
                self._loops.remember_ids(turn.id, tool_calls)
        if isinstance(summary, RequestSummary):
            # A background response with PAUSED was recorded before it ended, because the host
            # stopped polling. The provider did not pause it.
            is_paused = stop.reason is StopReason.PAUSED and not summary.background
            is_incomplete = stop.truncated or is_paused
            if is_incomplete or (continued is not None and is_failure):
                now = self._clock()
                deadline = now + (self.tools_idle_s if tool_calls else self._idle_s)
                pending = pending_turn(
                    ended,
                    summary,
                    tail,
                    continued,
                    tool_calls,
                    has_failed=not is_incomplete,
                    now=now,
                    deadline=deadline,
                )
                if pending.keys:
                    with self._lock:
                        excess = self._truncated.add(pending)
                    self._end_truncated(excess)
                    return
        if turn.kind is TurnKind.IMPLICIT or turn.waiting_since_s is not None:
            outcome = _implicit_outcome(turn, ended)
            if turn.kind is TurnKind.IMPLICIT and isinstance(summary, RequestSummary):
                if outcome is TurnOutcome.PROVIDER_ERROR and is_retried(ended):
                    self._wait_for_retry(ended, summary, resumed, outcome)
                    return
                # Malformed tool calls may come with END_TURN; the host answers them too.
                if tool_calls and stop.reason in (StopReason.TOOL_CALL, StopReason.END_TURN):
                    deadline = self._clock() + self.tools_idle_s
                    loop = tool_loop(
                        ended, summary, tail, tool_calls, outcome=outcome, deadline=deadline
                    )
                    if loop.may_be_found:
                        self._wait_for_tools(loop)
                        return
            end_turn(turn, outcome, error=ended.error)

    def _wait_for_retry(
        self,
        ended: CallEnded,
        request: RequestSummary,
        resumed: PendingTurn | ToolLoop | FailedAttempt | None,
        outcome: TurnOutcome,
    ) -> None:
        """Have an implicit turn whose latest attempt failed wait for the next attempt."""
        deadline = self._clock() + retry_wait_s(ended.error)
        if isinstance(resumed, ToolLoop):  # a step of a loop: the same results may be sent again
            resumed.deadline, resumed.outcome, resumed.is_unanswered = deadline, outcome, False
            self._wait_for_tools(resumed)
            return
        failure = FailedAttempt(
            turn=ended.started.turn,
            number=ended.started.number,
            key=request_key(request),
            attempt=request.attempt,
            outcome=outcome,
            deadline=deadline,
        )
        with self._lock:
            excess = self._failed.add(failure)
        self._end_failed(excess)

    def _wait_for_tools(self, loop: ToolLoop) -> None:
        """Have an implicit turn wait for the results of its tools."""
        with self._lock:
            excess = self._loops.add(loop)
        if excess:
            self._end_loops(excess)

    def may_be_continued(self, turn: Turn) -> bool:
        """Return whether a new run may continue an agent's ended run with a truncated answer."""
        with self._lock:
            return turn.recognised and bool(self._truncated.of_turn(turn))

    def turn_of_tool_call(self, call_id: str) -> Turn | None:
        """Return the turn that waits for the result of that tool call."""
        if not self._loops.waiting.by_number:
            return None
        with self._lock:
            return self._loops.turn_of(call_id)

    # --- Waiting turns ---

    @property
    def open_turns(self) -> int:
        """The number of turns that wait for a continuation."""
        return len(self._truncated.waiting.by_number)

    def sweep(self) -> None:
        """End the turns that have waited too long."""
        now, truncated, loops, failures = (
            self._clock(),
            self._truncated.waiting,
            self._loops.waiting,
            self._failed.waiting,
        )
        if now < truncated.earliest and now < loops.earliest and now < failures.earliest:
            return
        with self._lock:
            expired = truncated.expired(now), loops.expired(now), failures.expired(now)
        self._end_truncated(expired[0])
        self._end_loops(expired[1])
        self._end_failed(expired[2])

    def close(self) -> None:
        """End all waiting turns, at the end of the process or of its instrumentation."""
        with self._lock:
            truncated, loops = self._truncated.waiting.entries(), self._loops.waiting.entries()
            failures = self._failed.waiting.entries()
        self._end_truncated(truncated)
        self._end_loops(loops)
        self._end_failed(failures)
        continued, self._continued = self._continued, {}
        for pending in continued.values():
            _end_pending(pending)
        resumed, self._resumed = self._resumed, {}
        for entry in resumed.values():  # their calls are open
            match entry:
                case PendingTurn():
                    _end_pending(entry)
                case ToolLoop():
                    _end_loop(entry)
                case FailedAttempt():
                    end_turn(entry.turn, entry.outcome)

    # --- Ending turns ---

    def _end_truncated(self, turns: Iterable[PendingTurn]) -> None:
        """End turns whose truncated response was not continued."""
        with self._lock:
            expired = [pending for pending in turns if self._truncated.remove(pending)]
        for pending in expired:
            _end_pending(pending)

    def _end_loops(self, loops: Iterable[ToolLoop]) -> None:
        """End turns whose tool calls were not answered."""
        with self._lock:
            expired = [loop for loop in loops if self._loops.remove(loop)]
        for loop in expired:
            _end_loop(loop)

    def _end_failed(self, attempts: Iterable[FailedAttempt]) -> None:
        """End turns whose failed attempt was not repeated."""
        with self._lock:
            expired = [failure for failure in attempts if self._failed.remove(failure)]
        for failure in expired:
            end_turn(failure.turn, failure.outcome)


def _end_loop(loop: ToolLoop) -> None:
    end_turn(loop.turn, loop.outcome, tools_unanswered=loop.is_unanswered)


def _implicit_outcome(turn: Turn, ended: CallEnded) -> TurnOutcome:
    """Return the outcome of an implicit turn if this was its last call."""
    outcome = outcome_of(ended)
    if ended.response.stop.truncated or (turn.unfinished and outcome is TurnOutcome.COMPLETED):
        return TurnOutcome.NOT_CONTINUED
    return outcome


def _continue(
    pending: PendingTurn, strategy: Strategy, request: RequestSummary
) -> tuple[Turn, Continuation]:
    turn = pending.turn
    _count_continuation(turn, strategy, 1)
    turn.inferred = turn.inferred or turn.kind is TurnKind.IMPLICIT
    continuation = Continuation(turn.continuations + turn.repairs, strategy, pending.number)
    listeners.emit(
        records.ContinuationAttempted(
            turn=turn,
            provider=turn.provider,
            model=request.facts.model or turn.model,
            continuation=continuation,
            output_tokens=turn.output_tokens,
            output_chars=turn.output_chars,
        )
    )
    return turn, continuation


def _count_continuation(turn: Turn, strategy: Strategy, added: int) -> None:
    """Add to the turn's continuations or, for the strategy REPAIR, to its repairs."""
    if strategy is Strategy.REPAIR:
        turn.repairs += added
    else:
        turn.continuations += added


def _end_pending(pending: PendingTurn) -> None:
    # - An agent's run that ended with a truncated answer kept its turn open, in case a new run
    #   continues it: the turn ends now, with the run's end as its time.
    # - The host ends an observed turn: only mark the truncated call as abandoned.
    # - An implicit turn ends now.
    if pending.turn.waiting_since_s is not None:
        end_turn(pending.turn, TurnOutcome.COMPLETED, ended_s=pending.turn.waiting_since_s)
    elif pending.turn.kind is TurnKind.OBSERVED:
        pending.turn.abandoned |= {pending.number}
    elif pending.turn.kind is TurnKind.IMPLICIT:
        outcome = (
            TurnOutcome.LEFT_PAUSED
            if pending.is_paused and not pending.turn.unfinished
            else TurnOutcome.NOT_CONTINUED
        )
        end_turn(pending.turn, TurnOutcome.PROVIDER_ERROR if pending.has_failed else outcome)


def _sweep() -> None:
    if isinstance(inference := turn_scope.inference(), TurnInference):
        inference.sweep()


def _forget() -> None:
    if isinstance(inference := turn_scope.inference(), TurnInference):
        inference.forget()


cleanup.register_sweep(_sweep)
cleanup.register_after_fork(_forget)
