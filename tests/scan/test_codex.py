"""Codex: how turns ended, and forks that replay their parent's history with other times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endturn.scan import scan
from tests.scan.cases import HERE, figures

META: dict[str, Any] = {
    "type": "session_meta",
    "payload": {"id": "th1", "cwd": "/p", "cli_version": "0.146.0", "model_provider": "openai"},
}


def event(kind: str, **members: Any) -> dict[str, Any]:
    return {"timestamp": "2026-05-01T10:00:00Z", "type": "event_msg", "payload": {"type": kind} | members}


def item(kind: str, **members: Any) -> dict[str, Any]:
    return {"timestamp": "2026-05-01T10:00:01Z", "type": "response_item", "payload": {"type": kind} | members}


def message(text: str) -> dict[str, Any]:
    return item("message", role="assistant", content=[{"type": "output_text", "text": text}])


def tokens(total: int, last: int) -> dict[str, Any]:
    info = {
        "last_token_usage": {"output_tokens": last, "total_tokens": last},
        "total_token_usage": {"total_tokens": total},
    }
    return event("token_count", info=info)


CALL = item("function_call", call_id="c1", name="shell", arguments="{}")
OUTPUT = item("function_call_output", call_id="c1", output="x")
INCOMPLETE = "Incomplete response returned, reason: max_output_tokens"
STARTED, PROMPT = event("task_started", turn_id="a"), event("user_message", message="go")
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "a failed turn": (
        [META, STARTED, PROMPT, CALL, tokens(40, 40),
         event("task_complete", turn_id="a", error={"message": "limit", "codex_error_info": "usage_limit_exceeded"})],
        {"turns": 1, "responses": {"not recorded": 1}, "evidence": {"not_recorded": 1}, "limits": [None],
         "output_tokens": [40], "outcomes": ["provider_error"]},
    ),
    "an interrupted turn": (
        [META, STARTED, PROMPT, message("half"), event("turn_aborted", turn_id="a", reason="interrupted")],
        {"turns": 1, "responses": {"cancelled": 1}, "evidence": {"other_record": 1}, "limits": [None],
         "output_tokens": [None], "outcomes": ["cancelled"]},
    ),
    "two responses around a tool, counts that repeat": (
        [META, STARTED, PROMPT, CALL, tokens(40, 40), OUTPUT, tokens(40, 40), message("done"), tokens(47, 7),
         event("task_complete", turn_id="a", last_agent_message="done")],
        {"turns": 1, "responses": {"not recorded": 2}, "evidence": {"not_recorded": 2}, "limits": [None, None],
         "output_tokens": [40, 7], "outcomes": ["unknown_reason"]},
    ),
    "counts that come before their items are of no response": (
        [META, STARTED, PROMPT, tokens(40, 40), CALL, OUTPUT, tokens(47, 7), message("done"),
         event("task_complete", turn_id="a", last_agent_message="done")],
        {"turns": 1, "responses": {"not recorded": 2}, "evidence": {"not_recorded": 2}, "limits": [None, None],
         "output_tokens": [None, None], "outcomes": ["unknown_reason"]},
    ),
    "the status of a tool call in versions that write none of a response": (
        [META, STARTED, PROMPT, item("custom_tool_call", call_id="c1", name="apply_patch", status="completed"),
         item("custom_tool_call_output", call_id="c1", output="x"),
         item("local_shell_call", call_id="c2", status="completed"), tokens(40, 40),
         event("task_complete", turn_id="a", last_agent_message=None)],
        {"turns": 1, "responses": {"not recorded": 2}, "evidence": {"not_recorded": 2}, "limits": [None, None],
         "output_tokens": [None, 40], "outcomes": ["unknown_reason"]},
    ),
    "a response that was cut before it said anything": (
        [META, STARTED, PROMPT, item("function_call", call_id="c1", name="shell", arguments="{}", status="completed"),
         OUTPUT, event("task_complete", turn_id="a", last_agent_message=None, error={"message": INCOMPLETE})],
        {"turns": 1, "responses": {"tool_call": 1, "max_tokens": 1}, "evidence": {"recorded": 1, "other_record": 1},
         "limits": [None, None], "output_tokens": [None, None], "truncated_turns": 1, "unfinished_turns": 1,
         "outcomes": ["not_continued"]},
    ),
    "a turn whose only response was cut before it said anything": (
        [META, STARTED, PROMPT, event("task_complete", turn_id="a", error={"message": INCOMPLETE})],
        {"turns": 1, "responses": {"max_tokens": 1}, "evidence": {"other_record": 1}, "limits": [None],
         "output_tokens": [None], "truncated_turns": 1, "unfinished_turns": 1, "outcomes": ["not_continued"]},
    ),
    "a turn that failed before any answer": (
        [META, STARTED, PROMPT,
         event("task_complete", turn_id="a", error={"message": "limit", "codex_error_info": "usage_limit_exceeded"}),
         event("task_started", turn_id="b"), PROMPT, event("turn_aborted", turn_id="b", reason="interrupted"),
         event("task_started", turn_id="c"), PROMPT, event("task_complete", turn_id="c", last_agent_message=None)],
        {"turns": 3, "outcomes": ["provider_error", "cancelled", "unknown_reason"]},
    ),
    "a turn whose agent was killed before any answer": (
        [META, STARTED, PROMPT], {"turns": 1, "outcomes": ["unknown_reason"]},
    ),
    "the same in versions that write the message as an item": (
        [META, STARTED, event("item_completed", turn_id="a", item={"type": "UserMessage", "id": "u"})],
        {"turns": 1, "outcomes": ["unknown_reason"]},
    ),
    "a task that no message of the user began": (
        [META, STARTED], {},
    ),
    "a turn that is over without a last message": (
        [META, STARTED, PROMPT, item("message", role="assistant", id="m1", status="completed"),
         event("task_complete", turn_id="a", last_agent_message=None)],
        {"turns": 1, "responses": {"end_turn": 1}, "evidence": {"recorded": 1}, "limits": [None],
         "output_tokens": [None], "outcomes": ["unknown_reason"]},
    ),
    "a turn that is over, of which nothing says if it had a last message": (
        [META, STARTED, PROMPT, item("message", role="assistant", id="m1", status="completed"),
         event("task_complete", turn_id="a")],
        {"turns": 1, "responses": {"end_turn": 1}, "evidence": {"recorded": 1}, "limits": [None],
         "output_tokens": [None], "outcomes": ["completed"]},
    ),
    "a turn whose agent was killed after a tool's result": (
        [META, STARTED, PROMPT, item("function_call", call_id="c1", name="shell", arguments="{}", status="completed"),
         OUTPUT],
        {"turns": 1, "responses": {"tool_call": 1}, "evidence": {"recorded": 1}, "limits": [None],
         "output_tokens": [None], "outcomes": ["unknown_reason"]},
    ),
    "an answer after half an answer": (
        [META, STARTED, PROMPT, item("message", role="assistant", id="m1", status="incomplete"),
         item("message", role="assistant", id="m2", status="completed"),
         event("task_complete", turn_id="a", last_agent_message="full")],
        {"turns": 1, "responses": {"unknown": 1, "end_turn": 1}, "evidence": {"recorded": 2}, "limits": [None, None],
         "output_tokens": [None, None], "outcomes": ["completed"]},
    ),
    "before turns had ids, a message begins one": (
        [META, PROMPT, message("one"), tokens(7, 7), PROMPT, message("two"), tokens(14, 7)],
        {"turns": 2, "responses": {"not recorded": 2}, "evidence": {"not_recorded": 2}, "limits": [None, None],
         "output_tokens": [7, 7], "outcomes": ["unknown_reason", "unknown_reason"]},
    ),
}  # fmt: skip


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", CASES)
def test_a_session_reads_as_its_expected_facts(name: str, tmp_path: Path) -> None:
    lines, expected = CASES[name]
    assert figures(scan([written(tmp_path / "rollout", lines)])) == expected


@pytest.mark.parametrize("case", ["whole", "cut-by-max-output-tokens", "version-0.100.0-cut"])
def test_a_fork_that_replays_its_parent_counts_only_its_own_calls(case: str, tmp_path: Path) -> None:
    (original,) = (HERE / "codex" / case).glob("*.jsonl")
    lines = [json.loads(line) for line in original.read_text(encoding="utf-8").splitlines()]
    own = {"id": "fork", "cwd": "/p", "cli_version": "0.171.0", "forked_from_id": lines[0]["payload"]["id"]}
    replay = [line | {"timestamp": "2026-11-30T08:00:00.000Z"} for line in lines]
    new = [event("task_started", turn_id="own"), PROMPT, message("own answer"), tokens(99, 9)]
    later = [line | {"timestamp": "2026-11-30T09:00:00.000Z"} for line in new]
    fork = written(tmp_path / "fork", [{"type": "session_meta", "payload": own}, *replay, *later])
    calls = sum(len(ended.past.calls) for ended in scan([original]).turns)
    for order in ([original, fork], [fork, original]):
        found = scan(order)
        assert found.copies == calls
        assert [len(ended.past.calls) for ended in found.turns] == [calls, 1]
        assert [ended.past.session for ended in found.turns] == [lines[0]["payload"]["id"], "fork"]


def test_the_same_words_in_two_sessions_are_two_calls(tmp_path: Path) -> None:
    lines = CASES["before turns had ids, a message begins one"][0]
    other = [META | {"payload": META["payload"] | {"id": "th2"}}, *lines[1:]]
    found = scan([written(tmp_path / "one", lines), written(tmp_path / "two", other)])
    assert (found.copies, len(found.turns)) == (0, 4)
