"""LiteLLM: the stop reason of a response, and those that its exceptions stand for."""

from __future__ import annotations

from typing import Any, Final

from endturn.formats import are_whole, count, items, member, text
from endturn.frameworks._response_fields import (
    first_item,
    first_present,
    has_field,
    nested,
    reject_plain_value,
    unsupported,
)
from endturn.frameworks.rows import (
    REASONS,
    choose_reason,
    find_provider_row,
    restrict_resume,
    stop_of,
)
from endturn.vocabulary import Resume, Row, Stop, StopReason, raw_text

EXCEPTIONS: Final = {
    "BlockedPiiEntityError": StopReason.SAFETY_BLOCKED,
    "ContentPolicyViolationError": StopReason.SAFETY_BLOCKED,
    "ContextWindowExceededError": StopReason.CONTEXT_WINDOW_EXCEEDED,
}
"""Exception classes of `litellm` that stand for a stop reason; subclasses count."""

_EXPECTED: Final = "a ModelResponse, a chunk, or one of their choices"


def litellm(answer: object, *, maximum: int | None = None, window: int | None = None) -> Stop:
    """Return why a LiteLLM response stopped.

    LiteLLM writes `stop` for values that it does not know, for errors, and for missing reasons
    (1.106, 1.109). If the provider's value differs, it is in
    `provider_specific_fields.native_finish_reason`, except in streams. A value that cannot be
    checked against it has the detail "litellm".

    Args:
        answer: a ModelResponse, a chunk, one of their choices (the first counts), or these as
            mappings.
        maximum, window: as in `langchain`.

    Raises:
        UsageError: the value is no response of LiteLLM.
    """
    _check(answer)
    choice = first_item(member(answer, "choices")) or answer
    native = first_present(
        nested(choice, "provider_specific_fields", "native_finish_reason"),
        member(choice, "native_finish_reason"),
    )
    word = member(choice, "finish_reason")
    raw, row = _reason_and_row(native, word)
    message = member(choice, "message")
    tool_calls = items(member(message, "tool_calls"))
    function_call = member(message, "function_call")
    functions = [*(member(call, "function") for call in tool_calls), function_call]
    is_unchecked = raw_text(native) is None and raw_text(word) is not None
    return stop_of(
        raw,
        row,
        terminal_seen=message is not None or raw_text(raw) is not None,
        calls=len(tool_calls) + bool(function_call),
        calls_closed=all(are_whole(member(function, "arguments")) for function in functions),
        output_tokens=count(nested(answer, "usage", "completion_tokens")),
        prompt_tokens=count(nested(answer, "usage", "prompt_tokens")),
        maximum=maximum,
        window=window,
        refused=bool(text(member(message, "refusal"))),
        detail="litellm" if is_unchecked else None,
    )


def is_blocked_by_guardrail(error: BaseException) -> bool:
    """Return whether a GuardrailRaisedException blocked content (a failed guardrail did not)."""
    return getattr(error, "blocked_content", None) is True


def _check(answer: Any) -> None:
    """Raise for a value that is neither a response nor a choice."""
    reject_plain_value("litellm", _EXPECTED, answer)
    fields = ("choices", "finish_reason", "native_finish_reason", "delta")
    if not any(has_field(answer, name) for name in fields):
        raise unsupported("litellm", _EXPECTED, answer)


def _reason_and_row(native: object, word: object) -> tuple[object, Row | None]:
    """Choose between the provider's value and LiteLLM's word for it.

    LiteLLM does not pass on a provider's own way to resume, so only a prompt or a repair is
    possible.
    """
    row = find_provider_row(native, (REASONS["litellm"],))
    row = restrict_resume(row, allowed=(Resume.PROMPT, Resume.REPAIR))
    if raw_text(native) is not None and row is None:
        return native, None  # LiteLLM's word for an unknown value is `stop`: no information.
    return choose_reason(native, row, word, find_provider_row(word, (REASONS["litellm"],)))
