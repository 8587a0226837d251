"""Where signals go.

The providers that were given, or the global ones, whenever a host installs them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from math import inf
from typing import Any, Final, TypedDict

from opentelemetry import metrics, trace
from opentelemetry._logs import Logger, LoggerProvider, NoOpLogger, get_logger_provider
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import NoOpTracer, Tracer, TracerProvider

from endturn._version import __version__
from endturn.errors import UsageError
from endturn.telemetry import schema
from endturn.telemetry.content import ContentPolicy, Redact, variable
from endturn.telemetry.instruments import Instruments, instruments_of
from endturn.telemetry.tool_loops import TOOLS_IDLE_S

Providers = tuple[TracerProvider | None, MeterProvider | None, LoggerProvider | None]
"""Those that were given, one for each signal; the global one where None."""

Prices = Mapping[str, tuple[float, float]]
"""USD per million input and per million output tokens, by model as requested."""

OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
EVENTS: Final = "ENDTURN_EVENTS"
MODES: Final = ("logs", "spans", "both")

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
        for name in ("counted", "gen_ai_metrics", "agent"):
            if not isinstance(getattr(self, name), bool | None):
                raise UsageError(f"{name}={getattr(self, name)!r}: give True, False or None")
        prices = self.prices.values() if isinstance(self.prices, Mapping) else ((),)
        if self.prices is not None and not all(map(_is_price, prices)):
            why = "give a mapping of models to USD per million tokens, (input, output)"
            raise UsageError(f'prices={self.prices!r}: {why}: {{"gpt-5": (1.25, 10)}}')
        idle = self.tools_idle_s
        if idle is not None and (
            isinstance(idle, bool) or not isinstance(idle, int | float) or not 0 < idle < inf
        ):
            raise UsageError(
                f"tools_idle_s={idle!r}: give a number of seconds above 0, such as 300"
            )
        _generations(self.semconv)
        _events_go_to(self.events)
        ContentPolicy.of(self.content, self.content_max_chars, self.redact)

    @property
    def tools_idle(self) -> float:
        """Seconds for which a turn that nobody declared waits for the results of its tools."""
        if self.tools_idle_s is not None:
            return self.tools_idle_s
        why = f"is no number of seconds above 0: it is {TOOLS_IDLE_S:g}"
        return variable("ENDTURN_TOOLS_IDLE_S", _seconds, otherwise=TOOLS_IDLE_S, why=why)

    def changed_by(self, later: Options) -> Options:
        """These, and in their place what a later call gives."""
        given = {each.name: getattr(later, each.name) for each in fields(later)}
        return replace(self, **{name: value for name, value in given.items() if value is not None})


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
            self.agent = os.environ.get("ENDTURN_METRICS_AGENT", "").strip().lower() == "true"
        events = _events_go_to(options.events)
        self.mirrors_events = events != "logs"
        self.tracers: TracerProvider | None = given[0]
        self.tracer: Tracer | None = None
        self.meters: Instruments | None = None
        self.logger: Logger | None = None
        self._has_any = False
        for signal, provider in zip(CURRENT, given, strict=True):
            if provider is not None and (
                isinstance(provider, type) or not hasattr(provider, f"get_{signal}")
            ):
                raise UsageError(
                    f"{signal}_provider={provider!r}: give an OpenTelemetry provider object"
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
        for signal, given in tuple(self._missing.items()):
            provider = CURRENT[signal]() if given is None else given
            if given is not None or installed(provider.__class__):
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


def _seconds(word: str) -> float:
    seconds = float(word)
    if not 0 < seconds < inf:
        raise ValueError
    return seconds


def _is_price(price: Any) -> bool:
    is_pair = isinstance(price, tuple | list) and len(price) == 2
    return is_pair and all(isinstance(one, int | float) and one >= 0 for one in price)


def _generations(given: str | None) -> tuple[schema.Generation, ...]:
    """Whose names are emitted.

    What was given, else OTEL_SEMCONV_STABILITY_OPT_IN, in which other areas have words too.

    Raises:
        UsageError: what was given is no word for it.
    """
    if given is not None and given not in schema.SEMCONV:
        raise UsageError(f"semconv={given!r}: use one of {', '.join(schema.SEMCONV)}")
    words = [word.strip() for word in os.environ.get(OPT_IN, "").split(",")]
    # `/dup` comes before the plain word
    wanted = [word for word in reversed(schema.SEMCONV) if word in words]
    return schema.SEMCONV[given or next(iter(wanted), "default")]


def _events_go_to(given: str | None) -> str:
    """Where events go: what was given, else ENDTURN_EVENTS, else `logs`.

    Raises:
        UsageError: what was given is none of logs, spans, both. A variable that is none is warned
            of.
    """
    if given and given not in MODES:
        raise UsageError(f"events={given!r}: use one of {', '.join(MODES)}")
    why = f"is none of {', '.join(MODES)}: events go to logs"
    return given or variable(
        EVENTS, {mode.upper(): mode for mode in MODES}.__getitem__, otherwise="logs", why=why
    )
