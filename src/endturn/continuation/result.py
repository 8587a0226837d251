"""Values that a turn yields and returns: effects, transcript entries, result, resumption."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Final

from endturn.calls import Strategy, TurnOutcome
from endturn.continuation.answer_text import IncomingResponse
from endturn.continuation.limits import Counters
from endturn.continuation.termination import Finish
from endturn.errors import UsageError
from endturn.vocabulary import (
    ChatResponse,
    Delta,
    Message,
    Request,
    Stop,
    ToolCall,
    Usage,
    package_data,
    read_tsv,
)

# --- Effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallProvider:
    """Send `request`; feed the response to `incoming`, and close it."""

    request: Request
    incoming: IncomingResponse


@dataclass(frozen=True, slots=True)
class RunTool:
    """Run one tool call that passed the gate."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolRan:
    """The result of a tool, or the message about its exception."""

    content: str | list[dict[str, object]]
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Ask the host's function for a shorter request: this one filled the context window."""

    request: Request
    response: ChatResponse


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep: the provider is still generating its response."""

    seconds: float


Effect = CallProvider | RunTool | MakeRoom | Wait | Delta
"""A request of a turn to its driver. A Delta is passed to the consumer, without a reply."""
Reply = ToolRan | Exception | Request | None


# --- Transcript entries ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptStart:
    """The start of a turn, or of its resumption.

    Attributes:
        request: the host's request.
        segments: messages of the resumed turn; `counters` and `usage` belong to them.
        paused: the response that the first call resumes by token or id, as far as it is known.
        format, provider, dialect, retrieves, follows_tokens: of the provider function; see `Setup`.
        continues: the id of the transcript's turn that is resumed.
    """

    request: Request
    segments: tuple[Message, ...] = ()
    counters: Counters = field(default_factory=Counters)
    usage: Usage = field(default_factory=Usage)
    paused: ChatResponse | None = None
    format: str
    provider: str
    dialect: str = ""
    retrieves: bool = False
    follows_tokens: bool = False
    continues: str | None = None


@dataclass(frozen=True, slots=True)
class TranscriptEnd:
    """The end of a turn."""

    outcome: TurnOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptEntry:
    """One event of a turn. Exactly one of `began`, `response`, `message` and `ended` is set.

    Attributes:
        response: the response of a call as it arrived; the recorded part of it is a `message`.
        raised: the exception of the same call.
        message: a message of the turn: an answer without the calls that were not run, a nudge, or a
            tool result.
        counters, usage: of the turn so far; set with an answer, and with a nudge, whose call they
            already include.
    """

    began: TranscriptStart | None = None
    response: ChatResponse | None = None
    raised: Exception | None = None
    message: Message | None = None
    counters: Counters | None = None
    usage: Usage | None = None
    ended: TranscriptEnd | None = None


Observer = Callable[[TranscriptEntry], None]
"""A function that is called with the entries of a turn."""


# --- Result and resumption ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """An unfinished turn: pass it to a controller's `run` or `stream` in place of a request.

    Attributes:
        request: the host's request.
        next: the first request to send; none is sent if `over` is set.
        pending: messages of `next` that are recorded once it has been answered (the nudge).
        strategy: of `next`; None for an ordinary call.
        shown: all text that the consumer has received; answer: the part of it that is the
            unfinished answer; restarted: as in TurnResult.
        counters: the counters of the limits.
        superseded: a response that `next` requests again completely; is_discarded: `next` requests
            another response instead.
        repair_calls: names of the tool calls that `next` requests again. repair_notice: the notice
            to the user about calls that were requested again and not made.
        continues: the id of the turn, if it was recovered from a transcript.
        over: the stop of the last response, if the turn had its answer and nothing is to be
            requested.
    """

    request: Request
    next: Request
    pending: tuple[Message, ...] = ()
    strategy: Strategy | None = None
    shown: str = ""
    answer: str = ""
    restarted: bool = False
    segments: tuple[Message, ...] = ()
    usage: Usage = field(default_factory=Usage)
    counters: Counters = field(default_factory=Counters)
    superseded: ChatResponse | None = None
    is_discarded: bool = False
    repair_calls: tuple[str, ...] = ()
    repair_notice: str | None = None
    continues: str | None = None
    over: Stop | None = None

    def with_fresh_limits(self) -> Resumption:
        """Return the resumption with nothing counted against the limits."""
        return replace(self, counters=self.counters.with_fresh_limits())


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The result of a turn.

    Attributes:
        text: exactly the text that the consumer received: the joined deltas of a stream (of a
            resumed turn, with those of the turn before); of an interrupted turn, also the text that
            was held back.
        answer: the part of it after the last tool run; if that ended the turn, the text with its
            calls. Text that was replaced by another answer is no part of it.
        restarted: the shown text was restarted: by a replacement, which alone is in `answer` and
            `messages`; or by a continuation with the answer's beginning that then differed, which
            is appended.
        segments: the turn's messages one by one, nudges included: the audit view.
        messages: the complete conversation, the request's messages first, every answer one message,
            no nudges; or in parts, with the policy's `history="segments"`.
        outcome: the turn's outcome. status: the same in the source designs' words
            (`budget_exhausted`; of a task that the model has ended `pending_review`).
        finish: the end by a tool or by the wallet guard; None if the policy has no mode, or the
            turn ended otherwise.
        complete: the answer is complete. Never true of a truncated one.
        notice: a sentence for the user if the answer is not complete, or if a tool call that the
            model had begun was not made; never part of the text.
        stop: of the last response, None if there was none.
        calls: tool calls that passed the gate, for a host that runs them itself.
        usage: the sum over all calls; `estimated` if a provider reported none.
        iterations: calls to the model that `max_iterations` limits; continuations: calls that
            requested the rest of a truncated answer, or all of it again; repairs: calls that
            requested truncated tool calls again; requests: all calls to the model, resumes
            included. Of a resumed turn they include those of the turn before.
        tool_results: the tools' results, as tool messages.
        error: the provider's exception, if that ended the turn.
        duration_s: seconds from the turn's start to its end.
    """

    text: str
    answer: str
    restarted: bool
    segments: tuple[Message, ...]
    messages: tuple[Message, ...]
    outcome: TurnOutcome
    status: str
    finish: Finish | None
    complete: bool
    notice: str | None
    stop: Stop | None
    calls: tuple[ToolCall, ...]
    usage: Usage
    iterations: int
    continuations: int
    repairs: int
    requests: int
    tool_results: tuple[Message, ...]
    error: BaseException | None
    duration_s: float
    resumption: Resumption | None = field(repr=False)

    def resume(self) -> Resumption:
        """Return the value that resumes the turn.

        After a limit, the limits are reset; after a failure they continue.

        Raises:
            UsageError: there is nothing to resume: the turn is complete, or another request would
                not help.
        """
        if self.resumption is None:
            raise UsageError(
                f"a turn that ended {self.outcome.value!r} cannot be resumed: start another turn"
            )
        return self.resumption


Steps = Generator[Effect, Reply, TurnResult]


_OUTCOMES: Final = {
    TurnOutcome(outcome): (resumes, notice)
    for _, (outcome, resumes, *_, notice) in read_tsv(package_data(), "outcomes.tsv", range(5, 6))
}
RESTARTABLE: Final = frozenset(
    outcome for outcome, (resumes, _) in _OUTCOMES.items() if resumes == "afresh"
)
"""The outcomes that are limits: resuming such a turn resets them."""
RESUMABLE: Final = frozenset(
    outcome for outcome, (resumes, _) in _OUTCOMES.items() if resumes != "no"
)
NOTICES: Final = {outcome: notice for outcome, (_, notice) in _OUTCOMES.items() if notice != "-"}
"""Notices to the user. An outcome without a notice is a complete answer."""

NOT_ALLOWED: Final = "The answer was cut off; continuing it is not allowed."
RESUMING_NOT_ALLOWED: Final = "The provider paused the answer; resuming it is not allowed."
NO_CALLS: Final = "The model announced a tool call but sent none, even when asked again."
NOT_ALL_CALLS: Final = (
    "Some tool calls were not made: they were truncated, and not sent again when requested."
)
ANSWERED_IN_WORDS: Final = (
    "A tool call was not made: when asked for it again, the model answered with text."
)
