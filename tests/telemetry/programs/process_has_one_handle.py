"""A process has one handle."""

import logging
import sys

import endturn
from endturn.calls import listeners as hooks
from tests.telemetry.programs.parts.calls import call

logging.basicConfig(format="%(message)s", stream=sys.stdout)
telemetry = endturn.configure(service_name="first")
call()
print(endturn.configure(service_name="second") is telemetry)
endturn.uninstrument()
print(hooks.listening())
print(endturn.configure() is telemetry, len(hooks._listeners))
telemetry.shutdown()
print(endturn.configure() is telemetry, hooks.listening())
