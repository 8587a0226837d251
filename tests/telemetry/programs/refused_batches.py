"""A batch that is refused is counted as dropped, and reported once."""

import endturn
from endturn.vocabulary.stop import StopReason
from tests.telemetry.programs.parts.calls import call

telemetry = endturn.configure()
for _ in range(2):
    call(StopReason.END_TURN)
    telemetry.force_flush()
