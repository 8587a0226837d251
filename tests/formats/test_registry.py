"""The dialect of a format for a provider."""

from __future__ import annotations

import pytest

from endturn.formats import dialect_in, format_of


@pytest.mark.parametrize(
    ("format_name", "provider", "dialect"),
    [
        ("ollama", "ollama", ""),
        ("openai_chat", "ollama", "ollama"),
        ("completions", "vllm", "vllm"),
        ("openai_chat", "mistral_ai", "mistral"),
        ("completions", "mistral_ai", "compatible"),
        ("gemini", "gcp.vertex_ai", "vertex"),
        ("openai_chat", "gcp.vertex_ai", "compatible"),
        ("anthropic", "deepseek", ""),
        ("openai_chat", "acme", "compatible"),
    ],
)
def test_the_dialect_of_a_provider(format_name: str, provider: str, dialect: str) -> None:
    assert dialect_in(format_of(format_name), provider) == dialect
