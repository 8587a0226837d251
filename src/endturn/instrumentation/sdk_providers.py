"""The SDK's providers for one process, with the exporters that the standard variables name.

Import it only if the SDK is installed.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final, NamedTuple
from uuid import uuid4

from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import DropAggregation, View
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.util.types import AttributeValue

from endturn import settings
from endturn.errors import UsageError
from endturn.instrumentation import destinations
from endturn.instrumentation.destinations import Signal
from endturn.instrumentation.held_spans import SPANS_QUEUED, HeldSpans
from endturn.telemetry import CURRENT, INSTANCE, installed, instruments

log = logging.getLogger("endturn")

SIGNALS: Final[dict[Signal, str]] = {"metrics": "meter", "traces": "tracer", "logs": "logger"}
"""The kind of provider of each signal."""

HTTP: Final = "otlp_proto_http"
_REGISTERED: Final = {"http/protobuf": HTTP, "grpc": "otlp_proto_grpc"}
"""The name under which the OTLP exporter of a protocol is registered."""

_PACKAGES: Final = {
    HTTP: "'endturn[otlp]'",
    "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "prometheus": "opentelemetry-exporter-prometheus",
}
"""The package that registers an exporter."""

EXPORT_MS: Final = 15_000
"""Milliseconds between two exports of metrics, without OTEL_METRIC_EXPORT_INTERVAL. The windows of
the rules assume it."""

LOGS_QUEUED: Final = 2 * SPANS_QUEUED
"""Maximum number of events that wait for an unreachable Collector, without
OTEL_BLRP_MAX_QUEUE_SIZE."""

BATCH: Final = 512
"""Maximum number of spans or log records in one request, unless a variable sets another number."""

DELAY_MS: Final = 5_000
"""The delay of a batch, if the variable that sets it is invalid."""

OWN_METRICS: Final = "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"

_CREDENTIALS: Final = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_{}_CREDENTIAL_PROVIDER",
)
"""Variables that name the package that creates the session of a signal's exporter."""

SDKProvider = TracerProvider | MeterProvider | LoggerProvider

Make = Callable[..., Any]
"""Creates an exporter; of metrics perhaps a reader, which needs no exporter."""

_registered = cache(entry_points)


@contextmanager
def drops_counted() -> Iterator[None]:
    """Have exporters and processors that are created within the block count their drops.

    They read OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED when they are created, and the SDK has no
    argument for it. Without it a full queue drops spans unseen. So the variable is set for the
    block, and restored after it; a host's own value is kept. The block must contain only the
    constructors: tracers that are created meanwhile would count each span as well.
    """
    host_value = os.environ.get(OWN_METRICS)
    if host_value is not None and host_value.strip().lower() in ("true", "false"):
        yield
        return
    os.environ[OWN_METRICS] = "true"
    try:
        yield
    finally:
        if host_value is None:
            del os.environ[OWN_METRICS]
        else:
            os.environ[OWN_METRICS] = host_value


def exporters(signal: Signal, exporter: Any, attributes: Mapping[str, Any]) -> list[Any]:
    """Return the exporters of a signal; none if the host has installed a provider.

    Args:
        signal: the signal.
        exporter: the host's exporter; None for those that the variables name.
        attributes: the attributes that the resource would have.

    Raises:
        UnusableVariable: a variable names an unknown exporter, or one that is not installed.
        UsageError: the default exporter is not installed.
    """
    if installed(CURRENT[SIGNALS[signal]]().__class__):
        log.info("endturn: a provider for %s is already installed; it is used unchanged", signal)
        if attributes:
            log.warning(
                "endturn: service_name and resource are not used for %s: existing providers keep "
                "their names; set OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES before they are "
                "created",
                signal,
            )
        return []
    if exporter is not None:
        return [exporter]
    makers_of_signal = makers(signal)
    try:
        with drops_counted():
            return [make() for make in makers_of_signal]
    except Exception as error:
        raise UnusableVariable(
            f"its exporter cannot be created by the variables ({type(error).__name__}: {error})"
        ) from error


def makers(signal: Signal) -> list[Make]:
    """Import the exporters that the variables name for a signal, and return their constructors.

    Raises:
        UnusableVariable: a variable names an unknown exporter, or one that is not installed.
        UsageError: the default exporter is not installed.
    """
    variable = destinations.exporter_variable(signal)
    return [
        _maker(signal, *(_otlp(signal) if name == "otlp" else (name, f"{variable}={name!r}")))
        for name in destinations.exporters_of(signal, os.environ)
        if name != "none"
    ]


def is_unwanted(signal: Signal) -> bool:
    """Return whether the variables disable the exporters of a signal."""
    return all(name == "none" for name in destinations.exporters_of(signal, os.environ))


class UnusableVariable(UsageError):
    """A variable names an exporter or a protocol that cannot be used."""


def _otlp(signal: Signal) -> tuple[str, str]:
    """Return the registered name of a signal's OTLP exporter, and the setting that selects it.

    Raises:
        UnusableVariable: the protocol is unknown, or the address is invalid. An exporter with such
            an address would log it with its secrets.
    """
    name, protocol = destinations.protocol_of(signal, os.environ)
    if protocol not in _REGISTERED:
        raise UnusableVariable(settings.problem(name, os.environ[name].strip()))
    if (mistake := destinations.unusable_address(signal, os.environ)) is not None:
        raise UnusableVariable(mistake)
    return _REGISTERED[protocol], f"{name}={protocol!r}" if name else ""


def _maker(signal: Signal, name: str, setting: str) -> Make:
    error = UnusableVariable if setting else UsageError
    setting = setting or "the default exporter"
    remedy = f"pip install {_PACKAGES.get(name, 'the package that registers it')}"
    for entry_point in _registered().select(group=f"opentelemetry_{signal}_exporter", name=name):
        try:
            make: Make = entry_point.load()
        except ImportError as cause:
            raise error(
                f"{setting}: {entry_point.value} could not be imported: {cause}: {remedy}"
            ) from None
        return _with_session(make, signal) if name == HTTP else make
    raise error(
        f"{setting}: no exporter is registered as {name!r}: {remedy}, use otlp "
        f"(http/protobuf), console or none, or pass an exporter object to configure()"
    )


def _with_session(make: Make, signal: Signal) -> Make:
    """Return a constructor of an OTLP exporter over HTTP with endturn's session.

    The session of a host's credential provider is kept.

    Raises:
        UnusableVariable: no credential provider is registered by that name.
    """
    # It needs `requests`, which only the OTLP exporter over HTTP brings.
    from endturn.instrumentation.export_session import ExportSession

    for name in (pattern.format(signal.upper()) for pattern in _CREDENTIALS):
        if text := os.environ.get(name):
            if sentence := settings.problem(name, text.strip()):
                raise UnusableVariable(sentence)
            return make  # the first one that is set takes precedence
    return lambda: make(session=ExportSession(signal))


class _Batches(NamedTuple):
    """The arguments of a batch processor; None for the SDK's default."""

    max_queue_size: int
    schedule_delay_millis: int | None
    max_export_batch_size: int


def _batches(
    queue: settings.Variable[int],
    room: int,
    batch: settings.Variable[int],
    delay: settings.Variable[int],
) -> _Batches:
    """Return the arguments of a batch processor, adjusted so that the SDK accepts them."""
    queue_size = settings.value_of(queue, room)
    batch_size = settings.value_of(batch, min(BATCH, queue_size))
    if batch_size > queue_size:
        settings.warn_once(
            f"{batch.name}='{batch_size}' cannot be used: it is more than {queue.name} "
            f"({queue_size}), so it is {queue_size}"
        )
    delay_ms = settings.value_of(delay, DELAY_MS) if os.environ.get(delay.name) else None
    return _Batches(queue_size, delay_ms, min(batch_size, queue_size))


class ProcessResource(Resource):
    """A resource with a `service.instance.id` that is unique to its process.

    The id starts with the configured one. After a fork the SDK merges a random id into its
    providers' resources. This class appends the child's suffix to the configured id instead.
    """

    def __init__(
        self, attributes: Mapping[str, AttributeValue], schema_url: str | None = None
    ) -> None:
        self._base = str(attributes.get(INSTANCE) or uuid4())
        super().__init__({**attributes, INSTANCE: self.instance()}, schema_url)

    def instance(self) -> str:
        """Return the `service.instance.id` of this process."""
        pid = os.getpid()
        suffix = _suffixes.setdefault(pid, f"{random.getrandbits(16):04x}")
        return f"{self._base}-{pid}-{suffix}"

    def merge(self, other: Resource) -> ProcessResource:
        merged = super().merge(other)
        return ProcessResource({**merged.attributes, INSTANCE: self._base}, merged.schema_url)


_suffixes: dict[int, str] = {}
"""By process id, the suffix that distinguishes later processes with the same id."""


def resource_of(
    attributes: Mapping[str, Any], *, default_name: str | None = None
) -> ProcessResource:
    """Return the resource of this process, from the variables and these attributes.

    Args:
        attributes: take precedence over the variables and the SDK's detectors.
        default_name: the `service.name` if nothing else sets one.
    """
    resource = Resource.create(dict(attributes))
    if default_name and str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: default_name}))
    return ProcessResource(resource.attributes, resource.schema_url)


def install(
    resource: Resource,
    exporters_of_signals: Mapping[Signal, list[Any]],
    early: tuple[TracerProvider, HeldSpans] | None = None,
) -> dict[Signal, SDKProvider]:
    """Install a provider for each signal that has exporters.

    The caller shuts them down, not the SDK's exit handlers: open calls must end first.

    Args:
        resource: the resource of the providers.
        exporters_of_signals: the exporters of each signal.
        early: the tracer provider to install, and the spans that it has recorded already.

    Returns:
        The providers.
    """
    providers: dict[Signal, SDKProvider] = {}
    if metric_exporters := exporters_of_signals.get("metrics"):
        # Some packages register a reader as an exporter: Prometheus fetches by itself.
        interval_ms = settings.value_of(settings.METRIC_EXPORT_INTERVAL, EXPORT_MS)
        readers = [
            exporter
            if isinstance(exporter, MetricReader)
            else PeriodicExportingMetricReader(exporter, interval_ms)
            for exporter in metric_exporters
        ]
        # The duration of exports, among the SDK's own metrics, has forty series and no use.
        no_durations = View(instrument_name="otel.sdk.*.duration", aggregation=DropAggregation())
        with drops_counted():
            meters = MeterProvider(
                readers, resource=resource, shutdown_on_exit=False, views=[no_durations]
            )
        providers["metrics"] = meters
        is_pushed = len(readers) == 1 and isinstance(readers[0], PeriodicExportingMetricReader)
        instruments.own(meters, zero_first=is_pushed)
        metrics.set_meter_provider(meters)
    if span_exporters := exporters_of_signals.get("traces"):
        batches = _batches(
            settings.SPANS_QUEUE, SPANS_QUEUED, settings.SPANS_BATCH, settings.SPANS_DELAY
        )
        with drops_counted():
            processors = [BatchSpanProcessor(exporter, *batches) for exporter in span_exporters]
        if early is not None:
            tracers, held_spans = early
            held_spans.hand_to(processors)
        else:
            tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
            for processor in processors:
                tracers.add_span_processor(processor)
        providers["traces"] = tracers
        trace.set_tracer_provider(tracers)
    if log_exporters := exporters_of_signals.get("logs"):
        batches = _batches(
            settings.LOGS_QUEUE, LOGS_QUEUED, settings.LOGS_BATCH, settings.LOGS_DELAY
        )
        providers["logs"] = loggers = LoggerProvider(resource=resource, shutdown_on_exit=False)
        with drops_counted():
            log_processors = [
                BatchLogRecordProcessor(
                    exporter,
                    max_queue_size=batches.max_queue_size,
                    schedule_delay_millis=batches.schedule_delay_millis,
                    max_export_batch_size=batches.max_export_batch_size,
                )
                for exporter in log_exporters
            ]
        for log_processor in log_processors:
            loggers.add_log_record_processor(log_processor)
        _logs.set_logger_provider(loggers)
    return providers
