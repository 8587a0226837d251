"""One signal's own protocol is asked for first."""

import endturn
from endturn.calls import listeners as hooks

telemetry = endturn.configure(instrument=False)
print(telemetry.instance != "", hooks.listening())
