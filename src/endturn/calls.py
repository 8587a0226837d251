"""Provider calls as scopes: each is announced once, at whichever layer knows most of it.

`open_call` is told which layer is calling: an SDK announces at once; a wrapper (controller, decorator, LiteLLM)
announces at the end, and only if nothing below it did; HTTP only where no scope of an SDK is open. An outer layer adds
its turn to every inner record and never makes a record of its own. What a hook of an SDK's call asks another client
meanwhile is another call (see `Caller`).

A call may be announced when it is over, beginning and end together and a little later: where every listener would as
soon be told then, and the call turns out whole (see `announce.Deferral`). Before its turn ends it is told of.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Required, TypedDict, Unpack

from endturn import announce, turns
from endturn.announce import Activation, Deferral, Listener
from endturn.records import (
    WHOLE,
    CallEnded,
    CallStarted,
    Content,
    Continuation,
    Turn,
    TurnKind,
    TurnOutcome,
    believe,
    believed,
)
from endturn.stop import Stop, word_shown
from endturn.turns import Step

if TYPE_CHECKING:
    from endturn.chat import ChatResponse, Request, Usage


log = logging.getLogger("endturn")


class Layer(StrEnum):
    """At what height of the stack a call is seen."""

    SDK = "sdk"
    WRAPPER = "wrapper"
    HTTP = "http"


class Caller(NamedTuple):
    """Which objects make a call, by identity, as far as it is known: a call within a call may be another's.

    Attributes:
        sdk: the SDK's client; http: the HTTP client that it sends through, or that is used by itself.
    """

    sdk: int | None = None
    http: int | None = None

    def differs(self, other: Caller) -> bool:
        """Whether another object calls here: of an SDK where both are, else over HTTP; False where it is not known."""
        if self.sdk is not None and other.sdk is not None:
            return self.sdk != other.sdk
        return self.http is not None and other.http is not None and self.http != other.http


NOBODY: Final = Caller()

_call: ContextVar[Call | None] = ContextVar("endturn_call", default=None)


def current_call() -> Call | None:
    """The provider call that the running code is part of, at whatever layer."""
    return _call.get()


class Came(TypedDict, total=False):
    """What came of a call beside its stop: the fields of CallEnded, and `tail`.

    Attributes:
        tail: the last visible characters of the answer, to recognise its continuation; never recorded.
    """

    usage: Usage | None
    response_id: str | None
    response_model: str | None
    reasons: tuple[str | None, ...]
    output_chars: int
    tail: str
    error: BaseException | None


class Told(Came, total=False):
    """The arguments of `Call.end`."""

    stop: Required[Stop]


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
    activations: tuple[Activation, ...] = ()
    listeners: tuple[Listener, ...] = field(default_factory=announce.listeners)
    """Who listened when it was opened, and is told of it: of its beginning and of its end."""
    placed: tuple[Turn, Continuation | None] | None = None
    """The turn that it belongs to and what it continues, where whoever opened it knows, and ends the turn too."""
    within: Turn | None = None
    """The declared turn in which it was opened: a wrapper's call is that turn's, though it begins when that is over."""
    caller: Caller = NOBODY
    content: Callable[[], Content | None] | None = None
    """Gives what was said, once the call has ended; None where nobody takes it."""
    deferral: Deferral | None = None
    """Puts off the call's announcement, where that may wait."""
    beginning: AbstractContextManager[object] | None = None
    """Held while a call that was put off is announced: its span may be asked for meanwhile. None when it has been.

    One for each call: it is waited for by who tells of many, and by who writes a log record with the span's ids, and
    each holds a lock that the other may want.
    """
    begun: bool = False
    """Its beginning has been announced, or is being announced."""
    origin: object = None
    """What the deferral keeps of where the call began."""
    read: tuple[Callable[..., Told], tuple[Any, ...]] | None = None
    """Of a call that ended and has yet to be told: what gives the arguments of `end`, and what that is given."""
    over_s: float = 0.0
    iteration: int = 0
    """Its place in its turn, where that was taken when it began."""

    def step(self) -> Step:
        """Make this call, and its span, current for one step."""
        return Step(_call, self, self.activations)

    def is_another(self, caller: Caller, asked: object) -> bool:
        """Whether what is asked within this call is another, and no part of it.

        What another client asks is one, unless it asks the same: a transport may hand on what it is given.
        """
        if not self.caller.differs(caller):
            return False
        try:
            return bool(asked != self.asked)
        except Exception:  # messages may be anybody's objects
            return False

    def said(self, request: Request | None, response: ChatResponse | None, *, beside: bool = False) -> None:
        """What was said, where somebody takes it and it is at hand; see Content."""
        responses = () if response is None else (response,)
        self.content = lambda: Content(request=request, beside=beside, responses=responses)

    def first_chunk(self) -> None:
        """A stream's first chunk has arrived."""
        self.first_chunk_s = time.perf_counter() - self.started_s

    def announced(self) -> CallStarted:
        """The record of the start, announced now where it was put off."""
        self.begin()
        assert self.started is not None
        return self.started

    def begin(self) -> None:
        """Announce the start, where that was put off: once, though this thread may be at it already.

        What announces it asks for the span, and so may a signal's handler that interrupts it.
        """
        beginning = self.beginning
        if beginning is not None:
            with beginning:
                if not self.begun:
                    self.begun = True  # at once: to call anything first would let a handler in between
                    self.activations = ()
                    self._begin()
                    self.beginning = None
        elif not self.begun:
            self.begun = True
            self._begin()

    def _begin(self) -> None:
        if self.placed is not None:
            turn, continuation = self.placed
        elif self.deferral is not None:
            # When it began nothing waited to be continued: what does now began later.
            turn, continuation = self.within or Turn(kind=TurnKind.IMPLICIT), None
        else:
            here = turns.TURN.get()
            if here is None or here is not self.within:
                here = turns.current_turn()
            turn, continuation = turns.inference().resolve(self.asked, here)
        if turn.kind is TurnKind.IMPLICIT and not turn.iterations:
            # The turn began with the call, which may be announced when it has ended.
            turn.started_s, turn.started_ns = self.started_s, self.started_ns
        if not self.iteration:
            turn.iterations += 1
        turn.open_streams += bool(self.facts.get("stream"))
        believe(self.facts)
        self.started = started = CallStarted(
            number=announce.number(),
            turn=turn,
            iteration=self.iteration or turn.iterations,
            continuation=continuation,
            started_ns=self.started_ns,
            started_s=self.started_s,
            origin=self.origin,
            over=self.ended and self.deferral is not None,
            **self.facts,
        )
        if self.deferral is None:
            self.cover()
        self.activations = announce.announce(started, self.listeners)

    def cover(self) -> None:
        """Mark the enclosing wrappers as announced from below."""
        outer = self.outer
        # A call of an SDK, or over HTTP, has a record of its own, of which all that is further out knows.
        while outer is not None and not outer.covered and outer.layer is Layer.WRAPPER:
            outer.covered = True
            outer = outer.outer

    def end(self, stop: Stop, **came: Unpack[Came]) -> CallEnded | None:
        """Close the scope and announce what came, unless a layer below already did.

        Returns:
            The record, None where this layer makes none, or it is made later.
        """
        if self.ended:
            return None
        self.ended = True
        if self.covered:
            return None
        self.over_s = time.perf_counter()
        if self._may_wait() and stop.reason in WHOLE and came.get("error") is None:
            self._wait(_as_it_is, ({"stop": stop, **came},))
            return None
        if self.within is not None:
            announce.settle()  # what is told of a turn is told in order
        return self._tell(stop, **came)

    def end_later(self, read: Callable[..., Told], *given: Any) -> None:
        """Close the scope of a call whose response is whole and that has a deferral; announce later what came.

        Args:
            read: given these, gives the arguments of `end`; must not raise, nor need much memory until then.
        """
        if self.ended:
            return
        if self._may_wait():
            self.ended = True
            self.over_s = time.perf_counter()
            self._wait(read, given)
        else:
            self.end(**read(*given))

    def _may_wait(self) -> bool:
        """Whether nobody can tell that it is announced later: nobody has its span, nor was its turn cut meanwhile."""
        return self.deferral is not None and self.started is None and not (self.within is not None and self.within.cut)

    def _wait(self, read: Callable[..., Told], given: tuple[Any, ...]) -> None:
        assert self.deferral is not None
        self.read = read, given
        # Nothing is kept that is not needed: a history may be large, and the garbage collector looks at all there is.
        self.asked, self.outer, self.caller = None, None, NOBODY
        beginning = self.beginning
        if beginning is not None:
            with beginning:
                if self.started is None:
                    self.activations = ()
        self.deferral.add(self)

    def tell(self) -> None:
        """Announce a call whose end was put off."""
        if self.read is not None:
            (read, given), self.read = self.read, None
            self._tell(**read(*given))

    def _tell(
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
    ) -> CallEnded:
        started = self.announced()
        turn = started.turn
        if not stop.mapped and stop.raw is not None:
            _log_unmapped(started.provider, started.model, word_shown(stop.raw))
        alone = self.deferral is not None and self.within is None and stop.reason in WHOLE
        ended = CallEnded(
            started=started,
            stop=stop,
            usage=believed(usage),
            response_id=response_id,
            response_model=response_model,
            reasons=reasons,
            output_chars=output_chars,
            error=error,
            duration_s=self.over_s - self.started_s,
            first_chunk_s=self.first_chunk_s,
            content=None if self.content is None else _said(self.content),
            alone=alone,
        )
        if alone:
            turn.outcome = turns.outcome_of(ended)
            announce.announce(ended, self.listeners)
            return ended
        turn.count(ended)
        announce.announce(ended, self.listeners)
        if self.placed is None:
            turns.inference().ended(ended, self.asked, tail)
        turn.open_streams -= started.stream
        if turn.ending is not None and not turn.open_streams:
            outcome, raised = turn.ending
            if outcome is TurnOutcome.COMPLETED:
                outcome = turns.outcome_of(ended)
            turns.end_turn(turn, outcome, error=raised)
        return ended


@lru_cache(1_024)
def _log_unmapped(provider: str, model: str, raw: str) -> None:
    """Log a stop reason that has no row. The cache is what makes it once for each provider, model and value."""
    log.warning(
        "unknown stop reason %r from %s, model %s: it is treated as unknown, not as an end", raw, provider, model
    )


def _as_it_is(told: Told) -> Told:
    return told


def _said(content: Callable[[], Content | None]) -> Content | None:
    try:
        return content()
    except Exception:
        announce.swallow("gathering what was said")
        return None


def open_call(layer: Layer, asked: object = None, *, caller: Caller = NOBODY, **facts: Any) -> Call | None:
    """Open the scope of one provider call.

    Args:
        layer: an SDK or HTTP call is announced now, or put off (see `Deferral`); a wrapper's when it ends and only if
            nothing below announced.
        asked: what the call asks for (a wire's Asked), from which its turn is inferred where none was declared.
        caller: who makes it.
        facts: the fields of CallStarted that describe the request (provider, model, stream, maximum, …).

    Returns:
        The scope, None where a layer below an SDK's open scope is asking: that call is already being announced.
    """
    outer = _call.get()
    if (
        outer is not None
        and (outer.layer is Layer.SDK or outer.layer is Layer.HTTP)
        and not outer.ended
        and (layer is Layer.WRAPPER or not outer.is_another(caller, asked))
    ):
        return None
    within = None if turns.TURN.get() is None else turns.declared_turn()
    call = Call(layer, outer, facts, asked, time.time_ns(), time.perf_counter(), within=within, caller=caller)
    if layer is not Layer.WRAPPER:
        deferral = announce.deferral()
        if deferral is None or not _put_off(call, deferral):
            call.announced()
    return call


def _put_off(call: Call, deferral: Deferral) -> bool:
    """Whether a call that begins may be announced when it is over. Then it is."""
    if call.facts.get("adopt") or turns.inference().waits():
        return False
    turn = call.within
    if turn is not None and (turn.kind is not TurnKind.OBSERVED or turn.truncated or call.facts.get("stream")):
        return False
    if turn is None and turns.current_turn() is not None:
        return False
    activation = deferral.opened(call)
    if activation is False:
        return False
    call.deferral = deferral
    if turn is not None:
        turn.iterations += 1
        call.iteration = turn.iterations
    if activation is not True:
        call.activations, call.beginning = (activation,), threading.RLock()
    if call.outer is not None:
        call.cover()
    return True


def _forking() -> None:
    """The calls in which a process forks are announced first: they are the parent's, and so are their spans."""
    call = _call.get()
    while call is not None:
        if call.deferral is not None:
            call.begin()
        call = call.outer


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forking)


def is_sending(client: int) -> bool:
    """Whether an SDK's call is open that sends through this HTTP client: what is sent now is part of it."""
    outer = _call.get()
    return outer is not None and outer.caller.http == client and outer.layer is not Layer.WRAPPER and not outer.ended


def is_covered(caller: Caller = NOBODY) -> bool:
    """Whether a call of an SDK or over HTTP is open: what is called now is part of it, unless `caller` is another."""
    outer = _call.get()
    if outer is None or outer.layer is Layer.WRAPPER or outer.ended:
        return False
    return not outer.caller.differs(caller)
