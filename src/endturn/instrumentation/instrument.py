"""One line for an agent that exists: the calls of the openai and anthropic SDKs, observed."""

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
    background,
    bedrock,
    botocore_bodies,
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
from endturn.telemetry.outlets import Options, installed
from endturn.telemetry.recorder import Recorder
from endturn.telemetry.schema import INSTANCE

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

log = logging.getLogger("endturn")

SDKS: Final[dict[str, Patcher]] = {
    **{name: partial(stainless.patch, sdk) for name, sdk in stainless.SDKS.items()},
    "litellm.litellm_core_utils.streaming_handler": litellm_calls.patch_streams,
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


@dataclass(slots=True)
class _Instrumentation:
    """What is in place, so that it can be taken away."""

    inferring: Inferring
    stop_listening: Callable[[], None]
    importing: imports.OnImport | None = None
    patched: list[Undoable] = field(default_factory=list)
    forget_ending: Callable[[], None] | None = None
    recorder: Recorder | None = None
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
    """Observe every call that this process makes through the openai and anthropic SDKs, and through endturn's own.

    Stop reasons, truncation and continuation become spans, events and metrics. What the SDKs return, raise and stream
    does not change. SDKs may be imported before or after; those that are not installed are not needed. Calling it
    again changes nothing; `uninstrument` undoes it.

    Args:
        tracer_provider, meter_provider, logger_provider: where signals go; the global ones where not given.
        options: the fields of `endturn.telemetry.outlets.Options`, e.g. `prices` or `events`.

    Raises:
        TypeError: an option is not known.
        UsageError: an option's value cannot be used.
    """
    global _now
    with _lock:
        if _now is not None:
            return
        recorder = Recorder(tracer_provider, meter_provider, logger_provider, options=Options(**options))
        _now = now = _Instrumentation(Inferring(), announce.listen(recorder))
        announce.infer_with(now.inferring)
        now.importing = imports.OnImport({name: partial(_patch, now, patcher) for name, patcher in SDKS.items()})
        now.importing.start()
        now.recorder = recorder
        now.look_away = providers.look_at(tracer_provider)
        atexit.register(_close, now)
        given = tracer_provider, meter_provider, logger_provider
        now.forget_ending = endings.before_worker_ends(partial(_end_worker, now, given))
    if tracer_provider is None and meter_provider is None:
        _warn_without_sdk()
    _warn_of_shared_name(meter_provider or metrics.get_meter_provider())


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
        announce.infer_with(None)
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


def _end_worker(now: _Instrumentation, given: tuple[object, object, object]) -> None:
    """What exit handlers, the providers' own among them, do in any process but a worker of `multiprocessing`."""
    _close(now)
    used = trace.get_tracer_provider(), metrics.get_meter_provider(), get_logger_provider()
    for provider, otherwise in zip(given, used, strict=True):
        flush = getattr(provider or otherwise, "force_flush", None)
        if flush is not None:
            flush()


def expect_nothing() -> None:
    """The host has asked for no signal at all: that nothing will be recorded is no news to it."""
    global _warned
    _warned = True


def _warn_without_sdk() -> None:
    """Say once that nothing will be seen, and what to do: there is neither a tracer provider nor a meter provider."""
    global _warned
    if _warned or installed(trace.get_tracer_provider()) or installed(metrics.get_meter_provider()):
        return
    _warned = True
    log.warning(
        "endturn: no OpenTelemetry SDK is set up, so nothing will be recorded; call endturn.configure() "
        "(pip install 'endturn[otlp]'), run under opentelemetry-instrument, or set the global providers"
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
