"""Claude Code: traces of truncation, interruption and sub-agents, by version."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from endturn.scan import run, scan
from tests.scan.cases import HERE, figures

ABOUT = {"sessionId": "s1", "parentUuid": None, "version": "2.1.76"}
CUT = "API Error: Claude's response exceeded the 32000 output token maximum. To configure this behavior, set"


def user(text: str, **members: Any) -> dict[str, Any]:
    content = {"role": "user", "content": text}
    return ABOUT | {"type": "user", "uuid": f"user {text}", "message": content} | members


def answer(
    identity: str, reason: str | None, *blocks: dict[str, Any], tokens: int = 7, **members: Any
) -> dict[str, Any]:
    message = {
        "id": identity,
        "model": "claude-x",
        "content": [*blocks] or [{"type": "text", "text": "words"}],
        "stop_reason": reason,
        "usage": {"output_tokens": tokens},
    }
    number = f"{identity} {reason} {len(blocks)} {tokens}"
    return ABOUT | {"type": "assistant", "uuid": number, "message": message} | members


def synthetic(text: str = CUT, **members: Any) -> dict[str, Any]:
    line = answer("e1", "stop_sequence", {"type": "text", "text": text}, tokens=0, isApiErrorMessage=True)
    line["message"]["model"] = "<synthetic>"
    return line | members


def result(call_id: str, *, is_error: bool = False) -> dict[str, Any]:
    content = [{"type": "tool_result", "tool_use_id": call_id, "content": "out", "is_error": is_error}]
    return ABOUT | {"type": "user", "uuid": f"result {call_id}", "message": {"role": "user", "content": content}}


def request(identity: str, *, source: str = "sdk") -> dict[str, Any]:
    params = {"model": "claude-x", "max_tokens": 64_000}
    return {"type": "api-request", "sessionId": "s1", "id": identity, "querySource": source, "params": params}


def failed(identity: str) -> dict[str, Any]:
    return ABOUT | {"type": "system", "subtype": "api_error", "uuid": identity, "error": {"status": 529}}


TOOL = {"type": "tool_use", "id": "t1", "name": "Write", "input": {"path": "x"}}
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "a group of lines, its continuation, and an error after another reason": (
        [
            user("go"),
            answer("m1", None, {"type": "thinking"}, tokens=2),
            answer("m1", "max_tokens", tokens=32_000),
            user("Output token limit hit. Resume directly — no apology", isMeta=True),
            answer("m2", "tool_use", TOOL, tokens=90),
            synthetic(apiError="max_output_tokens"),
        ],
        {
            "turns": 1, "responses": {"max_tokens": 1, "tool_call": 1}, "evidence": {"recorded": 2},
            "limits": [None, None], "output_tokens": [32_000, 90], "continuations": 1, "truncated_turns": 1,
            "continued_turns": 1, "outcomes": ["provider_error"], "sufficient_limits": [32_090],
        },
    ),
    "lines of two groups in turn": (
        [user("go"), answer("m1", None), answer("m2", None), answer("m1", "end_turn"), answer("m2", "end_turn")],
        {
            "turns": 1, "responses": {"end_turn": 2}, "evidence": {"recorded": 2}, "limits": [None, None],
            "output_tokens": [7, 7], "outcomes": ["completed"],
        },
    ),
    "a cut answer that left no line": (
        [user("go"), answer("m1", "tool_use", TOOL), result("t1"), synthetic()],
        {
            "turns": 1, "responses": {"tool_call": 1, "max_tokens": 1},
            "evidence": {"recorded": 1, "other_record": 1},
            "limits": [None, 32_000], "output_tokens": [7, None], "truncated_turns": 1, "unfinished_turns": 1,
            "outcomes": ["not_continued"],
        },
    ),
    "a tool call of a cut answer that was run": (
        [user("go"), answer("m1", "max_tokens", TOOL), result("t1"), answer("m2", "end_turn")],
        {
            "turns": 1, "responses": {"max_tokens": 1, "end_turn": 1}, "evidence": {"recorded": 2},
            "limits": [None, None],
            "output_tokens": [7, 7], "truncated_turns": 1, "unfinished_turns": 1, "outcomes": ["not_continued"],
            "ran_cut_tool_calls": 1,
        },
    ),
    "an interruption, then a turn that finished": (
        [
            user("go"), answer("m1", None, tokens=1), user("[Request interrupted by user]"),
            user("again"), answer("m2", "end_turn"),
        ],
        {
            "turns": 2, "responses": {"cancelled": 1, "end_turn": 1}, "evidence": {"recorded": 1, "other_record": 1},
            "limits": [None, None], "output_tokens": [None, 7], "outcomes": ["cancelled", "completed"],
        },
    ),
    "an interruption while a tool ran leaves the reason as it was": (
        [user("go"), answer("m1", "tool_use", TOOL), result("t1", is_error=True),
         user("[Request interrupted by user for tool use]")],
        {
            "turns": 1, "responses": {"tool_call": 1}, "evidence": {"recorded": 1}, "limits": [None],
            "output_tokens": [7], "outcomes": ["cancelled"],
        },
    ),
    "a warm-up without a message of a user is no turn": (
        [answer("m1", "end_turn", isSidechain=True, agentId="a")],
        {
            "responses": {"end_turn": 1}, "evidence": {"recorded": 1}, "limits": [None], "output_tokens": [7],
            "sub_agent_turns": 1,
        },
    ),
    "a sub-agent within the session's file": (
        [
            user("go"), answer("m1", "tool_use", TOOL), user("look", isSidechain=True),
            answer("m2", "max_tokens", isSidechain=True, parentUuid="user look"),
            synthetic(isSidechain=True, parentUuid="user look"),
            result("t1"), answer("m3", "end_turn"),
        ],
        {
            "turns": 2, "sub_agent_turns": 1, "responses": {"tool_call": 1, "max_tokens": 1, "end_turn": 1},
            "evidence": {"recorded": 3}, "limits": [None, None, 32_000], "output_tokens": [7, 7, 7],
            "truncated_turns": 1, "unfinished_turns": 1, "outcomes": ["completed", "not_continued"],
        },
    ),
    "other errors, other texts of the client, and a nested copy are no calls": (
        [
            user("go"), answer("m1", "end_turn"), ABOUT | {"type": "progress", "data": answer("m9", "max_tokens")},
            synthetic("No response requested.", isApiErrorMessage=False), user("summary", isCompactSummary=True),
            {"type": "api-request-blob", "sessionId": "s1", "message": answer("m8", "max_tokens")["message"]},
        ],
        {
            "turns": 1, "responses": {"end_turn": 1}, "evidence": {"recorded": 1}, "limits": [None],
            "output_tokens": [7], "outcomes": ["completed"],
        },
    ),
    "an answer that the context window cut is held by no limit": (
        [
            user("go"), answer("m1", "model_context_window_exceeded"),
            user("Output token limit hit. Resume directly", isMeta=True), answer("m2", "end_turn"),
        ],
        {
            "turns": 1, "responses": {"context_window_exceeded": 1, "end_turn": 1}, "evidence": {"recorded": 2},
            "limits": [None, None], "output_tokens": [7, 7], "continuations": 1, "truncated_turns": 1,
            "continued_turns": 1, "outcomes": ["completed"], "sufficient_limits": [None],
        },
    ),
    "a session that begins with many snapshots of files": (
        [*[{"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}] * 20, user("go"),
         answer("m1", "max_tokens")],
        {
            "turns": 1, "responses": {"max_tokens": 1}, "evidence": {"recorded": 1}, "limits": [None],
            "output_tokens": [7], "truncated_turns": 1, "unfinished_turns": 1, "outcomes": ["not_continued"],
        },
    ),
    "a turn that failed before any answer": (
        [user("go"), synthetic("API Error: 401", error="no_key"), user("again"), answer("m1", "end_turn")],
        {
            "turns": 2, "responses": {"end_turn": 1}, "failed_attempts": 1, "evidence": {"recorded": 1},
            "limits": [None], "output_tokens": [7], "outcomes": ["provider_error", "completed"],
        },
    ),
    "a turn that was interrupted before any answer": (
        [user("go"), user("[Request interrupted by user]"), user("again"), answer("m1", "end_turn")],
        {
            "turns": 2, "responses": {"end_turn": 1}, "evidence": {"recorded": 1}, "limits": [None],
            "output_tokens": [7], "outcomes": ["cancelled", "completed"],
        },
    ),
    "a message that asked no model is no turn": (
        [user("<command-name>/model</command-name>"), user("go"), answer("m1", "end_turn")],
        {
            "turns": 1, "responses": {"end_turn": 1}, "evidence": {"recorded": 1}, "limits": [None],
            "output_tokens": [7], "outcomes": ["completed"],
        },
    ),
    "an agent that was killed while a tool ran": (
        [user("go"), answer("m1", "tool_use", TOOL)],
        {
            "turns": 1, "responses": {"tool_call": 1}, "evidence": {"recorded": 1}, "limits": [None],
            "output_tokens": [7], "outcomes": ["unknown_reason"],
        },
    ),
    "an agent that was killed after a tool's result": (
        [user("go"), answer("m1", "tool_use", TOOL), result("t1"), user("again"), answer("m2", "end_turn")],
        {
            "turns": 2, "responses": {"tool_call": 1, "end_turn": 1}, "evidence": {"recorded": 2},
            "limits": [None, None], "output_tokens": [7, 7], "outcomes": ["unknown_reason", "completed"],
        },
    ),
    "an agent that was killed while it waited for an answer": (
        [user("go"), request("r1"), answer("m1", "tool_use", TOOL, requestRef="r1"), result("t1"), request("r2"),
         request("r3", source="generate_session_title")],
        {
            "turns": 1, "responses": {"tool_call": 1, "not recorded": 1},
            "evidence": {"recorded": 1, "not_recorded": 1}, "limits": [64_000, 64_000], "output_tokens": [7, None],
            "outcomes": ["unknown_reason"],
        },
    ),
    "a request that the user interrupted before it had an answer": (
        [user("go"), request("r1"), user("[Request interrupted by user]"), user("again"), request("r2"),
         answer("m1", "end_turn", requestRef="r2")],
        {
            "turns": 2, "responses": {"cancelled": 1, "end_turn": 1}, "evidence": {"recorded": 1, "other_record": 1},
            "limits": [64_000, 64_000], "output_tokens": [None, 7], "outcomes": ["cancelled", "completed"],
        },
    ),
    "a request that an error answers": (
        [user("go"), request("r1"), synthetic("API Error: 400", error="invalid_request", apiErrorStatus=400)],
        {"turns": 1, "failed_attempts": 1, "outcomes": ["provider_error"]},
    ),
    # as 2.1.332 writes of a request that is refused: six requests, and one line
    "a request that was sent again without a line of its own": (
        [user("go"), request("r1"), request("r2"), request("r3"),
         synthetic("API Error: 400", error="unknown", apiErrorStatus=400)],
        {"turns": 1, "failed_attempts": 3, "outcomes": ["provider_error"]},
    ),
    # as 2.1.332 writes of an overloaded server: a line for each attempt but the last one
    "attempts that failed, until the client gave up": (
        [user("go"), request("r1"), failed("f1"), request("r2"), failed("f2"), request("r3"),
         synthetic("API Error: Repeated 529 Overloaded errors.", error="server_error", apiErrorStatus=529)],
        {"turns": 1, "failed_attempts": 3, "outcomes": ["provider_error"]},
    ),
    "an error after which the turn went on and finished": (
        [user("go"), answer("m1", "tool_use", TOOL), result("t1"), synthetic("API Error: 529", error="overloaded"),
         answer("m2", "end_turn")],
        {
            "turns": 1, "responses": {"tool_call": 1, "end_turn": 1}, "failed_attempts": 1, "evidence": {"recorded": 2},
            "limits": [None, None], "output_tokens": [7, 7], "outcomes": ["completed"],
        },
    ),
    "a message of the user that quotes an interruption": (
        [user("go"), answer("m1", "end_turn"), user("[Request interrupted by user] is what I saw"),
         answer("m2", "end_turn"), user("[Request interrupted by user for tool use]: why?"), answer("m3", "end_turn")],
        {
            "turns": 3, "responses": {"end_turn": 3}, "evidence": {"recorded": 3}, "limits": [None] * 3,
            "output_tokens": [7] * 3, "outcomes": ["completed"] * 3,
        },
    ),
    "a tool's result after the first line of the next response": (
        [user("go"), answer("m1", "max_tokens", TOOL), answer("m2", None), result("t1"), answer("m2", "end_turn")],
        {
            "turns": 1, "responses": {"max_tokens": 1, "end_turn": 1}, "evidence": {"recorded": 2},
            "limits": [None, None], "output_tokens": [7, 7], "truncated_turns": 1, "unfinished_turns": 1,
            "outcomes": ["not_continued"], "ran_cut_tool_calls": 1,
        },
    ),
    "an error that is not the limit's": (
        [user("go"), answer("m1", "tool_use", TOOL), result("t1"), synthetic("API Error: 429", error="rate_limit")],
        {
            "turns": 1, "responses": {"tool_call": 1}, "failed_attempts": 1, "evidence": {"recorded": 1},
            "limits": [None], "output_tokens": [7], "outcomes": ["provider_error"],
        },
    ),
}  # fmt: skip


def written(path: Path, lines: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", CASES)
def test_a_trace_reads_as_its_expected_facts(name: str, tmp_path: Path) -> None:
    lines, expected = CASES[name]
    assert figures(scan([written(tmp_path / "session", lines)])) == expected


def test_a_sub_agents_turn_is_within_the_turn_that_started_it() -> None:
    turns = scan([HERE / "claude_code" / "subagent-cut-twice"]).turns
    (within,) = (ended for ended in turns if ended.past.parent_session)
    (around,) = (ended for ended in turns if not ended.past.parent_session)
    assert within.turn.around is around.turn
    assert within.past.parent_tool_call in around.past.calls[0].tool_calls


def test_a_fork_and_its_original_have_each_call_once() -> None:
    paths = [HERE / "claude_code" / name for name in ("resumed-in-place-multi-block", "forked-from-00000002-then-cut")]
    for order in (paths, paths[::-1]):
        found = scan(order)
        assert (found.copies, found.as_json()["total"]["turns"]) == (3, 3)
        calls = [call for ended in found.turns for call in ended.past.calls]
        assert [call.request.max_tokens for call in calls] == [64_000] * 5  # the original has the requests
        sessions = [ended.past.session[:8] for ended in found.turns]
        assert sessions == ["00000002", "00000002", "d6b3dc05"]


def test_an_error_at_the_end_of_a_shorter_copy_does_not_end_the_turn(tmp_path: Path) -> None:
    lines = [user("go"), synthetic("API Error: 529", error="overloaded"), answer("m1", "end_turn")]
    written(tmp_path / "fork", [line | {"requestSessionId": "s0"} for line in lines])
    written(tmp_path / "original", lines[:2])
    (ended,) = scan([tmp_path]).turns
    assert (str(ended.turn.outcome), len(ended.past.calls)) == ("completed", 2)


def test_failed_turns_are_counted_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [user("go"), synthetic("API Error: 401", error="no_key"), user("again"), answer("m1", "end_turn")]
    assert scan([written(tmp_path / "session", lines)]).as_json()["total"]["failed_turns"] == 1
    run([tmp_path])
    assert "2 turns with 1 response. " in (printed := capsys.readouterr().out)
    assert "1 turn ended with an error. 1 attempt failed." in printed
