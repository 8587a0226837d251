"""Members of requests that no recorded request has: `data/request_members.tsv`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from endturn.formats import format_of
from endturn.formats.request_summary import read_member_paths


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


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param(
            "geminy\ttop_k\ttopK\n",
            "2: 'geminy' is not a format: use one of anthropic, bedrock_converse, bedrock_invoke, cohere, ",
            id="an unknown format",
        ),
        pytest.param(
            "gemini\ttop_kay\ttopK\n", "2: 'top_kay' must be one of model, max_tokens, ", id="an unknown field"
        ),
        pytest.param(
            "#\ngemini\ttop_k\ttopK\ngemini\ttop_k\ttopK\n",
            "4: 'gemini' already has a row 'top_k': write all its paths into one row, separated by spaces",
            id="a row twice",
        ),
        pytest.param(
            "gemini\ttop_k\tgenerationConfig.topK\n",
            "2: 'generationConfig.topK' must be relative to 'generationConfig': write 'topK'",
            id="a path from the root of Gemini's request",
        ),
        pytest.param(
            "gemini\ttop_k\ttopK generation_config.thinking.top_k\n",
            "2: 'generation_config.thinking.top_k' must be relative to 'generation_config': write 'thinking.top_k'",
            id="another spelling of it",
        ),
        pytest.param("gemini\ttop_k\n", "2: 2 cells, not 3", id="no path"),
    ],
)
def test_rejects_a_wrong_row_by_file_and_number(tmp_path: Path, rows: str, message: str) -> None:
    file = tmp_path / "request_members.tsv"
    file.write_text("format\tours\tmembers\n" + rows, "utf-8")
    with pytest.raises(ValueError, match=re.escape(f"{file}:{message}")):
        read_member_paths(tmp_path)
