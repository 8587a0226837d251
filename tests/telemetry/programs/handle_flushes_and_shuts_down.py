"""The handle flushes and shuts down."""

import endturn
from endturn.calls import listeners as hooks
from endturn.vocabulary.stop import StopReason
from tests.telemetry.programs.parts.calls import call

with endturn.configure(resource={"service.name": "block"}) as telemetry:
    call(StopReason.END_TURN)
    assert telemetry.force_flush()
    print(hooks.listening())
print(hooks.listening())
call(StopReason.END_TURN)
