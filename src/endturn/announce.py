"""Who is told of what happened: the listeners, and the turn and call scopes that tie the records together.

The core announces; telemetry listens. Nobody listening costs one truth test. A listener that raises loses that record
only: it is counted, logged once, and detached after 100 failures in a row. `strict()` re-raises instead, for tests.

One provider call is announced once. `open_call` is told which layer is calling: an SDK announces at once; a wrapper
(controller, decorator, LiteLLM) announces at the end, and only if nothing below it did; HTTP only where no scope of an
SDK is open. An outer layer adds its turn to every inner record and never makes a record of its own. What a hook of an
SDK's call asks another client meanwhile is another call (see `Caller`).

A scope is a context variable that is set and reset inside one step; it never stays set across a `yield`.

A call may be announced when it is over, beginning and end together and a little later: where every listener would as
soon be told then, and the call turns out whole (see `Deferral`). Before its turn ends it is told of.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Required, TypedDict, Unpack

from endturn.records import (
    COMPLETE,
    WHOLE,
    CallEnded,
    CallStarted,
    Content,
    Continuation,
    Record,
    ToolEnded,
    ToolStarted,
    Turn,
    TurnEnded,
    TurnKind,
    TurnOutcome,
    TurnStarted,
    believe,
    believed,
)
from endturn.stop import Stop, StopReason

if TYPE_CHECKING:
    from endturn.chat import ChatResponse, Request, Usage

log = logging.getLogger("endturn")


def _without_words(record: logging.LogRecord) -> bool:
    """Log of an exception what it is and where it was raised. Its message may quote what was said, or a key."""
    info, record.exc_info = record.exc_info, None
    if info and info[0] is not None:
        frames = ((frame.f_code, line) for frame, line in traceback.walk_tb(info[2]))
        where = "".join(f'  File "{code.co_filename}", line {line}, in {code.co_name}\n' for code, line in frames)
        record.exc_text = f"Traceback (most recent call last):\n{where}{info[0].__module__}.{info[0].__qualname__}"
    return True


log.addFilter(_without_words)

Activation = Callable[[], AbstractContextManager[object]]
"""Makes something (a span) current for one step of what was started; called anew for every step."""

Listener = Callable[[Record], Activation | None]
"""Is told every record. May answer CallStarted, TurnStarted and ToolStarted with an Activation."""

FAILURES_BEFORE_DETACHING: Final = 100


class Deferral(Protocol):
    """Puts off what is made of calls that are whole. A listener may have one, as its attribute `deferral`.

    It is used where every other listener has a method `waits` that says that it would as soon be told later.
    """

    def opened(self, call: Call) -> Activation | bool:
        """What stands for the call's span until it is announced, True where it has none; False: announce it now."""
        ...

    def add(self, call: Call) -> None:
        """Have `tell` of a call that has ended run soon; calls in order and one at a time."""
        ...

    def drain(self) -> None:
        """Return when all have been told."""
        ...


_listeners: tuple[Listener, ...] = ()
_deferral: Deferral | None = None
_awake: tuple[Callable[[], bool], ...] = ()
"""Say whether their listeners would make anything of a record."""
_patient: tuple[Callable[[], bool], ...] = ()
"""Are asked whether a call may be announced later."""
_failures: dict[Callable[..., object], int] = {}
_failed: dict[str, int] = {}
_lock = threading.Lock()
_strict = False
_content = False
_number = iter(range(1, 1 << 62))


def listen(listener: Listener) -> Callable[[], None]:
    """Have every record told to `listener`, once however often it is added; each time it is asked what it takes.

    Returns:
        A function that stops it.
    """
    settle()  # what is over is told to those who listened; not within the lock, which the failures of listeners need
    with _lock:
        _told(_listeners if listener in _listeners else (*_listeners, listener))

    def stop() -> None:
        settle()
        with _lock:
            _told(tuple(other for other in _listeners if other != listener))
            _failures.pop(listener, None)

    return stop


def _told(listeners: tuple[Listener, ...]) -> None:
    """These are told from now on."""
    global _listeners, _awake, _content, _deferral, _patient
    _listeners = listeners
    _awake = tuple(awake for each in listeners if (awake := getattr(each, "awake", _always)) is not None)
    deferrals = [found for listener in listeners if (found := getattr(listener, "deferral", None)) is not None]
    others = [listener for listener in listeners if getattr(listener, "deferral", None) is None]
    is_patient = len(deferrals) == 1 and all(hasattr(other, "waits") for other in others)
    _deferral = deferrals[0] if is_patient else None
    _patient = tuple(other.waits for other in others) if is_patient else ()  # type: ignore[attr-defined]
    _content = any(getattr(listener, "takes_content", False) for listener in listeners)


def takes_content() -> bool:
    """Whether any listener takes what is said in a call: it has an attribute `takes_content` that is true."""
    return _content


def listening() -> bool:
    """Whether anyone would be told, and would make anything of it.

    A listener may have a method `awake`, which says so of itself, or None where it never does; others always do.
    """
    # A generator expression would cost every call a frame, observed or not.
    for is_awake in _awake:  # noqa: SIM110
        if is_awake():
            return True
    return False


def _always() -> bool:
    return True


@contextmanager
def strict() -> Iterator[None]:
    """Let a listener's exception through, within the block. For tests."""
    global _strict
    before, _strict = _strict, True
    try:
        yield
    finally:
        _strict = before


def is_strict() -> bool:
    """Whether a listener's exception is let through, for listeners that finish their work later."""
    return _strict


def listener_failures() -> dict[str, int]:
    """How often each listener has raised since the process began, by the listener's name."""
    return dict(_failed)


def announce(record: Record) -> tuple[Activation, ...]:
    """Tell every listener. Returns their activations; never raises what a listener raised (but see `strict`)."""
    activations: tuple[Activation, ...] = ()
    for listener in _listeners:
        try:
            activation = listener(record)
        except Exception:
            if _strict:
                raise
            failed(listener)
        else:
            if activation is not None:
                activations = (*activations, activation)
            if _failures:
                _failures.pop(listener, None)
    return activations


def failed(listener: Callable[..., object]) -> None:
    """Count an exception of a listener; call it while the exception is being handled."""
    name = getattr(listener, "__qualname__", type(listener).__qualname__)
    with _lock:
        _failed[name] = _failed.get(name, 0) + 1
        row = _failures.get(listener, 0) + 1
        _failures[listener] = row
        if row >= FAILURES_BEFORE_DETACHING:
            _told(tuple(other for other in _listeners if other != listener))
    if row == 1:
        log.exception("endturn: listener %s failed; the call that it watched goes on", name)
    elif row == FAILURES_BEFORE_DETACHING:
        log.error("endturn: listener %s failed %d times in a row and was detached", name, row)


def lost(what: str) -> None:
    """Count something that telemetry lost, under the name of what lost it, as the failures of listeners are counted."""
    with _lock:
        _failed[what] = _failed.get(what, 0) + 1


_noted: set[str] = set()


def swallow(what: str) -> None:
    """Keep an exception of endturn's own from the host; call it while the exception is being handled.

    Logged once per `what`, a warning; after that for debugging only. `strict()` lets it through.
    """
    if _strict:
        raise
    if what in _noted:
        log.debug("endturn: %s failed", what, exc_info=True)
        return
    _noted.add(what)
    log.warning("endturn: %s failed; the call that it watched goes on", what, exc_info=True)


def settle() -> None:
    """Announce what was put off."""
    for listener in _listeners:  # each that has one: that of now may not be the one that put it off
        deferral: Deferral | None = getattr(listener, "deferral", None)
        if deferral is not None:
            deferral.drain()


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

_turn: ContextVar[Turn | None] = ContextVar("endturn_turn", default=None)
_call: ContextVar[Call | None] = ContextVar("endturn_call", default=None)


_find_turn: Callable[[], Turn | None] | None = None


def find_turns_with(find: Callable[[], Turn | None] | None) -> None:
    """Where no turn was declared, have `find` say which one the running code is part of: an agent's span is one."""
    global _find_turn
    _find_turn = find


def declared_turn() -> Turn | None:
    """The turn of a controller or an observed function that the running code is part of.

    One that is over gives way to the one around it: what a turn started, a worker say, may run on when it has ended.
    """
    turn = _turn.get()
    return turn if turn is None or turn.outcome is None else turn.still_open()


def current_turn() -> Turn | None:
    """The explicit turn that the running code is part of: what was declared comes before what is recognised."""
    turn = declared_turn()
    if turn is None and _find_turn is not None:
        turn = _find_turn()
    return turn


def current_call() -> Call | None:
    """The provider call that the running code is part of, at whatever layer."""
    return _call.get()


class Step:
    """Makes a scope current for one step: around one synchronous stretch or one `await`, never a `yield`.

    Once left, it may be entered again.
    """

    __slots__ = ("_activations", "_entered", "_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: Turn | Call, activations: tuple[Activation, ...]) -> None:
        self._variable = variable
        self._value = value
        self._activations = activations

    def __enter__(self) -> None:
        self._token: Token[Any] = self._variable.set(self._value)
        self._entered = self._activated() if self._activations else ()

    def _activated(self) -> tuple[AbstractContextManager[object], ...]:
        entered: tuple[AbstractContextManager[object], ...] = ()
        for activation in self._activations:
            try:
                manager = activation()
                manager.__enter__()
            except Exception:
                if _strict:
                    raise
                log.debug("endturn: an activation failed", exc_info=True)
            else:
                entered = (manager, *entered)
        return entered

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for manager in self._entered:
            try:
                manager.__exit__(kind, value, trace)
            except Exception:
                if _strict:
                    raise
                log.debug("endturn: an activation failed", exc_info=True)
        try:
            self._variable.reset(self._token)
        except ValueError:  # a host that drives one coroutine from several contexts: the step was the other's
            log.debug("endturn: a step ended in another context than it began in")


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
        beginning = self.beginning
        if beginning is not None:
            with beginning:
                if self.started is None:  # else it was, or this thread is at it: what announces it asks for the span
                    self.activations = ()
                    self.begin()
                    self.beginning = None
        elif self.started is None:
            self.begin()
        assert self.started is not None
        return self.started

    def begin(self) -> None:
        """Announce the start."""
        if self.placed is not None:
            turn, continuation = self.placed
        elif self.deferral is not None:
            # When it began nothing waited to be continued: what does now began later.
            turn, continuation = self.within or Turn(kind=TurnKind.IMPLICIT), None
        else:
            here = _turn.get()
            if here is None or here is not self.within:
                here = current_turn()
            turn, continuation = _inference.resolve(self.asked, here)
        if turn.kind is TurnKind.IMPLICIT and not turn.iterations:
            # The turn began with the call, which may be announced when it has ended.
            turn.started_s, turn.started_ns = self.started_s, self.started_ns
        if not self.iteration:
            turn.iterations += 1
        turn.open_streams += bool(self.facts.get("stream"))
        believe(self.facts)
        self.started = started = CallStarted(
            number=next(_number),
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
        self.activations = announce(started)

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
        is_cut = self.within is not None and self.within.cut  # in its turn, meanwhile
        if self.deferral is not None and not is_cut and stop.reason in WHOLE and came.get("error") is None:
            self._wait(_as_it_is, ({"stop": stop, **came},))
            return None
        if self.within is not None:
            settle()  # what is told of a turn is told in order
        return self._tell(stop, **came)

    def end_later(self, read: Callable[..., Told], *given: Any) -> None:
        """Close the scope of a call whose response is whole and that has a deferral; announce later what came.

        Args:
            read: given these, gives the arguments of `end`; must not raise, nor need much memory until then.
        """
        if self.ended:
            return
        if self.deferral is None or (self.within is not None and self.within.cut):
            self.end(**read(*given))
        else:
            self.ended = True
            self.over_s = time.perf_counter()
            self._wait(read, given)

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
            turn.outcome = outcome_of(ended)
            announce(ended)
            return ended
        turn.count(ended)
        announce(ended)
        if self.placed is None:
            _inference.ended(ended, self.asked, tail)
        turn.open_streams -= started.stream
        if turn.ending is not None and not turn.open_streams:
            outcome, raised = turn.ending
            if outcome is TurnOutcome.COMPLETED:
                outcome = outcome_of(ended)
            end_turn(turn, outcome, error=raised)
        return ended


def _as_it_is(told: Told) -> Told:
    return told


def _said(content: Callable[[], Content | None]) -> Content | None:
    try:
        return content()
    except Exception:
        swallow("gathering what was said")
        return None


class Inference(Protocol):
    """Says which turn a call belongs to, where nobody declared one, and when such a turn is over."""

    def resolve(self, asked: object, turn: Turn | None) -> tuple[Turn, Continuation | None]:
        """The turn of a call that asks for `asked` (a wire's Asked, or None), and what the call continues.

        Args:
            turn: the explicit turn that the call is made in.
        """
        ...

    def ended(self, ended: CallEnded, asked: object, tail: str) -> None:
        """A call has ended that nobody placed. One that was put off and came whole was a turn of its own: not told."""
        ...

    def waits(self) -> bool:
        """Whether any turn waits for a continuation, which the next call may be."""
        ...


class Alone:
    """The default: inside an explicit turn a call belongs to it, outside it is its own turn and ends with the call."""

    def resolve(self, asked: object, turn: Turn | None) -> tuple[Turn, Continuation | None]:
        return (Turn(kind=TurnKind.IMPLICIT), None) if turn is None else (turn, turn.continuation)

    def ended(self, ended: CallEnded, asked: object, tail: str) -> None:
        turn = ended.started.turn
        if turn.kind is TurnKind.IMPLICIT:
            end_turn(turn, TurnOutcome.NOT_CONTINUED if turn.unfinished else outcome_of(ended))
        elif ended.whole:
            turn.cut.clear()  # nothing is known of which call is whose

    def waits(self) -> bool:
        return False


_inference: Inference = Alone()


def infer_with(inference: Inference | None) -> None:
    """Have calls outside any explicit turn assigned to turns by `inference`; None returns to the default."""
    global _inference
    _inference = inference or Alone()


def outcome_of(ended: CallEnded) -> TurnOutcome:
    """The outcome of a turn whose last call ended so, and which nobody declared."""
    if ended.error is not None and ended.stop.reason is not StopReason.CANCELLED:
        return TurnOutcome.PROVIDER_ERROR
    return _OUTCOME[ended.stop.reason]


_OUTCOME: Final = {
    StopReason.END_TURN: TurnOutcome.COMPLETED,
    StopReason.TOOL_CALL: TurnOutcome.COMPLETED,
    StopReason.MAX_TOKENS: TurnOutcome.NOT_CONTINUED,
    StopReason.CONTEXT_WINDOW_EXCEEDED: TurnOutcome.NOT_CONTINUED,
    StopReason.MISSING: TurnOutcome.NOT_CONTINUED,
    StopReason.SAFETY_BLOCKED: TurnOutcome.SAFETY_BLOCKED,
    StopReason.REFUSED: TurnOutcome.REFUSED,
    StopReason.PAUSED: TurnOutcome.LEFT_PAUSED,
    StopReason.CANCELLED: TurnOutcome.CANCELLED,
    StopReason.ERROR: TurnOutcome.PROVIDER_ERROR,
    StopReason.UNKNOWN: TurnOutcome.UNKNOWN_REASON,
}


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
    within = None if _turn.get() is None else declared_turn()
    call = Call(layer, outer, facts, asked, time.time_ns(), time.perf_counter(), within=within, caller=caller)
    if layer is not Layer.WRAPPER and (_deferral is None or not _put_off(call, _deferral)):
        call.announced()
    return call


def _put_off(call: Call, deferral: Deferral) -> bool:
    """Whether a call that begins may be announced when it is over. Then it is."""
    if call.facts.get("adopt") or _content or _inference.waits():
        return False
    turn = call.within
    if turn is not None and (turn.kind is not TurnKind.OBSERVED or turn.truncated or call.facts.get("stream")):
        return False
    for waits in _patient:
        if not waits():
            return False
    if turn is None and _find_turn is not None and _find_turn() is not None:
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
            call.announced()
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
    return TurnScope(turn, announce(TurnStarted(turn=turn)))


@dataclass(slots=True, eq=False)
class TurnScope:
    """An explicit turn as a scope."""

    turn: Turn
    activations: tuple[Activation, ...]

    def step(self) -> Step:
        """Make this turn, and its span, current for one step."""
        return Step(_turn, self.turn, self.activations)

    def end(self, outcome: TurnOutcome, *, error: BaseException | None = None) -> None:
        """Announce the end, once."""
        end_turn(self.turn, outcome, error=error)


def end_turn(turn: Turn, outcome: TurnOutcome, *, error: BaseException | None = None) -> None:
    """Announce that a turn ended, once: a turn that already has an outcome stays as it is.

    An observed turn whose function returned a stream ends when the stream has been read. One that completed, but leaves
    a truncated response unfinished, ends `not_continued`. The end of one that is a part of another is not announced:
    the outer turn, where it completes, ends as the last of its parts.
    """
    if turn.outcome is not None:
        return
    over_s = time.perf_counter()
    if turn.kind is TurnKind.OBSERVED:
        settle()
        if turn.open_streams:
            turn.ending = outcome, error
            return
        if outcome is TurnOutcome.COMPLETED:
            outcome = turn.inner or outcome
            if outcome in COMPLETE and turn.unfinished:
                outcome = TurnOutcome.NOT_CONTINUED
    turn.outcome = outcome
    if (outer := turn.within) is not None:
        turn.leave(outer)
        if outer.ending is not None and not outer.open_streams:
            end_turn(outer, outer.ending[0], error=outer.ending[1])
        return
    if turn.kind is TurnKind.IMPLICIT and turn.last_s is not None:
        over_s = turn.last_s  # over with its last call, though that is known only later: nobody took up what was cut
    announce(
        TurnEnded(
            turn=turn,
            outcome=outcome,
            complete=outcome in COMPLETE and not turn.unfinished,
            duration_s=over_s - turn.started_s,
            error=error,
        )
    )


@dataclass(slots=True, eq=False)
class ToolRun:
    """One tool call being run, as a scope."""

    started: ToolStarted
    activations: tuple[Activation, ...]
    began_s: float

    def step(self) -> Step:
        """Make the tool's span current for one step."""
        return Step(_turn, self.started.turn, self.activations)

    def end(self, error: BaseException | None = None) -> None:
        """Announce that the tool has run."""
        announce(ToolEnded(started=self.started, error=error, duration_s=time.perf_counter() - self.began_s))


def start_tool(turn: Turn, *, name: str, call_id: str) -> ToolRun:
    """Announce that a tool call is about to be run."""
    started = ToolStarted(number=next(_number), turn=turn, name=name, call_id=call_id)
    return ToolRun(started, announce(started), time.perf_counter())
