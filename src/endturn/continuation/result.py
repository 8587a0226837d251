"""What a turn gives out: what it asks of its driver, its entries, its result, and how it is taken up again."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Final

from endturn.chat import ChatResponse, Delta, Message, Request, ToolCall, Usage
from endturn.continuation.answer_text import IncomingResponse
from endturn.continuation.limits import Counters
from endturn.continuation.termination import Finish
from endturn.errors import UsageError
from endturn.events import Strategy, TurnOutcome
from endturn.stop import Stop
from endturn.tables import lines, shipped

# --- What a turn asks of its driver -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallProvider:
    """Send `request`; `incoming` takes what arrives, and is closed."""

    request: Request
    incoming: IncomingResponse


@dataclass(frozen=True, slots=True)
class RunTool:
    """Run one call that passed the gate."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolRan:
    """What a tool gave back, or what is told of what it raised."""

    content: str | list[dict[str, object]]
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Give the host's function a request that filled the window, and the response, for a request that does not."""

    request: Request
    response: ChatResponse


@dataclass(frozen=True, slots=True)
class Wait:
    """Let this time pass: the provider is still making its response."""

    seconds: float


Act = CallProvider | RunTool | MakeRoom | Wait | Delta
"""A Delta is the consumer's: there is nothing to answer."""
Reply = ToolRan | Exception | Request | None


# --- For whoever writes a turn down ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A turn begins, or is taken up again.

    Attributes:
        request: what the host asked for.
        segments: what the turn already has, where it was taken up again; `counters` and `usage` go with them.
        paused: where its first call takes a response up by token or id: that response, as far as it is known.
        format, provider, dialect, retrieves, follows_tokens: of the provider function; see `Abilities`.
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


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn is over."""

    outcome: TurnOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is worth writing down, when it happens; of `began`, `response`, `message` and `ended` there is one.

    Attributes:
        response: what a call came to, as it arrived: whether any of it enters the turn is told apart.
        raised: what the provider function raised beside it.
        message: enters the turn: an answer without the calls that were not run, a nudge, a tool's result.
        counters, usage: what the turn has used until then; told with an answer, and with a nudge, whose call they
            count already.
    """

    began: Began | None = None
    response: ChatResponse | None = None
    raised: Exception | None = None
    message: Message | None = None
    counters: Counters | None = None
    usage: Usage | None = None
    ended: Ended | None = None


Tell = Callable[[Entry], None]


# --- Its end ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """An unfinished turn: give it to a controller's `run` or `stream` in place of a request.

    Attributes:
        request: what the host asked for.
        next: the request that goes out first.
        pending: messages of `next` that are recorded once it has been answered (the nudge).
        strategy: how `next` asks for the rest; None where it is an ordinary call.
        shown: all that was shown so far; answer: what of it is the unfinished answer; restarted: as in TurnResult.
        counters: what counts against the limits.
        passing: a response of which `next` asks for the whole; aside: for another in its place.
        wanted: the names of the tool calls that `next` asks for again. unmade: as in `TurnState`.
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
    passing: ChatResponse | None = None
    aside: bool = False
    wanted: tuple[str, ...] = ()
    unmade: str | None = None

    def afresh(self) -> Resumption:
        """The same with all limits at their beginning."""
        return replace(self, counters=self.counters.afresh())


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """How a turn went.

    Attributes:
        text: all that the user was shown, exactly: the joined deltas of a stream (of a turn that was taken up again,
            with those of the turn before); of a turn that was interrupted, also what was held back.
        answer: the part of it that follows the last tool run; where that ended the turn, what was said with its calls.
            What was shown and then replaced by another answer is no part of it.
        restarted: what was shown was begun anew: by another answer in its place, which alone is in `answer` and
            `messages`; or by a continuation that began as the answer did and went on differently, which is appended.
        segments: the turn's messages one by one, nudges included: the audit view.
        messages: the whole conversation, the request's messages first, every answer one message, no nudges; or in
            parts, where the policy's `history` says so.
        outcome: why the turn ended. status: the same in the source designs' words (`budget_exhausted`; of a task that
            the model has ended `pending_review`).
        finish: how it was ended on purpose; None where the policy has no mode, or the turn ended otherwise.
        complete: the answer is whole. Never true of a truncated one.
        notice: a sentence for the user where it is not, or where a tool call that the model had begun was not made;
            never part of the text.
        stop: of the last response, None if there was none.
        calls: tool calls that passed the gate, for a host that runs them itself.
        usage: the sum over all calls; `estimated` where a provider did not say.
        iterations: calls to the model that `max_iterations` limits; continuations: calls that asked for the rest of a
            cut answer, or for the whole of it again; repairs: calls that asked for cut tool calls again; requests: all
            calls to the model, resumes included. Of a turn that was taken up again they are those of all of it.
        tool_results: what the tools said, as tool messages.
        error: what the provider raised, where that ended the turn.
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
        """What takes the turn up where it ended. After a limit, its limits begin anew; after a failure they go on.

        Raises:
            UsageError: there is nothing to take up: the turn is complete, or asking again would not help.
        """
        if self.resumption is None:
            raise UsageError(f"a turn that ended {self.outcome.value!r} cannot be taken up again: start another")
        return self.resumption


Steps = Generator[Act, Reply, TurnResult]


_OUTCOMES: Final = {
    TurnOutcome(outcome): (resumes, notice)
    for _, (outcome, resumes, *_, notice) in lines(shipped(), "outcomes.tsv", range(5, 6))
}
AFRESH: Final = frozenset(outcome for outcome, (resumes, _) in _OUTCOMES.items() if resumes == "afresh")
"""The outcomes that are limits: who takes such a turn up again wants more than they allowed."""
RESUMABLE: Final = frozenset(outcome for outcome, (resumes, _) in _OUTCOMES.items() if resumes != "no")
NOTICES: Final = {outcome: notice for outcome, (_, notice) in _OUTCOMES.items() if notice != "-"}
"""What the user is told. An outcome without a notice is a whole answer."""

NOT_ALLOWED: Final = "The answer was cut off; continuing it is not allowed."
RESUMING_NOT_ALLOWED: Final = "The provider paused the answer; taking it up again is not allowed."
NO_CALLS: Final = "The model announced a tool call and sent none, when asked again too."
NOT_ALL_CALLS: Final = "Some tool calls were not made: they were cut off, and did not come when asked for again."
ANSWERED_IN_WORDS: Final = "A tool call was not made: asked for it again, the model answered in words."
