"""A turn in progress, with the totals of its calls."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from endturn.calls.outcomes import TurnKind

if TYPE_CHECKING:
    from endturn.calls.outcomes import Continuation, TurnOutcome
    from endturn.vocabulary import Usage


MAX_TRUNCATED_CALLS: Final = 256
"""The most truncated calls of one turn that are remembered: an agent's span may stay open for
ever."""


def new_id() -> str:
    """Return 16 random hex digits."""
    return f"{random.getrandbits(64):016x}"


@dataclass(slots=True, eq=False)
class Turn:
    """One turn in progress, from the user's input to the answer, with the totals of its calls.

    Attributes:
        continuation: of the next call, if it is a continuation.
        provider, model: of the turn's first truncated response, else of its first call.
        truncated: any response was truncated.
        truncated_calls: the numbers of truncated calls without a later finished response to the
            same message; a turn that ends without a finished answer after a truncated one always
            has one.
        abandoned: of these, the calls that the host does not continue: it ran their tool calls, or
            continued the conversation without them. They stay unfinished.
        continuations: calls that requested the rest of a truncated answer, or all of it again;
            repairs: those that requested truncated tool calls again; resumes: those that resumed a
            response that the provider had paused.
        estimated: some of the token figures are estimates, because a provider gave none.
        open_streams: responses that are still being read.
        answer_tokens: generated tokens of the turn's longest answer: a response with its
            continuations.
        answer_parts: of answers that may be continued, by the number of the call to continue:
            tokens before that call, and with it. None while all answers were finished.
        pending_end: the end of an observed turn whose function returned an open stream; the turn
            ends when its streams have been read.
        parent: of a controller's turn, the observed turn that it is a part of.
        last_part_outcome: the outcome of the last such part, unless a finished answer follows it.
        enclosing: the explicit turn in which this one began.
        recognised: it was not declared: it is an agent's run, recognised by its span. A new run may
            continue it.
        waiting_since_s: the end of such a run, by `time.perf_counter`, while it may be continued.
        last_call_failed: its latest call raised, and was not cancelled.
        last_call: the number of its latest call; last_usage: of a controller's turn, the usage of
            that call as far as its provider reported it.
        started_s, last_s: its start and the end of its last call, by `time.perf_counter`;
            started_ns: wall clock.
        outcome: set once, when the turn ends.
    """

    kind: TurnKind = TurnKind.CONTROLLER
    id: str = field(default_factory=new_id)
    agent: str | None = None
    conversation: str | None = None
    inferred: bool = False
    started_s: float = field(default_factory=time.perf_counter)
    started_ns: int = field(default_factory=time.time_ns)
    iterations: int = 0
    continuations: int = 0
    repairs: int = 0
    resumes: int = 0
    continuation: Continuation | None = None
    provider: str = ""
    model: str = ""
    truncated: bool = False
    truncated_calls: frozenset[int] = frozenset()
    abandoned: frozenset[int] = frozenset()
    open_streams: int = 0
    pending_end: tuple[TurnOutcome, BaseException | None] | None = None
    parent: Turn | None = None
    last_part_outcome: TurnOutcome | None = None
    enclosing: Turn | None = None
    recognised: bool = False
    waiting_since_s: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False
    answer_tokens: int = 0
    answer_parts: dict[int, tuple[int, int]] | None = None
    output_chars: int = 0
    last_call_failed: bool = False
    last_call: int | None = None
    last_usage: Usage | None = None
    last_s: float | None = None
    outcome: TurnOutcome | None = None

    # Removed in 0.2: the names of 0.1.

    @property
    def cut(self) -> frozenset[int]:
        """`truncated_calls`."""
        return self.truncated_calls

    @cut.setter
    def cut(self, truncated_calls: frozenset[int]) -> None:
        self.truncated_calls = truncated_calls

    @property
    def around(self) -> Turn | None:
        """`enclosing`."""
        return self.enclosing

    @around.setter
    def around(self, enclosing: Turn | None) -> None:
        self.enclosing = enclosing

    def open_turn(self) -> Turn | None:
        """Return this turn, or the nearest enclosing one that is not over."""
        turn: Turn | None = self
        while turn is not None and turn.outcome is not None:
            turn = turn.enclosing
        return turn

    def join(self, outer: Turn) -> None:
        """Become a part of an observed turn, which is not over before this one is."""
        self.parent, self.id = outer, outer.id
        self.agent, self.conversation = (
            outer.agent or self.agent,
            outer.conversation or self.conversation,
        )
        outer.open_streams += 1

    def totals(self) -> Turn:
        """Return the totals of this turn and of the turn that it is a part of."""
        if self.parent is None:
            return self
        totals = replace(self.parent)
        self.add_to(totals)
        return totals

    def add_to(self, outer: Turn) -> None:
        """Add the totals to the turn that this one, which has ended, was a part of."""
        if not outer.provider or (self.truncated and not outer.truncated):
            outer.provider, outer.model = self.provider, self.model
        outer.agent, outer.conversation = (
            outer.agent or self.agent,
            outer.conversation or self.conversation,
        )
        outer.iterations += self.iterations
        outer.continuations += self.continuations
        outer.repairs += self.repairs
        outer.resumes += self.resumes
        outer.input_tokens += self.input_tokens
        outer.output_tokens += self.output_tokens
        outer.output_chars += self.output_chars
        outer.truncated |= self.truncated
        outer.estimated |= self.estimated
        outer.truncated_calls |= self.truncated_calls
        outer.answer_tokens = max(outer.answer_tokens, self.answer_tokens)
        outer.last_call, outer.last_s = (
            self.last_call or outer.last_call,
            self.last_s or outer.last_s,
        )
        outer.last_part_outcome = self.outcome
        outer.last_call_failed = self.last_call_failed
        outer.open_streams -= 1

    def leave_unfinished(self) -> None:
        """Record that the turn ends without a complete answer.

        The last response itself reported that it was complete.
        """
        if self.truncated and not self.truncated_calls:
            self.truncated_calls |= {self.last_call or 0}

    @property
    def continued(self) -> bool:
        """True if the rest of a truncated answer or tool call was requested."""
        return self.continuations + self.repairs > 0

    @property
    def unfinished(self) -> bool:
        """True if a truncated response has no later complete one to the same message."""
        return bool(self.truncated_calls)


# Removed in 0.2: the names of 0.1.
CUT_ANSWERS = MAX_TRUNCATED_CALLS
