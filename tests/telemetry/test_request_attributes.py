"""What a request asks for stands on its span, in every format: sent as JSON, and by the providers' own SDKs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from endturn.events import LONGEST_NAME, MOST_SEQUENCES
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.scripted import ScriptedProvider, say

MESSAGES = [{"role": "user", "content": "hi"}]
CONTENTS = [{"role": "user", "parts": [{"text": "hi"}]}]
BEDROCK = "https://bedrock-runtime.eu-west-1.amazonaws.com/model"
GEMINI = "https://generativelanguage.googleapis.com/v1beta"
KEYS = {
    "top_k": "gen_ai.request.top_k",
    "stop": "gen_ai.request.stop_sequences",
    "level": "gen_ai.request.reasoning.level",
    "previous": "gen_ai.request.previous_response.id",
    "type": "gen_ai.output.type",
}


@pytest.fixture
def asked() -> Iterator[Callable[[], dict[str, Any]]]:
    """Gives what the one span says of these members of its request, once the call is over."""
    spans = InMemorySpanExporter()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    instrument(tracer_provider=tracers, content="SPAN_ONLY")  # stop sequences are somebody's text

    def found() -> dict[str, Any]:
        (span,) = spans.get_finished_spans()
        return {name: span.attributes[key] for name, key in KEYS.items() if span.attributes and key in span.attributes}

    try:
        yield found
    finally:
        uninstrument()


BODIES = [
    (
        "https://api.openai.com/v1/chat/completions",
        {"model": "m", "messages": MESSAGES, "stop": "END", "reasoning_effort": "low",
         "response_format": {"type": "json_object"}},
        {"stop": ("END",), "level": "low", "type": "json"},
    ),
    (
        "https://api.openai.com/v1/chat/completions",
        {"model": "m", "messages": MESSAGES, "modalities": ["text", "audio"], "audio": {"voice": "v", "format": "wav"}},
        {"type": "speech"},
    ),
    (
        "https://openrouter.ai/api/v1/chat/completions",
        {"model": "m", "messages": MESSAGES, "top_k": 40, "stop": ["A", "B"], "reasoning": {"effort": "high"},
         "response_format": {"type": "text"}},
        {"top_k": 40, "stop": ("A", "B"), "level": "high", "type": "text"},
    ),
    (
        "https://api.openai.com/v1/responses",
        {"model": "m", "input": "hi", "previous_response_id": "resp_0", "reasoning": {"effort": "minimal"},
         "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}},
        {"previous": "resp_0", "level": "minimal", "type": "json"},
    ),
    (
        "https://api.openai.com/v1/completions",
        {"model": "m", "prompt": "hi", "stop": ["\n"]},
        {"stop": ("\n",)},
    ),
    (
        "https://api.anthropic.com/v1/messages",
        {"model": "m", "max_tokens": 9, "messages": MESSAGES, "top_k": 5, "stop_sequences": ["END"],
         "output_config": {"effort": "max", "format": {"type": "json_schema", "schema": {}}}},
        {"top_k": 5, "stop": ("END",), "level": "max", "type": "json"},
    ),
    (
        f"{GEMINI}/models/m:generateContent",
        {"contents": CONTENTS, "generationConfig": {"topK": 40, "stopSequences": ["END"],
         "thinkingConfig": {"thinkingLevel": "LOW"}, "responseMimeType": "application/json"}},
        {"top_k": 40, "stop": ("END",), "level": "LOW", "type": "json"},
    ),
    (
        f"{GEMINI}/models/m:generateContent",
        {"contents": CONTENTS, "generationConfig": {"responseModalities": ["TEXT", "IMAGE"]}},
        {"type": "image"},
    ),
    (
        f"{GEMINI}/interactions",
        {"model": "m", "input": "hi", "previous_interaction_id": "v1_0", "response_format": {"type": "audio"},
         "generation_config": {"stop_sequences": ["END"], "thinking_level": "high"}},
        {"previous": "v1_0", "stop": ("END",), "level": "high", "type": "speech"},
    ),
    (
        f"{BEDROCK}/m/converse",
        {"messages": [{"role": "user", "content": [{"text": "hi"}]}], "inferenceConfig": {"stopSequences": ["END"]},
         "additionalModelRequestFields": {"top_k": 7, "output_config": {"effort": "low"}}},
        {"top_k": 7, "stop": ("END",), "level": "low"},
    ),
    (
        f"{BEDROCK}/amazon.nova-2/converse",
        {"messages": [{"role": "user", "content": [{"text": "hi"}]}],
         "additionalModelRequestFields": {"inferenceConfig": {"topK": 9},
                                          "reasoningConfig": {"maxReasoningEffort": "medium"}}},
        {"top_k": 9, "level": "medium"},
    ),
    (
        f"{BEDROCK}/anthropic.claude-9/invoke",
        {"messages": MESSAGES, "max_tokens": 9, "anthropic_version": "bedrock-2023-05-31", "top_k": 5,
         "stop_sequences": ["END"]},
        {"top_k": 5, "stop": ("END",)},
    ),
    (
        f"{BEDROCK}/amazon.titan-text/invoke",
        {"inputText": "hi", "textGenerationConfig": {"stopSequences": ["User:"]}},
        {"stop": ("User:",)},
    ),
    (
        "https://api.cohere.com/v2/chat",
        {"model": "m", "messages": MESSAGES, "k": 3, "stop_sequences": ["END"],
         "response_format": {"type": "json_object"}},
        {"top_k": 3, "stop": ("END",), "type": "json"},
    ),
    (
        "http://localhost:11434/api/chat",
        {"model": "m", "messages": MESSAGES, "stream": False, "think": "high", "format": {"type": "object"},
         "options": {"top_k": 2, "stop": ["END"]}},
        {"top_k": 2, "stop": ("END",), "level": "high", "type": "json"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("url", "body", "found"), BODIES)
def test_a_request_in_json(
    asked: Callable[[], dict[str, Any]], url: str, body: dict[str, Any], found: dict[str, Any]
) -> None:
    """The member of each format; what a request does not say is on no span."""
    with httpx.Client(transport=ScriptedProvider([say("So.")]).transport()) as client:
        answer = client.post(url, json=body)
    assert answer.is_success, answer.text
    assert asked() == found


def test_what_is_told_is_bounded(asked: Callable[[], dict[str, Any]]) -> None:
    """A request may say anything: wrong types are left out, long texts and lists are cut."""
    body = {
        "model": "m", "messages": MESSAGES, "top_k": "many", "stop": ["x" * 1_000, 3] * 20,
        "reasoning_effort": "y" * 999, "response_format": {"type": ["json"]},
    }  # fmt: skip
    with httpx.Client(transport=ScriptedProvider([say("So.")]).transport()) as client:
        client.post("https://api.openai.com/v1/chat/completions", content=json.dumps(body))
    found = asked()
    assert found == {"stop": ("x" * LONGEST_NAME,) * MOST_SEQUENCES, "level": "y" * LONGEST_NAME}


def test_stop_sequences_are_recorded_as_what_was_said_is() -> None:
    """Only where the host asked for it, and redacted."""
    told = {}
    for content in ("NO_CONTENT", "SPAN_ONLY"):
        spans = InMemorySpanExporter()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(spans))
        instrument(tracer_provider=tracers, content=content, redact=lambda text: text.replace("END", "***"))
        try:
            with httpx.Client(transport=ScriptedProvider([say("So.")]).transport()) as client:
                client.post(BODIES[0][0], json=BODIES[0][1])
        finally:
            uninstrument()
        (span,) = spans.get_finished_spans()
        told[content] = (span.attributes or {}).get(KEYS["stop"])
    assert told == {"NO_CONTENT": None, "SPAN_ONLY": ("***",)}
