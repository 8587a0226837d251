"""One turn as a generator of effects: a driver performs them and sends the replies.

    steps(TurnState(request, …)) yields
    CallProvider  → the driver calls the provider and feeds `incoming`; the reply is None, or the
                    exception raised
    RunTool       → the driver runs the tool; the reply is a ToolRan
    MakeRoom      → the driver asks the host's function for a shorter request; the reply is that,
                    or None
    Wait          → the driver sleeps; the reply is None
    Delta         → the driver passes it to the consumer; the reply is None
    StopIteration → its value is the TurnResult

The generator does no I/O and has no clock, so it serves plain functions and coroutines, whole
answers and streams. The machine's table has the transitions; this module has the actions of each
phase.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Final

from endturn.calls import COMPLETE, Strategy, TerminationSignalled, TurnOutcome, end_turn, listeners
from endturn.continuation import machine, result, termination
from endturn.continuation.answer_text import NO_LIMIT, IncomingResponse
from endturn.continuation.continuation_request import (
    announce,
    cancel_prefill,
    follow_up,
    is_prefill_refused,
    resumption_after,
)
from endturn.continuation.evaluation import evaluate
from endturn.continuation.history import join_messages, without_empty
from endturn.continuation.machine import FINAL, Signal, State
from endturn.continuation.phases import (
    PHASES,
    Decision,
    Dispatching,
    Ended,
    Receiving,
    Requesting,
    Responded,
    Retrying,
)
from endturn.continuation.termination import Finish
from endturn.continuation.tool_gate import ReportErrors, RunCalls
from endturn.continuation.turn_reports import count_unevaluated, report_repair
from endturn.continuation.turn_state import TurnState
from endturn.errors import ProviderError
from endturn.vocabulary import (
    CallFragment,
    ChatResponse,
    Delta,
    Message,
    Request,
    Resume,
    Stop,
    StopReason,
    ToolCall,
)

log = logging.getLogger("endturn")


# --- The course of a turn -------------------------------------------------------------------------

LONGEST_WAIT_S: Final = 60.0
"""The longest wait between two polls of a response. The first is a second; each one doubles."""

SENT_AS_ERRORS: Final = frozenset(
    {StopReason.CONTEXT_WINDOW_EXCEEDED, StopReason.SAFETY_BLOCKED, StopReason.REFUSED}
)
"""Stop reasons that arrive as HTTP errors too. Such an error counts as a response."""


def steps(state: TurnState) -> result.Steps:
    """Run one turn, from the user's input to the answer.

    Raises:
        Exception: what the provider raised on the first call, if nothing had arrived.
    """
    first = state.phase
    assert isinstance(first, Requesting)
    if state.record.is_observed:
        state.record.write(began=_transcript_start(state, first))
    if state.over is not None:
        return _result(state, _already_answered(state, first, state.over))
    if first.strategy is not None:
        announce(state, first.strategy)
    while state.machine.state not in FINAL:
        signal, phase = yield from _decide(state)
        entered = state.machine.on(signal)
        assert isinstance(phase, PHASES[entered]), (
            f"{entered} is entered in {PHASES[entered].__name__}"
        )
        state.phase = phase
    ended = state.phase
    assert isinstance(ended, Ended)
    if ended.unrecorded.is_discarded:  # no response has replaced it
        state.record.text.restore()
    yield from state.record.text.end_answer()
    if state.machine.state is State.COMPLETE:
        yield from _show_calls(ended.calls)
    return _result(state, ended)


def _transcript_start(state: TurnState, first: Requesting) -> result.TranscriptStart:
    terms, record, setup = state.terms, state.record, state.terms.setup
    paused: ChatResponse | None = None
    if first.strategy is Strategy.RETRIEVE:
        stop, superseded = (
            Stop(StopReason.PAUSED, resume=Resume.RETRIEVE_SAME_ID),
            first.unrecorded.superseded,
        )
        received = ChatResponse(stop=stop) if superseded is None else superseded.response
        paused = received.but(id=first.request.retrieve, stop=stop)
    elif first.strategy is Strategy.NATIVE_TOKEN:
        stop = Stop(StopReason.PAUSED, resume=Resume.NATIVE_TOKEN)
        paused = ChatResponse(stop=stop, token=first.request.token, id=first.request.previous_id)
    return result.TranscriptStart(
        request=terms.request,
        segments=tuple(record.segments),
        counters=replace(record.counters),
        usage=record.usage,
        paused=paused,
        format=setup.format.name,
        provider=setup.provider,
        dialect=setup.dialect,
        retrieves=setup.retrieves,
        follows_tokens=setup.follows_tokens,
        continues=terms.continues,
    )


def _already_answered(state: TurnState, first: Requesting, stop: Stop) -> Ended:
    """Return the end of a turn that was stopped after its last response, without a call."""
    if stop.reason is StopReason.PAUSED:
        outcome = TurnOutcome.LEFT_PAUSED
    else:
        outcome = machine.OUTCOMES[Signal(stop.reason.value)]
    response = ChatResponse(text=state.record.text.answer, stop=stop)
    return Ended(outcome=outcome, unrecorded=first.unrecorded, response=response)


def _decide(state: TurnState) -> Generator[result.Effect, result.Reply, Decision]:
    """Perform the phase's action, and return the decision."""
    match state.phase:
        case Requesting() as call:
            return (yield from _request(state, call))
        case Responded() as latest:
            signal, phase = evaluate(state, latest)
            if signal is Signal.CONTEXT_WINDOW_EXCEEDED and isinstance(phase, Ended):
                return (yield from _make_room(state, latest, phase))
            return signal, phase
        case Dispatching() as dispatching:
            return (yield from _dispatch(state, dispatching))
        case Ended() as ended:
            return Signal.RETURNED, ended
        case Receiving():
            raise AssertionError("a call that is out is answered before anything else is decided")
        case pending:
            return follow_up(state, pending)


# --- One call -------------------------------------------------------------------------------------


def _request(
    state: TurnState, call: Requesting
) -> Generator[result.Effect, result.Reply, Decision]:
    """Make one call to the provider."""
    terms, record, strategy = state.terms, state.record, call.strategy
    if strategy is None:
        record.counters.count(None)
    elif strategy is Strategy.RETRIEVE and state.machine.state is State.RESUME_UNCHANGED:
        yield result.Wait(min(2.0 ** (record.counters.resumes - 1), LONGEST_WAIT_S))
    room, superseded = state.limits.chars_left, call.unrecorded.superseded
    if strategy in (Strategy.RETRIEVE, Strategy.RETRY) and superseded is not None:
        # the response, or its replacement, is requested again, and was counted
        room += len(superseded.response.text)
    hold = termination.MIN_ANSWER_CHARS if state.may_be_trivial(strategy) else 0
    yield from record.text.begin(room=room, hold=NO_LIMIT if terms.holds_json else hold)
    terms.turn.last_usage = None
    call = replace(call, unrecorded=record.write_nudges(call.unrecorded))
    state.phase = receiving = Receiving(call, IncomingResponse(record.text, strategy))
    reply = yield result.CallProvider(call.request, receiving.incoming)
    terms.turn.continuation = None
    error = reply if isinstance(reply, Exception) else None
    state.phase = latest = _receive(state, receiving, error)
    if error is None:
        return Signal.RESPONSE, latest
    stop = error.stop if isinstance(error, ProviderError) else None
    if stop is not None and (stop.reason in SENT_AS_ERRORS or stop.resume is Resume.REPAIR):
        return Signal.RESPONSE, replace(
            latest, response=latest.response.but(stop=stop), error=error
        )
    if is_prefill_refused(call, error):
        return Signal.PREFILL_REFUSED, cancel_prefill(state, call)
    if record.counters.calls == 1 and not latest.response.text:
        raise error
    return Signal.PROVIDER_ERROR, _end_after_failure(state, latest, Signal.PROVIDER_ERROR, error)


def _receive(state: TurnState, receiving: Receiving, error: Exception | None = None) -> Responded:
    """Return the response of the running call, with the exception that it raised."""
    incoming = receiving.incoming
    assert incoming.response is not None
    state.record.write(response=incoming.response, raised=error)
    state.record.counters.calls += 1
    return Responded(
        call=receiving.call, response=incoming.response, is_overlong=incoming.is_overlong
    )


def _end_after_failure(
    state: TurnState, latest: Responded, signal: Signal, error: BaseException | None
) -> Ended:
    """Return the end of a turn whose last call failed, with the usable part of its response."""
    call, response = latest.call, latest.response
    count_unevaluated(state, latest)
    if isinstance(error, ProviderError) and error.retryable:
        state.record.counters.give_back(call.strategy)
    is_fetched = call.strategy is Strategy.RETRIEVE
    if response.text.strip() and not is_fetched:
        latest = latest.with_unrecorded(state.record.enter(call.unrecorded, response))
        resumption = resumption_after(state, latest, call.issue)
    # nothing arrived, or all of it can be fetched again: the same request can be sent again
    else:
        if is_fetched:
            latest = latest.with_unrecorded(call.unrecorded.supersede(response))
        resumption = state.resumption(latest.call)
    if call.strategy is Strategy.REPAIR:
        report_repair(state, call.issue, call.repair_calls, attempted=True, succeeded=False)
    return Ended(
        outcome=machine.OUTCOMES[signal],
        unrecorded=latest.call.unrecorded.without_nudges(),
        response=response,
        error=error,
        resumption=resumption,
    )


def _make_room(
    state: TurnState, latest: Responded, ended: Ended
) -> Generator[result.MakeRoom, result.Reply, Decision]:
    """Ask the host, once a turn, to shorten a request that filled the context window."""
    signal = Signal.CONTEXT_WINDOW_EXCEEDED
    if state.terms.policy.on_context_exceeded == "abort" or state.record.counters.again:
        return signal, ended
    state.phase = ended
    request = yield result.MakeRoom(latest.call.request, latest.response)
    if not isinstance(request, Request):
        return signal, ended
    latest = replace(latest, call=replace(latest.call, issue=None, unrecorded=ended.unrecorded))
    return Signal.WORTHLESS, Retrying(latest, request, ended.outcome)


# --- Tools ----------------------------------------------------------------------------------------


def _dispatch(
    state: TurnState, dispatching: Dispatching
) -> Generator[Delta | result.RunTool, result.Reply, Decision]:
    """Run the calls that the gate passed, in order; answer refused calls with their errors."""
    yield from state.record.text.end_answer()
    verdict = dispatching.verdict
    if isinstance(verdict, ReportErrors):
        for call, error in verdict.errors:
            dispatching = _with_result(state, dispatching, call, error, is_error=True)
    else:
        yield from _show_calls(verdict.calls)
        for call in verdict.calls:  # ids are unique within a batch
            tool_result = yield result.RunTool(call)
            assert isinstance(tool_result, result.ToolRan)
            dispatching = _with_result(
                state, dispatching, call, tool_result.content, is_error=tool_result.is_error
            )
    return _after_dispatch(state, dispatching)


def _show_calls(calls: Sequence[ToolCall]) -> Generator[Delta, result.Reply, None]:
    """Show the consumer the calls, now that they have passed the gate."""
    for index, call in enumerate(calls):
        arguments = call.arguments_raw or json.dumps(call.arguments, ensure_ascii=False)
        yield Delta(call=CallFragment(index, call.id, call.name, arguments))


def _with_result(
    state: TurnState,
    dispatching: Dispatching,
    call: ToolCall,
    content: str | list[dict[str, object]],
    *,
    is_error: bool,
) -> Dispatching:
    """Return the phase with the result of one more call, which is written at once."""
    message = Message(role="tool", content=content, tool_call_id=call.id, is_error=is_error)
    state.record.write(message=message)
    state.phase = dispatching = replace(dispatching, results=(*dispatching.results, message))
    return dispatching


def _after_dispatch(state: TurnState, dispatching: Dispatching) -> Decision:
    """Return what follows when all calls of a response are answered."""
    latest, verdict, mode = dispatching.latest, dispatching.verdict, state.terms.policy.mode
    failed_ids = {message.tool_call_id for message in dispatching.results if message.is_error}
    calls = verdict.calls if isinstance(verdict, RunCalls) else ()
    signal = Signal.FINISHED
    finish = termination.first_finish((call for call in calls if call.id not in failed_ids), mode)
    # If the call of the tool that ends the turn failed, the model gets the error and tries again,
    # so the guard is skipped.
    names = [call.name for call in latest.response.tool_calls if call.id in failed_ids]
    if finish is None and not termination.is_offered(mode, names):
        signal, finish = Signal.IMPLICIT, _guarded(state, dispatching)
    following = _end_batch(state, dispatching, is_last=finish is not None)
    if finish is not None:
        return signal, Ended.after(latest, machine.OUTCOMES[signal], finish=finish)
    outcome = state.limits.before_iteration()
    if outcome is None:
        return Signal.RESULTS_APPENDED, following
    return Signal.LIMIT_REACHED, Ended.after(
        latest, outcome, resumption=state.resumption(following)
    )


def _end_batch(state: TurnState, dispatching: Dispatching, *, is_last: bool = False) -> Requesting:
    """Record the results of a response's calls, and return the next call.

    Its settings are the host's; its messages are those that were sent, so that the provider's cache
    is used.

    Args:
        state: the turn.
        dispatching: the calls, all of them with their results.
        is_last: the call is not made: the text with the tool calls stays the answer.
    """
    terms, record, latest = state.terms, state.record, dispatching.latest
    messages_before, answer = latest.call.request.messages, record.segments[-1]
    # providers reject two answers in a row
    if latest.call.strategy is Strategy.PREFILL and terms.setup.format.one_message:
        messages_before, answer = (
            messages_before[:-1],
            join_messages(messages_before[-1], answer, prefilled=True),
        )
    messages = (*messages_before, answer, *dispatching.results)
    record.segments += dispatching.results
    if not is_last:
        record.text.begin_answer()
    if terms.policy.continuation_attempts_per == "answer":
        record.counters.attempts = 0
    call = latest.next_call(
        terms.base.but(messages=messages, token=None, retrieve=None), None, latest.call.unrecorded
    )
    return replace(call, repair_calls=())


def _guarded(state: TurnState, dispatching: Dispatching) -> Finish | None:
    """Return the finish if the turn's guard finds that a response with calls makes no progress."""
    if state.guard is None:
        return None
    calls = {call.id: call for call in dispatching.latest.response.tool_calls}
    return state.guard.see(
        state.record.text.answer,
        calls=[f"{call.name} {call.arguments_raw or call.arguments}" for call in calls.values()],
        results=[
            (calls[message.tool_call_id or ""].name, message.text)
            for message in dispatching.results
        ],
    )


# --- The end --------------------------------------------------------------------------------------


def interrupt(state: TurnState, error: BaseException | None) -> result.TurnResult:
    """End a turn whose driver was stopped or cannot go on, in any phase. Returns the result."""
    state_before, ended = state.machine.state, _interrupted(state)
    if (state_before, Signal.INTERRUPTED) in machine.TRANSITIONS:
        state.machine.on(Signal.INTERRUPTED)
    if isinstance(error, Exception):
        ended = replace(ended, outcome=TurnOutcome.PROVIDER_ERROR, error=error)
    else:
        ended = replace(ended, outcome=TurnOutcome.CANCELLED)
    state.terms.turn.continuation = None
    if ended.unrecorded.is_discarded:
        state.record.text.restore()
    return _result(state, ended, error)


_STOPPED: Final = "the turn was stopped before this call was done"


def _interrupted(state: TurnState) -> Ended:
    """Return the end of a turn that was interrupted in its present phase."""
    cancelled = TurnOutcome.CANCELLED
    match state.phase:
        case Receiving() as receiving:
            receiving.incoming.close(None)
            latest = _receive(state, receiving)
            if latest.response.stop.reason is StopReason.MISSING:
                return _end_after_failure(state, latest, Signal.INTERRUPTED, None)
            count_unevaluated(state, latest)
            # The answer had arrived, but the consumer did not wait for its last piece.
            unrecorded = state.record.enter(latest.call.unrecorded, latest.response)
            return Ended.after(latest.with_unrecorded(unrecorded), cancelled)
        case Dispatching(latest=latest, verdict=verdict) as dispatching:
            errors = (
                verdict.errors
                if isinstance(verdict, ReportErrors)
                else [(call, _STOPPED) for call in verdict.calls]
            )
            answered_ids = {message.tool_call_id for message in dispatching.results}
            for call, error in errors:
                if call.id not in answered_ids:
                    dispatching = _with_result(state, dispatching, call, error, is_error=True)
            following = _end_batch(state, dispatching)
            return Ended.after(latest, cancelled, resumption=state.resumption(following))
        case Requesting(previous=previous) as call:
            # While the turn waits to fetch a response, the same request can be sent again.
            is_waiting = state.machine.state is State.RESUME_UNCHANGED
            return Ended(
                outcome=cancelled,
                unrecorded=call.unrecorded,
                response=None if previous is None else previous.response,
                resumption=state.resumption(call) if is_waiting else None,
            )
        case Ended() as ended:
            return ended
        case Responded() as latest:
            return Ended.after(latest, cancelled)
        case phase:
            return Ended.after(phase.latest, cancelled)


def _result(
    state: TurnState, ended: Ended, error: BaseException | None = None
) -> result.TurnResult:
    """Announce the end of a turn, and return its result.

    Args:
        state: the turn.
        ended: its last phase.
        error: the error that ended the turn, if it is not the provider's exception.
    """
    terms, record, policy = state.terms, state.record, state.terms.policy
    outcome, counters, text = ended.outcome, record.counters, record.text
    stop = None if ended.response is None else ended.response.stop
    complete = outcome in COMPLETE and not (stop is not None and stop.truncated)
    # the outcome is the controller's decision, not the last response's stop reason
    if not complete:
        terms.turn.leave_unfinished()
    finish = ended.finish if outcome in COMPLETE else None
    if finish is not None:
        _announce_finish(state, finish)
    end_turn(terms.turn, outcome, error=error or ended.error)
    record.write(ended=result.TranscriptEnd(outcome))
    superseded = ended.unrecorded.superseded
    if superseded is not None:
        record.enter(replace(ended.unrecorded, superseded=None), superseded.response)
    segments, resumption = tuple(record.segments), ended.resumption
    if resumption is not None:
        resumption = replace(resumption, shown=text.shown, restarted=text.restarted)
        resumption = resumption.with_fresh_limits() if outcome in result.RESTARTABLE else resumption
    messages = (*terms.request.messages, *segments)
    return result.TurnResult(
        text=text.shown,
        answer=text.answer,
        restarted=text.restarted,
        segments=segments,
        messages=without_empty(messages)
        if policy.history == "segments"
        else terms.collapsed(messages),
        outcome=outcome,
        status=termination.status_of(outcome, policy.mode, finish),
        finish=finish,
        complete=complete,
        notice=_notice(state, ended),
        stop=stop,
        calls=ended.calls if outcome is TurnOutcome.COMPLETED else (),
        usage=record.usage,
        iterations=counters.iterations_made,
        continuations=counters.continuations_made,
        repairs=counters.repairs_made,
        requests=counters.calls,
        tool_results=tuple(message for message in segments if message.role == "tool"),
        error=ended.error,
        duration_s=terms.elapsed(),
        resumption=resumption,
    )


def _announce_finish(state: TurnState, finish: Finish) -> None:
    """Announce the explicit or implicit end of the turn."""
    is_task = state.terms.policy.mode == "task"
    if is_task:
        log.info(
            "Task completion signal detected via %r (status: %s)", finish.signal, finish.status
        )
    else:
        log.debug("Response completion: %s", finish.signal)
    listeners.emit(
        TerminationSignalled(
            turn=state.terms.turn,
            signal=finish.signal,
            status=finish.status,
            iteration=state.record.counters.iterations,
            max_iterations=state.terms.policy.max_iterations,
            requires_review=is_task,
        )
    )


def _notice(state: TurnState, ended: Ended) -> str | None:
    """Return the notice about an incomplete answer, or about calls that were not made."""
    outcome, policy = ended.outcome, state.terms.policy
    if outcome in COMPLETE and ended.response is not None and ended.response.stop.truncated:
        return result.NOTICES[TurnOutcome.NOT_CONTINUED]
    match outcome:
        case TurnOutcome.COMPLETED | TurnOutcome.IMPLICIT_COMPLETION:
            return state.record.repair_notice
        case TurnOutcome.TOOL_REPAIR_FAILED if ended.issue == "no_calls":
            return result.NO_CALLS
        case TurnOutcome.RETRY_LIMIT if not policy.continuation_max_attempts:
            return result.NOT_ALLOWED
        case TurnOutcome.RESUME_LIMIT if not policy.continuation_max_resumes:
            return result.RESUMING_NOT_ALLOWED
        case _:
            return result.NOTICES.get(outcome)
