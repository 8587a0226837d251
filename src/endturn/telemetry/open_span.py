"""A span between its start and its end, ours or another instrumentation's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeVar

from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, Span, set_span_in_context

from endturn.events import CallEnded
from endturn.telemetry import schema
from endturn.telemetry.attributes import Attributes

Key = TypeVar("Key")
Value = TypeVar("Value")

REMEMBERED: Final = 1_024
"""Truncated calls whose spans a continuation can still be linked to, and raw reasons that were said to be unmapped."""

NO_SPAN: Final = set_span_in_context(INVALID_SPAN, Context())
"""The context of what has no sampled span. Not empty: the SDK would take the collecting thread's own in its place."""


@dataclass(slots=True, eq=False)
class OpenSpan:
    """A span that a later record belongs to.

    Attributes:
        request: of a call's span, what is known of the request.
        ours: we made the span, so we end it.
        scopes: of the instrumentations that make a span of the same call.
        exemplar: measurements are recorded in it: their exemplars lead to the span, without keeping it alive.
    """

    span: Span
    request: Attributes | None = None
    ours: bool = True
    scopes: tuple[str, ...] = ()
    exemplar: Context = field(init=False)

    def __post_init__(self) -> None:
        found = self.span.get_span_context()
        is_sampled = found.trace_flags.sampled
        self.exemplar = set_span_in_context(NonRecordingSpan(found), NO_SPAN) if is_sampled else NO_SPAN

    def is_measured_by_another(self, ended: CallEnded) -> bool:
        """Whether an instrumentation that makes a span of this call records the conventions' metrics itself.

        Not of a stream that it handed over: its span ended before the first piece came.
        """
        if not self._is_by(schema.METRIC_EMITTERS):
            return False
        over_ns = getattr(self.span, "end_time", None)
        first_s = ended.duration_s if ended.first_chunk_s is None else ended.first_chunk_s
        return not (ended.started.stream and over_ns and over_ns < ended.started.started_ns + first_s * 1e9)

    def has_content_by_another(self) -> bool:
        """Whether another instrumentation, which made the span, records what is said by the conventions' variable."""
        return self._is_by(schema.CONTENT_EMITTERS)

    def _is_by(self, emitters: tuple[str, ...]) -> bool:
        return any(f"{scope}.".startswith(f"{emitter}.") for scope in self.scopes for emitter in emitters)


def remember(kept: dict[Key, Value], key: Key, value: Value, *, most: int = REMEMBERED) -> None:
    """Keep a value, and let go of the oldest where there are too many."""
    kept[key] = value
    if len(kept) > most:
        kept.pop(next(iter(kept)), None)
