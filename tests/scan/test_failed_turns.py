"""A user's message without an answer is a turn only if the file has an error or interruption for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endturn.scan import scan

ABOUT = {"uuid": "u1", "sessionId": "s", "parentUuid": None, "version": "0.15.10"}
QWEN_PROMPT = ABOUT | {"type": "user", "message": {"role": "user", "parts": [{"text": "go"}]}}
QWEN_ERROR = ABOUT | {
    "uuid": "u2",
    "type": "system",
    "subtype": "turn_result",
    "systemPayload": {"error": {"message": "quota"}},
}


def copilot(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "id": kind, "timestamp": "2026-05-01T10:00:00Z", "parentId": None, "data": data}


SESSIONS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "Qwen Code, failed": ([QWEN_PROMPT, QWEN_ERROR], ["provider_error"]),
    "Qwen Code, nothing": ([QWEN_PROMPT], []),
    "Copilot, failed": (
        [copilot("user.message", content="go"), copilot("session.error", errorType="quota")], ["provider_error"],
    ),
    "Copilot, interrupted": ([copilot("user.message", content="go"), copilot("abort", reason="user")], ["cancelled"]),
    "Copilot, nothing": ([copilot("user.message", content="go")], []),
}  # fmt: skip


@pytest.mark.parametrize("name", SESSIONS)
def test_a_message_without_an_answer_is_a_turn_if_the_file_says_why(name: str, tmp_path: Path) -> None:
    lines, outcomes = SESSIONS[name]
    (tmp_path / "session").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    turns = scan([tmp_path]).turns
    assert [str(ended.turn.outcome) for ended in turns] == outcomes
    assert all(not ended.past.calls for ended in turns)


def pi(identity: str, parent: str | None, **message: Any) -> dict[str, Any]:
    return {"type": "message", "id": identity, "parentId": parent, "message": message}


def row(identity: str, **data: Any) -> dict[str, Any]:
    return {"table": "message", "id": identity, "session_id": "s", "data": data}


TOOL = [{"type": "toolCall", "id": "c1", "name": "read", "arguments": {}}]
KILLED = {
    "pi": [
        {"type": "session", "version": 3, "id": "p1", "timestamp": "2026-05-01T10:00:00Z", "cwd": "/p"},
        pi("a1", None, role="user", content="go"),
        pi("a2", "a1", role="assistant", model="m", content=TOOL, stopReason="toolUse"),
        pi("a3", "a2", role="toolResult", toolCallId="c1", isError=False),
    ],
    "opencode": [
        row("m1", role="user", time={"created": 1795866141000}),
        row("m2", role="assistant", parentID="m1", finish="tool-calls", time={"created": 1795866142000}),
    ],
}


@pytest.mark.parametrize("name", KILLED)
def test_a_turn_that_ends_with_a_tools_result_is_not_over(name: str, tmp_path: Path) -> None:
    (tmp_path / "session").write_text("".join(json.dumps(line) + "\n" for line in KILLED[name]), encoding="utf-8")
    (ended,) = scan([tmp_path]).turns
    assert [call.response.stop.reason.value for call in ended.past.calls] == ["tool_call"]
    assert ended.turn.outcome == "unknown_reason"
