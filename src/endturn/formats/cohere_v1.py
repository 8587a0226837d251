"""Requests of Cohere's chat API v1: one message, the history before it, tool results without ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from endturn.chat import Json, Message, Request, Tool, ToolCall
from endturn.formats.reading import arguments, items, member, text

_ROLES: Final = {"user": "USER", "assistant": "CHATBOT", "system": "SYSTEM", "tool": "TOOL"}
# "type: any python data type, such as 'str', 'bool'"
_TYPES: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
}


def encode(request: Request, *, stream: bool) -> Json:
    """The body of POST /v1/chat. It has no choice of a tool: with "none", no tool is offered."""
    body: Json = {"model": request.model}
    messages = list(request.messages)
    if messages and messages[0].role == "system":
        body["preamble"] = messages.pop(0).text
    before = len(messages)
    while before and messages[before - 1].role == "tool":
        before -= 1
    answers = messages[before:]
    asks = messages.pop() if messages and messages[-1].role == "user" else None
    body["message"] = "" if asks is None else asks.text
    history = _history(messages[:before])
    if history:
        body["chat_history"] = history
    if answers:
        body["tool_results"] = _results(answers, _calls(messages))
    if request.tools and request.tool_choice != "none":
        body["tools"] = [_tool(tool) for tool in request.tools]
    for name, value in (
        ("max_tokens", request.max_tokens),
        ("temperature", request.temperature),
        ("seed", request.seed),
    ):
        if value is not None:
            body[name] = value
    if request.format is not None:
        schema = {} if request.format == {"type": "json_object"} else {"schema": request.format}
        body["response_format"] = {"type": "json_object", **schema}
    if stream:
        body["stream"] = True
    return body | request.extra


def _calls(messages: Iterable[Message]) -> dict[str, Json]:
    """Every call of a history as v1 writes it, by its id: v1's results repeat what they answer."""
    return {call.id: _call(call) for message in messages for call in message.tool_calls}


def _call(call: ToolCall) -> Json:
    return {"name": call.name, "parameters": call.arguments or arguments(call.arguments_raw) or {}}


def _results(messages: list[Message], calls: dict[str, Json]) -> list[Json]:
    unknown: Json = {"name": "", "parameters": {}}
    return [
        {"call": calls.get(message.tool_call_id or "", unknown), "outputs": [_output(message)]} for message in messages
    ]


def _output(message: Message) -> Json:
    """What a tool answered: an object as it stands, text in one."""
    return arguments(message.text) or {"text": message.text}


def _history(messages: list[Message]) -> list[Json]:
    written: list[Json] = []
    calls = _calls(messages)
    for position, message in enumerate(messages):
        role = _ROLES[message.role]
        if message.role == "tool":
            if position == 0 or messages[position - 1].role != "tool":
                written.append({"role": role, "tool_results": []})
            written[-1]["tool_results"] += _results([message], calls)
        elif message.role != "assistant":
            written.append({"role": role, "message": message.text})
        elif message.text.strip() or message.tool_calls:
            said: Json = {"role": role, "message": message.text}
            if message.tool_calls:
                said["tool_calls"] = [_call(call) for call in message.tool_calls]
            written.append(said)
    return written


def _tool(tool: Tool) -> Json:
    """A tool with its parameters one by one: v1 knows no schema of the whole."""
    required = items(tool.parameters.get("required"))
    written: Json = {"name": tool.name, "description": tool.description}
    properties = tool.parameters.get("properties")
    if isinstance(properties, dict) and properties:
        written["parameter_definitions"] = {
            name: {
                "description": text(member(value, "description")),
                "type": _TYPES.get(text(member(value, "type")), "str"),
                "required": name in required,
            }
            for name, value in properties.items()
        }
    return written
