"""Token counts of a response's usage object, by format: `usage_of` of `endturn.formats.apis`."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from endturn.formats.apis import (
    anthropic,
    bedrock_converse,
    cohere,
    gemini_interactions,
    ollama,
    openai_chat,
    openai_responses_reader as openai_responses,
)
from endturn.vocabulary import Usage


@pytest.mark.parametrize(
    ("usage_of", "usage", "expected"),
    [
        (
            anthropic.usage_of,
            {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": None},
            {"input_tokens": 43, "cache_read_tokens": 40, "cache_write_tokens": None},
        ),
        (
            anthropic.usage_of,
            {"cache_read_input_tokens": 40, "output_tokens": 5},
            {"input_tokens": None, "cache_read_tokens": 40, "output_tokens": 5},
        ),
        (
            bedrock_converse.usage_of,
            {"cacheReadInputTokens": 40},
            {"input_tokens": None, "cache_read_tokens": 40},
        ),
        (
            gemini_interactions.usage_of,
            {"total_thought_tokens": 7},
            {"output_tokens": 7, "reasoning_tokens": 7},
        ),
        (
            gemini_interactions.usage_of,
            {"total_tool_use_tokens": 7, "total_output_tokens": 0},
            {"input_tokens": 7, "output_tokens": 0},
        ),
        (
            cohere.usage_of,
            {"billed_units": {"input_tokens": 2}, "tokens": {"output_tokens": 9}},
            {"input_tokens": 2, "output_tokens": 9},
        ),
        (cohere.usage_of, {"tokens": {"input_tokens": 4}, "billed_units": {"input_tokens": 2}}, {"input_tokens": 4}),
        (
            bedrock_converse.usage_of,
            {"inputTokens": 3, "cacheReadInputTokens": 40, "cacheWriteInputTokens": 500, "outputTokens": 7},
            {"input_tokens": 543, "cache_read_tokens": 40, "cache_write_tokens": 500, "output_tokens": 7},
        ),
        (
            openai_chat.usage_of,
            {
                "prompt_tokens": 30,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 9, "cache_write_tokens": 8},
                "completion_tokens_details": {"reasoning_tokens": 7},
                "prompt_cache_hit_tokens": 1,
                "total_tokens": 50,
            },
            {
                "input_tokens": 30,
                "output_tokens": 20,
                "reasoning_tokens": 7,
                "cache_read_tokens": 9,
                "cache_write_tokens": 8,
            },
        ),
        (openai_chat.usage_of, {"prompt_cache_hit_tokens": 5, "cached_tokens": 6}, {"cache_read_tokens": 5}),
        (
            openai_chat.usage_of,
            {"prompt_tokens": "12", "cached_tokens": 6},
            {"input_tokens": 12, "cache_read_tokens": 6},
        ),
        (
            openai_responses.usage_of,
            {
                "input_tokens": 30,
                "output_tokens": 20,
                "input_tokens_details": {"cached_tokens": 9, "cache_write_tokens": 8},
                "output_tokens_details": {"reasoning_tokens": 7},
            },
            {
                "input_tokens": 30,
                "output_tokens": 20,
                "reasoning_tokens": 7,
                "cache_read_tokens": 9,
                "cache_write_tokens": 8,
            },
        ),
        (
            anthropic.usage_of,
            {"output_tokens": 20, "output_tokens_details": {"thinking_tokens": 7}, "cache_creation_input_tokens": 5},
            {"output_tokens": 20, "reasoning_tokens": 7, "cache_write_tokens": 5},
        ),
        (
            gemini_interactions.usage_of,
            {"total_input_tokens": 3, "total_output_tokens": 4, "total_thought_tokens": 5, "total_cached_tokens": 2},
            {"input_tokens": 3, "output_tokens": 9, "reasoning_tokens": 5, "cache_read_tokens": 2},
        ),
        (ollama.usage_of, {"prompt_eval_count": 3, "eval_count": 4}, {"input_tokens": 3, "output_tokens": 4}),
    ],
)
def test_reads_token_counts(
    usage_of: Callable[[Any], Usage | None], usage: dict[str, Any], expected: dict[str, int | None]
) -> None:
    """Of a mapping, and of an SDK's object."""
    for figures in (usage, as_object(usage)):
        counts = usage_of(figures)
        assert {name: getattr(counts, name) for name in expected} == expected


@pytest.mark.parametrize("usage", [{}, None, [], "12", {"prompt_tokens": None}, {"input_tokens": "many"}, 7])
@pytest.mark.parametrize(
    "module", [anthropic, bedrock_converse, cohere, gemini_interactions, ollama, openai_chat, openai_responses]
)
def test_a_usage_object_without_counts_is_no_usage(module: Any, usage: Any) -> None:
    assert module.usage_of(usage) is None


def as_object(value: Any) -> Any:
    """Return a mapping as an object with attributes, as an SDK has it."""
    return (
        SimpleNamespace(**{name: as_object(one) for name, one in value.items()}) if isinstance(value, dict) else value
    )
