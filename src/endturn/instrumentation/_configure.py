"""`configure()`: set up the OpenTelemetry SDK from the standard variables, and observe model calls.

It is for hosts without their own OpenTelemetry setup. Providers that are installed already are kept
and used.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from importlib import import_module
from signal import SIG_DFL, SIGTERM, getsignal, signal as on_signal
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from opentelemetry.metrics import MeterProvider

from endturn import settings
from endturn.calls import log_exception
from endturn.errors import UsageError
from endturn.instrumentation import _instrument as instrumentation, destinations, worker_exit
from endturn.instrumentation.destinations import listing
from endturn.instrumentation.service_name import service_name_of_command
from endturn.telemetry import APART_S, OptionKwargs, Options, cleanup, instruments_of

if TYPE_CHECKING:
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter

    from endturn.instrumentation.destinations import Signal
    from endturn.instrumentation.early_provider import EarlyProvider
    from endturn.instrumentation.early_spans import EarlySpans
    from endturn.instrumentation.sdk_providers import ProcessResource, SDKProvider

log = logging.getLogger("endturn")

EXIT_S: Final = 2.0
"""Seconds for which the end of a process waits for its exports if OTEL_EXPORTER_OTLP_TIMEOUT is not
set."""

EXIT_MAX_S: Final = 30.0
"""Maximum of that variable at the end of a process: it may have been meant as milliseconds."""

EXPORT_TIMEOUT: Final = (
    "endturn: the last records could not be exported within %g seconds of the end of the process, "
    "and are lost. Check that a Collector listens at OTEL_EXPORTER_OTLP_ENDPOINT. "
    "OTEL_EXPORTER_OTLP_TIMEOUT sets the seconds to wait; OTEL_SDK_DISABLED=true disables export"
)
"""The log message if the end of a process does not wait for the last exports."""


class Telemetry:
    """The telemetry of this process. As a context manager it shuts down at the end of the block."""

    def __init__(self, options: Options, *, for_host: bool = False) -> None:
        self._options = options
        self._for_host = for_host
        self._resource: ProcessResource | None = None
        self._providers: dict[Signal, SDKProvider] = {}
        self._instrumented = False
        self._is_terminated = False
        self._over = False

    @property
    def instance(self) -> str:
        """The `service.instance.id` of this process's signals; "" with the host's providers."""
        return "" if self._resource is None else self._resource.instance()

    def force_flush(self, timeout_s: float = 10.0) -> bool:
        """Export all records so far.

        Args:
            timeout_s: seconds to wait. A started export continues, with retries for about two
                minutes.

        Returns:
            False if some records could not be exported in time.
        """
        cleanup.run()
        done: list[bool] = []

        def flush() -> None:
            flushed = self._flush(timeout_s)
            meters = self._providers.get("metrics")
            instruments = instruments_of(meters) if isinstance(meters, MeterProvider) else None
            if instruments is not None and instruments.withholds:
                time.sleep(APART_S)
                flushed = self._flush(timeout_s) and flushed
            done.append(flushed)

        # The SDK's processors wait for a started export, including all of its retries.
        thread = threading.Thread(target=flush, name="endturn-flush", daemon=True)
        thread.start()
        thread.join(timeout_s)
        return done == [True]

    def shutdown(self) -> None:
        """End open calls and turns, export the rest, and stop. It cannot be configured again.

        It waits 2 seconds for the export, or OTEL_EXPORTER_OTLP_TIMEOUT, and as long again for the
        last collection of metrics; 30 seconds at most. Records that could not be exported by then
        are lost, which is logged.
        """
        atexit.unregister(self.shutdown)
        worker_exit.forget(self.shutdown)
        self._over = True
        if self._instrumented:
            self._instrumented = False
            instrumentation.uninstrument()
        if not self._providers:
            return
        within_s = _exit_seconds()
        self._ending.set()
        if self._flushed.wait(within_s):
            self._thread.join(within_s)
        if self._thread.is_alive():
            log.warning(EXPORT_TIMEOUT, within_s)
        self._providers = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()

    def change(self, options: Options, unused: list[str], *, instrument: bool) -> None:
        """Use the options of a later `configure()` from now on. The providers stay."""
        if self._over:
            log.warning(
                "endturn: this process was configured and shut down, and OpenTelemetry's providers "
                "can be set only once: nothing more is recorded. Call configure() once, and "
                "shutdown() when the process ends"
            )
            return
        if unused:
            log.warning(
                "endturn: telemetry is already set up, so %s cannot be used", ", ".join(unused)
            )
        self._options = self._options.changed_by(options)
        if instrumentation.recorder() is not None or (instrument and self._instrumented):
            self.observe()

    def observe(self) -> None:
        """Observe model calls, unless they are observed already."""
        # A host without an SDK after configure() wants none.
        instrumentation.expect_nothing()
        instrumentation.begin(self._options)
        self._instrumented = True

    def install(
        self,
        attributes: Mapping[str, Any],
        exporters: Iterable[Any],
        early: EarlyProvider | None = None,
    ) -> None:
        """Install the providers, and shut them down at the end of the process or the worker.

        Args:
            attributes: the attributes of the resource.
            exporters: an exporter of metrics, one of traces, one of logs; None for the variables'.
            early: the tracer provider to install, with the spans that began before.
        """
        from endturn.instrumentation import sdk_providers

        if early is None:
            name = service_name_of_command(sys.orig_argv) if self._for_host else None
            resource = sdk_providers.resource_of(attributes, default_name=name)
        else:
            resource = early.resource()
        # All exporters before any provider: an error must not leave a part of them installed.
        exporters_of_signals = self._make_exporters(tuple(exporters), attributes)
        self._providers = sdk_providers.install(
            resource,
            exporters_of_signals,
            None if early is None else (early.tracers, early.held_spans),
        )
        if early is not None and "traces" not in self._providers:
            early.discard()
        if self._providers:
            self._resource = resource
            self._stand_by()
            cleanup.register_after_fork(self._stand_by)
        atexit.register(self.shutdown)
        worker_exit.before_worker_ends(self.shutdown)
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and self._providers and getsignal(SIGTERM) is SIG_DFL:
            on_signal(SIGTERM, self._terminate)

    def _make_exporters(
        self, exporters: tuple[Any, ...], attributes: Mapping[str, Any]
    ) -> dict[Signal, list[Any]]:
        """Return the exporters of each signal, and log mistakes in their variables."""
        from endturn.instrumentation import sdk_providers

        exporters_of_signals: dict[Signal, list[Any]] = {}
        unusable: dict[str, list[Signal]] = {}
        arguments = dict(zip(sdk_providers.SIGNALS, exporters, strict=True))
        for signal, exporter in arguments.items():
            try:
                exporters_of_signals[signal] = sdk_providers.exporters(signal, exporter, attributes)
            except UsageError as error:
                is_variable = isinstance(error, sdk_providers.UnusableVariable)
                if not self._for_host and not is_variable:
                    raise
                unusable.setdefault(str(error), []).append(signal)
        for reason, signals in unusable.items():
            settings.warn_once(f"no {listing(signals)} are exported: {reason}", key=reason)
        by_variables = [
            signal
            for signal, made_exporters in exporters_of_signals.items()
            if arguments[signal] is None and made_exporters
        ]
        for mistake in destinations.mistakes(os.environ, by_variables):
            settings.warn_once(mistake)
        return exporters_of_signals

    def _terminate(self, number: int, frame: object) -> None:
        """Export the records, then end the process as SIGTERM would have ended it.

        The exit thread exports: this thread may hold a lock of the SDK.
        """
        within_s = _exit_seconds()
        self._is_terminated = True
        self._ending.set()
        self._thread.join(within_s)
        if self._thread.is_alive():  # not by `logging`, whose lock this thread may hold
            os.write(2, (EXPORT_TIMEOUT % within_s + "\n").encode())
        on_signal(number, SIG_DFL)
        os.kill(os.getpid(), number)
        # a container's first process survives a signal that it does not handle
        os._exit(128 + number)

    def _stand_by(self) -> None:
        """Start the thread that exports at the end of the process.

        An exit handler cannot start threads, and an export has no time limit.
        """
        self._ending, self._flushed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._end, name="endturn-exit", daemon=True)
        self._thread.start()

    def _end(self) -> None:
        self._ending.wait()
        if self._is_terminated:
            instrumentation.uninstrument()
        self._flush(_exit_seconds())
        self._flushed.set()
        time.sleep(APART_S)
        for signal, provider in self._providers.items():
            try:
                provider.shutdown()
            except Exception:
                log_exception(logging.WARNING, "endturn: shutting down %s failed", signal)

    def _flush(self, timeout_s: float) -> bool:
        done = True
        for signal, provider in self._providers.items():
            try:
                done = provider.force_flush(round(timeout_s * 1000)) is not False and done
            except Exception:
                done = False
                log_exception(logging.WARNING, "endturn: exporting %s failed", signal)
        return done


_configured: Telemetry | None = None


@settings.keywords_checked(unpacked=OptionKwargs)
def configure(
    *,
    service_name: str | None = None,
    resource: Resource | Mapping[str, Any] | None = None,
    span_exporter: SpanExporter | None = None,
    metric_exporter: MetricExporter | None = None,
    log_exporter: LogRecordExporter | None = None,
    instrument: bool = True,
    **options: Unpack[OptionKwargs],
) -> Telemetry:
    """Set up traces, metrics and logs over OTLP (HTTP), and observe this process's model calls.

    Defaults come from the standard variables: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES,
    OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER and OTEL_LOGS_EXPORTER (otlp,
    console, none, or the name that an installed package has registered with the SDK),
    OTEL_EXPORTER_OTLP_*, and those of the SDK's samplers and processors. The last records are
    exported at the end of the process.

    Each process has its own `service.instance.id`: its pid and four hex digits are appended to the
    configured or random id, also after a fork. Two processes that write one series would corrupt
    it.

    Args:
        service_name: the `service.name` of the resource.
        resource: the other attributes of the resource.
        span_exporter, metric_exporter, log_exporter: replace the exporters of the variables.
        instrument: also call `endturn.instrument()`.
        options: the fields of `endturn.telemetry.otel_providers.Options`, e.g. `prices` or
            `events`.

    Returns:
        A handle. A later call in the same process keeps the providers, replaces the options that it
        passes, and returns the same handle. If the first call instrumented and that was undone, a
        later call instruments again.

    Raises:
        TypeError: an unknown keyword.
        UsageError: an invalid value, or the SDK is not installed. An invalid variable is logged
            instead, and its signal is not exported.
    """
    global _configured
    exporters = {
        "metric_exporter": metric_exporter,
        "span_exporter": span_exporter,
        "log_exporter": log_exporter,
    }
    new_options = Options(**options)
    new_options.check()
    if _configured is not None:
        arguments = {"service_name": service_name, "resource": resource, **exporters}
        unused = [name for name, argument in arguments.items() if argument is not None]
        _configured.change(new_options, unused, instrument=instrument)
        return _configured
    telemetry = Telemetry(new_options)
    if is_disabled():
        log.info("endturn: OTEL_SDK_DISABLED is set; nothing is set up and nothing is recorded")
        _configured = telemetry
        return telemetry
    settings.warn_of_problems(("destination", "recording"))
    with settings.unusable_hidden():
        check_sdk("configure()")
        resource_attributes: Any = getattr(resource, "attributes", resource)
        attributes: dict[str, Any] = dict(resource_attributes or {})
        if service_name is not None:
            attributes["service.name"] = service_name
        telemetry.install(attributes, exporters.values())
        _configured = telemetry
        if instrument or instrumentation.recorder() is not None:
            telemetry.observe()
    return telemetry


def configure_for_host(early: EarlySpans) -> None:
    """Do what `configure()` does, for a host that has not called it.

    A signal that cannot be exported is logged, and the others are set up.

    Args:
        early: the spans that have begun before.

    Raises:
        UsageError: the SDK is not installed.
    """
    global _configured
    # Otherwise the program has called `configure` itself by now, or is disabled.
    if _configured is None and not is_disabled():
        settings.warn_of_problems(("destination", "recording"))
        with settings.unusable_hidden():
            check_sdk("endturn run")
            telemetry = Telemetry(Options(), for_host=True)
            telemetry.install({}, (None, None, None), early.take())
            _configured = telemetry
            telemetry.observe()


def is_disabled() -> bool:
    """Return whether OTEL_SDK_DISABLED disables all telemetry."""
    return settings.value_of(settings.SDK_DISABLED, False)


def check_sdk(who: str) -> None:
    """Check that the SDK is installed.

    Args:
        who: the function or command that needs it, for the message.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import_module("opentelemetry.sdk.resources")
    except ImportError:
        raise UsageError(
            f"{who} needs the OpenTelemetry SDK: pip install 'endturn[otlp]'"
        ) from None


def _exit_seconds() -> float:
    try:
        seconds = float(os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT", ""))
    except ValueError:  # not set; or not a number, which has been logged
        return EXIT_S
    return min(seconds, EXIT_MAX_S) if seconds > 0 else EXIT_S
