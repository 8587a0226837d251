"""What a response signals to the machine, and what of it enters the turn."""

from __future__ import annotations

from collections import Counter
from typing import Final

from endturn.chat import ChatResponse, Request, ToolCall
from endturn.continuation import asking, limits, machine, result, termination
from endturn.continuation.account import estimated
from endturn.continuation.limits import Progress
from endturn.continuation.machine import Signal
from endturn.continuation.part import declines
from endturn.continuation.text_heuristics import ends_sentence, is_blank, loop_start, open_fence
from endturn.continuation.standing import Again, Standing
from endturn.continuation.termination import Finish, Mode
from endturn.continuation.tool_gate import Answer, Refused, Repair, Run, Verdict, judge
from endturn.events import Strategy, TurnOutcome
from endturn.formats.reading import strict
from endturn.stop import Resume, StopReason


def evaluate(now: Standing) -> Signal:
    """Judge the latest response, record it and what it has used, and say what it means."""
    response, account = now.last, now.account
    signal = _gated(now, response)
    _count(now, response, signal)
    _tell(now, response, signal)
    loop = loop_start(response.text) if signal is Signal.MAX_TOKENS else None
    now.progress = Progress(
        visible=not is_blank(account.stitcher.added),
        reasoned=bool(response.reasoning or (response.usage and response.usage.reasoning_tokens)),
        repetitive=loop is not None,
    )
    signal = _worth(now, response, signal)
    if signal is Signal.END_TURN and now.terms.policy.mode is not None:
        signal = _unsignalled(now, now.terms.policy.mode)
    if signal is Signal.HAND_OVER and isinstance(now.verdict, Run):
        now.finish = termination.signalled(now.verdict.calls, now.terms.policy.mode)
    if declines(response, now.strategy):
        asking.leave_out(now)
        account.forget_pending()
    elif _is_passing(now, signal):
        account.let_pass(response)
    else:
        account.enter(response, _kept(now.verdict), text=None if loop is None else response.text[:loop])
    now.outcome = machine.OUTCOMES.get(signal, now.outcome)
    if signal in (Signal.MISSING, Signal.LIMIT_REACHED):
        now.resumption = asking.onward(now)
    return signal


def _gated(now: Standing, response: ChatResponse) -> Signal:
    """Put a response's calls through the gate."""
    terms, policy = now.terms, now.terms.policy
    now.verdict = judge(
        response,
        terms.tools,
        runnable=terms.runnable,
        dispatch=policy.dispatch,
        suspect_full_budget=policy.suspect_full_budget,
        promote=policy.promote or not terms.names_calls,
    )
    if now.overflowed and response.stop.reason in _OVERFLOWS:
        now.outcome, now.verdict = TurnOutcome.CHAR_BUDGET, Refused("truncated") if response.tool_calls else None
        now.voice.gave_up(now.outcome, allowed=True)
        return Signal.LIMIT_REACHED
    is_empty_promise = isinstance(now.verdict, Repair) and now.verdict.issue == "no_calls"
    if is_empty_promise and not policy.continuation_tool_repair_attempts:
        # Calls were announced, none came, and none may be asked for: the text is all there is.
        return Signal.END_TURN if now.answer_text.strip() else Signal.EMPTY
    signal = machine.classify(
        response.stop,
        now.verdict,
        repairing=now.strategy is Strategy.REPAIR,
        hand_over=terms.runnable is None,
        drop=policy.on_cut_call == "drop",
    )
    if signal in (Signal.TOOL_CALL, Signal.INVALID_CALLS) and now.is_one_too_many(response.tool_calls):
        now.verdict = Refused("repeated")
        return Signal.REPEATED
    return signal


_OVERFLOWS: Final = frozenset({StopReason.MAX_TOKENS, StopReason.END_TURN, StopReason.TOOL_CALL, StopReason.PAUSED})
"""The reasons of a response that was longer than what may be kept that would have led on, or to the end."""


def _count(now: Standing, response: ChatResponse, signal: Signal) -> None:
    """Count what a response has used; of one that was cut, or made for one that was, against the budgets too."""
    response, counters = response.but(usage=now.reported), now.account.counters
    usage = now.account.used(response)
    guessed = estimated(response, usage)
    if guessed is not None:
        now.voice.estimated(guessed, continues=now.strategy is not None)
    if now.strategy in limits.COUNTED or signal in (Signal.MAX_TOKENS, Signal.GATE_REFUSED):
        counters.ceiling = counters.ceiling or now.account.maximum or usage.output_tokens or None
        counters.tokens += usage.output_tokens or 0
        counters.chars += len(now.account.stitcher.added)


def _tell(now: Standing, response: ChatResponse, signal: Signal) -> None:
    """Say how a repair went, and which calls are not run."""
    verdict, repairing = now.verdict, now.strategy is Strategy.REPAIR
    if repairing:
        lost = Counter(now.wanted) - Counter(call.name for call in response.tool_calls)
        if isinstance(verdict, Run) and lost:
            now.unmade = result.NOT_ALL_CALLS
            now.voice.lost(sum(lost.values()), [name for name in lost if name in now.terms.tools])
        asking.repaired(now, attempted=True, succeeded=isinstance(verdict, Run) and not lost)
    if isinstance(verdict, Run) and now.unmade == result.ANSWERED_IN_WORDS:
        now.unmade = None
    if signal is Signal.GATE_REFUSED:
        now.issue = verdict.issue if isinstance(verdict, Repair) else "incomplete_json"
        now.wanted = tuple(call.name for call in response.tool_calls) or now.wanted
    if isinstance(verdict, Run):
        run = {call.id for call in verdict.calls}
        dropped = [call for call in response.tool_calls if call.id not in run]
        if dropped:  # of a cut response those run that came; see `any_parsed`
            now.voice.blocked("truncated", dropped)
    elif response.tool_calls:
        reason = verdict.reason if verdict is not None else "not_a_tool_call"
        failed = repairing and signal in (Signal.GATE_REFUSED, Signal.REPAIR_REFUSED)
        now.voice.blocked("repair_failed" if failed else reason, response.tool_calls)


def _worth(now: Standing, response: ChatResponse, signal: Signal) -> Signal:
    """The signal of a cut or complete answer, where what was asked for changes what it is worth."""
    if signal is Signal.END_TURN and now.terms.is_json and not _is_json(now.answer_text):
        return Signal.INVALID_JSON
    if signal is Signal.END_TURN and _adds_nothing(now):
        now.voice.unfinished()
        return Signal.NO_PROGRESS
    if signal is Signal.END_TURN and now.strategy is Strategy.REPAIR and not now.progress.visible:
        now.voice.unfinished()
        return Signal.REPAIR_REFUSED
    if signal is not Signal.MAX_TOKENS:
        return signal
    policy = now.terms.policy
    if now.terms.is_json and now.terms.capability.json and policy.json_reask and policy.continuation_max_attempts:
        # Half a JSON text goes on badly, and the whole fits or does not.
        if not now.terms.is_held:  # it was shown
            return Signal.INVALID_JSON
        now.again = Again(_whole(now), TurnOutcome.INVALID_JSON)
        return Signal.WORTHLESS
    if now.progress.reasoned and not now.progress.visible and not response.text.strip():
        request = _less_thinking(now)
        if request is not None:
            now.again = Again(request, TurnOutcome.REASONING_EXHAUSTED)
            return Signal.WORTHLESS
    return signal


def _whole(now: Standing) -> Request:
    """The same question, with all the output tokens that are left."""
    account = now.account
    left = limits.tokens_left(account.counters, now.terms.policy)
    if left is None and account.maximum is not None:
        left = 4 * account.maximum  # no budget says how much; the same again would be cut again
    return now.terms.limited(account.sent, left)


def _less_thinking(now: Standing) -> Request | None:
    """The same question, asked so that something is left for an answer; None where the policy does not want it."""
    account, off = now.account, now.terms.capability.reasoning_off
    match now.terms.policy.on_reasoning_only:
        case "escalate_once":
            asked = 4 * (account.maximum or account.counters.ceiling or 0) or None
            return now.terms.limited(account.sent, asked)
        case "reasoning_off_once" if off:
            return account.sent.but(extra={**account.sent.extra, **off})
        case _:
            return None


def _adds_nothing(now: Standing) -> bool:
    """Whether the model has nothing to add to an answer that was cut in the middle of a sentence."""
    stitcher = now.account.stitcher
    if now.strategy not in (Strategy.PROMPT, Strategy.PREFILL) or now.progress.visible:
        return False
    before = stitcher.text.removesuffix(stitcher.added)
    return not ends_sentence(before) or open_fence(before) is not None


def _unsignalled(now: Standing, mode: Mode) -> Signal:
    """What an answer without calls signals, in a turn that a tool is to end."""
    text = now.answer_text
    if now.terms.policy.text_signals:
        now.finish = termination.signal_in(text, mode)
        if now.finish is not None:
            return Signal.FINISHED
    elif termination.names_tool(text, mode):
        now.voice.seen_as_text(mode)
    if not now.terms.is_offered:
        return Signal.END_TURN
    if now.watchman is None:
        return Signal.END_TURN if text.strip() else Signal.EMPTY
    finish = now.watchman.see(text)
    if finish is None:
        if now.may_be_trivial:
            return Signal.TRIVIAL
        finish = Finish(termination.IMPLICIT if text.strip() else termination.EMPTY, "no_action")
    if finish.signal == termination.EMPTY:
        return Signal.EMPTY
    now.finish = finish
    return Signal.IMPLICIT


def _is_passing(now: Standing, signal: Signal) -> bool:
    """Whether a response leaves no trace in the history if the turn goes on: the whole of it comes again."""
    fetched = signal is Signal.PAUSED and now.last.stop.resume is Resume.RETRIEVE_SAME_ID
    lost = signal is Signal.MISSING and now.strategy is Strategy.RETRIEVE
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
