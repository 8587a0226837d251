"""A short process is collected twice at its end."""

import atexit

from tests.telemetry.programs.parts.calls import call
from tests.telemetry.programs.parts.kept import Kept, configure


@atexit.register  # and run after what is registered later
def told() -> None:
    (first, zero), (second, _) = Kept.seen
    print(first == second, zero, max(Kept.ms[0]) < min(Kept.ms[1]))


configure()
call()
call()
