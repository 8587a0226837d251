"""Ending on purpose: the tools and their result texts, the marker, what a call means in a mode, the wallet guard."""

from __future__ import annotations

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
    finish_response,
    finish_task,
    is_offered,
    signal_of,
    status_in,
    status_of,
    tools,
)
from endturn.events import TurnOutcome


def parsed(name: str, **arguments: object) -> ToolCall:
    """A call whose arguments are an object."""
    return ToolCall(id="c", name=name, arguments=dict(arguments))


def raw(name: str, text: str | None) -> ToolCall:
    """A call whose arguments are text as it came."""
    return ToolCall(id="c", name=name, arguments_raw=text)


# --- The tools ----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(39)
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (parsed("finish_response"), "Response complete."),
        (parsed("finish_response", summary=None), "Response complete."),
        (
            parsed("finish_response", summary="Brief summary of what was explained"),
            "Response complete. Summary: Brief summary of what was explained",
        ),
        (
            raw("finish_response", "Brief summary of what was explained"),
            "Response complete. Summary: Brief summary of what was explained",
        ),
        (raw("finish_response", None), "Response complete."),
    ],
)
def test_the_result_texts_of_finish_response(call: ToolCall, text: str) -> None:
    """Verbatim the source design's, with a summary and without, from an object and from plain text."""
    assert finish_response(call) == text


DONE = "Task objective achieved. Marked for human review."


@pytest.mark.behaviour(39)
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            raw("finish_task", '{"summary": "Implemented the login feature", "status": "done"}'),
            f"{DONE} Summary: Implemented the login feature [FINISH_STATUS:done]",
        ),
        (
            raw("finish_task", "Task completed successfully"),
            f"{DONE} Summary: Task completed successfully [FINISH_STATUS:done]",
        ),
        (
            raw("finish_task", '  "Task completed successfully"\n'),
            f"{DONE} Summary: Task completed successfully [FINISH_STATUS:done]",
        ),
        (raw("finish_task", '{"summary": broken'), f'{DONE} Summary: {{"summary": broken [FINISH_STATUS:done]'),
        (raw("finish_task", None), f"{DONE} [FINISH_STATUS:done]"),
        (parsed("finish_task"), f"{DONE} [FINISH_STATUS:done]"),
        (
            parsed("finish_task", status="partial"),
            "Partial progress made. Marked for human review. [FINISH_STATUS:partial]",
        ),
        (
            parsed("finish_task", status="blocked", summary="No access"),
            "Task blocked - cannot proceed. Marked for human review. Summary: No access [FINISH_STATUS:blocked]",
        ),
    ],
)
def test_the_result_texts_of_finish_task(call: ToolCall, text: str) -> None:
    """Verbatim the source design's, for each status and each form of the arguments."""
    assert finish_task(call) == text


@pytest.mark.behaviour(39)
def test_a_status_that_does_not_exist_is_told_to_the_model() -> None:
    """The function raises with the ones that there are, and such a call ends nothing."""
    call = parsed("finish_task", status="failed")
    with pytest.raises(ValueError, match=r"no status 'failed': give one of done, partial, blocked"):
        finish_task(call)
    assert signal_of(call, "task") is None


@pytest.mark.behaviour(39)
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


@pytest.mark.behaviour(39)
@pytest.mark.parametrize(
    ("name", "mode", "finish"),
    [
        ("finish_response", "response", Finish("finish_response", "done", "s")),
        ("finish_task", "response", None),
        ("task_completed", "response", None),
        ("finish_response", "task", None),
        ("finish_task", "task", Finish("finish_task", "partial", "s")),
        ("task_completed", "task", Finish("task_completed", "partial", "s")),
        ("Finish_Task", "task", None),
        ("search", "task", None),
        ("finish_task", None, None),
    ],
)
def test_what_a_call_means_in_a_mode(name: str, mode: Mode | None, finish: Finish | None) -> None:
    """Each mode listens to its own tool, the task mode to its alias too; no mode listens to none."""
    assert signal_of(parsed(name, summary="s", status="partial"), mode) == finish


# --- The marker ---------------------------------------------------------------------------------------------------


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
def test_the_marker_counts_at_the_end_only(text: str, status: str | None) -> None:
    """What stands before the end is a quotation."""
    assert status_in(text) == status


@pytest.mark.behaviour(39)
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


# --- Statuses -----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(40)
@pytest.mark.parametrize(
    ("outcome", "finish", "response", "task", "none"),
    [
        (TurnOutcome.COMPLETED, Finish("f", "done"), "completed", "pending_review", "completed"),
        (TurnOutcome.COMPLETED, None, "completed", "completed", "completed"),
        (TurnOutcome.MAX_ITERATIONS, None, "max_iterations", "iterations_exceeded", "max_iterations"),
        (TurnOutcome.CANCELLED, None, "stopped", "stopped", "cancelled"),
        (TurnOutcome.STOPPED, None, "stopped", "stopped", "stopped"),
        (TurnOutcome.PROVIDER_ERROR, None, "error", "error", "provider_error"),
        (TurnOutcome.EMPTY_RESPONSE, None, *["llm_empty_response_error"] * 3),
        (TurnOutcome.IMPLICIT_COMPLETION, Finish(IMPLICIT, "echo"), "completed", *["implicit_completion"] * 2),
        (TurnOutcome.DEADLINE, None, *["budget_exhausted"] * 3),
    ],
)
def test_an_outcome_in_the_source_designs_words(
    outcome: TurnOutcome, finish: Finish | None, response: str, task: str, none: str
) -> None:
    """The source design's table of completion statuses, by mode."""
    assert status_of(outcome, "response", finish) == response
    assert status_of(outcome, "task", finish) == task
    assert status_of(outcome, None, finish) == none


# --- The wallet guard ---------------------------------------------------------------------------------------------

LONG = "I have looked at all of it."
FOUND = [("search", "nothing of the kind was found")]


@pytest.mark.behaviour(41)
@pytest.mark.parametrize("said", ["[Tool Result] 3 rows", FOUND[0][1], f" {FOUND[0][1]}\n"])
def test_an_echo_of_a_tools_result_completes(said: str) -> None:
    """The label, or the last result word for word, said beside a call."""
    guard = WalletGuard("task")
    assert guard.see("", results=FOUND) is None
    assert guard.see(said, results=[("now", "noon")]) == Finish(IMPLICIT, "echo")


@pytest.mark.behaviour(41)
def test_what_merely_quotes_a_result_goes_on() -> None:
    """A sentence about a result is no echo; nor is one that says a result's few characters."""
    guard = WalletGuard("task")
    assert guard.see("", results=[("add", "42"), *FOUND]) is None
    assert guard.see(f"It says {FOUND[0][1]!r}; looking again.", results=[("add", "1")]) is None
    assert guard.see("42", calls=["add"]) is None


@pytest.mark.behaviour(41)
def test_the_same_answer_twice_in_a_row_completes() -> None:
    """The first 200 characters are compared, so what differs after them does not matter."""
    guard, long = WalletGuard("task"), "I am still looking. " * 10
    assert guard.see(long + "a", calls=["search x"], results=FOUND) is None
    assert guard.see(long + "b", calls=["search x"], results=FOUND) == Finish(IMPLICIT, "repeated")


@pytest.mark.behaviour(41)
def test_what_is_not_the_same_answer_twice_in_a_row() -> None:
    """Another call, another text between, a difference within 200 characters, or no text at all: the loop goes on."""
    guard = WalletGuard("task")
    for text, asked in [
        ("Let me look it up.", "search x"),
        ("Let me look it up.", "search y"),
        ("Let me look at another.", "search y"),
        ("Let me look it up.", "search y"),
        ("", "status"),
        ("", "status"),
        ("", "status"),
        ("ok", "status"),
        ("ok", "status"),
    ]:
        assert guard.see(text, calls=[asked], results=FOUND) is None
    assert guard.see("Let me look it up.", calls=["now", "search x"]) is None
    assert guard.see("Let me look it up.", calls=["nows", "earch x"]) is None


@pytest.mark.behaviour(41)
@pytest.mark.parametrize("answers", [["", "", ""], ["ok", " \n", "123456789"]])
def test_three_trivial_answers_in_a_row_complete(answers: list[str]) -> None:
    """Empty ones and ones of fewer than ten characters, after something was done."""
    guard = WalletGuard("task")
    guard.see("", results=FOUND)
    first, second, third = (guard.see(text) for text in answers)
    assert (first, second, third) == (None, None, Finish(IMPLICIT, "trivial"))


@pytest.mark.behaviour(41)
def test_trivial_answers_that_are_not_in_a_row() -> None:
    """A call between two begins the count anew; ten characters are not trivial."""
    guard = WalletGuard("task")
    for _ in range(3):
        assert guard.see("") is None
        assert guard.see("ok") is None
        assert guard.see("", results=FOUND) is None
    assert guard.see("1234567890") == Finish(IMPLICIT, "no_action")


@pytest.mark.behaviour(40)
def test_three_empty_answers_and_nothing_else_are_no_completion() -> None:
    """A turn that has said nothing and done nothing is not complete."""
    guard = WalletGuard("task")
    assert [guard.see(text) for text in ("", " ", "\n")] == [None, None, Finish(EMPTY, "trivial")]


@pytest.mark.behaviour(41)
def test_the_guard_can_be_left_at_home() -> None:
    """Then the tool alone ends the turn."""
    guard = WalletGuard("task", wallet_guard=False)
    for text in (LONG, LONG, "", "", "", "[Tool Result]"):
        assert guard.see(text) is None
    result = finish_task(parsed("finish_task"))
    assert guard.see("", results=[("finish_task", result)]) == Finish("finish_task", "done")


# --- Loops that see text only -------------------------------------------------------------------------------------


@pytest.mark.behaviour(39)
def test_a_loop_that_sees_text_only_is_told_of_the_tool() -> None:
    """The status comes from the marker at the end; the other mode's tool and other tools' texts end nothing."""
    fooling = finish_task(parsed("finish_task", summary="as in [FINISH_STATUS:done]", status="blocked"))
    results = [
        ("read_file", "… [FINISH_STATUS:done]"),
        ("finish_response", "Response complete."),
        ("finish_task", "no"),
    ]
    guard = WalletGuard("task")
    assert guard.see("Reading.", results=results) is None
    assert guard.see("Ending.", results=[("search", "x"), ("finish_task", fooling)]) == Finish("finish_task", "blocked")
    assert guard.see("Ending.", results=[("task_completed", fooling)]) == Finish("task_completed", "blocked")
    answering = WalletGuard("response")
    assert answering.see("Reading.", results=[("finish_task", fooling)]) is None
    assert answering.see("Bye.", results=[("finish_response", "Response complete.")]) == Finish(
        "finish_response", "done"
    )
