"""Requests of Bedrock's Converse API: ours as its bodies, its bodies as ours."""

from __future__ import annotations

import json
from typing import Any, Final

from endturn.chat import Blocks, Json, Message, Request, Tool, ToolCall
from endturn.errors import DecodeError, UsageError
from endturn.formats.bedrock_converse_reader import NAME, client_call, visible
from endturn.formats.reading import count, items, member, minted, number, text

_OURS: Final = frozenset({"model", "stream", "messages", "system"})


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of a Converse request; the path says the model, and whether to stream.

    The API has no seed, and no JSON format without a schema: both are left out. It cannot forbid tools that it knows,
    and refuses a history with calls where it knows none: `none` offers them as `auto` does.

    Members of `extra` that are objects in the body too, such as `inferenceConfig`, are merged with those.

    Raises:
        UsageError: the request asks to fetch a response, which this format cannot.
    """
    if request.retrieve is not None:
        raise UsageError("Converse cannot fetch a response by its id: use a provider function that can")
    body: Json = {"messages": _messages(request.messages)}
    system = [message.content for message in request.messages if message.role == "system" and _own(message) is None]
    if system:
        body["system"] = [part for content in system for part in _parts(content)]
    limits = {"maxTokens": request.max_tokens, "temperature": request.temperature}
    if any(value is not None for value in limits.values()):
        body["inferenceConfig"] = {name: value for name, value in limits.items() if value is not None}
    if request.tools:
        body["toolConfig"] = _tool_config(request.tools, request.tool_choice)
    if request.format is not None and request.format != {"type": "json_object"}:
        schema = {"jsonSchema": {"schema": json.dumps(request.format)}}
        body["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": schema}}
    for name, value in request.extra.items():
        ours = body.get(name)
        body[name] = {**ours, **value} if isinstance(ours, dict) and isinstance(value, dict) else value
    return body


def _tool_config(tools: tuple[Tool, ...], choice: str) -> Json:
    written: Json = {"tools": [_tool(tool) for tool in tools]}
    if choice not in ("auto", "none"):
        written["toolChoice"] = {"any": {}} if choice == "required" else {"tool": {"name": choice}}
    return written


def _tool(tool: Tool) -> Json:
    # An empty description is refused.
    described = {"description": tool.description} if tool.description.strip() else {}
    return {"toolSpec": {"name": tool.name, **described, "inputSchema": {"json": tool.parameters}}}


def _parts(content: str | list[Json]) -> list[Json]:
    return [{"text": content}] if isinstance(content, str) else content


def _own(message: Message) -> tuple[Json, ...] | None:
    """What a message holds in this format's own shape: it wins over its content."""
    return message.blocks.items if message.blocks is not None and message.blocks.format == NAME else None


def _messages(messages: tuple[Message, ...]) -> list[Json]:
    """The messages in the API's shape. Roles must alternate: what one role says in succession is one message."""
    written: list[Json] = []
    for message in messages:
        own = _own(message)
        if message.role == "system":
            written += own or ()
            continue
        role = "assistant" if message.role == "assistant" else "user"
        content = {"assistant": _said, "tool": _result, "user": _asked}[message.role](message)
        if not content:
            continue
        if written and written[-1]["role"] == role:
            written[-1] = {**written[-1], "content": [*written[-1]["content"], *content]}
        else:
            written.append({"role": role, "content": content})
    return written


def _asked(message: Message) -> list[Json]:
    return _parts(message.content)


def _result(message: Message) -> list[Json]:
    own = _own(message)
    if own:
        return list(own)
    result: Json = {"toolUseId": message.tool_call_id or "", "content": _parts(message.content)}
    return [{"toolResult": {**result, "status": "error"} if message.is_error else result}]


def _said(message: Message) -> list[Json]:
    """An assistant message's content; empty where it says nothing, which the API refuses."""
    own = _own(message)
    if own is not None:
        kept = {call.id for call in message.tool_calls}
        return [_untyped(block) for block in own if replayable(block, kept)]
    uses: list[Json] = [
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": call.arguments or {}}}
        for call in message.tool_calls
    ]
    return [block for block in _parts(message.content) if replayable(block, frozenset())] + uses


def _untyped(block: Json) -> Json:
    """A client's call as a request has it: a type that some models give it is none that the API takes."""
    use = block.get("toolUse")
    if not client_call(use) or "type" not in use:
        return block
    return {"toolUse": {name: value for name, value in use.items() if name != "type"}}


def replayable(block: Json, kept: set[str] | frozenset[str]) -> bool:
    """Whether the API takes a block back: no call that left the history, no unsigned thinking, no blank text."""
    if client_call(block.get("toolUse")):
        return block["toolUse"].get("toolUseId") in kept
    if "reasoningContent" in block:
        thought = block["reasoningContent"]
        signed = member(member(thought, "reasoningText"), "signature")
        return bool(signed or member(thought, "redactedContent"))
    return "text" not in block or bool(text(block["text"]).strip())


def request(body: Json) -> Request:
    """A request body of this format as our Request. What ours has no word for travels in `extra`, verbatim.

    Raises:
        DecodeError: there is no model, or the messages are no list of messages.
    """
    # A managed prompt is asked without messages.
    model, messages = body.get("model"), body.get("messages", [])
    if not isinstance(model, str) or not isinstance(messages, list):
        raise DecodeError("a request of Converse has a model and a list of `messages`")
    history = _read_system(body.get("system"))
    for raw in messages:
        history += _read_message(raw)
    extra = {name: value for name, value in body.items() if name not in _OURS}
    found: Json = {"model": model, "messages": tuple(history), "extra": extra}
    _read_limits(found, extra)
    _read_tools(found, extra)
    config = extra.get("outputConfig")
    form = member(config, "textFormat")
    try:
        schema = json.loads(member(member(member(form, "structure"), "jsonSchema"), "schema"))
    except (TypeError, ValueError, RecursionError):
        schema = None
    if isinstance(schema, dict):
        found["format"] = schema
        if encode(Request(model="", messages=(), format=schema)).get("outputConfig") == config:
            del extra["outputConfig"]
    return Request(**found)


def _read_system(system: Any) -> list[Message]:
    if not isinstance(system, list) or not system or not all(isinstance(block, dict) for block in system):
        return []
    return [Message(role="system", content=_text_or_parts(system))]


def _text_or_parts(parts: list[Json]) -> str | list[Json]:
    """Parts that are but one text as that text."""
    if len(parts) == 1 and parts[0].keys() == {"text"} and isinstance(parts[0]["text"], str):
        return parts[0]["text"]
    return parts


def _read_message(raw: Any) -> list[Message]:
    role, content = member(raw, "role"), member(raw, "content")
    if role not in ("user", "assistant", "system") or not isinstance(content, list):
        raise DecodeError("a message of Converse has a `role` of its own and a list of blocks as its `content`")
    if not all(isinstance(block, dict) for block in content):
        raise DecodeError("the content of a message is a list of blocks")
    if role == "system":  # In mid-conversation: it must stay where it is.
        return [Message(role="system", content=content, blocks=Blocks(NAME, (raw,)))]
    if role == "assistant":
        calls = tuple(
            _read_call(block["toolUse"], position)
            for position, block in enumerate(content)
            if client_call(block.get("toolUse"))
        )
        said = "".join(map(visible, content))
        return [Message(role="assistant", content=said, tool_calls=calls, blocks=Blocks(NAME, tuple(content)))]
    found: list[Message] = []
    rest: list[Json] = []
    for block in content:
        if not isinstance(block.get("toolResult"), dict):
            rest.append(block)
            continue
        if rest:
            found.append(Message(role="user", content=_text_or_parts(rest)))
            rest = []
        found.append(_read_result(block))
    return [*found, Message(role="user", content=_text_or_parts(rest))] if rest or not found else found


def _read_call(use: Json, position: int) -> ToolCall:
    given = use.get("input")
    return ToolCall(
        id=text(use.get("toolUseId")) or minted("history", position),
        name=text(use.get("name")),
        arguments=given if isinstance(given, dict) else None,
    )


def _read_result(block: Json) -> Message:
    result = block["toolResult"]
    parts = [part for part in items(result.get("content")) if isinstance(part, dict)]
    message = Message(
        role="tool",
        content=_text_or_parts(parts),
        tool_call_id=text(result.get("toolUseId")),
        is_error=result.get("status") == "error",
    )
    return message if _result(message) == [block] else message.but(blocks=Blocks(NAME, (block,)))


def _read_limits(found: Json, extra: Json) -> None:
    config = extra.get("inferenceConfig")
    if not isinstance(config, dict):
        return
    rest = dict(config)
    if count(config.get("maxTokens")):
        found["max_tokens"] = count(rest.pop("maxTokens"))
    if number(config.get("temperature")) is not None:
        found["temperature"] = rest.pop("temperature")
    extra["inferenceConfig"] = rest
    if not rest:
        del extra["inferenceConfig"]


def _read_tools(found: Json, extra: Json) -> None:
    config = extra.get("toolConfig")
    tools = tuple(tool for raw in items(member(config, "tools")) if (tool := _read_tool(raw)) is not None)
    choice = member(config, "toolChoice")
    name = member(member(choice, "tool"), "name")
    found["tools"] = tools
    found["tool_choice"] = name if isinstance(name, str) else "required" if member(choice, "any") == {} else "auto"
    if tools and _tool_config(tools, found["tool_choice"]) == config:
        del extra["toolConfig"]


def _read_tool(raw: Any) -> Tool | None:
    spec = member(raw, "toolSpec")
    name, schema = member(spec, "name"), member(member(spec, "inputSchema"), "json")
    if not isinstance(name, str) or not isinstance(schema, dict):
        return None  # A tool of the server, or a cache point.
    return Tool(name=name, description=text(member(spec, "description")), parameters=schema)
