"""A span's attributes are the same whichever way they are set, and its limits hold."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanLimits, TracerProvider

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
