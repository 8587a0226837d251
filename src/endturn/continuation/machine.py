"""The continuation machine: one flat table of (state, signal) → (state, step).

The rules:

1. A turn starts in `Request` and ends in `Complete` or `Abort`; both know no further signal.
2. Every response, to whatever call, goes to `EvaluateStop`. That state alone looks at what a response says.
3. A call that is made only because of what the last response was (continuation, resume, repair, the same question
   again) is reached through a pending state, which asks about limits and knows two signals only: `under_limits` and
   `limit_reached`. A continuation whose way of asking the provider refuses goes back there, to ask in another way.
   An answer that says nothing, where the model should have said that it is done, is asked again in the same way, as an
   ordinary call (`IteratePending` → `Request`).
4. Tools are run in `ExecuteTools` alone, and that is reached by two signals: the gate passed the batch (`tool_call`:
   run it), or refused complete calls for what they say (`invalid_calls`: answer them with errors, run nothing).
5. What ends a turn early but keeps its answer goes through `AbortPartial`; what makes it worthless goes to `Abort`.
   A model that says that it is done, or is found to be (`finish_signal`, `implicit_completion`), completes the turn.
   `limit_reached` is said of a response too that is longer than what may be kept.
6. An illegal pair raises IllegalTransition and changes nothing.

No clock, no I/O, no telemetry. What is not here: what a response signals (evaluation), when a limit is reached
(limits), which text is kept (stitch), which calls are good (tool_gate), what ends a turn on purpose (termination), and
what a step does (turn). A signal that a stop reason gives has its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from endturn.errors import IllegalTransition
from endturn.events import TurnOutcome


class State(StrEnum):
    """Where a turn stands."""

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
    """What can happen to a turn."""

    RESPONSE = "provider_response"
    FAILED = "provider_error"
    INTERRUPTED = "interrupted"
    """The host gave up waiting: a cancelled task, a closed stream, an interrupt."""

    END_TURN = "end_turn"
    TOOL_CALL = "tool_call"
    INVALID_CALLS = "invalid_calls"
    HAND_OVER = "hand_over"
    """The gate passed the batch, and the host runs its tools itself."""
    GATE_REFUSED = "gate_refused"
    REPAIR_REFUSED = "repair_refused"
    """Asked for the payload again, the model declined, or a filter did. It is not asked a third time."""
    MAX_TOKENS = "max_tokens"
    WORTHLESS = "worthless"
    """Cut so that no continuation helps, but the same question may: half a JSON text, nothing but thinking, a full
    window that the host has made room in."""
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
    """A tool was run that ends the turn: the model says that it is done."""
    IMPLICIT = "implicit_completion"
    """Such a tool was offered and not called, and the wallet guard finds that the model is done."""
    TRIVIAL = "trivial_answer"
    """Such a tool was offered and not called, and the answer says next to nothing."""
    REPEATED = "repeated_calls"
    """The same tool calls once more, after as many times as the policy allows."""
    NO_PROGRESS = "no_progress"
    """Asked for the rest of an answer that ends in the middle of a sentence, the model says nothing."""
    EMPTY = "empty_response"
    """The same, and it is asked no more."""
    PREFILL_REFUSED = "prefill_refused"
    RETURNED = "return_partial_with_notice"


class Step(StrEnum):
    """What is to be done on entering a state."""

    SEND = "send"
    EVALUATE = "evaluate"
    RUN_TOOLS = "run_tools"
    ANSWER_CALLS = "answer_calls"
    CHECK_CONTINUATION = "check_continuation"
    SEND_CONTINUATION = "send_continuation"
    CHECK_RESUME = "check_resume"
    SEND_RESUME = "send_resume"
    CHECK_REPAIR = "check_repair"
    SEND_REPAIR = "send_repair"
    CHECK_ASK_AGAIN = "check_ask_again"
    SEND_AGAIN = "send_again"
    CHECK_ITERATION = "check_iteration"
    KEEP_PARTIAL = "keep_partial"
    FINISH = "finish"


class Transition(NamedTuple):
    """Where a signal leads, and what is to be done there."""

    state: State
    step: Step


INITIAL: Final = Transition(State.REQUEST, Step.SEND)
FINAL: Final = frozenset({State.COMPLETE, State.ABORT})

_EVALUATE: Final = Transition(State.EVALUATE_STOP, Step.EVALUATE)
_KEEP: Final = Transition(State.ABORT_PARTIAL, Step.KEEP_PARTIAL)
_ABORT: Final = Transition(State.ABORT, Step.FINISH)
_COMPLETE: Final = Transition(State.COMPLETE, Step.FINISH)

TRANSITIONS: Final[Mapping[tuple[State, Signal], Transition]] = MappingProxyType(
    {
        (State.REQUEST, Signal.RESPONSE): _EVALUATE,
        (State.REQUEST, Signal.FAILED): _KEEP,
        (State.REQUEST, Signal.INTERRUPTED): _KEEP,
        #
        (State.EVALUATE_STOP, Signal.END_TURN): _COMPLETE,
        (State.EVALUATE_STOP, Signal.TOOL_CALL): Transition(State.EXECUTE_TOOLS, Step.RUN_TOOLS),
        (State.EVALUATE_STOP, Signal.INVALID_CALLS): Transition(State.EXECUTE_TOOLS, Step.ANSWER_CALLS),
        (State.EVALUATE_STOP, Signal.HAND_OVER): _COMPLETE,
        (State.EVALUATE_STOP, Signal.GATE_REFUSED): Transition(State.REPAIR_PENDING, Step.CHECK_REPAIR),
        (State.EVALUATE_STOP, Signal.MAX_TOKENS): Transition(State.CONTINUE_PENDING, Step.CHECK_CONTINUATION),
        (State.EVALUATE_STOP, Signal.WORTHLESS): Transition(State.ASK_AGAIN_PENDING, Step.CHECK_ASK_AGAIN),
        (State.EVALUATE_STOP, Signal.INVALID_JSON): _KEEP,
        (State.EVALUATE_STOP, Signal.PAUSED): Transition(State.RESUME_PENDING, Step.CHECK_RESUME),
        (State.EVALUATE_STOP, Signal.CONTEXT_WINDOW_EXCEEDED): _ABORT,
        (State.EVALUATE_STOP, Signal.SAFETY_BLOCKED): _ABORT,
        (State.EVALUATE_STOP, Signal.REFUSED): _ABORT,
        (State.EVALUATE_STOP, Signal.UNKNOWN): _ABORT,
        (State.EVALUATE_STOP, Signal.IMPLICIT): _COMPLETE,
        (State.EVALUATE_STOP, Signal.TRIVIAL): Transition(State.ITERATE_PENDING, Step.CHECK_ITERATION),
        (State.EVALUATE_STOP, Signal.EMPTY): _KEEP,
        (State.EVALUATE_STOP, Signal.FINISHED): _COMPLETE,
        (State.EVALUATE_STOP, Signal.REPEATED): _KEEP,
        (State.EVALUATE_STOP, Signal.NO_PROGRESS): _KEEP,
        (State.EVALUATE_STOP, Signal.LIMIT_REACHED): _KEEP,
        (State.EVALUATE_STOP, Signal.REPAIR_REFUSED): _KEEP,
        (State.EVALUATE_STOP, Signal.MISSING): _KEEP,
        (State.EVALUATE_STOP, Signal.ERROR): _KEEP,
        (State.EVALUATE_STOP, Signal.CANCELLED): _KEEP,
        #
        (State.EXECUTE_TOOLS, Signal.RESULTS_APPENDED): Transition(State.REQUEST, Step.SEND),
        (State.EXECUTE_TOOLS, Signal.FINISHED): _COMPLETE,
        (State.EXECUTE_TOOLS, Signal.IMPLICIT): _COMPLETE,
        (State.EXECUTE_TOOLS, Signal.LIMIT_REACHED): _KEEP,
        (State.EXECUTE_TOOLS, Signal.INTERRUPTED): _KEEP,
        #
        (State.CONTINUE_PENDING, Signal.UNDER_LIMITS): Transition(State.REQUEST_CONTINUATION, Step.SEND_CONTINUATION),
        (State.CONTINUE_PENDING, Signal.LIMIT_REACHED): _KEEP,
        (State.REQUEST_CONTINUATION, Signal.RESPONSE): _EVALUATE,
        (State.REQUEST_CONTINUATION, Signal.PREFILL_REFUSED): Transition(
            State.CONTINUE_PENDING, Step.CHECK_CONTINUATION
        ),
        (State.REQUEST_CONTINUATION, Signal.FAILED): _KEEP,
        (State.REQUEST_CONTINUATION, Signal.INTERRUPTED): _KEEP,
        #
        (State.RESUME_PENDING, Signal.UNDER_LIMITS): Transition(State.RESUME_UNCHANGED, Step.SEND_RESUME),
        (State.RESUME_PENDING, Signal.LIMIT_REACHED): _KEEP,
        (State.RESUME_UNCHANGED, Signal.RESPONSE): _EVALUATE,
        (State.RESUME_UNCHANGED, Signal.FAILED): _KEEP,
        (State.RESUME_UNCHANGED, Signal.INTERRUPTED): _KEEP,
        #
        (State.REPAIR_PENDING, Signal.UNDER_LIMITS): Transition(State.REPAIR, Step.SEND_REPAIR),
        (State.REPAIR_PENDING, Signal.LIMIT_REACHED): _KEEP,
        (State.REPAIR, Signal.RESPONSE): _EVALUATE,
        (State.REPAIR, Signal.FAILED): _KEEP,
        (State.REPAIR, Signal.INTERRUPTED): _KEEP,
        #
        (State.ASK_AGAIN_PENDING, Signal.UNDER_LIMITS): Transition(State.ASK_AGAIN, Step.SEND_AGAIN),
        (State.ASK_AGAIN_PENDING, Signal.LIMIT_REACHED): _KEEP,
        (State.ASK_AGAIN, Signal.RESPONSE): _EVALUATE,
        (State.ASK_AGAIN, Signal.FAILED): _KEEP,
        (State.ASK_AGAIN, Signal.INTERRUPTED): _KEEP,
        #
        (State.ITERATE_PENDING, Signal.UNDER_LIMITS): INITIAL,
        (State.ITERATE_PENDING, Signal.LIMIT_REACHED): _KEEP,
        #
        (State.ABORT_PARTIAL, Signal.RETURNED): _COMPLETE,
    }
)


class Machine:
    """One turn's place in the table."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: State = INITIAL.state

    def on(self, signal: Signal) -> Step:
        """Follow a signal; returns what is to be done now.

        Raises:
            IllegalTransition: this state does not know the signal. Nothing was changed.
        """
        found = TRANSITIONS.get((self.state, signal))
        if found is None:
            known = ", ".join(repr(row.value) for state, row in TRANSITIONS if state is self.state) or "no signal"
            raise IllegalTransition(f"{self.state.value!r} does not know {signal.value!r}; it knows {known}")
        self.state = found.state
        return found.step


OUTCOMES: Final[Mapping[Signal, TurnOutcome]] = MappingProxyType(
    {
        Signal.END_TURN: TurnOutcome.COMPLETED,
        Signal.HAND_OVER: TurnOutcome.COMPLETED,
        Signal.FINISHED: TurnOutcome.COMPLETED,
        Signal.IMPLICIT: TurnOutcome.IMPLICIT_COMPLETION,
        Signal.EMPTY: TurnOutcome.EMPTY_RESPONSE,
        Signal.INVALID_JSON: TurnOutcome.INVALID_JSON,
        Signal.CONTEXT_WINDOW_EXCEEDED: TurnOutcome.CONTEXT_WINDOW_EXCEEDED,
        Signal.SAFETY_BLOCKED: TurnOutcome.SAFETY_BLOCKED,
        Signal.REFUSED: TurnOutcome.REFUSED,
        Signal.REPAIR_REFUSED: TurnOutcome.TOOL_REPAIR_FAILED,
        Signal.REPEATED: TurnOutcome.REPETITION,
        Signal.NO_PROGRESS: TurnOutcome.NO_PROGRESS,
        Signal.UNKNOWN: TurnOutcome.UNKNOWN_REASON,
        Signal.MISSING: TurnOutcome.STREAM_CUT,
        Signal.ERROR: TurnOutcome.PROVIDER_ERROR,
        Signal.FAILED: TurnOutcome.PROVIDER_ERROR,
        Signal.CANCELLED: TurnOutcome.CANCELLED,
        Signal.INTERRUPTED: TurnOutcome.CANCELLED,
    }
)
"""What a turn's outcome is when this signal ended it. `limit_reached` brings its own."""
