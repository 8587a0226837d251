"""What a request asks for stands on its span, in every format: sent as JSON, and by the providers' own SDKs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from endturn.events import LONGEST_NAME, MOST_SEQUENCES
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.scripted import ScriptedProvider, say
from tests.telemetry.stage import Stage

KEYS = {
    "top_k": "gen_ai.request.top_k",
    "stop": "gen_ai.request.stop_sequences",
    "level": "gen_ai.request.reasoning.level",
    "previous": "gen_ai.request.previous_response.id",
    "type": "gen_ai.output.type",
}


def told(url: str, body: dict[str, Any], **options: Any) -> dict[str, Any]:
    """What the one span says of these members of its request."""
    stage = Stage()
    instrument(tracer_provider=stage.tracers, **options)
    try:
        with httpx.Client(transport=ScriptedProvider([say("So.")]).transport()) as client:
            answer = client.post(url, content=json.dumps(body))
        assert answer.is_success, answer.text
    finally:
        uninstrument()
    (span,) = stage.finished()
    found = {name: span["attributes"].get(key) for name, key in KEYS.items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items() if value}


BODIES = [each.values() for each in json.loads(Path(__file__).with_name("requests.json").read_text())]


@pytest.mark.parametrize(("url", "body", "found"), BODIES)
def test_a_request_in_json(url: str, body: dict[str, Any], found: dict[str, Any]) -> None:
    """The member of each format; what a request does not say is on no span."""
    assert told(url, body, content="SPAN_ONLY") == found  # stop sequences are somebody's text


def test_what_is_told_is_bounded() -> None:
    """A request may say anything: wrong types are left out, long texts and lists are cut."""
    body = {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "top_k": "many", "stop": ["x" * 1_000, 3] * 20,
        "reasoning_effort": "y" * 999, "response_format": {"type": ["json"]},
    }  # fmt: skip
    found = told("https://api.openai.com/v1/chat/completions", body, content="SPAN_ONLY")
    assert found == {"stop": ["x" * LONGEST_NAME] * MOST_SEQUENCES, "level": "y" * LONGEST_NAME}


def test_stop_sequences_are_recorded_as_what_was_said_is() -> None:
    """Only where the host asked for it, and redacted."""
    url, body, _ = BODIES[0]
    assert "stop" not in told(url, body)
    assert told(url, body, content="SPAN_ONLY", redact=lambda text: text.replace("END", "***"))["stop"] == ["***"]
