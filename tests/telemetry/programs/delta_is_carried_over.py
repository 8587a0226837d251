"""A delta is carried over."""

from opentelemetry.sdk.metrics import ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality

from tests.telemetry.programs.parts.calls import call
from tests.telemetry.programs.parts.kept import configure, meter_provider

configure(preferred_temporality={ObservableCounter: AggregationTemporality.DELTA})
call()
meter_provider().force_flush()
call()
meter_provider().force_flush()
