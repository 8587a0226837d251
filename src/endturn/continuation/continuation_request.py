"""How the rest of an answer is asked for: the strategies, what each sends and counts, and what is taken back."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from endturn.chat import ChatResponse, Message, Request
from endturn.continuation import result
from endturn.continuation.limits import RESUMING
from endturn.continuation.policy import ONE_CALL
from endturn.continuation.result import Resumption
from endturn.continuation.text_heuristics import HALF
from endturn.continuation.turn_state import JOINING, TurnState, limited
from endturn.errors import RequestRejected
from endturn.events import Continuation, ContinuationAttempted, Strategy, TurnOutcome
from endturn.stop import Resume, StopReason

log = logging.getLogger("endturn")


def ask_for_rest(state: TurnState) -> None:
    """Make the request for what follows the latest response."""
    state.before = state.sent, state.last
    state.sent, strategy, nudge = _rest(state)
    state.pending += nudge
    announce(state, strategy)
    if strategy is Strategy.RETRIEVE:
        state.text.again(state.last.text)
    elif strategy in JOINING:
        state.text.seam(prefilled=strategy is Strategy.PREFILL)


def ask_again(state: TurnState) -> None:
    """Ask the same once more; what came is no part of the answer, unless nothing comes in its place."""
    assert state.retry is not None
    (asked, _), state.retry = state.retry, None
    state.put_aside()
    if state.strategy in JOINING:  # the rest of an answer is asked again
        state.text.seam(prefilled=state.strategy is Strategy.PREFILL)
    if asked.messages is not state.sent.messages:  # the host's: no nudge of ours is in it
        state.forget_pending()
    maximum = state.limits.clamp(state.setup.maximum_of(asked))
    state.sent = limited(asked.but(retrieve=None), maximum)
    announce(state, Strategy.RETRY)


def can_resume(state: TurnState, resume: Resume) -> bool:
    """Whether a pause may be taken up, and the provider function can, and has something new to take it up with."""
    last, setup = state.last, state.setup
    match resume:
        case Resume.NATIVE_TOKEN:
            is_new = last.token is not None and last.token != state.sent.token
            can = is_new and not setup.follows_tokens
        case Resume.RETRIEVE_SAME_ID:
            return setup.retrieves and last.id is not None
        case _:
            can = True
    return can and RESUMING.get(resume) in (*state.policy.continuation_strategies, None)


def onward(state: TurnState) -> Resumption | None:
    """How the turn could go on after its latest response, which was cut, paused or lost."""
    stop = state.last.stop
    is_nothing = not state.last.text.strip() and state.issue is None
    if stop.reason is StopReason.MISSING and (is_nothing or state.strategy is Strategy.RETRIEVE):
        return state.resume_same()
    is_paused = stop.reason is StopReason.PAUSED
    can_go_on = stop.resume in RESUMING if is_paused else chosen(state) is not None
    if not can_go_on:
        return None
    request, strategy, nudge = _rest(state)
    return state.resume_with(request, strategy, (*state.pending, *nudge))


def _rest(state: TurnState) -> tuple[Request, Strategy, tuple[Message, ...]]:
    """The request for what follows, how it asks, and those of its messages that are to be recorded."""
    format, dialect, cut = state.setup.format, state.setup.dialect, state.last
    sent = state.sent.but(token=None, retrieve=None)  # they took something else up
    if cut.stop.reason is StopReason.PAUSED:
        strategy = RESUMING.get(cut.stop.resume, Strategy.RESEND)
        if strategy is Strategy.RETRIEVE:
            return sent.but(retrieve=cut.id), strategy, ()
        return format.resume(sent, cut, prompt="", strategy=strategy, dialect=dialect), strategy, ()
    way = chosen(state)
    assert way is not None
    cut = cut.with_stop(resume=Resume.PROMPT)  # whatever its row says: what follows is asked for
    if way is Strategy.PREFILL and cut.text.endswith(HALF):
        cut = cut.but(text=cut.text.rstrip(HALF), blocks=None)
    prompt = repair_prompt(state.policy.prompt, state.wanted) if way is Strategy.REPAIR else state.policy.prompt
    asks = Strategy.PREFILL if way is Strategy.PREFILL else Strategy.PROMPT
    request = format.resume(sent, cut, prompt=prompt, strategy=asks, dialect=dialect)
    if way is Strategy.REPAIR:  # a forced choice of tool stands: a call is what is asked for
        request = request.but(tool_choice=state.base.tool_choice, extra=state.base.extra)
    nudge = tuple(message for message in request.messages[len(sent.messages) :] if message.synthetic)
    return limited(request, state.limits.clamp(state.maximum)), way, nudge


def chosen(state: TurnState) -> Strategy | None:
    """How the rest of what was cut is asked for: the first way that the policy names and the model takes."""
    if state.issue is not None:
        return Strategy.REPAIR
    usable = {Strategy.PROMPT, Strategy.PREFILL} if _prefills(state, state.last) else {Strategy.PROMPT}
    return next((Strategy(each) for each in state.policy.continuation_strategies if each in usable), None)


def _prefills(state: TurnState, cut: ChatResponse) -> bool:
    """Whether the model goes on from its own words: it takes a prefill, does not think, and has said something."""
    known = state.capability.prefill and (state.setup.provider, state.base.model) not in state.setup.refused
    thinks = state.limits.thinking > 0 or cut.reasoning is not None
    return known and not thinks and bool(cut.text.rstrip(HALF).strip()) and not cut.tool_calls


def repair_prompt(prompt: str, calls: Sequence[str]) -> str:
    """What asks for cut tool calls again: the policy's prompt, which speaks of one; of several all names."""
    if len(calls) < 2:
        return prompt
    named = ", ".join(calls)
    asked = (
        f"None of the {len(calls)} tool calls was run. Emit all of them again, each as one complete payload: {named}."
    )
    lines = [line for line in prompt.splitlines() if line != ONE_CALL]
    return "\n".join([*lines, asked])


def announce(state: TurnState, strategy: Strategy) -> None:
    """Count a call that is made only because of what the last response was, and say so."""
    state.strategy, turn = strategy, state.turn
    state.counters.count(strategy)
    turn.resumes += strategy in RESUMING.values()
    turn.repairs += strategy is Strategy.REPAIR
    turn.continuations += strategy in (Strategy.PROMPT, Strategy.PREFILL, Strategy.RETRY)
    if strategy is Strategy.REPAIR:
        state.unmade = result.ANSWERED_IN_WORDS
    turn.continuation = Continuation(turn.continuations + turn.repairs + turn.resumes, strategy, turn.last_call)
    state.emit(
        ContinuationAttempted,
        continuation=turn.continuation,
        output_tokens=turn.output_tokens,
        output_chars=turn.output_chars,
        attempts_remaining=state.limits.calls_left(strategy),
        tokens_remaining=state.limits.tokens_left,
        chars_remaining=state.limits.chars_left,
    )


def withdraw_prefill(state: TurnState, raised: Exception) -> bool:
    """Whether the model does not take a prefill after all. That is remembered, and costs no attempt."""
    if state.strategy is not Strategy.PREFILL or state.before is None:
        return False
    if not isinstance(raised, RequestRejected) or raised.status not in (400, 422):
        return False
    state.setup.refused.add((state.setup.provider, state.base.model))
    state.counters.give_back(state.strategy)
    state.sent, state.response = state.before
    state.forget_pending()
    state.strategy = None
    state.text.close()
    return True


def log_given_up(outcome: TurnOutcome, *, allowed: bool = True) -> None:
    """The source design's line for the cap, and one for every other limit."""
    if outcome is TurnOutcome.NOT_CONTINUED:
        log.warning("[continue] Response truncated at max_tokens, the model takes none of continuation_strategies")
    elif outcome is not TurnOutcome.RETRY_LIMIT:
        log.warning("[continue] Response truncated at max_tokens, not continued: %s", outcome.value)
    elif allowed:
        log.warning("[continue] Max continuations reached, breaking")
    else:
        log.info("[continue] Response truncated at max_tokens, continuing is not allowed")
