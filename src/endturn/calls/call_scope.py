"""One model call from its start to its end, as a scope: a context variable for the running code.

The context variable is set and reset inside one step; it never stays set across a `yield`.

Several layers may observe the same call. Only one of them, which knows most about it, emits the
records. endturn's own client emits `CallStarted` at once; a wrapper (controller, decorator) only
when it ends, and only if no layer below it has; an HTTP exchange only if no client's call is open.
The records of an inner layer carry the turn of the outer one.
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

from endturn.calls.facts import plausible_facts, plausible_response
from endturn.calls.listeners import (
    Activation,
    Listener,
    current_listeners,
    emit,
    log_internal_error,
    next_id,
)
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
from endturn.vocabulary import Stop, StopReason, sanitize_reason, value_key

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

    `end` closes it. Further calls of `end` are ignored: a stream's last chunk, its close and its
    garbage collection all call it.
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
    has_ended: bool = False
    first_chunk_s: float | None = None
    chunk_gaps_s: tuple[float, ...] = ()
    later_chunks: int = 0
    """The number of chunks after the first."""
    gap_interval: int = 1
    """The time before every n-th chunk is kept. n doubles when `MAX_CHUNK_GAPS` are kept."""
    last_chunk_s: float = 0.0
    activations: tuple[Activation, ...] = ()
    listeners: tuple[Listener, ...] = field(default_factory=current_listeners)
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
    """Another instrumentation's span that the call adopts, as in CallStarted."""

    def step(self) -> ScopeStep:
        """Make this call, and its span, current for one step."""
        return ScopeStep(_call, self, self.activations)

    def includes(self, layer: Layer, summary: SummarizedRequest | None) -> bool:
        """Return whether a request that is sent within this call is a part of it.

        Within an HTTP exchange, another HTTP request is a part of it only if both have the same
        summary, or the inner one has none: a transport forwards a request, while an event hook of
        the HTTP client may send another one.
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
            # The turn began with its first call, whose start may be emitted after its end.
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
        """Withdraw a call whose start was emitted, because its request was not for a model."""
        if self.started is None or self.has_ended:
            return
        self.has_ended = True
        turn = self.started.turn
        turn.iterations -= 1
        turn.open_streams -= self.started.request.stream
        inference().on_cancel(self.started, self.summary)
        emit(CallWithdrawn(started=self.started), self.listeners)

    def mark_reported(self) -> None:
        """Mark enclosing wrapper calls as reported: the inner call emits the record."""
        outer = self.outer
        # Stop at a call of another layer: it emitted its own record, and marked those around it.
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
            error: the exception. One that only stops the application (a cancelled task, Ctrl-C) is
                ignored if the stop reason has arrived before.
            ended_s: the end of the call, by `time.perf_counter()`. Defaults to now.

        Returns:
            The record; None if this layer makes none.
        """
        if self.has_ended:
            return None
        self.has_ended = True
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
                sanitize_reason(stop.raw),
            )
        is_interrupted = error is not None and not isinstance(error, Exception)
        ended = CallEnded(
            started=started,
            response=plausible_response(response),
            error=None if is_interrupted and stop.reason is not StopReason.CANCELLED else error,
            duration_s=ended_s - self.started_s,
            first_chunk_s=self.first_chunk_s,
            chunk_gaps_s=self.chunk_gaps_s,
            content=None if self.content is None else _captured_content(self.content, stop),
        )
        add_call(turn, ended)
        turn_inference = inference()
        turn_inference.on_response(ended, self.summary)
        emit(ended, self.listeners)
        turn_inference.on_call_end(ended, self.summary, tail, tool_calls)
        turn.open_streams -= started.request.stream
        if turn.pending_end is not None and not turn.open_streams:
            outcome, turn_error = turn.pending_end
            if outcome is TurnOutcome.COMPLETED:
                outcome = outcome_of(ended)
            end_turn(turn, outcome, error=turn_error, ended_s=ended_s)
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
        layer: the start of a wrapper's call is emitted when it ends, unless a call below it was
            emitted; that of other layers now.
        request: the facts of the request; endpoint: those of its address.
        summary: the request from which the call's turn is inferred, if none was declared.
        adopt: as in CallStarted.
        is_deferred: emit the start when `Call.ensure_started` is called, or when the call ends.

    Returns:
        The scope; None if it is part of an open call.
    """
    outer = _call.get()
    # code may keep running in a call's context after the call's end
    while outer is not None and outer.has_ended:
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
