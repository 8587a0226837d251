"""One call."""

import endturn
from tests.telemetry.programs.parts.calls import call

endturn.configure()
call()
