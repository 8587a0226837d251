"""Scripted responses of the Responses API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from endturn.formats.apis.openai_responses_reader import API_REASONS, COMPLETED, NAME, RUNNING
from endturn.formats.encoding import arguments_text
from endturn.formats.errors import error_words
from endturn.formats.scripting import (
    ScriptedBlock,
    openai_error,
    raw_reason,
    scripted_blocks,
    scripted_events,
    scripted_model,
    total_tokens,
    words,
)
from endturn.formats.summaries import Event
from endturn.vocabulary import ChatResponse, Json, StopReason, ToolCall, Usage

WORDS: Final = {
    StopReason.TOOL_CALL: COMPLETED,
    StopReason.REFUSED: COMPLETED,
    StopReason.PAUSED: "in_progress",
    StopReason.ERROR: "failed:server_error",
}
"""The status of a reason, if it is not the table's first row with that reason: calls and refusals
are in the output, and background jobs have their own status."""
_END_STATUSES: Final = (COMPLETED, "incomplete", "failed", "cancelled")
_TRUNCATION_REASONS: Final = (
    StopReason.MAX_TOKENS,
    StopReason.CONTEXT_WINDOW_EXCEEDED,
    StopReason.MISSING,
)


def script(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """Write a scripted response as the API would: a body, or the events of a stream.

    Raises:
        UsageError: the API has no value for the stop reason.
    """
    status, _, code = (raw_reason(response.stop, API_REASONS) or "").partition(":")
    if not stream:
        return _body(response, status, code)
    events = scripted_events(_events(response, status, code), "type")
    return [
        Event(event.name, event.data | {"sequence_number": number})
        for number, event in enumerate(events)
    ]


def _body(response: ChatResponse, status: str, code: str) -> Json:
    error = {
        "code": code or None,
        "message": error_words("openai_chat", 500, code or None, None).message,
    }
    return {
        **_head(response, status or None),
        "error": error if status == "failed" else None,
        "incomplete_details": {"reason": code} if status == "incomplete" else None,
        "output": _output(response),
        "usage": None if response.usage is None else _usage(response.usage),
    }


def _head(response: ChatResponse, status: str | None) -> Json:
    """Return a response before its output."""
    head: Json = {
        "id": response.id,
        "object": "response",
        "created_at": 0,
        "status": status,
        "background": response.stop.reason is StopReason.PAUSED,
        "error": None,
        "incomplete_details": None,
        "model": scripted_model(response),
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }
    return head if response.id is not None else {name: head[name] for name in head if name != "id"}


def _usage(usage: Usage) -> Json:
    cache_read, cache_write = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    return {
        "input_tokens": usage.input_tokens or 0,
        "input_tokens_details": {"cached_tokens": cache_read, "cache_write_tokens": cache_write},
        "output_tokens": usage.output_tokens or 0,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": total_tokens(usage),
    }


# --- Items of the output --------------------------------------------------------------------------


def _item_id(response: ChatResponse, prefix: str, position: int | None = None) -> str:
    bare = (response.id or "").removeprefix("resp_")
    return f"{prefix}_{bare}" if position is None else f"{prefix}_{bare}_{position}"


def _output(response: ChatResponse) -> list[Json]:
    """Return the items of a whole response."""
    output: list[Json] = []
    if response.reasoning:
        output.append(_reasoning_item(response))
    if response.text:
        output.append(_message_item(response))
    return output + [
        _call_item(response, call, position) for position, call in enumerate(response.tool_calls)
    ]


def _reasoning_item(response: ChatResponse) -> Json:
    summary = [{"type": "summary_text", "text": response.reasoning}]
    return {"id": _item_id(response, "rs"), "type": "reasoning", "summary": summary}


def _message_item(response: ChatResponse) -> Json:
    is_truncated = response.stop.reason in _TRUNCATION_REASONS and not response.tool_calls
    return {
        "id": _item_id(response, "msg"),
        "type": "message",
        "status": "incomplete" if is_truncated else COMPLETED,
        "role": "assistant",
        "content": [_text_part(response, response.text)],
    }


def _text_part(response: ChatResponse, text: str) -> Json:
    if response.stop.reason is StopReason.REFUSED:
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call_item(response: ChatResponse, call: ToolCall, position: int) -> Json:
    return {
        "id": _item_id(response, "fc", position),
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments_text(call),
        "status": COMPLETED if call.closed else "incomplete",
    }


# --- Events ---------------------------------------------------------------------------------------


def _events(response: ChatResponse, status: str, code: str) -> Iterator[Json]:
    start_status = status if status in RUNNING else "in_progress"
    yield {"type": "response.created", "response": _head(response, start_status)}
    yield {"type": f"response.{start_status}", "response": _head(response, start_status)}
    if not status or status in RUNNING:  # the stream breaks off
        response = response.with_stop(terminal_seen=False)
    for block in scripted_blocks(response):
        if block.call is not None:
            yield from _call_events(response, block, block.call)
        elif block.is_reasoning:
            yield from _reasoning_events(response, block)
        else:
            yield from _text_events(response, block)
    if response.stop.terminal_seen:
        end_status = status if status in _END_STATUSES else COMPLETED
        yield {"type": f"response.{end_status}", "response": _body(response, status, code)}


def _item_added(block: ScriptedBlock, item: Json) -> Json:
    return {"type": "response.output_item.added", "output_index": block.index, "item": item}


def _item_done(block: ScriptedBlock, item: Json) -> Json:
    return {"type": "response.output_item.done", "output_index": block.index, "item": item}


def _reasoning_events(response: ChatResponse, block: ScriptedBlock) -> Iterator[Json]:
    id_ = _item_id(response, "rs")

    def event(kind: str, **members: object) -> Json:
        location = {"item_id": id_, "output_index": block.index, "summary_index": 0}
        return {"type": f"response.reasoning_summary_{kind}", **location, **members}

    yield _item_added(
        block, {"id": id_, "type": "reasoning", "summary": [], "status": "in_progress"}
    )
    yield event("part.added", part={"type": "summary_text", "text": ""})
    for word in words(block.text):
        yield event("text.delta", delta=word)
    if not block.breaks_off:
        yield event("text.done", text=block.text)
        yield event("part.done", part={"type": "summary_text", "text": block.text})
        yield _item_done(block, _reasoning_item(response))


def _text_events(response: ChatResponse, block: ScriptedBlock) -> Iterator[Json]:
    id_ = _item_id(response, "msg")
    is_refusal = response.stop.reason is StopReason.REFUSED
    kind, holder = ("refusal", "refusal") if is_refusal else ("output_text", "text")
    more: Json = {} if is_refusal else {"logprobs": []}

    def event(kind: str, **members: object) -> Json:
        location = {"item_id": id_, "output_index": block.index, "content_index": 0}
        return {"type": f"response.{kind}", **location, **members}

    item = {
        "id": id_,
        "type": "message",
        "status": "in_progress",
        "role": "assistant",
        "content": [],
    }
    yield _item_added(block, item)
    yield event("content_part.added", part=_text_part(response, ""))
    for word in words(block.text):
        yield event(f"{kind}.delta", delta=word, **more)
    if not block.breaks_off:
        yield event(f"{kind}.done", **{holder: block.text}, **more)
        yield event("content_part.done", part=_text_part(response, block.text))
        yield _item_done(block, _message_item(response))


def _call_events(response: ChatResponse, block: ScriptedBlock, call: ToolCall) -> Iterator[Json]:
    item = _call_item(response, call, block.call_index)
    location = {"item_id": item["id"], "output_index": block.index}
    yield _item_added(block, {**item, "arguments": "", "status": "in_progress"})
    for word in words(block.text):
        yield {"type": "response.function_call_arguments.delta", **location, "delta": word}
    if not block.breaks_off:
        if call.closed:
            yield {
                "type": "response.function_call_arguments.done",
                **location,
                "arguments": block.text,
            }
        yield _item_done(block, item)


def script_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """Write an error answer's body, or the error event of a stream."""
    if not stream:
        return openai_error(NAME, status, code, message)
    error = error_words(NAME, status, code, message)
    label = error.code or error.type
    event = {"type": "error", "param": None, "code": label, "sequence_number": 0}
    return Event("error", {"message": error.message, **event})
