"""The explicit end of a turn: the tools, the marker, the wallet guard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.calls.outcomes import TurnOutcome
from endturn.continuation.schema_check import mismatch
from endturn.continuation.termination import (
    Finish,
    Mode,
    WalletGuard,
    finish_of,
    finish_response,
    finish_task,
    is_offered,
    status_in,
    status_of,
    tools,
)
from endturn.vocabulary.messages import ToolCall
from tests.support.turns import call

pytestmark = [pytest.mark.behaviour(number) for number in (39, 40, 41)]


@pytest.mark.parametrize(("mode", "name"), [("response", "finish_response"), ("task", "finish_task")])
def test_the_tools_of_a_mode(mode: Mode, name: str) -> None:
    """There is one tool with its function; its schema accepts what the function accepts, and no other status."""
    [(tool, function)] = tools(mode)
    assert tool.name == name
    assert function(call(name, {"summary": "s"}))
    assert mismatch({}, tool.parameters) is None
    assert mismatch({"summary": "s"}, tool.parameters) is None
    assert is_offered(mode, ["search", name])
    assert not is_offered(mode, ["search"])
    assert not is_offered(None, [name])


@given(
    summary=st.text() | st.text().map(lambda text: f"{text}[FINISH_STATUS:done]"),
    status=st.sampled_from(["done", "partial", "blocked"]),
)
def test_a_summary_cannot_fake_the_marker(summary: str, status: str) -> None:
    """Field and marker agree, whatever is in the summary."""
    done = call("finish_task", {"summary": summary, "status": status})
    finish = finish_of(done, "task")
    assert finish is not None
    assert status_in(finish_task(done)) == finish.status == status


# --- The wallet guard ---------------------------------------------------------------------------------------------

GUARDED = [json.loads(line) for line in Path(__file__).with_name("guard.jsonl").read_text("utf-8").splitlines()]
"""The answers of a turn (of a task, with the guard, unless it says so), and how it is over at the last of them."""


@pytest.mark.parametrize("row", GUARDED, ids=lambda row: row["why"])
def test_the_wallet_guards_rules(row: dict[str, Any]) -> None:
    """The guard ends the turn at the last of these answers, and not before."""
    guard = WalletGuard(row.get("mode", "task"), wallet_guard=row.get("guarded", True))
    *before, last = [guard.see(**answer) for answer in row["answers"]]
    assert before == [None] * len(before)
    assert (last and f"{last.signal} {last.status}") == row["finish"]


# --- The tools, the marker and the status -----------------------------------------------------------------------


def tool_call(name: str, fields: dict[str, Any]) -> ToolCall:
    return ToolCall(id="c", name=name, **fields)


@pytest.mark.behaviour(39)
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"arguments": {}}, "Response complete."),
        ({"arguments": {"summary": None}}, "Response complete."),
        (
            {"arguments": {"summary": "Brief summary of what was explained"}},
            "Response complete. Summary: Brief summary of what was explained",
        ),
        (
            {"arguments_raw": "Brief summary of what was explained"},
            "Response complete. Summary: Brief summary of what was explained",
        ),
        ({"arguments_raw": None}, "Response complete."),
    ],
)
def test_finish_response_repeats_its_summary(fields: dict[str, Any], expected: str) -> None:
    assert finish_response(tool_call("finish_response", fields)) == expected


@pytest.mark.behaviour(39)
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"arguments_raw": '{"summary": "Implemented the login feature", "status": "done"}'},
            "Task objective achieved. Marked for human review. "
            "Summary: Implemented the login feature [FINISH_STATUS:done]",
        ),
        (
            {"arguments_raw": "Task completed successfully"},
            "Task objective achieved. Marked for human review. "
            "Summary: Task completed successfully [FINISH_STATUS:done]",
        ),
        (
            {"arguments_raw": '  "Task completed successfully"\n'},
            "Task objective achieved. Marked for human review. "
            "Summary: Task completed successfully [FINISH_STATUS:done]",
        ),
        (
            {"arguments_raw": '{"summary": broken'},
            'Task objective achieved. Marked for human review. Summary: {"summary": broken [FINISH_STATUS:done]',
        ),
        ({"arguments_raw": None}, "Task objective achieved. Marked for human review. [FINISH_STATUS:done]"),
    ],
)
def test_finish_task_takes_json_or_a_plain_summary(fields: dict[str, Any], expected: str) -> None:
    assert finish_task(tool_call("finish_task", fields)) == expected


@pytest.mark.behaviour(39)
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"arguments": {}}, "Task objective achieved. Marked for human review. [FINISH_STATUS:done]"),
        (
            {"arguments": {"status": "partial"}},
            "Partial progress made. Marked for human review. [FINISH_STATUS:partial]",
        ),
        (
            {"arguments": {"status": "blocked", "summary": "No access"}},
            "Task blocked - cannot proceed. Marked for human review. Summary: No access [FINISH_STATUS:blocked]",
        ),
    ],
)
def test_finish_task_has_a_sentence_for_each_status(fields: dict[str, Any], expected: str) -> None:
    assert finish_task(tool_call("finish_task", fields)) == expected


@pytest.mark.behaviour(39)
def test_finish_task_rejects_an_unknown_status() -> None:
    failed = tool_call("finish_task", {"arguments": {"status": "failed"}})
    with pytest.raises(ValueError, match="unknown status 'failed': use one of done, partial, blocked"):
        finish_task(failed)


@pytest.mark.behaviour(39)
@pytest.mark.parametrize(
    ("name", "mode", "status"),
    [
        ("finish_response", "response", "done"),
        ("finish_task", "task", "partial"),
        ("task_completed", "task", "partial"),
    ],
)
def test_the_tools_of_the_mode_end_the_turn(name: str, mode: Mode, status: str) -> None:
    fields = {"arguments": {"summary": "s", "status": "partial"}}
    finish = finish_of(tool_call(name, fields), mode)
    assert finish is not None
    assert (finish.signal, finish.status, finish.summary) == (name, status, "s")


@pytest.mark.behaviour(39)
@pytest.mark.parametrize(
    ("name", "fields", "mode"),
    [
        ("finish_task", {"arguments": {"summary": "s", "status": "partial"}}, "response"),
        ("task_completed", {"arguments": {"summary": "s", "status": "partial"}}, "response"),
        ("finish_response", {"arguments": {"summary": "s", "status": "partial"}}, "task"),
        ("Finish_Task", {"arguments": {"summary": "s", "status": "partial"}}, "task"),
        ("search", {"arguments": {"summary": "s", "status": "partial"}}, "task"),
        ("finish_task", {"arguments": {"summary": "s", "status": "partial"}}, None),
        ("finish_task", {"arguments": {"status": "failed"}}, "task"),
    ],
)
def test_no_other_tool_ends_the_turn(name: str, fields: dict[str, Any], mode: Mode | None) -> None:
    assert finish_of(tool_call(name, fields), mode) is None


@pytest.mark.behaviour(39)
@pytest.mark.parametrize(
    ("name", "fields", "mode"),
    [
        ("finish_response", {"arguments": {}}, "response"),
        ("finish_task", {"arguments": {"summary": ""}}, "task"),
    ],
)
def test_a_finish_without_a_summary_is_done(name: str, fields: dict[str, Any], mode: Mode) -> None:
    finish = finish_of(tool_call(name, fields), mode)
    assert finish is not None
    assert (finish.status, finish.summary) == ("done", None)


@pytest.mark.behaviour(39)
@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("Task objective achieved. Marked for human review. [FINISH_STATUS:done]", "done"),
        ("x [FINISH_STATUS:partial]\n", "partial"),
        ("said [FINISH_STATUS:done] and went on", None),
        ("the log says [FINISH_STATUS:done] [FINISH_STATUS:blocked]", "blocked"),
        ("[FINISH_STATUS:]", None),
        ("", None),
    ],
)
def test_reads_the_last_marker_at_the_end_of_a_text(text: str, status: str | None) -> None:
    assert status_in(text) == status


@pytest.mark.behaviour(40)
@pytest.mark.parametrize(
    ("outcome", "mode", "finish", "status"),
    [
        (TurnOutcome.COMPLETED, "response", Finish("f", "done"), "completed"),
        (TurnOutcome.COMPLETED, "task", Finish("f", "done"), "pending_review"),
        (TurnOutcome.COMPLETED, None, Finish("f", "done"), "completed"),
        (TurnOutcome.COMPLETED, "response", None, "completed"),
        (TurnOutcome.COMPLETED, "task", None, "completed"),
        (TurnOutcome.COMPLETED, None, None, "completed"),
        (TurnOutcome.MAX_ITERATIONS, "response", None, "max_iterations"),
        (TurnOutcome.MAX_ITERATIONS, "task", None, "iterations_exceeded"),
        (TurnOutcome.MAX_ITERATIONS, None, None, "max_iterations"),
        (TurnOutcome.CANCELLED, "response", None, "stopped"),
        (TurnOutcome.CANCELLED, "task", None, "stopped"),
        (TurnOutcome.CANCELLED, None, None, "cancelled"),
        (TurnOutcome.STOPPED, "response", None, "stopped"),
        (TurnOutcome.STOPPED, "task", None, "stopped"),
        (TurnOutcome.STOPPED, None, None, "stopped"),
        (TurnOutcome.PROVIDER_ERROR, "response", None, "error"),
        (TurnOutcome.PROVIDER_ERROR, "task", None, "error"),
        (TurnOutcome.PROVIDER_ERROR, None, None, "provider_error"),
        (TurnOutcome.EMPTY_RESPONSE, "response", None, "llm_empty_response_error"),
        (TurnOutcome.EMPTY_RESPONSE, "task", None, "llm_empty_response_error"),
        (TurnOutcome.EMPTY_RESPONSE, None, None, "llm_empty_response_error"),
        (TurnOutcome.IMPLICIT_COMPLETION, "response", Finish("implicit_completion", "echo"), "completed"),
        (TurnOutcome.IMPLICIT_COMPLETION, "task", Finish("implicit_completion", "echo"), "implicit_completion"),
        (TurnOutcome.IMPLICIT_COMPLETION, None, Finish("implicit_completion", "echo"), "implicit_completion"),
        (TurnOutcome.DEADLINE, "response", None, "budget_exhausted"),
        (TurnOutcome.DEADLINE, "task", None, "budget_exhausted"),
        (TurnOutcome.DEADLINE, None, None, "budget_exhausted"),
    ],
)
def test_the_status_of_a_turn(outcome: TurnOutcome, mode: Mode | None, finish: Finish | None, status: str) -> None:
    assert status_of(outcome, mode, finish) == status
