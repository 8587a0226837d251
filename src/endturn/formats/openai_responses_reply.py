"""Our responses as the Responses API would send them: for a provider that plays a script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from endturn.chat import ChatResponse, Json, Usage
from endturn.formats.openai_chat import reply_error as chat_error
from endturn.formats.openai_responses_items import call_of
from endturn.formats.openai_responses_objects import GIVEN
from endturn.formats.openai_responses_reader import NAME
from endturn.formats.openai_responses_reasons import COMPLETED, REASONS, RUNNING, WORDS, rows_of
from endturn.formats.reading import items, text
from endturn.formats.summaries import Event
from endturn.stop import Stop, StopReason, find_row

_PIECE: Final = re.compile(r"\s*\S+|\s+")
_FIRST: Final = {row.reason: raw for raw, row in reversed([*REASONS[""].items()])} | WORDS
"""What is said for a reason of ours."""

_ENDS: Final = {status: f"response.{status}" for status in (COMPLETED, "incomplete", "failed", "cancelled")}
# Tools of the server's that say how far they are.
_TOLD: Final = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"}
)
# The events that carry what a call is given.
_GIVING: Final = {"function_call": "function_call_arguments", "custom_tool_call": "custom_tool_call_input"}
_MESSAGES: Final[Mapping[str, str]] = {
    "context_length_exceeded": "Your input exceeds the context window of this model.",
    "rate_limit_exceeded": "Rate limit reached for requests.",
}
_TROUBLE: Final = "An error occurred while processing your request."


class _Ending(NamedTuple):
    """How a response of this API says how it ended. No status stands for a null."""

    status: str | None
    reason: str | None = None
    error: Json | None = None
    background: bool = False


def _ending(stop: Stop) -> _Ending:
    raw = _raw(stop)
    if raw in RUNNING:
        return _Ending(raw, background=stop.reason is StopReason.PAUSED)
    status, _, word = (raw or "").partition(":")
    if status == "incomplete":
        return _Ending(status, word or None)
    if status != "failed":
        return _Ending(raw)
    row = find_row(raw or "", REASONS[""])
    known = stop.detail if row is None or stop.detail != row.detail else None
    if not word and known is None:
        return _Ending(status)
    return _Ending(status, error={"code": word or None, "message": known or _MESSAGES.get(word, _TROUBLE)})


def _raw(stop: Stop) -> str | None:
    """The raw value that a Stop is written with: its own where it is one of this API's, else the API's word for it."""
    if stop.reason is StopReason.MISSING or (stop.raw is None and stop.promoted_from is StopReason.MISSING):
        return stop.raw if stop.raw in RUNNING else None
    if stop.raw is not None and (
        stop.reason is StopReason.UNKNOWN or find_row(stop.raw, rows_of(stop.raw, background=True)) is not None
    ):
        return stop.raw
    return _FIRST.get(stop.reason, stop.raw)


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A response as the API would send it: a body, or the events of a stream."""
    ending = _ending(response.stop)
    output = _output(response)
    body: Json = {
        "id": response.id or "resp_endturn",
        "object": "response",
        "created_at": 0,
        "status": ending.status,
        "background": ending.background,
        "error": ending.error,
        "incomplete_details": {"reason": ending.reason} if ending.status == "incomplete" else None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": response.model or "scripted",
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": _reply_usage(response.usage),
        "user": None,
    }
    if not stream:
        return body
    events = _events(body, ended=response.stop.terminal_seen and ending.status not in (None, *RUNNING))
    return [Event(event["type"], event | {"sequence_number": number}) for number, event in enumerate(events)]


def _events(body: Json, *, ended: bool) -> Iterator[Json]:
    """The events of a stream; one that does not end leaves its last item open."""
    status, output = body["status"], body["output"]
    begun = {**body, "status": status if status in RUNNING else "in_progress", "output": [], "usage": None}
    begun |= {"error": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": f"response.{begun['status']}", "response": begun}
    for index, item in enumerate(output):
        yield from _item_events(index, item, done=ended or index < len(output) - 1)
    if ended:
        yield {"type": _ENDS.get(status, _ENDS[COMPLETED]), "response": body}


def _item_events(index: int, item: Json, *, done: bool) -> Iterator[Json]:
    kind = text(item.get("type"))
    where = {"item_id": text(item.get("id")), "output_index": index}
    empty: Json = {name: value for name, value in item.items() if name != "encrypted_content"}
    if "status" in item:
        empty["status"] = "in_progress"
    empty |= {name: [] for name in ("content", "summary") if isinstance(item.get(name), list)}
    if kind in GIVEN:
        empty[GIVEN[kind]] = ""
    yield {"type": "response.output_item.added", "output_index": index, "item": empty}
    if kind == "message":
        yield from _parts_events(where, items(item.get("content")), done=done)
    elif kind == "reasoning":
        yield from _summary_events(where, items(item.get("summary")), done=done)
        yield from _parts_events(where, items(item.get("content")), done=done)
    elif kind in GIVEN:
        name, given = _GIVING[kind], text(item.get(GIVEN[kind]))
        yield from ({"type": f"response.{name}.delta", **where, "delta": word} for word in _PIECE.findall(given))
        if done and item.get("status", COMPLETED) == COMPLETED:
            yield {"type": f"response.{name}.done", **where, GIVEN[kind]: given}
    elif kind in _TOLD:
        yield {"type": f"response.{kind}.in_progress", **where}
        if done:
            yield {"type": f"response.{kind}.completed", **where}
    if done:
        yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _parts_events(where: Json, parts: Any, *, done: bool) -> Iterator[Json]:
    for index, part in enumerate(parts):
        kind = text(part.get("type"))
        there = {**where, "content_index": index}
        name = "refusal" if kind == "refusal" else "text"
        said = text(part.get(name))
        more: Json = {"logprobs": []} if kind == "output_text" else {}
        empty = {**part, name: ""} | ({"annotations": []} if "annotations" in part else {})
        yield {"type": "response.content_part.added", **there, "part": empty}
        for word in _PIECE.findall(said):
            yield {"type": f"response.{kind}.delta", **there, "delta": word, **more}
        for number, note in enumerate(items(part.get("annotations"))):
            added = {"annotation_index": number, "annotation": note}
            yield {"type": "response.output_text.annotation.added", **there, **added}
        if done or index < len(parts) - 1:
            yield {"type": f"response.{kind}.done", **there, name: said, **more}
            yield {"type": "response.content_part.done", **there, "part": part}


def _summary_events(where: Json, parts: Any, *, done: bool) -> Iterator[Json]:
    for index, part in enumerate(parts):
        there, said = {**where, "summary_index": index}, text(part.get("text"))
        yield {"type": "response.reasoning_summary_part.added", **there, "part": {**part, "text": ""}}
        for word in _PIECE.findall(said):
            yield {"type": "response.reasoning_summary_text.delta", **there, "delta": word}
        if done or index < len(parts) - 1:
            yield {"type": "response.reasoning_summary_text.done", **there, "text": said}
            yield {"type": "response.reasoning_summary_part.done", **there, "part": part}


def _output(response: ChatResponse) -> list[Json]:
    if response.blocks is not None and response.blocks.format == NAME:
        return list(response.blocks.items)
    name = (response.id or "resp_endturn").removeprefix("resp_")
    status = "incomplete" if response.stop.incomplete or response.stop.truncated else COMPLETED
    output: list[Json] = []
    if response.reasoning:
        summary = [{"type": "summary_text", "text": response.reasoning}]
        output.append({"id": f"rs_{name}", "type": "reasoning", "summary": summary})
    if response.text:
        part: Json = {"type": "output_text", "text": response.text, "annotations": [], "logprobs": []}
        if response.stop.reason is StopReason.REFUSED:
            part = {"type": "refusal", "refusal": response.text}
        cut = COMPLETED if response.tool_calls else status
        message = {"id": f"msg_{name}", "type": "message", "status": cut, "role": "assistant", "content": [part]}
        output.append(message)
    for number, call in enumerate(response.tool_calls):
        whole = COMPLETED if call.closed else "incomplete"
        output.append({"id": f"fc_{name}_{number}", **call_of(call), "status": whole})
    return output


def _reply_usage(usage: Usage | None) -> Json | None:
    if usage is None:
        return None
    asked, answered = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "input_tokens": asked,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens or 0,
            "cache_write_tokens": usage.cache_write_tokens or 0,
        },
        "output_tokens": answered,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": asked + answered,
    }


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body, the same as to a chat request; within a stream, its `error` event."""
    body = chat_error(status, code, message, number=number)
    assert isinstance(body, dict)
    error = body["error"]
    if not stream:
        return body
    said = {"code": error["code"] or error["type"], "message": error["message"], "param": None}
    return Event("error", {"type": "error", **said, "sequence_number": 0})
