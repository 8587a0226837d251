"""Finish reasons of Vercel's AI SDK: LanguageModelV4 and the results before it."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.errors import UsageError
from endturn.frameworks import vercel
from tests.support.stops import CONTENT, NOT_RESPONSES, WRONG_TYPES, StopFields


@pytest.mark.parametrize(
    ("unified", "raw", "expected"),
    [
        pytest.param("stop", "pause_turn", StopFields("paused", "pause_turn"), id="pause"),
        pytest.param("other", "compaction", StopFields("paused", "compaction"), id="compaction"),
        pytest.param("stop", "end_turn", StopFields("end_turn", "end_turn"), id="clean end"),
        pytest.param(
            "length",
            "model_context_window_exceeded",
            StopFields("context_window_exceeded", "model_context_window_exceeded"),
            id="context window",
        ),
        pytest.param(
            "length",
            "max_output_tokens",
            StopFields("max_tokens", "max_output_tokens", "prompt"),
            id="Responses",
        ),
        pytest.param(
            "length",
            "new",
            StopFields("max_tokens", "new", "prompt"),
            id="an unknown value under a word",
        ),
        pytest.param(
            "other",
            "new",
            StopFields("unknown", "new", mapped=False),
            id="an unknown value under a word that says nothing",
        ),
        pytest.param("length", None, StopFields("max_tokens", "length", "prompt"), id="no provider value"),
        pytest.param("error", "stop", StopFields("error", "error"), id="a value that hides an error"),
        pytest.param(
            "tool-calls",
            "STOP",
            StopFields("tool_call", "STOP", promoted_from="end_turn"),
            id="the SDK has seen tool calls",
        ),
        pytest.param(
            "tool-calls",
            "max_tokens",
            StopFields("max_tokens", "max_tokens", "prompt"),
            id="the SDK has seen truncated tool calls",
        ),
    ],
)
def test_reads_the_unified_and_the_raw_reason(unified: str, raw: str | None, expected: StopFields) -> None:
    assert StopFields.of(vercel({"unified": unified, "raw": raw})) == expected


@pytest.mark.parametrize(
    ("finish_reason", "expected"),
    [
        pytest.param("content-filter", StopFields("safety_blocked", "content-filter"), id="the word alone"),
        pytest.param("other", StopFields("unknown", "other"), id="a word that says nothing"),
        pytest.param(
            {"finishReason": "length", "rawFinishReason": "MAX_TOKENS"},
            StopFields("max_tokens", "MAX_TOKENS", "prompt"),
            id="a result",
        ),
        pytest.param(
            {"type": "finish", "finishReason": {"unified": "length", "raw": "length"}},
            StopFields("max_tokens", "length", "prompt"),
            id="the finish part of a stream",
        ),
        pytest.param(None, StopFields("missing", None), id="None"),
        pytest.param({}, StopFields("missing", None), id="an empty reason"),
        pytest.param(dict[str, Any](), StopFields("missing", None), id="an empty response"),
    ],
)
def test_reads_results_and_words(finish_reason: Any, expected: StopFields) -> None:
    assert StopFields.of(vercel(finish_reason)) == expected


@pytest.mark.parametrize(
    ("unified", "raw", "provider", "expected"),
    [
        (
            "stop",
            "pause_turn",
            "anthropic.messages",
            StopFields("paused", "pause_turn", "resend_unchanged"),
        ),
        ("stop", "STOP", "google.generative-ai", StopFields("end_turn", "STOP")),
        (
            "error",
            "malformed_tool_use",
            "amazon-bedrock",
            StopFields("error", "malformed_tool_use", "repair"),
        ),
    ],
)
def test_the_provider_decides_how_to_resume(unified: str, raw: str, provider: str, expected: StopFields) -> None:
    finish_reason = {"unified": unified, "raw": raw}
    assert StopFields.of(vercel(finish_reason, provider=provider)) == expected


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_reads_fields_of_wrong_types_as_an_unknown_reason(name: str) -> None:
    assert StopFields.of(vercel(WRONG_TYPES[name])) == StopFields("unknown", "[]", mapped=False)


@pytest.mark.parametrize("name", NOT_RESPONSES)
def test_rejects_what_is_no_finish_reason(name: str) -> None:
    with pytest.raises(UsageError, match=r"vercel\(\) reads .* not ") as error:
        vercel(NOT_RESPONSES[name])
    assert CONTENT not in str(error.value)
