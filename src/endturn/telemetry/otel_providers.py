"""Where signals go: the providers that were given, or the global ones, whenever a host installs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry._logs import LoggerProvider, NoOpLogger, get_logger_provider
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import NoOpTracer, Tracer, TracerProvider

from endturn import __version__
from endturn.errors import UsageError
from endturn.telemetry import schema
from endturn.telemetry.bounded import Redact
from endturn.telemetry.content import Capturing
from endturn.telemetry.events import Events, mode_from
from endturn.telemetry.instruments import Instruments, instruments_of

Prices = Mapping[str, tuple[float, float]]
"""USD per million input and per million output tokens, by model as requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to record.

    Attributes:
        counted: whether spans say that their response is counted here; None: a reader is there to export the counts.
        gen_ai_metrics: whether the conventions' metrics are recorded; None: unless the call's span was adopted from an
            instrumentation that records them.
        events: where events go: "logs", "spans" or "both"; None: as ENDTURN_EVENTS says, else "logs".
        agent: whether turn metrics carry the agent's name; None: as ENDTURN_METRICS_AGENT says, else not.
        prices: USD per million input and output tokens, by model: what `endturn.continuation.cost` is made from.
        content: where what was said is recorded: "NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"; None: as
            OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says, else nowhere.
        content_max_chars: characters of one text; None: as ENDTURN_CONTENT_MAX_CHARS says, else 8,192.
        redact: is given each text before it is recorded, and gives what may be; None: the function that ENDTURN_REDACT
            names (`module:function`), else all is recorded as it is.
    """

    counted: bool | None = None
    gen_ai_metrics: bool | None = None
    events: str | None = None
    agent: bool | None = None
    prices: Prices | None = None
    content: str | None = None
    content_max_chars: int | None = None
    redact: Redact | None = None

    def check(self) -> None:
        """Raises UsageError where a value cannot be used."""
        mode_from(self.events)
        Capturing.of(self.content, self.content_max_chars, self.redact)


class OTelProviders:
    """A tracer, instruments and a logger, each None until there is a provider for it.

    Attributes:
        agent: whether turn metrics carry the agent's name.
    """

    __slots__ = ("_missing", "agent", "events", "meters", "options", "tracer")

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        logger_provider: LoggerProvider | None,
        options: Options,
    ) -> None:
        self.options = options
        self.agent = options.agent
        if self.agent is None:
            self.agent = os.environ.get("ENDTURN_METRICS_AGENT", "").strip().lower() == "true"
        self.events = Events(mode_from(options.events))
        self.tracer: Tracer | None = None
        self.meters: Instruments | None = None
        self._missing: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        signals: tuple[tuple[str, Any, Callable[[Any], None], Callable[[], Any]], ...] = (
            ("tracer", tracer_provider, self._trace_with, lambda: trace.get_tracer_provider()),
            ("meter", meter_provider, self._measure_with, lambda: metrics.get_meter_provider()),
            ("logger", logger_provider, self._log_with, get_logger_provider),
        )
        for signal, given, use, current in signals:
            if given is None:
                self._missing.append((current, use))
            elif isinstance(given, type) or not hasattr(given, f"get_{signal}"):
                name = given.__name__ if isinstance(given, type) else type(given).__name__
                what = f"the class {name}" if isinstance(given, type) else f"a value of type {name}"
                raise UsageError(f"{signal}_provider is an OpenTelemetry provider object, not {what}")
            else:
                use(given)
        self.look()

    def look(self) -> None:
        """See whether missing providers have been installed."""
        if self._missing:
            self._missing = [row for row in self._missing if not self._found(*row)]

    def _found(self, current: Callable[[], Any], use: Callable[[Any], None]) -> bool:
        provider = current()
        if not installed(provider):
            return False
        use(provider)
        return True

    def awake(self) -> bool:
        """Whether there is anywhere to go."""
        if self.tracer is None and self.meters is None and self.events.logger is None:
            self.look()
            return self.tracer is not None or self.meters is not None or self.events.logger is not None
        return True

    def counted(self) -> bool:
        """Whether responses are counted here, by metrics that leave this process."""
        if self.options.counted is not None:
            return self.options.counted
        return self.meters is not None and self.meters.collected

    def _trace_with(self, provider: TracerProvider) -> None:
        tracer = provider.get_tracer(schema.SCOPE, __version__, schema.SCHEMA_URL)
        self.tracer = None if isinstance(tracer, NoOpTracer) else tracer

    def _measure_with(self, provider: MeterProvider) -> None:
        self.meters = instruments_of(provider)

    def _log_with(self, provider: LoggerProvider) -> None:
        logger = provider.get_logger(schema.SCOPE, __version__, schema.SCHEMA_URL)
        self.events.logger = None if isinstance(logger, NoOpLogger) else logger


def installed(provider: object) -> bool:
    """Whether a global provider is somebody's: the API's own are proxies and no-ops that stand in for a later one."""
    return not type(provider).__module__.startswith(
        ("opentelemetry.trace", "opentelemetry.metrics", "opentelemetry._logs")
    )
