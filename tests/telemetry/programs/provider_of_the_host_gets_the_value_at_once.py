"""A provider of the host gets the value at once."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

import endturn
from tests.telemetry.programs.parts.calls import call
from tests.telemetry.programs.parts.kept import Kept

endturn.instrument(meter_provider=MeterProvider([PeriodicExportingMetricReader(Kept())]))
call()
