"""Replies as the providers send them, written out by hand: whole bodies and streams of both formats."""

from __future__ import annotations

from typing import Any

from endturn.formats import Event
from endturn.formats.framing import DONE

Json = dict[str, Any]


def chat_body(message: Json, reason: Any = "stop", /, **more: Any) -> Json:
    """A chat completion of one choice."""
    return {
        "id": "chatcmpl-Cq7",
        "object": "chat.completion",
        "created": 1763700000,
        "model": "gpt-5.6-mini",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": None, "refusal": None, **message},
                "logprobs": None,
                "finish_reason": reason,
            }
        ],
        "usage": {
            "prompt_tokens": 31,
            "completion_tokens": 17,
            "total_tokens": 48,
            "prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 5, "audio_tokens": 0},
        },
        "service_tier": "default",
        "system_fingerprint": "fp_1",
        **more,
    }


def chunk(delta: Json, reason: Any = None, /, index: int = 0, **more: Any) -> Event:
    """A chunk of a chat stream."""
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
    head = {"id": "chatcmpl-Cq7", "object": "chat.completion.chunk", "created": 1763700000, "model": "gpt-5.6-mini"}
    return Event(None, {**head, "choices": [choice], **more})


def usage_chunk() -> Event:
    """The chunk after the last: usage, and no choice."""
    usage = {"prompt_tokens": 31, "completion_tokens": 17, "total_tokens": 48}
    return Event(None, {"id": "chatcmpl-Cq7", "model": "gpt-5.6-mini", "choices": [], "usage": usage})


DONE_EVENT = Event(None, DONE)


def message(content: list[Json], reason: Any = "end_turn", /, **more: Any) -> Json:
    """A body of the Messages API."""
    return {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 3,
            "cache_read_input_tokens": 20,
            "output_tokens": 17,
            "output_tokens_details": {"thinking_tokens": 5},
            "service_tier": "standard",
        },
        **more,
    }


def say(text: str) -> Json:
    """A text block."""
    return {"type": "text", "text": text}


def use(id_: str, name: str, given: Any) -> Json:
    """A block that calls a client's tool."""
    return {"type": "tool_use", "id": id_, "name": name, "input": given}


def named(data: Json) -> Event:
    """An event whose name is its type."""
    return Event(data["type"], data)


def anthropic_stream(
    blocks: list[list[Json]], reason: Any = "end_turn", /, stop: bool = True, **delta: Any
) -> list[Event]:
    """A stream of the Messages API: per block its start, then its deltas; the last block is left open unless `stop`."""
    events: list[Json] = [
        {
            "type": "message_start",
            "message": message([], None, usage={"input_tokens": 10, "cache_read_input_tokens": 20, "output_tokens": 1}),
        },
        {"type": "ping"},
    ]
    for index, (start, *deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": each} for each in deltas]
        if stop or index < len(blocks) - 1:
            events.append({"type": "content_block_stop", "index": index})
    events += [
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None, **delta},
            "usage": {"output_tokens": 17},
        },
        {"type": "message_stop"},
    ]
    return [named(event) for event in events]


def said(*words: str) -> list[Json]:
    """A streamed text block."""
    return [say(""), *({"type": "text_delta", "text": word} for word in words)]


def used(id_: str, name: str, *pieces: str) -> list[Json]:
    """A streamed call of a client's tool."""
    return [use(id_, name, {}), *({"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces))]
