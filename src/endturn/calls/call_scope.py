"""One model call from its start to its end, as a scope: a context variable for the running code.

The context variable is set and reset inside one step; it never stays set across a `yield`.

Each call is announced once, by the layer with the most information; `open_call` gets the layer.
endturn's own client announces at once; a wrapper (controller, decorator) announces at the end, and
only if no layer below it did; an HTTP exchange only if no scope of a client is open. An outer layer
adds its turn to every inner record and never makes a record of its own.
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
from endturn.calls.listeners import Activation, Listener, emit, log_internal_error, next_id
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
    ScopeStep,
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
    """The layer of the stack at which a call is observed."""

    CLIENT = "client"
    WRAPPER = "wrapper"
    HTTP = "http"


MAX_CHUNK_GAPS: Final = 8
"""Times between two chunks that are kept of a stream. The SDK takes several times as long to record
one as to read a chunk."""


_call: ContextVar[Call | None] = ContextVar("endturn_call", default=None)


@dataclass(slots=True, eq=False)
class Call:
    """One provider call as a scope.

    Open from the request until the response has been read to its end.

    `end` closes it, once: later ends are ignored, so that the first of several signs of the end
    (last chunk, close, garbage collection) counts.
    """

    layer: Layer
    outer: Call | None
    request: RequestFacts
    endpoint: EndpointFacts
    summary: SummarizedRequest | None
    """The request from which its turn is inferred; None if it could not be read."""
    started_ns: int
    started_s: float
    started: CallStarted | None = None
    is_reported_below: bool = False
    ended: bool = False
    first_chunk_s: float | None = None
    chunk_gaps_s: tuple[float, ...] = ()
    later_chunks: int = 0
    """The number of chunks after the first."""
    gap_interval: int = 1
    """Every so many chunks, the time before one is kept: 1, 2, 4, …"""
    last_chunk_s: float = 0.0
    activations: tuple[Activation, ...] = ()
    listeners: tuple[Listener, ...] = field(default_factory=hooks.current_listeners)
    """The listeners when it was opened: they receive its start and its end."""
    turn: Turn | None = None
    """The explicit turn that it belongs to, if the caller of `open_call` has set it."""
    declared_turn: Turn | None = None
    """The declared turn in which it was opened: a wrapper's call belongs to that turn, even if it
    begins after the turn's end."""
    content: Callable[[Stop], Content | None] | None = None
    """Returns the captured content for the stop of the ended call; None if no listener takes it."""
    identity: ResponseIdentity = field(default_factory=ResponseIdentity)
    """The response's id and model, as soon as they are known."""
    adopt: object = None
    """As in CallStarted."""

    def step(self) -> ScopeStep:
        """Make this call, and its span, current for one step."""
        return ScopeStep(_call, self, self.activations)

    def includes(self, layer: Layer, summary: SummarizedRequest | None) -> bool:
        """Return whether a request within this call is a part of it.

        A hook's HTTP request while a request is being sent is another call, unless both are equal:
        a transport may pass on the request, perhaps in a form that cannot be read.
        """
        if self.layer is Layer.WRAPPER:
            return False
        if self.layer is not Layer.HTTP or layer is not Layer.HTTP or summary is None:
            return True
        try:
            return bool(summary == self.summary)
        except Exception:  # messages may be objects of the host
            return True

    def attach_content(
        self,
        request: Request | None,
        response: ChatResponse | None,
        *,
        is_system_separate: bool = False,
    ) -> None:
        """Attach the captured content, for listeners that take it; see Content."""
        responses = () if response is None else (response,)
        self.content = lambda stop: Content(
            request=request, is_system_separate=is_system_separate, responses=responses
        )

    def record_chunk(self) -> None:
        """Record that a chunk of a stream has arrived.

        Of a long stream, an even sample of the times between chunks is kept.
        """
        now_s = time.perf_counter()
        if self.first_chunk_s is None:
            self.first_chunk_s = now_s - self.started_s
        else:
            self.later_chunks += 1
            if self.later_chunks % self.gap_interval == 0:
                self.chunk_gaps_s = (*self.chunk_gaps_s, now_s - self.last_chunk_s)
                if len(self.chunk_gaps_s) == MAX_CHUNK_GAPS:
                    self.chunk_gaps_s = self.chunk_gaps_s[1::2]
                    self.gap_interval *= 2
        self.last_chunk_s = now_s

    def ensure_started(self) -> CallStarted:
        """Return the record of the start, and emit it if it was not."""
        if self.started is not None:
            return self.started
        explicit = self.turn or TURN.get()
        if explicit is None or (explicit is not self.turn and explicit is not self.declared_turn):
            explicit = current_turn()
        turn, continuation = inference().resolve(self.summary, explicit)
        if turn.kind is TurnKind.IMPLICIT and not turn.iterations:
            # The turn began with the call, which may be announced only after its end.
            turn.started_s, turn.started_ns = self.started_s, self.started_ns
        turn.iterations += 1
        turn.open_streams += self.request.stream
        self.started = CallStarted(
            number=next_id(),
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
            self.mark_reported()
        self.activations = emit(self.started, self.listeners)
        return self.started

    def cancel(self) -> None:
        """Cancel an announced call, because its request was not for a model."""
        if self.started is None or self.ended:
            return
        self.ended = True
        turn = self.started.turn
        turn.iterations -= 1
        turn.open_streams -= self.started.request.stream
        inference().on_cancel(self.started, self.summary)
        emit(CallWithdrawn(started=self.started), self.listeners)

    def mark_reported(self) -> None:
        """Mark enclosing wrapper calls as reported: the inner call emits the record."""
        outer = self.outer
        # A call of an SDK, or over HTTP, has its own record, and has marked the calls around it.
        while outer is not None and not outer.is_reported_below and outer.layer is Layer.WRAPPER:
            outer.is_reported_below = True
            outer = outer.outer

    def end(
        self,
        response: ResponseFacts,
        *,
        tail: str = "",
        tool_calls: tuple[RequestedCall, ...] = (),
        error: BaseException | None = None,
        ended_s: float | None = None,
    ) -> CallEnded | None:
        """Close the scope and emit the record, unless a layer below already did.

        Args:
            response: the facts of the response.
            tail: the last visible characters of the answer, to recognise its continuation; never
                recorded.
            tool_calls: the client tool calls that it requests, to recognise their results; never
                recorded.
            error: the exception. That of a host that stops (a cancelled task, Ctrl-C) after the
                stop reason has arrived is no error of the call.
            ended_s: the end of the call, by `time.perf_counter()`. Defaults to now.

        Returns:
            The record; None if this layer makes none.
        """
        if self.ended:
            return None
        self.ended = True
        if self.is_reported_below:
            return None
        ended_s = ended_s or time.perf_counter()
        started = self.started or self.ensure_started()
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
            duration_s=ended_s - self.started_s,
            first_chunk_s=self.first_chunk_s,
            chunk_gaps_s=self.chunk_gaps_s,
            content=None if self.content is None else _captured_content(self.content, stop),
        )
        add_call(turn, ended)
        turns = inference()
        turns.on_response(ended, self.summary)
        emit(ended, self.listeners)
        turns.on_call_end(ended, self.summary, tail, tool_calls)
        turn.open_streams -= started.request.stream
        if turn.pending_end is not None and not turn.open_streams:
            outcome, raised = turn.pending_end
            if outcome is TurnOutcome.COMPLETED:
                outcome = outcome_of(ended)
            end_turn(turn, outcome, error=raised, ended_s=ended_s)
        return ended


def _captured_content(content: Callable[[Stop], Content | None], stop: Stop) -> Content | None:
    """Return the captured content of a call with this stop; None if collecting it fails."""
    try:
        return content(stop)
    except Exception:
        log_internal_error("gathering what was said")
        return None


@lru_cache(1_024)
def _log_unmapped(provider: str, model: str, key: str, word: str) -> None:
    """Log a stop reason that has no row.

    The cache limits it to once for each provider, model and value (`key`).
    """
    log.warning(
        "unknown stop reason %r from %s, model %s: it is recorded as unknown and does not end the "
        "turn normally",
        word,
        provider,
        model,
    )


def open_call(
    layer: Layer,
    request: RequestFacts,
    endpoint: EndpointFacts,
    *,
    summary: SummarizedRequest | None = None,
    adopt: object = None,
    is_deferred: bool = False,
) -> Call | None:
    """Open the scope of one provider call.

    Args:
        layer: a client's call, or one over HTTP, is announced now; a wrapper's when it ends, unless
            a call below it was.
        request: the facts of the request; endpoint: those of its address.
        summary: the request from which the call's turn is inferred, if none was declared.
        adopt: as in CallStarted.
        is_deferred: the call is announced by `Call.ensure_started`, or when it ends.

    Returns:
        The scope; None if it is part of an open call that is announced.
    """
    outer = _call.get()
    # code may keep running in a call's context after the call's end
    while outer is not None and outer.ended:
        outer = outer.outer
    if outer is not None and outer.includes(layer, summary):
        return None
    declared = None if TURN.get() is None else declared_turn()
    call = Call(
        layer,
        outer,
        request,
        endpoint,
        summary,
        time.time_ns(),
        time.perf_counter(),
        declared_turn=declared,
        adopt=adopt,
    )
    if layer is not Layer.WRAPPER and not is_deferred:
        call.ensure_started()
    return call
