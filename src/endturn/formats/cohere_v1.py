"""Requests of Cohere's chat API v1: one message, the history before it, tool results without ids."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from endturn.chat import Json, Message, Request, Tool, ToolCall
from endturn.errors import DecodeError
from endturn.formats.reading import arguments, count, items, member, minted, number, seed_of, text

_OURS: Final = frozenset(
    {"model", "message", "chat_history", "preamble", "tools", "tool_results", "max_tokens", "temperature", "seed"}
    | {"response_format", "stream"}
)
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


def request(body: Json) -> Request:
    """A request body of v1 as our Request. What ours has no word for travels in `extra`, verbatim.

    Raises:
        DecodeError: there is no model, or the message or the history is not of this format.
    """
    model, asked, history = body.get("model"), body.get("message"), body.get("chat_history")
    if not isinstance(model, str) or not isinstance(asked, str) or not isinstance(history, list | None):
        raise DecodeError("a request of the chat API v1 has a `model`, a `message` and a list as its `chat_history`")
    messages: list[Message] = []
    if text(body.get("preamble")):
        messages.append(Message(role="system", content=body["preamble"]))
    for raw in history or ():
        _read(raw, messages)
    _answers(items(body.get("tool_results")), messages)
    if asked:
        messages.append(Message(role="user", content=asked))
    extra = {name: value for name, value in body.items() if name not in _OURS}
    # Their types are lost in ours: the host's own are kept.
    found: Json = {"model": model, "messages": tuple(messages), "tools": tuple(_read_tools(body.get("tools")))}
    if "tools" in body:
        extra["tools"] = body["tools"]
    if count(body.get("max_tokens")):
        found["max_tokens"] = count(body["max_tokens"])
    if number(body.get("temperature")) is not None:
        found["temperature"] = body["temperature"]
    if seed_of(body.get("seed")) is not None:
        found["seed"] = body["seed"]
    form = body.get("response_format")
    if member(form, "type") == "json_object":
        schema = member(form, "schema")
        found["format"] = schema if isinstance(schema, dict) else {"type": "json_object"}
    elif form is not None:
        extra["response_format"] = form
    return Request(**found, extra=extra)


def _read(raw: Any, messages: list[Message]) -> None:
    role = next((ours for ours, theirs in _ROLES.items() if theirs == str(member(raw, "role")).upper()), None)
    if role is None:
        raise DecodeError("an entry of a chat history has the role USER, CHATBOT, SYSTEM or TOOL")
    if role == "tool":
        _answers(items(member(raw, "tool_results")), messages)
        return
    calls = tuple(
        ToolCall(
            id=minted("history", len(messages), position),
            name=text(member(call, "name")),
            arguments=given if isinstance(given := member(call, "parameters"), dict) else None,
        )
        for position, call in enumerate(items(member(raw, "tool_calls")))
    )
    messages.append(
        Message.model_validate({"role": role, "content": text(member(raw, "message")), "tool_calls": calls})
    )


def _answers(results: Iterable[Any], messages: list[Message]) -> None:
    """Tool results as messages; each names the call that it answers by repeating it."""
    open_ = [call for message in messages for call in message.tool_calls]
    for result in results:
        call, outputs = member(result, "call"), items(member(result, "outputs"))
        answered = next(
            (
                each
                for each in open_
                if each.name == member(call, "name") and each.arguments == member(call, "parameters")
            ),
            None,
        )
        if answered is not None:
            open_.remove(answered)
        only = outputs[0] if len(outputs) == 1 else None
        plain = member(only, "text") if isinstance(only, dict) and len(only) == 1 else None
        said = plain if isinstance(plain, str) else json.dumps(only if isinstance(only, dict) else {"outputs": outputs})
        messages.append(
            Message(role="tool", content=said, tool_call_id=answered.id if answered else minted("history", "result"))
        )


def _read_tools(tools: Any) -> Iterable[Tool]:
    for raw in items(tools):
        name = member(raw, "name")
        if isinstance(name, str):
            yield Tool(name=name, description=text(member(raw, "description")))
