"""The instrumentor needs no package of theirs."""

import sys

sys.modules["opentelemetry.instrumentation"] = None  # type: ignore[assignment]
from endturn.instrumentation.zero_code import EndturnInstrumentor

made = EndturnInstrumentor()
made.instrument()
print(made.is_instrumented_by_opentelemetry)
made.uninstrument()
