"""A series that comes later is new too."""

from tests.telemetry.programs.parts.calls import call
from tests.telemetry.programs.parts.kept import configure, meter_provider

configure()
flush = meter_provider().force_flush
flush()
call()
flush()
flush()
call()
flush()
