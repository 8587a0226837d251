"""A process that is terminated exports what it has."""

import endturn
from tests.telemetry.programs.parts.calls import call
from tests.telemetry.programs.parts.terminate import terminate

endturn.configure()
call()
terminate()
