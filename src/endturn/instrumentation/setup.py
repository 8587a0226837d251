"""`configure()`: the OpenTelemetry SDK, set up for one process from the standard variables, and endturn listening.

It is for hosts that have no OpenTelemetry of their own. Where a provider is installed already it stays, and is used.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import uuid
from collections.abc import Callable, Mapping
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from weakref import WeakMethod

from opentelemetry import _logs, metrics, trace

from endturn.errors import UsageError
from endturn.instrumentation import endings
from endturn.telemetry.bounded import Redact
from endturn.telemetry.content import Capturing
from endturn.telemetry.events import mode_from
from endturn.telemetry.outlets import Options, Prices, installed
from endturn.telemetry.schema import INSTANCE

if TYPE_CHECKING:
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter


log = logging.getLogger("endturn")

Signal = Literal["traces", "metrics", "logs"]

OTLP: Final[dict[Signal, tuple[str, str]]] = {
    "traces": ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "OTLPSpanExporter"),
    "metrics": ("opentelemetry.exporter.otlp.proto.http.metric_exporter", "OTLPMetricExporter"),
    "logs": ("opentelemetry.exporter.otlp.proto.http._log_exporter", "OTLPLogExporter"),
}
CONSOLE: Final[dict[Signal, tuple[str, str]]] = {
    "traces": ("opentelemetry.sdk.trace.export", "ConsoleSpanExporter"),
    "metrics": ("opentelemetry.sdk.metrics.export", "ConsoleMetricExporter"),
    "logs": ("opentelemetry.sdk._logs.export", "ConsoleLogRecordExporter"),
}


class Telemetry:
    """What `configure` set up. As a context manager it shuts down at the end of the block.

    Attributes:
        instance: the `service.instance.id` of this process's signals, "" where the providers are the host's.
    """

    def __init__(self) -> None:
        self.instance = ""
        self._providers: list[Any] = []
        self._base = ""
        self._pid = os.getpid()
        self._instrumented = False
        self._over = False
        self._options = Options()

    def force_flush(self, timeout_s: float = 10.0) -> bool:
        """Export what has been recorded so far.

        Args:
            timeout_s: for each signal. The SDK keeps to it for metrics only.

        Returns:
            False where something could not be exported in time.
        """
        flushed = [_flushed(provider, timeout_s) for provider in self._providers]
        return all(flushed)

    def shutdown(self) -> None:
        """End what is open, export the rest, and stop. The process cannot be configured again."""
        atexit.unregister(self.shutdown)
        self._over = True
        if self._instrumented:
            self._instrumented = False
            from endturn.instrumentation.instrument import uninstrument

            uninstrument()
        providers, self._providers = self._providers, []
        for provider in providers:
            try:
                provider.shutdown()
            except Exception:
                log.warning("endturn: %s could not be shut down", type(provider).__name__, exc_info=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _named(self, base: str) -> str:
        """Give this process a name of its own: many may share the configured one."""
        self._base = base
        self._pid = os.getpid()
        self.instance = f"{base}-{self._pid}-{random.getrandbits(16):04x}"
        return self.instance

    def _forked(self) -> None:
        """In the child: another name."""
        if not self._providers:
            return
        from opentelemetry.sdk.resources import Resource

        self._named(self._base)
        for provider in self._providers:
            # The SDK has just put a random id in the place of any other. It has no public way to set one.
            update = getattr(provider, "_update_resource", None)
            if update is not None:
                update(Resource({INSTANCE: self.instance}))


_configured: Telemetry | None = None


def configure(
    *,
    service_name: str | None = None,
    resource: Resource | Mapping[str, Any] | None = None,
    span_exporter: SpanExporter | None = None,
    metric_exporter: MetricExporter | None = None,
    log_exporter: LogRecordExporter | None = None,
    counted: bool | None = None,
    gen_ai_metrics: bool | None = None,
    events: str | None = None,
    agent: bool | None = None,
    prices: Prices | None = None,
    content: str | None = None,
    content_max_chars: int | None = None,
    redact: Redact | None = None,
    instrument: bool = True,
) -> Telemetry:
    """Set up traces, metrics and logs, exported over OTLP (HTTP), and observe the SDKs' calls.

    The standard variables decide what is not given: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_SDK_DISABLED,
    OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER and OTEL_LOGS_EXPORTER (otlp, console, none), OTEL_EXPORTER_OTLP_*, and
    those of the SDK's samplers and processors. What is recorded is exported when the process ends.

    Each process is told apart: to `service.instance.id`, as configured, else random, its pid and four hex digits are
    appended, after a fork too. Two processes that write one series make nonsense of it.

    Args:
        resource: attributes of the resource besides the name.
        span_exporter, metric_exporter, log_exporter: in place of those that the variables ask for.
        counted, gen_ai_metrics, events, agent, prices, content, content_max_chars, redact: as in
            `endturn.telemetry.outlets.Options`.
        instrument: also call `endturn.instrument()`.

    Returns:
        A handle. Configured already, the process keeps what it has, and gets the same handle; where the first call
        instrumented, and that was undone, it is done again.

    Raises:
        UsageError: the SDK is not installed, or a variable asks for what this function cannot do.
    """
    global _configured
    _check_exporter("traces", span_exporter)
    _check_exporter("metrics", metric_exporter)
    _check_exporter("logs", log_exporter)
    if _configured is not None and _configured._over:
        log.warning(
            "endturn: this process was configured and shut down, and OpenTelemetry's providers can be set only once: "
            "nothing more is recorded. Call configure() once, and shutdown() where the process ends"
        )
        return _configured
    if _configured is not None:
        log.warning("endturn: configure() was called before; the first call's settings stay")
        if instrument and _configured._instrumented:
            _instrument(_configured)
        return _configured
    options = Options(
        counted=counted,
        gen_ai_metrics=gen_ai_metrics,
        events=events,
        agent=agent,
        prices=prices,
        content=content,
        content_max_chars=content_max_chars,
        redact=redact,
    )
    mode_from(events)
    Capturing.of(content, content_max_chars, redact)
    telemetry = Telemetry()
    telemetry._options = options
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        log.info("endturn: OTEL_SDK_DISABLED is set; nothing is set up and nothing will be recorded")
        _configured = telemetry
        return telemetry
    _check_sdk()
    from opentelemetry.sdk.resources import Resource

    # All exporters before any provider: a setting that cannot be used must leave nothing half done.
    wanted: dict[Signal, list[Any]] = {
        "traces": _exporters("traces", span_exporter, skip=installed(trace.get_tracer_provider())),
        "metrics": _exporters("metrics", metric_exporter, skip=installed(metrics.get_meter_provider())),
        "logs": _exporters("logs", log_exporter, skip=installed(_logs.get_logger_provider())),
    }
    given = resource.attributes if isinstance(resource, Resource) else resource
    attributes = dict(given or {})
    if service_name is not None:
        attributes["service.name"] = service_name
    described = Resource.create(attributes)
    base = str(described.attributes.get(INSTANCE) or uuid.uuid4())
    described = described.merge(Resource({INSTANCE: telemetry._named(base)}))
    for signal, exporters in wanted.items():
        if exporters:
            telemetry._providers.append(_INSTALL[signal](described, exporters))
    if not telemetry._providers:
        telemetry.instance = ""
    if hasattr(os, "register_at_fork"):
        forked = WeakMethod(telemetry._forked)
        os.register_at_fork(after_in_child=lambda: (method := forked()) and method())
    atexit.register(telemetry.shutdown)
    endings.before_worker_ends(telemetry.force_flush)
    _configured = telemetry
    if instrument:
        _instrument(telemetry)
    return telemetry


def is_configured() -> bool:
    """Whether `configure` has been called in this process."""
    return _configured is not None


def load() -> None:
    """Import what `configure` will need, as far as the variables tell. Nothing is set up.

    Raises:
        UsageError: as `configure` would.
    """
    _check_sdk()
    for signal in OTLP:
        for kind in _wanted(signal):
            _found(kind)


def _check_sdk() -> None:
    try:
        import_module("opentelemetry.sdk.resources")
    except ImportError:
        raise UsageError("configure() needs the OpenTelemetry SDK: pip install 'endturn[otlp]'") from None


def _instrument(telemetry: Telemetry) -> None:
    """Observe the SDKs' calls, unless that is done already."""
    from endturn.instrumentation import instrument as instrumentation

    # A host that has no SDK after configure() asked for none.
    instrumentation.expect_nothing()
    instrumentation.instrument(**{name: getattr(telemetry._options, name) for name in Options.__slots__})
    telemetry._instrumented = True


_ARGUMENTS: Final[dict[Signal, str]] = {
    "traces": "span_exporter",
    "metrics": "metric_exporter",
    "logs": "log_exporter",
}


def _check_exporter(signal: Signal, given: object) -> None:
    """Refuse what is no exporter, such as the name of one."""
    if given is None or (hasattr(given, "export") and not isinstance(given, type)):
        return
    what = f"the class {given.__name__}" if isinstance(given, type) else f"a value of type {type(given).__name__}"
    raise UsageError(
        f"{_ARGUMENTS[signal]} is an exporter object, not {what}; the name of one (otlp, console, none) goes into the "
        f"variable OTEL_{signal.upper()}_EXPORTER"
    )


def _exporters(signal: Signal, given: Any, *, skip: bool) -> list[Any]:
    """The exporters of one signal: none where the host has a provider of its own."""
    if skip:
        log.info("endturn: a provider for %s is installed already; it is used as it is", signal)
        return []
    return [given] if given is not None else [_found(kind)() for kind in _wanted(signal)]


def _wanted(signal: Signal) -> list[tuple[str, str]]:
    """The classes of the exporters that the variables ask for, by module and name."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    names = [name.strip().lower() for name in os.environ.get(variable, "").split(",") if name.strip()] or ["otlp"]
    wanted = []
    for name in names:
        match name:
            case "none":
                continue
            case "console":
                wanted.append(CONSOLE[signal])
            case "otlp":
                _check_protocol(signal)
                wanted.append(OTLP[signal])
            case _:
                raise UsageError(f"{variable}={name!r}: use otlp, console or none, or pass an exporter to configure()")
    return wanted


def _check_protocol(signal: Signal) -> None:
    for variable in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = os.environ.get(variable, "").strip().lower()
        if protocol == "http/protobuf":
            return
        if protocol:
            raise UsageError(
                f"{variable}={protocol!r}: configure() exports over http/protobuf (port 4318). Unset the variable or "
                "set it to http/protobuf; for gRPC, pip install opentelemetry-exporter-otlp-proto-grpc and pass its "
                "exporters as span_exporter, metric_exporter and log_exporter"
            )


def _found(kind: tuple[str, str]) -> Any:
    module, name = kind
    try:
        return getattr(import_module(module), name)
    except ImportError:
        raise UsageError(f"{module} is not installed: pip install 'endturn[otlp]'") from None


# Shutting down is ours, not the SDK's exit handlers': what is still open has to end first.


def _install_traces(resource: Resource, exporters: list[Any]) -> Any:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def _install_metrics(resource: Resource, exporters: list[Any]) -> Any:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    readers = [PeriodicExportingMetricReader(exporter) for exporter in exporters]
    provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    return provider


def _install_logs(resource: Resource, exporters: list[Any]) -> Any:
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    _logs.set_logger_provider(provider)
    return provider


_INSTALL: Final[dict[Signal, Callable[[Resource, list[Any]], Any]]] = {
    "traces": _install_traces,
    "metrics": _install_metrics,
    "logs": _install_logs,
}


def _flushed(provider: Any, timeout_s: float) -> bool:
    try:
        return provider.force_flush(timeout_millis=round(timeout_s * 1000)) is not False
    except Exception:
        log.warning("endturn: %s could not be flushed", type(provider).__name__, exc_info=True)
        return False
