"""One line for an agent that exists.

Its model calls, observed, through whatever SDK or HTTP library it makes them.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Unpack

from opentelemetry import _logs, metrics, trace

from endturn import settings
from endturn.calls import infer_with, listeners, log_internal_error
from endturn.instrumentation import http_clients, worker_exit
from endturn.telemetry import (
    CURRENT,
    INSTANCE,
    Options,
    OptionsGiven,
    Providers,
    Recorder,
    TurnInference,
    cleanup,
    foreign_spans,
    installed,
    is_owned,
)

log = logging.getLogger("endturn")

PROVIDERS: Final = tuple(f"{each}_provider" for each in CURRENT)


@dataclass(slots=True)
class _Instrumentation:
    """What is in place, so that it can be taken away.

    Attributes:
        given: the providers that were given.
        options: how is recorded.
        observer: looks at the spans of the tracer provider, once there is one.
    """

    inferring: TurnInference
    stop_listening: Callable[[], None]
    recorder: Recorder
    given: Providers
    options: Options
    watched: object = None
    observer: Any = None
    has_called: bool = False

    def active(self) -> bool:
        """Whether anybody records.

        Asked when a request to a model begins: by then the host has its providers.
        """
        is_recorded = listeners.listening()
        if not self.has_called:
            # Exit handlers run last first: the providers' own handlers shut them down.
            self.has_called = True
            atexit.unregister(_close)
            atexit.register(_close, self)
            if not self.recorder.awake():
                _warn_without_sdk()
        if is_recorded:
            self.look()
        return is_recorded

    def change(self, asked: Options, given: Providers) -> None:
        """Record as a later call says: what it leaves out stays."""
        http_clients.install(self.active)  # somebody may have put methods back meanwhile
        options = self.options.changed_by(asked)
        used: Any = tuple(new or old for new, old in zip(given, self.given, strict=True))
        if (options, used) != (self.options, self.given):
            self.recorder.use(used, options)
            listeners.subscribe(self.recorder)  # it may take what is said now, or no longer
            self.options, self.given = options, used
            self.inferring.tools_idle_s = options.tools_idle
            self.look()
            log.info(
                "endturn: from now on calls are recorded with the settings of a later "
                "instrument() or configure()"
            )

    def look(self) -> None:
        """Have the spans of the tracer provider looked at.

        Of the given one, else of the global one as it is now.
        """
        provider: Any = self.given[0] or trace.get_tracer_provider()
        if provider is self.watched and not (
            self.observer is not None and self.observer.is_shut_down
        ):
            return
        self.watched = provider
        self.look_away()
        try:
            if hasattr(provider, "add_span_processor"):  # else it is not the SDK's
                from endturn.telemetry import span_processor

                self.observer = span_processor.attach(provider)
        except Exception:
            log_internal_error("looking at a span")
        since_ns = 0 if self.observer is None else self.observer.since_ns
        foreign_spans.record_to(foreign_spans.RecordedTo(provider, self.observer, since_ns))

    def look_away(self) -> None:
        """Take no more notice of spans."""
        observer, self.observer = self.observer, None
        if observer is not None:
            observer.stop()
        foreign_spans.record_to(None)


WORKER_EXIT_S: Final = 2.0
"""How long a worker of a pool waits for its exports before it ends."""

_lock = threading.Lock()
_now: _Instrumentation | None = None
_warned = False


@settings.keywords_checked(unpacked=OptionsGiven)
def instrument(
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    logger_provider: _logs.LoggerProvider | None = None,
    **options: Unpack[OptionsGiven],
) -> None:
    """Observe every model call that this process makes over HTTP, endturn's own included.

    Seen are the requests that go through httpx, httpx2, urllib3 (requests, boto3), aiohttp
    (aiobotocore) and `urllib.request`, whichever SDK or framework sends them. Stop reasons,
    truncation and continuation become spans, events and metrics. What callers get does not change.
    The libraries may be imported before or after. Not seen are model calls over bare sockets, gRPC
    and WebSockets, and those of other processes: decorators, `endturn run` and the Collector are
    for these. `uninstrument` undoes it.

    Called again, also where `endturn run` or `opentelemetry-instrument` called it first: what is
    given takes the place of what was set before, and what is left out stays. What is open, and what
    has been counted, stays too.

    Args:
        tracer_provider, meter_provider, logger_provider: where signals go; the global ones where
            not given.
        options: the fields of `endturn.telemetry.otel_providers.Options`, e.g. `prices` or
            `events`.

    Raises:
        TypeError: a keyword is not known.
        UsageError: an option's value cannot be used.
    """
    begin(Options(**options), (tracer_provider, meter_provider, logger_provider))


def begin(asked: Options, given: Providers = (None, None, None)) -> None:
    """`instrument`, with options that are put together.

    Raises:
        UsageError: an option's value cannot be used.
    """
    global _now
    asked.check()
    settings.warn_of_problems(("recording",))
    with _lock:
        if _now is not None:
            _now.change(asked, given)
            return
        recorder = Recorder(*given, options=asked)
        inferring = TurnInference(tools_idle_s=asked.tools_idle)
        _now = now = _Instrumentation(
            inferring, listeners.subscribe(recorder), recorder, given, asked
        )
        infer_with(now.inferring)
        http_clients.install(now.active)
        now.look()
        atexit.register(_close, now)
    worker_exit.before_worker_ends(_end_worker)
    _warn_of_shared_name(given[1] or metrics.get_meter_provider())


def uninstrument() -> None:
    """Undo `instrument`.

    End what is open, give the HTTP clients their methods back, and stop recording.
    """
    global _now
    with _lock:
        now, _now = _now, None
        if now is None:
            return
        http_clients.uninstall()
        _close(now)
        now.look_away()
        infer_with(None)
        now.stop_listening()
        worker_exit.forget(_end_worker)
        atexit.unregister(_close)


def recorder() -> Recorder | None:
    """What records while calls are observed; None while they are not."""
    now = _now
    return None if now is None else now.recorder


def _close(now: _Instrumentation) -> None:
    """End what is still open, while somebody listens."""
    cleanup.end()
    foreign_spans.close_all()
    now.inferring.close()


def _end_worker() -> None:
    """End what is open, and wait for at most two seconds until the providers have exported it."""
    now = _now
    if now is None:
        return
    _close(now)

    def flush() -> None:
        for given, otherwise in zip(now.given, CURRENT.values(), strict=True):
            try:
                getattr(given or otherwise(), "force_flush", bool)()
            except Exception:
                log_internal_error("flushing before a worker ends")

    thread = threading.Thread(target=flush, name="endturn-worker-exit", daemon=True)
    thread.start()
    thread.join(WORKER_EXIT_S)


def expect_nothing() -> None:
    """The host has asked for no signal at all: that nothing will be recorded is no news to it."""
    global _warned
    _warned = True


def _warn_without_sdk() -> None:
    """Say once, at the first model call, that nothing is seen of it, and what to do.

    Nobody has set up a provider.
    """
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
    """Say so where a host's own provider takes its name from a variable.

    Every process that inherits it has the same.

    `configure` appends what tells processes apart; a provider that somebody else made is not ours
    to rename.
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
    """In a forked child: whoever was putting something in place is the parent's thread."""
    global _lock
    _lock = threading.Lock()


cleanup.after_fork(_forked)
