"""Provider calls as scopes: each is announced once, at whichever layer knows most of it.

`open_call` is told which layer is calling. endturn's own client announces at once; a wrapper (controller, decorator)
announces at the end, and only if nothing below it did; an HTTP exchange only where no scope of a client is open. An
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
from typing import TYPE_CHECKING, Any, Final

from endturn import hooks, turns
from endturn.events import (
    CallEnded,
    CallStarted,
    CallWithdrawn,
    Content,
    Turn,
    TurnKind,
    TurnOutcome,
    drop_implausible,
    plausible,
)
from endturn.hooks import Activation, Listener
from endturn.stop import Stop, word_shown
from endturn.turns import Step

if TYPE_CHECKING:
    from endturn.chat import ChatResponse, Request, Usage


log = logging.getLogger("endturn")


class Layer(StrEnum):
    """At what height of the stack a call is seen."""

    CLIENT = "client"
    WRAPPER = "wrapper"
    HTTP = "http"


MOST_GAPS: Final = 8
"""Times between two chunks that are kept of a stream. To record one takes the SDK several times as long as to read a
chunk."""

_call: ContextVar[Call | None] = ContextVar("endturn_call", default=None)


@dataclass(slots=True, eq=False)
class Call:
    """One provider call as a scope: open from the request until the response has been read to its end.

    `end` closes it, once: later ends are ignored, so that whoever sees the end first (last chunk, close, garbage
    collection) may say so.
    """

    layer: Layer
    outer: Call | None
    facts: dict[str, Any]
    asked: object
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
    listeners: tuple[Listener, ...] = field(default_factory=hooks.listeners)
    """Who listened when it was opened, and is told of it: of its beginning and of its end."""
    turn: Turn | None = None
    """The explicit turn that it belongs to, where whoever opened it knows."""
    within: Turn | None = None
    """The declared turn in which it was opened: a wrapper's call is that turn's, though it begins when that is over."""
    content: Callable[[Stop], Content | None] | None = None
    """Gives what was said, once the call has ended so; None where nobody takes it."""

    def step(self) -> Step:
        """Make this call, and its span, current for one step."""
        return Step(_call, self, self.activations)

    def includes(self, layer: Layer, asked: object) -> bool:
        """Whether what is asked within this call is a part of it.

        What a hook asks over HTTP while a request is sent is another call, unless it asks the same: a transport may
        hand on what it is given, perhaps in a form that cannot be read.
        """
        if self.layer is Layer.WRAPPER:
            return False
        if self.layer is not Layer.HTTP or layer is not Layer.HTTP or asked is None:
            return True
        try:
            return bool(asked == self.asked)
        except Exception:  # messages may be anybody's objects
            return True

    def said(self, request: Request | None, response: ChatResponse | None, *, beside: bool = False) -> None:
        """What was said, where somebody takes it and it is at hand; see Content."""
        responses = () if response is None else (response,)
        self.content = lambda stop: Content(request=request, beside=beside, responses=responses)

    def chunk(self) -> None:
        """A chunk of a stream has arrived. Of a long stream an even part of the times between them is kept."""
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
        """The record of the start, announced now where it was not."""
        if self.started is None:
            self.started = self._begin()
        return self.started

    def _begin(self) -> CallStarted:
        here = self.turn or turns.TURN.get()
        if here is None or (here is not self.turn and here is not self.within):
            here = turns.current_turn()
        turn, continuation = turns.inference().resolve(self.asked, here)
        if turn.kind is TurnKind.IMPLICIT and not turn.iterations:
            # The turn began with the call, which may be announced when it has ended.
            turn.started_s, turn.started_ns = self.started_s, self.started_ns
        turn.iterations += 1
        turn.open_streams += bool(self.facts.get("stream"))
        drop_implausible(self.facts)
        self.started = started = CallStarted(
            number=hooks.number(),
            turn=turn,
            iteration=turn.iterations,
            continuation=continuation,
            started_ns=self.started_ns,
            started_s=self.started_s,
            **self.facts,
        )
        self.cover()
        self.activations = hooks.emit(started, self.listeners)
        return started

    def withdraw(self) -> None:
        """What was announced was no call of a model."""
        if self.started is None or self.ended:
            return
        self.ended = True
        turn = self.started.turn
        turn.iterations -= 1
        turn.open_streams -= self.started.stream
        turns.inference().withdrawn(self.started)
        hooks.emit(CallWithdrawn(started=self.started), self.listeners)

    def cover(self) -> None:
        """Mark the enclosing wrappers as announced from below."""
        outer = self.outer
        # A call of an SDK, or over HTTP, has a record of its own, of which all that is further out knows.
        while outer is not None and not outer.covered and outer.layer is Layer.WRAPPER:
            outer.covered = True
            outer = outer.outer

    def end(
        self,
        stop: Stop,
        *,
        usage: Usage | None = None,
        response_id: str | None = None,
        response_model: str | None = None,
        reasons: tuple[str | None, ...] = (),
        output_chars: int = 0,
        tail: str = "",
        error: BaseException | None = None,
        over_s: float | None = None,
    ) -> CallEnded | None:
        """Close the scope and announce what came, unless a layer below already did.

        Args:
            over_s: when it was over, by `time.perf_counter()`; now where not given.
            tail: the last visible characters of the answer, to recognise its continuation; never recorded.

        Returns:
            The record, None where this layer makes none.
        """
        if self.ended:
            return None
        self.ended = True
        if self.covered:
            return None
        over_s = over_s or time.perf_counter()
        started = self.announced()
        turn = started.turn
        if not stop.mapped and stop.raw is not None:
            _log_unmapped(started.provider, started.model, word_shown(stop.raw))
        ended = CallEnded(
            started=started,
            stop=stop,
            usage=plausible(usage),
            response_id=response_id,
            response_model=response_model,
            reasons=reasons,
            output_chars=output_chars,
            error=error,
            duration_s=over_s - self.started_s,
            first_chunk_s=self.first_chunk_s,
            chunk_gaps_s=tuple(self.chunk_gaps_s),
            content=None if self.content is None else _said(self.content, stop),
        )
        turn.count(ended)
        turns.inference().answered(ended, self.asked)
        hooks.emit(ended, self.listeners)
        turns.inference().ended(ended, self.asked, tail)
        turn.open_streams -= started.stream
        if turn.ending is not None and not turn.open_streams:
            outcome, raised = turn.ending
            if outcome is TurnOutcome.COMPLETED:
                outcome = turns.outcome_of(ended)
            turns.end_turn(turn, outcome, error=raised, over_s=over_s)
        return ended


@lru_cache(1_024)
def _log_unmapped(provider: str, model: str, raw: str) -> None:
    """Log a stop reason that has no row. The cache is what makes it once for each provider, model and value."""
    log.warning(
        "unknown stop reason %r from %s, model %s: it is treated as unknown, not as an end", raw, provider, model
    )


def _said(content: Callable[[Stop], Content | None], stop: Stop) -> Content | None:
    try:
        return content(stop)
    except Exception:
        hooks.log_internal_error("gathering what was said")
        return None


def open_call(layer: Layer, asked: Any = None, *, late: bool = False, **facts: Any) -> Call | None:
    """Open the scope of one provider call.

    Args:
        layer: a client's call, or one over HTTP, is announced now; a wrapper's when it ends, unless one below was.
        late: it is announced by `Call.announced`, or when it ends.
        asked: what the call asks for (a RequestSummary), from which its turn is inferred where none was declared.
        facts: the fields of CallStarted that describe the request, besides what it asks for, or in its place.

    Returns:
        The scope, None where it is part of a call that is open, and announced.
    """
    outer = _call.get()
    while outer is not None and outer.ended:  # what runs on in a call's context when that is over keeps none of it
        outer = outer.outer
    if outer is not None and outer.includes(layer, asked):
        return None
    if asked is not None:
        facts = {
            "model": asked.model,
            "stream": asked.stream,
            "maximum": asked.maximum,
            "choices": asked.choices,
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "top_k": asked.top_k,
            "seed": asked.seed,
            "stop_sequences": asked.stop_sequences,
            "reasoning_level": asked.reasoning_level,
            "previous_id": asked.previous_id,
            "output_type": asked.output_type,
            **facts,
        }
    within = None if turns.TURN.get() is None else turns.declared_turn()
    call = Call(layer, outer, facts, asked, time.time_ns(), time.perf_counter(), within=within)
    if layer is not Layer.WRAPPER and not late:
        call.announced()
    return call
