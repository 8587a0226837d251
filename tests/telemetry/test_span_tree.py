"""The law of a turn's spans: all of them descend from the span of their turn, whoever drives the turn, and however."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import openai
import pytest
from opentelemetry.trace import Tracer

from endturn.continuation.controller import AsyncContinuationController, ContinuationController, TurnResult
from endturn.continuation.policy import ContinuationPolicy, presets
from endturn.instrumentation.decorators import observe_turn
from endturn.providers.http_client import AsyncClient, Client
from endturn.testing.scripted import ScriptedProvider, call, partial_call, say, truncate
from endturn.vocabulary.messages import Delta, Message, Request, Tool, ToolCall
from tests.telemetry.stage import Recording, Stage, spans_outside_their_turn

LOOK_UP = Tool(name="look_up", parameters={"type": "object", "properties": {"q": {"type": "string"}}})
ASK = Request(model="m", messages=(Message(role="user", content="Go"),), max_tokens=400)
SCRIPT = (
    truncate("I shall look", after=2),
    call("look_up", {"q": "x"}, text=" it up."),
    partial_call("look_up", {"q": "a long question"}, after=2),
    call("look_up", {"q": "a long question"}),
    say("end"),
)
"""A continuation, two tool calls and a repair."""


def script() -> ScriptedProvider:
    return ScriptedProvider(list(SCRIPT), exhausted="last")


def sub_agent(asked: ToolCall) -> str:
    """Run an agent within a tool: it has a cut answer and a tool of its own."""
    provider = ScriptedProvider([truncate("I ask", after=1), call("look_up", {"q": "y"}), say("inner")])
    controller = ContinuationController(provider, tools=[(LOOK_UP, lambda _: "found")], agent="sub")
    return controller.run(ASK).text


def in_a_thread(asked: ToolCall) -> str:
    """Run the agent in a thread, with the caller's context, as `asyncio.to_thread` and OpenTelemetry's own do."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(copy_context().run, sub_agent, asked).result()


async def sub_agent_in_a_task(asked: ToolCall) -> str:
    """Run two agents side by side, one a task and one a thread."""
    provider = ScriptedProvider([truncate("I ask", after=1), say(" inner")])
    controller = AsyncContinuationController(provider.astream, agent="sub")
    result, _ = await asyncio.gather(controller.run(ASK), asyncio.to_thread(sub_agent, asked))
    return result.text


TOOLS: dict[str, Callable[[ToolCall], Any]] = {
    "a plain tool": lambda _: "found",
    "a sub-agent": sub_agent,
    "a sub-agent in a thread": in_a_thread,
}
ASYNC_TOOLS: dict[str, Callable[[ToolCall], Any]] = {**TOOLS, "sub-agents in tasks": sub_agent_in_a_task}


def failing(_: ToolCall) -> str:
    raise ValueError("no")


TOOLS["a tool that raises"] = failing


def controller(function: Callable[[ToolCall], Any], provider: Any = None, **settings: Any) -> ContinuationController:
    return ContinuationController(provider or script().stream, tools=[(LOOK_UP, function)], agent="main", **settings)


def assert_law(stage: Stage, *, agents: set[str], tools: int) -> None:
    """Check that the turns and the tools have spans, and that every span descends from its turn's."""
    spans = stage.finished()
    assert spans_outside_their_turn(spans) == []
    names = [span["name"] for span in spans]
    assert {name for name in names if name.startswith("invoke_agent")} == agents
    assert names.count("execute_tool look_up") >= tools
    own = {span["name"]: span for span in spans}
    if "invoke_agent sub" in own:  # an agent within a tool is a part of that tool's run
        by_id = {span["span"]: span["name"] for span in spans}
        assert by_id[own["invoke_agent sub"]["parent"]] == "execute_tool look_up"
        assert len({span["trace"] for span in spans if "endturn.turn.id" in span["attributes"]}) == 1


def agents_of(tool: str) -> set[str]:
    return {"invoke_agent main"} | ({"invoke_agent sub"} if "sub-agent" in tool else set())


@pytest.fixture
def stage(recording: Recording) -> Stage:
    return recording()


@pytest.fixture
def host(stage: Stage) -> Tracer:
    """The host's own tracer."""
    return stage.tracers.get_tracer("host")


# --- Who drives the turn ----------------------------------------------------------------------------------------


def run(turn: ContinuationController, host: Tracer) -> None:
    turn.run(ASK)


def run_in_a_request(turn: ContinuationController, host: Tracer) -> None:
    with host.start_as_current_span("POST /chat"):
        turn.run(ASK)


def streamed(turn: ContinuationController, host: Tracer) -> None:
    """The consumer makes spans of its own between two items."""
    for _ in turn.stream(ASK):
        with host.start_as_current_span("show"):
            pass


def streamed_from_many_places(turn: ContinuationController, host: Tracer) -> None:
    """Each item is read within another span, as by a server that makes one for each message it sends."""
    items = turn.stream(ASK)
    item: Delta | TurnResult | None = None
    while not isinstance(item, TurnResult):
        with host.start_as_current_span("send"):
            item = next(items)


def streamed_by_threads(turn: ContinuationController, host: Tracer) -> None:
    """Each item is read in a thread without any context, as frameworks read a plain generator."""
    with ThreadPoolExecutor(1) as threads:
        items = turn.stream(ASK)
        while not isinstance(threads.submit(next, items).result(), TurnResult):
            pass


DRIVERS = (run, run_in_a_request, streamed, streamed_from_many_places, streamed_by_threads)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("drive", DRIVERS)
def test_spans_descend_from_their_turn(
    stage: Stage, host: Tracer, drive: Callable[[ContinuationController, Tracer], None], tool: str
) -> None:
    """Sync, whole and streamed, with and without a span of the host's."""
    drive(controller(TOOLS[tool]), host)
    assert_law(stage, agents=agents_of(tool), tools=2)


@pytest.mark.parametrize("tool", ASYNC_TOOLS)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_async_spans_descend_from_their_turn(stage: Stage, host: Tracer, is_streamed: bool, tool: str) -> None:
    """Async, whole and streamed, within a request of the host's."""
    provider = script()
    complete = provider.astream if is_streamed else provider.acomplete
    turn = AsyncContinuationController(complete, tools=[(LOOK_UP, ASYNC_TOOLS[tool])], agent="main")
    with host.start_as_current_span("POST /chat"):
        if is_streamed:
            async for _ in turn.stream(ASK):
                with host.start_as_current_span("show"):
                    await asyncio.sleep(0)
        else:
            await turn.run(ASK)
    assert_law(stage, agents=agents_of(tool), tools=2)


@pytest.mark.parametrize("preset", [None, *presets()])
def test_spans_descend_from_their_turn_for_all_presets(stage: Stage, preset: str | None) -> None:
    """Where a preset does not continue, the turn begins with the tool call."""
    policy = ContinuationPolicy() if preset is None else ContinuationPolicy.preset(preset)
    replies = SCRIPT if policy.continuation_max_attempts else SCRIPT[1:]
    controller(sub_agent, ScriptedProvider(list(replies), exhausted="last"), policy=policy).run(ASK)
    assert_law(stage, agents=agents_of("sub-agent"), tools=1)


# --- Who makes the calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["our client", "our async client", "an SDK"])
async def test_calls_over_http_descend_from_their_turn(stage: Stage, host: Tracer, kind: str) -> None:
    """The exchange's own span is the one below the turn's."""
    with script().serve() as url, host.start_as_current_span("POST /chat"):
        given: Any = {"tools": [(LOOK_UP, sub_agent)], "agent": "main"}
        if kind == "our client":
            with Client("openai", base_url=url, api_key="none") as client:
                ContinuationController(client.stream, **given).run(ASK)
        elif kind == "our async client":
            async with AsyncClient("openai", base_url=url, api_key="none") as client:
                await AsyncContinuationController(client, **given).run(ASK)
        else:
            with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
                ContinuationController(client, **given).run(ASK)
    assert_law(stage, agents=agents_of("sub-agent"), tools=2)


# --- Within another turn ----------------------------------------------------------------------------------------


@observe_turn(agent="main")
def observed(turn: ContinuationController, host: Tracer) -> None:
    turn.run(ASK)


@observe_turn(agent="main")
def observed_with_a_span(turn: ContinuationController, host: Tracer) -> None:
    with host.start_as_current_span("answer"):
        for _ in turn.stream(ASK):
            pass


def observed_and_read_elsewhere(turn: ContinuationController, host: Tracer) -> None:
    """The stream begins within the observed turn, and most of it is read outside."""
    streams: list[Iterator[Any]] = []

    @observe_turn(agent="main")
    def begin() -> None:
        streams.append(turn.stream(ASK))
        next(streams[0])

    begin()
    with host.start_as_current_span("elsewhere"):
        for _ in streams[0]:
            pass


@pytest.mark.parametrize("tool", ["a plain tool", "a sub-agent"])
@pytest.mark.parametrize("drive", [observed, observed_with_a_span, observed_and_read_elsewhere])
def test_a_part_of_an_observed_turn_descends_from_it(
    stage: Stage, host: Tracer, drive: Callable[[ContinuationController, Tracer], None], tool: str
) -> None:
    """A controller's turn within an observed one has no span of its own: all descends from the observed turn's."""
    drive(controller(TOOLS[tool]), host)
    assert_law(stage, agents=agents_of(tool), tools=2)


async def test_an_agent_of_another_instrumentation_is_the_turn(stage: Stage, host: Tracer) -> None:
    """Its span is that of the turn: tools descend from it too, where the rest of a stream is read outside of it."""
    turn = controller(sub_agent)
    with host.start_as_current_span("agent run", attributes={"gen_ai.operation.name": "invoke_agent"}):
        items = turn.stream(ASK)
        next(items)
        async for _ in as_async(items):
            pass
    spans = stage.finished()
    assert spans_outside_their_turn(spans) == []
    (agent,) = [span for span in spans if span["name"] == "agent run"]
    tools = [span["parent"] for span in spans if span["name"] == "execute_tool look_up"]
    assert tools.count(agent["span"]) == 2


async def as_async(items: Iterator[Any]) -> AsyncIterator[Any]:
    """Read a plain iterator in threads, as ASGI frameworks do."""
    while True:
        item = await asyncio.to_thread(next, items, None)
        if item is None:
            return
        yield item
