"""What a request asks for stands on its span, in every format: sent as JSON, and by the providers' own SDKs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from endturn.events import LONGEST_NAME, MOST_SEQUENCES
from endturn.scripted import ScriptedProvider, say
from tests.telemetry.stage import Recording, Stage

KEYS = {
    "top_k": "gen_ai.request.top_k",
    "stop": "gen_ai.request.stop_sequences",
    "level": "gen_ai.request.reasoning.level",
    "previous": "gen_ai.request.previous_response.id",
    "type": "gen_ai.output.type",
}


def told(stage: Stage, url: str, body: dict[str, Any]) -> dict[str, Any]:
    """What the latest span says of these members of its request."""
    with httpx.Client(transport=ScriptedProvider([say("So.")]).transport()) as client:
        answer = client.post(url, content=json.dumps(body))
    assert answer.is_success, answer.text
    span = stage.finished()[-1]
    found = {name: span["attributes"].get(key) for name, key in KEYS.items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items() if value}


BODIES = [each.values() for each in json.loads(Path(__file__).with_name("requests.json").read_text())]


@pytest.mark.parametrize(("url", "body", "found"), BODIES)
def test_a_request_in_json(recording: Recording, url: str, body: dict[str, Any], found: dict[str, Any]) -> None:
    """The member of each format; what a request does not say is on no span."""
    assert told(recording(content="SPAN_ONLY"), url, body) == found  # stop sequences are somebody's text


def test_what_is_told_is_bounded(recording: Recording) -> None:
    """A request may say anything: wrong types are left out, long texts and lists are cut."""
    body = {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "top_k": "many", "stop": ["x" * 1_000, 3] * 20,
        "reasoning_effort": "y" * 999, "response_format": {"type": ["json"]},
    }  # fmt: skip
    found = told(recording(content="SPAN_ONLY"), "https://api.openai.com/v1/chat/completions", body)
    assert found == {"stop": ["x" * LONGEST_NAME] * MOST_SEQUENCES, "level": "y" * LONGEST_NAME}


def test_stop_sequences_are_recorded_as_what_was_said_is(recording: Recording) -> None:
    """Only where the host asked for it, and redacted."""
    url, body, _ = BODIES[0]
    assert "stop" not in told(recording(), url, body)
    hidden = recording(
        content="SPAN_ONLY", redact=lambda text: text.replace("END", "***")
    )  # calls go there from now on
    assert told(hidden, url, body)["stop"] == ["***"]
