"""One turn as a generator: it decides and records; whoever drives it calls the provider and runs the tools.

    steps(TurnState(request, …)) yields
    CallProvider  → the driver calls the provider, feeds `incoming` with what arrives; answers None, or what was raised
    RunTool       → the driver runs the tool; answers ToolRan
    MakeRoom      → the driver asks the host's function for a shorter request; answers that, or None
    Wait          → the driver lets some seconds pass; answers None
    Delta         → the driver hands it to the consumer; answers None
    StopIteration → its value is the TurnResult

No I/O and no clock of its own, so one generator serves plain functions and coroutines, whole answers and streams. The
machine's table says which step follows; here is what each step calls for.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from dataclasses import replace
from typing import Final

from endturn import hooks
from endturn.chat import CallFragment, ChatResponse, Delta, Request
from endturn.continuation import continuation_request as asking, machine, result, termination
from endturn.continuation.answer_text import NO_LIMIT, IncomingResponse
from endturn.continuation.evaluation import evaluate, report_repair
from endturn.continuation.history import without_empty
from endturn.continuation.machine import FINAL, Signal, State
from endturn.continuation.termination import Finish
from endturn.continuation.tool_gate import Answer, Repair
from endturn.continuation.turn_state import TurnState
from endturn.errors import ProviderError
from endturn.events import COMPLETE, Strategy, TerminationSignalled, TurnOutcome, plausible
from endturn.scopes import end_turn
from endturn.stop import Resume, Stop, StopReason

log = logging.getLogger("endturn")


# --- Its course ---------------------------------------------------------------------------------------------------

LONGEST_WAIT_S: Final = 60.0
"""Between two looks at a response that is still being made. The first comes after a second; each wait doubles."""

SAID_BY_ERRORS: Final = frozenset({StopReason.CONTEXT_WINDOW_EXCEEDED, StopReason.SAFETY_BLOCKED, StopReason.REFUSED})
"""The stop reasons that arrive as HTTP errors too: such an error counts as a response. So does one to be repaired."""


def steps(state: TurnState) -> result.Steps:
    """The course of one turn, from the user's input to the answer handed back.

    Raises:
        Exception: what the provider raised on the first call, if nothing had come of it.
    """
    state.write(began=_beginning(state))
    if state.strategy is not None:
        asking.announce(state, state.strategy)
    while state.machine.state not in FINAL:
        signal = yield from _do(state)
        state.machine.on(signal)
    if state.aside:  # nothing has come in its place
        state.text.restore()
    yield from state.text.end_answer()
    if state.machine.state is State.COMPLETE:
        yield from _show_calls(state)
    return _result(state)


def interrupt(state: TurnState, error: BaseException | None) -> result.TurnResult:
    """The driver was stopped, or could not go on: the turn is over, wherever it stands. Returns what there is."""
    stood = state.machine.state
    if state.incoming is not None:
        state.incoming.close(None)
        state.take()
        if state.last.stop.reason is StopReason.MISSING:
            _fail(state, Signal.INTERRUPTED, None)
        else:
            _spend(state)
            state.enter(state.last)  # the answer had arrived; the consumer did not wait for its last piece
    elif stood is State.EXECUTE_TOOLS and state.calls:
        done = {answer.tool_call_id for answer in state.answers}
        for call in state.calls:
            if call.id not in done:
                state.note_answer(call, "the turn was stopped before this call was done", is_error=True)
        state.end_batch()
        state.resumption = state.resume_with(state.sent, None)
    elif stood is State.RESUME_UNCHANGED:  # it was waiting to fetch a response
        state.resumption = state.resume_same()
    if (stood, Signal.INTERRUPTED) in machine.TRANSITIONS:
        state.machine.on(Signal.INTERRUPTED)
    state.outcome = TurnOutcome.CANCELLED
    if isinstance(error, Exception):
        state.outcome, state.error = TurnOutcome.PROVIDER_ERROR, error
    state.turn.continuation = None
    if state.aside:
        state.text.restore()
    return _result(state, error)


def _beginning(state: TurnState) -> result.Began:
    setup, sent = state.setup, state.sent
    paused: ChatResponse | None = None
    if state.strategy is Strategy.RETRIEVE:
        stop = Stop(StopReason.PAUSED, resume=Resume.RETRIEVE_SAME_ID)
        paused = (state.passing or ChatResponse(stop=stop)).but(id=sent.retrieve, stop=stop)
    elif state.strategy is Strategy.NATIVE_TOKEN:
        stop = Stop(StopReason.PAUSED, resume=Resume.NATIVE_TOKEN)
        paused = ChatResponse(stop=stop, token=sent.token, id=sent.previous_id)
    return result.Began(
        request=state.asked, segments=tuple(state.segments), counters=replace(state.counters), usage=state.usage,
        paused=paused, format=setup.format.name, provider=setup.provider, dialect=setup.dialect,
        retrieves=setup.retrieves, follows_tokens=setup.follows_tokens,
    )  # fmt: skip


def _do(state: TurnState) -> Generator[result.Act, result.Reply, Signal]:
    """Do what is to be done where the turn stands. Returns what came of it."""
    match state.machine.state:
        case State.REQUEST:
            if state.strategy is None:  # else a turn is taken up in the middle of an answer
                state.counters.count(None)
        case State.EVALUATE_STOP:
            signal = evaluate(state)
            return (yield from _make_room(state)) if signal is Signal.CONTEXT_WINDOW_EXCEEDED else signal
        case State.EXECUTE_TOOLS:
            return (yield from _execute(state))
        case State.ASK_AGAIN:
            asking.ask_again(state)
        case State.REQUEST_CONTINUATION | State.REPAIR | State.RESUME_UNCHANGED:
            asking.ask_for_rest(state)
            if state.strategy is Strategy.RETRIEVE:
                yield result.Wait(min(2.0 ** (state.counters.resumes - 1), LONGEST_WAIT_S))
        case State.ABORT_PARTIAL:
            return Signal.RETURNED
        case pending:
            return _check(state, pending)
    return (yield from _call(state))


# --- Limits -------------------------------------------------------------------------------------------------------


def _check(state: TurnState, pending: State) -> Signal:
    """Whether a further call is made: at a limit the turn ends with its outcome."""
    limits, policy = state.limits, state.policy
    match pending:
        case State.CONTINUE_PENDING:
            limit = state.gained_nothing or limits.before_continuation()
            if limit is None and asking.chosen(state) is None:
                limit = TurnOutcome.NOT_CONTINUED
            most = policy.continuation_max_attempts
            if limit is None:
                attempt = state.counters.attempts + 1
                log.info("[continue] Response truncated at max_tokens, requesting continuation (%d/%d)", attempt, most)
            else:
                asking.log_given_up(limit, allowed=most > 0)
        case State.REPAIR_PENDING:
            limit = limits.before_repair()
        case State.RESUME_PENDING:
            resume = state.last.stop.resume
            limit = limits.before_resume(resume, able=asking.can_resume(state, resume))
            if limit is TurnOutcome.RESUME_LIMIT and policy.continuation_max_resumes:
                log.warning("[continue] Response paused, max resumes reached, breaking")
            elif limit is TurnOutcome.RESUME_LIMIT:
                log.info("[continue] Response paused, resuming is not allowed")
        case State.ASK_AGAIN_PENDING:
            assert state.retry is not None
            limit = limits.before_asking_again(state.retry[1])
        case _:
            assert pending is State.ITERATE_PENDING
            limit = limits.before_iteration()
            if limit is None:  # the same once more, as an ordinary call
                state.put_aside()
                state.strategy = None
    if limit is None:
        return Signal.UNDER_LIMITS
    state.outcome = limit
    if pending is not State.ITERATE_PENDING:
        state.resumption = asking.onward(state) if limit in result.RESUMABLE else None
    if pending is State.REPAIR_PENDING and state.strategy is not Strategy.REPAIR:
        report_repair(state, attempted=False, succeeded=False)
    return Signal.LIMIT_REACHED


# --- One call -----------------------------------------------------------------------------------------------------


def _call(state: TurnState) -> Generator[result.CallProvider | Delta, result.Reply, Signal]:
    """One call to the provider, and what became of it."""
    state.error = None
    strategy, room = state.strategy, state.limits.chars_left
    if strategy in (Strategy.RETRIEVE, Strategy.RETRY) and state.passing is not None:
        room += len(state.passing.text)  # it comes again, or another in its place, and was counted
    hold = NO_LIMIT if state.is_held else termination.TRIVIAL_BELOW if state.may_be_trivial else 0
    yield from state.text.begin(room=room, hold=hold)
    state.incoming = IncomingResponse(state.text, strategy)
    state.turn.last_usage = None
    state.write_pending()
    raised = yield result.CallProvider(state.sent, state.incoming)
    state.turn.continuation = None
    if not isinstance(raised, Exception):
        state.take()
        return Signal.RESPONSE
    state.take(raised)
    stop = raised.stop if isinstance(raised, ProviderError) else None
    if stop is not None and (stop.reason in SAID_BY_ERRORS or stop.resume is Resume.REPAIR):
        state.response, state.error = state.last.but(stop=stop), raised
        return Signal.RESPONSE
    if asking.withdraw_prefill(state, raised):
        return Signal.PREFILL_REFUSED
    if state.counters.calls == 1 and not state.last.text:
        raise raised
    _fail(state, Signal.FAILED, raised)
    return Signal.FAILED


def _fail(state: TurnState, signal: Signal, error: BaseException | None) -> None:
    """Keep what is worth keeping of a call that did not end, and how the turn could go on."""
    state.outcome, state.error = machine.OUTCOMES[signal], error
    _spend(state)
    if isinstance(error, ProviderError) and error.retryable:
        state.counters.give_back(state.strategy)
    if state.last.text.strip() and state.strategy is not Strategy.RETRIEVE:
        state.enter(state.last)
        state.resumption = asking.onward(state)
    else:  # nothing came of it, or the whole of it can be fetched once more: the same request can be sent again
        if state.strategy is Strategy.RETRIEVE:
            state.let_pass(state.last)
        state.resumption = state.resume_same()
    state.forget_pending()
    if state.strategy is Strategy.REPAIR:
        report_repair(state, attempted=True, succeeded=False)


def _spend(state: TurnState) -> None:
    """Count what a call has used that is not judged any more; nothing is estimated of it."""
    usage = plausible(state.reported)
    if usage is not None:
        state.spend(usage)


def _make_room(state: TurnState) -> Generator[result.MakeRoom, result.Reply, Signal]:
    """Ask the host to make room in a full window, once a turn."""
    if state.policy.on_context_exceeded == "abort" or state.counters.again:
        return Signal.CONTEXT_WINDOW_EXCEEDED
    made = yield result.MakeRoom(state.sent, state.last)
    if not isinstance(made, Request):
        return Signal.CONTEXT_WINDOW_EXCEEDED
    state.retry = made, TurnOutcome.CONTEXT_WINDOW_EXCEEDED
    return Signal.WORTHLESS


# --- Tools --------------------------------------------------------------------------------------------------------


def _execute(state: TurnState) -> Generator[result.Act, result.Reply, Signal]:
    """Run the calls that the gate passed, or answer those that it refused for what they say."""
    yield from state.text.end_answer()
    if isinstance(state.verdict, Answer):
        for call, error in state.verdict.errors:
            state.note_answer(call, error, is_error=True)
    else:
        yield from _show_calls(state)
        yield from _run_tools(state)
    return _after_calls(state)


def _show_calls(state: TurnState) -> Generator[Delta, result.Reply, None]:
    """Show the consumer the calls, now that they have passed the gate."""
    for index, call in enumerate(state.calls):
        raw = call.arguments_raw or json.dumps(call.arguments, ensure_ascii=False)
        yield Delta(call=CallFragment(index, call.id, call.name, raw))


def _run_tools(state: TurnState) -> Generator[result.RunTool, result.Reply, None]:
    """Run the calls, in order. An id is in a batch once, and a batch is run once for what it was asked for."""
    for call in state.calls:
        ran = yield result.RunTool(call)
        assert isinstance(ran, result.ToolRan)
        state.note_answer(call, ran.content, is_error=ran.is_error)


def _after_calls(state: TurnState) -> Signal:
    """What it means that all calls of a response are answered."""
    mode = state.policy.mode
    failed = {answer.tool_call_id for answer in state.answers if answer.is_error}
    state.finish = termination.signalled((call for call in state.calls if call.id not in failed), mode)
    signal = Signal.FINISHED
    # A model whose call of the tool that ends the turn failed is told why, and tries again: it is not guarded.
    names = [call.name for call in state.last.tool_calls if call.id in failed]
    if state.finish is None and not termination.is_offered(mode, names):
        signal, state.finish = Signal.IMPLICIT, _guarded(state)
    state.end_batch(last=state.finish is not None)
    if state.finish is not None:
        state.outcome = machine.OUTCOMES[signal]
        return signal
    outcome = state.limits.before_iteration()
    if outcome is None:
        return Signal.RESULTS_APPENDED
    state.outcome = outcome
    state.resumption = state.resume_with(state.sent, None)
    return Signal.LIMIT_REACHED


def _guarded(state: TurnState) -> Finish | None:
    """Whether a response whose calls were run, or answered, goes nowhere."""
    if state.guard is None:
        return None
    asked = {call.id: call for call in state.last.tool_calls}
    return state.guard.see(
        state.text.answer,
        calls=[f"{call.name} {call.arguments_raw or call.arguments}" for call in asked.values()],
        results=[(asked[answer.tool_call_id or ""].name, answer.text) for answer in state.answers],
    )


# --- The end ------------------------------------------------------------------------------------------------------


def _result(state: TurnState, error: BaseException | None = None) -> result.TurnResult:
    """Announce the end. `error`: what ended the turn, where that is not the provider's."""
    outcome, policy, counters = state.outcome, state.policy, state.counters
    _announce_finish(state)
    end_turn(state.turn, outcome, error=error or state.error)
    state.write(ended=result.Ended(outcome))
    notice = _notice(state)
    if state.passing is not None:
        state.aside = False
        state.enter(state.passing)
    segments, resumption = tuple(state.segments), state.resumption
    stop = None if state.response is None else state.response.stop
    if resumption is not None:
        resumption = replace(
            resumption, shown=state.text.shown, restarted=state.text.restarted, wanted=state.wanted, unmade=state.unmade
        )
        resumption = resumption.afresh() if outcome in result.AFRESH else resumption
    whole = (*state.asked.messages, *segments)
    return result.TurnResult(
        text=state.text.shown,
        answer=state.text.answer,
        restarted=state.text.restarted,
        segments=segments,
        messages=without_empty(whole) if policy.history == "segments" else state.collapsed(whole),
        outcome=outcome,
        status=termination.status_of(outcome, policy.mode, state.finish),
        finish=state.finish,
        complete=outcome in COMPLETE and not (stop is not None and stop.truncated),
        notice=notice,
        stop=stop,
        calls=state.calls if outcome is TurnOutcome.COMPLETED else (),
        usage=state.usage,
        iterations=counters.iterations_made,
        continuations=counters.continuations_made,
        repairs=counters.repairs_made,
        requests=counters.calls,
        tool_results=tuple(message for message in segments if message.role == "tool"),
        error=state.error,
        duration_s=state.elapsed(),
        resumption=resumption,
    )


def _announce_finish(state: TurnState) -> None:
    """Say that the turn was ended on purpose, or was found to be over, if it was."""
    if state.outcome not in COMPLETE:
        state.finish = None
    finish, is_task = state.finish, state.policy.mode == "task"
    if finish is None:
        return
    if is_task:
        log.info("Task completion signal detected via %r (status: %s)", finish.signal, finish.status)
    else:
        log.debug("Response completion: %s", finish.signal)
    hooks.emit(
        TerminationSignalled(
            turn=state.turn,
            signal=finish.signal,
            status=finish.status,
            iteration=state.counters.iterations,
            max_iterations=state.policy.max_iterations,
            requires_review=is_task,
        )
    )


def _notice(state: TurnState) -> str | None:
    """What the user is told of an answer that is not whole, or not all that the model had begun."""
    outcome, policy = state.outcome, state.policy
    if outcome in COMPLETE and state.response is not None and state.response.stop.truncated:
        return result.NOTICES[TurnOutcome.NOT_CONTINUED]
    match outcome:
        case TurnOutcome.COMPLETED | TurnOutcome.IMPLICIT_COMPLETION:
            return state.unmade
        case TurnOutcome.TOOL_REPAIR_FAILED if isinstance(state.verdict, Repair) and state.verdict.issue == "no_calls":
            return result.NO_CALLS
        case TurnOutcome.RETRY_LIMIT if not policy.continuation_max_attempts:
            return result.NOT_ALLOWED
        case TurnOutcome.RESUME_LIMIT if not policy.continuation_max_resumes:
            return result.RESUMING_NOT_ALLOWED
        case _:
            return result.NOTICES.get(outcome)
