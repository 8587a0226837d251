"""The span processor that sees which spans of other instrumentations begin and end.

It needs the OpenTelemetry SDK.
"""

from __future__ import annotations

import time
from typing import Any, Final, Unpack
from weakref import ref

from opentelemetry._logs import LoggerProvider
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.trace import (
    ReadableSpan,
    Span,
    SpanProcessor,
    TracerProvider as SDKTracerProvider,
)
from opentelemetry.trace import TracerProvider

from endturn.calls import Record, find_turns_with, listeners, log_internal_error
from endturn.settings import keywords_checked
from endturn.telemetry import foreign_spans
from endturn.telemetry.otel_providers import Options, OptionsGiven
from endturn.telemetry.recorder import Recorder

_LOOKING: Final = "looking at a span"


class SpanObserver(SpanProcessor):
    """Reports to `foreign_spans` when spans of one tracer provider begin and end, while active.

    Attributes:
        is_shut_down: its provider was shut down, or has let go of it: a vendor's may, when the host
            adds a processor.
        since_ns: since when it is active.
    """

    is_active = False
    is_shut_down = False
    since_ns = 0

    def start(self) -> None:
        self.is_active, self.since_ns = True, time.time_ns()
        find_turns_with(foreign_spans.turn_here)

    def stop(self) -> None:
        self.is_active = False
        foreign_spans.close_all(self)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """A span begins: a model call's is marked as counted where this process counts it."""
        if self.is_active:
            try:
                foreign_spans.began(span, _is_counting, self)
            except Exception:
                log_internal_error(_LOOKING)

    def on_end(self, span: ReadableSpan) -> None:
        """A span has ended. It is only read."""
        if self.is_active:
            try:
                foreign_spans.ended(span)
            except Exception:
                log_internal_error(_LOOKING)

    def shutdown(self) -> None:
        """End the turns of agents' spans that are open."""
        self.is_shut_down = True
        try:
            foreign_spans.close_all(self)
        except Exception:
            log_internal_error(_LOOKING)


class AdoptingSpanProcessor(SpanObserver):
    """Records model calls and agents' turns known only from other instrumentations' spans.

    Add it to a tracer provider where another instrumentation watches calls that are not sent over
    HTTP by this process: `provider.add_span_processor(endturn.AdoptingSpanProcessor())`.
    `endturn.instrument()` sees spans without it; until that is called, this records by itself.
    Spans are only read, but for `endturn.counted` on those of model calls when they begin, and
    `endturn.turn.*` on an agent's while it is open.

    Args:
        tracer_provider, meter_provider, logger_provider: where signals go; the global ones where
            not given. Only used until `endturn.instrument()` is called.
        options: the fields of `endturn.telemetry.otel_providers.Options`, e.g. `events`.

    Raises:
        TypeError: an option is not known.
        UsageError: an option's value cannot be used.
    """

    @keywords_checked(unpacked=OptionsGiven)
    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        **options: Unpack[OptionsGiven],
    ) -> None:
        self._recorder = Recorder(
            tracer_provider, meter_provider, logger_provider, options=Options(**options)
        )
        self._stop_listening = listeners.subscribe(self)
        self.start()

    def shutdown(self) -> None:
        """End the turns that are open, and take no more notice of spans."""
        super().shutdown()
        self.is_active = False
        self._stop_listening()

    def __call__(self, record: Record) -> listeners.Activation | None:
        """Record what is emitted while `instrument` has not been called."""
        return None if _is_instrumented() else self._recorder(record)

    def awake(self) -> bool:
        """Whether anything would come of a record now."""
        return not _is_instrumented() and self._recorder.awake()

    def counted(self) -> bool:
        """Whether responses are counted here, by metrics that leave this process."""
        return not _is_instrumented() and self._recorder.counted()


def _is_instrumented() -> bool:
    return any(isinstance(listener, Recorder) for listener in listeners.current_listeners())


def _is_counting() -> bool:
    return any(
        listener.counted()
        for listener in listeners.current_listeners()
        if isinstance(listener, Recorder | AdoptingSpanProcessor)
    )


_attached: list[tuple[ref[Any], SpanObserver]] = []
"""Providers are compared by identity: not every one can be hashed."""


def attach(provider: Any) -> SpanObserver:
    """Have a tracer provider's spans looked at, once however often it is asked for.

    A vendor's provider may do more in its `add_span_processor`: Phoenix's and Arize's remove their
    exporter, since they take the new processor for its replacement. So the SDK's own is called.

    Returns:
        What looks at them, until it is stopped. A provider does not let go of its processors.
    """
    _attached[:] = [
        each for each in _attached if each[0]() is not None and not each[1].is_shut_down
    ]
    observer = next(
        (each for attached_provider, each in _attached if attached_provider() is provider), None
    )
    if observer is None:
        observer = SpanObserver()
        if isinstance(provider, SDKTracerProvider):
            SDKTracerProvider.add_span_processor(provider, observer)
        else:  # one that stands before the SDK's, such as Logfire's
            provider.add_span_processor(observer)
        _attached.append((ref(provider), observer))
    observer.start()
    return observer
