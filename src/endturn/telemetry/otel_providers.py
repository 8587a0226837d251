"""The OpenTelemetry providers that receive the signals: arguments, or the global ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Final, TypedDict

from opentelemetry import metrics, trace
from opentelemetry._logs import Logger, LoggerProvider, NoOpLogger, get_logger_provider
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import NoOpTracer, Tracer, TracerProvider

from endturn import settings
from endturn._version import __version__
from endturn.telemetry import schema
from endturn.telemetry.content import ContentPolicy, Redact
from endturn.telemetry.instruments import Instruments, instruments_of
from endturn.telemetry.tool_loops import TOOLS_IDLE_S

Providers = tuple[TracerProvider | None, MeterProvider | None, LoggerProvider | None]
"""The providers of the host's arguments, one for each signal; None for the global one."""

Prices = Mapping[str, tuple[float, float]]
"""USD per million input tokens and per million output tokens, by the requested model."""

CURRENT: Final[dict[str, Callable[[], Any]]] = {
    "tracer": trace.get_tracer_provider,
    "meter": metrics.get_meter_provider,
    "logger": get_logger_provider,
}
"""The functions that return the global provider of each signal, in the order of `Providers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options for recording.

    Attributes:
        counted: spans have `endturn.counted`: metrics of this process count their response. None:
            if a reader exports these metrics.
        gen_ai_metrics: record OpenTelemetry's GenAI metrics. None: each, unless another
            instrumentation of the call has an instrument of this name in the same meter provider.
        semconv: the generation of OpenTelemetry's GenAI metric names: "default",
            "gen_ai_latest_experimental", or both with "/dup". None: OTEL_SEMCONV_STABILITY_OPT_IN,
            else "default".
        events: the destination of events: "logs", "spans" or "both". None: ENDTURN_EVENTS, else
            "logs".
        agent: turn metrics have the agent's name. None: ENDTURN_METRICS_AGENT, else false.
        prices: USD per million input and output tokens, by model, for `endturn.continuation.cost`.
        content: the signals with captured content: "NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY",
            "SPAN_AND_EVENT". None: OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT, else
            "NO_CONTENT".
        content_max_chars: maximum characters of one text. None: ENDTURN_CONTENT_MAX_CHARS, else
            8,192.
        redact: returns the text to record in place of a text. None: the function that
            ENDTURN_REDACT names (`module:function`), else texts are recorded unchanged.
        tools_idle_s: seconds for which an inferred turn waits for the results of its tools. None:
            ENDTURN_TOOLS_IDLE_S, else 300.
    """

    counted: bool | None = None
    gen_ai_metrics: bool | None = None
    semconv: str | None = None
    events: str | None = None
    agent: bool | None = None
    prices: Prices | None = None
    content: str | None = None
    content_max_chars: int | None = None
    redact: Redact | None = None
    tools_idle_s: float | None = None

    def check(self) -> None:
        """Raise UsageError if a value is invalid."""
        settings.check_keywords(
            "instrument", {option.name: getattr(self, option.name) for option in fields(self)}
        )

    @property
    def tools_idle(self) -> float:
        """Seconds for which an inferred turn waits for the results of its tools."""
        if self.tools_idle_s is not None:
            return self.tools_idle_s
        return settings.value_of(settings.TOOLS_IDLE_S, TOOLS_IDLE_S)

    def changed_by(self, later: Options) -> Options:
        """Return these options, replaced by those that a later call sets."""
        values = {option.name: getattr(later, option.name) for option in fields(later)}
        return replace(self, **{name: value for name, value in values.items() if value is not None})


class OptionKwargs(TypedDict, total=False):
    """The fields of `Options` as keyword arguments, for type checkers and editors."""

    counted: bool | None
    gen_ai_metrics: bool | None
    semconv: str | None
    events: str | None
    agent: bool | None
    prices: Prices | None
    content: str | None
    content_max_chars: int | None
    redact: Redact | None
    tools_idle_s: float | None


class OTelProviders:
    """A tracer, instruments and a logger, each None until there is a provider for it.

    Attributes:
        mirrors_events: events are also added to spans.
        agent: turn metrics have the agent's name.
        content: the settings for captured content.
        generations: the generations of OpenTelemetry's GenAI metrics that are emitted.
        tracers: the tracer provider of the host's arguments; None for the global one.
    """

    def __init__(self, providers: Providers, options: Options) -> None:
        self.options = options
        self.content = ContentPolicy.of(options.content, options.content_max_chars, options.redact)
        self.generations = _generations(options.semconv)
        self.agent = options.agent
        if self.agent is None:
            self.agent = settings.value_of(settings.METRICS_AGENT, False)
        events = options.events or settings.value_of(settings.EVENTS, "logs")
        events = events.strip().lower()
        self.mirrors_events = events != "logs"
        self.tracers: TracerProvider | None = providers[0]
        self.tracer: Tracer | None = None
        self.meters: Instruments | None = None
        self.logger: Logger | None = None
        self._has_any = False
        settings.check_keywords(
            "instrument",
            {
                f"{signal}_provider": provider
                for signal, provider in zip(CURRENT, providers, strict=True)
            },
        )
        self._missing: dict[str, Any] = dict(zip(CURRENT, providers, strict=True))
        """The signals without a provider in use, each with the provider of the arguments."""
        if events == "spans":
            del self._missing["logger"]
        self.look_up()

    def look_up(self) -> None:
        """Use missing providers that have been installed since.

        Several threads may do so at once, with the same result.
        """
        for signal, provider_option in tuple(self._missing.items()):
            provider = CURRENT[signal]() if provider_option is None else provider_option
            if provider_option is not None or installed(provider.__class__):
                self._use(signal, provider)
                self._missing.pop(signal, None)

    def _use(self, signal: str, provider: Any) -> None:
        if signal == "meter":
            self.meters = instruments_of(provider)
        else:
            get = getattr(provider, f"get_{signal}")
            emitter: Tracer | Logger = get(schema.SCOPE, __version__, schema.SCHEMA_URL)
            is_no_op = isinstance(emitter, NoOpTracer | NoOpLogger)
            setattr(self, signal, None if is_no_op else emitter)
        self._has_any = not (self.tracer is None and self.meters is None and self.logger is None)

    def is_enabled(self) -> bool:
        """Return whether there is a provider. If there is none, missing ones are looked up."""
        if not self._has_any:
            self.look_up()
        return self._has_any

    def takes_events(self) -> bool:
        """Return whether events are emitted anywhere."""
        return self.logger is not None or self.mirrors_events

    def counts_responses(self) -> bool:
        """Return whether exported metrics of this process count responses."""
        if self.options.counted is not None:
            return self.options.counted
        if self.meters is None:
            self.look_up()
        return self.meters is not None and self.meters.is_exported

    def price(self, model: str) -> tuple[float, float] | None:
        """Return the prices of a model's input and output tokens; None if they are not set."""
        return None if self.options.prices is None else self.options.prices.get(model)


@cache
def installed(kind: type) -> bool:
    """Return whether a global provider of this type was installed.

    The API's own providers are placeholders until one is.
    """
    return not kind.__module__.startswith(
        ("opentelemetry.trace", "opentelemetry.metrics", "opentelemetry._logs")
    )


def _generations(semconv: str | None) -> tuple[schema.Generation, ...]:
    """Return the generations of OpenTelemetry's GenAI metrics that are emitted."""
    return schema.SEMCONV[semconv or settings.value_of(settings.SEMCONV_OPT_IN, "default")]
