"""A loop that is open when the process is terminated."""

import endturn
from tests.telemetry.programs.parts.loops import QUESTION, step
from tests.telemetry.programs.parts.terminate import terminate

endturn.configure()
step(QUESTION, "call_g7")
terminate()
