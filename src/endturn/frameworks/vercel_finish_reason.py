"""Vercel's AI SDK: the finish reason of a response, with the provider's value beside it."""

from __future__ import annotations

from typing import Any, Final

from endturn.formats import member
from endturn.frameworks._response_fields import (
    first_present,
    has_field,
    nested,
    reject_plain_value,
    unsupported,
)
from endturn.frameworks.rows import REASONS, find_provider_row, provider_tables, stop_of_framework
from endturn.vocabulary import Stop

_EXPECTED: Final = "{unified, raw}, {finishReason, rawFinishReason}, or the word alone"


def vercel(finish_reason: object, *, provider: str | None = None) -> Stop:
    """Return what a finish reason of Vercel's AI SDK means.

    Args:
        finish_reason: `{unified, raw}` (v4 of its specification), a result's
            `{finishReason, rawFinishReason}`, or the word alone. The provider's value counts where
            any table lists it.
        provider: the provider whose value it is, by any name ("openai", "amazon-bedrock").

    Raises:
        UsageError: the value is no finish reason, and holds none.
    """
    word, raw = _word_and_raw(finish_reason)
    row = find_provider_row(raw, provider_tables(provider or ""))
    return stop_of_framework(raw, row, word, REASONS["vercel.v4"])


def _word_and_raw(finish_reason: Any) -> tuple[object, object]:
    """Return the SDK's word and the provider's value."""
    if finish_reason is None or isinstance(finish_reason, str):
        return finish_reason, None
    reject_plain_value("vercel", _EXPECTED, finish_reason)
    if finish_reason == {}:  # no reason arrived
        return None, None
    fields = ("unified", "raw", "finishReason", "rawFinishReason")
    if not any(has_field(finish_reason, name) for name in fields):
        raise unsupported("vercel", _EXPECTED, finish_reason)
    # A result of v4 has the whole object in one of the fields.
    word = first_present(
        nested(finish_reason, "unified", "unified"),
        nested(finish_reason, "finishReason", "unified"),
        member(finish_reason, "unified"),
        member(finish_reason, "finishReason"),
    )
    raw = first_present(
        member(finish_reason, "raw"),
        member(finish_reason, "rawFinishReason"),
        nested(finish_reason, "unified", "raw"),
        nested(finish_reason, "finishReason", "raw"),
    )
    return word, raw
