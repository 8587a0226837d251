"""A host that sets up its metrics later is heard."""

import endturn
from endturn.calls import listeners as hooks
from tests.telemetry.programs.parts.calls import call

endturn.instrument()
print(hooks.listening())
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
import time

time.sleep(0.1)  # a missing provider is looked for every 50 ms at most
print(hooks.listening())
call()
data = reader.get_metrics_data()
assert data is not None
recorded = data.resource_metrics[0].scope_metrics[0].metrics
print("endturn.responses" in {metric.name for metric in recorded})
