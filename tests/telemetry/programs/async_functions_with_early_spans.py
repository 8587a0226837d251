"""Async functions with early spans."""

import asyncio

from opentelemetry import trace

from tests.apps import bare

tracer = trace.get_tracer("framework")


@tracer.start_as_current_span("invoke_agent A", attributes={"gen_ai.operation.name": "invoke_agent"})
async def agent() -> str:
    await asyncio.sleep(0)
    return await asyncio.to_thread(bare.ask, "cut", "Why?")


print(asyncio.iscoroutinefunction(agent), agent.__name__)
asyncio.run(agent())
