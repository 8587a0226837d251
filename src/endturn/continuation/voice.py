"""What a turn says of itself while it runs: the announced records, and the log lines of the source designs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from endturn import hooks
from endturn.chat import ToolCall, Usage
from endturn.continuation.termination import FUNCTIONS, Finish, Mode
from endturn.events import (
    Continuation,
    ContinuationAttempted,
    DispatchBlocked,
    PayloadRepaired,
    Strategy,
    TerminationSignalled,
    Turn,
    TurnOutcome,
    UsageEstimated,
)

log = logging.getLogger("endturn")


@dataclass(frozen=True, slots=True)
class Voice:
    """Speaks for one turn, of one provider and model."""

    turn: Turn
    provider: str
    model: str

    def blocked(self, reason: str, calls: Iterable[ToolCall]) -> None:
        """Calls were not run."""
        names = tuple(call.name for call in calls)
        hooks.emit(
            DispatchBlocked(turn=self.turn, provider=self.provider, model=self.model, reason=reason, names=names)
        )

    def repaired(self, issue: str, *, calls: int, attempted: bool, succeeded: bool) -> None:
        """How it went with so many calls that were cut or could not be trusted."""
        hooks.emit(
            PayloadRepaired(
                turn=self.turn,
                provider=self.provider,
                model=self.model,
                issue=issue,
                calls=calls,
                attempted=attempted,
                succeeded=succeeded,
            )
        )

    def asks(
        self,
        strategy: Strategy,
        *,
        output_tokens: int,
        output_chars: int,
        attempts_remaining: int,
        tokens_remaining: int | None,
        chars_remaining: int,
    ) -> None:
        """A call follows that is made only because of what the last response was; whoever announces it is told so."""
        turn = self.turn
        match strategy:
            case Strategy.RESEND | Strategy.NATIVE_TOKEN | Strategy.RETRIEVE:
                turn.resumes += 1
            case Strategy.REPAIR:
                turn.repairs += 1
            case _:
                turn.continuations += 1
        index = turn.continuations + turn.repairs + turn.resumes
        turn.continuation = Continuation(index, strategy, turn.last_call)
        hooks.emit(
            ContinuationAttempted(
                turn=turn,
                provider=self.provider,
                model=self.model,
                continuation=turn.continuation,
                output_tokens=output_tokens,
                output_chars=output_chars,
                attempts_remaining=max(0, attempts_remaining),
                tokens_remaining=tokens_remaining,
                chars_remaining=max(0, chars_remaining),
            )
        )

    def finished(self, finish: Finish, *, iteration: int, max_iterations: int, requires_review: bool) -> None:
        """The turn was ended on purpose, or was found to be over."""
        if requires_review:
            log.info("Task completion signal detected via %r (status: %s)", finish.signal, finish.status)
        else:
            log.debug("Response completion: %s", finish.signal)
        hooks.emit(
            TerminationSignalled(
                turn=self.turn,
                signal=finish.signal,
                status=finish.status,
                iteration=iteration,
                max_iterations=max_iterations,
                requires_review=requires_review,
            )
        )

    def estimated(self, usage: Usage, *, continues: bool) -> None:
        """The provider did not count a call's tokens; these stand for them from here on."""
        turn = self.turn
        turn.input_tokens += usage.input_tokens or 0
        turn.output_tokens += usage.output_tokens or 0
        turn.estimated = True
        hooks.emit(
            UsageEstimated(turn=turn, provider=self.provider, model=self.model, usage=usage, continues=continues)
        )

    def unfinished(self) -> None:
        """The latest response is whole by its own word, and leaves a cut answer as it was."""
        if self.turn.last_call is not None:
            self.turn.cut.add(self.turn.last_call)

    @staticmethod
    def seen_as_text(mode: Mode) -> None:
        """An answer names the tool that ends a turn, and did not call it."""
        log.debug("the answer contains %s as text, but did not call it; see text_signals", " or ".join(FUNCTIONS[mode]))

    @staticmethod
    def lost(number: int, tools: Iterable[str]) -> None:
        """Of several calls that were asked for again, so many did not come; `tools`: whose they were, where known."""
        named = ", ".join(tools) or "unknown tools"
        log.warning("[repair] %d tool calls were cut off, and not made when asked for again: %s", number, named)

    @staticmethod
    def continuing(attempt: int, of: int) -> None:
        """The source design's line for a continuation."""
        log.info("[continue] Response truncated at max_tokens, requesting continuation (%d/%d)", attempt, of)

    @staticmethod
    def left_paused(*, allowed: bool) -> None:
        """As many pauses were taken up as are allowed."""
        if allowed:
            log.warning("[continue] Response paused, max resumes reached, breaking")
        else:
            log.info("[continue] Response paused, resuming is not allowed")

    @staticmethod
    def gave_up(outcome: TurnOutcome, *, allowed: bool) -> None:
        """The source design's line for the cap, and one for every other limit."""
        if outcome is TurnOutcome.NOT_CONTINUED:
            log.warning("[continue] Response truncated at max_tokens, the model takes none of continuation_strategies")
        elif outcome is not TurnOutcome.RETRY_LIMIT:
            log.warning("[continue] Response truncated at max_tokens, not continued: %s", outcome.value)
        elif allowed:
            log.warning("[continue] Max continuations reached, breaking")
        else:
            log.info("[continue] Response truncated at max_tokens, continuing is not allowed")
