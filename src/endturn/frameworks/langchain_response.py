"""LangChain: the places in which its integrations keep the stop reason of a response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from endturn.errors import UsageError
from endturn.formats import count, items, member, text, text_or_none
from endturn.frameworks._response_fields import (
    first_item,
    first_present,
    has_field,
    nested,
    reject_plain_value,
    unsupported,
)
from endturn.frameworks.rows import (
    BLOCKED_PROMPT,
    REASONS,
    find_provider_row,
    find_responses_row,
    format_tables,
    provider_tables,
    stop_of,
)
from endturn.vocabulary import Row, Stop, StopReason, raw_text

EXCEPTIONS: Final = {"ContextOverflowError": StopReason.CONTEXT_WINDOW_EXCEEDED}
"""Exception classes of `langchain_core` that stand for a stop reason; subclasses count."""

_EXPECTED: Final = "an AIMessage, a generation, an LLMResult, their metadata, or a graph's state"

_OTHER_MESSAGES: Final = ("human", "system", "tool", "function", "remove")
"""`type` of the messages that no model wrote. Chunks have the class name ("HumanMessageChunk")."""

_METADATA_FIELDS: Final = (
    *("finish_reason", "stop_reason", "stopReason", "messageStop", "done_reason"),
    *("completionReason", "finishReason", "normalized_finish_reason", "prompt_feedback", "status"),
    *("model_provider", "model_name", "model_id", "usage", "ResponseMetadata", "token_usage"),
)
"""Every integration sets at least one of these in a response's metadata."""


def langchain(answer: object, *, maximum: int | None = None, window: int | None = None) -> Stop:
    """Return why a LangChain response stopped.

    Args:
        answer: an AIMessage, a chunk or a sum of chunks, a generation, an LLMResult or ChatResult
            (its first generation counts), their `response_metadata` or `generation_info`, or the
            state of a LangGraph graph (the last AI message of its `messages` counts).
        maximum: the output limit of the request, if any. A response that finished with exactly
            that many tokens is suspected to be truncated.
        window: the model's context window, if known.

    Raises:
        UsageError: the value is no response of LangChain, or a state without one.
    """
    response = _require_response(answer)
    generation = _first_generation(response)
    message = member(generation, "message") or generation
    reason = _stop_reason(response, generation)
    invalid_calls = items(member(message, "invalid_tool_calls"))
    return stop_of(
        reason.raw,
        reason.row,
        terminal_seen=not _is_unfinished_stream(message) or raw_text(reason.raw) is not None,
        calls=len(items(member(message, "tool_calls"))) + len(invalid_calls),
        calls_closed=not invalid_calls,
        output_tokens=count(nested(message, "usage_metadata", "output_tokens")),
        prompt_tokens=count(nested(message, "usage_metadata", "input_tokens")),
        maximum=maximum,
        window=window,
        refused=_is_refusal(message),
        detail=reason.detail,
    )


# --- Recognition of responses
# -----------------------------------------------------------------------


def _require_response(answer: Any) -> Any:
    """Return the response, or the last AI message of a graph's state; raise for anything else."""
    reject_plain_value("langchain", _EXPECTED, answer)
    if text(member(answer, "type")).lower().removesuffix("messagechunk") in _OTHER_MESSAGES:
        raise unsupported("langchain", _EXPECTED, answer)
    history = member(answer, "messages")
    if isinstance(history, list | tuple) and not _is_response(answer):
        return _last_ai_message(history)
    if not _is_metadata(answer) and not _is_response(answer):
        raise unsupported("langchain", _EXPECTED, answer)
    return answer


def _is_metadata(answer: Any) -> bool:
    """Return whether this is the metadata of a response. It may be empty."""
    if not isinstance(answer, Mapping):
        return False
    return not answer or any(name in answer for name in _METADATA_FIELDS)


def _is_response(answer: Any) -> bool:
    """Return whether this is a message, a generation, a result, or what wraps one in `message`."""
    fields = ("response_metadata", "generation_info", "generations")
    holders = (answer, member(answer, "message"))
    return any(has_field(holder, name) for holder in holders for name in fields)


def _last_ai_message(history: list[Any] | tuple[Any, ...]) -> Any:
    for message in reversed(history):
        if member(message, "type") in ("ai", "AIMessageChunk"):
            return message
    problem = f"this state has no AI message among its {len(history)}"
    raise UsageError(f"langchain() reads {_EXPECTED}; {problem}")


def _first_generation(response: Any) -> Any:
    """Return the first generation of an LLMResult or a ChatResult; any other response as it is."""
    generation = first_item(member(response, "generations"))
    # An LLMResult has a list of generations for each prompt, a ChatResult one list.
    return first_present(first_item(generation), generation) or response


# --- Stop reason -----------------------------------------------------------------


class _Reason(NamedTuple):
    """The stop reason as the provider wrote it, its row, and a detail."""

    raw: object
    row: Row | None = None
    detail: str | None = None


def _stop_reason(response: Any, generation: Any) -> _Reason:
    """Return the stop reason from the first metadata that has one."""
    places = (
        nested(generation, "message", "response_metadata"),
        member(generation, "response_metadata"),
        member(generation, "generation_info"),
    )
    metadata = [place for place in places if isinstance(place, Mapping) and place] or [response]
    for place in metadata:
        if (reason := _reason_in_metadata(place)) is not None:
            return reason
    # ChatGoogleGenerativeAI reports a blocked prompt beside the generations.
    return _blocked_prompt(member(response, "llm_output")) or _Reason(None)


def _reason_in_metadata(metadata: Any) -> _Reason | None:
    if _is_openai_response(metadata):
        return _Reason(*find_responses_row(metadata))
    raw, formats = _provider_reason(metadata)
    if raw_text(raw) is not None:
        row = _provider_row(raw, formats, metadata) or _langchain_row(metadata)
        return _Reason(raw, row, text_or_none(member(metadata, "stop_sequence")))
    return _blocked_prompt(metadata)


def _is_openai_response(metadata: Any) -> bool:
    """Return whether ChatOpenAI copied the fields of a Responses object into the metadata."""
    has_status = bool(text(member(metadata, "status")))
    is_marked = member(metadata, "object") == "response"
    return has_status and (is_marked or member(metadata, "incomplete_details") is not None)


def _provider_reason(metadata: Any) -> tuple[object, tuple[str, ...]]:
    """Return the provider's stop reason, and the formats whose tables list the field's values.

    Each integration keeps the field of its provider's API.
    """
    places = (
        (member(metadata, "finish_reason"), ()),  # most
        (member(metadata, "stop_reason"), ("anthropic", "bedrock_invoke")),
        (member(metadata, "stopReason"), ("bedrock_converse",)),
        (nested(metadata, "messageStop", "stopReason"), ("bedrock_converse",)),  # streamed
        (member(metadata, "done_reason"), ("ollama",)),
        (member(metadata, "completionReason"), ("bedrock_invoke",)),
        (member(metadata, "finishReason"), ("gemini", "bedrock_invoke")),
    )
    return next((place for place in places if raw_text(place[0]) is not None), (None, ()))


def _provider_row(raw: object, formats: tuple[str, ...], metadata: Any) -> Row | None:
    of_formats = [rows for name in formats for rows in format_tables(name, every_dialect=True)]
    of_provider = provider_tables(text(member(metadata, "model_provider")))
    return find_provider_row(raw, (*of_formats, *of_provider))


def _langchain_row(metadata: Any) -> Row | None:
    """Return the row of LangChain's own word, which its JavaScript sets; None for "other"."""
    row = REASONS["langchain"].get(text(member(metadata, "normalized_finish_reason")))
    return None if row is None or row.reason is StopReason.UNKNOWN else row


def _blocked_prompt(metadata: Any) -> _Reason | None:
    """Return the reason why Gemini blocked the prompt, if it did."""
    block_reason = nested(metadata, "prompt_feedback", "block_reason")
    return _Reason(block_reason, BLOCKED_PROMPT) if block_reason else None


# --- Other fields of a message ----------------------------------------------------------------


def _is_unfinished_stream(message: Any) -> bool:
    """Return whether this is a chunk, or a sum of chunks, without the last one."""
    is_last = member(message, "chunk_position") == "last"
    return not is_last and bool(member(message, "type") == "AIMessageChunk")


def _is_refusal(message: Any) -> bool:
    """Return whether OpenAI's `refusal` is set, as a content part or beside the content."""
    parts = items(member(message, "content"))
    if any(member(part, "type") == "refusal" for part in parts):
        return True
    return bool(text(nested(message, "additional_kwargs", "refusal")))
