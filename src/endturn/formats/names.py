"""The names of the formats."""

from __future__ import annotations

from typing import Final

FORMATS: Final = (
    *("anthropic", "bedrock_converse", "bedrock_invoke", "cohere", "completions"),
    *("gemini", "gemini_interactions", "ollama", "openai_chat", "openai_responses"),
)
"""The names of the formats, each that of its module in `formats/apis`."""
