"""Our responses as Cohere's chat API v2 would send them: for a provider that plays a script."""

from __future__ import annotations

import json
import re
from typing import Final

from endturn.chat import ChatResponse, Json, ToolCall, Usage
from endturn.formats.cohere_reader import NAME, REASONS
from endturn.formats.error_words import error_words
from endturn.formats.framing import DONE
from endturn.formats.reading import items, raw_reason, text
from endturn.formats.summaries import Event
from endturn.stop import StopReason, find_row

_WORD: Final = re.compile(r"\s*\S+|\s+")
# v1's words are understood too: a response that was read from it keeps its own.
_ROWS: Final = {**REASONS[""], **REASONS["v1"]}
_ID: Final = "c14c80c3-18eb-4519-9460-0000"
"""How ids begin: with eight digits more, each is a UUID, as Cohere's are."""


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A response as the API would send it: a body, or the events of a stream."""
    raw = raw_reason(response.stop, _ROWS)
    message, usage = _message(response), _usage(response.usage)
    id_ = response.id or f"{_ID}00000000"
    if not stream:
        body: Json = {"id": id_, "finish_reason": raw, "message": message}
        return {**body, "usage": usage} if usage else body
    empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    data: list[Json] = [{"type": "message-start", "id": id_, "delta": {"message": empty}}]
    data += _content_events(message)
    data += [_event("tool-plan-delta", None, tool_plan=word) for word in _words(message.get("tool_plan"))]
    cut = {call.id for call in response.tool_calls if not call.closed}
    for index, call in enumerate(items(message.get("tool_calls"))):
        data += _call_events(index, call)
        if call.get("id") in cut:
            data.pop()
    if not response.stop.terminal_seen and str(data[-1]["type"]).endswith("-end"):
        data.pop()
    if response.stop.terminal_seen:
        end: Json = {"finish_reason": raw}
        row = find_row(raw, _ROWS) if raw else None
        if response.stop.reason is StopReason.ERROR and response.stop.detail != (row.detail if row else None):
            end["error"] = response.stop.detail
        data.append({"type": "message-end", "delta": {**end, "usage": usage} if usage else end})
    events = [Event(each["type"], each) for each in data]
    return [*events, Event(None, DONE)] if response.stop.terminal_seen else events


def _event(kind: str, index: int | None, **message: object) -> Json:
    place = {} if index is None else {"index": index}
    return {"type": kind, **place, "delta": {"message": message}}


def _words(said: object) -> list[str]:
    return _WORD.findall(text(said))


def _content_events(message: Json) -> list[Json]:
    events: list[Json] = []
    for index, part in enumerate(items(message.get("content"))):
        kind = part.get("type")
        start = {**part, kind: ""} if kind in ("text", "thinking") else part
        events.append(_event("content-start", index, content=start))
        if start is not part:
            events += [_event("content-delta", index, content={kind: word}) for word in _words(part.get(kind))]
        if kind == "text":
            for place, citation in enumerate(items(message.get("citations"))):
                if citation.get("content_index", index) == index:
                    events.append(_event("citation-start", place, citations=citation))
                    events.append({"type": "citation-end", "index": place})
        events.append({"type": "content-end", "index": index})
    return events


def _call_events(index: int, call: Json) -> list[Json]:
    function = call["function"]
    start = {**call, "function": {**function, "arguments": ""}}
    return [
        _event("tool-call-start", index, tool_calls=start),
        *(
            _event("tool-call-delta", index, tool_calls={"function": {"arguments": word}})
            for word in _words(function.get("arguments"))
        ),
        {"type": "tool-call-end", "index": index},
    ]


def _message(response: ChatResponse) -> Json:
    if response.blocks is not None and response.blocks.format == NAME and response.blocks.items:
        return dict(response.blocks.items[0])
    content: list[Json] = []
    if response.reasoning:
        content.append({"type": "thinking", "thinking": response.reasoning})
    if response.text:
        content.append({"type": "text", "text": response.text})
    message: Json = {"role": "assistant"}
    if content:
        message["content"] = content
    if response.tool_calls:
        message["tool_calls"] = [call_of(call) for call in response.tool_calls]
    return message


def call_of(call: ToolCall) -> Json:
    """A call as a message of v2 holds it."""
    raw = call.arguments_raw if call.arguments_raw is not None else json.dumps(call.arguments or {})
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": raw}}


def _usage(usage: Usage | None) -> Json | None:
    if usage is None:
        return None
    counted = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    made = {name: tokens for name, tokens in counted.items() if tokens is not None}
    written: Json = {"billed_units": made, "tokens": made}
    return written if usage.cache_read_tokens is None else {**written, "cached_tokens": usage.cache_read_tokens}


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body; within a stream, the `message-end` that tells of it."""
    said = error_words("cohere", status, code, message).message
    if not stream:
        return {"id": f"{_ID}{number:08d}", "message": said}
    reason = "TIMEOUT" if status in (408, 504) else "ERROR"
    return Event("message-end", {"type": "message-end", "delta": {"error": said, "finish_reason": reason}})
