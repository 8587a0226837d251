"""One line for an agent that exists: its model calls, observed, through whatever SDK or HTTP library it makes them."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import metrics, trace
from opentelemetry._logs import get_logger_provider

from endturn import announce
from endturn.instrumentation import (
    again,
    background,
    bedrock,
    botocore_bodies,
    closing,
    endings,
    google_genai,
    google_interactions,
    http_calls,
    httpx_sdks,
    imports,
    litellm_calls,
    providers,
    sequence,
    stainless,
    streams,
)
from endturn.instrumentation.patches import Patcher, Undoable
from endturn.telemetry import enclosing
from endturn.telemetry.infer import Inferring
from endturn.telemetry.outlets import Options
from endturn.telemetry.recorder import Recorder
from endturn.telemetry.schema import INSTANCE
from endturn.turns import infer_with

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

log = logging.getLogger("endturn")

SDKS: Final[dict[str, Patcher]] = {
    **{name: partial(stainless.patch, sdk) for name, sdk in stainless.SDKS.items()},
    "litellm.litellm_core_utils.streaming_handler": litellm_calls.patch_streams,
    "litellm.llms.custom_httpx.llm_http_handler": litellm_calls.patch_native,
    "litellm.main": partial(litellm_calls.patch, litellm_calls.CHAT),
    "litellm.responses.main": partial(litellm_calls.patch, litellm_calls.RESPONSES),
    "litellm.responses.streaming_iterator": litellm_calls.patch_streams,
    "google.genai.models": google_genai.patch,
    "google.genai._gaos.interactions": google_interactions.patch,
    "botocore.client": bedrock.patch,
    "aiobotocore.client": bedrock.patch_async,
    "aiobotocore.response": botocore_bodies.patch,
    **httpx_sdks.PATCHERS,
    "httpx": http_calls.patch,
    "httpx2": http_calls.patch,
}
"""The module that makes an SDK's calls, and what patches it."""


Providers = tuple["TracerProvider | None", "MeterProvider | None", "LoggerProvider | None"]


@dataclass(slots=True)
class _Instrumentation:
    """What is in place, so that it can be taken away.

    Attributes:
        given: the providers that were given.
        options: how is recorded.
        is_for_host: whoever started the process asked for it, and the host has said nothing about it yet.
    """

    inferring: Inferring
    stop_listening: Callable[[], None]
    recorder: Recorder
    given: Providers
    options: Options
    is_for_host: bool
    importing: imports.OnImport | None = None
    patched: list[Undoable] = field(default_factory=list)
    forget_ending: Callable[[], None] | None = None
    look_away: Callable[[], None] | None = None
    is_active: bool = True
    has_called: bool = False

    def active(self) -> bool:
        """Whether an SDK's call is to be observed."""
        if not self.has_called:
            # Exit handlers run last first. By now the host has set up its providers, whose own handlers shut them down.
            self.has_called = True
            atexit.unregister(_close)
            atexit.register(_close, self)
            if not self.recorder.awake():
                _warn_without_sdk()
        return self.is_active


_lock = threading.Lock()
_now: _Instrumentation | None = None
_warned = False


def instrument(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    logger_provider: LoggerProvider | None = None,
    **options: Any,
) -> None:
    """Observe every model call that this process makes: through an SDK, LiteLLM, httpx, or endturn itself.

    Observed are openai, anthropic and the SDKs built like them (groq, …), google-genai, boto3 and aiobotocore for
    Bedrock, cohere, mistralai, ollama, litellm, and what goes to a known provider over httpx. Stop reasons, truncation
    and continuation become spans, events and metrics. What the SDKs return, raise and stream does not change. SDKs may
    be imported before or after; those that are not installed are not needed. `uninstrument` undoes it.

    Where the process was started by `endturn run` or `opentelemetry-instrument`, the first call that gives anything
    decides from then on. Called again with something else, the first call's settings stay, which is logged; but a
    redaction and less content (`redact`, `content`, `content_max_chars`) are applied all the same.

    Args:
        tracer_provider, meter_provider, logger_provider: where signals go; the global ones where not given.
        options: the fields of `endturn.telemetry.outlets.Options`, e.g. `prices` or `events`.

    Raises:
        TypeError: an option is not known.
        UsageError: an option's value cannot be used.
    """
    begin(Options(**options), (tracer_provider, meter_provider, logger_provider))


def begin(asked: Options, given: Providers = (None, None, None), *, for_host: bool = False) -> None:
    """`instrument`, with options that are put together.

    Args:
        for_host: whoever starts the process asks for it, and not the host itself.

    Raises:
        UsageError: an option's value cannot be used.
    """
    global _now
    asked.check()
    with _lock:
        if _now is not None:
            _ask_again(_now, asked, given, for_host=for_host)
            return
        recorder = Recorder(*given, options=asked)
        _now = now = _Instrumentation(Inferring(), announce.listen(recorder), recorder, given, asked, for_host)
        infer_with(now.inferring)
        now.importing = imports.OnImport({name: partial(_patch, now, patcher) for name, patcher in SDKS.items()})
        now.importing.start()
        now.look_away = providers.look_at(given[0])
        atexit.register(_close, now)
        now.forget_ending = endings.before_worker_ends(partial(_end_worker, now))
    _warn_of_shared_name(given[1] or metrics.get_meter_provider())


def asked_again(asked: Options, *, quiet: bool) -> Options:
    """Take what may be taken of a later call's options while calls are observed.

    Args:
        quiet: that the rest is not taken has been said.

    Returns:
        The options from now on.
    """
    with _lock:
        return asked if _now is None else _ask_again(_now, asked, (None, None, None), quiet=quiet)


def _ask_again(
    now: _Instrumentation, asked: Options, given: Providers, *, for_host: bool = False, quiet: bool = False
) -> Options:
    refused: list[str] = []
    if now.is_for_host:
        options = again.overruled(now.options, asked)
        used: Any = tuple(new or old for new, old in zip(given, now.given, strict=True))
        now.is_for_host = for_host or (not again.given(asked) and used == now.given)
    else:
        options, refused = again.guarded(now.options, asked)
        used = now.given
        names = "tracer_provider", "meter_provider", "logger_provider"
        refused += [
            name for name, new, old in zip(names, given, used, strict=True) if new is not None and new is not old
        ]
    if options != now.options or used != now.given:
        now.recorder.use(*used, options=options)
        announce.listen(now.recorder)  # it may take what is said now, or no longer
        if used[0] is not now.given[0]:
            if now.look_away is not None:
                now.look_away()
            now.look_away = providers.look_at(used[0])
        now.options, now.given = options, used
    if refused and not quiet:
        log.warning(
            "endturn: calls are observed already; the first call's settings stay, and this one's %s not used",
            " and ".join([", ".join(refused[:-1]), refused[-1]] if refused[1:] else refused)
            + (" are" if refused[1:] else " is"),
        )
    return options


def uninstrument() -> None:
    """Undo `instrument`: end what is open, restore the SDKs, and stop recording."""
    global _now
    with _lock:
        now, _now = _now, None
        if now is None:
            return
        now.is_active = False
        if now.importing is not None:
            now.importing.stop()
        for patch in reversed(now.patched):
            patch.undo()
        _close(now)
        if now.look_away is not None:
            now.look_away()
        infer_with(None)
        now.stop_listening()
        atexit.unregister(_close)
        if now.forget_ending is not None:
            now.forget_ending()


def recorder() -> Recorder | None:
    """What records while calls are observed; None while they are not."""
    now = _now
    return None if now is None else now.recorder


def _patch(now: _Instrumentation, patcher: Patcher, module: ModuleType) -> None:
    for done in patcher(module, now.active):
        now.patched.append(done)


def _close(now: _Instrumentation) -> None:
    """End what is still open, while somebody listens."""
    streams.close_all()
    background.close_all()
    sequence.close_all()
    enclosing.close_all()
    now.inferring.close()


def _end_worker(now: _Instrumentation) -> None:
    """What exit handlers, the providers' own among them, do in any process but a worker of `multiprocessing`."""
    _close(now)
    used = trace.get_tracer_provider(), metrics.get_meter_provider(), get_logger_provider()
    flushes = {}
    for given, otherwise in zip(now.given, used, strict=True):
        provider = given or otherwise
        flush = getattr(provider, "force_flush", None)
        if flush is not None:
            flushes[f"flushing the worker's {type(provider).__name__}"] = flush
    closing.together(flushes, closing.seconds())


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
