"""Ending on purpose: the tools, the marker, the wallet guard. What they say is in tests/functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.continuation.schema_check import mismatch
from endturn.continuation.termination import Mode, WalletGuard, finish_task, is_offered, signal_of, status_in, tools
from tests.support.turns import call

pytestmark = [pytest.mark.behaviour(number) for number in (39, 40, 41)]


@pytest.mark.parametrize(("mode", "name"), [("response", "finish_response"), ("task", "finish_task")])
def test_the_tools_of_a_mode(mode: Mode, name: str) -> None:
    """One tool with its function; its schema takes what the function takes, and no other status."""
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
def test_no_summary_fools_the_marker(summary: str, status: str) -> None:
    """Field and marker agree, whatever the summary says."""
    done = call("finish_task", {"summary": summary, "status": status})
    finish = signal_of(done, "task")
    assert finish is not None
    assert status_in(finish_task(done)) == finish.status == status


# --- The wallet guard ---------------------------------------------------------------------------------------------

GUARDED = [json.loads(line) for line in Path(__file__).with_name("guard.jsonl").read_text("utf-8").splitlines()]
"""The answers of a turn (of a task, with the guard, unless it says so), and how it is over at the last of them."""


@pytest.mark.parametrize("row", GUARDED, ids=lambda row: row["why"])
def test_what_the_guard_sees(row: dict[str, Any]) -> None:
    """It says at the last of these answers, and not before, that the turn is over."""
    guard = WalletGuard(row.get("mode", "task"), wallet_guard=row.get("guarded", True))
    *before, last = [guard.see(**answer) for answer in row["answers"]]
    assert before == [None] * len(before)
    assert (last and f"{last.signal} {last.status}") == row["finish"]
