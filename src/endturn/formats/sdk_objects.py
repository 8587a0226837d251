"""What an SDK hands out, as the JSON that it was made of: readers see nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from endturn.vocabulary import Json

_CLIENTS_CALL: Final = "TOOL_CALL_TYPE_CLIENT_SIDE_TOOL"


def dumped(thing: Any, *, choices: int = 1) -> Any:
    """An SDK's response, chunk or event as parsed JSON.

    JSON, and what is of no SDK that we know, as it is.

    Pydantic models are dumped: OpenAI's, Anthropic's, Google's, Mistral's, Cohere's, Ollama's,
    LiteLLM's. Mistral's SDK wraps each chunk in a `CompletionEvent` (mistralai 3.7). xAI's speaks
    gRPC: it hands out wrappers of messages whose `outputs` are what others call choices (xai-sdk
    1.21); they are written in the chat format.

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
    if kind not in ("GetChatCompletionResponse", "GetChatCompletionChunk"):
        return thing
    said = import_module("google.protobuf.json_format").MessageToDict(
        message, preserving_proto_field_name=True
    )
    return _in_chat_format(said, choices, whole=kind == "GetChatCompletionResponse")


def _in_chat_format(said: Json, choices: int, *, whole: bool) -> Json:
    """Return xAI's message in the chat format.

    Of what it says, zeros are left out: of an enum, that nothing was said.
    """
    found: list[Json] = []
    content = "message" if whole else "delta"
    for output in said.get("outputs", ()):
        part = output.get(content, {})
        if part.get("role") == "ROLE_TOOL":
            continue  # What a tool of xAI's own gave.
        calls = part.get("tool_calls", [])
        clients = [call for call in calls if call.get("type", _CLIENTS_CALL) == _CLIENTS_CALL]
        # An output that calls xAI's own tools is a step of the answer, whose end comes with a later
        # output.
        goes_on = bool(calls) and not clients
        found.append(
            {
                "index": output.get("index", 0) if choices > 1 else 0,
                content: {
                    "content": part.get("content", ""),
                    "reasoning_content": part.get("reasoning_content", ""),
                    "tool_calls": [
                        {"id": call.get("id"), "function": call.get("function", {})}
                        for call in clients
                    ],
                },
                "finish_reason": None
                if goes_on
                else output.get("finish_reason", "REASON_INVALID" if whole else None),
            }
        )
    if whole and choices == 1:
        for step in found[:-1]:
            # The last output's counts, as in the SDK's own `finish_reason`.
            step["finish_reason"] = None
    usage = said.get("usage")
    if usage is not None:
        usage = {
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "total_tokens": 0,
            **usage,
            "prompt_tokens_details": {"cached_tokens": usage.get("cached_prompt_text_tokens", 0)},
            "completion_tokens_details": {"reasoning_tokens": usage.get("reasoning_tokens", 0)},
        }
    return {"id": said.get("id"), "model": said.get("model"), "choices": found, "usage": usage}
