"""One line for an agent that exists: its model calls, observed, through whatever SDK or HTTP library it makes them."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Final, Unpack

import wrapt
from opentelemetry import _logs, metrics, trace

from endturn import hooks
from endturn.hooks import log_internal_error
from endturn.instrumentation import http_clients
from endturn.scopes import infer_with
from endturn.telemetry import cleanup, foreign_spans
from endturn.telemetry.instruments import is_owned
from endturn.telemetry.otel_providers import CURRENT, Options, OptionsGiven, Providers, installed
from endturn.telemetry.recorder import Recorder
from endturn.telemetry.schema import INSTANCE
from endturn.telemetry.turn_inference import TurnInference

log = logging.getLogger("endturn")

PROVIDERS: Final = tuple(f"{each}_provider" for each in CURRENT)


@dataclass(slots=True)
class _Instrumentation:
    """What is in place, so that it can be taken away.

    Attributes:
        given: the providers that were given.
        options: how is recorded.
        look_away: ends the looking at spans, once there is a tracer provider.
    """

    inferring: TurnInference
    stop_listening: Callable[[], None]
    recorder: Recorder
    given: Providers
    options: Options
    watched: object = None
    look_away: Callable[[], None] | None = None
    has_called: bool = False

    def active(self) -> bool:
        """Whether anybody records. Asked when a request to a model begins: by then the host has its providers."""
        is_recorded = hooks.listening()
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
        options = self.options.changed_by(asked)
        used: Any = tuple(new or old for new, old in zip(given, self.given, strict=True))
        if (options, used) != (self.options, self.given):
            self.recorder.use(used, options)
            hooks.subscribe(self.recorder)  # it may take what is said now, or no longer
            self.options, self.given = options, used
            self.look()
            log.info("endturn: calls are recorded from now on as a later instrument() or configure() says")

    def look(self) -> None:
        """Have the spans of the tracer provider looked at: of the given one, else of the global one as it is now."""
        provider: Any = self.given[0] or trace.get_tracer_provider()
        if provider is self.watched:
            return
        self.watched = provider
        if self.look_away is not None:
            self.look_away()
        if hasattr(provider, "add_span_processor"):  # else it is not the SDK's
            from endturn.telemetry import span_processor

            self.look_away = span_processor.attach(provider)


WORKER_EXIT_S: Final = 2.0
"""How long a worker of `multiprocessing` waits for its exports before it ends."""

_lock = threading.Lock()
_now: _Instrumentation | None = None
_warned = False


def instrument(
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    logger_provider: _logs.LoggerProvider | None = None,
    **options: Unpack[OptionsGiven],
) -> None:
    """Observe every model call that this process makes over HTTP, and those that endturn itself makes.

    Seen are the requests that go through httpx, httpx2, urllib3 (requests, boto3), aiohttp (aiobotocore) and
    `urllib.request`, whichever SDK or framework sends them. Stop reasons, truncation and continuation become spans,
    events and metrics. What callers get does not change. The libraries may be imported before or after. Not seen are
    model calls over bare sockets, gRPC and WebSockets, and those of other processes: decorators, `endturn run` and the
    Collector are for these. `uninstrument` undoes it.

    Called again, also where `endturn run` or `opentelemetry-instrument` called it first: what is given takes the place
    of what was set before, and what is left out stays. What is open, and what has been counted, stays too.

    Args:
        tracer_provider, meter_provider, logger_provider: where signals go; the global ones where not given.
        options: the fields of `endturn.telemetry.otel_providers.Options`, e.g. `prices` or `events`.

    Raises:
        TypeError: an option is not known.
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
    with _lock:
        if _now is not None:
            _now.change(asked, given)
            return
        recorder = Recorder(*given, options=asked)
        _now = now = _Instrumentation(TurnInference(), hooks.subscribe(recorder), recorder, given, asked)
        infer_with(now.inferring)
        http_clients.install(now.active)
        now.look()
        atexit.register(_close, now)
    before_worker_ends(_end_worker)
    _warn_of_shared_name(given[1] or metrics.get_meter_provider())


def uninstrument() -> None:
    """Undo `instrument`: end what is open, give the HTTP clients their methods back, and stop recording."""
    global _now
    with _lock:
        now, _now = _now, None
        if now is None:
            return
        http_clients.uninstall()
        _close(now)
        if now.look_away is not None:
            now.look_away()
        infer_with(None)
        now.stop_listening()
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


@cache
def before_worker_ends(job: Callable[[], object]) -> None:
    """Have a job run at the end of this process, where it is a worker of `multiprocessing`, and of those it will fork.

    They run no exit handlers: one that was forked, by `fork` or by the fork server, ends with `os._exit` once its
    function has returned. What they do run before that are the finalizers of `multiprocessing`, which are emptied when
    a worker begins. A spawned worker ends as any process does, after its finalizers: there a job runs twice.
    """

    def attend(util: ModuleType) -> None:
        from multiprocessing.process import parent_process  # imported with that by now

        def finalize(anchor: object = None) -> None:
            util.Finalize(None, job, exitpriority=0)

        util.register_after_fork(finalize, finalize)
        if parent_process() is not None:
            finalize()  # this is a worker, and it has begun

    wrapt.register_post_import_hook(attend, "multiprocessing.util")  # who never imports it has no workers


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
    """Say once, at the first model call, that nothing is seen of it, and what to do: nobody has set up a provider."""
    global _warned
    if _warned:
        return
    _warned = True
    log.warning(
        "endturn: no OpenTelemetry SDK is set up, so this model call is not recorded, nor any until one is; call "
        "endturn.configure() (pip install 'endturn[otlp]'), use endturn run or opentelemetry-instrument, or set the "
        "global providers"
    )


def _warn_of_shared_name(provider: Any) -> None:
    """Say so where a host's own provider takes its name from a variable: every process that inherits it has the same.

    `configure` appends what tells processes apart; a provider that somebody else made is not ours to rename.
    """
    is_named = f"{INSTANCE}=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if is_named and installed(provider.__class__) and not is_owned(provider):
        log.warning(
            "endturn: every process that inherits OTEL_RESOURCE_ATTRIBUTES has one %s; two that write one series make "
            "nonsense of it. Give each its own, or let endturn.configure() set up the SDK",
            INSTANCE,
        )
