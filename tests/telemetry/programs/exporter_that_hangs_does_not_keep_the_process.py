"""An exporter that hangs does not keep the process."""

import endturn
from tests.telemetry.programs.parts.calls import call
from tests.telemetry.programs.parts.stuck import Stuck

endturn.configure(span_exporter=Stuck())
call()
