"""A turn in progress, and what its calls came to so far."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from endturn.calls.outcomes import TurnKind

if TYPE_CHECKING:
    from endturn.calls.outcomes import Continuation, TurnOutcome
    from endturn.vocabulary import Usage


CUT_ANSWERS: Final = 256
"""How many cut answers of one turn are remembered at most: an agent's span may stay open for
ever."""


def new_id() -> str:
    """16 random hex digits."""
    return f"{random.getrandbits(64):016x}"


@dataclass(slots=True, eq=False)
class Turn:
    """One turn in progress: from the user's input to the answer handed back.

    Tallies the calls that are made in it.

    Attributes:
        continuation: what the next call is, when it is a continuation; taken by that call.
        provider, model: of the turn's first truncated response, else of its first call.
        truncated: any response was truncated.
        cut: the numbers of truncated calls that stand without a later whole response to the same
            message; of a turn that ends without a whole answer after a truncated one, there is
            always one.
        abandoned: of these, the calls that the host left truncated: it ran their tool calls, or
            moved on. Nothing finishes them any more.
        continuations: calls that asked for the rest of a cut answer, or for the whole of it again;
            repairs: those that asked for cut tool calls again; resumes: those that took up what the
            provider had paused.
        estimated: some of the token figures are estimates, because a provider gave none.
        open_streams: responses that are still being read.
        answer_tokens: generated tokens of the turn's longest answer: a response, and what was
            continued of it.
        parts: of answers that may be continued, by the number of the call that would be: tokens
            before that call, and with it. None while all answers were whole.
        ending: how an observed turn ends once they have been: its function returned one of them.
        within: of a controller's turn, the observed turn that it is a part of.
        inner: the outcome of the last such part, unless a whole answer came after it.
        around: the explicit turn in which this one began.
        recognised: it was not declared: it is the run of an agent that a span tells of. A new run
            may continue it.
        waits: when such a run was over, by `time.perf_counter`, while it waits to be continued.
        failed: its latest call raised, and nobody had stopped it.
        last_call: the number of its latest call; last_usage: of a controller's turn, what that used
            as far as its provider said.
        started_s, last_s: when it began and when its last call ended, by `time.perf_counter`;
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
    cut: frozenset[int] = frozenset()
    abandoned: frozenset[int] = frozenset()
    open_streams: int = 0
    ending: tuple[TurnOutcome, BaseException | None] | None = None
    within: Turn | None = None
    inner: TurnOutcome | None = None
    around: Turn | None = None
    recognised: bool = False
    waits: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False
    answer_tokens: int = 0
    parts: dict[int, tuple[int, int]] | None = None
    output_chars: int = 0
    failed: bool = False
    last_call: int | None = None
    last_usage: Usage | None = None
    last_s: float | None = None
    outcome: TurnOutcome | None = None

    def still_open(self) -> Turn | None:
        """Return this turn, or the nearest enclosing one that is not over."""
        turn: Turn | None = self
        while turn is not None and turn.outcome is not None:
            turn = turn.around
        return turn

    def join(self, outer: Turn) -> None:
        """Become a part of an observed turn, which is not over before this one is."""
        self.within, self.id = outer, outer.id
        self.agent, self.conversation = (
            outer.agent or self.agent,
            outer.conversation or self.conversation,
        )
        outer.open_streams += 1

    def so_far(self) -> Turn:
        """Return the totals of this turn and of the turn that it is a part of."""
        if self.within is None:
            return self
        both = replace(self.within)
        self.leave(both)
        return both

    def leave(self, outer: Turn) -> None:
        """Add the tally to the turn that this one, which has ended, was a part of."""
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
        outer.cut |= self.cut
        outer.answer_tokens = max(outer.answer_tokens, self.answer_tokens)
        outer.last_call, outer.last_s = (
            self.last_call or outer.last_call,
            self.last_s or outer.last_s,
        )
        outer.inner = self.outcome
        outer.failed = self.failed
        outer.open_streams -= 1

    def leave_unfinished(self) -> None:
        """Record that the turn ends without a complete answer.

        The last response itself reported that it was complete.
        """
        if self.truncated and not self.cut:
            self.cut |= {self.last_call or 0}

    @property
    def continued(self) -> bool:
        """Whether the rest of a cut answer, or a cut tool call, was asked for."""
        return self.continuations + self.repairs > 0

    @property
    def unfinished(self) -> bool:
        """Return whether a truncated response has no later complete one to the same message."""
        return bool(self.cut)
