"""Span processors that observe other instrumentations' spans. They need OpenTelemetry's SDK."""

from __future__ import annotations

import time
from typing import Any, Unpack
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
from endturn.telemetry.otel_providers import OptionKwargs, Options
from endturn.telemetry.recorder import Recorder


class SpanObserver(SpanProcessor):
    """Reports starts and ends of one tracer provider's spans to `foreign_spans`, while active.

    Attributes:
        is_shut_down: its provider was shut down, or removed it: a vendor's provider may do that
            when the host adds a processor.
        since_ns: the time from which it is active.
    """

    is_active = False
    is_shut_down = False
    since_ns = 0

    def start(self) -> None:
        self.is_active, self.since_ns = True, time.time_ns()
        find_turns_with(foreign_spans.current_agent_turn)

    def stop(self) -> None:
        self.is_active = False
        foreign_spans.close_all(self)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Report the start of a span. A model call's is marked if this process counts the call."""
        if self.is_active:
            try:
                foreign_spans.on_span_start(span, _is_counting, self)
            except Exception:
                log_internal_error("looking at a span")

    def on_end(self, span: ReadableSpan) -> None:
        """Report the end of a span, which is only read."""
        if self.is_active:
            try:
                foreign_spans.on_span_end(span)
            except Exception:
                log_internal_error("looking at a span")

    def shutdown(self) -> None:
        """End the turns of agents' open spans."""
        self.is_shut_down = True
        try:
            foreign_spans.close_all(self)
        except Exception:
            log_internal_error("looking at a span")


class AdoptingSpanProcessor(SpanObserver):
    """Records model calls and agents' turns known only from other instrumentations' spans.

    Add it to a tracer provider if another instrumentation observes calls that this process does not
    send over HTTP: `provider.add_span_processor(endturn.AdoptingSpanProcessor())`.
    `endturn.instrument()` observes spans without it; until that is called, this records by itself.
    Spans are only read, except for `endturn.counted` at the start of a model call's span, and
    `endturn.turn.*` on an agent's open span.

    Args:
        tracer_provider, meter_provider, logger_provider: the providers that receive the signals.
            Default to the global ones. Used only until `endturn.instrument()` is called.
        options: the fields of `endturn.telemetry.otel_providers.Options`, e.g. `events`.

    Raises:
        TypeError: an option is unknown.
        UsageError: an option's value is invalid.
    """

    @keywords_checked(unpacked=OptionKwargs)
    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        **options: Unpack[OptionKwargs],
    ) -> None:
        self._recorder = Recorder(
            tracer_provider, meter_provider, logger_provider, options=Options(**options)
        )
        self._stop_listening = listeners.subscribe(self)
        self.start()

    def shutdown(self) -> None:
        """End the open turns, and ignore all further spans."""
        super().shutdown()
        self.is_active = False
        self._stop_listening()

    def __call__(self, record: Record) -> listeners.Activation | None:
        """Record a record, unless `instrument` has been called."""
        return None if _is_instrumented() else self._recorder(record)

    def is_enabled(self) -> bool:
        """Return whether a record would produce any signal now."""
        return not _is_instrumented() and self._recorder.is_enabled()

    def counts_responses(self) -> bool:
        """Return whether exported metrics of this process count responses."""
        return not _is_instrumented() and self._recorder.counts_responses()

    # Removed in 0.2: the names of 0.1.
    awake = is_enabled
    counted = counts_responses


def _is_instrumented() -> bool:
    return any(isinstance(listener, Recorder) for listener in listeners.current_listeners())


def _is_counting() -> bool:
    return any(
        listener.counts_responses()
        for listener in listeners.current_listeners()
        if isinstance(listener, Recorder | AdoptingSpanProcessor)
    )


_attached: list[tuple[ref[Any], SpanObserver]] = []
"""Providers are compared by identity: not every one can be hashed."""


def attach(provider: Any) -> SpanObserver:
    """Add an observer to a tracer provider. It is added once, even after several calls.

    A vendor's `add_span_processor` may have side effects: Phoenix's and Arize's remove their
    exporter, because they take the new processor for its replacement. So the SDK's own method is
    called.

    Returns:
        The observer, started. Stop it with `stop`: a provider cannot remove a processor.
    """
    _attached[:] = [
        (provider_ref, observer)
        for provider_ref, observer in _attached
        if provider_ref() is not None and not observer.is_shut_down
    ]
    observer = next(
        (observer for provider_ref, observer in _attached if provider_ref() is provider), None
    )
    if observer is None:
        observer = SpanObserver()
        if isinstance(provider, SDKTracerProvider):
            SDKTracerProvider.add_span_processor(provider, observer)
        else:  # a wrapper of the SDK's provider, such as Logfire's
            provider.add_span_processor(observer)
        _attached.append((ref(provider), observer))
    observer.start()
    return observer
