"""Replies as the providers send them: whole bodies and streams of chat and of messages."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from endturn.formats import Event
from endturn.formats.framing import DONE

Json = dict[str, Any]
_FILE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


def template(kind: str, **more: Any) -> Json:
    """A body of the file, with more members."""
    return {**deepcopy(_FILE[kind]), **more}


def chat_body(message: Json, reason: Any = "stop", /, **more: Any) -> Json:
    """A chat completion of one choice."""
    said = {"role": "assistant", "content": None, "refusal": None, **message}
    return template("chat", choices=[{"index": 0, "message": said, "logprobs": None, "finish_reason": reason}], **more)


def chunk(delta: Json, reason: Any = None, /, index: int = 0, **more: Any) -> Event:
    """A chunk of a chat stream."""
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
    head = {name: _FILE["chat"][name] for name in ("id", "created", "model")}
    return Event(None, {**head, "object": "chat.completion.chunk", "choices": [choice], **more})


def usage_chunk() -> Event:
    """The chunk after the last: usage, and no choice."""
    usage = {"prompt_tokens": 31, "completion_tokens": 17, "total_tokens": 48}
    return Event(None, {"id": "chatcmpl-Cq7", "model": "gpt-5.6-mini", "choices": [], "usage": usage})


DONE_EVENT = Event(None, DONE)


def message(content: list[Json], reason: Any = "end_turn", /, **more: Any) -> Json:
    """A body of the Messages API."""
    return template("message", content=content, stop_reason=reason, **more)


def say(text: str) -> Json:
    """A text block."""
    return {"type": "text", "text": text}


def anthropic_stream(blocks: list[list[Json]], reason: Any = "end_turn") -> list[Event]:
    """A stream of the Messages API: per block its start, then its deltas."""
    usage = {"input_tokens": 10, "cache_read_input_tokens": 20, "output_tokens": 1}
    events: list[Json] = [{"type": "message_start", "message": message([], None, usage=usage)}, {"type": "ping"}]
    for index, (start, *deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": each} for each in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": reason, "stop_sequence": None}
    events += [{"type": "message_delta", "delta": ended, "usage": {"output_tokens": 17}}, {"type": "message_stop"}]
    return [Event(event["type"], event) for event in events]


def said(*words: str) -> list[Json]:
    """A streamed text block."""
    return [say(""), *({"type": "text_delta", "text": word} for word in words)]
