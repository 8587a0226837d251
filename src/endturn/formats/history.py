"""What a message of a conversation says, in whatever format it is: who speaks, the text, the results of tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from endturn.formats.reading import first, items, member, plain, text

_SPEAKERS: Final = {
    # Roles that are not "system", "user", "assistant" or "tool".
    "model": "assistant",  # Gemini
    "chatbot": "assistant",  # Cohere v1
    "human": "user",
    "developer": "system",
    "function": "tool",
    # Items of OpenAI's Responses, steps of Gemini's Interactions: they say what they are in place of who speaks.
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
    "reasoning": "thought",
    "thought": "thought",
}

BODY: Final = ("content", "parts", "message", "text")
"""Where a message keeps what it says: most formats, Gemini, Cohere v1, a part that stands alone."""

_SAID: Final = frozenset({*BODY, "role", "type", "id", "status", "phase", "annotations", "logprobs", "cache_control"})
"""The members of a message that is nothing but text: what it says, and what a server adds to it."""


def role(message: Any) -> str:
    """Who speaks: "system", "user", "assistant", "tool", "thought" for what is not said aloud; "" where unreadable."""
    if isinstance(message, str):
        return "user"
    value = text(member(message, "role")).lower()
    if value:
        return _SPEAKERS.get(value, value)
    kind = member(message, "type")
    if isinstance(kind, str):
        return _SPEAKERS.get(kind, "")
    # Gemini's: a Content whose role goes without saying, or a part alone.
    said = member(message, "parts") is not None or isinstance(member(message, "text"), str)
    return "user" if said else ""


def body_of(message: Any) -> Any:
    """What a message says: text, or its parts."""
    if isinstance(message, str):
        return message
    return first(message, *BODY)


def text_of(message: Any) -> str:
    """The visible text of a message: a string, or the text parts of a list."""
    body = body_of(message)
    parts = body if isinstance(body, list | tuple) else (body,)
    return "".join(text(_text(part)) for part in parts if member(part, "thought") is not True)


def _text(part: Any) -> Any:
    return part if isinstance(part, str) else member(part, "text")


def only_text(message: Any) -> bool:
    """Whether a message holds nothing but text: no image, no tool's result."""
    body = body_of(message)
    return isinstance(body, str) or all(isinstance(_text(part), str) for part in items(body))


_RESULTS: Final = ("toolResult", "functionResponse", "function_response")
"""What holds a tool's result: Bedrock's, Gemini's."""


def result_in(part: Any) -> Any:
    """The tool's result that a part of a message holds, or is; None where there is none."""
    inner = first(part, *_RESULTS)
    return part if inner is None and member(part, "type") == "tool_result" else inner


_CALLS: Final = ("toolUse", "functionCall", "function_call")
"""What holds a call: Bedrock's, Gemini's."""
_ARE_CALLS: Final = ("tool_use", "function_call", "custom_tool_call")


def call_in(part: Any) -> Mapping[str, Any] | None:
    """The client's call that a part of a message holds, or is; None where there is none."""
    inner = part if member(part, "type") in _ARE_CALLS else first(part, *_CALLS)
    return inner if isinstance(inner, Mapping) and inner.get("type") != "server_tool_use" else None


def results_of(message: Any) -> list[tuple[str, bool]]:
    """The results of tools that a message holds: each as text, and whether it says itself that it is an error."""
    found = [result for part in items(body_of(message)) if (result := result_in(part)) is not None]
    if role(message) == "tool":
        found = [message]
    return [(json.dumps(canonical(each), default=unwritten), says_error(each)) for each in found]


def says_error(result: Any) -> bool:
    """Whether a tool's result is marked as an error: Anthropic's `is_error`, Bedrock's status, Gemini's response."""
    is_marked = member(result, "is_error") is True or member(result, "status") == "error"
    return is_marked or member(member(result, "response"), "error") is not None


def spoken(message: Any) -> Any:
    """Who speaks and the text, where that is all that a message holds; else all of it."""
    read = plain(message)
    if isinstance(read, str):
        return ["user", read]
    if isinstance(read, Mapping) and body_of(read) is not None and only_text(read):
        extra = any(value not in (None, [], "") for name, value in read.items() if name not in _SAID)
        return read if extra else [role(read), text_of(read)]
    return read


def canonical(value: Any) -> Any:
    """The value without what hosts change about it."""
    value = plain(value)
    if isinstance(value, Mapping):
        if value.get("type") == "text" and isinstance(value.get("text"), str):
            return value["text"]
        members = value.items()
        return {str(name): canonical(part) for name, part in members if part is not None and name != "cache_control"}
    if isinstance(value, list | tuple):
        return canonical(value[0]) if len(value) == 1 else [canonical(part) for part in value]
    return value


def unwritten(value: object) -> str:
    """What stands for a value that JSON does not have."""
    return value.hex() if isinstance(value, bytes) else type(value).__name__
