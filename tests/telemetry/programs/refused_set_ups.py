"""Set-ups that are refused."""

import sys

import endturn
from tests.telemetry.programs.parts.refused import refused

for package in ("opentelemetry.sdk", "opentelemetry.exporter"):
    sys.modules[package] = None  # type: ignore[assignment]
    refused()
    del sys.modules[package]
refused(span_exporter="console")
refused(log_exporter=dict)
refused(events="everywhere")
refused(resource="agent")
from opentelemetry.sdk.trace import TracerProvider

for given in ({"tracer_provider": "zz"}, {"tracer_provider": TracerProvider}, {"meter_provider": 1}):
    refused(endturn.instrument, **given)
