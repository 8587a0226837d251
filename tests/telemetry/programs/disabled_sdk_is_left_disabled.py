"""A disabled SDK is left disabled."""

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

import endturn
from endturn.calls import listeners as hooks
from tests.telemetry.programs.parts.calls import call

endturn.instrument(tracer_provider=TracerProvider(), meter_provider=MeterProvider())  # they make nothing
print(hooks.listening())
telemetry = endturn.configure()
call()
print(type(trace.get_tracer_provider()).__name__, hooks.listening(), repr(telemetry.instance))
assert telemetry.force_flush()
telemetry.shutdown()
