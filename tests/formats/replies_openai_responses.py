"""Replies of the Responses API: whole bodies and streams."""

from __future__ import annotations

from typing import Any

from endturn.formats import Event
from tests.formats.replies import Json, template


def body(output: list[Json], status: Any = "completed", /, **more: Any) -> Json:
    """A response."""
    return template("response", output=output, status=status, **more)


def cut(output: list[Json], **more: Any) -> Json:
    """A response that is incomplete."""
    return body(output, "incomplete", incomplete_details={"reason": "max_output_tokens"}, **more)


def say(text: str, status: str = "completed") -> Json:
    """A message."""
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"id": "msg_1", "type": "message", "status": status, "role": "assistant", "content": content}


def named(*events: Json) -> list[Event]:
    """Events whose names are their types, numbered."""
    return [Event(event["type"], {**event, "sequence_number": number}) for number, event in enumerate(events)]


def begun(**more: Any) -> list[Json]:
    """How a stream begins."""
    head = body([], "in_progress", usage=None, **more)
    return [{"type": "response.created", "response": head}, {"type": "response.in_progress", "response": head}]


def said(index: int, *words: str) -> list[Json]:
    """A streamed message."""
    whole = say("".join(words))
    there = {"item_id": whole["id"], "output_index": index, "content_index": 0, "logprobs": []}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": {**whole, "content": []}},
        *({"type": "response.output_text.delta", **there, "delta": word} for word in words),
        {"type": "response.output_text.done", **there, "text": "".join(words)},
        {"type": "response.output_item.done", "output_index": index, "item": whole},
    ]
