"""A loop that is open when the process ends."""

import endturn
from tests.telemetry.programs.parts.loops import QUESTION, answered, step

endturn.configure()
step(QUESTION, "call_g7")
step(answered(QUESTION, "call_g7"), "call_h8")
