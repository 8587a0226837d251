"""Phases of a turn: a frozen value for each state of the machine, with the fields of that state.

    Request, RequestContinuation, ResumeUnchanged, Repair, AskAgain    Requesting, then Receiving
    EvaluateStop                                                       Responded
    ContinuePending, RepairPending, ResumePending                      Truncated, Repairing, Paused
    AskAgainPending, IteratePending                                    Retrying, Trivial
    ExecuteTools                                                       Dispatching
    AbortPartial, Abort, Complete                                      Ended

Receiving begins once the call is out. A decision takes a phase and returns a signal with the next
phase; the table in `endturn.continuation.machine` says whether that signal is legal and where it
leads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from endturn.calls import Strategy, TurnOutcome
from endturn.continuation.answer_text import IncomingResponse
from endturn.continuation.machine import Signal, State
from endturn.continuation.result import Resumption
from endturn.continuation.termination import Finish
from endturn.continuation.tool_gate import ReportErrors, RunCalls
from endturn.vocabulary import ChatResponse, Message, Request, ToolCall

# --- Parts of phases ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Superseded:
    """A response that a later one replaces. It is recorded only if the turn ends first.

    Attributes:
        response: the response to be replaced.
        is_discarded: a different answer was requested, instead of the same response once more.
    """

    response: ChatResponse
    is_discarded: bool = False


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Messages that are not in the turn's history yet.

    Attributes:
        nudges: messages of the request that enter the history with its response; those of a failed
            call never do.
        written: the number of nudges that the observer has received.
        superseded: the response that the next one replaces.
    """

    nudges: tuple[Message, ...] = ()
    written: int = 0
    superseded: Superseded | None = None

    @property
    def is_discarded(self) -> bool:
        """True if a different answer was requested in place of the superseded response."""
        return self.superseded is not None and self.superseded.is_discarded

    def without_nudges(self) -> Unrecorded:
        """Return the value without nudges: they were recorded, or their call failed."""
        return Unrecorded(superseded=self.superseded)

    def supersede(self, response: ChatResponse) -> Unrecorded:
        """Return the value with this response to be replaced.

        Of several versions of one response the longest is kept; of several different answers the
        last with text.
        """
        current = self.superseded
        if current is not None:
            is_replaced = (
                response.text.strip()
                if current.is_discarded
                else len(current.response.text) <= len(response.text)
            )
            if not is_replaced:
                return self
        return replace(self, superseded=Superseded(response))

    def discard(self) -> Unrecorded:
        """Return the value after a different answer was requested."""
        if self.superseded is None:
            return self
        response = self.superseded.response
        return replace(
            self, superseded=Superseded(response, is_discarded=bool(response.text.strip()))
        )


NOTHING_UNRECORDED: Final = Unrecorded()


# --- Phases ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Requesting:
    """A call to the model is to be made.

    Attributes:
        request: what is sent.
        strategy: how the request asks for a continuation; None for an ordinary call.
        issue: the problem with the payload that the call repairs, as in `schema.ISSUE`; None for
            other calls.
        repair_calls: names of the tool calls of the latest refused payload; kept until tools have
            run.
        unrecorded: messages that enter the history with the response.
        previous: the response before the call; None for the first call of a turn, also of a resumed
            one.
    """

    request: Request
    strategy: Strategy | None = None
    issue: str | None = None
    repair_calls: tuple[str, ...] = ()
    unrecorded: Unrecorded = NOTHING_UNRECORDED
    previous: Responded | None = None

    @classmethod
    def first(cls, start: Resumption) -> Requesting:
        """Return the first call of a turn."""
        superseded = (
            None if start.superseded is None else Superseded(start.superseded, start.is_discarded)
        )
        return cls(
            request=start.next,
            strategy=start.strategy,
            issue="unverified_terminal" if start.strategy is Strategy.REPAIR else None,
            repair_calls=start.repair_calls,
            unrecorded=Unrecorded(nudges=start.pending, superseded=superseded),
        )


@dataclass(frozen=True, slots=True)
class Receiving:
    """The call was sent, and its response is awaited."""

    call: Requesting
    incoming: IncomingResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Responded:
    """The response of a call has arrived, complete or not.

    Attributes:
        call: the call; after the evaluation, with the messages that are still unrecorded.
        response: the call's response.
        is_overlong: the response is longer than the part that may be kept.
        error: the exception that carried the response, if an HTTP error did.
    """

    call: Requesting
    response: ChatResponse
    is_overlong: bool = False
    error: Exception | None = None

    def with_unrecorded(self, unrecorded: Unrecorded) -> Responded:
        """Return the response with other unrecorded messages."""
        return replace(self, call=replace(self.call, unrecorded=unrecorded))

    def next_call(
        self,
        request: Request,
        strategy: Strategy | None,
        unrecorded: Unrecorded,
        *,
        issue: str | None = None,
    ) -> Requesting:
        """Return a call that follows this response; it does not refer to earlier ones."""
        previous = self
        if self.call.previous is not None:
            previous = replace(self, call=replace(self.call, previous=None))
        return Requesting(
            request=request,
            strategy=strategy,
            issue=issue,
            repair_calls=self.call.repair_calls,
            unrecorded=unrecorded,
            previous=previous,
        )


@dataclass(frozen=True, slots=True)
class Truncated:
    """The response hit a limit, and its rest may be requested.

    Attributes:
        stall_outcome: the turn's outcome if the response added nothing worth continuing; else None.
    """

    latest: Responded
    stall_outcome: TurnOutcome | None


@dataclass(frozen=True, slots=True)
class Repairing:
    """The response's tool calls were truncated or are not trusted, and may be requested again.

    Attributes:
        issue: the problem, as in `schema.ISSUE`.
    """

    latest: Responded
    issue: str


@dataclass(frozen=True, slots=True)
class Paused:
    """The provider paused the response."""

    latest: Responded


@dataclass(frozen=True, slots=True)
class Retrying:
    """The response is worthless, but the same request may yield a better one.

    Attributes:
        request: the repeated request.
        outcome: the turn's outcome if it may not be sent.
    """

    latest: Responded
    request: Request
    outcome: TurnOutcome


@dataclass(frozen=True, slots=True)
class Trivial:
    """The answer is too short to be one, in a turn that a tool call should end."""

    latest: Responded


@dataclass(frozen=True, slots=True)
class Dispatching:
    """The response's tool calls are being run, or answered with errors.

    Attributes:
        verdict: the gate's verdict, with the calls.
        results: tool messages so far.
    """

    latest: Responded
    verdict: RunCalls | ReportErrors
    results: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The turn is over.

    Attributes:
        outcome: the turn's outcome.
        unrecorded: the messages that were still unrecorded; a superseded response enters the
            history now.
        response: the last response; None if there was none.
        finish: the model's explicit end of the turn.
        calls: tool calls that passed the gate, for a host that runs them itself.
        issue: the problem with the last response's payload.
        error: the exception that ended the turn, or carried the last response.
        resumption: the value that resumes the turn.
    """

    outcome: TurnOutcome
    unrecorded: Unrecorded
    response: ChatResponse | None
    finish: Finish | None = None
    calls: tuple[ToolCall, ...] = ()
    issue: str | None = None
    error: BaseException | None = None
    resumption: Resumption | None = None

    @classmethod
    def after(
        cls,
        latest: Responded,
        outcome: TurnOutcome,
        *,
        finish: Finish | None = None,
        calls: tuple[ToolCall, ...] = (),
        issue: str | None = None,
        resumption: Resumption | None = None,
    ) -> Ended:
        """Return the end of a turn after this last response."""
        return cls(
            outcome=outcome,
            unrecorded=latest.call.unrecorded,
            response=latest.response,
            finish=finish,
            calls=calls,
            issue=issue,
            error=latest.error,
            resumption=resumption,
        )


Pending = Truncated | Repairing | Paused | Retrying | Trivial
"""The phases that check whether a limit allows another call."""
Phase = Requesting | Receiving | Responded | Pending | Dispatching | Ended
Decision = tuple[Signal, Phase]
"""A signal to the machine, and the phase in the state that it leads to."""

PHASES: Final[Mapping[State, type[Phase]]] = MappingProxyType(
    {
        **dict.fromkeys(
            (State.REQUEST, State.REQUEST_CONTINUATION, State.RESUME_UNCHANGED), Requesting
        ),
        **dict.fromkeys((State.REPAIR, State.ASK_AGAIN), Requesting),
        State.EVALUATE_STOP: Responded,
        State.EXECUTE_TOOLS: Dispatching,
        State.CONTINUE_PENDING: Truncated,
        State.REPAIR_PENDING: Repairing,
        State.RESUME_PENDING: Paused,
        State.ASK_AGAIN_PENDING: Retrying,
        State.ITERATE_PENDING: Trivial,
        **dict.fromkeys((State.ABORT_PARTIAL, State.ABORT, State.COMPLETE), Ended),
    }
)
"""The phase in which each state is entered."""
