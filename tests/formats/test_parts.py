"""Token counts of a response's usage object, by format."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.formats.parts import usage_in


@pytest.mark.parametrize(
    ("format_name", "usage", "expected"),
    [
        (
            "anthropic",
            {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": None},
            {"input_tokens": 43, "cache_read_tokens": 40, "cache_write_tokens": None},
        ),
        (
            "anthropic",
            {"cache_read_input_tokens": 40, "output_tokens": 5},
            {"input_tokens": None, "cache_read_tokens": 40, "output_tokens": 5},
        ),
        (
            "bedrock_converse",
            {"cacheReadInputTokens": 40},
            {"input_tokens": None, "cache_read_tokens": 40},
        ),
        (
            "gemini_interactions",
            {"total_thought_tokens": 7},
            {"output_tokens": 7, "reasoning_tokens": 7},
        ),
        (
            "gemini_interactions",
            {"total_tool_use_tokens": 7, "total_output_tokens": 0},
            {"input_tokens": 7, "output_tokens": 0},
        ),
        (
            "cohere",
            {"billed_units": {"input_tokens": 2}, "tokens": {"output_tokens": 9}},
            {"input_tokens": 2, "output_tokens": 9},
        ),
    ],
)
def test_reads_token_counts(format_name: str, usage: dict[str, Any], expected: dict[str, int | None]) -> None:
    counts = usage_in(format_name, usage)
    assert {name: getattr(counts, name) for name in expected} == expected


def test_an_empty_usage_object_has_no_counts() -> None:
    assert usage_in("anthropic", {}) is None
