"""Forked processes have series of their own."""

import multiprocessing
import os
import sys
import warnings

from tests.telemetry.programs.parts.calls import call
from tests.telemetry.programs.parts.kept import configure

warnings.simplefilter("ignore", DeprecationWarning)
telemetry = configure()
call()
telemetry.force_flush()
child = os.fork()
if not child:
    call()
    sys.exit(0)
os.waitpid(child, 0)
worker = multiprocessing.get_context("fork").Process(target=call)
worker.start()
worker.join()
os._exit(0)
