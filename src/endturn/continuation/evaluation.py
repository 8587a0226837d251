"""What a response signals to the machine, and what of it enters the turn."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final, assert_never

from endturn.chat import ChatResponse, Request, ToolCall
from endturn.continuation import machine, result, termination
from endturn.continuation.answer_text import declines
from endturn.continuation.continuation_request import log_given_up, onward
from endturn.continuation.limits import COUNTED, measured
from endturn.continuation.machine import Signal
from endturn.continuation.termination import FUNCTIONS, Finish, Mode
from endturn.continuation.text_heuristics import ends_sentence, is_blank, loop_start, open_fence
from endturn.continuation.tool_gate import Answer, Refused, Repair, Run, Verdict, judge
from endturn.continuation.turn_state import TurnState, limited
from endturn.events import DispatchBlocked, PayloadRepaired, Strategy, TurnOutcome, UsageEstimated
from endturn.formats.reading import strict
from endturn.stop import Resume, Stop, StopReason

log = logging.getLogger("endturn")


def evaluate(state: TurnState) -> Signal:
    """Judge the latest response, record it and what it has used, and say what it means."""
    response = state.last
    signal = _gated(state, response)
    _count(state, response, signal)
    _report_calls(state, response, signal)
    loop = loop_start(response.text) if signal is Signal.MAX_TOKENS else None
    state.gained_nothing = TurnOutcome.REPETITION if loop is not None else None
    if loop is None and is_blank(state.text.added):
        reasoned = response.reasoning or (response.usage and response.usage.reasoning_tokens)
        state.gained_nothing = TurnOutcome.REASONING_EXHAUSTED if reasoned else TurnOutcome.NO_PROGRESS
    if signal is Signal.END_TURN:
        signal = _ended(state)
    elif signal is Signal.MAX_TOKENS:
        signal = _cut(state)
    elif signal is Signal.HAND_OVER and isinstance(state.verdict, Run):
        state.finish = termination.signalled(state.verdict.calls, state.policy.mode)
    if declines(response, state.strategy):
        state.text.put_aside()
        state.forget_pending()
    elif _is_passing(state, signal):
        state.let_pass(response)
    else:
        state.enter(response, _kept(state.verdict), text=None if loop is None else response.text[:loop])
    state.outcome = machine.OUTCOMES.get(signal, state.outcome)
    if signal in (Signal.MISSING, Signal.LIMIT_REACHED):
        state.resumption = onward(state)
    return signal


# --- The gate's word ----------------------------------------------------------------------------------------------


def _gated(state: TurnState, response: ChatResponse) -> Signal:
    """Put a response's calls through the gate."""
    runnable, policy = state.setup.runnable, state.policy
    # Where the format has no reason of its own for a tool call, every call is a promoted one.
    words = (row.reason for rows in state.setup.format.reasons.values() for row in rows.values())
    names_calls = StopReason.TOOL_CALL in words
    state.verdict = judge(
        response,
        state.tools,
        runnable=runnable,
        dispatch=policy.dispatch,
        suspect_full_budget=policy.suspect_full_budget,
        promote=policy.promote or not names_calls,
    )
    if state.overflowed and response.stop.reason in _OVERFLOWS:
        state.outcome, state.verdict = TurnOutcome.CHAR_BUDGET, Refused("truncated") if response.tool_calls else None
        log_given_up(state.outcome)
        return Signal.LIMIT_REACHED
    is_empty_promise = isinstance(state.verdict, Repair) and state.verdict.issue == "no_calls"
    if is_empty_promise and not policy.continuation_tool_repair_attempts:
        # Calls were announced, none came, and none may be asked for: the text is all there is.
        return Signal.END_TURN if state.answer_text.strip() else Signal.EMPTY
    signal = classify(
        response.stop,
        state.verdict,
        repairing=state.strategy is Strategy.REPAIR,
        hand_over=runnable is None,
        drop=policy.on_cut_call == "drop",
    )
    if signal in (Signal.TOOL_CALL, Signal.INVALID_CALLS) and _is_one_too_many(state, response.tool_calls):
        state.verdict = Refused("repeated")
        return Signal.REPEATED
    return signal


_OVERFLOWS: Final = frozenset({StopReason.MAX_TOKENS, StopReason.END_TURN, StopReason.TOOL_CALL, StopReason.PAUSED})
"""The reasons of a response that was longer than what may be kept that would have led on, or to the end."""


def classify(
    stop: Stop, verdict: Verdict | None, *, repairing: bool = False, hand_over: bool = False, drop: bool = False
) -> Signal:
    """What a response means to the machine by its reason and the gate's verdict.

    Args:
        verdict: None for a response that holds no calls and promised none.
        repairing: the response answers a repair: a cut one is then a refused payload, whatever it holds, and a
            refusal or a filter's block refuses the repair, not the turn.
        hand_over: the host runs its tools itself.
        drop: the calls of a cut response are not asked for again; its text is what counts.
    """
    reason = stop.reason
    match verdict:
        case Run():
            return Signal.HAND_OVER if hand_over else Signal.TOOL_CALL
        case Answer():
            return Signal.INVALID_CALLS
        case Repair() if not (drop and reason is StopReason.MAX_TOKENS):
            return Signal.GATE_REFUSED
        case Refused() if stop.promoted_from is not None:
            reason = stop.promoted_from  # the calls are not to count, and without them it said this
        case Repair() | Refused() | None:
            pass
        case _:
            assert_never(verdict)
    if reason is StopReason.TOOL_CALL:  # calls were promised, none came
        return Signal.GATE_REFUSED
    if repairing and reason in (StopReason.MAX_TOKENS, StopReason.MISSING):
        return Signal.GATE_REFUSED
    if repairing and reason in (StopReason.REFUSED, StopReason.SAFETY_BLOCKED):
        return Signal.REPAIR_REFUSED
    return Signal(reason.value)


def _is_one_too_many(state: TurnState, calls: Sequence[ToolCall]) -> bool:
    """Whether the same calls were run as often in a row as the policy allows."""
    batch = sorted(_as_text(call) for call in calls)
    before, times = state.same
    state.same = batch, times + 1 if batch == before else 1
    most = state.policy.max_identical_calls
    return most is not None and state.same[1] > most


def _as_text(call: ToolCall) -> str:
    """The same for the same arguments, however they are written."""
    given = call.arguments_raw if call.arguments is None else json.dumps(call.arguments, sort_keys=True)
    return f"{call.name} {given}"


# --- What is counted and announced --------------------------------------------------------------------------------


def _count(state: TurnState, response: ChatResponse, signal: Signal) -> None:
    """Count what a response has used; of one that was cut, or made for one that was, against the budgets too."""
    response, counters, turn = response.but(usage=state.reported), state.counters, state.turn
    sent = state.sent if state.sent.max_tokens is not None else state.sent.but(max_tokens=state.maximum)
    usage, guessed = measured(response, sent)
    state.spend(usage)
    if guessed is not None:  # it stands for the provider's own figure from here on
        turn.input_tokens += guessed.input_tokens or 0
        turn.output_tokens += guessed.output_tokens or 0
        turn.estimated = True
        state.emit(UsageEstimated, usage=guessed, continues=state.strategy is not None)
    if state.strategy in COUNTED or signal in (Signal.MAX_TOKENS, Signal.GATE_REFUSED):
        counters.ceiling = counters.ceiling or state.maximum or usage.output_tokens or None
        counters.tokens += usage.output_tokens or 0
        counters.chars += len(state.text.added)


def _report_calls(state: TurnState, response: ChatResponse, signal: Signal) -> None:
    """Say how a repair went, and which calls are not run."""
    verdict, repairing = state.verdict, state.strategy is Strategy.REPAIR
    if repairing:
        lost = Counter(state.wanted) - Counter(call.name for call in response.tool_calls)
        if isinstance(verdict, Run) and lost:
            state.unmade = result.NOT_ALL_CALLS
            named = ", ".join(name for name in lost if name in state.tools) or "unknown tools"
            log.warning(
                "[repair] %d tool calls were cut off, and not made when asked for again: %s", lost.total(), named
            )
        report_repair(state, attempted=True, succeeded=isinstance(verdict, Run) and not lost)
    if isinstance(verdict, Run) and state.unmade == result.ANSWERED_IN_WORDS:
        state.unmade = None
    if signal is Signal.GATE_REFUSED:
        state.issue = verdict.issue if isinstance(verdict, Repair) else "incomplete_json"
        state.wanted = tuple(call.name for call in response.tool_calls) or state.wanted
    blocked: Sequence[ToolCall] = response.tool_calls
    if isinstance(verdict, Run):  # of a cut response those run that came; see `any_parsed`
        ran = {call.id for call in verdict.calls}
        blocked, reason = [call for call in response.tool_calls if call.id not in ran], "truncated"
    elif repairing and signal in (Signal.GATE_REFUSED, Signal.REPAIR_REFUSED):
        reason = "repair_failed"
    else:
        reason = "not_a_tool_call" if verdict is None else verdict.reason
    if blocked:
        state.emit(DispatchBlocked, reason=reason, names=tuple(call.name for call in blocked))


def report_repair(state: TurnState, *, attempted: bool, succeeded: bool) -> None:
    """Say how it went with a payload that was to be repaired."""
    if state.issue is not None:
        state.emit(
            PayloadRepaired, issue=state.issue, calls=len(state.wanted), attempted=attempted, succeeded=succeeded
        )
    state.issue = None


# --- What an answer is worth --------------------------------------------------------------------------------------


def _ended(state: TurnState) -> Signal:
    """The signal of an answer that says that it is whole, where what was asked for changes what it is worth."""
    if state.is_json and not _is_json(state.answer_text):
        return Signal.INVALID_JSON
    is_rest = state.strategy in (Strategy.PROMPT, Strategy.PREFILL)
    if state.gained_nothing and (state.strategy is Strategy.REPAIR or (is_rest and _is_torn(state))):
        if state.turn.last_call is not None:
            state.turn.cut.add(state.turn.last_call)  # whole by its own word, it leaves a cut answer as it was
        return Signal.NO_PROGRESS if is_rest else Signal.REPAIR_REFUSED
    mode = state.policy.mode
    return Signal.END_TURN if mode is None else _unsignalled(state, mode)


def _is_torn(state: TurnState) -> bool:
    """Whether the answer before the latest response ended in the middle of a sentence, or of a code block."""
    before = state.text.answer.removesuffix(state.text.added)
    return not ends_sentence(before) or open_fence(before) is not None


def _cut(state: TurnState) -> Signal:
    """The signal of a cut answer: what was asked for may make its beginning worth nothing."""
    policy, response = state.policy, state.last
    if state.is_json and state.capability.json and policy.json_reask and policy.continuation_max_attempts:
        # Half a JSON text goes on badly, and the whole fits or does not.
        if not state.is_held:  # it was shown
            return Signal.INVALID_JSON
        state.retry = _whole(state), TurnOutcome.INVALID_JSON
        return Signal.WORTHLESS
    if state.gained_nothing is TurnOutcome.REASONING_EXHAUSTED and not response.text.strip():
        request = _less_thinking(state)
        if request is not None:
            state.retry = request, TurnOutcome.REASONING_EXHAUSTED
            return Signal.WORTHLESS
    return Signal.MAX_TOKENS


def _whole(state: TurnState) -> Request:
    """The same question, with all the output tokens that are left."""
    left, maximum = state.limits.tokens_left, state.maximum
    if left is None and maximum is not None:
        left = 4 * maximum  # no budget says how much; the same again would be cut again
    return limited(state.sent, left)


def _less_thinking(state: TurnState) -> Request | None:
    """The same question, asked so that something is left for an answer; None where the policy does not want it."""
    off = state.capability.reasoning_off
    match state.policy.on_reasoning_only:
        case "escalate_once":
            asked = 4 * (state.maximum or state.counters.ceiling or 0) or None
            return limited(state.sent, asked)
        case "reasoning_off_once" if off:
            return state.sent.but(extra={**state.sent.extra, **off})
        case _:
            return None


def _unsignalled(state: TurnState, mode: Mode) -> Signal:
    """What an answer without calls signals, in a turn that a tool is to end."""
    text = state.answer_text
    if state.policy.text_signals:
        state.finish = termination.signal_in(text, mode)
        if state.finish is not None:
            return Signal.FINISHED
    elif termination.names_tool(text, mode):
        named = " or ".join(FUNCTIONS[mode])
        log.debug("the answer contains %s as text, but did not call it; see text_signals", named)
    if not state.is_offered:
        return Signal.END_TURN
    if state.guard is None:
        return Signal.END_TURN if text.strip() else Signal.EMPTY
    finish = state.guard.see(text)
    if finish is None:
        if state.may_be_trivial:
            return Signal.TRIVIAL
        finish = Finish(termination.IMPLICIT if text.strip() else termination.EMPTY, "no_action")
    if finish.signal == termination.EMPTY:
        return Signal.EMPTY
    state.finish = finish
    return Signal.IMPLICIT


# --- What is kept -------------------------------------------------------------------------------------------------


def _is_passing(state: TurnState, signal: Signal) -> bool:
    """Whether a response leaves no trace in the history if the turn goes on: the whole of it comes again."""
    fetched = signal is Signal.PAUSED and state.last.stop.resume is Resume.RETRIEVE_SAME_ID
    lost = signal is Signal.MISSING and state.strategy is Strategy.RETRIEVE
    return signal in (Signal.WORTHLESS, Signal.TRIVIAL, Signal.CONTEXT_WINDOW_EXCEEDED) or fetched or lost


def _is_json(text: str) -> bool:
    """Whether an answer is the JSON that was asked for; a code fence around it is not."""
    try:
        strict(text)
    except ValueError:
        return False
    return True


def _kept(verdict: Verdict | None) -> tuple[ToolCall, ...]:
    """The calls of a response that its record may hold: those that are run, and those that are answered."""
    match verdict:
        case Run():
            return verdict.calls
        case Answer():
            return tuple(call for call, _ in verdict.errors)
        case _:
            return ()
