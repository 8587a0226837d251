"""Attributes of a span or a log record are the same whichever way they are set, and limits hold."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider, LogRecordLimits
from opentelemetry.sdk._logs.export import (
    BatchLogRecordProcessor,
    InMemoryLogRecordExporter,
    SimpleLogRecordProcessor,
)
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)

from endturn.telemetry import described
from endturn.telemetry.attributes import Attributes

FOUND: Attributes = {"a": "long text", "b": 1, "c": ("x", "y")}


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({}, id="no limit is reached"),
        pytest.param({"max_span_attributes": 2}, id="too many attributes"),
        pytest.param({"max_span_attribute_length": 4}, id="too long a value"),
    ],
)
@pytest.mark.parametrize("before", [{}, {"b": 2}], ids=["all are new", "one is known"])
def test_a_described_span_is_the_one_that_the_sdk_would_have_made(limits: dict[str, int], before: Any) -> None:
    """Order, truncation and the count of what was dropped are those of `set_attributes`."""
    tracer = TracerProvider(shutdown_on_exit=False, span_limits=SpanLimits(**limits)).get_tracer("test")
    one, other = (tracer.start_span("s", attributes=before) for _ in range(2))
    one.set_attributes(FOUND)
    described.describe(other, FOUND)
    seen: list[Any] = [one, other]
    first, second = ((list(span.attributes.items()), span.dropped_attributes) for span in seen)
    assert first == second


def test_the_sdk_of_this_environment_is_known() -> None:
    """The short way is in use with the SDK that the tests run with."""
    span = TracerProvider(shutdown_on_exit=False).get_tracer("test").start_span("s")
    assert described._is_known(type(span))


def test_an_ended_span_takes_nothing() -> None:
    """What comes after the end is dropped, as the SDK drops it."""
    span: Any = TracerProvider(shutdown_on_exit=False).get_tracer("test").start_span("s")
    span.end()
    described.describe(span, FOUND)
    assert not span.attributes


@pytest.mark.filterwarnings("ignore:Log record attributes were dropped")
@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({}, id="no limit is reached"),
        pytest.param({"max_log_record_attributes": 2}, id="too many attributes"),
        pytest.param({"max_log_record_attribute_length": 4}, id="too long a value"),
    ],
)
def test_an_emitted_record_is_the_one_that_the_sdk_would_have_made(limits: dict[str, int]) -> None:
    """Order, truncation and the count of what was dropped are those of `Logger.emit`."""
    kept: Any = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider = LoggerProvider(shutdown_on_exit=False, log_record_limits=LogRecordLimits(**limits))
    provider.add_log_record_processor(SimpleLogRecordProcessor(kept))
    logger = provider.get_logger("test", "1")
    assert described.is_known_logger(type(logger))
    text, number = "INFO", SeverityNumber.INFO
    within = trace.set_span_in_context(trace.NonRecordingSpan(trace.SpanContext(1, 2, False, trace.TraceFlags(1))))
    for context in (None, within):
        kept.clear()
        fields: dict[str, Any] = {"event_name": "e", "timestamp": 1, "severity_text": text, "severity_number": number}
        logger.emit(attributes=dict(FOUND), context=context, **fields)
        described.emit(logger, "e", dict(FOUND), 1, context, text, number)
        first, second = kept.get_finished_logs()
        assert 0 <= second.log_record.observed_timestamp - first.log_record.observed_timestamp < 10**9
        second.log_record.observed_timestamp = first.log_record.observed_timestamp
        assert first.to_json() == second.to_json()
        assert list(first.log_record.attributes.items()) == list(second.log_record.attributes.items())
        assert first.dropped_attributes == second.dropped_attributes


def test_a_record_that_is_batched_keeps_its_context_for_others() -> None:
    """A batch processor lets go of the context in its own copy: who comes after it still sees it."""
    seen: list[Any] = []

    class Second:
        def on_emit(self, record: Any) -> None:
            seen.append(record.log_record.context)

        def shutdown(self) -> None:
            """Nothing is held."""

    kept: Any = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(kept))
    provider.add_log_record_processor(Second())  # type: ignore[arg-type]  # as much of one as is asked here
    context = Context({"host": "value"})
    described.emit(provider.get_logger("test"), "e", dict(FOUND), 1, context, "INFO", SeverityNumber.INFO)
    provider.shutdown()
    assert seen == [context]
    assert [each.log_record.context for each in kept.get_finished_logs()] == [Context()]


class Looking(Sampler):
    """A sampler that may look at anything."""

    def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
        return ALWAYS_ON.should_sample(None, 1, "")

    def get_description(self) -> str:
        return "looking"


@pytest.mark.parametrize(
    ("sampler", "is_blind"),
    [
        (ALWAYS_ON, True),
        (ALWAYS_OFF, True),
        (ParentBased(TraceIdRatioBased(0.5)), True),
        (Looking(), False),
        (ParentBased(Looking()), False),
        (ParentBased(ALWAYS_ON, remote_parent_not_sampled=Looking()), False),
    ],
)
def test_a_sampler_that_may_look_at_attributes_is_given_them(sampler: Sampler, is_blind: bool) -> None:
    """Only the SDK's own, all the way down, are known not to look."""
    tracer = TracerProvider(sampler, shutdown_on_exit=False).get_tracer("test")
    assert described.begins_anywhere(tracer) is is_blind
