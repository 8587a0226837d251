"""Where signals go.

The providers that were given, or the global ones, whenever a host installs them.
"""

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
"""Those that were given, one for each signal; the global one where None."""

Prices = Mapping[str, tuple[float, float]]
"""USD per million input and per million output tokens, by model as requested."""

CURRENT: Final[dict[str, Callable[[], Any]]] = {
    "tracer": trace.get_tracer_provider,
    "meter": metrics.get_meter_provider,
    "logger": get_logger_provider,
}
"""What gives the global provider of each signal, in the order of `Providers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to record.

    Attributes:
        counted: whether spans say that their response is counted here; None: a reader is there to
            export the counts.
        gen_ai_metrics: whether the conventions' metrics are recorded; None: each, unless another
            instrumentation of the call has an instrument of this name in the same meter provider.
        semconv: which generation of the conventions' metric names is emitted: "default",
            "gen_ai_latest_experimental", or with "/dup" both; None: as
            OTEL_SEMCONV_STABILITY_OPT_IN says, else "default".
        events: where events go: "logs", "spans" or "both"; None: as ENDTURN_EVENTS says, else
            "logs".
        agent: whether turn metrics carry the agent's name; None: as ENDTURN_METRICS_AGENT says,
            else not.
        prices: USD per million input and output tokens, by model: what `endturn.continuation.cost`
            is made from.
        content: where what was said is recorded: "NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY",
            "SPAN_AND_EVENT"; None: as OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says, else
            nowhere.
        content_max_chars: characters of one text; None: as ENDTURN_CONTENT_MAX_CHARS says, else
            8,192.
        redact: is given each text before it is recorded, and gives what may be; None: the function
            that ENDTURN_REDACT names (`module:function`), else all is recorded as it is.
        tools_idle_s: seconds for which a turn that nobody declared waits for the results of its
            tools; None: as ENDTURN_TOOLS_IDLE_S says, else 300.
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
        """Raises UsageError where a value cannot be used."""
        settings.check_keywords(
            "instrument", {option.name: getattr(self, option.name) for option in fields(self)}
        )

    @property
    def tools_idle(self) -> float:
        """Seconds for which a turn that nobody declared waits for the results of its tools."""
        if self.tools_idle_s is not None:
            return self.tools_idle_s
        return settings.value_of(settings.TOOLS_IDLE_S, TOOLS_IDLE_S)

    def changed_by(self, later: Options) -> Options:
        """These, and in their place what a later call gives."""
        values = {each.name: getattr(later, each.name) for each in fields(later)}
        return replace(self, **{name: value for name, value in values.items() if value is not None})


class OptionsGiven(TypedDict, total=False):
    """The fields of `Options`, as the keyword arguments that type checkers and editors see."""

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
        mirrors_events: events go onto spans too.
        agent: whether turn metrics carry the agent's name.
        content: what is recorded of what was said.
        generations: those of the conventions whose metric names are emitted.
        tracers: the tracer provider that was given; None for the global one.
    """

    def __init__(self, given: Providers, options: Options) -> None:
        self.options = options
        self.content = ContentPolicy.of(options.content, options.content_max_chars, options.redact)
        self.generations = _generations(options.semconv)
        self.agent = options.agent
        if self.agent is None:
            self.agent = settings.value_of(settings.METRICS_AGENT, False)
        events = options.events or settings.value_of(settings.EVENTS, "logs")
        events = events.strip().lower()
        self.mirrors_events = events != "logs"
        self.tracers: TracerProvider | None = given[0]
        self.tracer: Tracer | None = None
        self.meters: Instruments | None = None
        self.logger: Logger | None = None
        self._has_any = False
        settings.check_keywords(
            "instrument",
            {f"{signal}_provider": one for signal, one in zip(CURRENT, given, strict=True)},
        )
        self._missing: dict[str, Any] = dict(zip(CURRENT, given, strict=True))
        """The signals that nothing takes yet, and the provider that was given for each."""
        if events == "spans":
            del self._missing["logger"]
        self.look()

    def look(self) -> None:
        """See whether missing providers have been installed.

        Threads may do so at once: each then makes the same of a provider.
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
            made = getattr(provider, f"get_{signal}")(schema.SCOPE, __version__, schema.SCHEMA_URL)
            setattr(self, signal, None if isinstance(made, NoOpTracer | NoOpLogger) else made)
        self._has_any = any(made is not None for made in (self.tracer, self.meters, self.logger))

    def awake(self) -> bool:
        """Whether there is anywhere to go. Where nothing is, it looks for missing providers."""
        if not self._has_any:
            self.look()
        return self._has_any

    def takes_events(self) -> bool:
        """Whether anyone would take an event."""
        return self.logger is not None or self.mirrors_events

    def counted(self) -> bool:
        """Whether responses are counted here, by metrics that leave this process."""
        if self.options.counted is not None:
            return self.options.counted
        if self.meters is None:
            self.look()
        return self.meters is not None and self.meters.is_exported

    def price(self, model: str) -> tuple[float, float] | None:
        """What a model's tokens cost, where that was said."""
        return None if self.options.prices is None else self.options.prices.get(model)


@cache
def installed(kind: type) -> bool:
    """Whether a global provider of this type is somebody's.

    The API's own stand in for one that comes later.
    """
    return not kind.__module__.startswith(
        ("opentelemetry.trace", "opentelemetry.metrics", "opentelemetry._logs")
    )


def _generations(semconv: str | None) -> tuple[schema.Generation, ...]:
    """The generations of the conventions whose metric names are emitted."""
    return schema.SEMCONV[semconv or settings.value_of(settings.SEMCONV_OPT_IN, "default")]
