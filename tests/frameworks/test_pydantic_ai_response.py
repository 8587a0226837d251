"""Responses of pydantic-ai 2.68, as its adapter dumps them."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.errors import UsageError
from endturn.frameworks import pydantic_ai
from endturn.vocabulary.stop import StopReason
from tests.support.stops import CONTENT, NOT_RESPONSES, PLAIN_VALUES, WRONG_TYPES, StopFields


def response(
    provider: str,
    details: dict[str, Any] | None,
    finish_reason: str | None,
    *,
    state: str = "complete",
    part_kind: str = "text",
) -> dict[str, Any]:
    """Return a ModelResponse of one part, as ModelMessagesTypeAdapter dumps it."""
    return {
        "parts": [{"part_kind": part_kind}],
        "usage": {"input_tokens": 5, "output_tokens": 32},
        "model_name": "m",
        "provider_name": provider,
        "provider_details": details,
        "provider_response_id": "resp_1",
        "finish_reason": finish_reason,
        "state": state,
        "kind": "response",
    }


@pytest.mark.parametrize(
    ("provider", "details", "finish_reason", "expected"),
    [
        pytest.param(
            "openai",
            {"finish_reason": "max_output_tokens"},
            "length",
            StopFields("max_tokens", "max_output_tokens", "prompt"),
            id="truncated",
        ),
        pytest.param(
            "openai",
            {"finish_reason": "completed"},
            "stop",
            StopFields("end_turn", "completed"),
            id="Responses, completed",
        ),
        pytest.param(
            "openai",
            {"finish_reason": "max_messages"},
            None,
            StopFields("unknown", "max_messages", detail="server_limit"),
            id="Responses, a limit of the server",
        ),
        pytest.param(
            "openai",
            {"finish_reason": "steered"},
            None,
            StopFields("paused", "steered", "server"),
            id="Responses, steered",
        ),
        pytest.param(
            "anthropic",
            {"finish_reason": "model_context_window_exceeded"},
            "length",
            StopFields("context_window_exceeded", "model_context_window_exceeded"),
            id="context window",
        ),
        pytest.param(
            "google",
            {"finish_reason": "OTHER"},
            None,
            StopFields("error", "OTHER"),
            id="a value that Pydantic AI does not map",
        ),
        pytest.param(
            "google",
            {"finish_reason": "CONTINUATION"},
            "length",
            StopFields("paused", "CONTINUATION", "native_token"),
            id="to be continued by its token",
        ),
        pytest.param(
            "google",
            {"block_reason": "JAILBREAK"},
            "content_filter",
            StopFields("safety_blocked", "JAILBREAK"),
            id="blocked prompt",
        ),
        pytest.param(
            "openai",
            {"refusal": "I can't."},
            "content_filter",
            StopFields("refused", "content_filter"),
            id="OpenAI's refusal",
        ),
        pytest.param(
            "anthropic",
            {"refusal": "I can't.", "refusal_category": "bio", "finish_reason": "refusal"},
            "content_filter",
            StopFields("refused", "refusal", detail="bio"),
            id="Anthropic's refusal",
        ),
        pytest.param(
            "anthropic",
            {"refusal_category": "bio", "finish_reason": "refusal"},
            "content_filter",
            StopFields("refused", "refusal", detail="bio"),
            id="Anthropic's refusal without a text",
        ),
        pytest.param("groq", None, "error", StopFields("error", "error"), id="Groq's failed tool call"),
        pytest.param(
            "function",
            None,
            "length",
            StopFields("max_tokens", "length", "prompt"),
            id="Pydantic AI's word alone",
        ),
        pytest.param("function", None, None, StopFields("missing", None), id="no reason"),
    ],
)
def test_reads_the_provider_reason(
    provider: str,
    details: dict[str, Any] | None,
    finish_reason: str | None,
    expected: StopFields,
) -> None:
    assert StopFields.of(pydantic_ai(response(provider, details, finish_reason))) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(
            response("anthropic", {"finish_reason": "pause_turn"}, "stop", state="suspended"),
            StopFields("paused", "pause_turn", "resend_unchanged"),
            id="suspended by Anthropic",
        ),
        pytest.param(
            response(
                "openai",
                {"background": True, "finish_reason": "in_progress"},
                None,
                state="suspended",
            ),
            StopFields("paused", "in_progress", "retrieve_same_id"),
            id="suspended in the background",
        ),
        pytest.param(
            response("openai", {"finish_reason": "in_progress"}, None, state="incomplete"),
            StopFields("missing", "in_progress"),
            id="a stream that broke off",
        ),
        pytest.param(
            response("openai", {"finish_reason": "stop"}, "stop", state="incomplete"),
            StopFields("missing", "stop"),
            id="a stream that goes on",
        ),
        pytest.param(
            response("openai", None, None, state="interrupted"),
            StopFields("cancelled", None, detail="interrupted"),
            id="interrupted",
        ),
        pytest.param(
            response("openai", {"finish_reason": "stop"}, "stop", state="interrupted"),
            StopFields("end_turn", "stop", detail="interrupted"),
            id="interrupted after the end",
        ),
    ],
)
def test_the_state_counts_before_the_reason(message: dict[str, Any], expected: StopFields) -> None:
    assert StopFields.of(pydantic_ai(message)) == expected


@pytest.mark.parametrize(
    ("part_kind", "reason", "expected"),
    [
        ("tool-call", "stop", StopFields("tool_call", "stop", promoted_from="end_turn")),
        ("builtin-tool-call", "stop", StopFields("end_turn", "stop")),
        ("tool-call", "length", StopFields("max_tokens", "length", "prompt")),
    ],
)
def test_tool_calls_promote_a_clean_end_alone(part_kind: str, reason: str, expected: StopFields) -> None:
    message = response("openai", {"finish_reason": reason}, reason, part_kind=part_kind)
    assert StopFields.of(pydantic_ai(message)) == expected


def test_suspects_a_tool_call_with_truncated_arguments() -> None:
    part = {"part_kind": "tool-call", "tool_name": "pay", "args": '{"to": "x'}
    stop = pydantic_ai(
        {
            "kind": "response",
            "provider_name": "openai",
            "provider_details": {"finish_reason": "tool_calls"},
            "finish_reason": "tool_call",
            "parts": [part],
        }
    )
    assert (stop.reason, stop.suspected) == (StopReason.TOOL_CALL, True)


def test_suspects_a_response_of_exactly_the_output_limit() -> None:
    message = response("openai", {"finish_reason": "stop"}, "stop")
    expected = StopFields("end_turn", "stop", suspected=True)
    assert StopFields.of(pydantic_ai(message, maximum=32)) == expected


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
    assert StopFields.of(pydantic_ai(WRONG_TYPES[name])) == StopFields("unknown", raw, mapped=False)


@pytest.mark.parametrize("value", [*NOT_RESPONSES.values(), {}], ids=[*NOT_RESPONSES, "nothing"])
def test_rejects_what_is_no_response(value: Any) -> None:
    with pytest.raises(UsageError, match=r"pydantic_ai\(\) reads .* not ") as error:
        pydantic_ai(value)
    assert CONTENT not in str(error.value)


@pytest.mark.parametrize("name", PLAIN_VALUES)
def test_rejects_values_without_fields(name: str) -> None:
    with pytest.raises(UsageError, match=r"pydantic_ai\(\) reads "):
        pydantic_ai(PLAIN_VALUES[name])
