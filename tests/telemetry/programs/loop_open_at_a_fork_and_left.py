"""A loop that is open when a process forks, and is left."""

import os
import warnings

import endturn
from tests.telemetry.programs.parts.loops import QUESTION, step

warnings.simplefilter("ignore", DeprecationWarning)
endturn.configure()
step(QUESTION, "call_g7")
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
