"""Which turn a call belongs to where nobody said so, and whether it continues one that was cut off.

A truncated call's turn stays open and is found again by the history that the call was made with, or by the response's
id, in the whole process: never by trace, task or thread (frameworks run one agent in many tasks, and many agents in
one thread). Only hashes and the answer's last 64 characters are kept, and nothing is hashed while nothing is open.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final
from weakref import WeakSet

from endturn import announce, records
from endturn.records import CallEnded, Continuation, Strategy, Turn, TurnKind, TurnOutcome
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from endturn.telemetry.continue_prompts import ContinuePrompts, question_of
from endturn.telemetry.fingerprints import digests, role
from endturn.telemetry.pending_turns import Addition, PendingTurn, PendingTurns
from endturn.turns import end_turn, outcome_of
from endturn.wires import Asked

IDLE_S: Final = 30.0
"""A turn that nobody has continued for so long has been left."""

AGAIN_S: Final = 2.0
"""An agent that asks the same again, with the same limit, does so at once. Later it is somebody else's same prompt: to
take that for a continuation would hide unfinished answers wherever one prompt is asked many times."""

OPEN_TURNS: Final = 1_024
"""How many turns may wait at once; the oldest ends first."""


class TurnInference:
    """An `Inference`: implicit turns, and continuations within observed ones.

    Args:
        idle_s: how long a cut turn waits for its continuation.
        limit: how many may wait.
        clock: seconds, monotonic.
    """

    def __init__(
        self, *, idle_s: float = IDLE_S, limit: int = OPEN_TURNS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle_s = idle_s
        self._limit = limit
        self._clock = clock
        self._prompts = ContinuePrompts()
        self.forget()
        _every.add(self)

    def forget(self) -> None:
        """Begin anew. A forked child does: the turns that were open are its parent's."""
        # Another instrumentation's destructor may end a span, and with it a call, within any of our regions.
        self._lock = threading.RLock()
        self._pending = PendingTurns()
        self._taken: dict[int, PendingTurn] = {}

    # --- Inference ---

    def resolve(self, asked: object, turn: Turn | None) -> tuple[Turn, Continuation | None]:
        """The turn of a call that is about to be made in an explicit one or none, and what the call continues."""
        if turn is not None and turn.kind is TurnKind.CONTROLLER:
            continuation = turn.continuation
            if continuation is not None and continuation.strategy is Strategy.PROMPT and isinstance(asked, Asked):
                self._prompts.learn(asked)
            return turn, continuation
        self.sweep()
        if not self._pending or not isinstance(asked, Asked):
            return turn or Turn(kind=TurnKind.IMPLICIT), None
        cut, strategy, left = self._find(asked, turn)
        for other in left:
            self._end(other)
        if cut is None or strategy is None:
            return turn or Turn(kind=TurnKind.IMPLICIT), None
        return cut.turn, self._continue(cut, strategy, asked)

    def answered(self, ended: CallEnded, asked: object) -> None:
        """A whole response in an observed turn finishes what was cut of the answers to the same message."""
        turn = ended.started.turn
        if turn.kind is not TurnKind.OBSERVED or turn.outcome is not None or not (ended.whole and turn.cut):
            return
        question = question_of(asked) if isinstance(asked, Asked) else None
        with self._lock:
            waiting = self._pending.by_number.values()
            other = {cut.number for cut in waiting if cut.turn is turn and cut.question != question}
        # Where nothing is known of a call's messages, it may be to any of them.
        turn.cut &= other if question is not None else set()

    def ended(self, ended: CallEnded, asked: object, tail: str) -> None:
        """A call has ended: its turn ends with it, or waits for a continuation."""
        turn = ended.started.turn
        if turn.kind is TurnKind.CONTROLLER:
            return
        before = None
        if ended.started.continuation is not None:
            with self._lock:
                before = self._taken.pop(ended.started.continuation.of or 0, None)
        if turn.outcome is not None:
            return
        # A continuation that failed leaves the answer as cut as it was, and is often asked for again.
        failed = ended.error is not None and ended.stop.reason is not StopReason.CANCELLED
        if (ended.stop.truncated or (before is not None and failed)) and isinstance(asked, Asked):
            cut = self._cut(ended, asked, tail, before, failed=failed and not ended.stop.truncated)
            if cut is not None:
                self._wait(cut)
                return
        if turn.kind is TurnKind.IMPLICIT:
            outcome = outcome_of(ended)
            if ended.stop.truncated or (turn.unfinished and outcome is TurnOutcome.COMPLETED):
                outcome = TurnOutcome.NOT_CONTINUED
            end_turn(turn, outcome, error=ended.error)

    # --- for the host's side ---

    @property
    def open_turns(self) -> int:
        """How many turns wait for a continuation."""
        return len(self._pending)

    def sweep(self) -> None:
        """End the turns that have waited too long."""
        if self._pending:
            limit = self._clock() - self._idle_s
            self._end_all(lambda cut: cut.touched <= limit)

    def close(self) -> None:
        """End every turn that waits: the process, or its instrumentation, ends."""
        with self._lock:
            over = [*self._pending.by_number.values(), *self._taken.values()]
            self._pending = PendingTurns()
            self._taken.clear()
        for cut in over:
            self._end(cut)

    # --- within ---

    def _end_all(self, is_over: Callable[[PendingTurn], bool]) -> None:
        with self._lock:
            over = [cut for cut in self._pending.by_number.values() if is_over(cut)]
            for cut in over:
                self._pending.remove(cut)
        for cut in over:
            self._end(cut)

    def _find(self, asked: Asked, turn: Turn | None) -> tuple[PendingTurn | None, Strategy | None, list[PendingTurn]]:
        """The cut turn that a call continues and how; and the turns that it shows to have been left."""
        with self._lock:
            lengths = self._pending.lengths(asked.length)
        left: list[PendingTurn] = []
        for bare in (False, True):
            # One that is the same but for its system prompts has to repeat the answer.
            begun = [length for length in lengths if length < asked.length] if bare else lengths
            # Outside the lock: a long history takes a while.
            found = digests(asked, begun, bare=bare) if begun else {}
            with self._lock:
                for cut, added in self._candidates(asked, found, bare=bare):
                    if cut.turn is not turn if turn is not None else cut.turn.kind is not TurnKind.IMPLICIT:
                        continue
                    same, strategy = self._judge(cut, added)
                    if strategy is not None:
                        self._pending.remove(cut)
                        self._taken[cut.number] = cut
                        return cut, strategy, []
                    if same and cut not in left:
                        left.append(cut)
                for cut in left:
                    self._pending.remove(cut)
            if left:
                break
        return None, None, left

    def _candidates(
        self, asked: Asked, found: dict[int, bytes], *, bare: bool
    ) -> Iterator[tuple[PendingTurn, Addition]]:
        """PendingTurn turns that the call's history begins with, and what it adds.

        The longest history first; among equals those of the same model, then the latest. Then those that it names.
        """
        for length in sorted(found, reverse=True):
            same = list(self._pending.of((length, found[length])))
            added = Addition(asked, length, bare=bare)
            yield from ((cut, added) for cut in sorted(same, key=lambda cut: cut.turn.model != asked.model))
        if bare:
            return
        added = Addition(asked, 0, named=True)
        for kind, name in (("response", asked.previous_id), ("conversation", asked.conversation_id)):
            if name is not None:
                yield from ((cut, added) for cut in self._pending.of((kind, name)))

    def _judge(self, cut: PendingTurn, added: Addition) -> tuple[bool, Strategy | None]:
        """Whether the call is of the same conversation, and how it continues the cut answer, if it does."""
        asked, history = added.asked, added.asked.history
        if added.bare and not (added.answers and cut.tail.strip()):
            return False, None  # another agent was asked the same: its instructions are all that tells it apart
        if not added.number and not added.named:
            if asked.model != cut.turn.model:
                return False, None  # one prompt sent to several models: each has its own turn
            if cut.lost:
                return True, Strategy.RETRY
            raised = cut.maximum is not None and (asked.maximum is None or asked.maximum > cut.maximum)
            if not raised and (cut.again or self._clock() - cut.touched > AGAIN_S):
                return False, None
            return True, Strategy.RESEND
        if added.answers:
            if not _ends_with(added.text, cut.tail):
                return False, None  # another sample of the same prompt: somebody else's conversation
        elif not added.named and (cut.tail.strip() or not self._prompts.is_one(history[added.begin])):
            # An answer of which nothing could be seen may be left out.
            return role(history[added.begin]) in ("user", "tool"), None
        if added.number == added.answers:
            return True, Strategy.PREFILL
        is_last = added.number == added.answers + 1
        return True, Strategy.PROMPT if is_last and self._prompts.is_one(history[asked.length - 1]) else None

    def _continue(self, cut: PendingTurn, strategy: Strategy, asked: Asked) -> Continuation:
        turn = cut.turn
        turn.continuations += 1
        turn.inferred = turn.inferred or turn.kind is TurnKind.IMPLICIT
        continuation = Continuation(turn.continuations, strategy, cut.number)
        announce.announce(
            records.ContinuationAttempted(
                turn=turn,
                provider=turn.provider,
                model=asked.model or turn.model,
                continuation=continuation,
                output_tokens=turn.output_tokens,
                output_chars=turn.output_chars,
            )
        )
        return continuation

    def _cut(
        self, ended: CallEnded, asked: Asked, tail: str, before: PendingTurn | None, *, failed: bool
    ) -> PendingTurn | None:
        """How the continuation of this call would be known; None where it could not be."""
        keys, bare = (before.keys, before.bare) if before is not None else ((), ())
        if before is not None and failed:
            tail, response_id = before.tail, before.response_id
        else:
            keys, bare, response_id = keys[:1], bare[:1], ended.response_id
        if asked.length:
            lengths = [asked.length]
            keys = tuple(dict.fromkeys((*keys, *digests(asked, lengths).items())))
            bare = tuple(dict.fromkeys((*bare, *digests(asked, lengths, bare=True).items())))
        if not keys and response_id is None and asked.conversation_id is None:
            return None
        lost = failed or ended.stop.reason is StopReason.MISSING
        number, question = ended.started.number, question_of(asked)
        if before is not None and failed:
            number = before.number  # it is still that answer that is cut
        turn, maximum = ended.started.turn, asked.maximum
        again = before is not None and not before.lost and before.maximum == maximum and _resent(ended)
        return PendingTurn(
            turn=turn, number=number, question=question, keys=keys, bare=bare, tail=tail, lost=lost, failed=failed,
            response_id=response_id, conversation_id=asked.conversation_id, maximum=maximum, again=again,
            touched=self._clock(),
        )  # fmt: skip

    def _wait(self, cut: PendingTurn) -> None:
        with self._lock:
            self._pending.add(cut)
            oldest = next(iter(self._pending.by_number.values())) if len(self._pending) > self._limit else None
            if oldest is not None:
                self._pending.remove(oldest)
        if oldest is not None:
            self._end(oldest)

    @staticmethod
    def _end(cut: PendingTurn) -> None:
        # An observed turn is ended by whoever opened it; only its waiting is over.
        if cut.turn.kind is TurnKind.IMPLICIT:
            end_turn(cut.turn, TurnOutcome.PROVIDER_ERROR if cut.failed else TurnOutcome.NOT_CONTINUED)


def _resent(ended: CallEnded) -> bool:
    """Whether the call only repeated what was asked."""
    continuation = ended.started.continuation
    return continuation is not None and continuation.strategy is Strategy.RESEND


_every: WeakSet[TurnInference] = WeakSet()


def _sweep() -> None:
    for inference in list(_every):
        inference.sweep()


cleanup.each_time(_sweep)


def _forked() -> None:
    for inferring in list(_every):
        inferring.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _ends_with(text: str, tail: str) -> bool:
    """Whether an answer, as the host kept it, is the one that was cut: hosts strip, and merge parts into one."""
    tail = tail.strip()
    return text.endswith(tail) if tail else not text
