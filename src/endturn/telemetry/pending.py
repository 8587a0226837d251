"""A call's span before the call is announced: current while it is made, and begun when somebody asks for it.

To begin a span takes longer than all else that a call needs. Where nothing is made within it (no span of an HTTP
library, no log record with its ids) nobody can tell whether it was begun then or, with the same time, a little later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, Status, StatusCode, get_current_span
from opentelemetry.util import types

from endturn.announce import swallow
from endturn.calls import Call
from endturn.telemetry.opened import Opened


class Pending(Span):
    """Stands for the span of a call, and is one.

    Args:
        parent: where the call began.
    """

    __slots__ = ("_call", "_parent", "_span")

    def __init__(self, call: Call, parent: Context) -> None:
        self._call: Call | None = call
        self._parent: Context | None = parent
        self._span: Span | None = None

    def span(self) -> Span:
        """The span itself: the call is announced, if it was not. The one around it where it has none, or none yet."""
        parent, call = self._parent, self._call
        if self._span is None and call is not None:
            try:
                call.begin()
            except Exception:
                swallow("beginning a span")
            span = next((made.span for made in call.activations if isinstance(made, Opened)), None)
            # Of a call that is over nothing more is taken, though it may yet have to be told of.
            self._span = NonRecordingSpan(span.get_span_context()) if span is not None and call.ended else span
            if self._span is not None:
                # Whoever keeps its context keeps no more than its span: not where it began, which may be in another.
                self._call = self._parent = None
        return get_current_span(parent) if self._span is None else self._span

    @property  # type: ignore[misc]  # which is declared as an attribute
    def __class__(self) -> type:  # a host may ask whether it is one of the SDK's
        return self.span().__class__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.span(), name)

    # --- opentelemetry.trace.Span ---

    def get_span_context(self) -> SpanContext:
        return self.span().get_span_context()

    def is_recording(self) -> bool:
        return self.span().is_recording()

    def end(self, end_time: int | None = None) -> None:
        self.span().end(end_time)

    def set_attributes(self, attributes: Mapping[str, types.AttributeValue]) -> None:
        self.span().set_attributes(attributes)

    def set_attribute(self, key: str, value: types.AttributeValue) -> None:
        self.span().set_attribute(key, value)

    def add_event(self, name: str, attributes: types.Attributes = None, timestamp: int | None = None) -> None:
        self.span().add_event(name, attributes, timestamp)

    def add_link(self, context: SpanContext, attributes: types.Attributes = None) -> None:
        self.span().add_link(context, attributes)

    def update_name(self, name: str) -> None:
        self.span().update_name(name)

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        self.span().set_status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: types.Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        self.span().record_exception(exception, attributes, timestamp, escaped)
