"""Our responses as the Messages API would send them: for a provider that plays a script."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from endturn.chat import ChatResponse, Json, Usage
from endturn.formats.anthropic_reader import NAME, REASONS
from endturn.formats.error_words import error_words
from endturn.formats.reading import items, raw_reason, text
from endturn.formats.summaries import Event
from endturn.stop import StopReason

_WORD: Final = re.compile(r"\s*\S+|\s+")


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A response as the API would send it: a body, or the events of a stream."""
    raw = raw_reason(response.stop, REASONS[dialect])
    matched = response.stop.detail if raw == "stop_sequence" else None
    ending: Json = {"stop_reason": raw, "stop_sequence": None if matched == "stop_sequence" else matched}
    if response.stop.reason is StopReason.REFUSED:
        ending["stop_details"] = {"type": "refusal", "category": response.stop.detail, "explanation": None}
    usage = _reply_usage(response.usage)
    blocks = _reply_blocks(response)
    head: Json = {
        "id": response.id or "msg_endturn",
        "type": "message",
        "role": "assistant",
        "model": response.model or "scripted",
    }
    if not stream:
        return {**head, "content": [_whole(block) for block in blocks], **ending, "usage": usage}
    empty = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}
    data: list[Json] = [{"type": "message_start", "message": empty}]
    cut = {call.id for call in response.tool_calls if not call.closed}
    for index, block in enumerate(blocks):
        start, deltas = _block_pieces(block)
        data.append({"type": "content_block_start", "index": index, "content_block": start})
        data += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        breaks_off = not response.stop.terminal_seen and index == len(blocks) - 1
        if block.get("id") not in cut and not breaks_off:
            data.append({"type": "content_block_stop", "index": index})
    if response.stop.terminal_seen:
        data += [{"type": "message_delta", "delta": ending, "usage": usage}, {"type": "message_stop"}]
    return [Event(each["type"], each) for each in data]


def _whole(block: Json) -> Json:
    """A block as a body has it: the input of a call that was cut is an object all the same, an empty one."""
    return {**block, "input": {}} if isinstance(block.get("input"), str) else block


def _block_pieces(block: Json) -> tuple[Json, list[Json]]:
    """A block as a stream sends it: its start, and its deltas."""
    match block.get("type"):
        case "text":
            start = {name: value for name, value in block.items() if name != "citations"} | {"text": ""}
            cited = [{"type": "citations_delta", "citation": each} for each in items(block.get("citations"))]
            return start, [{"type": "text_delta", "text": word} for word in _WORD.findall(text(block["text"]))] + cited
        case "thinking":
            words = _WORD.findall(text(block.get("thinking")))
            deltas: list[Json] = [{"type": "thinking_delta", "thinking": word} for word in words]
            if block.get("signature"):
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            given = block.get("input")
            raw = given if isinstance(given, str) else json.dumps(given) if given else ""
            pieces: list[Json] = [
                {"type": "input_json_delta", "partial_json": word} for word in ("", *_WORD.findall(raw))
            ]
            return {**block, "input": {}}, pieces
        case "compaction":
            known: Json = {name: block[name] for name in ("content", "encrypted_content") if name in block}
            return {**block, "content": None}, [{"type": "compaction_delta", **known}]
        case _:
            return block, []


def _reply_blocks(response: ChatResponse) -> list[Json]:
    if response.blocks is not None and response.blocks.format == NAME:
        return list(response.blocks.items)
    blocks: list[Json] = []
    if response.reasoning:
        blocks.append({"type": "thinking", "thinking": response.reasoning, "signature": "c2NyaXB0ZWQ="})
    if response.text:
        blocks.append({"type": "text", "text": response.text})
    for call in response.tool_calls:
        given: Any = call.arguments_raw if call.arguments is None else call.arguments
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given or {}})
    return blocks


def _reply_usage(usage: Usage | None) -> Json:
    usage = usage or Usage()
    read, made = usage.cache_read_tokens, usage.cache_write_tokens
    written: Json = {
        "input_tokens": max(0, (usage.input_tokens or 0) - (read or 0) - (made or 0)),
        "output_tokens": usage.output_tokens or 0,
    }
    if read is not None:
        written["cache_read_input_tokens"] = read
    if made is not None:
        written["cache_creation_input_tokens"] = made
    if usage.reasoning_tokens is not None:
        written["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return written


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body; within a stream, its `error` event."""
    said = error_words(NAME, status, code, message)
    error = {"type": said.type, "message": said.message}
    body: Json = {"type": "error", "error": error, "request_id": f"req_{number:08d}"}
    return Event("error", body) if stream else body
