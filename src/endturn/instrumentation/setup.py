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
from dataclasses import fields
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakMethod

from opentelemetry import _logs, metrics, trace

from endturn.errors import UsageError
from endturn.instrumentation import closing, endings, exporters
from endturn.instrumentation.exporters import ARGUMENTS, SIGNALS, Signal
from endturn.telemetry.bounded import Redact
from endturn.telemetry.outlets import Options, Prices, installed
from endturn.telemetry.schema import INSTANCE

if TYPE_CHECKING:
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter


log = logging.getLogger("endturn")


class Telemetry:
    """What `configure` set up. As a context manager it shuts down at the end of the block.

    Attributes:
        instance: the `service.instance.id` of this process's signals, "" where the providers are the host's.
    """

    def __init__(self) -> None:
        self.instance = ""
        self._providers: dict[Signal, Any] = {}
        self._exporters: set[str] = set()
        self._base = ""
        self._pid = os.getpid()
        self._instrumented = False
        self._over = False
        self._for_host = False
        self._options = Options()

    def force_flush(self, timeout_s: float = 10.0) -> bool:
        """Export what has been recorded so far.

        Args:
            timeout_s: how long to wait. What takes longer goes on.

        Returns:
            False where something could not be exported in time.
        """
        milliseconds = round(timeout_s * 1000)
        jobs = {
            f"exporting {signal}": partial(provider.force_flush, milliseconds)
            for signal, provider in self._providers.items()
        }
        done = closing.together(jobs, timeout_s)
        return len(done) == len(jobs) and all(result is not False for result in done.values())

    def shutdown(self) -> None:
        """End what is open, export the rest, and stop. The process cannot be configured again.

        It waits 5 seconds for the exports, or as long as OTEL_EXPORTER_OTLP_TIMEOUT allows one; what could not be
        exported by then is lost, and logged.
        """
        atexit.unregister(self.shutdown)
        self._over = True
        if self._instrumented:
            self._instrumented = False
            from endturn.instrumentation.instrument import uninstrument

            uninstrument()
        providers, self._providers = self._providers, {}
        within_s = closing.seconds()
        with closing.said_once(self._exporters):
            jobs = {f"shutting down {signal}": provider.shutdown for signal, provider in providers.items()}
            done = closing.together(jobs, within_s)
        late = [signal for signal in providers if f"shutting down {signal}" not in done]
        if late:
            log.warning(
                "endturn: %s could not be exported within %g seconds of the end, and are lost: is a Collector "
                "listening? (OTEL_EXPORTER_OTLP_ENDPOINT; OTEL_EXPORTER_OTLP_TIMEOUT says how long to wait, "
                "OTEL_SDK_DISABLED=true sends nothing)",
                ", ".join(late),
                within_s,
            )

    def _flush_worker(self) -> None:
        """What exit handlers do in any process but a worker of `multiprocessing`."""
        if not self._instrumented:  # else it has been done
            self.force_flush(closing.seconds())

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
        for provider in self._providers.values():
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
    OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER and OTEL_LOGS_EXPORTER (otlp, console, none, or the name that an
    installed package has registered with the SDK), OTEL_EXPORTER_OTLP_*, and those of the SDK's samplers and
    processors. What is recorded is exported when the process ends.

    Each process is told apart: to `service.instance.id`, as configured, else random, its pid and four hex digits are
    appended, after a fork too. Two processes that write one series make nonsense of it.

    Args:
        resource: attributes of the resource besides the name.
        span_exporter, metric_exporter, log_exporter: in place of those that the variables ask for.
        counted, gen_ai_metrics, events, agent, prices, content, content_max_chars, redact: as in
            `endturn.telemetry.outlets.Options`.
        instrument: also call `endturn.instrument()`.

    Returns:
        A handle. Configured already, the process keeps what it has, and gets the same handle; of the options, a
        redaction and less content are applied all the same. Where the first call instrumented, and that was undone, it
        is done again. Under `endturn run` and `opentelemetry-instrument` the first call of the host's own decides.

    Raises:
        UsageError: the SDK is not installed, or a variable asks for what this function cannot do.
    """
    global _configured
    given: dict[Signal, Any] = {"traces": span_exporter, "metrics": metric_exporter, "logs": log_exporter}
    for signal, exporter in given.items():
        exporters.check(signal, exporter)
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
    options.check()
    if _configured is not None:
        named = {"service_name": service_name, "resource": resource}
        named |= {ARGUMENTS[signal]: exporter for signal, exporter in given.items()}
        _again(_configured, options, [name for name, value in named.items() if value is not None], instrument)
        return _configured
    telemetry = Telemetry()
    telemetry._options = options
    if _is_disabled():
        _configured = telemetry
        return telemetry
    check_sdk("configure()")
    from opentelemetry.sdk.resources import Resource

    # All exporters before any provider: a setting that cannot be used must leave nothing half done.
    wanted = {signal: _exporters(signal, given[signal]) for signal in SIGNALS}
    attributes = dict((resource.attributes if isinstance(resource, Resource) else resource) or {})
    if service_name is not None:
        attributes["service.name"] = service_name
    _warn_of_names(attributes)
    _set_up(telemetry, attributes, wanted)
    _configured = telemetry
    if instrument or _is_instrumented():
        _instrument(telemetry)
    return telemetry


def _is_disabled() -> bool:
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled:
        log.info("endturn: OTEL_SDK_DISABLED is set; nothing is set up and nothing will be recorded")
    return disabled


def configure_for_host() -> None:
    """`configure()`, where the host has not asked for it: what cannot be exported is logged, and the rest is set up.

    Raises:
        UsageError: the SDK is not installed.
    """
    global _configured
    if _is_disabled():  # the program has said so by now
        return
    check_sdk("endturn run")
    wanted: dict[Signal, list[Any]] = {}
    for signal in SIGNALS:
        try:
            wanted[signal] = _exporters(signal, None)
        except UsageError as error:
            log.error("endturn: no %s are exported: %s", signal, error)
            wanted[signal] = []
    telemetry = Telemetry()
    telemetry._for_host = True
    _set_up(telemetry, {}, wanted)
    _configured = telemetry
    _instrument(telemetry)


def _set_up(telemetry: Telemetry, attributes: Mapping[str, Any], wanted: Mapping[Signal, list[Any]]) -> None:
    """Install a provider for each signal that has somewhere to go, and have them shut down when the process ends."""
    from opentelemetry.sdk.resources import Resource

    described = Resource.create(dict(attributes))
    base = str(described.attributes.get(INSTANCE) or uuid.uuid4())
    described = described.merge(Resource({INSTANCE: telemetry._named(base)}))
    for signal, made in wanted.items():
        if made:
            telemetry._providers[signal] = _INSTALL[signal](described, made)
            telemetry._exporters |= {type(exporter).__module__ for exporter in made}
    if not telemetry._providers:
        telemetry.instance = ""
    if hasattr(os, "register_at_fork"):
        forked = WeakMethod(telemetry._forked)
        os.register_at_fork(after_in_child=lambda: (method := forked()) and method())
    closing.stand_by()
    atexit.register(telemetry.shutdown)
    endings.before_worker_ends(telemetry._flush_worker)


def _again(telemetry: Telemetry, options: Options, named: list[str], instrument: bool) -> None:
    """A later call. What was set up stays; who is told of it, and what of the options is taken, depends on who did."""
    if telemetry._over:
        log.warning(
            "endturn: this process was configured and shut down, and OpenTelemetry's providers can be set only once: "
            "nothing more is recorded. Call configure() once, and shutdown() where the process ends"
        )
        return
    if telemetry._for_host:
        if named:
            log.warning(
                "endturn: telemetry was set up with the first model call, as the variables say; configure() came "
                "after it, and its %s cannot be used any more",
                ", ".join(named),
            )
    else:
        log.warning("endturn: configure() was called before; the first call's settings stay")
    from endturn.instrumentation import instrument as instrumentation

    if _is_instrumented():
        taken = instrumentation.asked_again(options, quiet=not telemetry._for_host)
        telemetry._options = taken
    elif instrument and telemetry._instrumented:
        _instrument(telemetry)
        telemetry._options = instrumentation.asked_again(options, quiet=True)


def _is_instrumented() -> bool:
    from endturn.instrumentation import instrument as instrumentation

    return instrumentation.recorder() is not None


def is_configured() -> bool:
    """Whether `configure` has been called in this process."""
    return _configured is not None


def load() -> None:
    """Import what `configure` will need, as far as the variables tell. Nothing is set up."""
    try:
        check_sdk("endturn run")
    except UsageError:
        return  # said when it is needed
    for signal in SIGNALS:
        try:
            exporters.wanted(signal)
        except UsageError:
            continue


def check_sdk(who: str) -> None:
    """Look for the SDK.

    Raises:
        UsageError: it is not installed, and `who` needs it.
    """
    try:
        import_module("opentelemetry.sdk.resources")
    except ImportError:
        raise UsageError(f"{who} needs the OpenTelemetry SDK: pip install 'endturn[otlp]'") from None


def _instrument(telemetry: Telemetry) -> None:
    """Observe the SDKs' calls, unless that is done already."""
    from endturn.instrumentation import instrument as instrumentation

    # A host that has no SDK after configure() asked for none.
    instrumentation.expect_nothing()
    instrumentation.instrument(**{each.name: getattr(telemetry._options, each.name) for each in fields(Options)})
    telemetry._instrumented = True


_GLOBAL: Final[dict[Signal, Callable[[], Any]]] = {
    "traces": lambda: trace.get_tracer_provider(),
    "metrics": lambda: metrics.get_meter_provider(),
    "logs": lambda: _logs.get_logger_provider(),
}


def _exporters(signal: Signal, given: Any) -> list[Any]:
    """The exporters of one signal: none where the host has a provider of its own."""
    if installed(_GLOBAL[signal]()):
        log.info("endturn: a provider for %s is installed already; it is used as it is", signal)
        return []
    return [given] if given is not None else [make() for make in exporters.wanted(signal)]


def _warn_of_names(attributes: Mapping[str, Any]) -> None:
    """Say so where signals will not have the name that was given: an installed provider has one of its own."""
    for signal in SIGNALS:
        provider = _GLOBAL[signal]()
        resource = getattr(provider, "resource", None)
        resource = resource or getattr(getattr(provider, "_sdk_config", None), "resource", None)
        if not attributes or resource is None or not installed(provider):
            continue
        other = [key for key, value in attributes.items() if resource.attributes.get(key) != value]
        if other:
            log.warning(
                "endturn: the providers that are installed already keep their names: what configure() was given as %s "
                "is not used for %s. Set OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, which whoever installs them "
                "reads",
                ", ".join(other),
                signal,
            )
            return


# Shutting down is ours, not the SDK's exit handlers': what is still open has to end first.


def _install_traces(resource: Resource, made: list[Any]) -> Any:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in made:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def _install_metrics(resource: Resource, made: list[Any]) -> Any:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader

    # Some of what is registered as an exporter is a reader: Prometheus fetches by itself.
    readers = [each if isinstance(each, MetricReader) else PeriodicExportingMetricReader(each) for each in made]
    provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
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
    "traces": _install_traces,
    "metrics": _install_metrics,
    "logs": _install_logs,
}
