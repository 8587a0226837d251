"""An end that runs no exit handlers."""

import os

import endturn
from endturn.vocabulary.stop import StopReason
from tests.telemetry.programs.parts.calls import call

telemetry = endturn.configure()
call(StopReason.END_TURN)
telemetry.force_flush()
call(StopReason.END_TURN)
os._exit(0)
