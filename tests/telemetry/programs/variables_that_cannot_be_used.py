"""Variables that cannot be used."""

import endturn
from tests.telemetry.programs.parts.calls import call

endturn.configure()
endturn.instrument()
call()
