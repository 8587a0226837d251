"""The turns of an agent of somebody's framework, run against a scripted provider with endturn beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import endturn
from endturn.calls import listeners
from endturn.telemetry import cleanup
from endturn.testing.scripted import Reply, ScriptedProvider
from tests.support.announced import Announced


def turns_of(run: Callable[[str], Any], replies: Sequence[Reply]) -> tuple[Announced, ScriptedProvider]:
    """Run an agent, observed, with the spans that its framework makes.

    Args:
        run: given the provider's address, runs the agent; what it raises is its framework's way of ending.

    Returns:
        What was announced, with all spans that ended; and the provider, with the requests.
    """
    provider = ScriptedProvider(list(replies), exhausted="last")
    announced = Announced()
    processor = SimpleSpanProcessor(announced.exporter)
    tracers = trace.get_tracer_provider()
    if not isinstance(tracers, TracerProvider):
        tracers = TracerProvider(shutdown_on_exit=False)
        trace.set_tracer_provider(tracers)
    tracers.add_span_processor(processor)
    stop = listeners.subscribe(announced.append)
    endturn.instrument(tracer_provider=tracers)
    try:
        with provider.serve() as url:
            ran = run(url)
            if asyncio.iscoroutine(ran):
                asyncio.run(ran)
    finally:
        endturn.uninstrument()
        cleanup.run()
        stop()
        processor.shutdown()
    return announced, provider
