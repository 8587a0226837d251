"""What a turn has used, and whether it may go on: pure judgements over counters, policy and elapsed seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from endturn.continuation.policy import ContinuationPolicy
from endturn.records import TurnOutcome
from endturn.stop import Resume


@dataclass(slots=True)
class Counters:
    """What a turn has used so far.

    Attributes:
        calls: every call to the model.
        iterations: ordinary calls: neither continuation nor resume nor repair.
        attempts, resumes, repairs: the other three.
        tokens, chars: output of cut responses, their continuations and repairs.
        ceiling: the effective maximum of output tokens: the request's, else what the first cut response used.
    """

    calls: int = 0
    iterations: int = 0
    attempts: int = 0
    resumes: int = 0
    repairs: int = 0
    tokens: int = 0
    chars: int = 0
    ceiling: int | None = None

    @property
    def continuations(self) -> int:
        """Calls made only because a response was cut off."""
        return self.attempts + self.repairs


@dataclass(frozen=True, slots=True)
class Progress:
    """What a cut response brought.

    Attributes:
        visible: it added text to the answer.
        reasoned: it spent tokens on thinking.
        repetitive: its text is dominated by one repeated passage.
    """

    visible: bool
    reasoned: bool = False
    repetitive: bool = False


MARGIN: Final = 256
"""Output tokens that a continuation must be able to spend beyond its thinking budget to be worth a call."""


def tokens_left(counters: Counters, policy: ContinuationPolicy) -> int | None:
    """How many output tokens continuations and repairs may still use; None before any response was cut."""
    limit = policy.continuation_max_total_completion_tokens
    if limit is None:
        if counters.ceiling is None:
            return None
        limit = 4 * counters.ceiling
    return max(0, limit - counters.tokens)


def clamp(asked: int | None, counters: Counters, policy: ContinuationPolicy) -> int | None:
    """The `max_tokens` of a continuation or repair: what the request asked for, or what is left if that is less.

    A request without a maximum keeps none as long as the provider's own (as seen in the first cut) fits into the rest.
    """
    left = tokens_left(counters, policy)
    if left is None:
        return asked
    if asked is None:
        return left if counters.ceiling is None or left < counters.ceiling else None
    return min(asked, left)


def _spent(counters: Counters, policy: ContinuationPolicy, elapsed_s: float, thinking: int) -> TurnOutcome | None:
    if policy.deadline_s is not None and elapsed_s >= policy.deadline_s:
        return TurnOutcome.DEADLINE
    left = tokens_left(counters, policy)
    # A request for 64 tokens can never leave 256 of them: there, one more answer of its size is enough.
    floor = thinking + min(MARGIN, counters.ceiling or MARGIN)
    if left is not None and left < floor:
        return TurnOutcome.TOKEN_BUDGET
    if counters.chars >= policy.continuation_max_output_chars:
        return TurnOutcome.CHAR_BUDGET
    return None


def before_continuation(
    counters: Counters, policy: ContinuationPolicy, progress: Progress, *, elapsed_s: float, thinking: int = 0
) -> TurnOutcome | None:
    """Why cut text is not continued, None if it is. `thinking`: the request's thinking budget in tokens."""
    if progress.repetitive:
        return TurnOutcome.REPETITION
    if not progress.visible:
        return TurnOutcome.REASONING_EXHAUSTED if progress.reasoned else TurnOutcome.NO_PROGRESS
    if counters.attempts >= policy.continuation_max_attempts:
        return TurnOutcome.RETRY_LIMIT
    return _spent(counters, policy, elapsed_s, thinking)


def before_repair(
    counters: Counters, policy: ContinuationPolicy, *, elapsed_s: float, thinking: int = 0
) -> TurnOutcome | None:
    """Why a tool payload is not asked for again, None if it is."""
    if counters.repairs >= policy.continuation_tool_repair_attempts:
        return TurnOutcome.TOOL_REPAIR_FAILED
    return _spent(counters, policy, elapsed_s, thinking)


def before_resume(
    counters: Counters, policy: ContinuationPolicy, resume: Resume, *, elapsed_s: float
) -> TurnOutcome | None:
    """Why a paused response is not taken up again, None if it is. Only resending unchanged is driven."""
    if resume is not Resume.RESEND_UNCHANGED:
        return TurnOutcome.LEFT_PAUSED
    if counters.resumes >= policy.continuation_max_resumes:
        return TurnOutcome.RESUME_LIMIT
    if policy.deadline_s is not None and elapsed_s >= policy.deadline_s:
        return TurnOutcome.DEADLINE
    return None


def before_iteration(counters: Counters, policy: ContinuationPolicy, *, elapsed_s: float) -> TurnOutcome | None:
    """Why the tool loop does not go on, None if it does."""
    if counters.iterations >= policy.max_iterations:
        return TurnOutcome.MAX_ITERATIONS
    if policy.deadline_s is not None and elapsed_s >= policy.deadline_s:
        return TurnOutcome.DEADLINE
    return None
