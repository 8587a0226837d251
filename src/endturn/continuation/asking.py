"""How the rest of an answer is asked for: the strategies, what each sends and counts, and what is taken back."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Final

from endturn.chat import ChatResponse, Message, Request
from endturn.continuation import limits, result
from endturn.continuation.acts import MakeRoom, Reply
from endturn.continuation.machine import Signal
from endturn.continuation.policy import ONE_CALL
from endturn.continuation.result import Resumption
from endturn.continuation.text_heuristics import HALF
from endturn.continuation.standing import Again, Standing
from endturn.errors import RequestRejected
from endturn.events import Strategy, TurnOutcome
from endturn.stop import Resume, StopReason

RESUMING: Final[Mapping[Resume, Strategy]] = {
    Resume.RESEND_UNCHANGED: Strategy.RESEND,
    Resume.NATIVE_TOKEN: Strategy.NATIVE_TOKEN,
    Resume.RETRIEVE_SAME_ID: Strategy.RETRIEVE,
}
"""How each kind of pause is taken up."""
RESUMES: Final = frozenset(RESUMING.values())


def ask_for_rest(now: Standing) -> None:
    """Make the request for what follows the latest response."""
    account = now.account
    now.asked_before = account.sent, now.last
    account.sent, strategy, nudge = _rest(now)
    account.pending += nudge
    announce(now, strategy)
    if strategy is Strategy.RETRIEVE:
        account.stitcher.again(now.last.text)
    elif strategy not in RESUMES:
        account.stitcher.seam(prefilled=strategy is Strategy.PREFILL)


def ask_again(now: Standing) -> None:
    """Ask the same once more; what came is no part of the answer, unless nothing comes in its place."""
    assert now.again is not None
    account, asked = now.account, now.again.request
    put_aside(now)
    if now.strategy in (Strategy.PROMPT, Strategy.PREFILL, Strategy.REPAIR):  # the rest of an answer is asked for again
        account.stitcher.seam(prefilled=now.strategy is Strategy.PREFILL)
    if asked.messages is not account.sent.messages:  # the host's: no nudge of ours is in it
        account.forget_pending()
    maximum = limits.clamp(now.terms.maximum_of(asked), account.counters, now.terms.policy, account.base.model)
    account.sent, now.again = now.terms.limited(asked.but(retrieve=None), maximum), None
    announce(now, Strategy.RETRY)


def put_aside(now: Standing) -> None:
    """Another answer is asked for in place of the latest: what nobody has seen of that goes."""
    account = now.account
    account.aside = account.passing is not None and bool(account.passing.text.strip())
    leave_out(now)


def leave_out(now: Standing) -> None:
    """Take the latest part out of the answer. What was seen of it stays where it is."""
    stitcher = now.account.stitcher
    if now.held or not stitcher.added:
        stitcher.forget()
        del now.held[now.kept :]
    else:
        stitcher.replace()


def make_room(now: Standing) -> Generator[MakeRoom, Reply, Signal]:
    """Ask the host to make room in a full window, once a turn."""
    if now.terms.policy.on_context_exceeded == "abort" or now.account.counters.again:
        return Signal.CONTEXT_WINDOW_EXCEEDED
    made = yield MakeRoom(now.account.sent, now.last)
    if not isinstance(made, Request):
        return Signal.CONTEXT_WINDOW_EXCEEDED
    now.again = Again(made, TurnOutcome.CONTEXT_WINDOW_EXCEEDED)
    return Signal.WORTHLESS


def can(now: Standing, resume: Resume) -> bool:
    """Whether a pause may be taken up, and the provider function can, and has something new to take it up with."""
    last, abilities = now.last, now.terms.abilities
    if RESUMING.get(resume, Strategy.RETRIEVE) not in (*now.terms.policy.continuation_strategies, Strategy.RETRIEVE):
        return False
    match resume:
        case Resume.NATIVE_TOKEN:
            new = last.token is not None and last.token != now.account.sent.token
            return new and not abilities.follows_tokens
        case Resume.RETRIEVE_SAME_ID:
            return abilities.retrieves and last.id is not None
        case _:
            return True


def onward(now: Standing) -> Resumption | None:
    """How the turn could go on after its latest response, which was cut, paused or lost."""
    account, response = now.account, now.last
    is_nothing = not response.text.strip() and now.issue is None
    if response.stop.reason is StopReason.MISSING and (is_nothing or now.strategy is Strategy.RETRIEVE):
        return account.resumption(account.sent, now.strategy, account.pending)
    if response.stop.reason is StopReason.PAUSED and response.stop.resume not in RESUMING:
        return None
    if response.stop.reason is not StopReason.PAUSED and chosen(now) is None:
        return None
    request, strategy, nudge = _rest(now)
    return account.resumption(request, strategy, (*account.pending, *nudge))


def _rest(now: Standing) -> tuple[Request, Strategy, tuple[Message, ...]]:
    """The request for what follows, how it asks, and those of its messages that are to be recorded."""
    account, terms, cut = now.account, now.terms, now.last
    dialect = terms.abilities.dialect
    sent = account.sent.but(token=None, retrieve=None)  # they took something else up
    if cut.stop.reason is StopReason.PAUSED:
        strategy = RESUMING.get(cut.stop.resume, Strategy.RESEND)
        if strategy is Strategy.RETRIEVE:
            return sent.but(retrieve=cut.id), strategy, ()
        return terms.format.resume(sent, cut, prompt="", strategy=strategy, dialect=dialect), strategy, ()
    cut = cut.with_stop(resume=Resume.PROMPT)  # whatever its row says: what follows is asked for
    way = chosen(now)
    assert way is not None
    strategy = way
    asks = Strategy.PREFILL if strategy is Strategy.PREFILL else Strategy.PROMPT
    prompt = repair_prompt(terms.policy.prompt, now.wanted) if strategy is Strategy.REPAIR else terms.policy.prompt
    if asks is Strategy.PREFILL and cut.text.endswith(HALF):
        cut = cut.but(text=cut.text.rstrip(HALF), blocks=None)
    request = terms.format.resume(sent, cut, prompt=prompt, strategy=asks, dialect=dialect)
    if strategy is Strategy.REPAIR:  # a forced choice of tool stands: a call is what is asked for
        request = request.but(tool_choice=account.base.tool_choice, extra=account.base.extra)
    nudge = tuple(message for message in request.messages[len(sent.messages) :] if message.synthetic)
    maximum = limits.clamp(account.maximum, account.counters, terms.policy, account.base.model)
    return terms.limited(request, maximum), strategy, nudge


def chosen(now: Standing) -> Strategy | None:
    """How the rest of what was cut is asked for: the first way that the policy names and the model takes."""
    if now.issue is not None:
        return Strategy.REPAIR
    usable = {Strategy.PROMPT, Strategy.PREFILL} if _prefills(now, now.last) else {Strategy.PROMPT}
    return next((Strategy(each) for each in now.terms.policy.continuation_strategies if each in usable), None)


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


def _prefills(now: Standing, cut: ChatResponse) -> bool:
    """Whether the model goes on from its own words: it takes a prefill, does not think, and has said something."""
    terms, model = now.terms, now.account.base.model
    known = terms.capability.prefill and (terms.provider, model) not in terms.abilities.refused
    thinks = terms.thinking > 0 or cut.reasoning is not None
    return known and not thinks and bool(cut.text.rstrip(HALF).strip()) and not cut.tool_calls


# --- What it counts -----------------------------------------------------------------------------------------------


def announce(now: Standing, strategy: Strategy) -> None:
    """Count a call that is made only because of what the last response was, and say so."""
    now.strategy, policy, counters = strategy, now.terms.policy, now.account.counters
    match strategy:
        case Strategy.RESEND | Strategy.NATIVE_TOKEN | Strategy.RETRIEVE:
            counters.resumes += 1
            left = policy.continuation_max_resumes - counters.resumes
        case Strategy.REPAIR:
            counters.repairs += 1
            counters.repairs_made += 1
            now.unmade = result.ANSWERED_IN_WORDS
            left = policy.continuation_tool_repair_attempts - counters.repairs
        case Strategy.RETRY:
            counters.again += 1
            counters.continuations_made += 1
            left = 0
        case _:
            counters.attempts += 1
            counters.continuations_made += 1
            left = policy.continuation_max_attempts - counters.attempts
    now.voice.asks(
        strategy,
        output_tokens=now.voice.turn.output_tokens,
        output_chars=now.voice.turn.output_chars,
        attempts_remaining=left,
        tokens_remaining=limits.tokens_left(counters, policy),
        chars_remaining=policy.continuation_max_output_chars - counters.chars,
    )


def give_back(now: Standing) -> None:
    """A call that the provider could not answer for the time being spends no attempt."""
    counters = now.account.counters
    match now.strategy:
        case None:
            counters.iterations -= 1
            counters.iterations_made -= 1
        case Strategy.RESEND | Strategy.NATIVE_TOKEN | Strategy.RETRIEVE:
            counters.resumes -= 1
        case Strategy.REPAIR:
            counters.repairs -= 1
        case Strategy.RETRY:
            counters.again -= 1
        case _:
            counters.attempts -= 1


def is_refused_prefill(now: Standing, raised: Exception) -> bool:
    """Whether the model does not take a prefill after all. That is remembered, and costs no attempt."""
    if now.strategy is not Strategy.PREFILL or now.asked_before is None:
        return False
    if not isinstance(raised, RequestRejected) or raised.status not in (400, 422):
        return False
    account = now.account
    now.terms.abilities.refused.add((now.terms.provider, account.base.model))
    account.sent, now.response = now.asked_before
    account.forget_pending()
    now.strategy = None
    account.counters.attempts -= 1
    account.stitcher.close()
    return True


def repaired(now: Standing, *, attempted: bool, succeeded: bool) -> None:
    """Say how it went with a payload that was to be repaired."""
    if now.issue is not None:
        now.voice.repaired(now.issue, calls=len(now.wanted), attempted=attempted, succeeded=succeeded)
    now.issue = None
