"""Counters and limits of a turn: pure functions of counters, policy and elapsed seconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from endturn.calls import Strategy, TurnOutcome, plausible
from endturn.continuation.policy import ContinuationPolicy
from endturn.vocabulary import ChatResponse, Request, Resume, StopReason, ToolCall, Usage

RESUME_STRATEGIES: Final = {
    Resume.RESEND_UNCHANGED: Strategy.RESEND,
    Resume.NATIVE_TOKEN: Strategy.NATIVE_TOKEN,
    Resume.RETRIEVE_SAME_ID: Strategy.RETRIEVE,
}
"""The strategy that resumes each kind of pause. Other kinds are up to the host."""
COUNTER_NAMES: Final[Mapping[Strategy | None, str]] = {
    None: "iterations",
    **dict.fromkeys(RESUME_STRATEGIES.values(), "resumes"),
    Strategy.PROMPT: "attempts",
    Strategy.PREFILL: "attempts",
    Strategy.REPAIR: "repairs",
    Strategy.RETRY: "again",
}
"""The counter of each kind of call; None is an ordinary call."""
BUDGETED_STRATEGIES: Final = frozenset(
    {Strategy.PROMPT, Strategy.PREFILL, Strategy.RETRY, Strategy.REPAIR}
)
"""The calls whose output always counts against the budgets."""
MIN_CONTINUATION_TOKENS: Final = 256
"""The minimum of output tokens beyond the thinking budget that makes a continuation worth a call.
"""


@dataclass(slots=True)
class Counters:
    """Resources that a turn has used.

    Attributes:
        calls: every call to the model.
        iterations: ordinary calls: neither continuation nor resume nor repair.
        attempts, resumes, repairs, again: the other four; `again` counts repeated requests.
        tokens, chars: output of truncated responses, their continuations and repairs.
        ceiling: the effective maximum of output tokens: the request's, else those of the first
            truncated response.
        cost: USD that all calls of the turn have cost, by the policy's prices.
        iterations_made, continuations_made, repairs_made: the same calls since the turn began,
            even if limits have been reset since.
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

    def count(self, strategy: Strategy | None) -> None:
        """Count a call with this strategy; None is an ordinary call."""
        self._add_limited(strategy, 1)
        self.repairs_made += strategy is Strategy.REPAIR
        self.continuations_made += strategy in (Strategy.PROMPT, Strategy.PREFILL, Strategy.RETRY)

    def give_back(self, strategy: Strategy | None) -> None:
        """Uncount a call that the provider could not answer yet. It uses no attempt."""
        self._add_limited(strategy, -1)

    def _add_limited(self, strategy: Strategy | None, amount: int) -> None:
        name = COUNTER_NAMES[strategy]
        setattr(self, name, getattr(self, name) + amount)
        self.iterations_made += amount if strategy is None else 0

    def with_fresh_limits(self) -> Counters:
        """Return counters with everything that is limited reset."""
        return Counters(
            calls=self.calls,
            iterations_made=self.iterations_made,
            continuations_made=self.continuations_made,
            repairs_made=self.repairs_made,
        )


@dataclass(frozen=True, slots=True)
class Remaining:
    """Remaining calls, tokens and characters of a turn.

    Attributes:
        calls: of one strategy.
        tokens: output tokens of continuations and repairs; None if there is no known limit yet.
        chars: characters of cut answers and their continuations.
    """

    calls: int
    tokens: int | None
    chars: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a turn.

    Each `before_…` method returns the turn's outcome if the call may not be made, else None.

    Attributes:
        elapsed: gives the seconds since the turn began.
        thinking: the request's thinking budget.
    """

    policy: ContinuationPolicy
    counters: Counters
    elapsed: Callable[[], float]
    model: str = ""
    thinking: int = 0

    @property
    def tokens_left(self) -> int | None:
        """Output tokens left for continuations and repairs.

        None if there is no limit, or none is known yet.
        """
        limit = self.policy.continuation_max_total_completion_tokens
        if limit is None and self.counters.ceiling is not None:
            limit = 4 * self.counters.ceiling
        return None if limit is None or limit == "none" else max(0, limit - self.counters.tokens)

    @property
    def chars_left(self) -> int:
        """Characters left for cut answers and their continuations."""
        return max(0, self.policy.continuation_max_output_chars - self.counters.chars)

    @property
    def affordable(self) -> int | None:
        """Output tokens that the remaining money buys; None if money is not limited."""
        price = self.policy.price(self.model)
        if self.policy.max_cost is None or price is None or not price[1]:
            return None
        tokens = (self.policy.max_cost - self.counters.cost) * 1e6 / price[1]
        return max(0, int(tokens + 1e-6))  # tolerance for the floating-point sum of cents

    def calls_left(self, strategy: Strategy) -> int:
        """Return the number of calls with this strategy that may still be made."""
        policy, counter = self.policy, COUNTER_NAMES[strategy]
        limits = {
            "attempts": policy.continuation_max_attempts,
            "resumes": policy.continuation_max_resumes,
            "repairs": policy.continuation_tool_repair_attempts,
            "again": 1,
        }
        return max(0, limits[counter] - int(getattr(self.counters, counter)))

    def remaining(self, strategy: Strategy) -> Remaining:
        """Return what calls with this strategy may still use."""
        return Remaining(self.calls_left(strategy), self.tokens_left, self.chars_left)

    def clamp(self, limit: int | None) -> int | None:
        """Return the `max_tokens` of a continuation or repair.

        It is the request's limit, or the remaining tokens if they are fewer. A request without a
        maximum keeps none as long as the provider's own (seen in the first truncated response) fits
        into the rest.
        """
        bounds = [bound for bound in (self.tokens_left, self.affordable) if bound is not None]
        if not bounds:
            return limit
        remaining, ceiling = min(bounds), self.counters.ceiling
        if limit is None:
            return remaining if ceiling is None or remaining < ceiling else None
        return min(limit, remaining)

    def before_continuation(self) -> TurnOutcome | None:
        """Check a continuation of cut text."""
        return self._budget() if self.calls_left(Strategy.PROMPT) else TurnOutcome.RETRY_LIMIT

    def before_repair(self) -> TurnOutcome | None:
        """Check a repair of a tool payload."""
        if not self.policy.continuation_tool_repair_attempts:
            return TurnOutcome.TOOL_CALL_CUT
        if not self.calls_left(Strategy.REPAIR):
            return TurnOutcome.TOOL_REPAIR_FAILED
        return self._budget()

    def before_asking_again(self, otherwise: TurnOutcome) -> TurnOutcome | None:
        """Check a retry of the same question. `otherwise`: the outcome of its last answer."""
        return otherwise if self.counters.again else self._budget()

    def before_resume(self, resume: Resume, *, able: bool = True) -> TurnOutcome | None:
        """Check the resumption of a paused response.

        Args:
            resume: the kind of pause.
            able: the provider function can resume it: it can fetch, it does not follow tokens by
                itself, and the token is new.
        """
        if resume not in RESUME_STRATEGIES or not able:
            return TurnOutcome.LEFT_PAUSED
        return (
            self._time_or_money()
            if self.calls_left(RESUME_STRATEGIES[resume])
            else TurnOutcome.RESUME_LIMIT
        )

    def before_iteration(self) -> TurnOutcome | None:
        """Check the next iteration of the tool loop."""
        if self.counters.iterations >= self.policy.max_iterations:
            return TurnOutcome.MAX_ITERATIONS
        return self._time_or_money()

    def _time_or_money(self) -> TurnOutcome | None:
        policy = self.policy
        if policy.deadline_s is not None and self.elapsed() >= policy.deadline_s:
            return TurnOutcome.DEADLINE
        if policy.max_cost is not None and self.counters.cost >= policy.max_cost:
            return TurnOutcome.COST_BUDGET
        return None

    def _budget(self) -> TurnOutcome | None:
        if (outcome := self._time_or_money()) is not None:
            return outcome
        # A request for 64 tokens never has 256 remaining: there, room for one more answer of its
        # size is enough.
        needed_tokens = self.thinking + min(
            MIN_CONTINUATION_TOKENS, self.counters.ceiling or MIN_CONTINUATION_TOKENS
        )
        if self.tokens_left is not None and self.tokens_left < needed_tokens:
            return TurnOutcome.TOKEN_BUDGET
        if self.affordable is not None and self.affordable <= self.thinking:
            return TurnOutcome.COST_BUDGET
        return None if self.chars_left else TurnOutcome.CHAR_BUDGET


# --- Usage ----------------------------------------------------------------------------------------


def measure_usage(response: ChatResponse, request: Request) -> tuple[Usage, Usage | None]:
    """Return a response's usage, and the estimated part of it.

    The latter is None if the provider counted everything. Without the provider's counts, 4 bytes of
    text are one token, and a truncated response used its maximum. The input of a request that was
    refused, or whose response is still being generated, is not estimated: the latter is counted
    when it is fetched. In content parts in a format's own shape, only the text counts.
    """
    usage, stop = plausible(response.usage) or Usage(), response.stop
    output_size = _size(response.text + (response.reasoning or ""), response.tool_calls)
    estimates: dict[str, int] = {}
    if usage.output_tokens is None:
        is_full = stop.reason is StopReason.MAX_TOKENS
        estimates["output_tokens"] = (is_full and request.max_tokens) or -(-output_size // 4)
    is_refused = not output_size and stop.reason in (
        StopReason.ERROR,
        StopReason.CONTEXT_WINDOW_EXCEEDED,
    )
    if usage.input_tokens is None and not is_refused and stop.resume is not Resume.RETRIEVE_SAME_ID:
        input_size = sum(_size(message.text, message.tool_calls) for message in request.messages)
        estimates["input_tokens"] = -(-input_size // 4)
    if not estimates and not usage.estimated:
        return usage, None
    return replace(usage, **estimates, estimated=True), Usage(**estimates, estimated=True)


def _size(text: str, calls: Iterable[ToolCall]) -> int:
    """Return the bytes of a text and of the arguments of calls."""
    arguments = (
        json.dumps(call.arguments or {},
                   default=str) if call.arguments_raw is None else call.arguments_raw
        for call in calls
    )  # fmt: skip
    return sum(len(part.encode(errors="replace")) for part in (text, *arguments))
