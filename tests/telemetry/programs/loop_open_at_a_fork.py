"""A loop that is open when a process forks."""

import os
import warnings

import endturn
from endturn.vocabulary.stop import StopReason
from tests.telemetry.programs.parts.loops import QUESTION, answered, step

warnings.simplefilter("ignore", DeprecationWarning)
endturn.configure()
step(QUESTION, "call_g7")
history = answered(QUESTION, "call_g7")
child = os.fork()
step(history, reason=StopReason.END_TURN)
if child:
    assert os.waitpid(child, 0)[1] == 0
