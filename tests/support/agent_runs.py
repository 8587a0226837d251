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
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

import endturn
from endturn.testing.scripted import Reply, ScriptedProvider, call, partial_call, say, truncate
from endturn.vocabulary.stop import StopReason
from tests.support.announced import counted

MODEL = "gpt-4o"
KEY = "none"
HI = [{"role": "user", "content": "hi"}]

Agent = Callable[..., Any]
"""Runs an agent that asks the server at this URL, and gives what its user gets, or its coroutine.

One that can stream takes `stream`, one that can be given functions as its tools, `tools`; without a default it has to.
"""


class SwitchedTracer(trace.Tracer):
    """A framework's tracer, which it takes once: it makes spans while its provider is not off."""

    def __init__(self, provider: SwitchedTracers, real: trace.Tracer) -> None:
        self._provider, self._real, self._none = provider, real, trace.NoOpTracer()

    def _tracer(self) -> trace.Tracer:
        return self._none if self._provider.is_off else self._real

    def start_span(self, *args: Any, **kwargs: Any) -> trace.Span:
        return self._tracer().start_span(*args, **kwargs)

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        return self._tracer().start_as_current_span(*args, **kwargs)


class SwitchedTracers(TracerProvider):
    """The global tracer provider, whose spans by others than endturn can be switched off.

    Attributes:
        is_off: nobody but endturn makes spans.
    """

    is_off = False

    def get_tracer(self, instrumenting_module_name: str, *args: Any, **kwargs: Any) -> trace.Tracer:
        """A tracer of that name."""
        real = super().get_tracer(instrumenting_module_name, *args, **kwargs)
        return real if instrumenting_module_name == "endturn" else SwitchedTracer(self, real)


TRACERS = SwitchedTracers(shutdown_on_exit=False)
trace.set_tracer_provider(TRACERS)  # many frameworks make spans of their own

ANSWERS = {
    "whole": [say("Hello there, you all")],
    "cut": [truncate("Hello there, you all", after=2)],
}
TOOL_LOOPS = {
    "whole": [call("weather", {"city": "Oslo"}), say("It rains.")],
    "cut answer": [call("weather", {"city": "Oslo"}), truncate("It rains, and", after=1)],
    "cut call": [partial_call("weather", {"city": "Oslo"}, after=1), say("Never mind.")],
}


def weather(city: str) -> str:
    """Say what the weather is.

    Args:
        city: The city's name.
    """
    return f"It rains in {city}."


WAYS: list[tuple[dict[str, Any], dict[str, list[Reply]]]] = [
    ({}, ANSWERS), ({"stream": True}, ANSWERS), ({"tools": [weather]}, TOOL_LOOPS)
]  # fmt: skip


def check_of(*agents: Agent, beside: Sequence[Any] = (), in_text: Sequence[Agent] = ()) -> Any:
    """The test of an environment's agents: that they answer, whole and streamed; and of those with tools, a loop.

    Args:
        beside: instrumentations of somebody else's, at work before endturn is.
        in_text: agents that tell a tool's results in text, so that a step of theirs is a turn.
    """
    cases = []
    for agent in agents:
        _, *takes = signature(agent).parameters.values()
        needed = {one.name for one in takes if one.default is one.empty}
        cases += [
            pytest.param(partial(agent, **given), replies, id=" ".join([agent.__name__, *given, name]))
            for given, scripts in WAYS
            if needed <= given.keys() <= {one.name for one in takes}
            for name, replies in scripts.items()
        ]

    @pytest.mark.parametrize(("agent", "replies"), cases)
    def test_each_request_counts_once(agent: partial[Any], replies: Sequence[Reply]) -> None:
        """It is one response with the reason that it was given; what the agent does and gives is the same."""
        alone, _ = _play(agent, replies)
        others = [kind() for kind in beside]
        for each in others:
            each.instrument(tracer_provider=TRACERS, skip_dep_check=True)
        reader = InMemoryMetricReader()
        meters = MeterProvider([reader], shutdown_on_exit=False)
        endturn.instrument(tracer_provider=TRACERS, meter_provider=meters)
        try:
            observed, given = _play(agent, replies)
            gc.collect()  # a stream that a framework leaves in a cycle of objects ends with it
            assert counted(reader) == Counter(str(reply.stop) for reply in given)
        finally:
            endturn.uninstrument()  # turns that wait end
            turns = counted(reader, "endturn.turns")
            meters.shutdown()
            for each in others:
                each.uninstrument()
        assert observed == alone
        if "tools" in agent.keywords:
            # The user asked once, whatever steps the agent took: one turn. It is unfinished if its answer is truncated.
            _, requests = observed
            assert sum(turns.values()) == 1 or (agent.func in in_text and sum(turns.values()) <= requests)
            if requests == len(replies) and replies[-1].stop is StopReason.MAX_TOKENS:
                assert turns["not_continued"] == 1

    return test_each_request_counts_once


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
