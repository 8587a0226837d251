"""`instrument()`: observe the model calls of an existing agent, over any SDK and HTTP library."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

from opentelemetry import _logs, metrics, trace

from endturn import settings
from endturn.calls import infer_with, listeners, log_internal_error
from endturn.instrumentation import http_clients, worker_exit
from endturn.telemetry import (
    CURRENT,
    INSTANCE,
    OptionKwargs,
    Options,
    Providers,
    Recorder,
    TurnInference,
    cleanup,
    foreign_spans,
    installed,
    is_owned,
)

if TYPE_CHECKING:
    from endturn.telemetry import SpanObserver

log = logging.getLogger("endturn")

PROVIDERS: Final = tuple(f"{signal}_provider" for signal in CURRENT)


@dataclass(slots=True)
class _Instrumentation:
    """The present instrumentation, with the state that `uninstrument` needs.

    Attributes:
        turn_inference: infers the turns of calls.
        stop_listening: unsubscribes the recorder.
        providers: the providers of the host's arguments.
        options: the options for recording.
        observed_provider: the tracer provider whose spans are observed.
        observer: observes the spans of that provider, once it is the SDK's.
        has_called: a request to a model has begun.
    """

    turn_inference: TurnInference
    stop_listening: Callable[[], None]
    recorder: Recorder
    providers: Providers
    options: Options
    observed_provider: object = None
    observer: SpanObserver | None = None
    has_called: bool = False

    def active(self) -> bool:
        """Return whether any listener records.

        Called when a request to a model begins: by then the host has installed its providers.
        """
        is_recorded = listeners.listening()
        if not self.has_called:
            # Exit handlers run in reverse order: this one must run before those of the providers.
            self.has_called = True
            atexit.unregister(_close)
            atexit.register(_close, self)
            if not self.recorder.is_enabled():
                _warn_without_sdk()
        if is_recorded:
            self.observe_spans()
        return is_recorded

    def change(self, new_options: Options, new_providers: Providers) -> None:
        """Use the options and providers of a later call. Those that it omits stay."""
        http_clients.install(self.active)  # other code may have restored the methods meanwhile
        options = self.options.changed_by(new_options)
        tracers, meters, loggers = self.providers
        providers = (
            new_providers[0] or tracers,
            new_providers[1] or meters,
            new_providers[2] or loggers,
        )
        if (options, providers) != (self.options, self.providers):
            self.recorder.use(providers, options)
            listeners.subscribe(self.recorder)  # `takes_content` may have changed
            self.options, self.providers = options, providers
            self.turn_inference.tools_idle_s = options.tools_idle
            self.observe_spans()
            log.info(
                "endturn: from now on calls are recorded with the settings of a later "
                "instrument() or configure()"
            )

    def observe_spans(self) -> None:
        """Observe the spans of the argument's tracer provider, else of the present global one."""
        provider: Any = self.providers[0] or trace.get_tracer_provider()
        if provider is self.observed_provider and not (
            self.observer is not None and self.observer.is_shut_down
        ):
            return
        self.observed_provider = provider
        self.ignore_spans()
        try:
            if hasattr(provider, "add_span_processor"):  # otherwise it is not the SDK's
                from endturn.telemetry import span_processor

                self.observer = span_processor.attach(provider)
        except Exception:
            log_internal_error("looking at a span")
        since_ns = 0 if self.observer is None else self.observer.since_ns
        foreign_spans.record_to(foreign_spans.RecordingTarget(provider, self.observer, since_ns))

    def ignore_spans(self) -> None:
        """Stop observing spans."""
        observer, self.observer = self.observer, None
        if observer is not None:
            observer.stop()
        foreign_spans.record_to(None)


WORKER_EXIT_S: Final = 2.0
"""Seconds for which a pool worker waits for its exports before it ends."""

_lock = threading.Lock()
_current: _Instrumentation | None = None
_warned = False


@settings.keywords_checked(unpacked=OptionKwargs)
def instrument(
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    logger_provider: _logs.LoggerProvider | None = None,
    **options: Unpack[OptionKwargs],
) -> None:
    """Observe every model call that this process makes over HTTP, endturn's own included.

    Observed are requests through httpx, httpx2, urllib3 (requests, boto3), aiohttp (aiobotocore)
    and `urllib.request`, of any SDK or framework. Stop reasons, truncation and continuation become
    spans, events and metrics. Callers get the same responses. The libraries may be imported before
    or after. Not observed are model calls over raw sockets, gRPC and WebSockets, and those of other
    processes: use the decorators, `endturn run` or the Collector for these. `uninstrument` undoes
    it.

    A later call replaces the arguments that it passes, also if `endturn run` or
    `opentelemetry-instrument` made the first one. Arguments that it omits, open calls and counts
    stay.

    Args:
        tracer_provider, meter_provider, logger_provider: the providers that receive the signals.
            Default to the global ones.
        options: the fields of `endturn.telemetry.otel_providers.Options`, e.g. `prices` or
            `events`.

    Raises:
        TypeError: an unknown keyword.
        UsageError: an option's value is invalid.
    """
    begin(Options(**options), (tracer_provider, meter_provider, logger_provider))


def begin(options: Options, providers: Providers = (None, None, None)) -> None:
    """Do what `instrument` does, with an `Options` object.

    Raises:
        UsageError: an option's value is invalid.
    """
    global _current
    options.check()
    settings.warn_of_problems(("recording",))
    with _lock:
        if _current is not None:
            _current.change(options, providers)
            return
        recorder = Recorder(*providers, options=options)
        turn_inference = TurnInference(tools_idle_s=options.tools_idle)
        _current = current = _Instrumentation(
            turn_inference, listeners.subscribe(recorder), recorder, providers, options
        )
        infer_with(turn_inference)
        http_clients.install(current.active)
        current.observe_spans()
        atexit.register(_close, current)
    worker_exit.before_worker_ends(_end_worker)
    _warn_of_shared_name(providers[1] or metrics.get_meter_provider())


def uninstrument() -> None:
    """Undo `instrument`.

    End open calls and turns, restore the methods of the HTTP clients, and stop recording.
    """
    global _current
    with _lock:
        current, _current = _current, None
        if current is None:
            return
        http_clients.uninstall()
        _close(current)
        current.ignore_spans()
        infer_with(None)
        current.stop_listening()
        worker_exit.forget(_end_worker)
        atexit.unregister(_close)


def recorder() -> Recorder | None:
    """Return the recorder while calls are observed; None while they are not."""
    current = _current
    return None if current is None else current.recorder


def _close(current: _Instrumentation) -> None:
    """End open calls and turns, while the recorder is subscribed."""
    cleanup.end()
    foreign_spans.close_all()
    current.turn_inference.close()


def _end_worker() -> None:
    """End open calls and turns, and wait up to two seconds for the providers to export them."""
    current = _current
    if current is None:
        return
    _close(current)

    def flush() -> None:
        for provider, get_global in zip(current.providers, CURRENT.values(), strict=True):
            try:
                getattr(provider or get_global(), "force_flush", bool)()
            except Exception:
                log_internal_error("flushing before a worker ends")

    thread = threading.Thread(target=flush, name="endturn-worker-exit", daemon=True)
    thread.start()
    thread.join(WORKER_EXIT_S)


def expect_nothing() -> None:
    """Disable the warning about a missing SDK: the host wants no signals, or installs it later."""
    global _warned
    _warned = True


def _warn_without_sdk() -> None:
    """Warn once, at the first model call, that no provider is installed to record it."""
    global _warned
    if _warned:
        return
    _warned = True
    log.warning(
        "endturn: no OpenTelemetry SDK is set up, so this model call is not recorded, nor any "
        "until one is; call endturn.configure() (pip install 'endturn[otlp]'), use endturn run or "
        "opentelemetry-instrument, or set the global providers"
    )


def _warn_of_shared_name(provider: Any) -> None:
    """Warn if a host's provider takes its `service.instance.id` from a variable.

    All processes that inherit the variable have the same id. `configure` appends a suffix for each
    process, but a host's provider is not changed.
    """
    is_named = f"{INSTANCE}=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if is_named and installed(provider.__class__) and not is_owned(provider):
        log.warning(
            "endturn: every process that inherits OTEL_RESOURCE_ATTRIBUTES has one %s; two that "
            "write one series make it meaningless. Give each its own, or let endturn.configure() "
            "set up the SDK",
            INSTANCE,
        )


def _forked() -> None:
    """Replace the lock in a forked child: a thread of the parent may hold it."""
    global _lock
    _lock = threading.Lock()


cleanup.register_after_fork(_forked)
