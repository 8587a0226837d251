"""Turns by the hundred, for a fleet: plays them with endturn and prints each one's trace and kind, as JSON.

Its arguments: how many turns, a number to begin with, and how many turns a second at most. Of ten turns one is cut off
and left so, one is cut off and continued, eight are whole. It runs on, as a service does, until its standard input
ends.
"""

from __future__ import annotations

import json
import sys
import time

from opentelemetry import _logs, metrics, trace

import endturn
from endturn import ContinuationController, ContinuationPolicy, Message, Request, ScriptedProvider, StopReason
from endturn.testing.scripted import reason, say

endturn.configure()

TURNS, FIRST, MOST = (int(number) for number in sys.argv[1:])
KINDS = {0: "truncated", 1: "continued"}
CUT = reason(StopReason.MAX_TOKENS, "A long answer that")
SCRIPTS = {
    "truncated": [CUT],
    "continued": [CUT, say("the limit of tokens ends.")],
    "whole": [say("Done.")],
}


def main() -> None:
    """Play, and have all of it exported."""
    tracer, began = trace.get_tracer("load"), time.monotonic()
    for n in range(FIRST, FIRST + TURNS):
        kind = KINDS.get(n % 10, "whole")
        policy = ContinuationPolicy(continuation_max_attempts=0) if kind == "truncated" else ContinuationPolicy()
        controller = ContinuationController(ScriptedProvider(SCRIPTS[kind]), policy=policy)
        with tracer.start_as_current_span("request") as span:
            controller.run(Request(model=f"model-{n % 7 % 3}", messages=(Message(role="user", content=f"{n}?"),)))
        print(json.dumps([f"{span.get_span_context().trace_id:032x}", kind]), flush=True)
        time.sleep(max(0, began + (n + 1 - FIRST) / MOST - time.monotonic()))
        if n % 100 == 99:  # before the exporters' queues are full
            flush()
    flush()
    sys.stdin.read()


def flush() -> None:
    """Export what is waiting."""
    for provider in (trace.get_tracer_provider(), _logs.get_logger_provider(), metrics.get_meter_provider()):
        if callable(force := getattr(provider, "force_flush", None)):
            force()


main()
