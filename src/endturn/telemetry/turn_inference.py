"""Which turn a call belongs to where nobody said so, and whether it continues one that was cut off.

A truncated call's turn stays open and is found again by the history that the call was made with, or by the response's
id, in the whole process: never by trace, task or thread (frameworks run one agent in many tasks, and many agents in
one thread). Only hashes and the answer's last 64 characters are kept, and nothing is hashed while nothing is open.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final

from endturn import events, hooks, scopes
from endturn.events import CallEnded, CallStarted, Continuation, Strategy, Turn, TurnKind, TurnOutcome
from endturn.formats import RequestSummary
from endturn.formats.history import role, text_of
from endturn.scopes import end_turn, outcome_of
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from endturn.telemetry.fingerprints import ContinuePrompts, digests, is_call_refused, question_of

IDLE_S: Final = 30.0
"""A turn that nobody has continued for so long has been left."""

AGAIN_S: Final = 2.0
"""An agent that asks the same again, with the same limit, does so at once. Later it is somebody else's same prompt: to
take that for a continuation would hide unfinished answers wherever one prompt is asked many times."""

OPEN_TURNS: Final = 1_024
"""How many turns may wait at once; the oldest ends first."""

Key = tuple[int | str, bytes | str]
"""A history: how many messages it has, and their hash. Or what a server keeps: "response" or "conversation", its id."""

Verdict = tuple[bool, Strategy | None]
"""Whether a call is of the same conversation, and how it continues the cut answer, if it does."""


@dataclass(slots=True, eq=False, kw_only=True)
class PendingTurn:
    """A turn whose response was cut off, and how its continuation would be known.

    Attributes:
        number: of the call.
        question: in an observed turn, the digest of the user's message that it answers.
        first: the history of the turn's first call, with its system prompts and without.
        keys: that, and the history and the names of its latest call: frameworks append each part, or merge them.
        tail: the last visible characters of the cut answer.
        lost: the response was cut by its transport, or the continuation failed: asking again is a retry.
        failed: the latest attempt raised.
        paused: nothing was cut: the provider goes on when the response is sent back.
        maximum: the output limit that cut it; again: it had cut the same answer before.
        touched: when it was cut, in seconds of the clock.
    """

    turn: Turn
    number: int
    question: bytes | None
    first: tuple[Key, ...]
    keys: tuple[Key, ...]
    tail: str
    lost: bool
    failed: bool
    paused: bool
    maximum: int | None
    again: bool
    touched: float


class TurnInference:
    """An `Inference`: implicit turns, and continuations within observed ones.

    Args:
        idle_s: how long a cut turn waits for its continuation.
        clock: seconds, monotonic.
    """

    def __init__(self, *, idle_s: float = IDLE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._idle_s = idle_s
        self._clock = clock
        self._prompts = ContinuePrompts()
        self.forget()

    def forget(self) -> None:
        """Begin anew. A forked child does: the turns that were open are its parent's."""
        # Another instrumentation's destructor may end a span, and with it a call, within any of our regions.
        self._lock = threading.RLock()
        self._pending: OrderedDict[int, PendingTurn] = OrderedDict()
        """By the calls' numbers, the oldest first."""
        self._by_key: dict[int | str, dict[bytes | str, dict[int, PendingTurn]]] = {}
        """The same by the two halves of their keys, and by the calls' numbers."""
        self._taken: dict[int, PendingTurn] = {}

    # --- Inference ---

    def resolve(self, asked: object, turn: Turn | None) -> tuple[Turn, Continuation | None]:
        """The turn of a call that is about to be made in an explicit one or none, and what the call continues."""
        if turn is not None and turn.kind is TurnKind.CONTROLLER:
            again = turn.continuation
            if again is not None and again.strategy is Strategy.PROMPT and isinstance(asked, RequestSummary):
                self._prompts.learn(asked)
            return turn, again
        if self._pending and isinstance(asked, RequestSummary):
            self.sweep()
            found = self._find(asked, turn)
            if found is not None:
                return _continue(*found, asked)
        return turn or Turn(kind=TurnKind.IMPLICIT), None

    def withdrawn(self, started: CallStarted) -> None:
        """What was taken for a call was none: what it continued still waits."""
        cut = None if started.continuation is None else self._taken.pop(started.continuation.of or 0, None)
        if cut is not None:
            cut.turn.continuations -= 1
            with self._lock:
                self._put(cut)

    def answered(self, ended: CallEnded, asked: object) -> None:
        """A whole response in an observed turn finishes what was cut of the answers to the same message."""
        turn = ended.started.turn
        if turn.kind is not TurnKind.OBSERVED or turn.outcome is not None or not (ended.whole and turn.cut):
            return
        question = question_of(asked) if isinstance(asked, RequestSummary) else None
        with self._lock:
            other = {cut.number for cut in self._pending.values() if cut.turn is turn and cut.question != question}
        # Where nothing is known of a call's messages, it may be to any of them.
        turn.cut &= other if question is not None else set()

    def ended(self, ended: CallEnded, asked: object, tail: str) -> None:
        """A call has ended: its turn ends with it, or waits for a continuation."""
        turn, continuation = ended.started.turn, ended.started.continuation
        if turn.kind is TurnKind.CONTROLLER:
            return
        before = None if continuation is None else self._taken.pop(continuation.of or 0, None)
        if turn.outcome is not None:
            return
        # A continuation that failed leaves the answer as cut as it was, and is often asked for again.
        failed = ended.error is not None and ended.stop.reason is not StopReason.CANCELLED
        if isinstance(asked, RequestSummary):
            # A response in the background is over when it is recorded: nobody has fetched it.
            is_paused = ended.stop.reason is StopReason.PAUSED and not asked.background
            is_cut = ended.stop.truncated or is_paused
            if is_cut or (before is not None and failed):
                cut = self._cut(ended, asked, tail, before, failed=not is_cut)
                if cut.keys:
                    with self._lock:
                        self._put(cut)
                        excess = list(islice(self._pending.values(), max(0, self.open_turns - OPEN_TURNS)))
                    self._leave(excess)
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
            with self._lock:
                idle = list(takewhile(lambda cut: cut.touched <= limit, self._pending.values()))
            self._leave(idle)

    def close(self) -> None:
        """End every turn that waits: the process, or its instrumentation, ends."""
        self._leave(list(self._pending.values()))
        taken, self._taken = self._taken, {}
        for cut in taken.values():
            _end(cut)

    # --- within ---

    def _put(self, cut: PendingTurn) -> None:
        self._pending[cut.number] = cut
        for kind, name in cut.keys:
            self._by_key.setdefault(kind, {}).setdefault(name, {})[cut.number] = cut

    def _take(self, cut: PendingTurn) -> bool:
        """Whether it waited until now."""
        if self._pending.pop(cut.number, None) is None:
            return False
        for kind, name in cut.keys:
            named = self._by_key[kind]
            del named[name][cut.number]
            if not named[name]:
                del named[name]
            if not named:
                del self._by_key[kind]
        return True

    def _leave(self, left: Iterable[PendingTurn]) -> None:
        with self._lock:
            over = [cut for cut in left if self._take(cut)]
        for cut in over:
            _end(cut)

    def _find(self, asked: RequestSummary, turn: Turn | None) -> tuple[PendingTurn, Strategy] | None:
        """The cut turn that a call continues, and how. Those that it shows to have been left end."""
        with self._lock:
            lengths = sorted(kind for kind in self._by_key if isinstance(kind, int) and kind <= asked.length)
        for bare in (False, True):
            # One that is the same but for its system prompts has to repeat the answer.
            begun = [length for length in lengths if length < asked.length] if bare else lengths
            # Outside the lock: a long history takes a while.
            found = digests(asked, begun, bare=bare) if begun else {}
            begins: dict[Key, int] = {(length, digest): length for length, digest in found.items()}
            begins |= {} if bare else dict.fromkeys(_names(asked.previous_id, asked.conversation_id), 0)
            if not begins:
                continue
            left: list[PendingTurn] = []
            with self._lock:
                for begin, cut in self._candidates(asked, begins):
                    if cut.turn is not turn if turn is not None else cut.turn.kind is not TurnKind.IMPLICIT:
                        continue
                    is_same, strategy = self._judge(cut, asked, begin, bare=bare)
                    if strategy is not None:
                        self._take(cut)
                        self._taken[cut.number] = cut
                        return cut, strategy
                    if is_same:
                        left.append(cut)
            self._leave(left)
            if left:
                break
        return None

    def _candidates(self, asked: RequestSummary, begins: Mapping[Key, int]) -> list[tuple[int, PendingTurn]]:
        """Turns that have one of these keys, each with where what the call adds to it begins.

        The longest history first, those found by name last; among equals those of the same model, then the latest.
        """
        found = [
            (begin, cut)
            for (kind, name), begin in begins.items()
            for cut in reversed(self._by_key.get(kind, {}).get(name, {}).values())
        ]
        return sorted(found, key=lambda row: (-row[0], row[1].turn.model != asked.model))

    def _judge(self, cut: PendingTurn, asked: RequestSummary, begin: int, *, bare: bool) -> Verdict:
        """How the call relates to what was cut.

        Args:
            begin: where what it says beyond the cut call begins in its history; 0 where it only names that.
            bare: the histories are the same but for their system prompts.
        """
        added, tail = asked.history[begin : asked.length], cut.tail.strip()
        # A format may tell an answer in several messages.
        answers = list(takewhile(lambda message: role(message) in ("assistant", "thought"), added))
        rest = added[len(answers) :]
        if bare and not (answers and tail):
            return False, None  # another agent was asked the same: its instructions are all that tells it apart
        if begin and not added:
            return self._asked_again(cut, asked)
        if answers:
            said = "".join(text_of(message) for message in answers if role(message) == "assistant").strip()
            # Hosts strip an answer, and merge parts into one.
            if not (said.endswith(tail) if tail else not said):
                return False, None  # another sample of the same prompt: somebody else's conversation
        elif begin and (tail or not self._prompts.is_one(added[0])):
            # An answer of which nothing could be seen may be left out.
            return role(added[0]) in ("user", "tool"), None
        if not rest:
            return True, Strategy.RESEND if cut.paused else Strategy.PREFILL
        if cut.paused:
            return True, None
        if is_call_refused(rest):
            return True, Strategy.REPAIR
        return True, Strategy.PROMPT if len(rest) == 1 and self._prompts.is_one(rest[0]) else None

    def _asked_again(self, cut: PendingTurn, asked: RequestSummary) -> Verdict:
        """The same of a call that adds nothing."""
        if asked.model != cut.turn.model:
            return False, None  # one prompt sent to several models: each has its own turn
        if cut.lost:
            return True, Strategy.RETRY
        is_raised = cut.maximum is not None and (asked.maximum is None or asked.maximum > cut.maximum)
        if not is_raised and (cut.again or self._clock() - cut.touched > AGAIN_S):
            return False, None
        return True, Strategy.RESEND

    def _cut(
        self, ended: CallEnded, asked: RequestSummary, tail: str, before: PendingTurn | None, *, failed: bool
    ) -> PendingTurn:
        """How the continuation of this call would be known; without keys where it could not be."""
        started = ended.started
        lengths = [asked.length] if asked.length else []
        own = [key for bare in (False, True) if lengths for key in digests(asked, lengths, bare=bare).items()]
        first = (before and before.first) or tuple(own)
        # What failed continued nothing: it is still the answer before it that is cut.
        kept = before if failed else None
        earlier = first if kept is None else kept.keys
        is_resent = started.continuation is not None and started.continuation.strategy is Strategy.RESEND
        return PendingTurn(
            turn=started.turn,
            number=started.number if kept is None else kept.number,
            question=question_of(asked) if started.turn.kind is TurnKind.OBSERVED else None,
            first=first,
            keys=tuple(dict.fromkeys((*earlier, *own, *_names(ended.response_id, asked.conversation_id)))),
            tail=tail if kept is None else kept.tail,
            lost=failed or ended.stop.reason is StopReason.MISSING,
            failed=failed,
            paused=ended.stop.reason is StopReason.PAUSED,
            maximum=asked.maximum,
            again=is_resent and before is not None and not before.lost and before.maximum == asked.maximum,
            touched=self._clock(),
        )


def _names(response_id: str | None, conversation_id: str | None) -> list[Key]:
    """What a server knows a response, and its conversation, by."""
    return [(kind, name) for kind, name in (("response", response_id), ("conversation", conversation_id)) if name]


def _continue(cut: PendingTurn, strategy: Strategy, asked: RequestSummary) -> tuple[Turn, Continuation]:
    turn = cut.turn
    turn.continuations += 1
    turn.inferred = turn.inferred or turn.kind is TurnKind.IMPLICIT
    continuation = Continuation(turn.continuations, strategy, cut.number)
    hooks.emit(
        events.ContinuationAttempted(
            turn=turn,
            provider=turn.provider,
            model=asked.model or turn.model,
            continuation=continuation,
            output_tokens=turn.output_tokens,
            output_chars=turn.output_chars,
        )
    )
    return turn, continuation


def _end(cut: PendingTurn) -> None:
    # An observed turn is ended by whoever opened it; only its waiting is over.
    if cut.turn.kind is TurnKind.IMPLICIT:
        left = TurnOutcome.LEFT_PAUSED if cut.paused and not cut.turn.unfinished else TurnOutcome.NOT_CONTINUED
        end_turn(cut.turn, TurnOutcome.PROVIDER_ERROR if cut.failed else left)


def _sweep() -> None:
    if isinstance(inference := scopes.inference(), TurnInference):
        inference.sweep()


def _forget() -> None:
    if isinstance(inference := scopes.inference(), TurnInference):
        inference.forget()


cleanup.each_time(_sweep)
cleanup.after_fork(_forget)
