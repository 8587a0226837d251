"""The events: log records with an event name, mirrored as span events where there is nobody to take log records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Literal

from opentelemetry._logs import Logger, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.trace import Span

from endturn.errors import UsageError
from endturn.telemetry.content import as_text, say_once
from endturn.telemetry.schema import INFERENCE_DETAILS, Event, Level

EVENTS: Final = "ENDTURN_EVENTS"

Mode = Literal["logs", "spans", "both"]
MODES: Final[tuple[Mode, ...]] = ("logs", "spans", "both")
SEVERITY: Final[dict[Level, tuple[str, SeverityNumber]]] = {
    "trace": ("TRACE", SeverityNumber.TRACE),
    "info": ("INFO", SeverityNumber.INFO),
    "warn": ("WARN", SeverityNumber.WARN),
    "error": ("ERROR", SeverityNumber.ERROR),
}


def mode_from(given: str | None) -> Mode:
    """Where events go: what was given, else ENDTURN_EVENTS, else `logs`.

    Raises:
        UsageError: what was given is none of logs, spans, both. A variable that is none is warned of.
    """
    value = given or os.environ.get(EVENTS, "").strip().lower()
    for mode in MODES:
        if value == mode:
            return mode
    if given:
        raise UsageError(f"events={given!r}: use one of {', '.join(MODES)}")
    if value:
        say_once(EVENTS, f"is none of {', '.join(MODES)}: events go to logs")
    return "logs"


class Events:
    """Emits events, each once to every place that was asked for."""

    __slots__ = ("logger", "mirrored")

    def __init__(self, mode: Mode) -> None:
        self.logger: Logger | None = None
        self.mirrored = mode != "logs"

    def wanted(self) -> bool:
        """Whether anyone would take an event."""
        return self.logger is not None or self.mirrored

    def emit(
        self,
        event: Event,
        level: Level,
        attributes: Mapping[str, Any],
        *,
        timestamp_ns: int,
        context: Context | None,
        span: Span | None,
    ) -> None:
        """Emit one event: to the log with its context's ids, and to the span while that is still open."""
        if self.logger is not None:
            text, number = SEVERITY[level]
            self.logger.emit(
                event_name=event.name,
                attributes=attributes,
                timestamp=timestamp_ns,
                context=context,
                severity_text=text,
                severity_number=number,
            )
        if self.mirrored and span is not None and span.is_recording():
            flat = as_text(attributes) if event is INFERENCE_DETAILS else attributes
            span.add_event(event.name, flat, timestamp_ns)
