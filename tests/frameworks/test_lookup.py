"""Look up raw values of every API: `endturn.normalize` and `endturn.explain`."""

from __future__ import annotations

from typing import Any

import pytest

import endturn
from endturn.errors import UsageError


@pytest.mark.parametrize(
    ("raw", "options", "reason", "shown", "is_mapped"),
    [
        ("length", {}, "max_tokens", "length", True),
        ("stop", {}, "end_turn", "stop", True),
        ("max_tokens", {}, "max_tokens", "max_tokens", True),
        ("MAX_TOKENS", {}, "max_tokens", "MAX_TOKENS", True),
        ("lengthlength", {}, "max_tokens", "lengthlength", True),
        ("max_output_tokens", {}, "max_tokens", "max_output_tokens", True),
        ("length", {"provider": "openrouter"}, "max_tokens", "length", True),
        ("length", {"provider": " OpenRouter "}, "max_tokens", "length", True),
        ("model_length", {"provider": "mistral"}, "context_window_exceeded", "model_length", True),
        ("OTHER", {"provider": "gcp.gemini"}, "error", "OTHER", True),
        ("OTHER", {"provider": "google.promptFeedback"}, "safety_blocked", "OTHER", True),
        ("max_output_tokens", {"provider": "openai"}, "max_tokens", "max_output_tokens", True),
        (
            "max_output_tokens",
            {"provider": "openai", "format": "openai_responses"},
            "max_tokens",
            "max_output_tokens",
            True,
        ),
        ("max_tokens", {"format": "anthropic"}, "max_tokens", "max_tokens", True),
        (
            "max_tokens",
            {"provider": "acme", "format": "anthropic"},
            "max_tokens",
            "max_tokens",
            True,
        ),
        (
            {"reason": "max_output_tokens"},
            {"format": "openai_responses"},
            "max_tokens",
            "max_output_tokens",
            True,
        ),
        ("length", {"format": "anthropic"}, "max_tokens", "length", True),
        ("some_new_value", {}, "unknown", "some_new_value", False),
        (None, {}, "missing", None, True),
        ("", {"provider": "anthropic"}, "missing", None, True),
        ("length", {"provider": "mistralai"}, "max_tokens", "length", True),
        ("MAX_TOKENS", {"provider": "vertexai"}, "max_tokens", "MAX_TOKENS", True),
        ("length", {"provider": "z-ai"}, "max_tokens", "length", True),
    ],
)
def test_normalizes_a_raw_value(
    raw: object, options: dict[str, Any], reason: str, shown: str | None, is_mapped: bool
) -> None:
    stop = endturn.normalize(raw, **options)
    assert (stop.reason, stop.raw, stop.mapped) == (reason, shown, is_mapped)


@pytest.mark.parametrize(
    ("raw", "facts", "expected"),
    [
        (
            "not_finished",
            {"provider": "ibm.watsonx.ai", "format": "completions", "detail": "d"},
            {"reason": "missing", "detail": "d"},
        ),
        ("pause_turn", {"provider": "anthropic"}, {"resume": "resend_unchanged"}),
        ("stop", {"calls": 1}, {"reason": "tool_call"}),
        ("stop", {"calls": 1, "calls_closed": False}, {"reason": "end_turn"}),
        ("stop", {"output_tokens": 5, "maximum": 5}, {"suspected": True}),
        (
            "length",
            {"prompt_tokens": 90, "output_tokens": 10, "window": 100},
            {"reason": "context_window_exceeded"},
        ),
        ("stop", {"refused": True, "detail": "policy"}, {"reason": "refused", "detail": "policy"}),
        ("length", {"terminal_seen": False}, {"reason": "missing"}),
    ],
)
def test_normalizes_with_facts_of_the_response(raw: str, facts: dict[str, Any], expected: dict[str, Any]) -> None:
    stop = endturn.normalize(raw, **facts)
    assert {name: getattr(stop, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"provider": "acme"}, "unknown provider or API 'acme'"),
        ({"format": "acme"}, "unknown format 'acme'"),
    ],
)
def test_rejects_unknown_names(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        endturn.normalize("length", **options)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "no raw value"),
        (5, "not 5"),
        ({}, "not {}"),
    ],
)
def test_explains_only_text(raw: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        endturn.explain(raw)
