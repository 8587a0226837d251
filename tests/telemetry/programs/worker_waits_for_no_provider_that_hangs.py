"""A worker waits for no provider that hangs."""

import multiprocessing
import warnings

import endturn
from tests.telemetry.programs.parts.calls import call
from tests.telemetry.programs.parts.stuck import Stuck

warnings.simplefilter("ignore", DeprecationWarning)
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(BatchSpanProcessor(Stuck()))
trace.set_tracer_provider(provider)
endturn.instrument()
worker = multiprocessing.get_context("fork").Process(target=call)
worker.start()
worker.join()
print(worker.exitcode)
