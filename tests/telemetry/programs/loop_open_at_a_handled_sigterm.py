"""A loop that is open when the host handles its termination."""

import os
import signal
import threading

import endturn
from tests.telemetry.programs.parts.loops import QUESTION, step


def ours(number: int, frame: object) -> None:
    raise SystemExit(0)


signal.signal(signal.SIGTERM, ours)
endturn.configure()
step(QUESTION, "call_g7")
os.kill(os.getpid(), signal.SIGTERM)
threading.Event().wait()
