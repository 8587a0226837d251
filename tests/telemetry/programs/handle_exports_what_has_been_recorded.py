"""The handle exports what has been recorded."""

import os

from tests.telemetry.programs.parts.calls import call
from tests.telemetry.programs.parts.kept import configure

telemetry = configure()
call()
telemetry.force_flush()
print("again", flush=True)
telemetry.force_flush()
os._exit(0)
