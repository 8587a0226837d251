"""Our responses as the Interactions API would send them: for a provider that plays a script."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from endturn.chat import ChatResponse, Json, Usage
from endturn.formats.error_words import error_words
from endturn.formats.framing import DONE
from endturn.formats.gemini_interactions_reader import NAME, REASONS
from endturn.formats.reading import items, raw_reason, text
from endturn.formats.summaries import Event
from endturn.stop import Resume, Stop, StopReason

_WORD: Final = re.compile(r"\s*\S+|\s+")
_TIME: Final = "2026-05-20T00:00:00Z"

_OTHERS: Final = ("context_length_exceeded", "content_filter")
"""Codes of other formats, for which this one has its own."""


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A response as the API would send it: a body, or the events of a stream."""
    raw = raw_reason(response.stop, REASONS[""])
    steps = _reply_steps(response)
    head: Json = {
        "id": response.id or "v1_endturn",
        "object": "interaction",
        "model": response.model or "scripted",
        "created": _TIME,
        "updated": _TIME,
    }
    ending: Json = {**head, "status": raw}
    if response.usage is not None:
        ending["usage"] = _reply_usage(response.usage)
    if raw == "requires_continuation":
        ending["continuation_token"] = response.token or "continue_endturn"
    if raw == "failed" and response.stop.detail is not None:
        ending["errors"] = [{"code": _code(response.stop), "message": response.stop.detail}]
    if not stream:
        return {**ending, "steps": steps}
    working = {**head, "status": "in_progress"}
    data: list[Json] = [
        {"event_type": "interaction.created", "interaction": working},
        {"event_type": "interaction.status_update", "interaction_id": head["id"], "status": "in_progress"},
    ]
    cut = {call.id for call in response.tool_calls if not call.closed}
    for index, step in enumerate(steps):
        start, deltas = _step_pieces(step)
        data.append({"event_type": "step.start", "index": index, "step": start})
        data += [{"event_type": "step.delta", "index": index, "delta": delta} for delta in deltas]
        breaks_off = not response.stop.terminal_seen and index == len(steps) - 1
        if step.get("id") not in cut and not breaks_off:
            data.append({"event_type": "step.stop", "index": index})
    events = [Event(each["event_type"], each) for each in data]
    if response.stop.terminal_seen:
        done = "interaction.completed"
        events += [Event(done, {"event_type": done, "interaction": ending}), Event("done", DONE)]
    return events


def _code(stop: Stop) -> str:
    """What the error is called for which an interaction failed."""
    if stop.reason is StopReason.SAFETY_BLOCKED:
        return "safety"
    return "malformed_function_call" if stop.resume is Resume.REPAIR else "api_error"


def _step_pieces(step: Json) -> tuple[Json, list[Json]]:
    """A step as a stream sends it: its start, and its deltas."""
    kind = step.get("type")
    match kind:
        case "model_output":
            start = {name: value for name, value in step.items() if name != "content"}
            return start, [piece for part in items(step.get("content")) for piece in _content_pieces(part)]
        case "thought":
            summary: list[Json] = [
                {"type": "thought_summary", "content": piece}
                for part in items(step.get("summary"))
                for piece in _content_pieces(part)
            ]
            if step.get("signature"):
                summary.append({"type": "thought_signature", "signature": step["signature"]})
            return {name: value for name, value in step.items() if name not in ("summary", "signature")}, summary
        case "function_call":
            given = step.get("arguments")
            raw = given if isinstance(given, str) else json.dumps(given) if given else ""
            pieces: list[Json] = [{"type": "arguments_delta", "arguments": word} for word in _WORD.findall(raw)]
            return {**step, "arguments": {}}, pieces
        case _:
            return step, []


def _content_pieces(part: Any) -> list[Json]:
    """A part of a step's content, as deltas."""
    if part.get("type") != "text":
        return [part]
    words: list[Json] = [{"type": "text", "text": word} for word in _WORD.findall(text(part.get("text")))]
    if part.get("annotations"):
        words.append({"type": "text_annotation_delta", "annotations": part["annotations"]})
    return words


def _reply_steps(response: ChatResponse) -> list[Json]:
    if response.blocks is not None and response.blocks.format == NAME:
        return list(response.blocks.items)
    steps: list[Json] = []
    if response.reasoning:
        summary = [{"type": "text", "text": response.reasoning}]
        steps.append({"type": "thought", "signature": "c2NyaXB0ZWQ=", "summary": summary})
    if response.text:
        steps.append({"type": "model_output", "content": [{"type": "text", "text": response.text}]})
    for call in response.tool_calls:
        given: Any = call.arguments_raw if call.arguments is None else call.arguments
        steps.append({"type": "function_call", "id": call.id, "name": call.name, "arguments": given or {}})
    return steps


def _reply_usage(usage: Usage) -> Json:
    asked, said, thought = usage.input_tokens, usage.output_tokens, usage.reasoning_tokens
    figures = {
        "total_tokens": (asked or 0) + (said or 0),
        "total_input_tokens": asked,
        "total_output_tokens": None if said is None else max(0, said - (thought or 0)),
        "total_thought_tokens": thought,
        "total_cached_tokens": usage.cache_read_tokens,
    }
    return {name: tokens for name, tokens in figures.items() if tokens is not None}


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body; within a stream, its `error` event."""
    said = error_words(NAME, status, code, message)
    word = code if code and code not in _OTHERS else said.type
    body: Json = {"error": {"code": word, "message": said.message}}
    return Event("error", {"event_type": "error", **body}) if stream else body
