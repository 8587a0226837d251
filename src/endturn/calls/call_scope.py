"""One model call from its start to its end, as a scope: what the running code is part of.

A scope is a context variable that is set and reset inside one step; it never stays set across a
`yield`.

Each call is announced once, at whichever layer knows most of it. `open_call` is told which layer is
calling. endturn's own client announces at once; a wrapper (controller, decorator) announces at the
end, and only if nothing below it did; an HTTP exchange only where no scope of a client is open. An
outer layer adds its turn to every inner record and never makes a record of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from endturn.calls import listeners as hooks
from endturn.calls.facts import plausible_facts, plausible_response
from endturn.calls.listeners import Activation, Listener, emit, log_internal_error, number
from endturn.calls.outcomes import RequestedCall, TurnKind, TurnOutcome
from endturn.calls.records import (
    CallEnded,
    CallStarted,
    CallWithdrawn,
    Content,
    ResponseIdentity,
)
from endturn.calls.turn import Turn
from endturn.calls.turn_scope import (
    TURN,
    Step,
    current_turn,
    declared_turn,
    end_turn,
    inference,
    outcome_of,
)
from endturn.calls.turn_totals import add_call
from endturn.vocabulary import Stop, StopReason, value_key, word_shown

if TYPE_CHECKING:
    from endturn.calls.facts import EndpointFacts, RequestFacts, ResponseFacts, SummarizedRequest
    from endturn.vocabulary import ChatResponse, Request

log = logging.getLogger("endturn")


class Layer(StrEnum):
    """At what height of the stack a call is seen."""

    CLIENT = "client"
    WRAPPER = "wrapper"
    HTTP = "http"


MOST_GAPS: Final = 8
"""Times between two chunks that are kept of a stream. To record one takes the SDK several times as
long as to read a chunk."""


_call: ContextVar[Call | None] = ContextVar("endturn_call", default=None)


@dataclass(slots=True, eq=False)
class Call:
    """One provider call as a scope.

    Open from the request until the response has been read to its end.

    `end` closes it, once: later ends are ignored, so that whoever sees the end first (last chunk,
    close, garbage collection) may say so.
    """

    layer: Layer
    outer: Call | None
    request: RequestFacts
    endpoint: EndpointFacts
    asked: SummarizedRequest | None
    """What its turn is inferred from; None where the request could not be read."""
    started_ns: int
    started_s: float
    started: CallStarted | None = None
    covered: bool = False
    ended: bool = False
    first_chunk_s: float | None = None
    chunk_gaps_s: list[float] = field(default_factory=list)
    chunks: int = 0
    """How many have arrived after the first."""
    every: int = 1
    """The time before each so many of these is kept: 1, 2, 4, …"""
    last_chunk_s: float = 0.0
    activations: tuple[Activation, ...] = ()
    listeners: tuple[Listener, ...] = field(default_factory=hooks.current_listeners)
    """Who listened when it was opened, and is told of it: of its beginning and of its end."""
    turn: Turn | None = None
    """The explicit turn that it belongs to, where whoever opened it knows."""
    within: Turn | None = None
    """The declared turn in which it was opened: a wrapper's call is that turn's, though it begins
    when that is over."""
    content: Callable[[Stop], Content | None] | None = None
    """Gives what was said, once the call has ended so; None where nobody takes it."""
    identity: ResponseIdentity = field(default_factory=ResponseIdentity)
    """What the response calls itself, as soon as that is known."""
    adopt: object = None
    """As in CallStarted."""

    def step(self) -> Step:
        """Make this call, and its span, current for one step."""
        return Step(_call, self, self.activations)

    def includes(self, layer: Layer, asked: SummarizedRequest | None) -> bool:
        """Whether what is asked within this call is a part of it.

        What a hook asks over HTTP while a request is sent is another call, unless it asks the same:
        a transport may hand on what it is given, perhaps in a form that cannot be read.
        """
        if self.layer is Layer.WRAPPER:
            return False
        if self.layer is not Layer.HTTP or layer is not Layer.HTTP or asked is None:
            return True
        try:
            return bool(asked == self.asked)
        except Exception:  # messages may be anybody's objects
            return True

    def said(
        self, request: Request | None, response: ChatResponse | None, *, beside: bool = False
    ) -> None:
        """Attach the captured content, where somebody takes it and it is at hand; see Content."""
        responses = () if response is None else (response,)
        self.content = lambda stop: Content(request=request, beside=beside, responses=responses)

    def chunk(self) -> None:
        """Note that a chunk of a stream has arrived.

        Of a long stream an even part of the times between them is kept.
        """
        now_s = time.perf_counter()
        if self.first_chunk_s is None:
            self.first_chunk_s = now_s - self.started_s
        else:
            self.chunks += 1
            if self.chunks % self.every == 0:
                self.chunk_gaps_s.append(now_s - self.last_chunk_s)
                if len(self.chunk_gaps_s) == MOST_GAPS:
                    del self.chunk_gaps_s[::2]
                    self.every *= 2
        self.last_chunk_s = now_s

    def announced(self) -> CallStarted:
        """Return the record of the start, and emit it if it was not."""
        if self.started is not None:
            return self.started
        here = self.turn or TURN.get()
        if here is None or (here is not self.turn and here is not self.within):
            here = current_turn()
        turn, continuation = inference().resolve(self.asked, here)
        if turn.kind is TurnKind.IMPLICIT and not turn.iterations:
            # The turn began with the call, which may be announced when it has ended.
            turn.started_s, turn.started_ns = self.started_s, self.started_ns
        turn.iterations += 1
        turn.open_streams += self.request.stream
        self.started = CallStarted(
            number=number(),
            request=plausible_facts(self.request),
            endpoint=plausible_facts(self.endpoint),
            turn=turn,
            iteration=turn.iterations,
            continuation=continuation,
            started_ns=self.started_ns,
            started_s=self.started_s,
            identity=self.identity,
            adopt=self.adopt,
        )
        if self.outer is not None:
            self.cover()
        self.activations = emit(self.started, self.listeners)
        return self.started

    def withdraw(self) -> None:
        """Take back a call that was announced: it asked no model."""
        if self.started is None or self.ended:
            return
        self.ended = True
        turn = self.started.turn
        turn.iterations -= 1
        turn.open_streams -= self.started.request.stream
        inference().withdrawn(self.started, self.asked)
        emit(CallWithdrawn(started=self.started), self.listeners)

    def cover(self) -> None:
        """Mark the enclosing wrappers as announced from below."""
        outer = self.outer
        # A call of an SDK, or over HTTP, has a record of its own, of which all that is further out
        # knows.
        while outer is not None and not outer.covered and outer.layer is Layer.WRAPPER:
            outer.covered = True
            outer = outer.outer

    def end(
        self,
        response: ResponseFacts,
        *,
        tail: str = "",
        tool_calls: tuple[RequestedCall, ...] = (),
        error: BaseException | None = None,
        over_s: float | None = None,
    ) -> CallEnded | None:
        """Close the scope and announce what came, unless a layer below already did.

        Args:
            response: what the response says.
            tail: the last visible characters of the answer, to recognise its continuation; never
                recorded.
            tool_calls: the client tool calls that it asks for, to recognise their results; never
                recorded.
            error: what was raised. That of a host that stops (a cancelled task, Ctrl-C) after the
                reason has come is no error of the call.
            over_s: when it was over, by `time.perf_counter()`; now where not given.

        Returns:
            The record, None where this layer makes none.
        """
        if self.ended:
            return None
        self.ended = True
        if self.covered:
            return None
        over_s = over_s or time.perf_counter()
        started = self.started or self.announced()
        turn, stop = started.turn, response.stop
        if not stop.mapped and stop.raw is not None:
            _log_unmapped(
                started.endpoint.provider,
                started.request.model,
                value_key(stop.raw),
                word_shown(stop.raw),
            )
        is_stopped = error is not None and not isinstance(error, Exception)
        ended = CallEnded(
            started=started,
            response=plausible_response(response),
            error=None if is_stopped and stop.reason is not StopReason.CANCELLED else error,
            duration_s=over_s - self.started_s,
            first_chunk_s=self.first_chunk_s,
            chunk_gaps_s=tuple(self.chunk_gaps_s),
            content=None if self.content is None else _gathered(self.content, stop),
        )
        add_call(turn, ended)
        inference().answered(ended, self.asked)
        emit(ended, self.listeners)
        inference().ended(ended, self.asked, tail, tool_calls)
        turn.open_streams -= started.request.stream
        if turn.ending is not None and not turn.open_streams:
            outcome, raised = turn.ending
            if outcome is TurnOutcome.COMPLETED:
                outcome = outcome_of(ended)
            end_turn(turn, outcome, error=raised, over_s=over_s)
        return ended


def _gathered(content: Callable[[Stop], Content | None], stop: Stop) -> Content | None:
    """Return the captured content of a call that stopped so."""
    try:
        return content(stop)
    except Exception:
        log_internal_error("gathering what was said")
        return None


@lru_cache(1_024)
def _log_unmapped(provider: str, model: str, key: str, shown: str) -> None:
    """Log a stop reason that has no row.

    The cache is what makes it once for each provider, model and value (`key`).
    """
    log.warning(
        "unknown stop reason %r from %s, model %s: it is recorded as unknown and does not end the "
        "turn normally",
        shown,
        provider,
        model,
    )


def open_call(
    layer: Layer,
    request: RequestFacts,
    endpoint: EndpointFacts,
    *,
    asked: SummarizedRequest | None = None,
    adopt: object = None,
    late: bool = False,
) -> Call | None:
    """Open the scope of one provider call.

    Args:
        layer: a client's call, or one over HTTP, is announced now; a wrapper's when it ends, unless
            one below was.
        request: what the request says, as it is recorded; endpoint: who is asked.
        asked: what the turn of the call is inferred from, where none was declared.
        adopt: as in CallStarted.
        late: it is announced by `Call.announced`, or when it ends.

    Returns:
        The scope, None where it is part of a call that is open, and announced.
    """
    outer = _call.get()
    # what runs on in a call's context when that is over keeps none of it
    while outer is not None and outer.ended:
        outer = outer.outer
    if outer is not None and outer.includes(layer, asked):
        return None
    within = None if TURN.get() is None else declared_turn()
    call = Call(
        layer,
        outer,
        request,
        endpoint,
        asked,
        time.time_ns(),
        time.perf_counter(),
        within=within,
        adopt=adopt,
    )
    if layer is not Layer.WRAPPER and not late:
        call.announced()
    return call
