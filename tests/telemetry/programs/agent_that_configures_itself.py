"""An agent that sets its own telemetry up, with "late" after its first call."""

import logging
import sys

from tests.apps import bare

logging.basicConfig(stream=sys.stdout, format="%(message)s")
import endturn

if "late" in sys.argv:
    bare.ask("done", "of no interest")


def redact(text: str) -> str:
    return text.replace("planted", "[hidden]")


endturn.configure(content="SPAN_AND_EVENT", redact=redact, events="both", service_name="mine")
bare.ask("cut", "a planted word")
