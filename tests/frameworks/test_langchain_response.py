"""LangChain responses of langchain-core 1.7 and its integrations, as mappings."""

from __future__ import annotations

import re
from typing import Any

import pytest

from endturn.errors import UsageError
from endturn.frameworks import langchain
from tests.support.stops import CONTENT, NOT_RESPONSES, PLAIN_VALUES, WRONG_TYPES, StopFields

HUMAN_MESSAGE = {"type": "human", "content": CONTENT, "response_metadata": {}}
TOOL_CALL = {"name": "search", "args": {}, "id": "call_1", "type": "tool_call"}
INVALID_TOOL_CALL = {
    "name": "search",
    "args": '{"q',
    "id": "call_2",
    "error": None,
    "type": "invalid_tool_call",
}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param(
            {"finish_reason": "length", "model_provider": "openai"},
            StopFields("max_tokens", "length", "prompt"),
            id="OpenAI",
        ),
        pytest.param(
            {
                "object": "response",
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
            },
            StopFields("max_tokens", "incomplete:max_output_tokens", "prompt"),
            id="Responses, truncated",
        ),
        pytest.param(
            {
                "object": "response",
                "status": "completed",
                "incomplete_details": None,
                "error": None,
            },
            StopFields("end_turn", "completed"),
            id="Responses, completed",
        ),
        pytest.param(
            {"object": "response", "status": "failed", "error": {"code": "bio_policy"}},
            StopFields("safety_blocked", "failed:bio_policy"),
            id="Responses, failed by policy",
        ),
        pytest.param(
            {"object": "response", "status": "failed", "error": {"code": "never_heard"}},
            StopFields("error", "failed:never_heard"),
            id="Responses, failed with an unknown code",
        ),
        pytest.param(
            {"object": "response", "status": "in_progress", "background": True},
            StopFields("paused", "in_progress(background)", "retrieve_same_id"),
            id="Responses, in the background",
        ),
        pytest.param(
            {
                "object": "response",
                "status": "incomplete",
                "incomplete_details": {"reason": "steered"},
            },
            StopFields("paused", "incomplete:steered", "server"),
            id="Responses, steered",
        ),
        pytest.param(
            {"stop_reason": "pause_turn", "stop_sequence": None, "model_provider": "anthropic"},
            StopFields("paused", "pause_turn", "resend_unchanged"),
            id="Anthropic",
        ),
        pytest.param(
            {"stop_reason": "model_context_window_exceeded"},
            StopFields("context_window_exceeded", "model_context_window_exceeded"),
            id="Anthropic without a provider name",
        ),
        pytest.param(
            {"stop_reason": "stop_sequence", "stop_sequence": "END"},
            StopFields("end_turn", "stop_sequence", detail="END"),
            id="Anthropic, with its stop sequence",
        ),
        pytest.param(
            {
                "finish_reason": "MAX_TOKENS",
                "model_provider": "google_genai",
                "safety_ratings": [],
            },
            StopFields("max_tokens", "MAX_TOKENS", "prompt"),
            id="Gemini",
        ),
        pytest.param(
            {"finish_reason": "CONTINUATION", "model_provider": "google_genai"},
            StopFields("paused", "CONTINUATION", "native_token"),
            id="Gemini, to be continued by its token",
        ),
        pytest.param(
            {"finish_reason": "OTHER", "model_provider": "google_vertexai"},
            StopFields("error", "OTHER"),
            id="Vertex AI",
        ),
        pytest.param(
            {"finish_reason": "MALFORMED_FUNCTION_CALL"},
            StopFields("error", "MALFORMED_FUNCTION_CALL", "repair"),
            id="Gemini without a provider name",
        ),
        pytest.param(
            {"prompt_feedback": {"block_reason": "JAILBREAK"}},
            StopFields("safety_blocked", "JAILBREAK"),
            id="Gemini, blocked prompt",
        ),
        pytest.param(
            {"stopReason": "guardrail_intervened", "model_provider": "bedrock_converse"},
            StopFields("safety_blocked", "guardrail_intervened"),
            id="Bedrock Converse",
        ),
        pytest.param(
            {"messageStop": {"stopReason": "max_tokens"}, "model_provider": "bedrock_converse"},
            StopFields("max_tokens", "max_tokens", "prompt"),
            id="Bedrock Converse, streamed",
        ),
        pytest.param(
            {"completionReason": "CONTENT_FILTERED"},
            StopFields("safety_blocked", "CONTENT_FILTERED"),
            id="Titan on Bedrock",
        ),
        pytest.param(
            {"finishReason": {"reason": "length"}},
            StopFields("max_tokens", "length", "prompt"),
            id="AI21 on Bedrock",
        ),
        pytest.param(
            {"stop_reason": "length"},
            StopFields("max_tokens", "length", "prompt"),
            id="Llama on Bedrock",
        ),
        pytest.param(
            {"done": True, "done_reason": "load", "model_provider": "ollama"},
            StopFields("end_turn", "load", detail="no_generation"),
            id="Ollama",
        ),
        pytest.param({"finish_reason": "COMPLETE"}, StopFields("end_turn", "COMPLETE"), id="Cohere"),
        pytest.param(
            {"finish_reason": "model_length", "model_provider": "mistralai"},
            StopFields("context_window_exceeded", "model_length"),
            id="Mistral",
        ),
        pytest.param(
            {"finish_reason": "STOPSTOP"},
            StopFields("end_turn", "STOPSTOP"),
            id="a repeated reason of added chunks",
        ),
        pytest.param(
            {"finish_reason": "lengthlength"},
            StopFields("max_tokens", "lengthlength", "prompt"),
            id="a repeated reason of added chunks, truncated",
        ),
        pytest.param(
            {"finish_reason": "stoplength"},
            StopFields("unknown", "stoplength", mapped=False),
            id="two reasons of added chunks",
        ),
        pytest.param(
            {
                "finish_reason": "new_word",
                "normalized_finish_reason": "length",
                "model_provider": "openai",
            },
            StopFields("max_tokens", "new_word", "prompt"),
            id="LangChain's own word for an unknown value",
        ),
        pytest.param(
            {"finish_reason": "new_word", "normalized_finish_reason": "other"},
            StopFields("unknown", "new_word", mapped=False),
            id="LangChain's own word says nothing",
        ),
        pytest.param(
            {"finish_reason": None, "model_provider": "openai"},
            StopFields("missing", None),
            id="the reason is None",
        ),
        pytest.param({"model_provider": "openai"}, StopFields("missing", None), id="no reason"),
        pytest.param({}, StopFields("missing", None), id="empty metadata"),
    ],
)
def test_reads_response_metadata(metadata: dict[str, Any], expected: StopFields) -> None:
    assert StopFields.of(langchain(metadata)) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(
            {
                "type": "ai",
                "response_metadata": {"finish_reason": "stop"},
                "tool_calls": [TOOL_CALL],
                "invalid_tool_calls": [],
            },
            StopFields("tool_call", "stop", promoted_from="end_turn"),
            id="tool calls and a clean end",
        ),
        pytest.param(
            {
                "type": "ai",
                "response_metadata": {"finish_reason": "stop"},
                "tool_calls": [TOOL_CALL],
                "invalid_tool_calls": [INVALID_TOOL_CALL],
            },
            StopFields("end_turn", "stop", suspected=True),
            id="a tool call that cannot be parsed",
        ),
        pytest.param(
            {
                "type": "ai",
                "response_metadata": {"finish_reason": "length"},
                "tool_calls": [TOOL_CALL],
                "invalid_tool_calls": [],
            },
            StopFields("max_tokens", "length", "prompt"),
            id="truncated arguments, which LangChain completed to {}",
        ),
        pytest.param(
            {
                "type": "ai",
                "response_metadata": {"finish_reason": "tool_calls"},
                "tool_calls": [TOOL_CALL],
                "invalid_tool_calls": [],
            },
            StopFields("tool_call", "tool_calls"),
            id="tool calls and their reason",
        ),
        pytest.param(
            {
                "type": "ai",
                "response_metadata": {"finish_reason": None},
                "tool_calls": [TOOL_CALL],
                "invalid_tool_calls": [],
            },
            StopFields("tool_call", None, promoted_from="missing"),
            id="tool calls without a reason",
        ),
        pytest.param(
            {"type": "AIMessageChunk", "response_metadata": {}, "tool_calls": [TOOL_CALL]},
            StopFields("missing", None),
            id="a chunk that is not the last one",
        ),
        pytest.param(
            {
                "response_metadata": {"finish_reason": "stop", "model_provider": "openai"},
                "additional_kwargs": {"refusal": "No."},
            },
            StopFields("refused", "stop"),
            id="a refusal beside the content",
        ),
        pytest.param(
            {
                "response_metadata": {"object": "response", "status": "completed"},
                "content": [{"type": "refusal"}],
            },
            StopFields("refused", "completed"),
            id="a refusal as a content part",
        ),
        pytest.param(
            {
                "generations": [[{"message": {"response_metadata": {}}, "generation_info": {}}]],
                "llm_output": {"prompt_feedback": {"block_reason": "SAFETY"}},
            },
            StopFields("safety_blocked", "SAFETY"),
            id="an LLMResult of a blocked prompt",
        ),
        pytest.param(
            {
                "status": "open",
                "messages": [
                    HUMAN_MESSAGE,
                    {
                        "type": "ai",
                        "content": "Yes.",
                        "response_metadata": {"finish_reason": "stop"},
                    },
                    HUMAN_MESSAGE,
                    {
                        "type": "ai",
                        "content": "So",
                        "response_metadata": {"finish_reason": "length"},
                    },
                    HUMAN_MESSAGE,
                ],
            },
            StopFields("max_tokens", "length", "prompt"),
            id="the last AI message of a graph's state",
        ),
    ],
)
def test_reads_messages_and_results(message: dict[str, Any], expected: StopFields) -> None:
    assert StopFields.of(langchain(message)) == expected


@pytest.mark.parametrize(("options", "is_suspected"), [({"maximum": 64}, True), ({"maximum": 65}, False), ({}, False)])
def test_suspects_a_response_of_exactly_the_output_limit(options: dict[str, int], is_suspected: bool) -> None:
    message = {
        "response_metadata": {"finish_reason": "tool_calls"},
        "usage_metadata": {"output_tokens": 64},
    }
    expected = StopFields("tool_call", "tool_calls", suspected=is_suspected)
    assert StopFields.of(langchain(message, **options)) == expected


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
    assert StopFields.of(langchain(WRONG_TYPES[name])) == StopFields("unknown", raw, mapped=False)


@pytest.mark.parametrize("name", NOT_RESPONSES)
def test_rejects_what_is_no_response(name: str) -> None:
    with pytest.raises(UsageError, match=r"langchain\(\) reads .* not ") as error:
        langchain(NOT_RESPONSES[name])
    assert CONTENT not in str(error.value)


@pytest.mark.parametrize("name", PLAIN_VALUES)
def test_rejects_values_without_fields(name: str) -> None:
    with pytest.raises(UsageError, match=r"langchain\(\) reads "):
        langchain(PLAIN_VALUES[name])


@pytest.mark.parametrize(
    "messages",
    [[], [HUMAN_MESSAGE]],
    ids=["no message", "a human message"],
)
def test_rejects_a_graph_state_without_an_ai_message(messages: list[dict[str, Any]]) -> None:
    expected = re.escape(f"no AI message among its {len(messages)}") + "$"
    with pytest.raises(UsageError, match=expected) as error:
        langchain({"messages": messages})
    assert CONTENT not in str(error.value)
