"""Requests of Cohere's chat API, v2 and v1, and the parts of an answer that they send back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from endturn.formats.call_arguments import arguments
from endturn.formats.encoding import (
    arguments_text,
    conversation,
    function_call,
    function_tool,
    output_limit,
    replays_message,
    request_body,
)
from endturn.formats.next_request import without_lost_calls
from endturn.formats.reading import items, member, text
from endturn.formats.settings import ANY_JSON, present
from endturn.vocabulary import Json, Message, Request, Tool

_NAME: Final = "cohere"


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """Write the body of POST /v2/chat, or with the dialect "v1" that of /v1/chat."""
    return _body_v1(request, stream) if dialect == "v1" else _body(request, stream)


def _settings(request: Request) -> Json:
    return {
        "max_tokens": output_limit(request),
        "temperature": request.temperature,
        "seed": request.seed,
    }


# --- v2 -------------------------------------------------------------------------------------------


def _body(request: Request, stream: bool) -> Json:
    tools, choice = _tools(request)
    members = {
        "model": request.model or None,
        "messages": _messages(request.messages),
        "tools": tools,
        "tool_choice": choice,
        **_settings(request),
        "response_format": _response_format(request.format),
        "stream": stream or None,
    }
    return request_body(members, request.extra, conversation="messages")


def _tools(request: Request) -> tuple[list[Json], str | None]:
    """Return the tools and the tool choice.

    A tool that the choice names is the only one.
    """
    choice = request.tool_choice
    tools = [tool for tool in request.tools if tool.name == choice] or request.tools
    if choice == "auto" or not tools:
        return [function_tool(tool) for tool in tools], None
    return [function_tool(tool) for tool in tools], "NONE" if choice == "none" else "REQUIRED"


def _response_format(format_: Json | None) -> Json | None:
    if not format_:
        return None
    return (
        {"type": "json_object"}
        if format_ == ANY_JSON
        else {"type": "json_object", "json_schema": format_}
    )


def _messages(messages: Iterable[Message]) -> list[Json]:
    api_messages: list[Json] = []
    for message, native_blocks in conversation(messages, _NAME):
        if message.role == "assistant":
            api_messages += _answer(message, native_blocks)
        elif native_blocks:
            api_messages += native_blocks
        elif message.role == "tool":
            id_ = message.tool_call_id or ""
            api_messages.append({"role": "tool", "tool_call_id": id_, "content": message.content})
        else:
            api_messages.append({"role": message.role, "content": message.content})
    return api_messages


def _answer(message: Message, native_blocks: Sequence[Json] | None) -> list[Json]:
    """Return an assistant message in a list; an empty list for an empty message."""
    if native_blocks and replays_message(message, native_blocks):
        return _replay_message(message, native_blocks)
    calls = [function_call(call, arguments_text(call)) for call in message.tool_calls]
    content = message.content if message.text.strip() else None
    api_message = present({"role": "assistant", "content": content, "tool_calls": calls or None})
    return [api_message] if len(api_message) > 1 else []


def _replay_message(message: Message, native_blocks: Sequence[Json]) -> list[Json]:
    api_message = without_lost_calls(message, native_blocks[0])
    content = api_message.get("content")
    if isinstance(content, list):
        content = api_message["content"] = [part for part in content if _has_content(part)]
    visible = text(content).strip() or any(
        member(part, "type") != "thinking" for part in items(content)
    )
    if not content:
        api_message.pop("content", None)
    if "tool_calls" not in api_message:
        api_message.pop("tool_plan", None)
    return [api_message] if "tool_calls" in api_message or visible else []


def _has_content(part: Any) -> bool:
    kind = member(part, "type")
    return kind not in ("text", "thinking") or bool(text(member(part, kind)).strip())


def unfinished(message: Json, answer_text: str | None) -> Json:
    """Return the message of a truncated response in the form that may be sent back.

    Without its calls and their plan, and without thinking that no content followed.
    """
    content = [dict(part) for part in items(message.get("content")) if _has_content(part)]
    while content and content[-1].get("type") == "thinking":
        content.pop()
    if (
        content
        and content[-1].get("type") == "text"
        and answer_text is not None
        and answer_text == answer_text.rstrip()
    ):
        content[-1]["text"] = text(content[-1].get("text")).rstrip()
    members = {
        name: value for name, value in message.items() if name not in ("tool_calls", "tool_plan")
    }
    return {**members, "content": content}


# --- v1: one message, the history before it, results of tools without ids -------------------------


def _body_v1(request: Request, stream: bool) -> Json:
    """Write the body of v1, which has no tool choice."""
    tools = () if request.tool_choice == "none" else request.tools
    members = {
        "model": request.model or None,
        **_conversation_v1(request.messages),
        "tools": [_tool_v1(tool) for tool in tools],
        **_settings(request),
        "response_format": _response_format_v1(request.format),
        "stream": stream or None,
    }
    return request_body(members, request.extra, conversation="message")


def _response_format_v1(format_: Json | None) -> Json | None:
    if not format_:
        return None
    return (
        {"type": "json_object"}
        if format_ == ANY_JSON
        else {"type": "json_object", "schema": format_}
    )


_ROLES_V1: Final = {"user": "USER", "assistant": "CHATBOT", "system": "SYSTEM", "tool": "TOOL"}
_TYPES_V1: Final = {
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
}
"""JSON Schema's types as Python's: "any python data type, such as 'str', 'bool'"."""


def _conversation_v1(messages: tuple[Message, ...]) -> Json:
    preamble: str | None = None
    history: list[Json] = []
    calls: dict[str, Json] = {}
    if messages and messages[0].role == "system":
        preamble, messages = messages[0].text, messages[1:]
    for message in messages:
        entry: Json = {"role": _ROLES_V1[message.role], "message": message.text}
        if message.role == "tool":
            # A result repeats the call that it answers. Outputs are objects, so a text is wrapped
            # in one.
            call = calls.get(message.tool_call_id or "", {"name": "", "parameters": {}})
            result = {"call": call, "outputs": [arguments(message.text) or {"text": message.text}]}
            if not history or "tool_results" not in history[-1]:
                history.append({"role": "TOOL", "tool_results": []})
            history[-1]["tool_results"].append(result)
            continue
        if message.tool_calls:
            parameters = {
                tool_call.id: tool_call.arguments or arguments(tool_call.arguments_raw) or {}
                for tool_call in message.tool_calls
            }
            entry["tool_calls"] = [
                {"name": tool_call.name, "parameters": parameters[tool_call.id]}
                for tool_call in message.tool_calls
            ]
            calls |= zip(parameters, entry["tool_calls"], strict=True)
        if message.role != "assistant" or message.text.strip() or message.tool_calls:
            history.append(entry)
    last = history.pop() if messages and messages[-1].role in ("user", "tool") else {}
    return {
        "preamble": preamble,
        "chat_history": history,
        "message": last.get("message", ""),
        "tool_results": last.get("tool_results"),
    }


def _tool_v1(tool: Tool) -> Json:
    """Return a tool with its parameters listed one by one: v1 has no schema for them."""
    required, properties = items(tool.parameters.get("required")), tool.parameters.get("properties")
    api_tool: Json = {"name": tool.name, "description": tool.description}
    if isinstance(properties, dict) and properties:
        api_tool["parameter_definitions"] = {
            name: {
                "description": text(member(value, "description")),
                "type": _TYPES_V1.get(text(member(value, "type")), "str"),
                "required": name in required,
            }
            for name, value in properties.items()
        }
    return api_tool
