"""What an SDK hands out, as the JSON that it was made of: readers see nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from endturn.chat import Json

_UNSET: Final = ("REASON_INVALID", "INVALID_ROLE", "TOOL_CALL_TYPE_INVALID")
"""The zeros of xAI's enums: protocol messages say them where nothing was said."""


def dumped(thing: Any, *, choices: int = 1) -> Any:
    """An SDK's response, chunk or event as parsed JSON; JSON, and what is of no SDK that we know, as it is.

    Pydantic models are dumped: OpenAI's, Anthropic's, Google's, Mistral's, Cohere's, Ollama's, LiteLLM's. Mistral's SDK
    wraps each chunk in a `CompletionEvent` (mistralai 3.7). xAI's speaks gRPC: it hands out wrappers of messages whose
    `outputs` are what others call choices (xai-sdk 1.21); they are written in the chat format.

    Args:
        choices: how many answers were asked for.
    """
    if isinstance(thing, Mapping | str | bytes | list | tuple) or thing is None:
        return thing
    if (dump := getattr(thing, "model_dump", None)) is not None:
        wrapped = dump(mode="json", exclude_unset=True, by_alias=True, warnings=False)
        inner = wrapped.get("data")
        return inner if isinstance(inner, dict) and "choices" in inner else wrapped
    message = getattr(thing, "proto", thing)
    kind = getattr(getattr(message, "DESCRIPTOR", None), "name", None)
    if kind in ("GetChatCompletionResponse", "GetChatCompletionChunk"):
        return _in_chat_format(message, choices, whole=kind == "GetChatCompletionResponse")
    return thing


def _in_chat_format(message: Any, choices: int, *, whole: bool) -> Json:
    """A GetChatCompletionResponse, or a GetChatCompletionChunk, in the chat format."""
    found: list[Json] = []
    for output in message.outputs:
        part = output.message if whole else output.delta
        if _name(part, "role") == "ROLE_TOOL":
            continue  # What a tool of xAI's own gave.
        calls = [call for call in part.tool_calls if _name(call, "type") in (None, "TOOL_CALL_TYPE_CLIENT_SIDE_TOOL")]
        # An output that calls xAI's own tools is a step of the answer, whose end comes with a later output.
        goes_on = len(part.tool_calls) > 0 and not calls
        reason = _name(output, "finish_reason")
        found.append(
            {
                "index": output.index if choices > 1 else 0,
                "message" if whole else "delta": {
                    "content": part.content,
                    "reasoning_content": part.reasoning_content,
                    "tool_calls": [_call(call) for call in calls],
                },
                "finish_reason": None if goes_on else reason or ("REASON_INVALID" if whole else None),
            }
        )
    if whole and choices == 1:
        for step in found[:-1]:
            step["finish_reason"] = None  # The last output's counts, as in the SDK's own `finish_reason`.
    return {"id": message.id, "model": message.model, "choices": found, "usage": _usage(message)}


def _name(message: Any, field: str) -> str | None:
    """The name of an enum's value; None for its zero."""
    values = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    number = getattr(message, field)
    name = values[number].name if number in values else str(number)
    return None if name in _UNSET else name


def _call(call: Any) -> Json:
    """A client's call. xAI sends each whole, in one chunk."""
    return {"id": call.id, "function": {"name": call.function.name, "arguments": call.function.arguments}}


def _usage(message: Any) -> Json | None:
    if not message.HasField("usage"):
        return None
    usage = message.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_prompt_text_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
