"""Steps of a loop of tool calls."""

from typing import Any

from endturn.calls.call_scope import Layer, open_call
from endturn.calls.facts import EndpointFacts, RequestFacts, ResponseFacts
from endturn.calls.outcomes import RequestedCall
from endturn.formats import RequestSummary
from endturn.vocabulary.stop import Stop, StopReason

QUESTION: list[Any] = [{"role": "user", "content": "What are tides?"}]


def step(history: list[Any], *calls: str, reason: StopReason = StopReason.TOOL_CALL) -> None:
    """Record a call with this history, whose response asks for these tool calls."""
    asked = RequestSummary(facts=RequestFacts(model="gpt-5"), history=history, length=len(history))
    made = open_call(Layer.CLIENT, asked.facts, EndpointFacts(provider="openai"), summary=asked)
    assert made is not None
    made.end(ResponseFacts(stop=Stop(reason)), tool_calls=tuple(RequestedCall(each, "search") for each in calls))


def answered(history: list[Any], call_id: str) -> list[Any]:
    """Return the history with this tool call and its result."""
    function = {"name": "search", "arguments": "{}"}
    asked = {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]}
    return [*history, asked, {"role": "tool", "tool_call_id": call_id, "content": "42"}]
