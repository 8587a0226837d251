"""Our responses as generateContent would send them: for a provider that plays a script."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Final

from endturn.chat import ChatResponse, Json, ToolCall, Usage
from endturn.formats.error_words import error_words
from endturn.formats.gemini_reader import NAME, PROMPT, REASONS
from endturn.formats.reading import raw_reason, text
from endturn.formats.summaries import Event
from endturn.stop import Resume, Stop, StopReason, find_row

_WORD: Final = re.compile(r"\s*\S+|\s+")

WORDS: Final[Mapping[StopReason, str]] = {StopReason.TOOL_CALL: "STOP"}
"""What is said for a reason that the format has no row for: the calls themselves say it."""

# HTTP status → gRPC status, message.


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A response as the API would send it: a body, or the chunks of a stream."""
    head: Json = {"modelVersion": response.model or "scripted"}
    if response.id is not None:
        head["responseId"] = response.id
    ending: Json = {}
    if response.usage is not None:
        ending["usageMetadata"] = _reply_usage(response.usage)
    stop = response.stop
    if stop.detail == PROMPT:
        ending["promptFeedback"] = {"blockReason": stop.raw}
        return [Event(None, {**ending, **head})] if stream else {**ending, **head}
    parts = _reply_parts(response)
    last: Json = {"index": 0}
    raw = _raw(stop)
    if raw is not None:
        last["finishReason"] = raw
    row = None if raw is None else find_row(raw, REASONS[""])
    if row is not None and row.resume is Resume.NATIVE_TOKEN:
        # The SDK stops where the token is the one that it has sent.
        last["continuationToken"] = response.token or urlsafe_b64encode(f"after {response.id}".encode()).decode()
    content: Json = {"parts": parts, "role": "model"} if parts else {"role": "model"}
    if not stream:
        return {"candidates": [{"content": content, **last}], **ending, **head}
    events = [
        Event(None, {"candidates": [{"content": {"parts": [piece], "role": "model"}, "index": 0}], **head})
        for place, part in enumerate(parts)
        for piece in _pieces(part, broken_off=not stop.terminal_seen and place == len(parts) - 1)
    ]
    if stop.terminal_seen:
        events.append(Event(None, {"candidates": [{"content": {"role": "model"}, **last}], **ending, **head}))
    return events


def _raw(stop: Stop) -> str | None:
    rows = REASONS[""]
    unsaid = stop.promoted_from is not StopReason.MISSING if stop.raw is None else find_row(stop.raw, rows) is None
    return WORDS[stop.reason] if unsaid and stop.reason in WORDS else raw_reason(stop, rows)


def _pieces(part: Json, *, broken_off: bool) -> list[Json]:
    """A part as a stream sends it: words one by one, a call whole unless the stream breaks off in it."""
    if part.keys() <= {"text", "thought"}:
        return [{**part, "text": word} for word in _WORD.findall(text(part.get("text")))]
    call = part.get("functionCall")
    if broken_off and isinstance(call, dict):
        return [{"functionCall": {"name": call.get("name", ""), "willContinue": True}}]
    return [part]


def _reply_parts(response: ChatResponse) -> list[Json]:
    if response.blocks is not None and response.blocks.format == NAME:
        return list(response.blocks.items)
    parts: list[Json] = []
    if response.reasoning:
        parts.append({"text": response.reasoning, "thought": True})
    if response.text:
        parts.append({"text": response.text})
    return parts + [{"functionCall": _reply_call(call)} for call in response.tool_calls]


def _reply_call(call: ToolCall) -> Json:
    """A call. Arguments are an object here: one that has none is said as Vertex AI says one that it has not ended."""
    named = {"id": call.id, "name": call.name}
    return {**named, "willContinue": True} if call.arguments is None else {**named, "args": call.arguments}


def _reply_usage(usage: Usage) -> Json:
    asked, output, thought = usage.input_tokens, usage.output_tokens, usage.reasoning_tokens
    written = {
        "promptTokenCount": asked,
        "candidatesTokenCount": None if output is None else output - (thought or 0),
        "thoughtsTokenCount": thought,
        "cachedContentTokenCount": usage.cache_read_tokens,
        "totalTokenCount": (asked or 0) + (output or 0),
    }
    return {name: tokens for name, tokens in written.items() if tokens is not None}


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body; within a stream, the event that it is."""
    said = error_words(NAME, status, code, message)
    body: Json = {"error": {"code": status, "message": said.message, "status": said.type}}
    return Event(None, body) if stream else body
