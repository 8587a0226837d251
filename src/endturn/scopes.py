"""Turns and provider calls as scopes: what the running code is part of, and how each begins and ends.

A scope is a context variable that is set and reset inside one step; it never stays set across a `yield`.

Each call is announced once, at whichever layer knows most of it. `open_call` is told which layer is calling. endturn's
own client announces at once; a wrapper (controller, decorator) announces at the end, and only if nothing below it did;
an HTTP exchange only where no scope of a client is open. An outer layer adds its turn to every inner record and never
makes a record of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

from endturn import hooks
from endturn.events import (
    COMPLETE,
    CallEnded,
    CallStarted,
    CallWithdrawn,
    Content,
    Continuation,
    ToolEnded,
    ToolStarted,
    Turn,
    TurnEnded,
    TurnKind,
    TurnOutcome,
    TurnStarted,
    drop_implausible,
    plausible,
)
from endturn.hooks import Activation, Listener, emit, log_internal_error, number
from endturn.stop import Stop, StopReason, word_shown
from endturn.tables import lines, shipped

if TYPE_CHECKING:
    from endturn.chat import ChatResponse, Request, Usage

log = logging.getLogger("endturn")

TURN: ContextVar[Turn | None] = ContextVar("endturn_turn", default=None)
"""What a turn's step sets; `declared_turn` says what it means."""

_find_turn: Callable[[], Turn | None] | None = None


def find_turns_with(find: Callable[[], Turn | None] | None) -> None:
    """Where no turn was declared, have `find` say which one the running code is part of: an agent's span is one."""
    global _find_turn
    _find_turn = find


def declared_turn() -> Turn | None:
    """The turn of a controller or an observed function that the running code is part of.

    One that is over gives way to the one around it: what a turn started, a worker say, may run on when it has ended.
    """
    turn = TURN.get()
    return turn if turn is None or turn.outcome is None else turn.still_open()


def current_turn() -> Turn | None:
    """The explicit turn that the running code is part of: what was declared comes before what is recognised."""
    turn = declared_turn()
    if turn is None and _find_turn is not None:
        turn = _find_turn()
    return turn


class Step:
    """Makes a scope current for one step: around one synchronous stretch or one `await`, never a `yield`.

    Once left, it may be entered again.
    """

    __slots__ = ("_activations", "_entered", "_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: object, activations: tuple[Activation, ...]) -> None:
        self._variable = variable
        self._value = value
        self._activations = activations

    def __enter__(self) -> None:
        self._token: Token[Any] = self._variable.set(self._value)
        self._entered: ExitStack | None = None
        if self._activations:
            self._entered = ExitStack()
            for activation in self._activations:
                try:
                    self._entered.enter_context(activation())
                except Exception:
                    log_internal_error("making a span current")

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entered is not None:
            try:
                self._entered.__exit__(kind, value, trace)
            except Exception:
                log_internal_error("leaving a span")
        try:
            self._variable.reset(self._token)
        except ValueError:  # a host that drives one coroutine from several contexts: the step was the other's
            log.debug("endturn: a step ended in another context than it began in")


def start_turn(turn: Turn) -> TurnScope:
    """Announce an explicit turn and open its scope.

    A controller's turn within an observed one is a part of that, and is not announced: its records have the id, the
    agent and the conversation of the outer turn, which gets its tally and its outcome.
    """
    turn.around = declared_turn()
    if turn.around is not None and turn.around.around is not None:
        turn.around.around = turn.around.around.still_open()  # turns that start each other may have no end
    outer = current_turn() if turn.kind is TurnKind.CONTROLLER else None
    if outer is not None and outer.kind is TurnKind.OBSERVED and outer.outcome is None:
        turn.join(outer)
        return TurnScope(turn, ())
    return TurnScope(turn, emit(TurnStarted(turn=turn)))


@dataclass(slots=True, eq=False)
class TurnScope:
    """An explicit turn as a scope."""

    turn: Turn
    activations: tuple[Activation, ...]

    def step(self) -> Step:
        """Make this turn, and its span, current for one step."""
        return Step(TURN, self.turn, self.activations)

    def end(self, outcome: TurnOutcome, *, error: BaseException | None = None, over_s: float | None = None) -> None:
        """Announce the end, once."""
        end_turn(self.turn, outcome, error=error, over_s=over_s)


def end_turn(
    turn: Turn, outcome: TurnOutcome, *, error: BaseException | None = None, over_s: float | None = None
) -> None:
    """Announce that a turn ended, once: a turn that already has an outcome stays as it is.

    An observed turn whose function returned a stream ends when the stream has been read. One that completed, but leaves
    a truncated response unfinished, ends `not_continued`. The end of one that is a part of another is not announced:
    the outer turn, where it completes, ends as the last of its parts.

    Args:
        over_s: when it was over, by `time.perf_counter`; None: now.
    """
    if turn.outcome is not None:
        return
    if over_s is None:
        over_s = time.perf_counter()
    if turn.kind is TurnKind.OBSERVED:
        if turn.open_streams:
            turn.ending = outcome, error
            return
        if outcome is TurnOutcome.COMPLETED:
            outcome = completed(turn)
    turn.outcome = outcome
    if (outer := turn.within) is not None:
        turn.leave(outer)
        if outer.ending is not None and not outer.open_streams:
            end_turn(outer, outer.ending[0], error=outer.ending[1])
        return
    if turn.kind is TurnKind.IMPLICIT and turn.last_s is not None:
        over_s = turn.last_s  # over with its last call, though that is known only later: nobody took up what was cut
    emit(
        TurnEnded(
            turn=turn,
            outcome=outcome,
            complete=outcome in COMPLETE and not turn.unfinished,
            duration_s=over_s - turn.started_s,
            error=error,
        )
    )


def completed(turn: Turn) -> TurnOutcome:
    """The outcome of an observed turn of which its host says that it is complete."""
    outcome = turn.inner or TurnOutcome.COMPLETED
    return TurnOutcome.NOT_CONTINUED if outcome in COMPLETE and turn.unfinished else outcome


def outcome_of(ended: CallEnded) -> TurnOutcome:
    """The outcome of a turn whose last call ended so, and which nobody declared."""
    if ended.error is not None and ended.stop.reason is not StopReason.CANCELLED:
        return TurnOutcome.PROVIDER_ERROR
    return OUTCOMES[ended.stop.reason]


OUTCOMES: Final = {
    StopReason(reason): TurnOutcome(outcome)
    for _, (outcome, _, _, after, _) in lines(shipped(), "outcomes.tsv", range(5, 6))
    for reason in after.split()
}
"""How a turn ends whose last response stopped for that reason, where nothing else is known."""


class Inference(Protocol):
    """Says which turn a call belongs to, where nobody declared one, and when such a turn is over.

    By default a call inside an explicit turn belongs to it; outside it is its own turn, and ends with the call.
    """

    def resolve(self, asked: object, turn: Turn | None) -> tuple[Turn, Continuation | None]:
        """The turn of a call that asks for `asked` (a format's RequestSummary, or None), and what the call continues.

        Args:
            turn: the explicit turn that the call is made in.
        """
        return (Turn(kind=TurnKind.IMPLICIT), None) if turn is None else (turn, turn.continuation)

    def withdrawn(self, started: CallStarted) -> None:
        """What was taken for a call was none: what it continued still waits."""

    def answered(self, ended: CallEnded, asked: object) -> None:
        """A call is about to be announced as ended: take out of its turn's `cut` the answers that this one finishes."""
        turn = ended.started.turn
        if turn.kind is TurnKind.OBSERVED and ended.whole:
            turn.cut.clear()  # nothing is known of which call is whose

    def ended(self, ended: CallEnded, asked: object, tail: str) -> None:
        """A call has ended, which has been announced."""
        turn = ended.started.turn
        if turn.kind is TurnKind.IMPLICIT:
            end_turn(turn, TurnOutcome.NOT_CONTINUED if turn.unfinished else outcome_of(ended))


class NoInference(Inference):
    """The default."""

    def withdrawn(self, started: CallStarted) -> None:
        """Nothing waits here."""


_inference: Inference = NoInference()


def inference() -> Inference:
    """What says which turn a call belongs to."""
    return _inference


def infer_with(by: Inference | None) -> None:
    """Have calls outside any explicit turn assigned to turns `by` this; None returns to the default."""
    global _inference
    _inference = by or NoInference()


@dataclass(slots=True, eq=False)
class ToolRun:
    """One tool call being run, as a scope."""

    started: ToolStarted
    activations: tuple[Activation, ...]
    began_s: float

    def step(self) -> Step:
        """Make the tool's span current for one step."""
        return Step(TURN, self.started.turn, self.activations)

    def end(self, error: BaseException | None = None) -> None:
        """Announce that the tool has run."""
        emit(ToolEnded(started=self.started, error=error, duration_s=time.perf_counter() - self.began_s))


def start_tool(turn: Turn, *, name: str, call_id: str) -> ToolRun:
    """Announce that a tool call is about to be run."""
    started = ToolStarted(number=number(), turn=turn, name=name, call_id=call_id)
    return ToolRun(started, emit(started), time.perf_counter())


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

    def _content(self, stop: Stop) -> Content | None:
        if self.content is None:
            return None
        try:
            return self.content(stop)
        except Exception:
            log_internal_error("gathering what was said")
            return None

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
        turn.open_streams += bool(self.facts.get("stream"))
        drop_implausible(self.facts)
        self.started = CallStarted(
            number=number(),
            turn=turn,
            iteration=turn.iterations,
            continuation=continuation,
            started_ns=self.started_ns,
            started_s=self.started_s,
            **self.facts,
        )
        self.cover()
        self.activations = emit(self.started, self.listeners)
        return self.started

    def withdraw(self) -> None:
        """What was announced was no call of a model."""
        if self.started is None or self.ended:
            return
        self.ended = True
        turn = self.started.turn
        turn.iterations -= 1
        turn.open_streams -= self.started.stream
        inference().withdrawn(self.started)
        emit(CallWithdrawn(started=self.started), self.listeners)

    def cover(self) -> None:
        """Mark the enclosing wrappers as announced from below."""
        outer = self.outer
        # A call of an SDK, or over HTTP, has a record of its own, of which all that is further out knows.
        while outer is not None and not outer.covered and outer.layer is Layer.WRAPPER:
            outer.covered = True
            outer = outer.outer

    def end(
        self, stop: Stop, *, usage: Usage | None = None, tail: str = "", over_s: float | None = None, **told: Any
    ) -> CallEnded | None:
        """Close the scope and announce what came, unless a layer below already did.

        Args:
            tail: the last visible characters of the answer, to recognise its continuation; never recorded.
            over_s: when it was over, by `time.perf_counter()`; now where not given.
            told: the other fields of CallEnded that tell of the answer.

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
            duration_s=over_s - self.started_s,
            first_chunk_s=self.first_chunk_s,
            chunk_gaps_s=tuple(self.chunk_gaps_s),
            content=self._content(stop),
            **told,
        )
        turn.count(ended)
        inference().answered(ended, self.asked)
        emit(ended, self.listeners)
        inference().ended(ended, self.asked, tail)
        turn.open_streams -= started.stream
        if turn.ending is not None and not turn.open_streams:
            outcome, raised = turn.ending
            if outcome is TurnOutcome.COMPLETED:
                outcome = outcome_of(ended)
            end_turn(turn, outcome, error=raised, over_s=over_s)
        return ended


@lru_cache(1_024)
def _log_unmapped(provider: str, model: str, raw: str) -> None:
    """Log a stop reason that has no row. The cache is what makes it once for each provider, model and value."""
    log.warning(
        "unknown stop reason %r from %s, model %s: it is treated as unknown, not as an end", raw, provider, model
    )


_ASKED: Final = (
    *("model", "stream", "maximum", "choices", "temperature", "top_p", "top_k", "seed", "stop_sequences"),
    *("reasoning_level", "previous_id", "output_type"),
)
"""What a call's record tells of its RequestSummary, by the same names."""


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
        facts = {name: getattr(asked, name) for name in _ASKED} | facts
    within = None if TURN.get() is None else declared_turn()
    call = Call(layer, outer, facts, asked, time.time_ns(), time.perf_counter(), within=within)
    if layer is not Layer.WRAPPER and not late:
        call.announced()
    return call
