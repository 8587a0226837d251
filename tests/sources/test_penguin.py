"""Penguin's engine: tools that end a turn on purpose, and the guard for models that do not call them."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from endturn import (
    ContinuationController,
    ContinuationPolicy,
    Request,
    ScriptedProvider,
    Tool,
    ToolCall,
    UsageError,
)
from endturn.scripted import Reply, call, say
from tests.support.scripted_turns import (
    SEARCH,
    ask,
    cut,
    every_format,
    lines,
    not_arrived,
    observed,
    play,
    whole_and_streamed,
)

ANSWER = "Here is all that there is to say of it."
TERMINATOR = {"response": "finish_response", "task": "finish_task"}
every_mode = pytest.mark.parametrize("mode", TERMINATOR)


# --- A tool ends a turn only if it ran ----------------------------------------------------------------------------


def fails_once() -> Any:
    """A function that raises when it is first called."""
    first = iter([True])

    def function(asked: ToolCall) -> str:
        if next(first, False):
            raise RuntimeError("not yet")
        return "ended"

    return function


def refused(kind: str, name: str) -> Reply:
    """A response that calls the tool, and in which it does not run."""
    match kind:
        case "refused by the gate":
            return call(name, '{"summary": 3}')
        case "beside an invalid call":
            return call(name, {"summary": "s"}).also("search", {"wrong": 1})
        case "beside an unknown tool":
            return call("unheard_of", {}).also(name, {"summary": "s"})
        case _:
            return call(name, {"summary": "s"})


REFUSALS = ["refused by the gate", "beside an invalid call", "beside an unknown tool", "its function raised"]


@every_mode
@pytest.mark.parametrize("kind", REFUSALS)
@pytest.mark.parametrize("guard", [True, False], ids=["guarded", "unguarded"])
@whole_and_streamed
def test_a_terminator_that_did_not_run_ends_nothing(mode: str, kind: str, guard: bool, stream: bool) -> None:
    """It is answered with an error, the loop goes on, and the next one counts."""
    name = TERMINATOR[mode]
    provider = ScriptedProvider([refused(kind, name), call(name, {"summary": "now"})])
    tools: Any = [(SEARCH, lambda _: "found")]
    if kind == "its function raised":
        tools.append((play([say(ANSWER)], mode=mode).requests[0].tools[-1], fails_once()))
    policy = ContinuationPolicy(mode=mode, wallet_guard=guard)
    controller = ContinuationController(provider.stream if stream else provider, tools=tools, policy=policy)
    result = controller.run(ask())
    assert len(provider.requests) == 2
    assert all(message.is_error for message in result.tool_results[:-1])
    assert not result.tool_results[-1].is_error
    assert result.finish is not None
    assert (result.finish.signal, result.finish.summary) == (name, "now")
    assert (result.complete, result.status) == (True, "pending_review" if mode == "task" else "completed")


@every_mode
@pytest.mark.parametrize("kind", REFUSALS[:-1])
def test_a_turn_is_not_complete_by_a_terminator_that_did_not_run(mode: str, kind: str) -> None:
    """Nor does the guard find so: the limit of calls ends the turn, as a limit."""
    played = play([refused(kind, TERMINATOR[mode])], mode=mode, exhausted="last", max_iterations=4)
    assert len(played.requests) == 4
    assert (played.result.outcome, played.result.complete, played.result.finish) == ("max_iterations", False, None)


@pytest.mark.parametrize("preset", [None, "forgeflare", "wave"])
@every_format
@whole_and_streamed
def test_a_terminator_whose_arguments_were_cut_ends_nothing(preset: str | None, format_name: str, stream: bool) -> None:
    """Neither a status nor the lack of one is read out of a cut payload."""
    script = [not_arrived("finish_task", text="Nearly there, "), say("but there is more to be done yet.")]
    played = play(script, preset=preset, mode="task", format_name=format_name, stream=stream)
    assert (len(played.requests), played.result.status) == (2, "implicit_completion")
    assert played.result.tool_results == ()


# --- What a summary may be ----------------------------------------------------------------------------------------


@every_mode
@pytest.mark.parametrize("arguments", ['{"summary": "Brief"}', '"Brief"', "Brief"], ids=["object", "JSON text", "text"])
@whole_and_streamed
def test_a_summary_is_an_object_or_a_text(mode: str, arguments: str, stream: bool) -> None:
    """Alike for both tools, all the way through the loop."""
    name = TERMINATOR[mode]
    played = play([call(name, arguments, text=ANSWER)], mode=mode, stream=stream)
    finish = played.result.finish
    assert finish is not None
    assert (finish.signal, finish.status, finish.summary) == (name, "done", "Brief")
    assert played.result.complete
    (message,) = played.result.tool_results
    assert "Summary: Brief" in message.text


# --- The deprecated alias, and the text form ----------------------------------------------------------------------


@every_format
def test_the_alias_ends_a_task_without_being_declared(format_name: str) -> None:
    """`task_completed` is taken, though the model is offered finish_task alone."""
    played = play([call("task_completed", {"summary": "s"})], mode="task", format_name=format_name)
    assert "task_completed" not in [tool.name for tool in played.requests[0].tools]
    finish = played.result.finish
    assert finish is not None
    assert (finish.signal, finish.status, finish.summary) == ("task_completed", "done", "s")
    assert played.result.status == "pending_review"


def test_the_alias_is_of_the_task_mode_alone() -> None:
    """In response mode it is an unknown tool."""
    script = [call("task_completed", {"summary": "s"}), call("finish_response", {})]
    played = play(script, mode="response")
    assert [message.is_error for message in played.result.tool_results] == [True, False]


TEXT_FORMS = {
    "on two lines": 'All is done.\nfinish_task\n{"summary": "s", "status": "blocked"}',
    "on one line": 'finish_task {"summary": "s", "status": "blocked"}',
}


@pytest.mark.parametrize("text", TEXT_FORMS.values(), ids=list(TEXT_FORMS))
@whole_and_streamed
def test_the_text_form_of_a_signal_is_a_key(text: str, stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Off by default: the answer is an answer, and a debug line says what was seen. On: it ends the task."""
    caplog.set_level(logging.DEBUG, "endturn")
    assert ContinuationPolicy().text_signals is False
    played = play([say(text)], mode="task", text_signals=True, stream=stream)
    finish = played.result.finish
    assert finish is not None
    assert (finish.signal, finish.status, finish.summary) == ("finish_task", "blocked", "s")
    assert (played.result.status, len(played.requests)) == ("pending_review", 1)
    caplog.clear()
    played = play([say(text)], mode="task", stream=stream)
    assert played.result.status == "implicit_completion"
    assert any("finish_task" in line for line in lines(caplog))


# --- What is said of it -------------------------------------------------------------------------------------------


def test_a_signal_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The engine's lines, on the logger `endturn`, without telemetry: of a task as information."""
    caplog.set_level(logging.DEBUG, "endturn")
    for name in ("finish_task", "task_completed"):
        play([call(name, {"status": "partial"})], mode="task")
        found = [line for line in lines(caplog, logging.INFO) if "Task completion signal detected via" in line]
        assert [name in line and "partial" in line for line in found] == [True]
        caplog.clear()
    play([call("finish_response", {})], mode="response")
    assert any("finish_response" in line for line in lines(caplog))


def test_in_response_mode_the_guard_leaves_the_status_alone() -> None:
    """The outcome says that the turn was found to be over; the status is the mode's own."""
    for mode, status in (("response", "completed"), ("task", "implicit_completion")):
        result = play([say(ANSWER)], mode=mode).result
        assert (result.outcome, result.status, result.complete) == ("implicit_completion", status, True)


# --- A mode or a function that can have no effect -----------------------------------------------------------------

FINISH_TASK = Tool(name="finish_task", parameters={"type": "object", "properties": {"summary": {"type": "string"}}})


@pytest.mark.parametrize(
    ("settings", "request_tools", "names"),
    [
        pytest.param({"policy": ContinuationPolicy(mode="task")}, (), "finish_task", id="a mode without its tool"),
        pytest.param({"tools": {"serch": lambda _: ""}}, (SEARCH,), "serch", id="a function without its tool"),
    ],
)
def test_what_can_have_no_effect_is_told(
    settings: dict[str, Any], request_tools: tuple[Tool, ...], names: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By a warning of the logger `endturn`, or as a mistake; it names the tool."""
    caplog.set_level(logging.WARNING, "endturn")
    told = ""
    try:
        ContinuationController(ScriptedProvider(say(ANSWER)), **settings).run(ask(tools=request_tools))
    except UsageError as error:
        told = str(error)
    assert any(names in line for line in [told, *lines(caplog, logging.WARNING)])


def test_a_host_that_offers_the_tool_itself_is_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    """Its request declares it, and the call is handed over."""
    caplog.set_level(logging.WARNING, "endturn")
    provider = ScriptedProvider(call("finish_task", {"summary": "s"}))
    controller = ContinuationController(provider, policy=ContinuationPolicy(mode="task"))
    result = controller.run(ask(tools=(FINISH_TASK,)))
    assert [asked.name for asked in result.calls] == ["finish_task"]
    assert lines(caplog, logging.WARNING) == []


# --- What works, over the real formats ----------------------------------------------------------------------------


@every_format
@whole_and_streamed
@pytest.mark.parametrize("status", ["done", "partial", "blocked"])
def test_a_task_waits_for_review_with_its_status(format_name: str, stream: bool, status: str) -> None:
    """The loop ends at once; the marker is the last of the tool's result."""
    script = [call("search", {"q": "x"}), call("finish_task", {"summary": "s", "status": status}, text=ANSWER)]
    with observed() as telemetry:
        played = play(script, mode="task", format_name=format_name, stream=stream, max_iterations=9)
    result = played.result
    assert (result.status, result.answer, len(played.requests)) == ("pending_review", ANSWER, 2)
    assert result.tool_results[-1].text.endswith(f". Marked for human review. Summary: s [FINISH_STATUS:{status}]")
    (signal,) = telemetry.events("termination_signal")
    assert signal["endturn.turn.iteration"] == 2
    assert signal["endturn.termination.max_iterations"] == 9
    assert signal["endturn.termination.status"] == status
    assert signal["endturn.termination.requires_review"] is True


@every_format
def test_a_response_is_completed_by_its_own_tool_alone(format_name: str) -> None:
    """finish_task is a tool like any other in response mode, and unknown where it is not offered."""
    script = [call("finish_task", {"summary": "s"}), call("finish_response", {"summary": "s"}, text=ANSWER)]
    played = play(script, mode="response", format_name=format_name)
    assert [message.text for message in played.result.tool_results][1:] == ["Response complete. Summary: s"]
    assert (played.result.status, len(played.requests)) == ("completed", 2)


def test_names_are_case_sensitive() -> None:
    """Finish_Task is no tool."""
    played = play([call("Finish_Task", {}), call("finish_task", {})], mode="task")
    assert [message.is_error for message in played.result.tool_results] == [True, False]


def test_the_result_has_what_the_engine_returned() -> None:
    """Answer, iterations, results of tools, status, seconds."""
    result = play([call("search", {"q": "x"}), call("finish_response", {}, text=ANSWER)], mode="response").result
    assert (result.answer, result.iterations, result.status) == (ANSWER, 2, "completed")
    assert [message.text for message in result.tool_results] == ["the result of search", "Response complete."]
    assert result.duration_s >= 0


@pytest.mark.parametrize(
    ("script", "policy", "status"),
    [
        ([call("search", {"q": "x"})], {"mode": "response", "max_iterations": 2}, "max_iterations"),
        ([call("search", {"q": "x"})], {"mode": "task", "max_iterations": 2}, "iterations_exceeded"),
        ([say("")], {"mode": "task"}, "llm_empty_response_error"),
        ([say("")], {"mode": "response"}, "llm_empty_response_error"),
        ([say("ok.")], {"mode": "task"}, "implicit_completion"),
    ],
)
def test_the_other_ends_have_the_engines_words(script: list[Reply], policy: dict[str, Any], status: str) -> None:
    """Limits, nothing at all, and what the guard finds."""
    assert play(script, exhausted="last", **policy).result.status == status


def test_a_turn_that_is_stopped_says_so() -> None:
    """An interrupt carries the turn's result."""

    def interrupted(_: Request) -> Reply:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        play([cut("a "), interrupted], mode="task")
    result = raised.value.turn_result  # type: ignore[attr-defined]
    assert (result.status, result.complete, result.messages[-1].text) == ("stopped", False, "a ")
