"""Which models continue a response from a prefilled assistant message."""

from __future__ import annotations

import pytest

from endturn.formats import capabilities


@pytest.mark.behaviour(14)
@pytest.mark.parametrize(
    ("format_name", "dialect", "model"),
    [
        ("anthropic", "", "claude-sonnet-4-5"),
        ("anthropic", "", "claude-haiku-4-5@20251001"),
        ("anthropic", "", "claude-3-opus-20240229"),
        ("bedrock_converse", "", "us.anthropic.claude-opus-4-1-20250805-v1:0"),
        ("openai_chat", "vllm", "any"),
        ("openai_chat", "mistral", "mistral-large-latest"),
        ("completions", "", "any"),
    ],
)
def test_a_model_that_takes_a_prefill(format_name: str, dialect: str, model: str) -> None:
    assert capabilities.capability_of(format_name, dialect, model).prefill is True


@pytest.mark.behaviour(14)
@pytest.mark.parametrize(
    ("format_name", "dialect", "model"),
    [
        ("anthropic", "", "claude-sonnet-4-6"),
        ("anthropic", "", "claude-opus-4-6"),
        ("anthropic", "", "claude-opus-4-10"),
        ("anthropic", "", "claude-opus-5-5"),
        ("openai_chat", "", "gpt-5"),
        ("openai_responses", "", "gpt-5"),
        ("gemini", "", "gemini-3-pro"),
    ],
)
def test_a_model_that_takes_no_prefill(format_name: str, dialect: str, model: str) -> None:
    assert capabilities.capability_of(format_name, dialect, model).prefill is False
