"""Spans that ended before there was an exporter. Import it only where the SDK is installed."""

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
"""How many spans wait for a Collector that is away: two minutes of fifty calls a second, all of
them truncated. OTEL_BSP_MAX_QUEUE_SIZE says otherwise."""

TRACES: Final = 16_384
"""How many traces may be open; the oldest is given up first."""

HELD: Final = SPANS_QUEUED
"""How many spans that have ended are kept; those of the oldest trace are given up first."""


@dataclass(slots=True)
class _Trace:
    """The spans of one trace: how many are open, and those that have ended."""

    open: int = 0
    ended: list[ReadableSpan] = field(default_factory=list)


class HeldSpans(SpanProcessor):
    """Span processor that holds the ended spans of open traces until it has an exporter.

    A trace that ends before there is an exporter is forgotten: no model was called in it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._traces: OrderedDict[int, _Trace] = OrderedDict()
        self._held = 0
        self._begun_ns = 0
        """When this process was forked: what began before is its parent's to end."""
        self._processors: Sequence[SpanProcessor] | None = None
        """Where spans go on to; None while that is not known."""

    def forget(self) -> None:
        """Begin anew. A forked child does: what is open is its parent's."""
        self._lock = threading.Lock()
        self._traces.clear()
        self._held = 0
        self._begun_ns = time.time_ns()

    def hand_to(self, processors: Sequence[SpanProcessor]) -> None:
        """Have these processors see what has ended, and all that will end."""
        with self._lock:
            self._processors = tuple(processors)
            ended = [span for trace in self._traces.values() for span in trace.ended]
            self._traces.clear()
            self._held = 0
        for span in ended:
            self._hand_on(span)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """A span begins."""
        if self._processors is not None:
            for processor in self._processors:
                processor.on_start(span, parent_context)
            return
        with self._lock:
            self._traces.setdefault(_trace_id(span), _Trace()).open += 1
            while len(self._traces) > TRACES or self._held > HELD:
                self._held -= len(self._traces.popitem(last=False)[1].ended)

    def on_end(self, span: ReadableSpan) -> None:
        """A span has ended."""
        if (span.start_time or 0) < self._begun_ns:
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
        self._held += 1
        if trace.open <= 0:
            self._held -= len(self._traces.pop(_trace_id(span)).ended)

    def _hand_on(self, span: ReadableSpan) -> None:
        for processor in self._processors or ():
            processor.on_end(span)

    def shutdown(self) -> None:
        """Shut down where the spans go."""
        for processor in self._processors or ():
            processor.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Have what has ended exported."""
        done = [processor.force_flush(timeout_millis) for processor in self._processors or ()]
        return all(done)


def _trace_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    return 0 if context is None else context.trace_id
