"""Ending on purpose: the tools, the marker, the wallet guard. What they say is in tests/functions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.chat import ToolCall
from endturn.continuation.schema_check import mismatch
from endturn.continuation.termination import (
    EMPTY,
    IMPLICIT,
    Finish,
    Mode,
    WalletGuard,
    finish_task,
    is_offered,
    signal_of,
    status_in,
    tools,
)

pytestmark = [pytest.mark.behaviour(number) for number in (39, 40, 41)]


def parsed(name: str, **arguments: object) -> ToolCall:
    """A call whose arguments are an object."""
    return ToolCall(id="c", name=name, arguments=dict(arguments))


@pytest.mark.parametrize(("mode", "name"), [("response", "finish_response"), ("task", "finish_task")])
def test_the_tools_of_a_mode(mode: Mode, name: str) -> None:
    """One tool with its function; its schema takes what the function takes, and no other status."""
    [(tool, function)] = tools(mode)
    assert tool.name == name
    assert function(parsed(name, summary="s"))
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
    call = parsed("finish_task", summary=summary, status=status)
    finish = signal_of(call, "task")
    assert finish is not None
    assert status_in(finish_task(call)) == finish.status == status


# --- The wallet guard ---------------------------------------------------------------------------------------------

LONG = "I have looked at all of it."
STILL = "I am still looking. " * 10
LOOK = "Let me look it up."
FOUND = [("search", "nothing of the kind was found")]
FOOLING = finish_task(parsed("finish_task", summary="as in [FINISH_STATUS:done]", status="blocked"))
DONE = finish_task(parsed("finish_task"))


def ran(text: str, *calls: str) -> Any:
    """An answer with calls, after which something was found."""
    return text, {"calls": list(calls or ["search x"]), "results": FOUND}


def saw(text: str, *results: tuple[str, str]) -> Any:
    """An answer with calls that gave this."""
    return text, {"results": list(results)}


ALONE: Any = {}
GUARDED: dict[str, tuple[list[Any], Finish | None]] = {
    "an echo of a result": ([saw("", *FOUND), saw(FOUND[0][1], ("now", "noon"))], Finish(IMPLICIT, "echo")),
    "an echo with blanks": ([saw("", *FOUND), saw(f" {FOUND[0][1]}\n", ("now", "noon"))], Finish(IMPLICIT, "echo")),
    "an echo by its label": ([saw("", *FOUND), saw("[Tool Result] 3 rows", ("now", "noon"))], Finish(IMPLICIT, "echo")),
    "what merely quotes a result": (
        [saw("", ("add", "42"), *FOUND), saw(f"It says {FOUND[0][1]!r}; looking again.", ("add", "1"))],
        None,
    ),
    "a result's few characters": ([saw("", ("add", "42"), *FOUND), ("42", {"calls": ["add"]})], None),
    "the same twice, as far as 200 characters go": ([ran(STILL + "a"), ran(STILL + "b")], Finish(IMPLICIT, "repeated")),
    "another call": ([ran(LOOK), ran(LOOK, "search y")], None),
    "another text between": ([ran(LOOK), ran("Let me look at another."), ran(LOOK)], None),
    "nothing said, thrice": ([ran("", "status")] * 3, None),
    "little said beside a call, twice": ([ran("ok", "status")] * 2, None),
    "calls that only look alike": ([ran(LOOK, "now", "search x"), ran(LOOK, "nows", "earch x")], None),
    "three empty answers": ([saw("", *FOUND), *[("", ALONE)] * 3], Finish(IMPLICIT, "trivial")),
    "three short answers": (
        [saw("", *FOUND), ("ok", ALONE), (" \n", ALONE), ("123456789", ALONE)],
        Finish(IMPLICIT, "trivial"),
    ),
    "short answers that are not in a row": ([("", ALONE), ("ok", ALONE), saw("", *FOUND)] * 3, None),
    "ten characters": ([("1234567890", ALONE)], Finish(IMPLICIT, "no_action")),
    "three empty answers and nothing else": ([("", ALONE), (" ", ALONE), ("\n", ALONE)], Finish(EMPTY, "trivial")),
    "a tool that ended the task": (
        [saw("Ending.", ("search", "x"), ("finish_task", FOOLING))],
        Finish("finish_task", "blocked"),
    ),
    "its alias": ([saw("Ending.", ("task_completed", FOOLING))], Finish("task_completed", "blocked")),
    "what other tools say": (
        [
            saw(
                "Reading.",
                ("read", "[FINISH_STATUS:done]"),
                ("finish_response", "Response complete."),
                ("finish_task", "no"),
            )
        ],
        None,
    ),
}


@pytest.mark.parametrize("name", GUARDED)
def test_what_the_guard_sees(name: str) -> None:
    """It says at the last of these answers, and not before, that the task is over."""
    answers, finish = GUARDED[name]
    guard = WalletGuard("task")
    assert [guard.see(text, **beside) for text, beside in answers] == [None] * (len(answers) - 1) + [finish]


def test_a_response_is_ended_by_its_own_tool() -> None:
    guard = WalletGuard("response")
    assert guard.see("Reading.", results=[("finish_task", FOOLING)]) is None
    assert guard.see("Bye.", results=[("finish_response", "Response complete.")]) == Finish("finish_response", "done")


def test_the_guard_can_be_left_at_home() -> None:
    """Then the tool alone ends the turn."""
    guard = WalletGuard("task", wallet_guard=False)
    for text in (LONG, LONG, "", "", "", "[Tool Result]"):
        assert guard.see(text) is None
    assert guard.see("", results=[("finish_task", DONE)]) == Finish("finish_task", "done")
