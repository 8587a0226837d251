"""Early spans and a fork."""

import os
import sys

from opentelemetry import trace

from tests.apps import bare

tracer = trace.get_tracer("framework")


def agent(name: str) -> None:
    with tracer.start_as_current_span(f"invoke_agent {name}", attributes={"gen_ai.operation.name": "invoke_agent"}):
        bare.ask("done", "Why?")


with tracer.start_as_current_span("parent"):
    with tracer.start_as_current_span("within the parent"):
        pass
    child = os.fork()
    if child == 0:
        agent("child")
        sys.exit()
    os.waitpid(child, 0)
    agent("parent")
