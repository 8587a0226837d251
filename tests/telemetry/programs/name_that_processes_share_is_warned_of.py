"""A name that processes share is warned of."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

import endturn

provider = MeterProvider([InMemoryMetricReader()])
endturn.instrument(tracer_provider=TracerProvider(), meter_provider=provider)
