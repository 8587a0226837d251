"""Scripted responses of generateContent."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any, Final

from endturn.formats.errors import error_words
from endturn.formats.scripting import (
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
from endturn.vocabulary import ChatResponse, Json, ToolCall, Usage

_NAME: Final = "gemini"


def script(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """Write a scripted response as the API would: a body, or the chunks of its stream.

    Raises:
        UsageError: the API has no value for the stop reason.
    """
    stop = scripted_reason(_NAME, response.stop, dialect)
    if stream:
        return scripted_events(_chunks(response, stop))
    parts: list[Json] = []
    if response.reasoning:
        parts.append({"text": response.reasoning, "thought": True})
    if response.text:
        parts.append({"text": response.text})
    parts += [_call(call, is_open=call.arguments is None) for call in response.tool_calls]
    return _end(response, stop, {"parts": parts, "role": "model"})


def _call(call: ToolCall, *, is_open: bool) -> Json:
    """Return a part with a call; an open call announces a chunk that is never sent."""
    rest: Json = {"willContinue": True} if is_open else {"args": call.arguments or {}}
    return {"functionCall": {"id": call.id, "name": call.name, **rest}}


def _chunk(response: ChatResponse, candidate: Json, usage: Json | None = None) -> Json:
    return present(
        {
            "candidates": [present(candidate)],
            "usageMetadata": usage,
            "modelVersion": scripted_model(response),
            "responseId": response.id,
        }
    )


def _chunks(response: ChatResponse, stop: str | None) -> Iterator[Json]:
    def of_part(part: Json) -> Json:
        return _chunk(response, {"content": {"parts": [part], "role": "model"}, "index": 0})

    for block in scripted_blocks(response):
        if block.call is not None:
            is_open = block.breaks_off or block.call.arguments is None
            yield of_part(_call(block.call, is_open=is_open))
            continue
        thought_member: Json = {"thought": True} if block.is_reasoning else {}
        for word in words(block.text):
            yield of_part({"text": word, **thought_member})
    if response.stop.terminal_seen:
        yield _end(response, stop, {"role": "model"})


def _end(response: ChatResponse, stop: str | None, content: Json) -> Json:
    """Return a body, or a stream's last chunk."""
    # A new token for each response: the SDK stops if the token is the one that it sent.
    token = (
        urlsafe_b64encode(f"after {response.id}".encode()).decode()
        if stop == "CONTINUATION"
        else None
    )
    candidate: dict[str, Any] = {
        "content": content,
        "index": 0,
        "finishReason": stop,
        "continuationToken": token,
    }
    return _chunk(response, candidate, _usage(response.usage))


def _usage(usage: Usage | None) -> Json | None:
    if usage is None:
        return None
    return present(
        {
            "promptTokenCount": usage.input_tokens or 0,
            "candidatesTokenCount": visible_output(usage),
            "thoughtsTokenCount": usage.reasoning_tokens,
            "cachedContentTokenCount": usage.cache_read_tokens,
            "totalTokenCount": total_tokens(usage),
        }
    )


def script_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """Write an error answer's body, or the chunk of a stream that reports an error."""
    error = error_words(_NAME, status, code, message)
    body = {"error": {"code": status, "message": error.message, "status": error.type}}
    return Event(None, body) if stream else body
