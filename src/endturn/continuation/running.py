"""The calls of a response, once the gate has spoken: shown, run once each, answered, and what that means."""

from __future__ import annotations

import json
from collections.abc import Generator

from endturn.chat import CallFragment, Delta, Message, ToolCall
from endturn.continuation import limits, machine, termination
from endturn.continuation.acts import Reply, RunTool, ToolRan
from endturn.continuation.entry import Entered
from endturn.continuation.machine import Signal
from endturn.continuation.standing import Standing
from endturn.continuation.termination import Finish, Mode, Watchman
from endturn.continuation.tool_gate import Answer, Run


def show_calls(now: Standing) -> Generator[Delta, Reply, None]:
    """Show the consumer the calls, now that they have passed the gate."""
    assert isinstance(now.verdict, Run)
    now.calls = now.verdict.calls
    for index, call in enumerate(now.calls):
        raw = call.arguments_raw or json.dumps(call.arguments, ensure_ascii=False)
        yield Delta(call=CallFragment(index, call.id, call.name, raw))


def run_tools(now: Standing) -> Generator[RunTool, Reply, None]:
    """Run them, in order."""
    for call in now.calls:
        if now.account.ledger.claim(now.number, call):
            ran = yield RunTool(call)
            assert isinstance(ran, ToolRan)
        else:
            ran = ToolRan("this call was run before; it is not run again", is_error=True)
        _note(now, Message(role="tool", content=ran.content, tool_call_id=call.id, is_error=ran.is_error))


def answer_calls(now: Standing) -> None:
    """Answer calls that are complete but wrong with what is wrong."""
    assert isinstance(now.verdict, Answer)
    for call, told in now.verdict.errors:
        _note(now, _error_result(call, told))


def after(now: Standing) -> Signal:
    """What it means that all calls of a response are answered."""
    account, policy = now.account, now.terms.policy
    failed = {answer.tool_call_id for answer in now.answers if answer.is_error}
    now.finish = termination.signalled((call for call in now.calls if call.id not in failed), policy.mode)
    signal = Signal.FINISHED
    if now.finish is None and now.watchman is not None and not _failed_to_finish(now, policy.mode):
        signal, now.finish = Signal.IMPLICIT, _watched(now, now.watchman)
    _answer(now, last=now.finish is not None)
    if now.finish is not None:
        now.outcome = machine.OUTCOMES[signal]
        return signal
    outcome = limits.before_iteration(account.counters, policy, elapsed_s=now.elapsed())
    if outcome is None:
        return Signal.RESULTS_APPENDED
    now.outcome = outcome
    now.resumption = account.resumption(account.sent, None)
    return Signal.LIMIT_REACHED


def give_up(now: Standing) -> None:
    """Answer the calls that will not be run any more, so that none is left dangling."""
    done = {answer.tool_call_id for answer in now.answers}
    told = "the turn was stopped before this call was done"
    for call in now.calls:
        if call.id not in done:
            _note(now, _error_result(call, told))
    _answer(now)
    now.resumption = now.account.resumption(now.account.sent, None)


def _note(now: Standing, answer: Message) -> None:
    """Keep what a call was answered with until all are; it is written down at once."""
    now.answers.append(answer)
    if now.account.tell is not None:
        now.account.tell(Entered(answer))


def _answer(now: Standing, *, last: bool = False) -> None:
    now.account.answer(now.answers, last=last)
    if now.terms.policy.continuation_attempts_per == "answer":
        now.account.counters.attempts = 0
    now.answers, now.calls, now.verdict, now.strategy = [], (), None, None
    now.wanted = ()


def _failed_to_finish(now: Standing, mode: Mode | None) -> bool:
    """Whether the model called the tool that ends the turn, and it did not run: it is told why, and tries again."""
    names = {call.id: call.name for call in now.last.tool_calls}
    return any(
        answer.is_error and termination.is_offered(mode, [names[answer.tool_call_id or ""]]) for answer in now.answers
    )


def _watched(now: Standing, watchman: Watchman) -> Finish | None:
    """Whether a response whose calls were run, or answered, goes nowhere."""
    asked = {call.id: call for call in now.last.tool_calls}
    return watchman.see(
        now.account.stitcher.text,
        calls=[f"{call.name} {call.arguments_raw or call.arguments}" for call in asked.values()],
        results=[(asked[answer.tool_call_id or ""].name, answer.text) for answer in now.answers],
    )


def _error_result(call: ToolCall, told: str) -> Message:
    return Message(role="tool", content=told, tool_call_id=call.id, is_error=True)
