"""Gemini CLI: the answer that an info message belongs to.

The program writes an answer when its stream is over, which is after the message (chatRecordingService.ts, geminiChat.ts
and useGeminiStream.ts of google-gemini/gemini-cli).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endturn.scan import scan

HEADER = {"sessionId": "s", "projectHash": "h", "startTime": "2026-05-01T10:00:00Z", "kind": "main"}
TOKENS = {"input": 5, "output": 7}
TRUNCATED = "Response truncated due to token limits."

SESSIONS: dict[str, tuple[list[str], list[str]]] = {
    "before the only answer": (["user", "cut", "answer"], ["max_tokens"]),
    "after the only answer": (["user", "answer", "cut"], ["max_tokens"]),
    "of the answer to a tool's result": (["user", "tools", "result", "cut", "answer"], ["unknown", "max_tokens"]),
    "between two answers it may be of either": (["user", "answer", "cut", "answer"], ["unknown", "unknown"]),
    "of the turn that it stands in": (["user", "answer", "user", "cut", "answer"], ["unknown", "max_tokens"]),
    "before the next message of the user": (["user", "answer", "cut", "user", "answer"], ["max_tokens", "unknown"]),
    "a cancellation while tools run": (["user", "tools", "cancelled"], ["unknown"]),
    "a cancellation after a whole answer": (["user", "answer", "cancelled"], ["unknown"]),
    "a cancellation after half an answer": (["user", "half", "cancelled"], ["cancelled"]),
}


def message(number: int, kind: str) -> dict[str, Any]:
    members: dict[str, dict[str, Any]] = {
        "user": {"type": "user", "content": "go"},
        "answer": {"type": "gemini", "content": "words", "tokens": TOKENS},
        "result": {"type": "user", "content": [{"functionResponse": {"id": "t", "name": "f", "response": {}}}]},
        "half": {"type": "gemini", "content": "wor", "tokens": None},
        "tools": {"type": "gemini", "content": "", "tokens": TOKENS, "toolCalls": [{"id": "t", "status": "success"}]},
        "cut": {"type": "info", "content": f"⚠️  {TRUNCATED}"},
        "error": {"type": "error", "content": "[API Error: 429]"},
        "cancelled": {"type": "info", "content": "Request cancelled."},
    }
    return {"id": str(number)} | members[kind]


@pytest.mark.parametrize("name", SESSIONS)
def test_an_info_message_has_the_reason_of_one_answer_or_of_none(name: str, tmp_path: Path) -> None:
    kinds, reasons = SESSIONS[name]
    lines = [HEADER, *(message(number, kind) for number, kind in enumerate(kinds))]
    (tmp_path / "session").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    calls = [call for ended in scan([tmp_path]).turns for call in ended.past.calls]
    assert [call.response.stop.reason.value for call in calls] == reasons


def test_a_message_with_only_an_error_is_a_turn(tmp_path: Path) -> None:
    """A prompt without any answer may not have reached a model."""
    kinds = ["user", "error", "user", "user", "answer"]
    lines = [HEADER, *(message(number, kind) for number, kind in enumerate(kinds))]
    (tmp_path / "session").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    outcomes = [str(ended.turn.outcome) for ended in scan([tmp_path]).turns]
    assert sorted(outcomes) == ["provider_error", "unknown_reason"]
