"""LiteLLM responses of litellm 1.106, as `ModelResponse.model_dump()` returns them."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.errors import UsageError
from endturn.frameworks import litellm
from tests.support.stops import CONTENT, NOT_RESPONSES, PLAIN_VALUES, WRONG_TYPES, StopFields

TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}

REASONS = [
    pytest.param("stop", "pause_turn", StopFields("paused", "pause_turn"), id="pause, as stop"),
    pytest.param("length", "pause_turn", StopFields("paused", "pause_turn"), id="pause, as length"),
    pytest.param(
        "stop",
        "MALFORMED_FUNCTION_CALL",
        StopFields("error", "MALFORMED_FUNCTION_CALL", "repair"),
        id="malformed call, as stop",
    ),
    pytest.param(
        "stop",
        "TOO_MANY_TOOL_CALLS",
        StopFields("error", "TOO_MANY_TOOL_CALLS"),
        id="too many calls, as stop",
    ),
    pytest.param(
        "length",
        "model_context_window_exceeded",
        StopFields("context_window_exceeded", "model_context_window_exceeded"),
        id="context window, as length",
    ),
    pytest.param(
        "length",
        "CONTINUATION",
        StopFields("paused", "CONTINUATION"),
        id="continuation whose token is not passed on",
    ),
    pytest.param(
        "stop",
        "steered",
        StopFields("paused", "steered"),
        id="a pause whose way to resume is not passed on",
    ),
    pytest.param("length", "compaction", StopFields("paused", "compaction"), id="compaction"),
    pytest.param("content_filter", "refusal", StopFields("refused", "refusal"), id="refusal"),
    pytest.param("content_filter", "OTHER", StopFields("error", "OTHER"), id="other, as filter"),
    pytest.param("stop", "network_error", StopFields("error", "network_error"), id="network error"),
    pytest.param("stop", "ERROR", StopFields("error", "ERROR"), id="Cohere's error"),
    pytest.param("length", "MAX_TOKENS", StopFields("max_tokens", "MAX_TOKENS", "prompt"), id="limit"),
    pytest.param("tool_calls", "tool_use", StopFields("tool_call", "tool_use"), id="tool calls"),
    pytest.param(
        "stop",
        "weird",
        StopFields("unknown", "weird", mapped=False),
        id="a value that LiteLLM does not know, as stop",
    ),
    pytest.param(
        "length",
        "STOP",
        StopFields("max_tokens", "length", "prompt"),
        id="a native value that hides the truncation",
    ),
    pytest.param(
        "stop",
        None,
        StopFields("end_turn", "stop", detail="litellm"),
        id="stop without a native value",
    ),
    pytest.param(
        "length",
        None,
        StopFields("max_tokens", "length", "prompt", detail="litellm"),
        id="length without a native value",
    ),
    pytest.param(
        "content_filter",
        None,
        StopFields("safety_blocked", "content_filter", detail="litellm"),
        id="filter without a native value",
    ),
]
"""LiteLLM's word, the provider's value beside it, and the stop."""


def choice(finish_reason: str | None, native: str | None, **message: Any) -> dict[str, Any]:
    """Return a choice as LiteLLM dumps it."""
    fields: dict[str, Any] = {
        "finish_reason": finish_reason,
        "index": 0,
        "message": {
            "content": "hi",
            "role": "assistant",
            "tool_calls": None,
            "function_call": None,
            **message,
        },
    }
    if native is not None:
        fields["provider_specific_fields"] = {"native_finish_reason": native}
    return fields


def response(finish_reason: str | None, native: str | None, **message: Any) -> dict[str, Any]:
    """Return a ModelResponse as LiteLLM dumps it."""
    return {
        "id": "chatcmpl-1",
        "model": "m",
        "object": "chat.completion",
        "choices": [choice(finish_reason, native, **message)],
        "usage": {"completion_tokens": 16, "prompt_tokens": 4, "total_tokens": 20},
    }


@pytest.mark.parametrize(("word", "native", "expected"), REASONS)
def test_reads_a_response(word: str, native: str | None, expected: StopFields) -> None:
    assert StopFields.of(litellm(response(word, native))) == expected


@pytest.mark.parametrize(("word", "native", "expected"), REASONS)
def test_reads_a_choice(word: str, native: str | None, expected: StopFields) -> None:
    assert StopFields.of(litellm(choice(word, native))) == expected


@pytest.mark.parametrize(
    ("word", "native", "expected"),
    [
        ("tool_calls", "STOP", StopFields("tool_call", "STOP", promoted_from="end_turn")),
        ("length", "MAX_TOKENS", StopFields("max_tokens", "MAX_TOKENS", "prompt")),
    ],
)
def test_tool_calls_promote_a_clean_end_alone(word: str, native: str, expected: StopFields) -> None:
    assert StopFields.of(litellm(response(word, native, tool_calls=[TOOL_CALL]))) == expected


def test_suspects_a_tool_call_with_truncated_arguments() -> None:
    tool_call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "pay", "arguments": '{"to": "x'},
    }
    message = {"content": None, "role": "assistant", "tool_calls": [tool_call]}
    stop = litellm(
        {
            "object": "chat.completion",
            "choices": [{"finish_reason": "stop", "index": 0, "message": message}],
        }
    )
    assert (stop.reason, stop.promoted_from, stop.suspected) == ("end_turn", None, True)


@pytest.mark.parametrize(
    ("finish_reason", "expected"),
    [
        (None, StopFields("missing", None)),
        ("stop", StopFields("end_turn", "stop", detail="litellm")),
    ],
)
def test_reads_a_chunk(finish_reason: str | None, expected: StopFields) -> None:
    delta = {"content": "", "role": None, "function_call": None, "tool_calls": None}
    chunk = {
        "object": "chat.completion.chunk",
        "choices": [{"finish_reason": finish_reason, "index": 0, "delta": delta}],
    }
    assert StopFields.of(litellm(chunk)) == expected


def test_suspects_a_response_of_exactly_the_output_limit() -> None:
    expected = StopFields("end_turn", "stop", detail="litellm", suspected=True)
    assert StopFields.of(litellm(response("stop", None), maximum=16)) == expected


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("numbers for objects", "3"),
        ("a nested reason", "1"),
        ("numbers for texts", "3"),
        ("text for a number", "3"),
    ],
)
def test_reads_fields_of_wrong_types_as_an_unknown_reason(name: str, raw: str) -> None:
    expected = StopFields("unknown", raw, detail="litellm", mapped=False)
    assert StopFields.of(litellm(WRONG_TYPES[name])) == expected


@pytest.mark.parametrize("value", [*NOT_RESPONSES.values(), {}], ids=[*NOT_RESPONSES, "nothing"])
def test_rejects_what_is_no_response(value: Any) -> None:
    with pytest.raises(UsageError, match=r"litellm\(\) reads .* not ") as error:
        litellm(value)
    assert CONTENT not in str(error.value)


@pytest.mark.parametrize("name", PLAIN_VALUES)
def test_rejects_values_without_fields(name: str) -> None:
    with pytest.raises(UsageError, match=r"litellm\(\) reads "):
        litellm(PLAIN_VALUES[name])
