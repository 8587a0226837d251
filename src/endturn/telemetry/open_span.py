"""A span between its start and its end: made current step by step, and what can be read off another's."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Final, TypeVar

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, Span, set_span_in_context

from endturn.telemetry import enclosing, schema

Value = TypeVar("Value")

REMEMBERED: Final = 1_024
"""Truncated calls whose spans a continuation can still be linked to, and raw reasons that were said to be unmapped."""

NO_SPAN: Final = set_span_in_context(INVALID_SPAN, Context())
"""The context of what has no sampled span. Not empty: the SDK would take the collecting thread's own in its place."""


class _Step:
    """Makes a context current for one step."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token = attach(self._context)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        detach(self._token)


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """A span that a later record belongs to, and the context in which it is current. Calling it opens a step.

    Attributes:
        ours: we made the span, so we end it.
    """

    span: Span
    context: Context
    ours: bool = True

    def __call__(self) -> _Step:
        return _Step(self.context)


def invokes_agent(span: Span) -> bool:
    """Whether this is another instrumentation's span around a whole agent run."""
    if not span.is_recording():
        return False
    found = getattr(span, "attributes", None) or {}
    return found.get(schema.OPERATION.key) == "invoke_agent"


def exemplar_context(opened: OpenSpan | None) -> Context:
    """The context that a measurement is recorded in: its exemplar leads to the span, which is not kept alive."""
    if opened is None:
        return NO_SPAN
    context = opened.span.get_span_context()
    return set_span_in_context(NonRecordingSpan(context), NO_SPAN) if context.trace_flags.sampled else NO_SPAN


def measured_by_another(opened: OpenSpan | None) -> bool:
    """Whether an instrumentation that makes a span of this call records the conventions' metrics itself."""
    return opened is not None and _is_by(opened, schema.METRIC_EMITTERS)


def content_by_another(opened: OpenSpan | None) -> bool:
    """Whether another instrumentation, which made the span, records what is said by the conventions' own variable."""
    return opened is not None and not opened.ours and _is_by(opened, schema.CONTENT_EMITTERS)


def _is_by(opened: OpenSpan, emitters: tuple[str, ...]) -> bool:
    scopes = enclosing.emitters_of(opened.span)
    return any(f"{scope}.".startswith(f"{emitter}.") for scope in scopes for emitter in emitters)


def remember(kept: dict[int, Value], number: int, value: Value, *, most: int = REMEMBERED) -> None:
    """Keep a value, and let go of the oldest where there are too many."""
    kept[number] = value
    if len(kept) > most:
        kept.pop(next(iter(kept)), None)
