"""Our responses as Ollama would send them: for a provider that plays a script."""

from __future__ import annotations

import re
from typing import Any, Final

from endturn.chat import ChatResponse, Json, ToolCall
from endturn.formats.error_words import error_words
from endturn.formats.ollama_reader import NAME, REASONS
from endturn.formats.reading import raw_reason
from endturn.formats.summaries import Event
from endturn.stop import StopReason

_WORD: Final = re.compile(r"\s*\S+|\s+")


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A response as `/api/chat` would send it: a body, or the lines of a stream."""
    head: Json = {"model": response.model or "scripted", "created_at": "2026-01-01T00:00:00Z"}
    message = _reply_message(response)
    if not stream:
        return {**head, "message": message, **_ending(response)}
    pieces: list[Json] = []
    for name in ("thinking", "content"):
        pieces += [{"content": "", name: word} for word in _WORD.findall(message.get(name) or "")]
    pieces += [{"content": "", "tool_calls": [call]} for call in message.get("tool_calls") or ()]
    lines: list[Json] = [{**head, "message": {"role": "assistant", **piece}, "done": False} for piece in pieces]
    if response.stop.terminal_seen:
        rest = {name: value for name, value in message.items() if name not in ("thinking", "tool_calls")}
        lines.append({**head, "message": {**rest, "content": ""}, **_ending(response)})
    return [Event(None, line) for line in lines]


def _ending(response: ChatResponse) -> Json:
    """What a response's last line says beside its message."""
    raw = raw_reason(response.stop, REASONS[""])
    if raw is None:
        return {"done": False}
    ending: Json = {"done": True, "done_reason": raw, "total_duration": 1, "load_duration": 1}
    # The server leaves out what is empty.
    if response.stop.reason is StopReason.ERROR and not raw:
        del ending["done_reason"]
    if response.usage is not None:
        counted = {"prompt_eval_count": response.usage.input_tokens, "eval_count": response.usage.output_tokens}
        ending |= {name: tokens for name, tokens in counted.items() if tokens is not None}
    return ending


def _reply_message(response: ChatResponse) -> Json:
    if response.blocks is not None and response.blocks.format == NAME and response.blocks.items:
        return dict(response.blocks.items[0])
    message: Json = {"role": "assistant", "content": response.text}
    if response.reasoning:
        message["thinking"] = response.reasoning
    if response.tool_calls:
        message["tool_calls"] = [call_of(call) for call in response.tool_calls]
    return message


def call_of(call: ToolCall) -> Json:
    """A call as a message of this format holds it: its arguments are an object, whatever they were."""
    given: Any = call.arguments or {}
    return {"id": call.id, "function": {"name": call.name, "arguments": given}}


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body; within a stream, the line that it is."""
    body: Json = {"error": error_words(NAME, status, code, message).message}
    return Event(None, body) if stream else body
