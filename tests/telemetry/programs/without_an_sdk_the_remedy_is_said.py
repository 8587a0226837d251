"""Without an SDK the remedy is said."""

import sys

import endturn
from endturn.testing.scripted import say
from tests.telemetry.programs.parts.scripted import ask

for _ in range(2):
    endturn.instrument()
    print("instrumented", file=sys.stderr)
    for _ in range(2):
        ask(say("Hello"))
    endturn.uninstrument()
