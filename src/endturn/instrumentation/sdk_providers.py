"""The SDK's providers for one process: what the standard variables ask for, looked up, made and installed.

Import it only where the SDK is installed.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final, Literal
from uuid import uuid4

from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.util.types import AttributeValue

from endturn.errors import UsageError
from endturn.telemetry import instruments
from endturn.telemetry.otel_providers import installed
from endturn.telemetry.schema import INSTANCE

log = logging.getLogger("endturn")

Signal = Literal["metrics", "traces", "logs"]

SIGNALS: Final[tuple[Signal, ...]] = ("metrics", "traces", "logs")

_REGISTERED: Final = {"": "otlp_proto_http", "http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""The name under which the OTLP exporter of a protocol is registered. Without a protocol it is HTTP, the one that is
installed with us."""

_REMEDIES: Final = {
    "otlp_proto_http": "pip install 'endturn[otlp]'",
    "otlp_proto_grpc": "pip install opentelemetry-exporter-otlp-proto-grpc",
    "prometheus": "pip install opentelemetry-exporter-prometheus",
}

Make = Callable[[], Any]
"""Makes an exporter; of metrics perhaps a reader, which does without one."""

_CURRENT: Final[dict[Signal, Make]] = {
    "metrics": metrics.get_meter_provider,
    "traces": trace.get_tracer_provider,
    "logs": _logs.get_logger_provider,
}
_registered = cache(entry_points)


def exporters(signal: Signal, given: Any = None) -> list[Any]:
    """The exporters of a signal: the given one, else those that the variables ask for; none for a provider of the host.

    Raises:
        UsageError: a variable names what there is not, or what is not installed.
    """
    if _is_taken(signal):
        log.info("endturn: a provider for %s is installed already; it is used as it is", signal)
        return []
    return [make() for make in makers(signal)] if given is None else [given]


def makers(signal: Signal) -> list[Make]:
    """What makes the exporters of a signal that the variables ask for: imported, and not made yet.

    Raises:
        UsageError: a variable names what there is not, or what is not installed.
    """
    return [_maker(signal, name, asked) for name, asked in _names(signal)]


def _names(signal: Signal) -> Iterator[tuple[str, str]]:
    """The names under which exporters are registered, each with the variable that asks for it."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    names = [name.strip().lower() for name in os.environ.get(variable, "").split(",") if name.strip()]
    for name in names or ["otlp"]:
        if name == "otlp":
            asked = f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL"
            if not os.environ.get(asked, "").strip():
                asked = "OTEL_EXPORTER_OTLP_PROTOCOL"
            protocol = os.environ.get(asked, "").strip().lower()
            if protocol not in _REGISTERED:
                raise UsageError(f"{asked}={protocol!r}: use http/protobuf (port 4318) or grpc (port 4317)")
            yield _REGISTERED[protocol], f"{asked}={protocol!r}" if protocol else f"{variable}={name!r}"
        elif name != "none":
            yield name, f"{variable}={name!r}"


def _maker(signal: Signal, name: str, asked: str) -> Make:
    remedy = _REMEDIES.get(name, "install the package that registers it")
    for found in _registered().select(group=f"opentelemetry_{signal}_exporter", name=name):
        try:
            make: Make = found.load()
        except ImportError as error:
            raise UsageError(f"{asked}: {found.value} could not be imported: {error}: {remedy}") from None
        return make
    raise UsageError(
        f"{asked}: no exporter of {signal} is registered as {name!r}: {remedy}, use otlp (http/protobuf), console or "
        f"none, or pass an exporter object to configure()"
    )


class ProcessResource(Resource):
    """A resource that keeps the configured `service.instance.id` apart from that of every other process.

    After a fork the SDK merges a random id into its providers' resources. This one appends the child's own ending to
    the configured id instead.
    """

    def __init__(self, attributes: Mapping[str, AttributeValue], schema_url: str | None = None) -> None:
        self._base = str(attributes.get(INSTANCE) or uuid4())
        super().__init__({**attributes, INSTANCE: self.instance()}, schema_url)

    def instance(self) -> str:
        """The `service.instance.id` of this process."""
        pid = os.getpid()
        ending = _endings.setdefault(pid, f"{random.getrandbits(16):04x}")
        return f"{self._base}-{pid}-{ending}"

    def merge(self, other: Resource) -> Resource:
        merged = super().merge(other)
        return ProcessResource({**merged.attributes, INSTANCE: self._base}, merged.schema_url)


_endings: dict[int, str] = {}
"""By process id: what tells processes apart that are given the same number one after the other."""


def resource_of(attributes: Mapping[str, Any]) -> ProcessResource:
    """The resource of this process, from the variables and these attributes."""
    described = Resource.create(dict(attributes))
    return ProcessResource(described.attributes, described.schema_url)


def install(resource: Resource, made: Mapping[Signal, list[Any]]) -> dict[Signal, Any]:
    """Install a provider for each signal that has exporters.

    Shutting down is left to the caller, not to exit handlers of the SDK: what is still open has to end first.

    Returns:
        The providers.
    """
    return {signal: _INSTALL[signal](resource, exporters) for signal, exporters in made.items() if exporters}


def warn_of_names(attributes: Mapping[str, Any]) -> None:
    """Say so where signals will not have the name that was given: an installed provider has one of its own."""
    taken = [signal for signal in SIGNALS if _is_taken(signal)]
    if attributes and taken:
        log.warning(
            "endturn: the providers that are installed already keep their names: what configure() was given as %s "
            "is not used for %s. Set OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, which whoever installs them reads",
            ", ".join(attributes),
            ", ".join(taken),
        )


def _is_taken(signal: Signal) -> bool:
    """Whether the host has installed a provider of its own."""
    return installed(_CURRENT[signal]())


def _install_metrics(resource: Resource, made: list[Any]) -> Any:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader

    # Some of what is registered as an exporter is a reader: Prometheus fetches by itself.
    readers = [each if isinstance(each, MetricReader) else PeriodicExportingMetricReader(each) for each in made]
    provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    is_pushed = len(readers) == 1 and isinstance(readers[0], PeriodicExportingMetricReader)
    instruments.own(provider, zero_first=is_pushed)
    metrics.set_meter_provider(provider)
    return provider


def _install_traces(resource: Resource, made: list[Any]) -> Any:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in made:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def _install_logs(resource: Resource, made: list[Any]) -> Any:
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in made:
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    _logs.set_logger_provider(provider)
    return provider


_INSTALL: Final[dict[Signal, Callable[[Resource, list[Any]], Any]]] = {
    "metrics": _install_metrics,
    "traces": _install_traces,
    "logs": _install_logs,
}
