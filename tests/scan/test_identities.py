"""Different calls are never treated as copies, and copies never as different calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endturn.scan import scan


def chat(identity: str, reason: str, created: int) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": reason}
    return {"id": identity, "object": "chat.completion", "created": created, "model": "m", "choices": [choice]}


def batch(custom_id: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"id": "", "custom_id": custom_id, "response": {"status_code": 200, "body": body}, "error": None}


def gemini(key: str, reason: str, **members: Any) -> dict[str, Any]:
    return {"key": key, "response": {"candidates": [{"finishReason": reason}]} | members}


def payload(trace: str, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": body["id"], "trace_id": trace, "call_type": "acompletion", "status": "success", "model": "m",
        "startTime": body["created"], "endTime": body["created"] + 1, "messages": [], "response": body,
    }  # fmt: skip


def entry(status: int) -> dict[str, Any]:
    return {
        "startedDateTime": "2026-05-01T10:00:00.000Z",
        "request": {"method": "POST", "url": "https://api.openai.com/v1/chat/completions"},
        "response": {"status": status, "content": {}},
    }


DISTINCT: dict[str, list[dict[str, Any]]] = {
    "requests of a batch whose server repeats its ids": [
        batch("a", chat("chatcmpl-123", "length", 1)), batch("b", chat("chatcmpl-123", "stop", 1)),
    ],
    "early results of Gemini, of two batches with the same keys": [gemini("1", "MAX_TOKENS"), gemini("1", "STOP")],
    "calls of a server that numbers its responses by chance": [
        payload("t1", chat("chatcmpl-123", "length", 1795866141)),
        payload("t2", chat("chatcmpl-123", "stop", 1795866199)),
    ],
    "requests of one moment": [
        {"log": {"version": "1.2", "creator": {}, "entries": [entry(429), entry(429)]}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", DISTINCT)
def test_calls_that_look_alike_count_each_and_their_copies_once(name: str, tmp_path: Path) -> None:
    lines = "".join(json.dumps(line) + "\n" for line in DISTINCT[name])
    (tmp_path / "one").write_text(lines, encoding="utf-8")
    (tmp_path / "copy").write_text(lines, encoding="utf-8")
    found = scan([tmp_path])
    assert (sum(len(ended.past.calls) for ended in found.turns), found.copies) == (2, 2)


def anthropic(custom_id: str, kind: str, identity: str = "") -> dict[str, Any]:
    message = {"id": identity, "type": "message", "model": "m", "content": [], "stop_reason": "end_turn"}
    return {"custom_id": custom_id, "result": {"type": kind} | ({"message": message} if identity else {})}


def openai_failure(custom_id: str, request_id: str) -> dict[str, Any]:
    response = {"status_code": 429, "request_id": request_id, "body": {"error": {"code": "rate_limit"}}}
    return {"custom_id": custom_id, "response": response, "error": None}


def gemini_failure(key: str) -> dict[str, Any]:
    return {"key": key, "error": {"code": 8, "message": "quota"}}


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


BATCHES: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "Anthropic": (
        [anthropic("1", "succeeded", "msg_b"), anthropic("2", "expired"), anthropic("3", "canceled")],
        [anthropic("2", "expired"), anthropic("3", "canceled"), anthropic("1", "succeeded", "msg_a")],
    ),
    "Anthropic, all failed": (
        [anthropic("1", "expired"), anthropic("2", "expired"), anthropic("3", "errored")],
        [anthropic("1", "expired"), anthropic("2", "errored"), anthropic("3", "expired")],
    ),
    "OpenAI": (
        [batch("1", chat("chatcmpl-a", "stop", 1)), openai_failure("2", ""), openai_failure("3", "")],
        [batch("1", chat("chatcmpl-b", "stop", 2)), openai_failure("2", ""), openai_failure("3", "")],
    ),
    "OpenAI, ids of requests": (
        [openai_failure(name, f"a{name}") for name in "123"], [openai_failure(name, f"b{name}") for name in "123"],
    ),
    "Gemini": (
        [gemini("1", "STOP", responseId="a"), gemini_failure("2"), gemini_failure("3")],
        [gemini("1", "STOP", responseId="b"), gemini_failure("2"), gemini_failure("3")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHES)
def test_failures_of_two_batches_with_the_same_names_count_each(name: str, tmp_path: Path) -> None:
    first, second = BATCHES[name]
    files = {"one": first, "two": second, "copy": first, "both, one after the other": [*first, *second]}
    for file_name, records in files.items():
        write(tmp_path / file_name, records)
    for files_together in (["one", "two"], ["one", "two", "copy"], ["both, one after the other"], [*files]):
        found = scan([tmp_path / file_name for file_name in files_together])
        assert sum(len(ended.past.calls) for ended in found.turns) == 6


def test_a_result_of_gemini_without_candidates_is_counted(tmp_path: Path) -> None:
    lines = [gemini("a", "STOP", responseId="r1"), {"key": "b", "response": {"usageMetadata": {}}}]
    (tmp_path / "results").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert scan([tmp_path]).as_json()["total"]["responses"] == {"end_turn": 1, "not recorded": 1}
