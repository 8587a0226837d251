"""A span that is made when its call is over is the one that the SDK would have begun, described and ended."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from endturn.telemetry import finished

FOUND: dict[str, Any] = {"a": "long text", "b": 1, "c": ("x", "y")}


class Kept:
    """A tracer and what it exports."""

    def __init__(self, **options: Any) -> None:
        self._spans = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False, **options)
        provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.tracer: Any = provider.get_tracer("test", "1")

    def both(self, context: Context) -> list[Any]:
        """The span of the SDK's own way, and ours."""
        asked = "s", context, SpanKind.CLIENT
        for span in (self.tracer.start_span(*asked, start_time=5), finished.started(self.tracer, *asked, 5)):
            span.set_attributes(FOUND)
            span.set_attribute("d", True)
            span.set_status(Status(StatusCode.ERROR, "why"))
            span.end(9)
        return list(self._spans.get_finished_spans())


def shown(span: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(span.to_json())
    del found["context"]["span_id"], found["context"]["trace_id"]
    return found | {"dropped": span.dropped_attributes, "scope": span.instrumentation_scope.name}


def test_the_sdk_of_this_environment_is_known() -> None:
    """The short way is in use with the SDK that the tests run with."""
    span = finished.started(Kept().tracer, "s", Context(), SpanKind.CLIENT, 1)
    assert isinstance(span, finished.Finished)


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({}, id="no limit is reached"),
        pytest.param({"max_span_attributes": 2}, id="too many attributes"),
        pytest.param({"max_span_attribute_length": 4}, id="too long a value"),
    ],
)
@pytest.mark.parametrize("flags", [None, 0, 1, 3], ids=["a root", "not sampled", "sampled", "sampled, at random"])
def test_it_is_the_span_that_the_sdk_would_have_made(limits: dict[str, int], flags: int | None) -> None:
    """Under every kind of parent, and within limits."""
    context = Context()
    if flags is not None:
        parent = SpanContext(7, 8, True, TraceFlags(flags))
        context = trace.set_span_in_context(NonRecordingSpan(parent), context)
    spans = Kept(span_limits=SpanLimits(**limits)).both(context)
    assert len(spans) == (0 if flags == 0 else 2)
    if spans:
        assert shown(spans[0]) == shown(spans[1])
        assert spans[0].context.trace_flags == spans[1].context.trace_flags
        assert (spans[0].context.trace_id == spans[1].context.trace_id) == (flags is not None)
        assert spans[0].context.span_id != spans[1].context.span_id


def test_what_is_not_sampled_has_ids_and_nothing_else() -> None:
    """As the SDK's: what is made within it is of its trace."""
    span = finished.started(Kept(sampler=ALWAYS_OFF).tracer, "s", Context(), SpanKind.CLIENT, 1)
    assert not span.is_recording()
    assert span.get_span_context().is_valid
    assert not span.get_span_context().trace_flags.sampled


def test_a_share_of_the_traces_is_sampled_by_their_ids() -> None:
    """The decision is the sampler's, for the very id that the span gets."""
    sampler = TraceIdRatioBased(0.5)
    tracer = Kept(sampler=sampler).tracer
    for _ in range(50):
        span = finished.started(tracer, "s", Context(), SpanKind.CLIENT, 1)
        trace_id = span.get_span_context().trace_id
        assert span.is_recording() is (trace_id & sampler.TRACE_ID_LIMIT < sampler.bound)


def test_it_ends_once() -> None:
    """And records nothing afterwards."""
    kept = Kept()
    span = finished.started(kept.tracer, "s", Context(), SpanKind.CLIENT, 1)
    assert span.is_recording()
    span.end(2)
    span.end(3)
    assert not span.is_recording()
    assert [each.end_time for each in kept._spans.get_finished_spans()] == [2]
