"""Another instrumentation and endturn in one process of their own, and what they measure of the same calls.

    python -m tests.environments.measured PEER FIRST [SAMPLER]

`FIRST` is who is set up first, "peer" or "endturn". Most instrumentations cannot be undone, so each has its process.
`measured` runs it, and gives what it prints.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import endturn
from endturn.calls import listeners
from endturn.testing.scripted import Reply, ScriptedProvider, fail, say

ROOT = Path(__file__).parents[2]
HI: Any = [{"role": "user", "content": "hi"}]
ANSWER, REFUSAL = say("Hello there"), fail(400)

SetUp = Callable[[TracerProvider, MeterProvider], Any]
Ask = Callable[[str], Any]
"""Asks the server at this URL, once for each reply."""


def measured(peer: str, first: str, sampler: str = "") -> dict[str, Any]:
    """What was measured, and how many spans there are, beside this instrumentation.

    Returns:
        `points`: metric → scope → how often it was recorded; `spans`: scope → how many.
    """
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.environments.measured",
        peer,
        first,
        *filter(None, [sampler]),
    ]
    ran = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


Counts = dict[str, int]


def once(scope: str, durations: int = 3, tokens: int = 4) -> tuple[Counts, Counts]:
    """All by one scope: three durations, and of the two answers input and output tokens."""
    return {scope: durations}, {scope: tokens}


def check_of(expected: dict[str, tuple[Counts, Counts]]) -> Any:
    """The test of an environment's instrumentations: who records the conventions' metrics, whoever is set up first.

    Args:
        expected: by instrumentation, how many durations and how many token counts each scope records.
    """

    @pytest.mark.parametrize("first", ["peer", "endturn"])
    @pytest.mark.parametrize("peer", expected)
    def test_metrics_of_the_conventions(peer: str, first: str) -> None:
        """No call of three is in one of them twice; endturn counts all three."""
        found = measured(peer, first)
        durations, tokens = expected[peer]
        assert found["points"]["gen_ai.client.operation.duration"] == durations
        assert found["points"].get("gen_ai.client.token.usage", {}) == tokens
        assert found["points"]["endturn.responses"] == {"endturn": 3}

    return test_metrics_of_the_conventions


# --- Who asks --------------------------------------------------------------------------------------------------------


def chat(url: str) -> None:
    """Whole, streamed, refused."""
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    ask = partial(client.chat.completions.create, model="gpt-5", messages=HI)
    ask()
    list(ask(stream=True, stream_options={"include_usage": True}))
    with suppress(openai.BadRequestError):
        ask()


def raw(url: str) -> None:
    """A raw stream, one left after its first event, a refused one: the span may be over before the response is."""
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    ask: dict[str, Any] = {"model": "gpt-5", "messages": HI, "stream": True}
    list(client.chat.completions.with_raw_response.create(**ask).parse())
    with client.chat.completions.create(**ask) as chunks:
        next(iter(chunks))
    with suppress(openai.BadRequestError):
        client.chat.completions.create(**ask)


def messages(url: str) -> None:
    """Whole, streamed, refused."""
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    ask: Any = partial(client.messages.create, model="claude-x", messages=HI, max_tokens=50)
    ask()
    list(ask(stream=True))
    with suppress(anthropic.BadRequestError):
        ask()


def langchain(url: str) -> None:
    from langchain_openai import ChatOpenAI

    model: Any = ChatOpenAI(model="gpt-5", base_url=f"{url}/v1", api_key="none", max_retries=0, stream_usage=True)
    model.invoke("hi")
    list(model.stream("hi"))
    with suppress(Exception):
        model.invoke("hi")


def agent_framework(url: str) -> None:
    import openai
    from agent_framework import Agent
    from agent_framework.openai import OpenAIChatCompletionClient

    http = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    agent: Any = Agent(client=OpenAIChatCompletionClient(model="gpt-5", async_client=http))

    async def run() -> None:
        await agent.run("hi")
        _ = [update async for update in agent.run("hi", stream=True)]
        with suppress(Exception):
            await agent.run("hi")

    asyncio.run(run())


def adk(url: str) -> None:
    from google.adk.agents import LlmAgent
    from google.adk.models.lite_llm import LiteLlm
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    model = LiteLlm(model="openai/gpt-5", api_base=f"{url}/v1", api_key="none", num_retries=0)
    runner = InMemoryRunner(agent=LlmAgent(name="helper", model=model), app_name="app")
    hi = types.Content(role="user", parts=[types.Part(text="hi")])

    async def run() -> None:
        session = await runner.session_service.create_session(app_name="app", user_id="u")
        for _ in range(3):
            with suppress(Exception):
                _ = [event async for event in runner.run_async(user_id="u", session_id=session.id, new_message=hi)]

    asyncio.run(run())


def langfuse(url: str) -> None:
    """Langfuse's wrapper of the OpenAI SDK."""
    from langfuse.openai import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    ask = partial(client.chat.completions.create, model="gpt-5", messages=HI)
    ask()
    list(ask(stream=True, stream_options={"include_usage": True}))
    with suppress(Exception):
        ask()


# --- Who watches -----------------------------------------------------------------------------------------------------


OTEL, OPENINFERENCE = "opentelemetry.instrumentation", "openinference.instrumentation"


def by(*instrumentors: str) -> SetUp:
    """Instrumentors in the form that OpenTelemetry's have."""

    def set_up(tracers: TracerProvider, meters: MeterProvider) -> None:
        for each in instrumentors:
            instrumentor: Any = resolve_name(each)()
            instrumentor.instrument(skip_dep_check=True, tracer_provider=tracers, meter_provider=meters)

    return set_up


def nothing(tracers: TracerProvider, meters: MeterProvider) -> None:
    """It uses the global providers without being asked to."""


def elsewhere(tracers: TracerProvider, meters: MeterProvider) -> None:
    """Its metrics go to a meter provider of its own."""
    by(f"{OTEL}.genai.openai:OpenAIInstrumentor")(tracers, MeterProvider(shutdown_on_exit=False))


def openlit(tracers: TracerProvider, meters: MeterProvider) -> None:
    import openlit as package

    package.init(disable_batch=True, collect_system_metrics=False)


def langfuse_client(tracers: TracerProvider, meters: MeterProvider) -> None:
    import langfuse as package

    package.Langfuse(public_key="pk", secret_key="sk", base_url="http://127.0.0.1:9", tracer_provider=tracers)


PEERS: dict[str, tuple[SetUp, Ask]] = {
    "genai-openai": (by(f"{OTEL}.genai.openai:OpenAIInstrumentor"), chat),
    "genai-anthropic": (by(f"{OTEL}.genai.anthropic:AnthropicInstrumentor"), messages),
    "openai-v2": (by(f"{OTEL}.openai_v2:OpenAIInstrumentor"), chat),
    "openllmetry-openai": (by(f"{OTEL}.openai:OpenAIInstrumentor"), chat),
    "openllmetry-anthropic": (by(f"{OTEL}.anthropic:AnthropicInstrumentor"), messages),
    "openllmetry-langchain": (by(f"{OTEL}.langchain:LangchainInstrumentor"), langchain),
    "openinference-openai": (by(f"{OPENINFERENCE}.openai:OpenAIInstrumentor"), chat),
    "openinference-anthropic": (by(f"{OPENINFERENCE}.anthropic:AnthropicInstrumentor"), messages),
    "openinference-langchain": (by(f"{OPENINFERENCE}.langchain:LangChainInstrumentor"), langchain),
    "openlit": (openlit, chat),
    "langfuse": (langfuse_client, langfuse),
    "agent-framework": (nothing, agent_framework),
    "adk": (nothing, adk),
    "anthropic": (nothing, messages),
    "genai-openai-raw": (by(f"{OTEL}.genai.openai:OpenAIInstrumentor"), raw),
    "openllmetry-openai-raw": (by(f"{OTEL}.openai:OpenAIInstrumentor"), raw),
    "genai-elsewhere": (elsewhere, chat),
    "genai-beside-openinference": (
        by(f"{OTEL}.genai.anthropic:AnthropicInstrumentor", f"{OPENINFERENCE}.openai:OpenAIInstrumentor"),
        chat,
    ),
}


def main(peer: str, first: str, sampler: str = "") -> None:
    """Set both up, ask, and print what came out."""
    set_up, ask = PEERS[peer]
    tracers = TracerProvider(sampler=ALWAYS_OFF if sampler == "off" else None, shutdown_on_exit=False)
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    meters = MeterProvider([reader], shutdown_on_exit=False)
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(meters)
    if first == "peer":
        set_up(tracers, meters)
    endturn.instrument()
    if first != "peer":
        set_up(tracers, meters)
    replies: list[Reply] = [ANSWER, ANSWER, REFUSAL]
    with ScriptedProvider(replies).serve() as url, listeners.strict():
        ask(url)
    points: dict[str, Counts] = {}
    data = reader.get_metrics_data()
    for scope in [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []:
        for metric in scope.metrics:
            for point in metric.data.data_points:
                counted = getattr(point, "count", None) or getattr(point, "value", 0)
                if counted:
                    of_scopes = points.setdefault(metric.name, {})
                    of_scopes[scope.scope.name] = of_scopes.get(scope.scope.name, 0) + counted
    made: dict[str, int] = {}
    for span in spans.get_finished_spans():
        name = span.instrumentation_scope.name if span.instrumentation_scope else ""
        made[name] = made.get(name, 0) + 1
    print(json.dumps({"points": points, "spans": made}))
    sys.stdout.flush()
    os._exit(0)  # some wait at the end for a server that is not there


if __name__ == "__main__":
    main(*sys.argv[1:])
