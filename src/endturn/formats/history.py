"""Read a conversation's messages in any format: role, text, tool calls and tool results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from endturn.formats.reading import first_member, first_text, items, member, plain, text

_ROLES: Final = {
    # Roles that are not "system", "user", "assistant" or "tool".
    "model": "assistant",  # Gemini
    "chatbot": "assistant",  # Cohere v1
    "human": "user",
    "developer": "system",
    "function": "tool",
    # Items of OpenAI's Responses, steps of Gemini's Interactions: they have a type in place of a
    # role.
    "user_input": "user",
    "input_text": "user",
    "text": "user",
    "model_output": "assistant",
    "output_text": "assistant",
    "function_call": "assistant",
    "custom_tool_call": "assistant",
    "function_call_output": "tool",
    "custom_tool_call_output": "tool",
    "function_result": "tool",
    "tool_search_output": "tool",
    "mcp_approval_request": "assistant",
    "mcp_list_tools": "assistant",
    "program": "assistant",
    "program_output": "assistant",
    "reasoning": "thought",
    "thought": "thought",
    "item_reference": "assistant",
}

BODY: Final = ("content", "parts", "message", "text")
"""The members with a message's content: most formats, Gemini, Cohere v1, a part on its own."""

_TEXT_MESSAGE_MEMBERS: Final = frozenset(
    {*BODY, "role", "type", "id", "status", "phase", "annotations", "logprobs", "cache_control"}
)
"""The members of a message that holds only text: its content, and what servers add to it."""


def role(message: Any) -> str:
    """Return a message's role: "system", "user", "assistant", "tool"; "thought" for thinking.

    "" if it is unreadable.
    """
    if isinstance(message, str):
        return "user"
    name = message.get("role") if message.__class__ is dict else member(message, "role")
    if isinstance(name, str) and name:
        speaker = name.lower()
        return _ROLES.get(speaker, speaker)
    kind = member(message, "type")
    if isinstance(kind, str):
        # Items of the API's own tools: "computer_call" and "computer_call_output",
        # "web_search_call".
        other = (
            "tool"
            if kind.endswith("_call_output")
            else "assistant"
            if kind.endswith("_call")
            else ""
        )
        return _ROLES.get(kind, other)
    # Gemini: a Content without a role, or a single part.
    has_content = member(message, "parts") is not None or isinstance(member(message, "text"), str)
    return "user" if has_content else ""


def body_of(message: Any) -> Any:
    """Return a message's content: text, or its parts."""
    if isinstance(message, str):
        return message
    body = member(message, "content")
    return first_member(message, *BODY) if body is None else body


def text_of(message: Any) -> str:
    """Return the visible text of a message: a string, or the text parts of a list."""
    body = body_of(message)
    if isinstance(body, str):
        return body
    parts = body if isinstance(body, list | tuple) else (body,)
    return "".join(text(_text(part)) for part in parts if member(part, "thought") is not True)


def _text(part: Any) -> Any:
    return part if isinstance(part, str) else member(part, "text")


def only_text(message: Any) -> bool:
    """Return whether a message holds only text: no image, no tool result."""
    body = body_of(message)
    return isinstance(body, str) or all(isinstance(_text(part), str) for part in items(body))


_RESULT_MEMBERS: Final = ("toolResult", "functionResponse", "function_response")
"""The members that hold a tool result, in Bedrock and Gemini."""


def result_in(part: Any) -> Any:
    """Return the tool result that a part of a message holds, or is; None if there is none."""
    inner = first_member(part, *_RESULT_MEMBERS)
    return part if inner is None and member(part, "type") == "tool_result" else inner


_CALL_MEMBERS: Final = ("toolUse", "functionCall", "function_call")
"""The members that hold a call, in Bedrock and Gemini."""
_CALL_TYPES: Final = ("tool_use", "function_call", "custom_tool_call")


def call_in(part: Any) -> Mapping[str, Any] | None:
    """Return the client's call that a part of a message holds, or is; None if there is none."""
    inner = part if member(part, "type") in _CALL_TYPES else first_member(part, *_CALL_MEMBERS)
    return inner if isinstance(inner, Mapping) and inner.get("type") != "server_tool_use" else None


class ToolResult(NamedTuple):
    """A tool's result within a message.

    Attributes:
        call_id: the id of the call that it answers; "" where it names none.
        name: the tool's name; "" where it names none.
    """

    call_id: str
    name: str


_CALL_IDS: Final = ("tool_call_id", "call_id", "tool_use_id", "toolUseId", "approval_request_id")
"""Members of a result with its call's id: OpenAI's two APIs, Anthropic, Bedrock; of an approval,
with its request's."""


def tool_results(message: Any) -> list[ToolResult]:
    """List the tool results that a message holds, in its order."""
    parts = [result for part in items(body_of(message)) if (result := result_in(part)) is not None]
    if parts:
        return [
            ToolResult(first_text(part, *_CALL_IDS, "id"), text(member(part, "name")))
            for part in parts
        ]
    own = own_result(message, role(message))
    return [] if own is None else [own]


def own_result(message: Any, speaker: str) -> ToolResult | None:
    """Return the tool result that a message itself is; None where it is none."""
    kind = member(message, "type")
    if speaker != "tool" and kind != "mcp_approval_response":
        return None
    call_id = first_text(message, *_CALL_IDS)
    if not call_id and kind == "local_shell_call_output":
        # a Responses item's own `id` is its call's only where it has no other
        call_id = first_text(message, "id")
    return ToolResult(call_id, first_text(message, "name", "tool_name"))


def calls_of(message: Any) -> list[tuple[str, str]]:
    """List the calls of a client's tools that a message of the model holds.

    Each as its id and name; "" for a missing one.
    """
    pairs = [
        (call, first_member(call, "function", "custom") or call)
        for call in items(member(message, "tool_calls"))
    ]
    for part in map(plain, (message, *items(body_of(message)))):
        if (call := call_in(part)) is not None:
            pairs.append((call, call))
        elif member(part, "call_id") and role(part) == "assistant":
            pairs.append((part, part))  # a call of an API's own tool that the client runs
    return [
        (first_text(call, "call_id", "toolUseId", "id"), text(member(function, "name")))
        for call, function in pairs
    ]


_PLAIN_PARTS: Final = (
    "text",
    "thinking",
    "redacted_thinking",
    "reasoning",
    "refusal",
    "output_text",
)
_THINKING_MEMBERS: Final = frozenset(
    {"reasoningContent", "thought", "thoughtSignature", "thought_signature"}
)


def parts_beside_text(message: Any) -> list[str]:
    """Return the kinds of a model message's parts besides text, reasoning and client calls."""
    body = body_of(message)
    if body is None and member(message, "role") is None and call_in(plain(message)) is None:
        kind = text(member(message, "type"))  # an item that is a call by the server
        is_other = (
            role(message) == "assistant"
            and kind != "item_reference"
            and not member(message, "call_id")
        )
        return [kind] * is_other
    kinds = []
    for part in map(plain, items(body)):
        if (
            isinstance(_text(part), str)
            or call_in(part) is not None
            or member(part, "type") in _PLAIN_PARTS
        ):
            continue
        if isinstance(part, Mapping) and not _THINKING_MEMBERS.isdisjoint(part):
            continue
        kinds.append(
            text(member(part, "type"))
            or (str(next(iter(part), "")) if isinstance(part, Mapping) else "")
        )
    return kinds


def results_of(message: Any) -> list[tuple[str, bool]]:
    """List the tool results of a message, each as text, and True if it is marked as an error."""
    results = [
        result for part in items(body_of(message)) if (result := result_in(part)) is not None
    ]
    if role(message) == "tool":
        results = [message]
    return [
        (json.dumps(canonical(result), default=json_fallback), says_error(result))
        for result in results
    ]


def says_error(result: Any) -> bool:
    """Return whether a tool result is marked as an error.

    Anthropic's `is_error`, Bedrock's status, Gemini's response.
    """
    is_marked = member(result, "is_error") is True or member(result, "status") == "error"
    return is_marked or member(member(result, "response"), "error") is not None


def canonical_message(message: Any) -> Any:
    """Return a message's role and text if it holds nothing else; else all of it."""
    value = plain(message)
    if isinstance(value, str):
        return ["user", value]
    if isinstance(value, Mapping) and body_of(value) is not None and only_text(value):
        has_extra = any(
            value not in (None, [], "")
            for name, value in value.items()
            if name not in _TEXT_MESSAGE_MEMBERS
        )
        return value if has_extra else [role(value), text_of(value)]
    return value


def canonical(value: Any) -> Any:
    """Normalise what hosts change in a value: lists of one entry, nulls, cache marks."""
    value = plain(value)
    if isinstance(value, Mapping):
        if value.get("type") == "text" and isinstance(value.get("text"), str):
            return value["text"]
        members = value.items()
        return {
            str(name): canonical(part)
            for name, part in members
            if part is not None and name != "cache_control"
        }
    if isinstance(value, list | tuple):
        return canonical(value[0]) if len(value) == 1 else [canonical(part) for part in value]
    return value


def json_fallback(value: object) -> str:
    """Return a text for a value that JSON cannot represent."""
    return value.hex() if isinstance(value, bytes) else type(value).__name__
