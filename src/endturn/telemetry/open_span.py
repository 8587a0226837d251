"""A span between its start and its end: made current step by step, and what can be read off another's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, Span, set_span_in_context

from endturn.events import CallEnded
from endturn.telemetry import schema

Key = TypeVar("Key")
Value = TypeVar("Value")

REMEMBERED: Final = 1_024
"""Truncated calls whose spans a continuation can still be linked to, and raw reasons that were said to be unmapped."""

NO_SPAN: Final = set_span_in_context(INVALID_SPAN, Context())
"""The context of what has no sampled span. Not empty: the SDK would take the collecting thread's own in its place."""


class OpenSpan:
    """A span that a later record belongs to. Calling it makes the span current for one step.

    Attributes:
        ours: we made the span, so we end it.
        scopes: of the instrumentations that make a span of the same call.
        context: the span is current in it.
        exemplar: measurements are recorded in it: their exemplars lead to the span, without keeping it alive.
    """

    __slots__ = ("context", "exemplar", "ours", "scopes", "span")

    def __init__(self, span: Span, *, ours: bool = True, scopes: tuple[str, ...] = ()) -> None:
        self.span = span
        self.ours = ours
        self.scopes = scopes
        self.context = set_span_in_context(span)
        found = span.get_span_context()
        is_sampled = found.trace_flags.sampled
        self.exemplar = set_span_in_context(NonRecordingSpan(found), NO_SPAN) if is_sampled else NO_SPAN

    @contextmanager
    def __call__(self) -> Iterator[None]:
        token = attach(self.context)
        try:
            yield
        finally:
            detach(token)


def measured_by_another(opened: OpenSpan | None, ended: CallEnded) -> bool:
    """Whether an instrumentation that makes a span of this call records the conventions' metrics itself.

    Not of a stream that it handed over: its span ended before the first piece came.
    """
    if opened is None or not _is_by(opened, schema.METRIC_EMITTERS):
        return False
    over_ns = getattr(opened.span, "end_time", None)
    first_s = ended.duration_s if ended.first_chunk_s is None else ended.first_chunk_s
    return not (ended.started.stream and over_ns and over_ns < ended.started.started_ns + first_s * 1e9)


def content_by_another(opened: OpenSpan | None) -> bool:
    """Whether another instrumentation, which made the span, records what is said by the conventions' own variable."""
    return opened is not None and _is_by(opened, schema.CONTENT_EMITTERS)


def _is_by(opened: OpenSpan, emitters: tuple[str, ...]) -> bool:
    return any(f"{scope}.".startswith(f"{emitter}.") for scope in opened.scopes for emitter in emitters)


def remember(kept: dict[Key, Value], key: Key, value: Value, *, most: int = REMEMBERED) -> None:
    """Keep a value, and let go of the oldest where there are too many."""
    kept[key] = value
    if len(kept) > most:
        kept.pop(next(iter(kept)), None)
