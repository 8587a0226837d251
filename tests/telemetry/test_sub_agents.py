"""A tool that asks a model itself: its calls are a turn of its own, and linked to the call that asked for the tool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from endturn.calls import listeners
from endturn.instrumentation._instrument import instrument, uninstrument
from tests.support.announced import Records

URL = "http://vllm.internal/v1/chat/completions"
QUESTION = {"role": "user", "content": "What are tides?"}
TASK = {"role": "user", "content": "Search for tides."}


class Stage:
    """An instrumented process."""

    def __init__(self) -> None:
        self.records = Records()
        self.exporter = InMemorySpanExporter()
        self.provider = self.observed_provider()
        self.isolated = TracerProvider(shutdown_on_exit=False)

    def observed_provider(self) -> TracerProvider:
        made = TracerProvider(shutdown_on_exit=False)
        made.add_span_processor(SimpleSpanProcessor(self.exporter))
        return made

    @property
    def calls(self) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith("chat ")]


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    stop = listeners.subscribe(made.records.append)
    with listeners.strict():
        instrument(tracer_provider=made.provider)
        yield made
        uninstrument()
    stop()


def ask(messages: list[Any], *call_ids: str) -> None:
    """Make a call whose answer asks for tools, or is whole."""
    calls = [{"id": each, "type": "function", "function": {"name": "search", "arguments": "{}"}} for each in call_ids]
    message = {"role": "assistant", "content": None if calls else "42.", "tool_calls": calls or None}
    choice = {"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}
    answer = {"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice]}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=answer))
    with httpx.Client(transport=transport) as client:
        client.post(URL, json={"model": "m", "messages": messages})


def run_tool(tracer: Tracer, call_id: str | None) -> None:
    """Run a tool that asks a model twice, first in a span within the tool's."""
    found = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
    found |= {} if call_id is None else {"gen_ai.tool.call.id": call_id}
    with tracer.start_as_current_span("execute_tool search", attributes=found):
        with tracer.start_as_current_span("inner"):
            ask([TASK], "call_s1")
        tool_call = {"id": "call_s1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        result = {"role": "tool", "tool_call_id": "call_s1", "content": "x"}
        ask([TASK, {"role": "assistant", "tool_calls": [tool_call]}, result])


def links(span: ReadableSpan) -> list[tuple[int, Any]]:
    return [(link.context.span_id, (link.attributes or {}).get("endturn.turn.id")) for link in span.links]


def test_a_sub_agent_is_a_turn_of_its_own_and_linked(stage: Stage) -> None:
    """Its first call leads to the call that asked for the tool, and says of which turn that is."""
    ask([QUESTION], "call_g7")
    run_tool(stage.provider.get_tracer("host"), "call_g7")
    outer, first, second = stage.calls
    turn, around = (outer.attributes or {})["endturn.turn.id"], outer.get_span_context()
    assert around is not None
    assert links(first) == [(around.span_id, turn)]
    assert links(second) == []
    assert (first.attributes or {})["endturn.turn.id"] == (second.attributes or {})["endturn.turn.id"] != turn
    assert stage.records.told() == ["None 2 completed"]  # the outer turn waits


@pytest.mark.parametrize("call_id", ["call_other", None])
def test_a_tool_that_no_turn_waits_for(stage: Stage, call_id: str | None) -> None:
    """Nothing is linked by a guess."""
    ask([QUESTION], "call_g7")
    run_tool(stage.provider.get_tracer("host"), call_id)
    assert [links(span) for span in stage.calls] == [[], [], []]


def test_an_id_that_two_turns_wait_for(stage: Stage) -> None:
    """Servers that count their calls give the same id to many."""
    ask([QUESTION], "call_0")
    ask([{"role": "user", "content": "What is Mars?"}], "call_0")
    run_tool(stage.provider.get_tracer("host"), "call_0")
    assert [links(span) for span in stage.calls] == [[], [], [], []]


def test_a_tool_s_span_of_an_isolated_provider(stage: Stage) -> None:
    """It is somebody else's."""
    ask([QUESTION], "call_g7")
    run_tool(stage.isolated.get_tracer("vendor"), "call_g7")
    assert [links(span) for span in stage.calls] == [[], [], []]
