"""A span of a call that is over: made whole, not begun, described and ended.

The SDK's span can be written to, read and ended from several threads, within limits; to prepare it for that takes
longer than all else that is made of a call. Of a call that was put off everything is known, so what the SDK's span
hands to its processors when it ends is made straight away. That is done only after it has been seen, once in each
process, to give the same as the SDK's own way, under every kind of parent; the SDK's own way serves otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
    get_current_span,
)
from opentelemetry.util import types

log = logging.getLogger("endturn")

SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
DROPPED: Final = TraceFlags(TraceFlags.DEFAULT)
RANDOM: Final = getattr(TraceFlags, "RANDOM_TRACE_ID", 0)

MOST: Final = 64
"""Attributes of a call's span, at most: a tracer that takes fewer is left to count them."""


class Finished(NonRecordingSpan):
    """A span whose call is over: takes its attributes and its end, and is handed on then.

    Args:
        tracer: the SDK's.
        parent: what it is a child of, None where it is a root.
        ended: what the tracer counts its end with.
    """

    def __init__(
        self,
        tracer: Any,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        start_time: int,
        attributes: types.Attributes,
        ended: Callable[[], None] | None,
    ) -> None:
        super().__init__(context)
        self._tracer: Any = tracer
        self._name = name
        self._parent = parent
        self._kind = kind
        self._start_time = start_time
        self._attributes: dict[str, Any] = dict(attributes) if attributes else {}
        self._status = UNSET
        self._ended = ended

    def is_recording(self) -> bool:
        return self._tracer is not None

    def set_attributes(self, attributes: Mapping[str, types.AttributeValue]) -> None:
        """Add attributes of which every value is clean."""
        self._attributes.update(attributes)

    def set_attribute(self, key: str, value: types.AttributeValue) -> None:
        self._attributes[key] = value

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        self._status = status if isinstance(status, Status) else Status(status, description)

    def end(self, end_time: int | None = None) -> None:
        """Hand it on. Once; `end_time` is not looked up."""
        tracer, self._tracer = self._tracer, None
        if tracer is None:
            return
        if self._ended is not None:
            self._ended()
        made = _kind_of_spans()(
            self._name,
            self.get_span_context(),
            self._parent,
            tracer.resource,
            self._attributes,
            kind=self._kind,
            status=self._status,
            start_time=self._start_time,
            end_time=end_time,
            instrumentation_info=tracer.instrumentation_info,
            instrumentation_scope=tracer._instrumentation_scope,
        )
        tracer.span_processor.on_end(made)


UNSET: Final = Status(StatusCode.UNSET)


@cache
def _kind_of_spans() -> Any:
    from opentelemetry.sdk.trace import ReadableSpan

    return ReadableSpan


def started(tracer: Tracer, name: str, context: Context, kind: SpanKind, start_time: int) -> Span:
    """A span of what is over, to be given clean attributes and ended. No processor is told that it has begun."""
    if is_known(type(tracer)):
        made = _made(tracer, name, context, kind, start_time)
        if made is not None:
            return made
    return tracer.start_span(name, context, kind, links=None, start_time=start_time)


def _made(tracer: Any, name: str, context: Context, kind: SpanKind, start_time: int) -> Span | None:
    """As the SDK's tracer starts a span; None where the span's limits are to be counted."""
    limits = tracer._span_limits
    most = limits.max_span_attributes
    if limits.max_span_attribute_length is not None or (most is not None and most < MOST):
        return None
    parent: SpanContext | None = get_current_span(context).get_span_context()
    if not tracer._is_enabled():
        return None
    ids = tracer.id_generator
    if parent is None or not parent.is_valid:
        parent, trace_id = None, ids.generate_trace_id()
        is_random = ids.is_trace_id_random()
    else:
        trace_id, is_random = parent.trace_id, parent.trace_flags.random_trace_id
    sampled = tracer.sampler.should_sample(context, trace_id, name, kind, None, ())
    flags = _flags(sampled.decision.is_sampled(), is_random)
    made = SpanContext(trace_id, ids.generate_span_id(), False, flags, sampled.trace_state)
    ended = tracer._tracer_metrics.start_span(parent, sampled.decision)
    if not sampled.decision.is_recording():
        return NonRecordingSpan(made)
    return Finished(tracer, name, made, parent, kind, start_time, sampled.attributes, ended)


@cache
def _flags(is_sampled: bool, is_random: bool) -> TraceFlags:
    return TraceFlags((SAMPLED if is_sampled else DROPPED) | (RANDOM if is_random else 0))


@cache
def is_known(kind: type) -> bool:
    """Whether tracers of this class are the SDK's, and their spans can be made so in the SDK's version."""
    try:
        return kind.__module__ == "opentelemetry.sdk.trace" and _proven(kind)
    except Exception:
        log.debug("endturn: spans are begun before they end", exc_info=True)
        return False


def _proven(kind: type) -> bool:
    """Whether both ways give the same span, but for its ids, under every kind of parent and decision."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased

    seen: list[list[object]] = [[], []]
    for sampler in (ParentBased(ALWAYS_ON), ALWAYS_OFF):
        kept = _Kept()
        provider = TracerProvider(sampler, Resource({"a": "b"}), shutdown_on_exit=False)
        provider.add_span_processor(kept)  # type: ignore[arg-type]  # as much of one as is asked here
        given = provider.get_tracer("endturn", "1", "https://example.com")
        if type(given) is not kind:
            return False
        tracer: Any = given
        for parent in (None, *_PARENTS):
            context = Context() if parent is None else trace.set_span_in_context(NonRecordingSpan(parent), Context())
            asked = "proof", context, SpanKind.CLIENT
            ways: tuple[Any, Any] = tracer.start_span(*asked, links=None, start_time=1), _made(tracer, *asked, 1)
            if None in ways:
                return False
            for found, span in zip(seen, ways, strict=True):
                span.set_attributes({"text": "x", "count": 1, "words": ("a", "b")})
                made = span.get_span_context()
                is_child = parent is not None and made.trace_id == parent.trace_id
                found += [span.is_recording(), made.is_valid, made[2:], is_child]
                span.end(2)
                found += [_shown(each) for each in kept.spans]
                kept.spans.clear()
    return seen[0] == seen[1] and len(seen[0]) > 0


_PARENTS: Final = tuple(
    SpanContext(1, 2, is_remote, TraceFlags(flags), TraceState([("a", "b")]))
    for is_remote, flags in ((False, SAMPLED), (True, SAMPLED | RANDOM), (True, RANDOM))
)
"""A parent of each kind: of this process and of another, sampled and not, with ids at random and not."""


class _Kept:
    """A processor that keeps what it is handed."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    def on_start(self, span: object, parent_context: object = None) -> None:
        """Nothing."""

    def _on_ending(self, span: object) -> None:
        """Nothing."""

    def on_end(self, span: object) -> None:
        self.spans.append(span)


def _shown(span: Any) -> object:
    shared = span.resource, span._instrumentation_info, span.instrumentation_scope
    status = span.status.status_code, span.status.description
    dropped = span.dropped_attributes, span.dropped_events, span.dropped_links
    spent = span.name, span.kind, span.parent, span.start_time, span.end_time, status
    return shared, spent, dict(span.attributes), tuple(span.events), tuple(span.links), dropped, span.context[2:]
