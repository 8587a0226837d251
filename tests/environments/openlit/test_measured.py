"""The conventions' metrics beside OpenLIT and OpenTelemetry's first instrumentation of openai."""

from __future__ import annotations

from tests.environments.measured import check_of, once

test_metrics_of_the_conventions = check_of(
    {
        "openai-v2": once("opentelemetry.instrumentation.openai_v2", tokens=2),  # it records none of a stream
        "openlit": once("openlit.otel.metrics"),
    }
)
