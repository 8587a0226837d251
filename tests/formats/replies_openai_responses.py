"""Replies of the Responses API, written out by hand in the shapes of openai 3.54: whole bodies and streams."""

from __future__ import annotations

from typing import Any

from endturn.formats import Event

Json = dict[str, Any]
USAGE: Json = {
    "input_tokens": 31,
    "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 3},
    "output_tokens": 17,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 48,
}


def body(output: list[Json], status: Any = "completed", /, **more: Any) -> Json:
    """A response."""
    return {
        "id": "resp_68a1",
        "object": "response",
        "created_at": 1763700000,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": "gpt-5.6-mini-2026-08-01",
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": USAGE,
        **more,
    }


def cut(output: list[Json], reason: str | None = "max_output_tokens", **more: Any) -> Json:
    """A response that is incomplete."""
    return body(output, "incomplete", incomplete_details={"reason": reason}, **more)


def part(text: str, *annotations: Json) -> Json:
    """A piece of visible text."""
    return {"type": "output_text", "text": text, "annotations": list(annotations), "logprobs": []}


def say(*parts: str | Json, status: str = "completed", id: str = "msg_1", **more: Any) -> Json:
    """A message."""
    content = [part(each) if isinstance(each, str) else each for each in parts]
    return {"id": id, "type": "message", "status": status, "role": "assistant", "content": content, **more}


def named(*events: Json) -> list[Event]:
    """Events whose names are their types, numbered."""
    return [Event(event["type"], {**event, "sequence_number": number}) for number, event in enumerate(events)]


def begun(**more: Any) -> list[Json]:
    """How a stream begins."""
    head = body([], "in_progress", usage=None, **more)
    return [{"type": "response.created", "response": head}, {"type": "response.in_progress", "response": head}]


def ended(response: Json, word: str | None = None) -> Json:
    """How a stream ends."""
    return {"type": f"response.{word or response['status']}", "response": response}


def added(index: int, item: Json) -> Json:
    """An item begins."""
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: Json) -> Json:
    """An item is whole."""
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def word(index: int, delta: str, item_id: str = "msg_1", content: int = 0, kind: str = "output_text") -> Json:
    """A piece of text."""
    there = {"item_id": item_id, "output_index": index, "content_index": content}
    return {"type": f"response.{kind}.delta", **there, "delta": delta, "logprobs": []}


def said(index: int, *words: str, item: Json | None = None) -> list[Json]:
    """A streamed message."""
    whole = item or say("".join(words))
    there = {"item_id": whole["id"], "output_index": index, "content_index": 0}
    (content,) = whole["content"]
    kind = content["type"]
    name = "refusal" if kind == "refusal" else "text"
    return [
        added(index, {**whole, "status": "in_progress", "content": []}),
        {"type": "response.content_part.added", **there, "part": {**content, name: ""}},
        *(word(index, each, whole["id"], kind=kind) for each in words),
        {"type": f"response.{kind}.done", **there, name: "".join(words), "logprobs": []},
        {"type": "response.content_part.done", **there, "part": content},
        done(index, whole),
    ]
