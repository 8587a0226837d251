"""The continuation machine: one flat table of (state, signal) → state.

The rules:

1. A turn starts in `Request` and ends in `Complete` or `Abort`; both know no further signal.
2. Every response goes to `EvaluateStop`. That state alone looks at the content of a response.
3. A call that follows from the last response (continuation, resume, repair, retry) is reached
   through a pending state, which checks limits and has two signals only: `under_limits` and
   `limit_reached`. A continuation whose strategy the provider refuses goes back there, for another
   strategy. A trivial answer, in a turn that a tool call should end, is requested again as an
   ordinary call (`IteratePending` → `Request`).
4. Tools are run in `ExecuteTools` alone, and that is reached by two signals: the gate passed the
   batch (`tool_call`: run it), or refused complete but invalid calls (`invalid_calls`: answer them
   with errors, run nothing).
5. A turn that ends early but keeps its answer goes through `AbortPartial`; one whose answer is
   worthless goes to `Abort`. A model that signals its end, or is recognised to be done
   (`finish_signal`, `implicit_completion`), completes the turn. `limit_reached` also follows a
   response that is longer than its limit.
6. An illegal pair raises IllegalTransition, and the state stays the same.

No clock, no I/O, no telemetry. Other modules have: the values of each state (phases), the signals
of responses (evaluation), the limits (limits), the kept text (stitching), the checks of tool calls
(tool_gate), the tools that end a turn (termination), and the actions in each state (turn). A signal
for a stop reason has the reason's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from endturn.calls import TurnOutcome
from endturn.errors import IllegalTransition
from endturn.vocabulary import package_data, read_tsv


class State(StrEnum):
    """The states of a turn."""

    REQUEST = "Request"
    EVALUATE_STOP = "EvaluateStop"
    EXECUTE_TOOLS = "ExecuteTools"
    CONTINUE_PENDING = "ContinuePending"
    REQUEST_CONTINUATION = "RequestContinuation"
    RESUME_PENDING = "ResumePending"
    RESUME_UNCHANGED = "ResumeUnchanged"
    REPAIR_PENDING = "RepairPending"
    REPAIR = "Repair"
    ASK_AGAIN_PENDING = "AskAgainPending"
    ASK_AGAIN = "AskAgain"
    ITERATE_PENDING = "IteratePending"
    ABORT_PARTIAL = "AbortPartial"
    ABORT = "Abort"
    COMPLETE = "Complete"


class Signal(StrEnum):
    """The events of a turn."""

    RESPONSE = "provider_response"
    PROVIDER_ERROR = "provider_error"
    INTERRUPTED = "interrupted"
    """The host stopped waiting: a cancelled task, a closed stream, an interrupt."""

    END_TURN = "end_turn"
    TOOL_CALL = "tool_call"
    INVALID_CALLS = "invalid_calls"
    HAND_OVER = "hand_over"
    """The gate passed the batch, and the host runs its tools itself."""
    GATE_REFUSED = "gate_refused"
    REPAIR_REFUSED = "repair_refused"
    """The model or a filter refused the repair. It is not requested again."""
    MAX_TOKENS = "max_tokens"
    WORTHLESS = "worthless"
    """Truncated such that only the same request can help, not a continuation: half a JSON text,
    only thinking, or a full context window that the host has shortened."""
    INVALID_JSON = "invalid_json"
    PAUSED = "paused"
    CONTEXT_WINDOW_EXCEEDED = "context_window_exceeded"
    SAFETY_BLOCKED = "safety_blocked"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    MISSING = "missing"
    ERROR = "error"
    CANCELLED = "cancelled"

    UNDER_LIMITS = "under_limits"
    LIMIT_REACHED = "limit_reached"
    RESULTS_APPENDED = "tool_results_appended"
    FINISHED = "finish_signal"
    """A tool that ends the turn was run."""
    IMPLICIT = "implicit_completion"
    """A tool that ends the turn was offered but not called, and the wallet guard finds the model
    done."""
    TRIVIAL = "trivial_answer"
    """A tool that ends the turn was offered but not called, and the answer is too short to be one.
    """
    REPEATED = "repeated_calls"
    """The same tool calls were repeated more often than the policy allows."""
    NO_PROGRESS = "no_progress"
    """The continuation of an answer that ends in the middle of a sentence is empty."""
    EMPTY = "empty_response"
    """The answer is empty, and is not requested again."""
    PREFILL_REFUSED = "prefill_refused"
    """The provider rejected a prefill, or the response shows that the model did not continue it."""
    RETURNED = "return_partial_with_notice"


INITIAL: Final = State.REQUEST
FINAL: Final = frozenset({State.COMPLETE, State.ABORT})

_PENDING: Final = {
    State.CONTINUE_PENDING: State.REQUEST_CONTINUATION,
    State.RESUME_PENDING: State.RESUME_UNCHANGED,
    State.REPAIR_PENDING: State.REPAIR,
    State.ASK_AGAIN_PENDING: State.ASK_AGAIN,
    State.ITERATE_PENDING: State.REQUEST,
}
"""The states that check limits, and the call that each leads to."""

_AFTER_RESPONSE: Final = {
    State.COMPLETE: (Signal.END_TURN, Signal.HAND_OVER, Signal.IMPLICIT, Signal.FINISHED),
    State.EXECUTE_TOOLS: (Signal.TOOL_CALL, Signal.INVALID_CALLS),
    State.REPAIR_PENDING: (Signal.GATE_REFUSED,),
    State.CONTINUE_PENDING: (Signal.MAX_TOKENS, Signal.PREFILL_REFUSED),
    State.ASK_AGAIN_PENDING: (Signal.WORTHLESS,),
    State.RESUME_PENDING: (Signal.PAUSED,),
    State.ITERATE_PENDING: (Signal.TRIVIAL,),
    State.ABORT: (Signal.CONTEXT_WINDOW_EXCEEDED, Signal.SAFETY_BLOCKED, Signal.REFUSED,
                  Signal.UNKNOWN),
    State.ABORT_PARTIAL: (
        Signal.INVALID_JSON, Signal.EMPTY, Signal.REPEATED, Signal.NO_PROGRESS,
        Signal.LIMIT_REACHED, Signal.REPAIR_REFUSED, Signal.MISSING, Signal.ERROR, Signal.CANCELLED,
    ),
}  # fmt: skip
"""The states that the signals of a response lead to."""

TRANSITIONS: Final[Mapping[tuple[State, Signal], State]] = MappingProxyType(
    {
        (state, signal): leads_to
        for state in dict.fromkeys((INITIAL, *_PENDING.values()))
        for signal, leads_to in (
            (Signal.RESPONSE, State.EVALUATE_STOP),
            (Signal.PROVIDER_ERROR, State.ABORT_PARTIAL),
            (Signal.INTERRUPTED, State.ABORT_PARTIAL),
        )
    }
    | {
        (State.EVALUATE_STOP, signal): state
        for state, signals in _AFTER_RESPONSE.items()
        for signal in signals
    }
    | {(state, Signal.UNDER_LIMITS): call for state, call in _PENDING.items()}
    | {(state, Signal.LIMIT_REACHED): State.ABORT_PARTIAL for state in _PENDING}
    | {
        (State.REQUEST_CONTINUATION, Signal.PREFILL_REFUSED): State.CONTINUE_PENDING,
        (State.EXECUTE_TOOLS, Signal.RESULTS_APPENDED): State.REQUEST,
        (State.EXECUTE_TOOLS, Signal.FINISHED): State.COMPLETE,
        (State.EXECUTE_TOOLS, Signal.IMPLICIT): State.COMPLETE,
        (State.EXECUTE_TOOLS, Signal.LIMIT_REACHED): State.ABORT_PARTIAL,
        (State.EXECUTE_TOOLS, Signal.INTERRUPTED): State.ABORT_PARTIAL,
        (State.ABORT_PARTIAL, Signal.RETURNED): State.COMPLETE,
    }
)


class Machine:
    """The state of one turn."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: State = INITIAL

    def on(self, signal: Signal) -> State:
        """Follow a signal to the next state, and return that.

        Raises:
            IllegalTransition: the state does not know the signal. Nothing was changed.
        """
        target = TRANSITIONS.get((self.state, signal))
        if target is None:
            signal_names = (
                ", ".join(repr(row.value) for state, row in TRANSITIONS if state is self.state)
                or "no signal"
            )
            raise IllegalTransition(
                f"{self.state.value!r} has no transition for {signal.value!r}; "
                f"it has: {signal_names}"
            )
        self.state = target
        return target


OUTCOMES: Final[Mapping[Signal, TurnOutcome]] = {
    Signal(signal): TurnOutcome(outcome)
    for _, (outcome, _, signals, *_) in read_tsv(package_data(), "outcomes.tsv", range(5, 6))
    for signal in signals.split()
}
"""The outcome of a turn that each signal ended. A turn that reached a limit has that limit's
outcome."""
