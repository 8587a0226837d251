"""Requests of Bedrock's Converse API: ours as its bodies, its bodies as ours."""

from __future__ import annotations

import json

from endturn.chat import Json, Message, Request, Tool
from endturn.formats.bedrock_converse_reader import NAME, client_call
from endturn.formats.reading import member, text


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of a Converse request; the path says the model, and whether to stream.

    The API has no seed, and no JSON format without a schema: both are left out. It cannot forbid tools that it knows,
    and refuses a history with calls where it knows none: `none` offers them as `auto` does.

    Members of `extra` that are objects in the body too, such as `inferenceConfig`, are merged with those.
    """
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
