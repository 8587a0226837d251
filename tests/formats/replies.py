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


def chat_call(id_: str | None, name: str, arguments: str) -> Json:
    """A tool call of a chat message."""
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def chunk(delta: Json, reason: Any = None, /, index: int = 0, **more: Any) -> Event:
    """A chunk of a chat stream."""
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
    head = {"id": "chatcmpl-Cq7", "object": "chat.completion.chunk", "created": 1763700000, "model": "gpt-5.6-mini"}
    return Event(None, {**head, "choices": [choice], **more})


def call_chunk(index: int | None, arguments: str = "", id_: str | None = None, name: str | None = None) -> Event:
    """A chunk with a piece of one tool call."""
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return chunk({"tool_calls": [{"index": index, "function": function} | ({"id": id_} if id_ is not None else {})]})


def usage_chunk() -> Event:
    """The chunk after the last: usage, and no choice."""
    usage = {"prompt_tokens": 31, "completion_tokens": 17, "total_tokens": 48}
    return Event(None, {"id": "chatcmpl-Cq7", "model": "gpt-5.6-mini", "choices": [], "usage": usage})


DONE_EVENT = Event(None, DONE)
WEATHER = chat_call("call_a", "weather", '{"city": "Zürich", "days": [1, 2]}')
CLOCK = chat_call("call_b", "clock", "{}")

IMAGE: Json = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

CHAT: dict[str, Json] = {
    "text": chat_body({"content": "Grüezi 👋🏽, the answer is 42.\n\n  Done. "}),
    "length": chat_body({"content": "The answer is"}, "length"),
    "reasoning only": chat_body({"content": "", "reasoning_content": "Let me think about"}, "length"),
    "reasoning": chat_body({"content": "42", "reasoning": "six times seven", "reasoning_details": [{"type": "x"}]}),
    "tool calls": chat_body({"content": "Looking.", "tool_calls": [WEATHER, CLOCK]}, "tool_calls"),
    "forced tool": chat_body({"tool_calls": [WEATHER]}, "stop"),
    "cut call": chat_body({"tool_calls": [WEATHER, chat_call("call_b", "clock", '{"zone": "Eu')]}, "length"),
    "cut call that parses": chat_body({"tool_calls": [WEATHER, CLOCK]}, "length"),
    "no call id": chat_body(
        {"tool_calls": [chat_call("", "clock", "{}"), chat_call(None, "clock", "{}")]}, "tool_calls"
    ),
    "legacy": chat_body({"function_call": {"name": "clock", "arguments": "{}"}}, "function_call"),
    "custom tool": chat_body(
        {"tool_calls": [{"id": "call_c", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}]},
        "tool_calls",
    ),
    "refusal": chat_body({"refusal": "I cannot help with that."}),
    "filtered": chat_body({"content": "Well, "}, "content_filter"),
    "empty": chat_body({"content": ""}),
    "unknown": chat_body({"content": "Hm"}, "tired"),
    "null": chat_body({"content": "Hm"}, None),
    "audio": chat_body(
        {"audio": {"id": "audio_abc", "data": "UklGRg==", "expires_at": 1763703600, "transcript": "Hi."}}
    ),
    "images": chat_body({"content": "", "images": [IMAGE]}),
}

CHAT_STREAMS: dict[str, list[Event]] = {
    "text": [
        Event(
            None, {"id": "", "model": "", "created": 0, "choices": [], "prompt_filter_results": []}
        ),  # Azure's first.
        chunk({"role": "assistant", "content": "", "refusal": None}),
        *[chunk({"content": f"wörd {i} "}) for i in range(150)],
        chunk({}, "stop"),
        usage_chunk(),
        DONE_EVENT,
    ],
    "tool calls": [
        chunk({"role": "assistant", "content": None}),
        call_chunk(0, "", "call_a", "weather"),
        call_chunk(0, '{"city": "Zür'),
        call_chunk(0, 'ich"}'),
        call_chunk(1, "", "call_b", "clock"),
        call_chunk(1, "{}"),
        chunk({}, "tool_calls"),
        usage_chunk(),
        DONE_EVENT,
    ],
    "cut call": [
        chunk({"role": "assistant"}),
        call_chunk(0, '{"a": 1}', "call_a", "weather"),
        call_chunk(1, "{", "call_b", "clock"),
        chunk({}, "length"),
        DONE_EVENT,
    ],
    "one index for all": [
        call_chunk(0, '{"a": 1}', "call_a", "weather"),
        call_chunk(0, "{}", "call_b", "clock"),
        chunk({}, "stop"),
    ],
    "refusal": [chunk({"refusal": "I can"}), chunk({"refusal": "not."}), chunk({}, "stop"), DONE_EVENT],
    "split": [
        chunk({"role": "assistant", "content": "Let me look."}),
        chunk({}, "stop"),
        Event(
            None,
            {
                "choices": [
                    {"index": 1, "delta": {"tool_calls": [{"index": 0, **WEATHER}]}, "finish_reason": "tool_calls"}
                ]
            },
        ),
        DONE_EVENT,
    ],
    "error after length": [
        chunk({"content": "The answer is"}),
        chunk({"content": ""}, "length", native_finish_reason="MAX_TOKENS"),
        chunk({"content": ""}, "length", error={"code": 400, "message": "Token limit reached"}),
        DONE_EVENT,
    ],
    "objects": [chunk({"content": "x"}), chunk({}, {"type": "length", "length": 12})],
    "stop on every chunk": [
        chunk({"role": "assistant", "reasoning_content": "Six times seven."}, "stop"),
        chunk({"content": "The answer"}, "stop"),
        chunk({"content": " is 42."}, "stop"),
        usage_chunk(),
        DONE_EVENT,
    ],
    "the whole message at the end": [
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "A greeting."}),
        chunk({"content": "Hello"}),
        chunk({"content": " world"}),
        Event(None, chat_body({"content": "Hello world", "reasoning_content": "A greeting."}, "stop")),
        DONE_EVENT,
    ],
    "audio": [
        chunk({"role": "assistant", "content": None, "refusal": None}),
        chunk({"audio": {"id": "audio_abc", "transcript": "Good"}}),
        chunk({"audio": {"transcript": " day."}}),
        chunk({"audio": {"data": "AAAA"}}),
        chunk({"audio": {"data": "BBB="}}),
        chunk({"audio": {"expires_at": 1763703600}}),
        chunk({}, "stop"),
        usage_chunk(),
        DONE_EVENT,
    ],
}


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
