"""The instrumentor never raises."""

from endturn.calls import listeners as hooks
from endturn.instrumentation.zero_code import EndturnInstrumentor

made = EndturnInstrumentor()
made.instrument(events="everywhere", skip_dep_check=True)
made.instrument(tracer_provider="none")
print(made.is_instrumented_by_opentelemetry, hooks.listening())
made.instrument(evnts="logs", agent=True, raise_exception_on_conflict=True)
made.instrument()
print(EndturnInstrumentor().is_instrumented_by_opentelemetry, made.instrumentation_dependencies())
made.uninstrument()
made.uninstrument()
print(made.is_instrumented_by_opentelemetry)
