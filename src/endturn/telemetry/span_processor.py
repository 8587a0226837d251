"""The span processor that sees which spans of other instrumentations begin and end. It needs the OpenTelemetry SDK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack
from weakref import ref

from opentelemetry._logs import LoggerProvider
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import TracerProvider

from endturn import hooks
from endturn.events import Record
from endturn.hooks import log_internal_error
from endturn.scopes import find_turns_with
from endturn.telemetry import foreign_spans
from endturn.telemetry.otel_providers import Options, OptionsGiven
from endturn.telemetry.recorder import Recorder


class _SpanObserver(SpanProcessor):
    """Tells `foreign_spans` of the spans that begin and end, while it is active."""

    is_active = False

    def start(self) -> None:
        self.is_active = True
        find_turns_with(foreign_spans.turn_here)

    def stop(self) -> None:
        self.is_active = False
        foreign_spans.close_all()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """A span begins: a model call's is marked as counted where this process counts it."""
        if self.is_active:
            _safely(foreign_spans.began, span, _is_counting)

    def on_end(self, span: ReadableSpan) -> None:
        """A span has ended. It is only read."""
        if self.is_active:
            _safely(foreign_spans.ended, span)

    def shutdown(self) -> None:
        """End the turns of agents' spans that are open."""
        _safely(foreign_spans.close_all)


def _safely(tell: Callable[..., None], *arguments: Any) -> None:
    try:
        tell(*arguments)
    except Exception:
        log_internal_error("looking at a span")


class AdoptingSpanProcessor(_SpanObserver):
    """Records the model calls and agents' turns that only the spans of other instrumentations tell of.

    Add it to a tracer provider where another instrumentation watches calls that are not sent over HTTP by this process:
    `provider.add_span_processor(endturn.AdoptingSpanProcessor())`. `endturn.instrument()` sees spans without it; until
    that is called, this records by itself. Spans are only read, but for `endturn.counted` on those of model calls when
    they begin, and `endturn.turn.*` on an agent's while it is open.

    Args:
        tracer_provider, meter_provider, logger_provider: where signals go; the global ones where not given. Only used
            until `endturn.instrument()` is called.
        options: the fields of `endturn.telemetry.otel_providers.Options`, e.g. `events`.

    Raises:
        TypeError: an option is not known.
        UsageError: an option's value cannot be used.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        **options: Unpack[OptionsGiven],
    ) -> None:
        self._recorder = Recorder(tracer_provider, meter_provider, logger_provider, options=Options(**options))
        self._stop_listening = hooks.subscribe(self)
        self.start()

    def shutdown(self) -> None:
        """End the turns that are open, and take no more notice of spans."""
        super().shutdown()
        self.is_active = False
        self._stop_listening()

    def __call__(self, record: Record) -> hooks.Activation | None:
        """Record what is emitted while `instrument` has not been called."""
        return None if _is_instrumented() else self._recorder(record)

    def awake(self) -> bool:
        """Whether anything would come of a record now."""
        return not _is_instrumented() and self._recorder.awake()

    def counted(self) -> bool:
        """Whether responses are counted here, by metrics that leave this process."""
        return not _is_instrumented() and self._recorder.counted()


def _is_instrumented() -> bool:
    return any(isinstance(each, Recorder) for each in hooks.listeners())


def _is_counting() -> bool:
    return any(each.counted() for each in hooks.listeners() if isinstance(each, Recorder | AdoptingSpanProcessor))


_observer = _SpanObserver()
_attached: list[ref[Any]] = []
"""Providers are compared by identity: not every one can be hashed."""


def attach(provider: Any) -> Callable[[], None]:
    """Have a tracer provider's spans looked at, once however often it is asked for.

    Returns:
        A function that ends it. A provider does not let go of its processors: they take no more notice of spans.
    """
    _observer.start()
    _attached[:] = [known for known in _attached if known() is not None]
    if not any(known() is provider for known in _attached):
        provider.add_span_processor(_observer)
        _attached.append(ref(provider))
    return _observer.stop
