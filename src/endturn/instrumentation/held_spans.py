"""Spans that ended before there was an exporter. Import it only if the SDK is installed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

SPANS_QUEUED: Final = 8_192
"""The spans that may wait for an unreachable Collector: two minutes of fifty calls a second, all of
them truncated. OTEL_BSP_MAX_QUEUE_SIZE overrides it."""

MAX_TRACES: Final = 16_384
"""The most traces that may be open; the oldest is dropped first."""

MAX_HELD_SPANS: Final = SPANS_QUEUED
"""The most ended spans that are kept; those of the oldest trace are dropped first."""


@dataclass(slots=True)
class _Trace:
    """The spans of one trace: the number of open ones, and those that have ended."""

    open: int = 0
    ended: list[ReadableSpan] = field(default_factory=list)


class HeldSpans(SpanProcessor):
    """Span processor that holds the ended spans of open traces until it has an exporter.

    A trace that ends before there is an exporter is forgotten: no model was called in it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._traces: OrderedDict[int, _Trace] = OrderedDict()
        self._held_count = 0
        self._forked_ns = 0
        """The time when this process was forked: earlier spans end in the parent."""
        self._processors: Sequence[SpanProcessor] | None = None
        """The processors that get the spans; None while they are not known."""

    def forget(self) -> None:
        """Forget all spans, in a forked child: they belong to its parent."""
        self._lock = threading.Lock()
        self._traces.clear()
        self._held_count = 0
        self._forked_ns = time.time_ns()

    def hand_to(self, processors: Sequence[SpanProcessor]) -> None:
        """Pass the spans that have ended, and all later ones, to these processors."""
        with self._lock:
            self._processors = tuple(processors)
            ended = [span for trace in self._traces.values() for span in trace.ended]
            self._traces.clear()
            self._held_count = 0
        for span in ended:
            self._hand_on(span)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Count a span that begins, or pass it on."""
        if self._processors is not None:
            for processor in self._processors:
                processor.on_start(span, parent_context)
            return
        with self._lock:
            self._traces.setdefault(_trace_id(span), _Trace()).open += 1
            while len(self._traces) > MAX_TRACES or self._held_count > MAX_HELD_SPANS:
                self._held_count -= len(self._traces.popitem(last=False)[1].ended)

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span that has ended, or pass it on."""
        if (span.start_time or 0) < self._forked_ns:
            return
        with self._lock:
            if self._processors is None:
                self._hold(span)
                return
        self._hand_on(span)

    def _hold(self, span: ReadableSpan) -> None:
        trace = self._traces.get(_trace_id(span))
        if trace is None:
            return
        trace.open -= 1
        trace.ended.append(span)
        self._held_count += 1
        if trace.open <= 0:
            self._held_count -= len(self._traces.pop(_trace_id(span)).ended)

    def _hand_on(self, span: ReadableSpan) -> None:
        for processor in self._processors or ():
            processor.on_end(span)

    def shutdown(self) -> None:
        """Shut the processors down."""
        for processor in self._processors or ():
            processor.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the processors."""
        done = [processor.force_flush(timeout_millis) for processor in self._processors or ()]
        return all(done)


def _trace_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    return 0 if context is None else context.trace_id
