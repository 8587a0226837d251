"""What a turn has used, and whether it may go on: pure judgements over counters, policy and elapsed seconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from endturn.chat import ChatResponse, Request, ToolCall, Usage
from endturn.continuation.policy import ContinuationPolicy
from endturn.events import Strategy, TurnOutcome, plausible
from endturn.stop import Resume, StopReason

RESUMING: Final = {
    Resume.RESEND_UNCHANGED: Strategy.RESEND,
    Resume.NATIVE_TOKEN: Strategy.NATIVE_TOKEN,
    Resume.RETRIEVE_SAME_ID: Strategy.RETRIEVE,
}
"""How each kind of pause is taken up, where a controller can: the others are left to the host."""
COUNTER: Final[Mapping[Strategy | None, str]] = {
    None: "iterations",
    **dict.fromkeys(RESUMING.values(), "resumes"),
    Strategy.PROMPT: "attempts",
    Strategy.PREFILL: "attempts",
    Strategy.REPAIR: "repairs",
    Strategy.RETRY: "again",
}
"""Which counter each kind of call counts on; None is an ordinary one."""
COUNTED: Final = frozenset({Strategy.PROMPT, Strategy.PREFILL, Strategy.RETRY, Strategy.REPAIR})
"""The calls whose output counts against the budgets, however they end."""
MARGIN: Final = 256
"""Output tokens that a continuation must be able to spend beyond its thinking budget to be worth a call."""


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

    def count(self, strategy: Strategy | None) -> None:
        """Count a call that asks so; None is an ordinary one."""
        self._limited(strategy, 1)
        self.repairs_made += strategy is Strategy.REPAIR
        self.continuations_made += strategy in (Strategy.PROMPT, Strategy.PREFILL, Strategy.RETRY)

    def give_back(self, strategy: Strategy | None) -> None:
        """A call that the provider could not answer for the time being spends no attempt."""
        self._limited(strategy, -1)

    def _limited(self, strategy: Strategy | None, by: int) -> None:
        name = COUNTER[strategy]
        setattr(self, name, getattr(self, name) + by)
        self.iterations_made += by if strategy is None else 0

    def afresh(self) -> Counters:
        """Nothing used yet of what is limited."""
        return Counters(
            calls=self.calls,
            iterations_made=self.iterations_made,
            continuations_made=self.continuations_made,
            repairs_made=self.repairs_made,
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """Says of each further call why it is not made: the turn's outcome then, or None.

    Attributes:
        elapsed: gives the seconds since the turn began.
        thinking: tokens that the request sets aside for thinking.
    """

    policy: ContinuationPolicy
    counters: Counters
    elapsed: Callable[[], float]
    model: str = ""
    thinking: int = 0

    @property
    def tokens_left(self) -> int | None:
        """How many output tokens continuations and repairs may still use; None: no limit, or none is known yet."""
        limit = self.policy.continuation_max_total_completion_tokens
        if limit is None and self.counters.ceiling is not None:
            limit = 4 * self.counters.ceiling
        return None if limit is None or limit == "none" else max(0, limit - self.counters.tokens)

    @property
    def chars_left(self) -> int:
        """How many characters of cut answers, and of what continues them, may still be kept."""
        return max(0, self.policy.continuation_max_output_chars - self.counters.chars)

    @property
    def affordable(self) -> int | None:
        """How many output tokens the rest of the money buys; None where money is no limit."""
        price = self.policy.price(self.model)
        if self.policy.max_cost is None or price is None or not price[1]:
            return None
        left = (self.policy.max_cost - self.counters.cost) * 1e6 / price[1]
        return max(0, int(left + 1e-6))  # a sum of cents, as floats have it

    def calls_left(self, strategy: Strategy) -> int:
        """How many more calls may be made that ask so."""
        policy, counter = self.policy, COUNTER[strategy]
        most = {
            "attempts": policy.continuation_max_attempts,
            "resumes": policy.continuation_max_resumes,
            "repairs": policy.continuation_tool_repair_attempts,
            "again": 1,
        }
        return max(0, most[counter] - int(getattr(self.counters, counter)))

    def clamp(self, asked: int | None) -> int | None:
        """The `max_tokens` of a continuation or repair: what the request asked for, or what is left if that is less.

        A request without a maximum keeps none as long as the provider's own (as seen in the first cut) fits into the
        rest.
        """
        bounds = [bound for bound in (self.tokens_left, self.affordable) if bound is not None]
        if not bounds:
            return asked
        left, ceiling = min(bounds), self.counters.ceiling
        if asked is None:
            return left if ceiling is None or left < ceiling else None
        return min(asked, left)

    def before_continuation(self) -> TurnOutcome | None:
        """Why cut text is not continued."""
        return self._budget() if self.calls_left(Strategy.PROMPT) else TurnOutcome.RETRY_LIMIT

    def before_repair(self) -> TurnOutcome | None:
        """Why a tool payload is not asked for again."""
        if not self.policy.continuation_tool_repair_attempts:
            return TurnOutcome.TOOL_CALL_CUT
        if not self.calls_left(Strategy.REPAIR):
            return TurnOutcome.TOOL_REPAIR_FAILED
        return self._budget()

    def before_asking_again(self, otherwise: TurnOutcome) -> TurnOutcome | None:
        """Why the same question is not asked once more. `otherwise`: what its answer came to."""
        return otherwise if self.counters.again else self._budget()

    def before_resume(self, resume: Resume, *, able: bool = True) -> TurnOutcome | None:
        """Why a paused response is not taken up again.

        Args:
            resume: how it would be.
            able: the provider function can: it fetches, it does not follow tokens by itself, and the token is a new
                one.
        """
        if resume not in RESUMING or not able:
            return TurnOutcome.LEFT_PAUSED
        return self._time_or_money() if self.calls_left(RESUMING[resume]) else TurnOutcome.RESUME_LIMIT

    def before_iteration(self) -> TurnOutcome | None:
        """Why the tool loop does not go on."""
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
        if (over := self._time_or_money()) is not None:
            return over
        # A request for 64 tokens can never leave 256 of them: there, one more answer of its size is enough.
        least = self.thinking + min(MARGIN, self.counters.ceiling or MARGIN)
        if self.tokens_left is not None and self.tokens_left < least:
            return TurnOutcome.TOKEN_BUDGET
        if self.affordable is not None and self.affordable <= self.thinking:
            return TurnOutcome.COST_BUDGET
        return None if self.chars_left else TurnOutcome.CHAR_BUDGET


# --- Usage --------------------------------------------------------------------------------------------------------


def measured(response: ChatResponse, request: Request) -> tuple[Usage, Usage | None]:
    """A response's usage, and what of it is an estimate; None where the provider counted all of it.

    Where the provider did not say, it is a token per 4 bytes of what was said, and asked. A cut answer used its
    maximum. No input is estimated of a request that was refused, or whose answer is still being made: that is counted
    when it is fetched. Of content parts in a format's own shape only the text counts.
    """
    told, stop = plausible(response.usage) or Usage(), response.stop
    said = _size(response.text + (response.reasoning or ""), response.tool_calls)
    guessed: dict[str, int] = {}
    if told.output_tokens is None:
        is_full = stop.reason is StopReason.MAX_TOKENS
        guessed["output_tokens"] = (is_full and request.max_tokens) or -(-said // 4)
    is_refused = not said and stop.reason in (StopReason.ERROR, StopReason.CONTEXT_WINDOW_EXCEEDED)
    if told.input_tokens is None and not is_refused and stop.resume is not Resume.RETRIEVE_SAME_ID:
        asked = sum(_size(message.text, message.tool_calls) for message in request.messages)
        guessed["input_tokens"] = -(-asked // 4)
    if not guessed and not told.estimated:
        return told, None
    return replace(told, **guessed, estimated=True), Usage(**guessed, estimated=True)


def _size(text: str, calls: Iterable[ToolCall]) -> int:
    """The bytes of a text, and of the arguments of calls."""
    arguments = (
        json.dumps(call.arguments or {}, default=str) if call.arguments_raw is None else call.arguments_raw
        for call in calls
    )  # fmt: skip
    return sum(len(part.encode(errors="replace")) for part in (text, *arguments))
