"""Pydantic AI: the stop reason of a response, and the responses that its exceptions keep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from endturn.calls import ResponseFacts
from endturn.formats import ResponseSummary, are_whole, count, items, member, text, text_or_none
from endturn.frameworks._response_fields import nested, reject_plain_value, try_read, unsupported
from endturn.frameworks.rows import (
    BLOCKED_PROMPT,
    REASONS,
    find_provider_row,
    provider_tables,
    stop_of_framework,
)
from endturn.vocabulary import Resume, Row, Stop, StopReason, Usage, raw_text

EXCEPTIONS: Final = {
    "ContentFilterError": StopReason.SAFETY_BLOCKED,
    "ModelContextWindowExceededError": StopReason.CONTEXT_WINDOW_EXCEEDED,
    "OutputTokenLimitExceeded": StopReason.MAX_TOKENS,  # and IncompleteToolCall, its subclass
    "RunCancelled": StopReason.CANCELLED,
}
"""Exception classes of `pydantic_ai` that stand for a stop reason; subclasses count."""

_EXPECTED: Final = "a ModelResponse, or the result of a run that has one"


def pydantic_ai(response: object, *, maximum: int | None = None) -> Stop:
    """Return why a Pydantic AI ModelResponse stopped.

    Its `state` counts first, then the provider's value, then Pydantic AI's own word.

    Args:
        response: a ModelResponse, one as `ModelMessagesTypeAdapter` dumps it, or a run's result
            (its last response).
        maximum: as in `langchain`.

    Raises:
        UsageError: the value is no ModelResponse, and has none.
    """
    response = _require_response(response)
    details = _provider_details(response)
    raw, row = _provider_reason(response)
    # Calls of tools that the provider runs are "builtin-tool-call".
    parts = items(member(response, "parts"))
    tool_calls = [part for part in parts if member(part, "part_kind") == "tool-call"]
    stop = stop_of_framework(
        raw,
        row,
        member(response, "finish_reason"),
        REASONS["pydantic-ai"],
        calls=len(tool_calls),
        calls_closed=all(are_whole(member(part, "args")) for part in tool_calls),
        terminal_seen=member(response, "state") != "incomplete",
        output_tokens=count(nested(response, "usage", "output_tokens")),
        prompt_tokens=count(nested(response, "usage", "input_tokens")),
        maximum=maximum,
        detail=text_or_none(member(details, "refusal_category")),
    )
    return _adjust_to_state(stop, raw, response)


def summarize_model_response(response: Any) -> ResponseSummary:
    """Return the stop, usage, id and model of a ModelResponse."""
    usage = member(response, "usage")
    tokens = Usage(count(member(usage, "input_tokens")), count(member(usage, "output_tokens")))
    stop = pydantic_ai(response)
    facts = ResponseFacts(
        stop=stop,
        id=text_or_none(member(response, "provider_response_id")),
        model=text_or_none(member(response, "model_name")),
        usage=tokens,
        reasons=(stop.raw,),
    )
    return ResponseSummary(facts)


def response_in_body(error: BaseException) -> Any:
    """Return the response in the JSON `body` of an exception; None if it has none.

    The body is Pydantic AI's own response, in a list, or the provider's.
    """
    body = getattr(error, "body", None)
    if not isinstance(body, str):
        return None
    with suppress(ValueError, RecursionError):
        parsed = json.loads(body)
        return parsed[-1] if isinstance(parsed, list) and parsed else parsed
    return None


def _require_response(response: Any) -> Any:
    """Return a ModelResponse, or the last one of a run's result; raise for anything else."""
    reject_plain_value("pydantic_ai", _EXPECTED, response)
    if member(response, "kind") == "response":
        return response
    if not isinstance(response, Mapping):
        latest = try_read(lambda: response.response)
        history = items(try_read(lambda: response.all_messages()))
        for message in (latest, *reversed(history)):
            if member(message, "kind") == "response":
                return message
    raise unsupported("pydantic_ai", _EXPECTED, response)


def _provider_details(response: Any) -> Any:
    """Return the provider's fields; older releases name them `vendor_details`."""
    return member(response, "provider_details") or member(response, "vendor_details")


def _provider_reason(response: Any) -> tuple[object, Row | None]:
    """Return the provider's value and its row; Gemini's `block_reason` if that stands alone."""
    details = _provider_details(response)
    raw = member(details, "finish_reason")
    block_reason = member(details, "block_reason")
    if raw_text(raw) is None and raw_text(block_reason) is not None:
        return block_reason, BLOCKED_PROMPT
    return raw, find_provider_row(raw, provider_tables(text(member(response, "provider_name"))))


def _adjust_to_state(stop: Stop, raw: object, response: Any) -> Stop:
    """Return the stop, adjusted to the response's `state` and its refusal."""
    state = member(response, "state")
    if state == "suspended" and stop.reason is not StopReason.PAUSED:
        # Anthropic's pause_turn has its own row. The other case is a background job: poll its id.
        return Stop(
            StopReason.PAUSED,
            raw_text(raw),
            resume=Resume.RETRIEVE_SAME_ID,
            incomplete=True,
        )
    if state == "interrupted":
        if StopReason.MISSING in (stop.reason, stop.promoted_from):
            return Stop(
                StopReason.CANCELLED,
                detail="interrupted",
                terminal_seen=False,
                incomplete=True,
            )
        # The response was finished: the run stopped before it used it.
        return replace(stop, detail="interrupted")
    has_refusal = member(_provider_details(response), "refusal") is not None
    if has_refusal and raw_text(raw) is None and stop.reason is StopReason.SAFETY_BLOCKED:
        # The model refused in its own words, which Pydantic AI keeps in place of a reason.
        return replace(stop, reason=StopReason.REFUSED)
    return stop
