"""Scripted responses of Google's Interactions API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from endturn.formats.apis.gemini_interactions_request import output_step
from endturn.formats.encoding import arguments_text
from endturn.formats.errors import error_words
from endturn.formats.framing import DONE
from endturn.formats.scripting import (
    SIGNATURE,
    ScriptedBlock,
    error_label,
    scripted_blocks,
    scripted_events,
    scripted_model,
    scripted_reason,
    total_tokens,
    visible_output,
    words,
)
from endturn.formats.settings import present
from endturn.formats.summaries import Event
from endturn.vocabulary import ChatResponse, Json, Usage

_NAME: Final = "gemini_interactions"


def script(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """Write a scripted response as the API would: an interaction, or the events of its stream.

    Raises:
        UsageError: the API has no word for the stop reason.
    """
    stop = scripted_reason(_NAME, response.stop, dialect)
    if stream:
        events = scripted_events(_events(response, stop), "event_type")
        return [Event("done", DONE) if event.data == DONE else event for event in events]
    steps: list[Json] = []
    if response.reasoning:
        summary = [{"type": "text", "text": response.reasoning}]
        steps.append({"type": "thought", "signature": SIGNATURE, "summary": summary})
    if response.text:
        steps.append(output_step(response.text))
    for call in response.tool_calls:
        arguments = arguments_text(call) if call.arguments is None else call.arguments
        steps.append(
            {"type": "function_call", "id": call.id, "name": call.name, "arguments": arguments}
        )
    return {**_interaction(response, stop), "steps": steps}


def _interaction(response: ChatResponse, status: str | None) -> Json:
    """Return a finished interaction, without its steps."""
    return present(
        {
            "id": response.id,
            "object": "interaction",
            "model": scripted_model(response),
            "status": status,
            "usage": _usage(response.usage),
            "continuation_token": f"after_{response.id}"
            if status == "requires_continuation"
            else None,
        }
    )


def _usage(usage: Usage | None) -> Json | None:
    if usage is None:
        return None
    return present(
        {
            "total_input_tokens": usage.input_tokens or 0,
            "total_output_tokens": visible_output(usage),
            "total_thought_tokens": usage.reasoning_tokens,
            "total_cached_tokens": usage.cache_read_tokens,
            "total_tokens": total_tokens(usage),
        }
    )


def _events(response: ChatResponse, stop: str | None) -> Iterator[Json | str]:
    interaction = {
        "id": response.id,
        "object": "interaction",
        "model": scripted_model(response),
        "status": "in_progress",
    }
    yield {"event_type": "interaction.created", "interaction": present(interaction)}
    update = {
        "event_type": "interaction.status_update",
        "interaction_id": response.id,
        "status": "in_progress",
    }
    yield present(update)
    for block in scripted_blocks(response):
        yield {"event_type": "step.start", "index": block.index, "step": _initial_step(block)}
        for delta in _deltas(block):
            yield {"event_type": "step.delta", "index": block.index, "delta": delta}
        if not block.breaks_off:
            yield {"event_type": "step.stop", "index": block.index}
    if response.stop.terminal_seen:
        yield {"event_type": "interaction.completed", "interaction": _interaction(response, stop)}
        yield DONE


def _initial_step(block: ScriptedBlock) -> Json:
    if block.call is not None:
        return {
            "type": "function_call",
            "id": block.call.id,
            "name": block.call.name,
            "arguments": {},
        }
    return {"type": "thought" if block.is_reasoning else "model_output"}


def _deltas(block: ScriptedBlock) -> Iterator[Json]:
    for word in words(block.text):
        if block.call is not None:
            yield {"type": "arguments_delta", "arguments": word}
        elif block.is_reasoning:
            yield {"type": "thought_summary", "content": {"type": "text", "text": word}}
        else:
            yield {"type": "text", "text": word}
    if block.is_reasoning:
        yield {"type": "thought_signature", "signature": SIGNATURE}


def script_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """Write an error answer's body, or the error event of a stream."""
    error = error_words(_NAME, status, code, message)
    body = {"error": {"code": error_label(code, error.type), "message": error.message}}
    return Event("error", {"event_type": "error", **body}) if stream else body
