"""Steps that an API asks of its client, as its documentation writes them: what the client sends back goes on with the
turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from endturn.calls import listeners
from endturn.calls.call_scope import Layer, open_call
from endturn.calls.facts import EndpointFacts
from endturn.calls.records import CallEnded
from endturn.calls.turn_scope import infer_with
from endturn.formats import Context, format_of, summarize
from endturn.telemetry.turn_inference import TurnInference
from tests.telemetry.mocked import Records

Json = dict[str, Any]

RESPONSES: dict[str, tuple[list[Json], list[Json]]] = {
    "function": (
        [{"type": "function_call", "id": "fc_1", "call_id": "call_g7", "name": "f", "arguments": "{}"}],
        [{"type": "function_call_output", "call_id": "call_g7", "output": "42"}],
    ),
    "custom tool": (
        [{"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_g7", "name": "f", "input": "x"}],
        [{"type": "custom_tool_call_output", "call_id": "call_g7", "output": "42"}],
    ),
    "computer": (
        [{"type": "computer_call", "id": "cu_1", "call_id": "call_g7", "action": {"type": "wait"}}],
        [{"type": "computer_call_output", "call_id": "call_g7", "output": {"type": "computer_screenshot"}}],
    ),
    "local shell": (
        [{"type": "local_shell_call", "id": "lsh_1", "call_id": "call_g7", "action": {}, "status": "completed"}],
        [{"type": "local_shell_call_output", "id": "call_g7", "output": "{}"}],
    ),
    "shell": (
        [{"type": "shell_call", "id": "sh_1", "call_id": "call_g7", "action": {}, "environment": {"type": "local"}}],
        [{"type": "shell_call_output", "call_id": "call_g7", "output": []}],
    ),
    "patch": (
        [{"type": "apply_patch_call", "id": "apc_1", "call_id": "call_g7", "operation": {}, "status": "completed"}],
        [{"type": "apply_patch_call_output", "call_id": "call_g7", "status": "completed"}],
    ),
    "search of tools": (
        [{"type": "tool_search_call", "id": "tsc_1", "call_id": "call_g7", "execution": "client", "arguments": {}}],
        [{"type": "tool_search_output", "call_id": "call_g7", "execution": "client", "tools": []}],
    ),
    "approval": (
        [
            {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "dice", "tools": []},
            {"type": "mcp_approval_request", "id": "mcpr_g7", "name": "roll", "arguments": "{}"},
        ],
        [{"type": "mcp_approval_response", "approval_request_id": "mcpr_g7", "approve": True}],
    ),
    # The server has run its own shell before it asks for the client's function.
    "function after a shell of the server": (
        [
            {"type": "shell_call", "call_id": "call_s1", "action": {}, "environment": {"type": "container_reference"}},
            {"type": "shell_call_output", "call_id": "call_s1", "output": []},
            {"type": "function_call", "id": "fc_1", "call_id": "call_g7", "name": "f", "arguments": "{}"},
        ],
        [{"type": "function_call_output", "call_id": "call_g7", "output": "42"}],
    ),
}  # fmt: skip
"""What a response asks for, and what the next request sends."""

SERVER_RUN: dict[str, list[Json]] = {
    "search": [{"type": "web_search_call", "id": "ws_1", "status": "completed"}],
    "MCP": [{"type": "mcp_call", "id": "mcp_1", "name": "roll", "arguments": "{}", "output": "4"}],
    "shell": [
        {"type": "shell_call", "call_id": "call_s1", "action": {}, "environment": {"type": "container_reference"}}
    ],
    "search of tools": [{"type": "tool_search_call", "id": "tsc_1", "execution": "server", "arguments": {}}],
}
"""Steps that the server takes itself: the client sends nothing back."""


@pytest.fixture
def records() -> Iterator[Records]:
    """An inference that is in place."""
    found, inference = Records(), TurnInference()
    stop = listeners.subscribe(found.append)
    infer_with(inference)
    with listeners.strict():
        yield found
        inference.close()
    infer_with(None)
    stop()


def asks(format_name: str, request: Json, response: Json) -> CallEnded:
    """Make a call with these bodies."""
    spoken = format_of(format_name)
    asked = spoken.request_summary(request)
    call = open_call(Layer.CLIENT, asked.facts, EndpointFacts(provider="p"), summary=asked)
    assert call is not None
    seen = summarize(spoken, Context(request=asked), response)
    ended = call.end(seen.facts, tail=seen.tail, tool_calls=seen.tool_calls)
    assert ended is not None
    return ended


def response(output: list[Json], number: int = 1) -> Json:
    return {"id": f"resp_{number}", "object": "response", "status": "completed", "model": "m", "output": output}


SAYS = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "42."}]}]
QUESTION = {"role": "user", "content": "What are tides?"}


@pytest.mark.parametrize("step", RESPONSES)
@pytest.mark.parametrize("stored", [True, False], ids=["stored", "stateless"])
def test_a_step_of_the_client_goes_on_with_the_turn(records: Records, step: str, stored: bool) -> None:
    """By the response's id, or with the whole history."""
    output, sent = RESPONSES[step]
    first = asks("openai_responses", {"model": "m", "input": [QUESTION]}, response(output))
    assert records.turns == []
    following = {"input": sent, "previous_response_id": "resp_1"} if stored else {"input": [QUESTION, *output, *sent]}
    second = asks("openai_responses", {"model": "m", **following}, response(SAYS, 2))
    assert second.started.turn is first.started.turn
    assert records.told() == ["None 2 completed"]


@pytest.mark.parametrize("step", RESPONSES)
def test_a_step_of_another_conversation_does_not(records: Records, step: str) -> None:
    """Another question precedes it."""
    output, sent = RESPONSES[step]
    asks("openai_responses", {"model": "m", "input": [QUESTION]}, response(output))
    again = [{"role": "user", "content": "Another"}, {"role": "user", "content": "question."}]
    counted = [{**item, **{name: "call_1" for name in item if name.endswith("_id") or name == "id"}} for item in sent]
    asks("openai_responses", {"model": "m", "input": [*again, *output, *counted]}, response(SAYS, 2))
    assert records.told() == ["None 1 completed"]


@pytest.mark.parametrize("step", SERVER_RUN)
def test_a_step_of_the_server_ends_the_turn(records: Records, step: str) -> None:
    """Nobody has to answer it."""
    asks("openai_responses", {"model": "m", "input": [QUESTION]}, response([*SERVER_RUN[step], *SAYS]))
    assert records.told() == ["None 1 completed"]


def chat(choices: list[Json]) -> Json:
    return {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": choices}


CALL = {"id": "call_g7", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_g7", "content": "42"}
CUT = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "The moon and"}}


def choice(number: int, reason: str) -> Json:
    return {"index": number, "finish_reason": reason, "message": CALLS}


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ([CUT, choice(1, "tool_calls")], "None 2 completed"),
        ([choice(0, "tool_calls"), {**CUT, "index": 1}], "None 2 completed"),
        ([choice(0, "length"), {**CUT, "index": 1, "finish_reason": "stop"}], "None 2 not_continued"),
        ([choice(0, "length"), choice(1, "length")], "None 2 not_continued"),
    ],
    ids=["the other choice's", "its own", "its own, truncated", "both truncated"],
)
def test_calls_of_one_of_several_choices(records: Records, choices: list[Json], told: str) -> None:
    """The host goes on with one choice. If that is not the truncated one, nothing is unfinished."""
    asks("openai_chat", {"model": "m", "messages": [QUESTION], "n": 2}, chat(choices))
    whole = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "42."}}
    asks("openai_chat", {"model": "m", "messages": [QUESTION, CALLS, RESULT], "n": 2}, chat([whole]))
    assert records.told() == [told]
