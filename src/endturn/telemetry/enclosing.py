"""What other instrumentations have open around the code that runs: the very call's span, and the agent's it is in.

Told by the span processor what begins and ends. A call of a patched SDK asks which span is already made of it, so that
this is enriched and none made beside it; `announce` asks whose turn the code is in. Only spans that are open are kept,
weakly, at most 16,384 of them: one that nobody ends goes when its owner drops it, or with the oldest.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet, finalize, ref

from opentelemetry import trace
from opentelemetry.trace import Span

from endturn import announce
from endturn.calls import Call, current_call, is_covered
from endturn.records import CallEnded, Record, Turn, TurnKind, TurnOutcome, TurnStarted
from endturn.telemetry import cleanup, foreign, schema
from endturn.telemetry.foreign import Role
from endturn.turns import declared_turn, end_turn

if TYPE_CHECKING:
    from collections.abc import Mapping

OPEN: Final = 16_384
"""How many open spans are remembered."""

RECENT: Final = 1_024
"""How many responses are remembered that were announced, so that a span that tells of one later is not another."""

ENCLOSING: Final = "endturn.enclosing"
"""The key in a turn's state of the span that it is the turn of."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Foreign:
    """A span of another instrumentation, while it is open.

    Attributes:
        parent: the id of its parent span, 0 of a root.
        around: the agent's span that it is in, if any; outer: the span of the same call that it is in, or beside.
        declared: the explicit turn that was open when it began: what is declared comes before what is recognised.
        within: the wrapper's call that was open when it began: that one has then been announced from below.
        covered: another span of the same call stands nearer to the provider, and is counted.
        taken: a call that is announced by itself enriches this span.
        call, ended: that call, and what came of it.
        turn: of an agent's span, once a call was made in it.
    """

    role: Role
    span: ref[Span]
    id: int
    parent: int
    scope: str
    started_ns: int
    started_s: float = field(default_factory=time.perf_counter)
    around: Foreign | None = None
    outer: Foreign | None = None
    declared: Turn | None = None
    within: Call | None = None
    covered: bool = False
    taken: bool = False
    call: Call | None = None
    ended: CallEnded | None = None
    turn: Turn | None = None
    over: bool = False

    def turn_of_calls(self) -> Turn | None:
        """The turn that a call in this agent's span belongs to, begun with the first."""
        declared = None if self.declared is None else self.declared.still_open()
        if declared is not None or self.over:
            return declared
        if self.turn is None:
            span = self.span()
            if span is None:
                return None
            known = attributes_of(span)
            turn = Turn(
                kind=TurnKind.OBSERVED,
                agent=_text(known.get(schema.AGENT.key)) or _text(known.get("agent_name")),
                conversation=_text(known.get(schema.CONVERSATION.key)),
                started_s=self.started_s,
                started_ns=self.started_ns,
            )
            turn.state[ENCLOSING] = span
            self.turn = turn
            announce.announce(TurnStarted(turn=turn))
            # A span of which nobody else knows any more could otherwise not be dropped.
            turn.state.pop(ENCLOSING, None)
        return self.turn

    def end_turn(self, outcome: TurnOutcome) -> None:
        """The agent's span ends, and its turn with it, if any call was made in it."""
        self.over = True
        turn, span = self.turn, self.span()
        if turn is not None and turn.iterations:
            if span is not None:
                turn.state[ENCLOSING] = span
            end_turn(turn, outcome)
            turn.state.pop(ENCLOSING, None)

    @property
    def turn_here(self) -> Turn | None:
        """The turn of a call that this span is of."""
        if self.declared is not None or self.around is None:
            return self.declared
        return self.around.turn_of_calls()

    def cover(self) -> None:
        """Another span stands for this call, nearer to the provider."""
        layer: Foreign | None = self
        while layer is not None and not layer.covered:
            layer.covered = True
            layer = layer.outer


Frame = tuple[Foreign | None, Foreign | None]
"""The agent's span and the call's that a span is in."""

_open: OrderedDict[int, Foreign] = OrderedDict()
_frames: OrderedDict[int, Frame] = OrderedDict()
_claimed: dict[int, Foreign] = {}
_recent: OrderedDict[str, int] = OrderedDict()
_latest: ContextVar[ref[Foreign] | None] = ContextVar("endturn_foreign_call", default=None)
"""The call's span that began last where this code runs: OpenLLMetry makes none current, OpenInference not all."""


def attributes_of(span: Any) -> Mapping[str, Any]:
    """A span's attributes, as they are now; none of one that records nothing."""
    return getattr(span, "attributes", None) or {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


# --- What the processor tells ---


def began(span: Any, role: Role | None) -> Foreign | None:
    """A span begins. One of no role is remembered only where it is inside one that has one.

    Returns:
        What is kept of a span that has a role; None of one that is kept already.
    """
    own = span.get_span_context().span_id
    parent = 0 if span.parent is None else span.parent.span_id
    frame: Frame = _frames.get(parent, (None, None)) if parent else (None, None)
    if role is None:
        if frame != (None, None):
            _keep(_frames, own, frame)
        return None
    if own in _open:
        return None
    scope = getattr(span.instrumentation_scope, "name", "")
    one = Foreign(
        role,
        ref(span),
        own,
        parent,
        scope,
        span.start_time,
        around=frame[0],
        declared=declared_turn(),
        within=current_call(),
    )
    finalize(span, _dropped, own).atexit = False
    if role is Role.CALL:
        one.covered = is_covered()
        one.outer = frame[1] or _beside(one, span)
        if one.outer is not None:
            one.outer.cover()
        _latest.set(ref(one))
    _keep(_open, own, one)
    _keep(_frames, own, (one, None) if role is Role.TURN else (frame[0], one if role is Role.CALL else None))
    return one


def ended(span_id: int) -> Foreign | None:
    """A span has ended. Returns what was kept of it."""
    _frames.pop(span_id, None)
    return _open.pop(span_id, None)


def is_idle() -> bool:
    """Whether nothing is open that another span could be in."""
    return not _frames and not _open


def was_announced(known: Mapping[str, Any], started_ns: int) -> bool:
    """Whether the response that a span tells of was announced by a call that lasted when the span began."""
    response_id = foreign.response_id_of(known)
    return response_id is not None and started_ns <= _recent.get(response_id, 0)


class _Hearing:
    """A listener that remembers which responses have been announced."""

    def __call__(self, record: Record) -> None:
        if isinstance(record, CallEnded):
            started = record.started
            one = _claimed.pop(started.number, None)
            if one is not None:
                one.ended = record
            if record.response_id is not None:
                _recent[record.response_id] = started.started_ns + round(record.duration_s * 1e9)
                if len(_recent) > RECENT:
                    _recent.popitem(last=False)

    awake = None
    """Remembering alone is no reason to observe a call."""


hearing = _Hearing()


def _beside(one: Foreign, span: Any) -> Foreign | None:
    """The span of the same call that is open beside this one, because nobody made it current."""
    latest = _latest.get()
    other = None if latest is None else latest()
    if other is None or other.parent != one.parent or other.covered or other.taken or other.id not in _open:
        return None
    theirs = other.span()
    known, other_known = attributes_of(span), attributes_of(theirs)
    if theirs is None or other.scope == one.scope:
        return None
    for said, by_other in (
        (foreign.provider_of(one.scope, known), foreign.provider_of(other.scope, other_known)),
        (foreign.model_of(known), foreign.model_of(other_known)),
    ):
        if said and by_other and said != by_other:
            return None
    return other


def _keep(kept: OrderedDict[int, Any], key: int, value: object) -> None:
    kept[key] = value
    if len(kept) > OPEN:
        _left(kept.popitem(last=False)[1])


def _left(value: object) -> None:
    """The oldest is let go of, or its owner dropped it: an agent's turn ends with that."""
    if isinstance(value, Foreign) and value.turn is not None and value.turn.outcome is None:
        cleanup.later(lambda: value.end_turn(TurnOutcome.CANCELLED))


def _dropped(span_id: int) -> None:
    """A span was dropped without being ended. A destructor may run anywhere: nothing is announced here."""
    _left(ended(span_id))


_begun: OrderedDict[int, Foreign] = OrderedDict()
"""Spans that ended when a stream began, in order: what came of it is told by another that begins later."""


def begun_only(one: Foreign) -> None:
    """A span has ended with the stream of its call unread."""
    _keep(_begun, one.id, one)


def begun_before(rest: Foreign) -> Foreign | None:
    """The span of the stream whose end another span tells of: the last that began where that one begins."""
    for one in reversed(_begun.values()):
        if one.scope == rest.scope and one.parent == rest.parent:
            return _begun.pop(one.id)
    return None


def agent_of(parent: int) -> Foreign | None:
    """The agent's span that a child of this span is in."""
    return _frames.get(parent, (None, None))[0]


# --- What a call asks ---


def claim(provider: str, model: str) -> Span | None:
    """The span that another instrumentation already makes of the call that is about to be made; None if there is none.

    It is current, or what is current is inside it, or nobody made it current but it began last here.
    """
    current = trace.get_current_span()
    if current is trace.INVALID_SPAN and not _open:
        return None
    here = current.get_span_context().span_id  # 0 where there is none
    frame = _frames.get(here)
    if frame is not None and frame[1] is not None:
        one: Foreign | None = frame[1]
        return None if one is None or one.taken or one.covered else one.span()
    if frame is None and current.is_recording() and _is_of_call(current):
        return current
    one = _open_beside(provider, model, here)
    return None if one is None else one.span()


def _is_of_call(span: Any) -> bool:
    """The same of a span that no processor told of: by what stands on it, and only once."""
    known = attributes_of(span)
    scope = getattr(getattr(span, "instrumentation_scope", None), "name", "")
    if scope == schema.SCOPE or schema.TURN_ID.key in known:
        return False
    return foreign.role_of(scope, getattr(span, "name", ""), known) is Role.CALL


def _open_beside(provider: str, model: str, parent: int) -> Foreign | None:
    latest = _latest.get()
    one = None if latest is None else latest()
    if one is None or one.parent != parent or one.taken or one.covered or one.id not in _open:
        return None
    known = attributes_of(one.span())
    theirs = foreign.provider_of(one.scope, known), foreign.model_of(known)
    for said, by_other in zip((provider, model), theirs, strict=True):
        if said and by_other and said != by_other:
            return None
    return one


def take(span: Span, call: Call | None = None) -> None:
    """A call enriches this span from now on: it, and those around it, tell of the same call."""
    one = _open.get(span.get_span_context().span_id)
    if one is None:
        return
    one.taken = True
    if one.outer is not None:
        one.outer.cover()
    if call is not None and call.started is not None:
        one.call = call
        _claimed[call.started.number] = one
        if len(_claimed) > OPEN:
            _claimed.pop(next(iter(_claimed)), None)


_released: WeakSet[Any] = WeakSet()
"""Spans that have ended while the response of their call goes on."""


def release(span: Any) -> None:
    """A span has ended, and the response of its call is not over: who made it tells nothing of that, and measures none.

    What comes of the call stands in events and metrics alone.
    """
    one = _open.get(span.get_span_context().span_id)
    _released.add(span if one is None else one.span() or span)


def emitters_of(span: Any) -> tuple[str, ...]:
    """The scopes of a span, and of those around it that are of the same call; none where the call has outlived it."""
    if _released and span in _released:
        return ()
    one = _open.get(span.get_span_context().span_id)
    if one is None:
        return (getattr(getattr(span, "instrumentation_scope", None), "name", "") or "",)
    scopes = []
    layer: Foreign | None = one
    while layer is not None:
        scopes.append(layer.scope)
        layer = layer.outer
    return tuple(scopes)


def turn_here() -> Turn | None:
    """The turn of the agent's span that the running code is in, for `announce`."""
    if not _open:
        return None
    frame = _frames.get(trace.get_current_span().get_span_context().span_id)
    return None if frame is None or frame[0] is None else frame[0].turn_of_calls()


def close_all() -> None:
    """End the turns of all agents' spans that are open: the process, or its instrumentation, ends."""
    for one in list(_open.values()):
        if one.role is Role.TURN:
            one.end_turn(TurnOutcome.CANCELLED)
    forget()


def forget() -> None:
    """Let go of everything. A forked child does: what is open is its parent's to end."""
    for kept in (_open, _frames, _claimed, _recent, _begun):
        kept.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)
