"""The end of a process by SIGTERM."""

import os
import signal
import threading


def terminate() -> None:
    """Send SIGTERM to this process, and wait for it."""
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()
