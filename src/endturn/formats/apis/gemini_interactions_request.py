"""Requests of the Interactions API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from endturn.formats.encoding import (
    content_parts,
    conversation,
    output_limit,
    request_body,
    system_messages,
    tool_description,
)
from endturn.formats.next_request import replayable_blocks
from endturn.formats.settings import ANY_JSON, present
from endturn.vocabulary import Json, Message, Request, Tool

_NAME: Final = "gemini_interactions"


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """Write the body of POST /interactions.

    A request with a continuation token and its interaction's id has no input: the server kept it.
    If the server keeps nothing (`store` is false), the same input is sent again.
    """
    is_stored = (
        request.token is not None
        and request.previous_id is not None
        and request.extra.get("store") is not False
    )
    system = "\n\n".join(message.text for message in system_messages(request, _NAME))
    settings = {
        "max_output_tokens": output_limit(request),
        "temperature": request.temperature,
        "seed": request.seed,
        "tool_choice": _tool_choice(request.tool_choice),
    }
    members = {
        "model": request.model or None,
        "system_instruction": system or None,
        "input": _input(request.messages),
        "tools": [_tool(tool) for tool in request.tools],
        "generation_config": present(settings),
        "response_format": _response_format(request.format),
        "previous_interaction_id": request.previous_id,
        "continuation_token": request.token,
        "stream": stream or None,
    }
    body = request_body(members, request.extra, conversation="input")
    if is_stored and "input" not in request.extra:
        del body["input"]
    return body


def _tool(tool: Tool) -> Json:
    description = {
        "name": tool.name,
        "description": tool_description(tool),
        "parameters": tool.parameters,
    }
    return present({"type": "function", **description})


def _tool_choice(choice: str) -> str | Json | None:
    """Return the API's form of a tool choice, also for tools that only `extra` holds."""
    match choice:
        case "auto":
            return None
        case "none":
            return "none"
        case "required":
            return "any"
        case name:
            return {"allowed_tools": {"mode": "any", "tools": [name]}}


def _response_format(format_: Json | None) -> Json | None:
    if not format_:
        return None
    schema = {} if format_ == ANY_JSON else {"schema": format_}
    return {"type": "text", "mime_type": "application/json", **schema}


def _input(messages: Iterable[Message]) -> list[Json]:
    """Return the conversation as steps, without system messages."""
    steps: list[Json] = []
    names: dict[str, str] = {}  # of the calls so far, by their ids
    for message, native_blocks in conversation(messages, _NAME):
        if message.role == "assistant":
            names |= {call.id: call.name for call in message.tool_calls}
            steps += _answer(message, native_blocks)
        elif native_blocks:
            steps += native_blocks
        elif message.role == "tool":
            steps.append(_result(message, names))
        elif message.role == "user":
            steps.append(
                {"type": "user_input", "content": content_parts(message.content, _text_part)}
            )
    return steps


def _answer(message: Message, native_blocks: Sequence[Json] | None) -> list[Json]:
    """Return the steps of an assistant message."""
    if native_blocks:
        return replayable_blocks(native_blocks, message.tool_calls)
    content = content_parts(message.content, _text_part)
    output = [{"type": "model_output", "content": content}] if message.text.strip() else []
    calls = [
        {
            "type": "function_call",
            "id": call.id,
            "name": call.name,
            "arguments": call.arguments or {},
        }
        for call in message.tool_calls
    ]
    return [*output, *calls]


def _result(message: Message, names: Mapping[str, str]) -> Json:
    id_ = message.tool_call_id or ""
    return present(
        {
            "type": "function_result",
            "call_id": id_,
            "result": message.content,
            "name": names.get(id_),
            "is_error": message.is_error or None,
        }
    )


def _text_part(text: str) -> Json:
    return {"type": "text", "text": text}


def output_step(text: str) -> Json:
    """Return an output step with a text."""
    return {"type": "model_output", "content": [_text_part(text)]}
