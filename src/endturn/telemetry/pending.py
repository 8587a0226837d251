"""A call's span before the call is announced: current while it is made, and begun when somebody asks for it.

To begin a span takes longer than all else that a call needs. Where nothing is made within it (no span of an HTTP
library, no log record with its ids) nobody can tell whether it was begun then or, with the same time, a little later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.trace import INVALID_SPAN, Span, SpanContext, Status, StatusCode
from opentelemetry.util import types

from endturn.announce import Call, swallow
from endturn.telemetry.opened import Opened


class Pending(Span):
    """Stands for the span of a call, and is one."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    def span(self) -> Span:
        """The span itself: the call is announced, if it was not. An invalid one where that failed."""
        try:
            self._call.announced()
        except Exception:
            swallow("beginning a span")
        spans = (activation.span for activation in self._call.activations if isinstance(activation, Opened))
        return next(spans, INVALID_SPAN)

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
