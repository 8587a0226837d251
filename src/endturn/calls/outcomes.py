"""Outcomes of turns, strategies of continuations, and tool calls that a response requests."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from endturn.vocabulary import StopReason

if TYPE_CHECKING:
    pass


class TurnOutcome(StrEnum):
    """The outcome of a turn. A closed set: it is a metric attribute."""

    COMPLETED = "completed"
    RETRY_LIMIT = "retry_limit"
    TOKEN_BUDGET = "token_budget"  # noqa: S105 - tokens of a model, not a secret
    CHAR_BUDGET = "char_budget"
    COST_BUDGET = "cost_budget"
    DEADLINE = "deadline"
    RESUME_LIMIT = "resume_limit"
    NO_PROGRESS = "no_progress"
    REPETITION = "repetition"
    REASONING_EXHAUSTED = "reasoning_exhausted"
    INVALID_JSON = "invalid_json"
    CONTEXT_WINDOW_EXCEEDED = "context_window_exceeded"
    SAFETY_BLOCKED = "safety_blocked"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    PROVIDER_ERROR = "provider_error"
    STREAM_CUT = "stream_cut"
    UNKNOWN_REASON = "unknown_reason"
    EMPTY_RESPONSE = "empty_response"
    LEFT_PAUSED = "left_paused"
    TOOL_REPAIR_FAILED = "tool_repair_failed"
    TOOL_CALL_CUT = "tool_call_cut"
    MAX_ITERATIONS = "max_iterations"
    IMPLICIT_COMPLETION = "implicit_completion"
    NOT_CONTINUED = "not_continued"

    @property
    def group(self) -> str:
        """The outcome, with `budget_exhausted` for each of the four budgets."""
        return "budget_exhausted" if self in BUDGETS else self.value


BUDGETS: Final = frozenset(
    {
        TurnOutcome.TOKEN_BUDGET,
        TurnOutcome.CHAR_BUDGET,
        TurnOutcome.COST_BUDGET,
        TurnOutcome.DEADLINE,
    }
)


COMPLETE: Final = frozenset({TurnOutcome.COMPLETED, TurnOutcome.IMPLICIT_COMPLETION})


FINISHED_REASONS: Final = frozenset({StopReason.END_TURN, StopReason.TOOL_CALL})
"""Reasons that mean that the model finished on its own."""


STOPPED_BY_PERSON: Final = frozenset({TurnOutcome.CANCELLED, TurnOutcome.STOPPED})


class Strategy(StrEnum):
    """The way in which a continuation requests the rest."""

    NATIVE_TOKEN = "native_token"  # noqa: S105 - a way of continuing, not a secret
    RESEND = "resend"
    RETRIEVE = "retrieve"
    """A response that was still being generated, fetched by its id."""
    PREFILL = "prefill"
    PROMPT = "prompt"
    RETRY = "retry"
    """The same request again: after a failed stream, or a response that cannot be used."""
    REPAIR = "repair"
    """A truncated tool payload requested again."""


REPLACING_STRATEGIES: Final = frozenset({Strategy.RETRIEVE, Strategy.RETRY, Strategy.REPAIR})
"""Strategies that replace the earlier response.

`resend` replaces after a truncation, and appends after a pause.
"""


class TurnKind(StrEnum):
    """The component that determines where a turn begins and ends."""

    CONTROLLER = "controller"
    OBSERVED = "observed"
    IMPLICIT = "implicit"


@dataclass(frozen=True, slots=True)
class Continuation:
    """Marks a call as made only because an earlier response was truncated.

    Attributes:
        index: 1 for the turn's first continuation.
        strategy: the way in which it requests the rest.
        of: the number of the call that it continues; None if that is unknown.
    """

    index: int
    strategy: Strategy
    of: int | None = None


class RequestedCall(NamedTuple):
    """A client tool call that a response requests, or another request to the client: an approval.

    Attributes:
        id: the server's id; without one, the format's synthetic id.
        name: the tool's name.
        is_other_choice: it is in another choice than the first, and that choice is not truncated.
    """

    id: str
    name: str
    is_other_choice: bool = False


# Removed in 0.2: the names of 0.1.
ANEW = REPLACING_STRATEGIES
WHOLE = FINISHED_REASONS
