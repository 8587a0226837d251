"""Our responses as the chat format would send them: for a provider that plays a script."""

from __future__ import annotations

import json
import re
from typing import Final

from endturn.chat import ChatResponse, Json, ToolCall, Usage
from endturn.formats.error_words import error_words
from endturn.formats.framing import DONE
from endturn.formats.openai_chat_reader import NAME
from endturn.formats.reading import raw_reason, text
from endturn.formats.summaries import Event
from endturn.stop import StopReason
from endturn.stop_reasons import COMPATIBLE, rows_of

_WORD: Final = re.compile(r"\s*\S+|\s+")


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A response as a server of this format would send it: a body, or the events of a stream."""
    raw = raw_reason(response.stop, rows_of(NAME, dialect or COMPATIBLE))
    message = _reply_message(response)
    usage = _reply_usage(response.usage)
    head = {"id": response.id or "chatcmpl-endturn", "created": 0, "model": response.model or "scripted"}
    if not stream:
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": raw}
        body: Json = {**head, "object": "chat.completion", "choices": [choice]}
        return {**body, "usage": usage} if usage else body

    def chunk(delta: Json, finish_reason: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return Event(None, {**head, "object": "chat.completion.chunk", "choices": [choice]})

    events = [chunk({"role": "assistant", "content": ""})]
    for name, value in message.items():
        if name == "content" and isinstance(value, list):
            events += [chunk({name: [part]}) for part in value]
        elif name in ("reasoning_content", "reasoning", "content", "refusal"):
            events += [chunk({name: word}) for word in _WORD.findall(value or "")]
        elif name == "tool_calls":
            # Mistral sends a call whole, and its SDK takes nothing else.
            pieces = [{**call, "index": at} for at, call in enumerate(value)]
            pieces = pieces if dialect == "mistral" else _call_pieces(value)
            events += [chunk({"tool_calls": [piece]}) for piece in pieces]
        elif name != "role":
            events.append(chunk({name: value}))
    if not response.stop.terminal_seen:
        return events
    if raw is not None:
        events.append(chunk({}, raw))
    if usage:
        events.append(Event(None, {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}))
    return [*events, Event(None, DONE)]


def _call_pieces(calls: list[Json]) -> list[Json]:
    pieces: list[Json] = []
    for index, call in enumerate(calls):
        kind = "custom" if call.get("type") == "custom" else "function"
        written = "input" if kind == "custom" else "arguments"
        raw = text(call[kind].get(written))
        pieces.append({**call, "index": index, kind: {"name": call[kind]["name"], written: ""}})
        pieces += [{"index": index, kind: {written: word}} for word in _WORD.findall(raw)]
    return pieces


def _reply_message(response: ChatResponse) -> Json:
    if response.blocks is not None and response.blocks.format == NAME and response.blocks.items:
        return dict(response.blocks.items[0])
    message: Json = {"role": "assistant"}
    if response.reasoning:
        message["reasoning_content"] = response.reasoning
    declined = response.stop.reason is StopReason.REFUSED and response.stop.raw == "stop"
    message |= {"content": None, "refusal": response.text} if declined else {"content": response.text or None}
    if response.tool_calls:
        message["tool_calls"] = [call_of(call) for call in response.tool_calls]
    return message


def _reply_usage(usage: Usage | None) -> Json | None:
    if usage is None:
        return None
    prompt, output = usage.input_tokens or 0, usage.output_tokens or 0
    written: Json = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    cached = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    if any(tokens is not None for tokens in cached.values()):
        written["prompt_tokens_details"] = {name: tokens for name, tokens in cached.items() if tokens is not None}
    if usage.reasoning_tokens is not None:
        written["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return written


def call_of(call: ToolCall) -> Json:
    """A call as a message of this format holds it."""
    raw = call.arguments_raw if call.arguments_raw is not None else json.dumps(call.arguments or {})
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": raw}}


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body; within a stream, the chunk that it is."""
    said = error_words(NAME, status, code, message)
    body: Json = {"error": {"message": said.message, "type": said.type, "param": None, "code": said.code}}
    return Event(None, body) if stream else body
