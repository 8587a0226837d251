"""Convert an SDK's objects back to the JSON that they were parsed from, for the readers."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from endturn.vocabulary import Json

_CLIENT_CALL_TYPE: Final = "TOOL_CALL_TYPE_CLIENT_SIDE_TOOL"


def as_json(value: Any, *, choices: int = 1) -> Any:
    """Return an SDK's response, chunk or event as parsed JSON.

    JSON, and objects of unknown SDKs, stay as they are.

    Pydantic models are dumped: OpenAI's, Anthropic's, Google's, Mistral's, Cohere's, Ollama's,
    LiteLLM's. Mistral's SDK wraps each chunk in a `CompletionEvent` (mistralai 3.7). xAI's uses
    gRPC: it returns wrappers of messages whose `outputs` correspond to choices (xai-sdk 1.21); they
    are converted to the chat format.

    Args:
        choices: the number of choices that the request asked for.
    """
    if isinstance(value, Mapping | str | bytes | list | tuple) or value is None:
        return value
    if (dump := getattr(value, "model_dump", None)) is not None:
        wrapped = dump(mode="json", exclude_unset=True, by_alias=True, warnings=False)
        inner = wrapped.get("data")
        return inner if isinstance(inner, dict) and "choices" in inner else wrapped
    message = getattr(value, "proto", value)
    kind = getattr(getattr(message, "DESCRIPTOR", None), "name", None)
    if kind not in ("GetChatCompletionResponse", "GetChatCompletionChunk"):
        return value
    body = import_module("google.protobuf.json_format").MessageToDict(
        message, preserving_proto_field_name=True
    )
    return _in_chat_format(body, choices, is_complete=kind == "GetChatCompletionResponse")


def _in_chat_format(body: Json, choices: int, *, is_complete: bool) -> Json:
    """Return xAI's message in the chat format.

    The message lacks members that are zero; of an enum, zero means unset.
    """
    chat_choices: list[Json] = []
    content = "message" if is_complete else "delta"
    for output in body.get("outputs", ()):
        part = output.get(content, {})
        if part.get("role") == "ROLE_TOOL":
            continue  # the result of a tool of xAI's own
        calls = part.get("tool_calls", [])
        client_calls = [
            call for call in calls if call.get("type", _CLIENT_CALL_TYPE) == _CLIENT_CALL_TYPE
        ]
        # An output that calls xAI's own tools is a step of the answer, which ends with a later
        # output.
        is_step = bool(calls) and not client_calls
        chat_choices.append(
            {
                "index": output.get("index", 0) if choices > 1 else 0,
                content: {
                    "content": part.get("content", ""),
                    "reasoning_content": part.get("reasoning_content", ""),
                    "tool_calls": [
                        {"id": call.get("id"), "function": call.get("function", {})}
                        for call in client_calls
                    ],
                },
                "finish_reason": None
                if is_step
                else output.get("finish_reason", "REASON_INVALID" if is_complete else None),
            }
        )
    if is_complete and choices == 1:
        for step in chat_choices[:-1]:
            # The last output's counts, as in the SDK's own `finish_reason`.
            step["finish_reason"] = None
    usage = body.get("usage")
    if usage is not None:
        usage = {
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "total_tokens": 0,
            **usage,
            "prompt_tokens_details": {"cached_tokens": usage.get("cached_prompt_text_tokens", 0)},
            "completion_tokens_details": {"reasoning_tokens": usage.get("reasoning_tokens", 0)},
        }
    return {
        "id": body.get("id"),
        "model": body.get("model"),
        "choices": chat_choices,
        "usage": usage,
    }
