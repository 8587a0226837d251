"""Six hundred calls, and an end when it is told to."""

import sys

import endturn
from tests.telemetry.programs.parts.calls import call

telemetry = endturn.configure()
for _ in range(600):
    call()
sys.stdout.write("called")
sys.stdout.flush()
sys.stdin.readline()
telemetry.shutdown()
