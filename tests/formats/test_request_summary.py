"""Members of requests that no recorded request has: `data/request_members.tsv`."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.formats import format_of


@pytest.mark.parametrize(
    ("format_name", "body", "field", "value"),
    [
        ("openai_chat", {"function_call": {"name": "search"}}, "forces_tool", True),
        ("openai_responses", {"conversation": "conv_1"}, "conversation_id", "conv_1"),
        ("openai_responses", {"conversation": {"id": "conv_1"}}, "conversation_id", "conv_1"),
    ],
)
def test_a_member_is_read(format_name: str, body: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(format_of(format_name).request_summary(body), field) == value


@pytest.mark.parametrize(
    ("format_name", "body", "field", "value"),
    [
        ("openai_responses", {"text_format": dict}, "output_type", "json"),
        ("openai_responses", {"top_p": 0.5}, "top_p", 0.5),
        ("anthropic", {"output_format": {"type": "json_schema"}}, "output_type", "json"),
        (
            "bedrock_converse",
            {"additionalModelRequestFields": {"reasoning_effort": "low"}},
            "reasoning_level",
            "low",
        ),
        *(
            ("gemini", {"generationConfig": {member: setting}}, field, value)
            for member, setting, field, value in (
                ("candidateCount", 2, "choice_count", 2),
                ("candidate_count", 2, "choice_count", 2),
                ("response_modalities", ["AUDIO"], "output_type", "speech"),
                ("responseJsonSchema", {"type": "object"}, "output_type", "json"),
                ("response_json_schema", {"type": "object"}, "output_type", "json"),
                ("responseSchema", {"type": "OBJECT"}, "output_type", "json"),
                ("response_schema", {"type": "OBJECT"}, "output_type", "json"),
                ("response_mime_type", "application/json", "output_type", "json"),
                ("top_p", 0.5, "top_p", 0.5),
                ("top_k", 40, "top_k", 40),
                ("stop_sequences", ["END"], "stop_sequences", ("END",)),
                ("thinking_config", {"thinkingLevel": "low"}, "reasoning_level", "low"),
                ("thinking_config", {"thinking_level": "low"}, "reasoning_level", "low"),
            )
        ),
        ("gemini_interactions", {"response_modalities": ["image"]}, "output_type", "image"),
        ("gemini_interactions", {"response_format": {"schema": {"type": "object"}}}, "output_type", "json"),
        ("gemini_interactions", {"response_mime_type": "application/json"}, "output_type", "json"),
        ("completions", {"num_generations": 2}, "choice_count", 2),
        ("completions", {"numResults": 2}, "choice_count", 2),
        ("completions", {"textGenerationConfig": {"topP": 0.5}}, "top_p", 0.5),
        ("completions", {"top_k": 40}, "top_k", 40),
        ("completions", {"parameters": {"top_k": 40}}, "top_k", 40),
        ("completions", {"sampling_params": {"top_k": 40}}, "top_k", 40),
        ("completions", {"textGenerationConfig": {"top_k": 40}}, "top_k", 40),
        ("completions", {"k": 40}, "top_k", 40),
        ("completions", {"stop_sequences": ["END"]}, "stop_sequences", ("END",)),
        ("completions", {"stopSequences": ["END"]}, "stop_sequences", ("END",)),
        ("completions", {"parameters": {"stop": ["END"]}}, "stop_sequences", ("END",)),
        ("completions", {"parameters": {"stop_sequences": ["END"]}}, "stop_sequences", ("END",)),
        ("completions", {"sampling_params": {"stop": "END"}}, "stop_sequences", ("END",)),
    ],
)
def test_a_setting_is_recorded(format_name: str, body: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(format_of(format_name).request_summary(body).facts, field) == value
