"""One turn as a generator: it decides and records; whoever drives it calls the provider and runs the tools.

    steps = Course(request, …).steps()
    CallProvider  → the driver calls the provider, feeds `part` with what arrives; answers None, or what was raised
    RunTool       → the driver runs the tool; answers ToolRan
    MakeRoom      → the driver asks the host's function for a shorter request; answers that, or None
    Wait          → the driver lets some seconds pass; answers None
    Delta         → the driver hands it to the consumer; answers None
    StopIteration → its value is the TurnResult

No I/O and no clock of its own, so one course serves plain functions and coroutines, whole answers and streams. The
machine's table says which step follows; here is what each step calls for.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator
from dataclasses import replace
from typing import Final

from endturn.chat import ChatResponse, Delta, Request
from endturn.continuation import asking, ending, judging, limits, running, termination
from endturn.continuation.account import Account
from endturn.continuation.acts import CallProvider, Reply, Steps, Wait
from endturn.continuation.entry import Began, Tell
from endturn.continuation.machine import Signal, State, Step
from endturn.continuation.part import Part
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.result import Resumption, TurnResult
from endturn.continuation.standing import Abilities, Standing, Terms
from endturn.continuation.tool_gate import Run
from endturn.continuation.voice import Voice
from endturn.errors import ProviderError
from endturn.events import Strategy, Turn, TurnOutcome
from endturn.formats.format import Format
from endturn.stop import Resume, Stop, StopReason

LONGEST_WAIT_S: Final = 60.0
"""Between two looks at a response that is still being made. The first comes after a second; each wait doubles."""

SAID_BY_ERRORS: Final = frozenset({StopReason.CONTEXT_WINDOW_EXCEEDED, StopReason.SAFETY_BLOCKED, StopReason.REFUSED})
"""The stop reasons that arrive as HTTP errors too: such an error counts as a response. So does one to be repaired."""


class Course:
    """The course of one turn, from the user's input to the answer handed back.

    Args:
        start: a request, or an unfinished turn.
        turn: the announced turn; its scope is the driver's to open, and to make current around each step.
        provider: the provider's name, for what is announced.
        runnable: the names of the tools that have a function; None where the host runs tools itself.
        clock: gives seconds.
        abilities: of the provider function.
        tell: is told all that is worth writing down, at once.

    Attributes:
        standing: how it stands.

    Raises:
        UsageError: the policy limits money, and gives no price for the model.
    """

    def __init__(
        self,
        start: Request | Resumption,
        *,
        policy: ContinuationPolicy,
        format: Format,
        turn: Turn,
        provider: str,
        runnable: Container[str] | None,
        clock: Callable[[], float],
        abilities: Abilities | None = None,
        tell: Tell | None = None,
    ) -> None:
        account = Account(start, policy, tell)
        terms = Terms.of(
            account.base, policy=policy, format=format, provider=provider, runnable=runnable,
            abilities=abilities or Abilities(),
        )  # fmt: skip
        account.maximum = terms.maximum
        strategy = start.strategy if isinstance(start, Resumption) else None
        began_s = clock()
        self.standing = Standing(
            terms=terms,
            account=account,
            voice=Voice(turn, provider, account.base.model),
            elapsed=lambda: clock() - began_s,
            watchman=terms.watchman(),
            strategy=strategy,
            issue="unverified_terminal" if strategy is Strategy.REPAIR else None,
            wanted=start.wanted if isinstance(start, Resumption) else (),
            unmade=start.unmade if isinstance(start, Resumption) else None,
        )

    def steps(self) -> Steps:
        """Run the turn.

        Raises:
            Exception: what the provider raised on the first call, if nothing had come of it.
        """
        now = self.standing
        terms, counters, policy = now.terms, now.account.counters, now.terms.policy
        model = now.account.base.model
        if now.account.tell is not None:
            now.account.tell(_beginning(now))
        if now.strategy is not None:
            asking.announce(now, now.strategy)
        step = Step.SEND
        while True:
            match step:
                case Step.SEND:
                    counters.iterations += now.strategy is None
                    counters.iterations_made += now.strategy is None
                    now.number = counters.calls
                    signal = yield from _call(now)
                case Step.EVALUATE:
                    signal = judging.evaluate(now)
                    if signal is Signal.CONTEXT_WINDOW_EXCEEDED:
                        signal = yield from asking.make_room(now)
                case Step.CHECK_CONTINUATION:
                    limit = limits.before_continuation(
                        counters, policy, now.progress, elapsed_s=now.elapsed(), thinking=terms.thinking, model=model
                    )
                    if limit is None and asking.chosen(now) is None:
                        limit = TurnOutcome.NOT_CONTINUED
                    signal = ending.unless(now, limit)
                    if limit is None:
                        now.voice.continuing(counters.attempts + 1, policy.continuation_max_attempts)
                    else:
                        now.voice.gave_up(limit, allowed=policy.continuation_max_attempts > 0)
                case Step.CHECK_REPAIR:
                    limit = limits.before_repair(
                        counters, policy, elapsed_s=now.elapsed(), thinking=terms.thinking, model=model
                    )
                    signal = ending.unless(now, limit)
                    if limit is not None and now.strategy is not Strategy.REPAIR:
                        asking.repaired(now, attempted=False, succeeded=False)
                case Step.CHECK_RESUME:
                    resume = now.last.stop.resume
                    limit = limits.before_resume(
                        counters, policy, resume, able=asking.can(now, resume), elapsed_s=now.elapsed()
                    )
                    if limit is TurnOutcome.RESUME_LIMIT:
                        now.voice.left_paused(allowed=policy.continuation_max_resumes > 0)
                    signal = ending.unless(now, limit)
                case Step.CHECK_ASK_AGAIN:
                    assert now.again is not None
                    limit = limits.before_asking_again(
                        counters, policy, now.again.otherwise, elapsed_s=now.elapsed(), thinking=terms.thinking,
                        model=model,
                    )  # fmt: skip
                    signal = ending.unless(now, limit)
                case Step.CHECK_ITERATION:
                    signal = _iterate(now)
                case Step.SEND_CONTINUATION | Step.SEND_REPAIR:
                    asking.ask_for_rest(now)
                    signal = yield from _call(now)
                case Step.SEND_RESUME:
                    asking.ask_for_rest(now)
                    if now.strategy is Strategy.RETRIEVE:
                        yield Wait(min(2.0 ** (counters.resumes - 1), LONGEST_WAIT_S))
                    signal = yield from _call(now)
                case Step.SEND_AGAIN:
                    asking.ask_again(now)
                    signal = yield from _call(now)
                case Step.RUN_TOOLS:
                    now.end_text()
                    yield from _release(now)
                    yield from running.show_calls(now)
                    yield from running.run_tools(now)
                    signal = running.after(now)
                case Step.ANSWER_CALLS:
                    now.end_text()
                    running.answer_calls(now)
                    signal = running.after(now)
                case Step.KEEP_PARTIAL:
                    signal = Signal.RETURNED
                case Step.FINISH:
                    ending.stand(now)
                    now.end_text()
                    yield from _release(now)
                    if now.machine.state is State.COMPLETE and isinstance(now.verdict, Run):
                        yield from running.show_calls(now)
                    return ending.finish(now)
            step = now.machine.on(signal)

    def interrupt(self, error: BaseException | None) -> TurnResult:
        """The driver was stopped, or could not go on: the turn is over, wherever it stands. Returns what there is."""
        return ending.interrupt(self.standing, error)


def _beginning(now: Standing) -> Began:
    account, can = now.account, now.terms.abilities
    return Began(
        request=account.asked, segments=account.segments, counters=replace(account.counters), usage=account.usage,
        paused=_taken_up(now), format=now.terms.format.name, provider=now.terms.provider, dialect=can.dialect,
        retrieves=can.retrieves, follows_tokens=can.follows_tokens,
    )  # fmt: skip


def _taken_up(now: Standing) -> ChatResponse | None:
    """The response that the first call takes up by its token or its id, as far as the request tells."""
    sent = now.account.sent
    match now.strategy:
        case Strategy.RETRIEVE:
            stop = Stop(StopReason.PAUSED, resume=Resume.RETRIEVE_SAME_ID)
            return (now.account.passing or ChatResponse(stop=stop)).but(id=sent.retrieve, stop=stop)
        case Strategy.NATIVE_TOKEN:
            stop = Stop(StopReason.PAUSED, resume=Resume.NATIVE_TOKEN)
            return ChatResponse(stop=stop, token=sent.token, id=sent.previous_id)
        case _:
            return None


def _call(now: Standing) -> Generator[CallProvider | Delta, Reply, Signal]:
    """One call to the provider, and what became of it."""
    now.error = None
    if now.strategy is not Strategy.RETRIEVE:
        now.kept = len(now.held)
    stitcher = now.account.stitcher
    strategy, room = now.strategy, now.account.room
    if strategy in (Strategy.RETRIEVE, Strategy.RETRY) and now.account.passing is not None:
        room += len(now.account.passing.text)  # it comes again, or another in its place, and was counted
    if now.terms.is_held:
        part = Part(stitcher, held=now.held, strategy=strategy, room=room)
    elif now.may_be_trivial:
        part = Part(stitcher, held=now.held, until=_says_something, strategy=strategy, room=room)
    else:
        yield from _release(now)
        part = Part(stitcher, strategy=strategy, room=room)
    now.part = part
    now.voice.turn.last_usage = None
    now.account.write_pending()
    raised = yield CallProvider(now.account.sent, part)
    now.voice.turn.continuation = None
    now.take(raised if isinstance(raised, Exception) else None)
    if not isinstance(raised, Exception):
        return Signal.RESPONSE
    stop = raised.stop if isinstance(raised, ProviderError) else None
    if stop is not None and (stop.reason in SAID_BY_ERRORS or stop.resume is Resume.REPAIR):
        now.response, now.error = now.last.but(stop=stop), raised
        return Signal.RESPONSE
    if asking.is_refused_prefill(now, raised):
        return Signal.PREFILL_REFUSED
    if now.account.counters.calls == 1 and not now.last.text:
        raise raised
    ending.fail(now, Signal.FAILED, raised)
    return Signal.FAILED


def _iterate(now: Standing) -> Signal:
    """Ask the same once more, as an ordinary call; at a limit the answer that there is, is kept."""
    account = now.account
    outcome = limits.before_iteration(account.counters, now.terms.policy, elapsed_s=now.elapsed())
    if outcome is not None:
        now.outcome = outcome
        return Signal.LIMIT_REACHED
    asking.put_aside(now)
    now.strategy = None
    return Signal.UNDER_LIMITS


def _release(now: Standing) -> Generator[Delta, Reply, None]:
    """Give the consumer what was held back until its end was known: in one piece, for it is not coming any more."""
    held, restart = "".join(piece.text for piece in now.held), any(piece.restart for piece in now.held)
    now.held = []
    if held:
        yield Delta(text=held, restart=restart)


def _says_something(text: str) -> bool:
    return not termination.is_trivial(text)
