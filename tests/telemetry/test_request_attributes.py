"""What a request asks for stands on its span, in every format: sent as JSON, and by the providers' own SDKs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
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


BODIES = [each.values() for each in json.loads(Path(__file__).with_name("requests.json").read_text())]


@pytest.mark.parametrize(("url", "body", "found"), BODIES)
def test_a_request_in_json(
    asked: Callable[[], dict[str, Any]], url: str, body: dict[str, Any], found: dict[str, Any]
) -> None:
    """The member of each format; what a request does not say is on no span."""
    with httpx.Client(transport=ScriptedProvider([say("So.")]).transport()) as client:
        answer = client.post(url, json=body)
    assert answer.is_success, answer.text
    told = asked()
    assert {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()} == found


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
    url, body, _ = BODIES[0]
    for content in ("NO_CONTENT", "SPAN_ONLY"):
        spans = InMemorySpanExporter()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(spans))
        instrument(tracer_provider=tracers, content=content, redact=lambda text: text.replace("END", "***"))
        try:
            with httpx.Client(transport=ScriptedProvider([say("So.")]).transport()) as client:
                client.post(url, json=body)
        finally:
            uninstrument()
        (span,) = spans.get_finished_spans()
        told[content] = (span.attributes or {}).get(KEYS["stop"])
    assert told == {"NO_CONTENT": None, "SPAN_ONLY": ("***",)}
