"""An agent of somebody's framework, run against a scripted provider: first alone, then with endturn beside it."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import TracerProvider

import endturn
from endturn.scripted import Reply, ScriptedProvider, call, partial_call, say, truncate

MODEL = "gpt-4o"
KEY = "none"
HI = [{"role": "user", "content": "hi"}]

Agent = Callable[..., Any]
"""Runs an agent that asks the server at this URL, and gives what its user gets, or its coroutine.

One that can stream takes `stream`, one that can be given functions as its tools, `tools`; without a default it has to.
"""

TRACERS = TracerProvider(shutdown_on_exit=False)
trace.set_tracer_provider(TRACERS)  # many frameworks make spans of their own

ANSWERS = pytest.mark.parametrize(
    "replies",
    [
        pytest.param([say("Hello there, you all")], id="whole"),
        pytest.param([truncate("Hello there, you all", after=2)], id="cut"),
    ],
)
TOOL_LOOPS = pytest.mark.parametrize(
    "replies",
    [
        pytest.param([call("weather", {"city": "Oslo"}), say("It rains.")], id="whole"),
        pytest.param([call("weather", {"city": "Oslo"}), truncate("It rains, and", after=1)], id="cut answer"),
        pytest.param([partial_call("weather", {"city": "Oslo"}, after=1), say("Never mind.")], id="cut call"),
    ],
)


def checks_of(*agents: Agent) -> tuple[Any, Any]:
    """The tests of an environment's agents: that they answer, whole and streamed; and of those with tools, a loop."""
    takes = {agent: signature(agent).parameters for agent in agents}
    answering = [agent for agent in agents if "tools" not in takes[agent] or takes[agent]["tools"].default == ()]
    streaming = [agent for agent in agents if "stream" in takes[agent]]
    with_tools = [agent for agent in agents if "tools" in takes[agent]]

    @ANSWERS
    @pytest.mark.parametrize("agent", [*map(_named, answering), *(_named(each, stream=True) for each in streaming)])
    def test_an_answer(agent: Agent, replies: Sequence[Reply]) -> None:
        check_each_request_counts_once(agent, replies)

    @TOOL_LOOPS
    @pytest.mark.parametrize("agent", [_named(each, tools=[weather]) for each in with_tools])
    def test_a_tool_loop(agent: Agent, replies: Sequence[Reply]) -> None:
        check_each_request_counts_once(agent, replies)

    return test_an_answer, test_a_tool_loop


def _named(agent: Agent, **asked: Any) -> Any:
    return pytest.param(partial(agent, **asked), id=" ".join([agent.__name__, *asked]))


def weather(city: str) -> str:
    """Say what the weather is.

    Args:
        city: The city's name.
    """
    return f"It rains in {city}."


def check_each_request_counts_once(agent: Agent, replies: Sequence[Reply]) -> None:
    """Each request is one response with the reason that it was given; what the agent does and gives is the same."""
    alone, _ = _play(agent, replies)
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    endturn.instrument(tracer_provider=TRACERS, meter_provider=meters)
    try:
        observed, given = _play(agent, replies)
        gc.collect()  # a stream that a framework leaves in a cycle of objects ends with it
        assert responses(reader) == Counter(str(reply.stop) for reply in given)
    finally:
        endturn.uninstrument()
        meters.shutdown()
    assert observed == alone


def responses(reader: InMemoryMetricReader) -> dict[str, int]:
    """How many responses were counted, by reason."""
    found: Counter[str] = Counter()
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data is not None else ():
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            if metric.name == "endturn.responses":
                for point in metric.data.data_points:
                    assert isinstance(point, NumberDataPoint)
                    found[str((point.attributes or {})["endturn.stop.reason"])] += int(point.value)
    return dict(+found)


def _play(agent: Agent, replies: Sequence[Reply]) -> tuple[tuple[str, int], list[Reply]]:
    """What the agent gave or raised, after how many requests; and the replies that it was given."""
    provider = ScriptedProvider(list(replies), exhausted="last")
    with provider.serve() as url:
        try:
            given = agent(url)
            result = repr(asyncio.run(given) if asyncio.iscoroutine(given) else given)
        except Exception as error:
            result = type(error).__name__
    requests = len(provider.received)
    assert requests, result
    return (result, requests), [replies[min(at, len(replies) - 1)] for at in range(requests)]
