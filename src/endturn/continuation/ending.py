"""How a turn ends: at a limit, by a failure, by an interrupt, or because it is done; and how it could go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from endturn.chat import Delta
from endturn.continuation import asking, machine, result, running
from endturn.continuation.entry import Ended
from endturn.continuation.machine import Signal, State
from endturn.continuation.result import TurnResult
from endturn.continuation.standing import Standing
from endturn.continuation.tool_gate import Repair
from endturn.errors import ProviderError
from endturn.events import COMPLETE, Strategy, TurnOutcome, plausible
from endturn.stop import StopReason
from endturn.turns import end_turn

_POINTLESS: Final = frozenset(
    {TurnOutcome.NO_PROGRESS, TurnOutcome.REPETITION, TurnOutcome.REASONING_EXHAUSTED, TurnOutcome.INVALID_JSON}
)
"""The outcomes after which asking again would bring the same."""


def unless(now: Standing, outcome: TurnOutcome | None) -> Signal:
    """Whether the turn goes on: a limit that was reached ends it with this outcome."""
    if outcome is None:
        return Signal.UNDER_LIMITS
    now.outcome = outcome
    now.resumption = None if outcome in _POINTLESS else asking.onward(now)
    return Signal.LIMIT_REACHED


def fail(now: Standing, signal: Signal, error: BaseException | None) -> None:
    """Keep what is worth keeping of a call that did not end, and how the turn could go on."""
    account, partial = now.account, now.last
    now.outcome, now.error = machine.OUTCOMES[signal], error
    _spend(now)
    if isinstance(error, ProviderError) and error.retryable:
        asking.give_back(now)
    if now.strategy is Strategy.RETRIEVE:  # the whole of it can be fetched once more
        account.let_pass(partial)
        now.resumption = account.resumption(account.sent, now.strategy, account.pending)
    elif partial.text.strip():
        account.enter(partial)
        now.resumption = asking.onward(now)
    else:  # nothing came of it: its nudge goes, and the same request can be sent again
        now.resumption = account.resumption(account.sent, now.strategy, account.pending)
    account.forget_pending()
    if now.strategy is Strategy.REPAIR:
        asking.repaired(now, attempted=True, succeeded=False)


def _spend(now: Standing) -> None:
    """Count what a call has used that is not judged any more; nothing is estimated of it."""
    usage = plausible(now.reported)
    if usage is not None:
        now.account.spend(usage)


def interrupt(now: Standing, error: BaseException | None) -> TurnResult:
    """End the turn wherever it stands."""
    account, state = now.account, now.machine.state
    if now.part is not None:
        now.part.close(None)
        now.take()
        if now.last.stop.reason is not StopReason.MISSING:
            _spend(now)
            account.enter(now.last)  # the answer had arrived; the consumer did not wait for its last piece
        else:
            fail(now, Signal.INTERRUPTED, None)
    elif state is State.EXECUTE_TOOLS and now.calls:
        running.give_up(now)
    elif state is State.RESUME_UNCHANGED:  # it was waiting to fetch a response
        now.resumption = account.resumption(account.sent, now.strategy, account.pending)
    if (state, Signal.INTERRUPTED) in machine.TRANSITIONS:
        now.machine.on(Signal.INTERRUPTED)
    now.outcome = TurnOutcome.CANCELLED
    if isinstance(error, Exception):
        now.outcome, now.error = TurnOutcome.PROVIDER_ERROR, error
    now.voice.turn.continuation = None
    stand(now)
    return finish(now, error)


def stand(now: Standing) -> None:
    """Let an answer stand that was to be replaced, where nothing has come in its place."""
    account, stitcher = now.account, now.account.stitcher
    if not account.aside:
        return
    if now.held and not stitcher.added.strip():
        asking.put_aside(now)
    text = stitcher.restore()
    if text:
        now.held.append(Delta(text=text))
    if text and now.resumption is not None:  # who takes the turn up again has been shown it
        replaced = (*stitcher.replaced, (len(stitcher) - len(text), len(stitcher)))
        now.resumption = replace(now.resumption, text=stitcher.shown, replaced=replaced)


def _notice(now: Standing) -> str | None:
    """What the user is told of an answer that is not whole, or not all that the model had begun."""
    outcome, policy = now.outcome, now.terms.policy
    if outcome in COMPLETE and now.response is not None and now.response.stop.truncated:
        return result.NOTICES[TurnOutcome.NOT_CONTINUED]
    match outcome:
        case TurnOutcome.COMPLETED | TurnOutcome.IMPLICIT_COMPLETION:
            return now.unmade
        case TurnOutcome.TOOL_REPAIR_FAILED if isinstance(now.verdict, Repair) and now.verdict.issue == "no_calls":
            return result.NO_CALLS
        case TurnOutcome.RETRY_LIMIT if not policy.continuation_max_attempts:
            return result.NOT_ALLOWED
        case TurnOutcome.RESUME_LIMIT if not policy.continuation_max_resumes:
            return result.RESUMING_NOT_ALLOWED
        case _:
            return result.NOTICES.get(outcome)


def finish(now: Standing, error: BaseException | None = None) -> TurnResult:
    """Announce the end. `error`: what ended the turn, where that is not the provider's."""
    account, turn, policy = now.account, now.voice.turn, now.terms.policy
    if now.outcome not in COMPLETE:
        now.finish = None
    elif now.finish is not None:
        now.voice.finished(
            now.finish,
            iteration=account.counters.iterations,
            max_iterations=policy.max_iterations,
            requires_review=policy.mode == "task",
        )
    if now.resumption is not None:
        now.resumption = replace(now.resumption, wanted=now.wanted, unmade=now.unmade)
    end_turn(turn, now.outcome, error=error or now.error)
    if account.tell is not None:
        account.tell(Ended(now.outcome))
    return account.result(
        now.outcome,
        finish=now.finish,
        stop=None if now.response is None else now.response.stop,
        calls=now.calls if now.outcome is TurnOutcome.COMPLETED else (),
        notice=_notice(now),
        error=now.error,
        duration_s=now.elapsed(),
        resumption=now.resumption,
    )
