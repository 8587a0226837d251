"""The transition table: every pair of state and signal, and the signals of responses."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from endturn.calls.outcomes import TurnOutcome
from endturn.continuation.evaluation import classify
from endturn.continuation.limits import Counters, Limits
from endturn.continuation.machine import FINAL, INITIAL, OUTCOMES, TRANSITIONS, Machine, Signal, State
from endturn.continuation.policy import ContinuationPolicy
from endturn.errors import IllegalTransition
from endturn.vocabulary.stop import Resume, Stop, StopReason


@pytest.mark.parametrize(("state", "signal"), list(product(State, Signal)), ids=lambda value: value.value)
def test_every_pair_of_state_and_signal(state: State, signal: Signal) -> None:
    """A pair has a row, or it is illegal: then it raises, and the state stays the same."""
    machine = Machine()
    machine.state = state
    leads_to = TRANSITIONS.get((state, signal))
    if leads_to is None:
        known = ", ".join(repr(other.value) for origin, other in TRANSITIONS if origin is state) or "no signal"
        with pytest.raises(IllegalTransition) as raised:
            machine.on(signal)
        assert str(raised.value) == f"{state.value!r} has no transition for {signal.value!r}; it has: {known}"
        assert machine.state is state
    else:
        assert machine.on(signal) is machine.state is leads_to


DIAGRAM = """
    Request              provider_response → EvaluateStop
    EvaluateStop         end_turn → Complete · tool_call → ExecuteTools · max_tokens → ContinuePending
    EvaluateStop         paused → ResumePending
    EvaluateStop         safety_blocked → Abort · context_window_exceeded → Abort · unknown → Abort · refused → Abort
    EvaluateStop         missing → AbortPartial · error → AbortPartial · cancelled → AbortPartial
    EvaluateStop         gate_refused → RepairPending
    ContinuePending      under_limits → RequestContinuation · limit_reached → AbortPartial
    RequestContinuation  provider_response → EvaluateStop
    AbortPartial         return_partial_with_notice → Complete
    ExecuteTools         tool_results_appended → Request
    RepairPending        under_limits → Repair
    Repair               provider_response → EvaluateStop
    ResumePending        under_limits → ResumeUnchanged
    ResumeUnchanged      provider_response → EvaluateStop
"""
"""The source design's diagram, and the contract's."""


def test_the_source_designs_diagram_is_in_the_table() -> None:
    """Every arrow is a row."""
    for line in DIAGRAM.strip().splitlines():
        state, arrows = line.split(maxsplit=1)
        for arrow in arrows.split(" · "):
            signal, leads_to = arrow.split(" → ")
            assert TRANSITIONS[State(state), Signal(signal)] is State(leads_to)


PENDING = {state for state in State if state.value.endswith("Pending")}
CALLING = {State.REQUEST, State.REQUEST_CONTINUATION, State.RESUME_UNCHANGED, State.REPAIR, State.ASK_AGAIN}
LEAVE = {Signal.UNDER_LIMITS, Signal.RESULTS_APPENDED}
"""The signals that are given only after a limit was asked about."""


def known(state: State) -> dict[Signal, State]:
    """Return the next state for each legal signal of a state."""
    return {signal: leads_to for (origin, signal), leads_to in TRANSITIONS.items() if origin is state}


def leading(*states: State) -> set[tuple[State, Signal]]:
    """Return the rows that lead to these states."""
    return {row for row, leads_to in TRANSITIONS.items() if leads_to in states}


def test_the_shape_of_the_table() -> None:
    """Every state except the final two has a successor, every state can be reached, every signal is used.

    Four reasons make an answer worthless; tools are run only after the gate.
    """
    assert {state for state, _ in TRANSITIONS} == set(State) - FINAL
    assert {*TRANSITIONS.values(), INITIAL} == set(State)
    assert {signal for _, signal in TRANSITIONS} == set(Signal)
    worthless = {Signal.CONTEXT_WINDOW_EXCEEDED, Signal.SAFETY_BLOCKED, Signal.REFUSED, Signal.UNKNOWN}
    assert leading(State.ABORT) == {(State.EVALUATE_STOP, signal) for signal in worthless}
    gated = {Signal.TOOL_CALL, Signal.INVALID_CALLS}
    assert leading(State.EXECUTE_TOOLS) == {(State.EVALUATE_STOP, signal) for signal in gated}


def test_every_call_after_the_first_passes_a_limit_check() -> None:
    """A pending state has two signals; every answer is evaluated.

    Only a continuation can have its strategy refused, and then uses another one.
    """
    for state in PENDING:
        assert known(state).keys() == {Signal.UNDER_LIMITS, Signal.LIMIT_REACHED}
        assert known(state)[Signal.UNDER_LIMITS] in CALLING
        assert known(state)[Signal.LIMIT_REACHED] is State.ABORT_PARTIAL
    ends = dict.fromkeys((Signal.PROVIDER_ERROR, Signal.INTERRUPTED), State.ABORT_PARTIAL)
    for state in CALLING:
        own = {Signal.PREFILL_REFUSED: State.CONTINUE_PENDING} if state is State.REQUEST_CONTINUATION else {}
        assert known(state) == {Signal.RESPONSE: State.EVALUATE_STOP, **ends, **own}
    assert {signal for _, signal in leading(*CALLING)} == LEAVE


def test_every_run_ends_without_a_permitted_call() -> None:
    """No state can be reached again without a limit check, so limits that end, end every turn."""
    rows = [(state, leads_to) for (state, signal), leads_to in TRANSITIONS.items() if signal not in LEAVE]
    for start in State:
        found: set[State] = set()
        while more := {leads_to for state, leads_to in rows if state is start or state in found} - found:
            found |= more
        assert start not in found
        assert start in FINAL or found & FINAL


@pytest.mark.behaviour(12)
@pytest.mark.parametrize("reason", StopReason, ids=lambda value: value.value)
def test_every_reason_is_classified(reason: StopReason) -> None:
    """A reason is its own signal, except if it announced calls that did not arrive; only max_tokens is continued."""
    signal = classify(Stop(reason), None)
    assert signal.value == ("gate_refused" if reason is StopReason.TOOL_CALL else reason.value)
    follows = TRANSITIONS[State.EVALUATE_STOP, signal]
    assert (follows is State.CONTINUE_PENDING) == (reason is StopReason.MAX_TOKENS)


def test_every_signal_that_ends_a_turn_has_an_outcome() -> None:
    """Every signal from a response or call directly to an end has an outcome."""
    ends = {State.COMPLETE, State.ABORT, State.ABORT_PARTIAL}
    own = {Signal.LIMIT_REACHED, Signal.RETURNED}
    assert {s for (_, s), leads_to in TRANSITIONS.items() if leads_to in ends} - own == set(OUTCOMES)


# --- Limits -------------------------------------------------------------------------------------------------------


def limits(counters: Counters, *, elapsed_s: float = 0, thinking: int = 0, **policy: Any) -> Limits:
    """Return the limits of a turn with this usage of a policy."""
    return Limits(ContinuationPolicy(**policy), counters, lambda: elapsed_s, thinking=thinking)


USED = [json.loads(line) for line in Path(__file__).with_name("used.jsonl").read_text("utf-8").splitlines()]
"""What a turn has used, and with which outcome it ends there instead of going on."""


@pytest.mark.behaviour(17)
@pytest.mark.parametrize("row", USED, ids=lambda row: row["why"])
def test_the_limits_of_a_continuation(row: dict[str, Any]) -> None:
    """Attempts, tokens and characters each end a turn at their limit and not before."""
    allowed = limits(Counters(**row["used"]), thinking=row.get("thinking", 0))
    assert allowed.before_continuation() == row["outcome"]


@pytest.mark.parametrize(("elapsed_s", "late"), [(9.9, False), (10.0, True)])
def test_the_deadline_holds_for_every_further_call(elapsed_s: float, late: bool) -> None:
    """At the deadline no continuation, repair, resume or iteration begins."""
    allowed = limits(Counters(ceiling=1000), elapsed_s=elapsed_s, deadline_s=10)
    expected = TurnOutcome.DEADLINE if late else None
    assert allowed.before_continuation() is expected
    assert allowed.before_repair() is expected
    assert allowed.before_resume(Resume.RESEND_UNCHANGED) is expected
    assert allowed.before_iteration() is expected
