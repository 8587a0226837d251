"""One line for an agent that exists: its model calls, observed, through whatever SDK or HTTP library it makes them."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from multiprocessing import parent_process, util
from typing import Any, Final

from opentelemetry import _logs, metrics, trace

from endturn import announce
from endturn.announce import swallow
from endturn.instrumentation import http_clients
from endturn.telemetry import cleanup, foreign_spans
from endturn.telemetry.content import narrower
from endturn.telemetry.messages import Redact
from endturn.telemetry.otel_providers import Options
from endturn.telemetry.recorder import Recorder
from endturn.telemetry.schema import INSTANCE
from endturn.telemetry.turn_inference import TurnInference
from endturn.turns import infer_with

log = logging.getLogger("endturn")

PROVIDERS: Final = ("tracer_provider", "meter_provider", "logger_provider")
Providers = tuple[trace.TracerProvider | None, metrics.MeterProvider | None, _logs.LoggerProvider | None]


@dataclass(slots=True)
class _Instrumentation:
    """What is in place, so that it can be taken away.

    Attributes:
        given: the providers that were given.
        options: how is recorded.
        is_for_host: whoever started the process asked for it, and the host has said nothing about it yet.
        look_away: ends the looking at spans, once there is a tracer provider.
    """

    inferring: TurnInference
    stop_listening: Callable[[], None]
    recorder: Recorder
    given: Providers
    options: Options
    is_for_host: bool
    watched: object = None
    look_away: Callable[[], None] | None = None
    has_called: bool = False

    def active(self) -> bool:
        """Asked when a request to a model begins: by then the host has set up its providers."""
        if not self.has_called:
            # Exit handlers run last first: the providers' own handlers shut them down.
            self.has_called = True
            atexit.unregister(_close)
            atexit.register(_close, self)
            if not self.recorder.awake():
                _warn_without_sdk()
        self.look()
        return True

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
    **options: Any,
) -> None:
    """Observe every model call that this process makes over HTTP, and those that endturn itself makes.

    Seen are the requests that go through httpx, httpx2, urllib3 (requests, boto3), aiohttp (aiobotocore) and
    `urllib.request`, whichever SDK or framework sends them. Stop reasons, truncation and continuation become spans,
    events and metrics. What callers get does not change. The libraries may be imported before or after. Not seen are
    model calls over bare sockets, gRPC and WebSockets, and those of other processes: decorators, `endturn run` and the
    Collector are for these. `uninstrument` undoes it.

    Where the process was started by `endturn run` or `opentelemetry-instrument`, the first call that gives anything
    decides from then on. Called again with something else, the first call's settings stay, which is logged; but a
    redaction and less content (`redact`, `content`, `content_max_chars`) are applied all the same.

    Args:
        tracer_provider, meter_provider, logger_provider: where signals go; the global ones where not given.
        options: the fields of `endturn.telemetry.otel_providers.Options`, e.g. `prices` or `events`.

    Raises:
        TypeError: an option is not known.
        UsageError: an option's value cannot be used.
    """
    begin(Options(**options), (tracer_provider, meter_provider, logger_provider))


def begin(
    asked: Options, given: Providers = (None, None, None), *, for_host: bool = False, quiet: bool = False
) -> Options:
    """`instrument`, with options that are put together.

    Args:
        for_host: whoever starts the process asks for it, and not the host itself.
        quiet: that the first call's settings stay has been said.

    Returns:
        The options from now on: of a later call's, what may be taken.

    Raises:
        UsageError: an option's value cannot be used.
    """
    global _now
    asked.check()
    with _lock:
        if _now is not None:
            return _ask_again(_now, asked, given, for_host=for_host, quiet=quiet)
        recorder = Recorder(*given, options=asked)
        _now = now = _Instrumentation(TurnInference(), announce.listen(recorder), recorder, given, asked, for_host)
        infer_with(now.inferring)
        http_clients.install(now.active)
        now.look()
        atexit.register(_close, now)
    before_worker_ends(_end_worker)
    _warn_of_shared_name(given[1] or metrics.get_meter_provider())
    return asked


def _ask_again(now: _Instrumentation, asked: Options, given: Providers, *, for_host: bool, quiet: bool) -> Options:
    refused: list[str] = []
    if now.is_for_host:
        options = overruled(now.options, asked)
        used: Any = tuple(new or old for new, old in zip(given, now.given, strict=True))
        now.is_for_host = for_host or (asked == Options() and used == now.given)
    else:
        options, refused = guarded(now.options, asked)
        used = now.given
        refused += [name for name, new, old in zip(PROVIDERS, given, used, strict=True) if new not in (None, old)]
    if options != now.options or used != now.given:
        now.recorder.use(*used, options=options)
        announce.listen(now.recorder)  # it may take what is said now, or no longer
        now.options, now.given = options, used
        now.look()
    if refused and not quiet:
        log.warning(
            "endturn: calls are observed already; the first call's settings stay, and these of this one are not used: "
            "%s",
            ", ".join(refused),
        )
    return options


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

    def finalize(anchor: object = None) -> None:
        util.Finalize(None, job, exitpriority=0)

    util.register_after_fork(finalize, finalize)
    if parent_process() is not None:
        finalize()  # this is a worker, and it has begun


def _end_worker() -> None:
    """End what is open, and wait for at most two seconds until the providers have exported it."""
    now = _now
    if now is None:
        return
    _close(now)
    used = trace.get_tracer_provider(), metrics.get_meter_provider(), _logs.get_logger_provider()

    def flush() -> None:
        for given, otherwise in zip(now.given, used, strict=True):
            try:
                getattr(given or otherwise, "force_flush", bool)()
            except Exception:
                swallow("flushing before a worker ends")

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


def _warn_of_shared_name(provider: object) -> None:
    """Say so where a host's own provider takes its name from a variable: every process that inherits it has the same.

    `configure` appends what tells processes apart; a provider that somebody else made is not ours to rename.
    """
    pairs = (pair.partition("=") for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","))
    named = {key.strip(): value.strip() for key, _, value in pairs}.get(INSTANCE)
    resource = getattr(getattr(provider, "_sdk_config", None), "resource", None)
    if named and getattr(resource, "attributes", {}).get(INSTANCE) == named:
        log.warning(
            "endturn: every process that inherits OTEL_RESOURCE_ATTRIBUTES is called %s=%s; two that write one series "
            "make nonsense of it. Give each its own, or let endturn.configure() set up the SDK",
            INSTANCE,
            named,
        )


# --- What a second call's options change: whoever asks for less of what was said gets less, always ----------------


def _given(options: Options) -> dict[str, Any]:
    """The options that were given a value."""
    values = {each.name: getattr(options, each.name) for each in fields(options)}
    return {name: value for name, value in values.items() if value is not None}


def overruled(before: Options, asked: Options) -> Options:
    """The options of whoever started it for the host, and over them those of the host's own call."""
    return replace(before, **_given(asked))


def guarded(before: Options, asked: Options) -> tuple[Options, list[str]]:
    """The options of the host's first call, with what a later one keeps back besides.

    Returns:
        The options, and the names of those of the later call that are not taken.
    """
    limits = [limit for limit in (before.content_max_chars, asked.content_max_chars) if limit is not None]
    kept: dict[str, Any] = {
        "redact": _both(before.redact, asked.redact),
        "content": narrower(before.content, asked.content),
        "content_max_chars": min(limits, default=None),
    }
    after = replace(before, **kept)
    refused = [name for name, value in _given(asked).items() if not _same(getattr(after, name), value)]
    return after, [name for name in refused if name != "redact"]


def _same(one: Any, other: Any) -> bool:
    return bool((one.strip().upper() == other.strip().upper()) if isinstance(one, str) else one == other)


def _both(before: Redact | None, asked: Redact | None) -> Redact | None:
    """Each redaction after the other, but one that is the same, or the same function made again, only once."""
    if before is None or asked is None:
        return before or asked
    earlier = before.redactions if isinstance(before, _InTurn) else (before,)
    return _InTurn((*(each for each in earlier if _code(each) != _code(asked)), asked))


def _code(redact: Redact) -> object:
    """What tells a function from others: its code, where it belongs to no object."""
    return redact if hasattr(redact, "__self__") else getattr(redact, "__code__", redact)


@dataclass(frozen=True)
class _InTurn:
    """Redactions, one after the other."""

    redactions: tuple[Redact, ...]

    def __call__(self, text: str) -> str:
        for redact in self.redactions:
            text = redact(text)
        return text
