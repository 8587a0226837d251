"""Tool choices and tool results in requests, as each API's documentation writes them."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.formats import format_of
from endturn.formats.history import ToolResult, tool_results
from endturn.formats.reading import looks_random

CHAT: dict[str, Any] = {"model": "m", "messages": []}
INPUT: dict[str, Any] = {"model": "m", "input": "x"}
NAMED = {"type": "function", "function": {"name": "f"}}


def gemini(mode: str) -> dict[str, Any]:
    return {"contents": [], "toolConfig": {"functionCallingConfig": {"mode": mode}}}


def converse(choice: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [], "toolConfig": {"tools": [], "toolChoice": choice}}


def allowed(mode: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [NAMED]}}


@pytest.mark.parametrize(
    ("name", "body", "forces"),
    [
        ("openai_chat", CHAT, False),
        ("openai_chat", {**CHAT, "tool_choice": "auto"}, False),
        ("openai_chat", {**CHAT, "tool_choice": "none"}, False),
        ("openai_chat", {**CHAT, "tool_choice": "required"}, True),
        ("openai_chat", {**CHAT, "tool_choice": "any"}, True),  # Mistral
        ("openai_chat", {**CHAT, "tool_choice": NAMED}, True),
        ("openai_chat", {**CHAT, "tool_choice": allowed("auto")}, False),
        ("openai_chat", {**CHAT, "tool_choice": allowed("required")}, True),
        ("openai_chat", {**CHAT, "function_call": {"name": "f"}}, True),
        ("openai_chat", {**CHAT, "function_call": "auto"}, False),
        ("openai_chat", {**CHAT, "tool_choice": object()}, False),  # an SDK's mark for an argument that is not given
        ("openai_responses", {**INPUT, "tool_choice": "required"}, True),
        ("openai_responses", {**INPUT, "tool_choice": {"type": "function", "name": "f"}}, True),
        ("openai_responses", {**INPUT, "tool_choice": {"type": "allowed_tools", "mode": "auto"}}, False),
        ("anthropic", {**CHAT, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, False),
        ("anthropic", {**CHAT, "tool_choice": {"type": "any"}}, True),
        ("anthropic", {**CHAT, "tool_choice": {"type": "tool", "name": "f"}}, True),
        ("anthropic", {**CHAT, "tool_choice": {"type": "none"}}, False),
        ("gemini", gemini("AUTO"), False),
        ("gemini", gemini("VALIDATED"), False),
        ("gemini", gemini("ANY"), True),
        ("gemini", {"contents": [], "config": {"tool_config": {"function_calling_config": {"mode": "ANY"}}}}, True),
        ("bedrock_converse", converse({"auto": {}}), False),
        ("bedrock_converse", converse({"any": {}}), True),
        ("bedrock_converse", converse({"tool": {"name": "f"}}), True),
        ("cohere", {**CHAT, "tool_choice": "REQUIRED"}, True),
        ("cohere", {**CHAT, "tool_choice": "NONE"}, False),
        ("gemini_interactions", {"model": "m", "input": "x", "generation_config": {"tool_choice": "any"}}, True),
        ("ollama", CHAT, False),
    ],
)  # fmt: skip
def test_whether_a_request_forces_a_tool_call(name: str, body: dict[str, Any], forces: bool) -> None:
    """The tool choice of a call, from its body or from an SDK's arguments."""
    assert format_of(name).request_summary(body).forces_tool is forces


@pytest.mark.parametrize(
    ("message", "results"),
    [
        ({"role": "tool", "tool_call_id": "c1", "content": "x"}, [("c1", "")]),
        ({"role": "function", "name": "f", "content": "x"}, [("", "f")]),
        ({"type": "function_call_output", "id": "fco_1", "call_id": "c1", "output": "x"}, [("c1", "")]),
        ({"type": "custom_tool_call_output", "call_id": "c1", "output": "x"}, [("c1", "")]),
        ({"type": "computer_call_output", "call_id": "c1", "output": {}}, [("c1", "")]),
        ({"type": "shell_call_output", "call_id": "c1", "output": []}, [("c1", "")]),
        ({"type": "apply_patch_call_output", "call_id": "c1", "status": "completed"}, [("c1", "")]),
        ({"type": "local_shell_call_output", "id": "c1", "output": "{}"}, [("c1", "")]),
        ({"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": []}, [("c1", "")]),
        ({"type": "mcp_approval_response", "approval_request_id": "c1", "approve": True}, [("c1", "")]),
        ({"type": "function_result", "call_id": "c1", "name": "f", "result": "x"}, [("c1", "f")]),
        ({"type": "mcp_approval_request", "id": "c1", "name": "f", "arguments": "{}"}, []),
        ({"type": "mcp_call", "id": "c1", "name": "f", "arguments": "{}", "output": "x"}, []),
        ({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}, []),
        (
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "x"},
                    {"type": "text", "text": "Go on."},
                    {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "x"}]},
                ],
            },
            [("c1", ""), ("c2", "")],
        ),
        (
            {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "x"}]}}]},
            [("c1", "")],
        ),
        (
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]},
            [("", "f")],
        ),
        (
            {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "f", "response": {}}}]},
            [("c1", "f")],
        ),
        ({"role": "tool", "tool_name": "f", "content": "x"}, [("", "f")]),
        ({"role": "user", "content": "x"}, []),
        ("x", []),
        (None, []),
    ],
)
def test_the_tool_results_of_a_message(message: Any, results: list[tuple[str, str]]) -> None:
    """By the id of the call, or by the tool's name, as each API writes them."""
    assert tool_results(message) == [ToolResult(*result) for result in results]


@pytest.mark.parametrize(
    ("call_id", "is_random"),
    [
        ("call_abc123DEF456ghi789JKL012", True),  # OpenAI
        ("toolu_01A09q90qw90lq917835lq9", True),  # Anthropic
        ("tooluse_kZJMlvQmRJ6eAyJE5GIl7Q", True),  # Bedrock
        ("chatcmpl-tool-5f6b8c1d2e3f4a5b6c7d8e9f0a1b2c3d", True),  # vLLM
        ("D681PevKs", True),  # Mistral
        ("550e8400-e29b-41d4-a716-446655440000", True),
        ("call_0", False),
        ("call_12", False),
        ("functions.search:0", False),  # Kimi
        ("search", False),
        ("search_1", False),
        ("tool_call_123456", False),
        ("1", False),
        ("", False),
    ],
)
def test_ids_that_look_random(call_id: str, is_random: bool) -> None:
    """Counters and names are used for many calls; an id that looks random belongs to one call."""
    assert looks_random(call_id, {"search"}) is is_random
