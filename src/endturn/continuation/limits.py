"""What a turn has used, and whether it may go on: pure judgements over counters, policy and elapsed seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from endturn.continuation.policy import ContinuationPolicy
from endturn.events import Strategy, TurnOutcome
from endturn.stop import Resume


@dataclass(slots=True)
class Counters:
    """What a turn has used so far.

    Attributes:
        calls: every call to the model.
        iterations: ordinary calls: neither continuation nor resume nor repair.
        attempts, resumes, repairs, again: the other four; `again` is the same question asked once more.
        tokens, chars: output of cut responses, their continuations and repairs.
        ceiling: the effective maximum of output tokens: the request's, else what the first cut response used.
        cost: USD that all calls of the turn have cost, by the policy's prices.
        iterations_made, continuations_made, repairs_made: the same calls since the turn began, whatever limits have
            begun anew since.
    """

    calls: int = 0
    iterations: int = 0
    attempts: int = 0
    resumes: int = 0
    repairs: int = 0
    again: int = 0
    tokens: int = 0
    chars: int = 0
    ceiling: int | None = None
    cost: float = 0.0
    iterations_made: int = 0
    continuations_made: int = 0
    repairs_made: int = 0

    def afresh(self) -> Counters:
        """Nothing used yet of what is limited."""
        return Counters(
            calls=self.calls,
            iterations_made=self.iterations_made,
            continuations_made=self.continuations_made,
            repairs_made=self.repairs_made,
        )


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


COUNTED: Final = frozenset({Strategy.PROMPT, Strategy.PREFILL, Strategy.RETRY, Strategy.REPAIR})
"""The calls whose output counts against the budgets, however they end."""

MARGIN: Final = 256
"""Output tokens that a continuation must be able to spend beyond its thinking budget to be worth a call."""


def tokens_left(counters: Counters, policy: ContinuationPolicy) -> int | None:
    """How many output tokens continuations and repairs may still use; None for no limit, or before any is known."""
    limit = policy.continuation_max_total_completion_tokens
    if limit == "none":
        return None
    if limit is None:
        if counters.ceiling is None:
            return None
        limit = 4 * counters.ceiling
    return max(0, limit - counters.tokens)


def affordable(counters: Counters, policy: ContinuationPolicy, model: str) -> int | None:
    """How many output tokens of the model the rest of the money buys; None where money is no limit."""
    price = policy.price(model)
    if policy.max_cost is None or price is None or not price[1]:
        return None
    return max(0, int((policy.max_cost - counters.cost) * 1e6 / price[1] + 1e-6))  # a sum of cents, as floats have it


def clamp(asked: int | None, counters: Counters, policy: ContinuationPolicy, model: str = "") -> int | None:
    """The `max_tokens` of a continuation or repair: what the request asked for, or what is left if that is less.

    A request without a maximum keeps none as long as the provider's own (as seen in the first cut) fits into the rest.
    """
    left = tokens_left(counters, policy)
    bought = affordable(counters, policy, model)
    if bought is not None:
        left = bought if left is None else min(left, bought)
    if left is None:
        return asked
    if asked is None:
        return left if counters.ceiling is None or left < counters.ceiling else None
    return min(asked, left)


def _over(counters: Counters, policy: ContinuationPolicy, elapsed_s: float) -> TurnOutcome | None:
    """What ends a turn before any further call, whatever it is for: its time or its money is up."""
    if policy.deadline_s is not None and elapsed_s >= policy.deadline_s:
        return TurnOutcome.DEADLINE
    if policy.max_cost is not None and counters.cost >= policy.max_cost:
        return TurnOutcome.COST_BUDGET
    return None


def _spent(
    counters: Counters, policy: ContinuationPolicy, elapsed_s: float, thinking: int, model: str
) -> TurnOutcome | None:
    over = _over(counters, policy, elapsed_s)
    if over is not None:
        return over
    left = tokens_left(counters, policy)
    # A request for 64 tokens can never leave 256 of them: there, one more answer of its size is enough.
    floor = thinking + min(MARGIN, counters.ceiling or MARGIN)
    if left is not None and left < floor:
        return TurnOutcome.TOKEN_BUDGET
    bought = affordable(counters, policy, model)
    if bought is not None and bought <= thinking:
        return TurnOutcome.COST_BUDGET
    if counters.chars >= policy.continuation_max_output_chars:
        return TurnOutcome.CHAR_BUDGET
    return None


def before_continuation(
    counters: Counters,
    policy: ContinuationPolicy,
    progress: Progress,
    *,
    elapsed_s: float,
    thinking: int = 0,
    model: str = "",
) -> TurnOutcome | None:
    """Why cut text is not continued, None if it is. `thinking`: the request's thinking budget in tokens."""
    if progress.repetitive:
        return TurnOutcome.REPETITION
    if not progress.visible:
        return TurnOutcome.REASONING_EXHAUSTED if progress.reasoned else TurnOutcome.NO_PROGRESS
    if counters.attempts >= policy.continuation_max_attempts:
        return TurnOutcome.RETRY_LIMIT
    return _spent(counters, policy, elapsed_s, thinking, model)


def before_repair(
    counters: Counters, policy: ContinuationPolicy, *, elapsed_s: float, thinking: int = 0, model: str = ""
) -> TurnOutcome | None:
    """Why a tool payload is not asked for again, None if it is."""
    if not policy.continuation_tool_repair_attempts:
        return TurnOutcome.TOOL_CALL_CUT
    if counters.repairs >= policy.continuation_tool_repair_attempts:
        return TurnOutcome.TOOL_REPAIR_FAILED
    return _spent(counters, policy, elapsed_s, thinking, model)


def before_asking_again(
    counters: Counters,
    policy: ContinuationPolicy,
    otherwise: TurnOutcome,
    *,
    elapsed_s: float,
    thinking: int = 0,
    model: str = "",
) -> TurnOutcome | None:
    """Why the same question is not asked once more, None if it is. `otherwise`: what its answer came to."""
    if counters.again:
        return otherwise
    return _spent(counters, policy, elapsed_s, thinking, model)


DRIVEN: Final = frozenset({Resume.RESEND_UNCHANGED, Resume.NATIVE_TOKEN, Resume.RETRIEVE_SAME_ID})
"""The ways of taking a pause up that a controller can go, given a provider function that goes them."""


def before_resume(
    counters: Counters, policy: ContinuationPolicy, resume: Resume, *, able: bool = True, elapsed_s: float
) -> TurnOutcome | None:
    """Why a paused response is not taken up again, None if it is.

    Args:
        resume: how it would be.
        able: the provider function can: it fetches, it does not follow tokens by itself, and the token is a new one.
    """
    if resume not in DRIVEN or not able:
        return TurnOutcome.LEFT_PAUSED
    if counters.resumes >= policy.continuation_max_resumes:
        return TurnOutcome.RESUME_LIMIT
    return _over(counters, policy, elapsed_s)


def before_iteration(counters: Counters, policy: ContinuationPolicy, *, elapsed_s: float) -> TurnOutcome | None:
    """Why the tool loop does not go on, None if it does."""
    if counters.iterations >= policy.max_iterations:
        return TurnOutcome.MAX_ITERATIONS
    return _over(counters, policy, elapsed_s)
