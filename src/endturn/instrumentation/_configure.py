"""`configure()`.

The OpenTelemetry SDK, set up for one process from the standard variables, and endturn observing.

It is for hosts that have no OpenTelemetry of their own. Where a provider is installed already it
stays, and is used.
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

from endturn import settings
from endturn.calls import log_exception
from endturn.errors import UsageError
from endturn.instrumentation import _instrument as instrumentation, destinations, worker_exit
from endturn.instrumentation.destinations import listing
from endturn.instrumentation.service_name import service_name_of_command
from endturn.telemetry import APART_S, Options, OptionsGiven, cleanup, instruments_of

if TYPE_CHECKING:
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter

    from endturn.instrumentation.destinations import Signal
    from endturn.instrumentation.early_provider import EarlyProvider
    from endturn.instrumentation.early_spans import EarlySpans
    from endturn.instrumentation.sdk_providers import ProcessResource

log = logging.getLogger("endturn")

EXIT_S: Final = 2.0
"""How long the end of a process waits for its exports, where OTEL_EXPORTER_OTLP_TIMEOUT does not
say how long one may take."""

EXIT_MAX_S: Final = 30.0
"""No end waits longer, whatever that variable says: it may have been meant as milliseconds."""

LOST: Final = (
    "endturn: what was recorded last could not be exported within %g seconds of the end, and is "
    "lost: is a Collector listening? (OTEL_EXPORTER_OTLP_ENDPOINT; OTEL_EXPORTER_OTLP_TIMEOUT says "
    "how many seconds to wait, OTEL_SDK_DISABLED=true sends nothing)"
)


class Telemetry:
    """What `configure` set up. As a context manager it shuts down at the end of the block."""

    def __init__(self, options: Options, *, for_host: bool = False) -> None:
        self._options = options
        self._for_host = for_host
        self._resource: ProcessResource | None = None
        self._providers: dict[Signal, Any] = {}
        self._instrumented = False
        self._is_terminated = False
        self._over = False

    @property
    def instance(self) -> str:
        """Return the `service.instance.id` of this process's signals.

        It is "" where the host supplied the providers.
        """
        return "" if self._resource is None else self._resource.instance()

    def force_flush(self, timeout_s: float = 10.0) -> bool:
        """Export what has been recorded so far.

        Args:
            timeout_s: how long to wait. What has begun goes on: an export is tried again for some
                two minutes.

        Returns:
            False where something could not be exported in time.
        """
        cleanup.run()
        done: list[bool] = []

        def flush() -> None:
            flushed = self._flush(timeout_s)
            made = (
                instruments_of(self._providers["metrics"]) if "metrics" in self._providers else None
            )
            if made is not None and made.withholds:
                time.sleep(APART_S)
                flushed = self._flush(timeout_s) and flushed
            done.append(flushed)

        # The SDK's processors wait for an export that has begun, however long it is tried again.
        thread = threading.Thread(target=flush, name="endturn-flush", daemon=True)
        thread.start()
        thread.join(timeout_s)
        return done == [True]

    def shutdown(self) -> None:
        """End what is open, export the rest, and stop. The process cannot be configured again.

        It waits 2 seconds for the export, or as long as OTEL_EXPORTER_OTLP_TIMEOUT allows one, and
        as long again for the last collection of metrics; 30 seconds at most. What could not be
        exported by then is lost, and logged.
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
            log.warning(LOST, within_s)
        self._providers = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()

    def change(self, options: Options, unused: list[str], *, instrument: bool) -> None:
        """For a later `configure()`: the options that it gives are used from now on.

        What was installed stays.
        """
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
        """For `configure()`: observe the model calls, unless that is done already."""
        # A host that has no SDK after configure() asked for none.
        instrumentation.expect_nothing()
        instrumentation.begin(self._options)
        self._instrumented = True

    def install(
        self,
        attributes: Mapping[str, Any],
        given: Iterable[Any],
        early: EarlyProvider | None = None,
    ) -> None:
        """For `configure()`.

        Install the providers, and have them shut down with the process, or the worker.

        Args:
            given: an exporter of metrics, one of traces, one of logs.
            early: the tracer provider to install, with the spans that began before.
        """
        from endturn.instrumentation import sdk_providers

        if early is None:
            name = service_name_of_command(sys.orig_argv) if self._for_host else None
            resource = sdk_providers.resource_of(attributes, default_name=name)
        else:
            resource = early.resource()
        with sdk_providers.drops_counted():
            # All exporters before any provider: an error must leave nothing half done.
            made = self._make_exporters(tuple(given), attributes)
            self._providers = sdk_providers.install(
                resource, made, None if early is None else (early.tracers, early.held)
            )
        if early is not None and "traces" not in self._providers:
            early.discard()
        if self._providers:
            self._resource = resource
            self._stand_by()
            cleanup.after_fork(self._stand_by)
        atexit.register(self.shutdown)
        worker_exit.before_worker_ends(self.shutdown)
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and self._providers and getsignal(SIGTERM) is SIG_DFL:
            on_signal(SIGTERM, self._terminate)

    def _make_exporters(
        self, given: tuple[Any, ...], attributes: Mapping[str, Any]
    ) -> dict[Signal, list[Any]]:
        """Return the exporters of each signal, and report what is wrong with their variables."""
        from endturn.instrumentation import sdk_providers

        made: dict[Signal, list[Any]] = {}
        unusable: dict[str, list[Signal]] = {}
        chosen = dict(zip(sdk_providers.SIGNALS, given, strict=True))
        for signal, exporter in chosen.items():
            try:
                made[signal] = sdk_providers.exporters(signal, exporter, attributes)
            except UsageError as error:
                is_variable = isinstance(error, sdk_providers.UnusableVariable)
                if not self._for_host and not is_variable:
                    raise
                unusable.setdefault(str(error), []).append(signal)
        for reason, signals in unusable.items():
            settings.warn_once(f"no {listing(signals)} are exported: {reason}", key=reason)
        by_variables = [signal for signal in made if chosen[signal] is None and made[signal]]
        for mistake in destinations.mistakes(os.environ, by_variables):
            settings.warn_once(mistake)
        return made

    def _terminate(self, number: int, frame: object) -> None:
        """End as SIGTERM would have ended the process, once what was recorded has been exported.

        The thread at the end does it: this one may be within a lock of the SDK.
        """
        within_s = _exit_seconds()
        self._is_terminated = True
        self._ending.set()
        self._thread.join(within_s)
        if self._thread.is_alive():  # the log may be what this thread is within
            os.write(2, (LOST % within_s + "\n").encode())
        on_signal(number, SIG_DFL)
        os.kill(os.getpid(), number)
        # a container's first process survives a signal that it does not handle
        os._exit(128 + number)

    def _stand_by(self) -> None:
        """Start the thread that exports at the end.

        Exit handlers cannot start any, and an export has no bound.
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


@settings.keywords_checked(unpacked=OptionsGiven)
def configure(
    *,
    service_name: str | None = None,
    resource: Resource | Mapping[str, Any] | None = None,
    span_exporter: SpanExporter | None = None,
    metric_exporter: MetricExporter | None = None,
    log_exporter: LogRecordExporter | None = None,
    instrument: bool = True,
    **options: Unpack[OptionsGiven],
) -> Telemetry:
    """Set up traces, metrics and logs over OTLP (HTTP), and observe this process's model calls.

    The standard variables decide what is not given: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES,
    OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER and OTEL_LOGS_EXPORTER (otlp,
    console, none, or the name that an installed package has registered with the SDK),
    OTEL_EXPORTER_OTLP_*, and those of the SDK's samplers and processors. What is recorded is
    exported when the process ends.

    Each process is told apart: to `service.instance.id`, as configured, else random, its pid and
    four hex digits are appended, after a fork too. Two processes that write one series make
    nonsense of it.

    Args:
        resource: attributes of the resource besides the name.
        span_exporter, metric_exporter, log_exporter: in place of those that the variables ask for.
        instrument: also call `endturn.instrument()`.
        options: the fields of `endturn.telemetry.otel_providers.Options`, e.g. `prices` or
            `events`.

    Returns:
        A handle. Configured already, the process keeps its providers, and gets the same handle;
        options that are given take the place of those before. Where the first call instrumented,
        and that was undone, it is done again.

    Raises:
        TypeError: a keyword is not known.
        UsageError: a value cannot be used, or the SDK is not installed. A variable that cannot be
            used is warned of instead, and the signal that it concerns is not exported.
    """
    global _configured
    given = {
        "metric_exporter": metric_exporter,
        "span_exporter": span_exporter,
        "log_exporter": log_exporter,
    }
    asked = Options(**options)
    asked.check()
    if _configured is not None:
        named = {"service_name": service_name, "resource": resource, **given}
        _configured.change(
            asked, [name for name in named if named[name] is not None], instrument=instrument
        )
        return _configured
    telemetry = Telemetry(asked)
    if is_disabled():
        log.info("endturn: OTEL_SDK_DISABLED is set; nothing is set up and nothing is recorded")
        _configured = telemetry
        return telemetry
    settings.warn_of_problems(("destination", "recording"))
    with settings.unusable_hidden():
        check_sdk("configure()")
        described: Any = getattr(resource, "attributes", resource)
        attributes: dict[str, Any] = dict(described or {})
        if service_name is not None:
            attributes["service.name"] = service_name
        telemetry.install(attributes, given.values())
        _configured = telemetry
        if instrument or instrumentation.recorder() is not None:
            telemetry.observe()
    return telemetry


def configure_for_host(early: EarlySpans) -> None:
    """`configure()`, where the host has not asked for it.

    What cannot be exported is logged, and the rest is set up.

    Args:
        early: the spans that have begun by now.

    Raises:
        UsageError: the SDK is not installed.
    """
    global _configured
    # else the program has done so, or has said so by now
    if _configured is None and not is_disabled():
        settings.warn_of_problems(("destination", "recording"))
        with settings.unusable_hidden():
            check_sdk("endturn run")
            telemetry = Telemetry(Options(), for_host=True)
            telemetry.install({}, (None, None, None), early.take())
            _configured = telemetry
            telemetry.observe()


def is_disabled() -> bool:
    """Whether OTEL_SDK_DISABLED switches everything off."""
    return settings.value_of(settings.SDK_DISABLED, False)


def check_sdk(who: str) -> None:
    """Look for the SDK.

    Raises:
        UsageError: it is not installed, and `who` needs it.
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
    except ValueError:  # not set; or no number, which has been reported
        return EXIT_S
    return min(seconds, EXIT_MAX_S) if seconds > 0 else EXIT_S
