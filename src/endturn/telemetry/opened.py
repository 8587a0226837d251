"""A span between its beginning and its end: made current step by step, and what can be read off another's."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Final, TypeVar

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span

from endturn.lean import lean
from endturn.telemetry import enclosing, schema
from endturn.telemetry.bulk import Where

Value = TypeVar("Value")

REMEMBERED: Final = 1_024
"""Truncated calls whose spans a continuation can still be linked to, and raw reasons that were said to be unmapped."""


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


@lean
@dataclass(frozen=True, slots=True)
class Opened:
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


def where_of(opened: Opened | None) -> Where:
    """Which span a measurement's exemplar leads to."""
    if opened is None:
        return 0, 0
    context = opened.span.get_span_context()
    return (context.trace_id, context.span_id) if context.trace_flags.sampled else (0, 0)


def measured_by(opened: Opened | None) -> bool:
    """Whether an instrumentation that makes a span of this call records the conventions' metrics itself."""
    if opened is None:
        return False
    scopes = enclosing.emitters_of(opened.span)
    return any(f"{scope}.".startswith(f"{emitter}.") for scope in scopes for emitter in schema.METRIC_EMITTERS)


def told_by(opened: Opened | None) -> bool:
    """Whether another instrumentation, which made the span, records what is said by the conventions' own variable."""
    if opened is None or opened.ours:
        return False
    scopes = enclosing.emitters_of(opened.span)
    return any(f"{scope}.".startswith(f"{emitter}.") for scope in scopes for emitter in schema.CONTENT_EMITTERS)


def remember(kept: dict[int, Value], number: int, value: Value, *, most: int = REMEMBERED) -> None:
    """Keep a value, and let go of the oldest where there are too many."""
    kept[number] = value
    if len(kept) > most:
        kept.pop(next(iter(kept)), None)
