"""Calls that follow a response: their limits, strategies, requests and cancellation."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from endturn.calls import Continuation, ContinuationAttempted, Strategy, TurnOutcome
from endturn.continuation import refused_prefills, result
from endturn.continuation.limits import RESUME_STRATEGIES
from endturn.continuation.machine import Signal
from endturn.continuation.phases import (
    Decision,
    Ended,
    Paused,
    Pending,
    Repairing,
    Requesting,
    Responded,
    Retrying,
    Trivial,
    Truncated,
)
from endturn.continuation.policy import ONE_CALL_SENTENCE
from endturn.continuation.result import Resumption
from endturn.continuation.turn_reports import report_repair
from endturn.continuation.turn_state import JOINING, TurnState, limited
from endturn.errors import RequestRejected
from endturn.formats import with_text
from endturn.vocabulary import REPLACEMENT_CHARACTER, ChatResponse, Resume, StopReason

log = logging.getLogger("endturn")


# --- Whether another call is made -----------------------------------------------------------------


def follow_up(state: TurnState, phase: Pending) -> Decision:
    """Make the next call, or end the turn if a limit is reached."""
    match phase:
        case Truncated():
            return _after_truncation(state, phase.latest, phase.stall_outcome)
        case Repairing():
            return _after_refused_payload(state, phase.latest, phase.issue)
        case Paused():
            return _after_pause(state, phase.latest)
        case Retrying():
            return _after_worthless_answer(state, phase)
        case Trivial():
            return _after_trivial_answer(state, phase.latest)
        case _:
            assert_never(phase)


def _after_truncation(
    state: TurnState, latest: Responded, stall_outcome: TurnOutcome | None
) -> Decision:
    outcome = stall_outcome or state.limits.before_continuation()
    call = None if outcome is not None else _next_call(state, latest)
    allowed = state.terms.policy.continuation_max_attempts
    if call is not None:
        attempt = state.record.counters.attempts + 1
        log.info(
            "[continue] Response truncated at max_tokens, requesting continuation (%d/%d)",
            attempt,
            allowed,
        )
        return Signal.UNDER_LIMITS, _announce_call(state, latest, call)
    outcome = outcome or TurnOutcome.NOT_CONTINUED
    log_not_continued(outcome, allowed=allowed > 0)
    return Signal.LIMIT_REACHED, _end_at_limit(state, latest, outcome)


def _after_refused_payload(state: TurnState, latest: Responded, issue: str) -> Decision:
    outcome = state.limits.before_repair()
    if outcome is None:
        return Signal.UNDER_LIMITS, _announce_call(state, latest, _next_call(state, latest, issue))
    end = _end_at_limit(state, latest, outcome, issue)
    if latest.call.strategy is not Strategy.REPAIR:
        report_repair(state, issue, latest.call.repair_calls, attempted=False, succeeded=False)
    return Signal.LIMIT_REACHED, end


def _after_pause(state: TurnState, latest: Responded) -> Decision:
    resume, policy = latest.response.stop.resume, state.terms.policy
    outcome = state.limits.before_resume(resume, able=_can_resume(state, latest))
    if outcome is None:
        return Signal.UNDER_LIMITS, _announce_call(state, latest, _next_call(state, latest))
    if outcome is TurnOutcome.RESUME_LIMIT and policy.continuation_max_resumes:
        log.warning("[continue] Response paused, max resumes reached, breaking")
    elif outcome is TurnOutcome.RESUME_LIMIT:
        log.info("[continue] Response paused, resuming is not allowed")
    return Signal.LIMIT_REACHED, _end_at_limit(state, latest, outcome)


def _after_worthless_answer(state: TurnState, phase: Retrying) -> Decision:
    """Send the same request again.

    The response is not part of the answer, unless nothing replaces it.
    """
    latest, call, text = phase.latest, phase.latest.call, state.record.text
    outcome = state.limits.before_asking_again(phase.outcome)
    if outcome is not None:
        return Signal.LIMIT_REACHED, _end_at_limit(state, latest, outcome)
    unrecorded = call.unrecorded.discard()
    text.discard_latest()
    if call.strategy in JOINING:  # the rest of an answer is requested again
        text.expect_continuation(prefilled=call.strategy is Strategy.PREFILL)
    # the host's request, without our nudges
    if phase.request.messages is not call.request.messages:
        unrecorded = unrecorded.without_nudges()
    limit = state.limits.clamp(state.terms.setup.output_limit(phase.request))
    request = limited(phase.request.but(retrieve=None), limit)
    announce(state, Strategy.RETRY)
    return Signal.UNDER_LIMITS, latest.next_call(request, Strategy.RETRY, unrecorded)


def _after_trivial_answer(state: TurnState, latest: Responded) -> Decision:
    """Send the same request once more, as an ordinary call."""
    outcome = state.limits.before_iteration()
    if outcome is not None:
        return Signal.LIMIT_REACHED, Ended.after(latest, outcome)
    state.record.text.discard_latest()
    return Signal.UNDER_LIMITS, latest.next_call(
        latest.call.request, None, latest.call.unrecorded.discard()
    )


def _announce_call(state: TurnState, latest: Responded, call: Requesting | None) -> Requesting:
    """Announce the call that follows a response, prepare the text for it, and return it."""
    assert call is not None
    assert call.strategy is not None
    announce(state, call.strategy)
    if call.strategy is Strategy.RETRIEVE:
        state.record.text.expect_repetition(latest.response.text)
    elif call.strategy in JOINING:
        state.record.text.expect_continuation(prefilled=call.strategy is Strategy.PREFILL)
    return call


def _end_at_limit(
    state: TurnState, latest: Responded, outcome: TurnOutcome, issue: str | None = None
) -> Ended:
    """Return the end of a turn at a limit, with its resumption."""
    resumption = resumption_after(state, latest, issue) if outcome in result.RESUMABLE else None
    return Ended.after(latest, outcome, issue=issue, resumption=resumption)


def _can_resume(state: TurnState, latest: Responded) -> bool:
    """Return whether the policy and the provider function allow resuming a pause."""
    response, setup = latest.response, state.terms.setup
    resume = response.stop.resume
    match resume:
        case Resume.NATIVE_TOKEN:
            is_new = response.token is not None and response.token != latest.call.request.token
            is_supported = is_new and not setup.follows_tokens
        case Resume.RETRIEVE_SAME_ID:
            return setup.retrieves and response.id is not None
        case _:
            is_supported = True
    return is_supported and RESUME_STRATEGIES.get(resume) in (
        *setup.policy.continuation_strategies,
        None,
    )


# --- The call that follows ------------------------------------------------------------------------


def resumption_after(
    state: TurnState, latest: Responded, issue: str | None = None
) -> Resumption | None:
    """Return the resumption after a truncated, paused or lost response; None if there is none.

    Args:
        issue: the problem with the response's payload, if it is to be repaired.
    """
    response, call = latest.response, latest.call
    is_nothing = not response.text.strip() and issue is None
    if response.stop.reason is StopReason.MISSING and (
        is_nothing or call.strategy is Strategy.RETRIEVE
    ):
        return state.resumption(call)
    following = _next_call(state, latest, issue)
    return None if following is None else state.resumption(following)


def _next_call(state: TurnState, latest: Responded, issue: str | None = None) -> Requesting | None:
    """Return the call that requests the rest of a response; None if no strategy can."""
    setup, response, unrecorded = state.terms.setup, latest.response, latest.call.unrecorded
    format, dialect, policy = setup.format, setup.dialect, setup.policy
    # token and id belonged to an earlier pause
    base = latest.call.request.but(token=None, retrieve=None)
    if response.stop.reason is StopReason.PAUSED:
        strategy = RESUME_STRATEGIES.get(response.stop.resume)
        if strategy is None:
            return None
        if strategy is Strategy.RETRIEVE:
            request = base.but(retrieve=response.id)
        else:
            request = format.resume(base, response, prompt="", strategy=strategy, dialect=dialect)
        return latest.next_call(request, strategy, unrecorded, issue=issue)
    strategy = _choose_strategy(state, response) if issue is None else Strategy.REPAIR
    if strategy is None:
        return None
    # the rest is requested, whatever its row says
    truncated = response.with_stop(resume=Resume.PROMPT)
    if strategy is Strategy.PREFILL and truncated.text.endswith(REPLACEMENT_CHARACTER):
        text = truncated.text.rstrip(REPLACEMENT_CHARACTER)
        truncated = truncated.but(
            text=text, blocks=with_text(truncated.blocks, text, truncated.text)
        )
    is_repair = strategy is Strategy.REPAIR
    prompt = repair_prompt(policy.prompt, latest.call.repair_calls) if is_repair else policy.prompt
    request_strategy = Strategy.PREFILL if strategy is Strategy.PREFILL else Strategy.PROMPT
    request = format.resume(
        base, truncated, prompt=prompt, strategy=request_strategy, dialect=dialect
    )
    if is_repair:  # a forced tool choice stays, since a call is requested
        request = request.but(
            tool_choice=state.terms.base.tool_choice, extra=state.terms.base.extra
        )
    nudges = tuple(
        message for message in request.messages[len(base.messages) :] if message.synthetic
    )
    request = limited(request, state.limits.clamp(state.terms.output_limit))
    unrecorded = replace(unrecorded, nudges=(*unrecorded.nudges, *nudges))
    return latest.next_call(request, strategy, unrecorded, issue=issue)


def _choose_strategy(state: TurnState, response: ChatResponse) -> Strategy | None:
    """Return the first strategy of the policy that the model accepts for truncated text."""
    usable = {Strategy.PROMPT}
    if _accepts_prefill(state, response):
        usable.add(Strategy.PREFILL)
    names = state.terms.policy.continuation_strategies
    return next((Strategy(name) for name in names if name in usable), None)


def _accepts_prefill(state: TurnState, response: ChatResponse) -> bool:
    """Return whether the model accepts a prefill here, and continues its own text."""
    terms = state.terms
    if not terms.capability.prefill or refused_prefills.is_refused(
        terms.setup.target(terms.base.model)
    ):
        return False
    thinks = state.limits.thinking > 0 or response.reasoning is not None
    return (
        not thinks
        and bool(response.text.rstrip(REPLACEMENT_CHARACTER).strip())
        and not response.tool_calls
    )


def repair_prompt(prompt: str, calls: Sequence[str]) -> str:
    """Return the prompt that requests truncated tool calls again; it names several calls."""
    if len(calls) < 2:
        return prompt
    names = ", ".join(calls)
    sentence = (
        f"None of the {len(calls)} tool calls was run. Emit all of them again, each as one "
        f"complete payload: {names}."
    )
    lines = [line for line in prompt.splitlines() if line != ONE_CALL_SENTENCE]
    return "\n".join([*lines, sentence])


def announce(state: TurnState, strategy: Strategy) -> None:
    """Count and announce a call that follows from the last response."""
    turn, record = state.terms.turn, state.record
    record.counters.count(strategy)
    turn.resumes += strategy in RESUME_STRATEGIES.values()
    turn.repairs += strategy is Strategy.REPAIR
    turn.continuations += strategy in (Strategy.PROMPT, Strategy.PREFILL, Strategy.RETRY)
    if strategy is Strategy.REPAIR:
        record.repair_notice = result.ANSWERED_IN_WORDS
    turn.continuation = Continuation(
        turn.continuations + turn.repairs + turn.resumes, strategy, turn.last_call
    )
    remaining = state.limits.remaining(strategy)
    state.terms.emit(
        ContinuationAttempted,
        continuation=turn.continuation,
        output_tokens=turn.output_tokens,
        output_chars=turn.output_chars,
        attempts_remaining=remaining.calls,
        tokens_remaining=remaining.tokens,
        chars_remaining=remaining.chars,
    )


# --- A prefill that the model does not continue ---------------------------------------------------


def is_prefill_refused(call: Requesting, error: Exception) -> bool:
    """Return whether a call was a prefill that the provider rejected as such."""
    is_rejected = isinstance(error, RequestRejected) and error.status in (400, 422)
    return is_rejected and call.strategy is Strategy.PREFILL and call.previous is not None


def cancel_prefill(state: TurnState, call: Requesting) -> Truncated:
    """Return to the response before a prefill.

    The model is remembered, and no attempt is counted.
    """
    assert call.previous is not None
    refused_prefills.remember(state.terms.setup.target(state.terms.base.model))
    log.info("[continue] The model does not continue a prefill, using another strategy")
    state.record.counters.give_back(call.strategy)
    state.record.text.close()
    previous = call.previous
    previous_call = replace(
        previous.call, strategy=None, unrecorded=call.unrecorded.without_nudges()
    )
    return Truncated(replace(previous, call=previous_call), stall_outcome=None)


# --- Logging --------------------------------------------------------------------------------------


def log_not_continued(outcome: TurnOutcome, *, allowed: bool = True) -> None:
    """Log why a truncated response is not continued; the cap's line is the source design's."""
    if outcome is TurnOutcome.NOT_CONTINUED:
        log.warning(
            "[continue] Response truncated at max_tokens, the model supports none of "
            "continuation_strategies"
        )
    elif outcome is not TurnOutcome.RETRY_LIMIT:
        log.warning("[continue] Response truncated at max_tokens, not continued: %s", outcome.value)
    elif allowed:
        log.warning("[continue] Max continuations reached, breaking")
    else:
        log.info("[continue] Response truncated at max_tokens, continuing is not allowed")
