"""Evaluation of a response: its signal to the machine, and its part of the turn's history."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final, assert_never

from endturn.calls import Strategy, TurnOutcome
from endturn.continuation import machine, refused_prefills, termination
from endturn.continuation.answer_text import declines
from endturn.continuation.continuation_request import (
    cancel_prefill,
    log_not_continued,
    resumption_after,
)
from endturn.continuation.machine import Signal
from endturn.continuation.phases import (
    Decision,
    Dispatching,
    Ended,
    Paused,
    Phase,
    Repairing,
    Responded,
    Retrying,
    Trivial,
    Truncated,
)
from endturn.continuation.termination import FUNCTIONS, Finish, Mode
from endturn.continuation.text_heuristics import ends_sentence, is_blank, loop_start, open_fence
from endturn.continuation.thinking import without_thinking
from endturn.continuation.tool_gate import Refused, Repair, ReportErrors, RunCalls, Verdict, judge
from endturn.continuation.turn_reports import count_response, report_calls
from endturn.continuation.turn_state import TurnState, limited
from endturn.formats import strict
from endturn.vocabulary import ChatResponse, Request, Resume, Stop, StopReason, ToolCall

log = logging.getLogger("endturn")


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The meaning of a response to the turn.

    Attributes:
        signal: to the machine.
        finish: the model's explicit end of the turn.
        retry: the same request for a retry, and the outcome if it may not be sent.
    """

    signal: Signal
    finish: Finish | None = None
    retry: tuple[Request, TurnOutcome] | None = None


def evaluate(state: TurnState, latest: Responded) -> Decision:
    """Judge, count and record a response. Returns its signal and the next phase."""
    response, call = latest.response, latest.call
    added = state.record.text.added
    signal, verdict = _judge(state, latest)
    count_response(state, latest, signal, added)
    report_calls(state, latest, signal, verdict)
    loop = None
    stall: TurnOutcome | None = None
    if _is_thinking(response):
        stall = TurnOutcome.REASONING_EXHAUSTED
    elif signal is Signal.MAX_TOKENS and (loop := loop_start(response.text)) is not None:
        stall = TurnOutcome.REPETITION
    elif is_blank(added):
        stall = TurnOutcome.NO_PROGRESS
    if call.strategy is Strategy.PREFILL and _is_prefill_ignored(state, latest, signal, stall):
        return Signal.PREFILL_REFUSED, cancel_prefill(state, call)

    meaning = _meaning(state, latest, signal, verdict, stall)
    signal = meaning.signal
    unrecorded = call.unrecorded
    if declines(response, call.strategy):
        state.record.text.discard_latest()
        unrecorded = unrecorded.without_nudges()
    elif _is_superseded(latest, signal):
        unrecorded = unrecorded.supersede(response)
    else:
        text = None if loop is None else response.text[:loop]
        unrecorded = state.record.enter(unrecorded, response, _recorded_calls(verdict), text=text)
    repair_calls = call.repair_calls
    if signal is Signal.GATE_REFUSED:
        repair_calls = tuple(tool_call.name for tool_call in response.tool_calls) or repair_calls
    latest = replace(
        latest, call=replace(call, issue=None, unrecorded=unrecorded, repair_calls=repair_calls)
    )
    return signal, _next_phase(state, latest, meaning, verdict, stall)


def _next_phase(
    state: TurnState,
    latest: Responded,
    meaning: _Meaning,
    verdict: Verdict | None,
    stall: TurnOutcome | None,
) -> Phase:
    """Return the phase that a recorded response leads to."""
    match meaning.signal:
        case Signal.MAX_TOKENS:
            return Truncated(latest, stall)
        case Signal.GATE_REFUSED:
            return Repairing(
                latest, verdict.issue if isinstance(verdict, Repair) else "incomplete_json"
            )
        case Signal.PAUSED:
            return Paused(latest)
        case Signal.TRIVIAL:
            return Trivial(latest)
        case Signal.WORTHLESS:
            assert meaning.retry is not None
            return Retrying(latest, *meaning.retry)
        case Signal.TOOL_CALL | Signal.INVALID_CALLS:
            assert isinstance(verdict, RunCalls | ReportErrors)
            return Dispatching(latest, verdict)
        case Signal.MISSING | Signal.LIMIT_REACHED:
            resumption = resumption_after(state, latest)
        case _:
            resumption = None
    outcome = machine.OUTCOMES.get(meaning.signal, TurnOutcome.CHAR_BUDGET)
    return Ended.after(
        latest,
        outcome,
        finish=meaning.finish,
        calls=verdict.calls if isinstance(verdict, RunCalls) else (),
        issue=verdict.issue if isinstance(verdict, Repair) else None,
        resumption=resumption,
    )


# --- The tool gate --------------------------------------------------------------------------------


def _judge(state: TurnState, latest: Responded) -> tuple[Signal, Verdict | None]:
    """Judge a response's tool calls. Returns a first signal, and the gate's verdict."""
    terms, policy, response = state.terms, state.terms.policy, latest.response
    runnable = terms.setup.runnable
    # If the format has no stop reason for tool calls, every call is promoted.
    reasons = (row.reason for rows in terms.setup.format.reasons.values() for row in rows.values())
    names_calls = StopReason.TOOL_CALL in reasons
    verdict = judge(
        response,
        terms.tools,
        runnable=runnable,
        dispatch=policy.dispatch,
        suspect_full_budget=policy.suspect_full_budget,
        promote=policy.promote or not names_calls,
    )
    if latest.is_overlong and response.stop.reason in _LIMITED_REASONS:
        log_not_continued(TurnOutcome.CHAR_BUDGET)
        return Signal.LIMIT_REACHED, Refused("truncated") if response.tool_calls else None
    is_empty_promise = isinstance(verdict, Repair) and verdict.issue == "no_calls"
    if is_empty_promise and not policy.continuation_tool_repair_attempts:
        # Calls were announced, none arrived, and none may be requested: only the text counts.
        return Signal.END_TURN if _answer(state, response).strip() else Signal.EMPTY, verdict
    signal = classify(
        response.stop,
        verdict,
        repairing=latest.call.strategy is Strategy.REPAIR,
        hand_over=runnable is None,
        drop=policy.on_cut_call == "drop",
    )
    if signal in (Signal.TOOL_CALL, Signal.INVALID_CALLS) and state.dispatched.refuses(response):
        return Signal.REPEATED, Refused("repeated")
    return signal, verdict


_LIMITED_REASONS: Final = frozenset(
    {StopReason.MAX_TOKENS, StopReason.END_TURN, StopReason.TOOL_CALL, StopReason.PAUSED}
)
"""Stop reasons of an overlong response that end the turn at its limit."""


def classify(
    stop: Stop,
    verdict: Verdict | None,
    *,
    repairing: bool = False,
    hand_over: bool = False,
    drop: bool = False,
) -> Signal:
    """Classify a response by its stop reason and the gate's verdict; return the signal.

    Args:
        stop: why the response ended.
        verdict: None for a response that holds no calls and promised none.
        repairing: the response answers a repair: if it is truncated, it counts as a refused
            payload, whatever it holds, and a refusal or a filter's block refuses the repair, not
            the turn.
        hand_over: the host runs its tools itself.
        drop: the calls of a truncated response are not requested again; only its text counts.
    """
    reason = stop.reason
    match verdict:
        case RunCalls():
            return Signal.HAND_OVER if hand_over else Signal.TOOL_CALL
        case ReportErrors():
            return Signal.INVALID_CALLS
        case Repair() if not (drop and reason is StopReason.MAX_TOKENS):
            return Signal.GATE_REFUSED
        case Refused() if stop.promoted_from is not None:
            reason = stop.promoted_from  # the reason for the text alone: the calls do not count
        case Repair() | Refused() | None:
            pass
        case _:
            assert_never(verdict)
    if reason is StopReason.TOOL_CALL:  # calls were announced, none arrived
        return Signal.GATE_REFUSED
    if repairing and reason in (StopReason.MAX_TOKENS, StopReason.MISSING):
        return Signal.GATE_REFUSED
    if repairing and reason in (StopReason.REFUSED, StopReason.SAFETY_BLOCKED):
        return Signal.REPAIR_REFUSED
    return Signal(reason.value)


def _recorded_calls(verdict: Verdict | None) -> tuple[ToolCall, ...]:
    """Return the calls to record for a response: those that are run or answered."""
    match verdict:
        case RunCalls():
            return verdict.calls
        case ReportErrors():
            return tuple(call for call, _ in verdict.errors)
        case _:
            return ()


# --- Value of an answer ---------------------------------------------------------------------------


def _meaning(
    state: TurnState,
    latest: Responded,
    signal: Signal,
    verdict: Verdict | None,
    stall: TurnOutcome | None,
) -> _Meaning:
    """Return the meaning of a response, by its request and the text that it added."""
    if signal is Signal.END_TURN:
        return _meaning_of_ended(state, latest, stall)
    if signal is Signal.MAX_TOKENS:
        return _meaning_of_truncated(state, latest.call.request, stall)
    if signal is Signal.HAND_OVER and isinstance(verdict, RunCalls):
        return _Meaning(signal, termination.first_finish(verdict.calls, state.terms.policy.mode))
    return _Meaning(signal)


def _meaning_of_ended(state: TurnState, latest: Responded, stall: TurnOutcome | None) -> _Meaning:
    """Return the meaning of an answer that ended by itself."""
    strategy, text = latest.call.strategy, _answer(state, latest.response)
    if state.terms.is_json and not _is_json(text):
        return _Meaning(Signal.INVALID_JSON)
    if stall:
        if strategy is Strategy.REPAIR:
            return _Meaning(Signal.REPAIR_REFUSED)
        is_rest = strategy in (Strategy.PROMPT, Strategy.PREFILL)
        if is_rest and not state.record.text.restated and _is_torn(state):
            return _Meaning(Signal.NO_PROGRESS)
    mode = state.terms.policy.mode
    return (
        _Meaning(Signal.END_TURN)
        if mode is None
        else _meaning_without_signal(state, mode, strategy, text)
    )


def _is_prefill_ignored(
    state: TurnState, latest: Responded, signal: Signal, stall: TurnOutcome | None
) -> bool:
    """Return whether the model did not continue the prefill, so that another strategy is needed.

    A response that repeats the prefill before it continues can be used, but the model is
    remembered.
    """
    text = state.record.text
    can_prompt = Strategy.PROMPT in state.terms.policy.continuation_strategies
    if not can_prompt or signal not in (Signal.MAX_TOKENS, Signal.END_TURN):
        return False
    if latest.call.previous is None or latest.response.tool_calls:
        return False
    if text.restated:
        refused_prefills.remember(state.terms.setup.target(state.terms.base.model))
    if text.is_restarted_prefill or not stall or text.added:  # the white space was released already
        return text.is_restarted_prefill
    if signal is Signal.MAX_TOKENS or stall is TurnOutcome.REASONING_EXHAUSTED:
        return True
    return not text.restated and _is_torn(state)


def _is_torn(state: TurnState) -> bool:
    """Return whether the answer so far ended within a sentence or a code block."""
    text = state.record.text
    earlier_text = text.answer.removesuffix(text.added)
    return not ends_sentence(earlier_text) or open_fence(earlier_text) is not None


def _is_thinking(response: ChatResponse) -> bool:
    """Return whether a response is only thinking, separate from its text or inside it."""
    if is_blank(response.text):
        return bool(response.reasoning or (response.usage and response.usage.reasoning_tokens))
    return is_blank(without_thinking(response.text, response.reasoning))


def _meaning_of_truncated(
    state: TurnState, request: Request, stall: TurnOutcome | None
) -> _Meaning:
    """Return the meaning of a truncated answer; for some requests its beginning is worthless."""
    terms, policy = state.terms, state.terms.policy
    if (
        terms.is_json
        and terms.capability.json
        and policy.json_reask
        and policy.continuation_max_attempts
    ):
        # Models continue half a JSON text badly; a complete one fits, or does not.
        if not terms.holds_json:  # the consumer has already received it
            return _Meaning(Signal.INVALID_JSON)
        return _Meaning(
            Signal.WORTHLESS, retry=(_with_all_tokens(state, request), TurnOutcome.INVALID_JSON)
        )
    if stall is TurnOutcome.REASONING_EXHAUSTED:
        retry = _with_less_thinking(state, request)
        if retry is not None:
            return _Meaning(Signal.WORTHLESS, retry=(retry, TurnOutcome.REASONING_EXHAUSTED))
    return _Meaning(Signal.MAX_TOKENS)


def _with_all_tokens(state: TurnState, request: Request) -> Request:
    """Return the same request with all remaining output tokens."""
    remaining, limit = state.limits.tokens_left, state.terms.output_limit
    if remaining is None and limit is not None:
        remaining = 4 * limit  # without a budget, the same limit would truncate it again
    return limited(request, remaining)


def _with_less_thinking(state: TurnState, request: Request) -> Request | None:
    """Return the same request with room for an answer; None if the policy does not allow it."""
    reasoning_off = state.terms.capability.reasoning_off
    match state.terms.policy.on_reasoning_only:
        case "escalate_once":
            limit = 4 * (state.terms.output_limit or state.record.counters.ceiling or 0) or None
            return limited(request, limit)
        case "reasoning_off_once" if reasoning_off:
            return request.but(extra={**request.extra, **reasoning_off})
        case _:
            return None


def _meaning_without_signal(
    state: TurnState, mode: Mode, strategy: Strategy | None, text: str
) -> _Meaning:
    """Return the meaning of an answer without calls in a turn that a tool should end."""
    if state.terms.policy.text_signals:
        finish = termination.finish_in_text(text, mode)
        if finish is not None:
            return _Meaning(Signal.FINISHED, finish)
    elif termination.names_tool(text, mode):
        names = " or ".join(FUNCTIONS[mode])
        log.debug("the answer contains %s as text, but did not call it; see text_signals", names)
    if not state.terms.offers_end:
        return _Meaning(Signal.END_TURN)
    if state.guard is None:
        return _Meaning(Signal.END_TURN if text.strip() else Signal.EMPTY)
    finish = state.guard.see(text)
    if finish is None:
        if state.may_be_trivial(strategy):
            return _Meaning(Signal.TRIVIAL)
        finish = Finish(termination.IMPLICIT if text.strip() else termination.EMPTY, "no_action")
    if finish.signal == termination.EMPTY:
        return _Meaning(Signal.EMPTY)
    return _Meaning(Signal.IMPLICIT, finish)


def _answer(state: TurnState, response: ChatResponse) -> str:
    """Return the answer so far; if it was held back, the text of the latest response."""
    return state.record.text.answer or response.text


def _is_superseded(latest: Responded, signal: Signal) -> bool:
    """Return whether a later response replaces this one, if the turn goes on."""
    stop, strategy = latest.response.stop, latest.call.strategy
    is_fetched = signal is Signal.PAUSED and stop.resume is Resume.RETRIEVE_SAME_ID
    is_lost = signal is Signal.MISSING and strategy is Strategy.RETRIEVE
    return (
        signal in (Signal.WORTHLESS, Signal.TRIVIAL, Signal.CONTEXT_WINDOW_EXCEEDED)
        or is_fetched
        or is_lost
    )


def _is_json(text: str) -> bool:
    """Return whether an answer is strict JSON, without a code fence."""
    try:
        strict(text)
    except ValueError:
        return False
    return True
