"""Which instruments of the conventions other scopes hold in a meter provider."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.metrics import Meter, MeterProvider, NoOpMeter
from opentelemetry.sdk.metrics import MeterProvider as SDKMeterProvider

from endturn.telemetry import schema
from endturn.telemetry.foreign_metrics import ForeignInstrumentations, ForeignMetrics, owner

DURATION = schema.OPERATION_DURATION.name
TOKENS = schema.TOKEN_USAGE.name


def made(provider: MeterProvider) -> ForeignMetrics:
    """As endturn looks at a provider that it has instruments in."""
    provider.get_meter(schema.SCOPE).create_histogram(DURATION)
    found = ForeignMetrics(provider)
    found.refresh()
    return found


class Standing(MeterProvider):
    """One that stands before the SDK's, as Logfire's does."""

    def __init__(self) -> None:
        self.provider = SDKMeterProvider(shutdown_on_exit=False)

    def get_meter(self, name: str, *args: Any, **more: Any) -> Meter:
        return self.provider.get_meter(name, *args, **more)


@pytest.mark.parametrize("kind", [lambda: SDKMeterProvider(shutdown_on_exit=False), Standing])
def test_instruments_are_found_whoever_is_first(kind: Any) -> None:
    """Before and after endturn's own; another name of the same scope is another metric."""
    provider = kind()
    provider.get_meter("acme.agents").create_histogram(DURATION)
    found = made(provider)
    instrumentations = ForeignInstrumentations(("acme.spans",))
    assert found.record(DURATION, instrumentations)
    assert not found.record(TOKENS, instrumentations)
    assert not found.record(DURATION, ForeignInstrumentations(("other",)))
    assert not found.record(DURATION, ForeignInstrumentations())
    assert found.record(DURATION, ForeignInstrumentations(is_complete=False))
    provider.get_meter("acme.agents").create_histogram(TOKENS)
    provider.get_meter("acme.agents").create_histogram("acme.tokens")
    found.refresh(again=True)
    assert found.record(TOKENS, instrumentations)
    assert not found.record("acme.tokens", instrumentations)


def test_our_own_are_nobody_elses() -> None:
    """With nothing but endturn's instruments everything is recorded."""
    found = made(SDKMeterProvider(shutdown_on_exit=False))
    assert not found.record(DURATION, ForeignInstrumentations(is_complete=False))
    assert not found.record(DURATION, ForeignInstrumentations(("acme",)))


class Hidden(MeterProvider):
    """Built otherwise: nothing of it can be seen."""

    def get_meter(self, name: str, *args: Any, **more: Any) -> Meter:
        return NoOpMeter(name)


def test_where_instruments_are_hidden_the_known_ones_are_asked() -> None:
    """Of an unknown emitter it is taken that it measures nothing."""
    found = made(Hidden())
    assert found.record(DURATION, ForeignInstrumentations(("opentelemetry.instrumentation.genai.openai",)))
    assert not found.record(DURATION, ForeignInstrumentations(("openinference.instrumentation.openai",)))
    assert not found.record(DURATION, ForeignInstrumentations(is_complete=False))


@pytest.mark.parametrize(
    ("meter", "tracer", "same"),
    [
        ("openlit.otel.metrics", "openlit.instrumentation.openai", True),
        ("opentelemetry.util.genai.handler", "opentelemetry.instrumentation.genai.openai", True),
        ("gcp.vertex.agent", "gcp.vertex.agent", True),
        ("com.acme.meter", "com.acme.tracer", True),
        ("opentelemetry.instrumentation.openai.v1", "opentelemetry.instrumentation.openai_v2", False),
        ("opentelemetry.instrumentation.langchain", "openinference.instrumentation.langchain", False),
        ("com.acme", "com.other", False),
    ],
)
def test_whose_a_scope_is(meter: str, tracer: str, same: bool) -> None:
    """The first part of its name that is nobody's in particular is passed over."""
    assert (owner(meter) == owner(tracer)) is same
