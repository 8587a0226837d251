"""The exporters that the standard variables ask for, signal by signal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final, Literal

from endturn.errors import UsageError

Signal = Literal["traces", "metrics", "logs"]

SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics", "logs")

ARGUMENTS: Final[dict[Signal, str]] = {
    "traces": "span_exporter",
    "metrics": "metric_exporter",
    "logs": "log_exporter",
}
"""What `configure` calls the exporter of a signal."""

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

HTTP: Final = "otlp_proto_http"
PROTOCOLS: Final = {"": HTTP, "http/protobuf": HTTP, "grpc": "otlp_proto_grpc"}
"""The SDK's name for the OTLP exporter of a protocol. Where none is said it is HTTP, whose exporter comes with us."""

REMEDIES: Final = {
    "otlp_proto_grpc": "pip install opentelemetry-exporter-otlp-proto-grpc",
    "prometheus": "pip install opentelemetry-exporter-prometheus",
}

Make = Callable[[], Any]
"""Makes an exporter; of metrics perhaps a reader, which does without one."""


def check(signal: Signal, given: object) -> None:
    """Refuse what is no exporter, such as the name of one.

    Raises:
        UsageError: it is none.
    """
    if given is None or (hasattr(given, "export") and not isinstance(given, type)):
        return
    what = f"the class {given.__name__}" if isinstance(given, type) else f"a value of type {type(given).__name__}"
    raise UsageError(
        f"{ARGUMENTS[signal]} is an exporter object, not {what}; the name of one (otlp, console, none) goes into the "
        f"variable OTEL_{signal.upper()}_EXPORTER"
    )


def wanted(signal: Signal) -> list[Make]:
    """What makes the exporters of a signal that the variables ask for: imported, and not made yet.

    Raises:
        UsageError: a variable names what there is not, or what is not installed.
    """
    return list(_classes(signal))


def _classes(signal: Signal) -> Iterator[Make]:
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    names = [name.strip().lower() for name in os.environ.get(variable, "").split(",") if name.strip()] or ["otlp"]
    for name in names:
        match name:
            case "none":
                continue
            case "console":
                yield _class(*CONSOLE[signal])
            case "otlp":
                asked_by, protocol = _protocol(signal)
                if protocol not in PROTOCOLS:
                    raise UsageError(f"{asked_by}={protocol!r}: use http/protobuf (port 4318) or grpc (port 4317)")
                if PROTOCOLS[protocol] == HTTP:
                    yield _class(*OTLP[signal])
                else:
                    yield _registered(signal, PROTOCOLS[protocol], f"{asked_by}={protocol!r}")
            case _:
                yield _registered(signal, name, f"{variable}={name!r}")


def _protocol(signal: Signal) -> tuple[str, str]:
    """The protocol of OTLP, and the variable that says so: a signal's own is asked first."""
    for variable in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = os.environ.get(variable, "").strip().lower()
        if protocol:
            return variable, protocol
    return "", ""


def _class(module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except ImportError:
        raise UsageError(f"{module} is not installed: pip install 'endturn[otlp]'") from None


def _registered(signal: Signal, name: str, asked: str) -> Any:
    """An exporter that a package has registered for the SDK, by its name there."""
    for found in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
        try:
            return found.load()
        except ImportError as error:
            raise UsageError(f"{asked}: {found.value} could not be imported: {error}") from None
    remedy = REMEDIES.get(name, "install the package that registers it")
    raise UsageError(
        f"{asked}: no exporter of {signal} is registered as {name!r}: {remedy}, use otlp (http/protobuf), console or "
        f"none, or pass an exporter to configure() as {ARGUMENTS[signal]}"
    )
