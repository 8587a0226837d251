"""A loop that is open when the process ends, in which a truncated call was run."""

import endturn
from endturn.vocabulary.stop import StopReason
from tests.telemetry.programs.parts.loops import QUESTION, answered, step

endturn.configure()
step(QUESTION, "call_g7", reason=StopReason.MAX_TOKENS)
step(answered(QUESTION, "call_g7"), "call_h8")
