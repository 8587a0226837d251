"""One call of a named service."""

import endturn
from tests.telemetry.programs.parts.calls import call

endturn.configure(service_name="agent")
call()
