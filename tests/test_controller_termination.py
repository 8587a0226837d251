"""Turns that the model ends on purpose, or that are found to be over."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from endturn.chat import ChatResponse, Delta, Request, Tool, ToolCall
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.termination import (
    FINISH_RESPONSE,
    FINISH_TASK,
    IMPLICIT,
    Finish,
    Mode,
    finish_task,
)
from endturn.continuation.tool_gate import Fault, parse
from endturn.controller import ContinuationController, TurnResult
from endturn.events import Record, TerminationSignalled, ToolEnded, TurnEnded
from tests.support.turns import NOW, SEARCH, Played, ask, call, calling, cut, heard, said

LONG = "Here is all that I found."
TOOLS = [(SEARCH, lambda asked: f"found {asked.arguments['q']}"), (NOW, lambda _: "noon")]


def finishing(arguments: str = '{"summary": "s"}', name: str = "finish_task", id: str = "f") -> ToolCall:
    """A call of a tool that ends a turn."""
    return call(name, arguments, id=id)


def play(
    *script: ChatResponse | BaseException,
    tools: Any = TOOLS,
    request: Request | None = None,
    chunk: int | None = None,
    **policy: Any,
) -> tuple[Played, TurnResult, str]:
    """One streamed turn in task mode, unless said otherwise; with all that the consumer was shown."""
    provider = Played(*script, chunk=chunk)
    controller = ContinuationController(provider, tools=tools, policy=ContinuationPolicy(**{"mode": "task", **policy}))
    *shown, result = controller.stream(request or ask())
    assert isinstance(result, TurnResult)
    assert not provider.script, "fewer requests than responses"
    text = "".join(delta.text for delta in shown if isinstance(delta, Delta))
    assert text == result.text
    return provider, result, text


def end(records: list[Record]) -> TurnEnded:
    """How the turn was announced to have ended."""
    [ended] = [record for record in records if isinstance(record, TurnEnded)]
    return ended


# --- The tool is offered ------------------------------------------------------------------------------------------


@pytest.mark.behaviour(39)
@pytest.mark.parametrize(("mode", "tool"), [("response", FINISH_RESPONSE), ("task", FINISH_TASK)])
def test_a_mode_offers_its_tool_after_the_others(mode: Mode, tool: Any) -> None:
    """A policy with a mode is enough; the host's tools come first, unchanged."""
    provider, _, _ = play(said(LONG), mode=mode)
    assert provider.requests[0].tools == (SEARCH, NOW, tool)
    provider, _, _ = play(said(LONG), mode=mode, tools={}, request=ask(tools=(tool,)))
    assert provider.requests[0].tools == (tool,)


@pytest.mark.behaviour(39)
def test_a_host_that_runs_its_tools_itself_is_offered_nothing() -> None:
    """Nothing changes: its request goes out as it is, and an answer completes the turn."""
    request = ask(tools=(SEARCH,))
    provider, result, _ = play(said(""), tools=None, request=request)
    assert provider.requests == [request]
    assert (result.outcome, result.status, result.finish) == ("completed", "completed", None)


@pytest.mark.behaviour(39)
def test_a_host_that_runs_its_tools_itself_can_offer_one() -> None:
    """The calls are handed over, and the result says what they mean."""
    request = ask(tools=(SEARCH, FINISH_TASK))
    _, result, _ = play(calling(call(), finishing()), tools=None, request=request)
    assert [asked.name for asked in result.calls] == ["search", "finish_task"]
    assert (result.status, result.finish) == ("pending_review", Finish("finish_task", "done", "s"))


@pytest.mark.behaviour(39)
def test_the_hosts_own_function_wins() -> None:
    """And where it raises, the model is told, and the turn goes on."""
    refused = iter([True, False])

    def own(asked: ToolCall) -> str:
        if next(refused):
            raise RuntimeError("the tests have not been run")
        return finish_task(asked)

    provider, result, _ = play(
        calling(finishing()), calling(finishing(id="g")), tools={"finish_task": own}, request=ask()
    )
    assert provider.requests[1].messages[-1].content == "RuntimeError: the tests have not been run"
    assert result.status == "pending_review"
    assert [answer.is_error for answer in result.tool_results] == [True, False]


@pytest.mark.behaviour(39)
def test_without_a_mode_the_tools_are_tools_like_any_other() -> None:
    """Nothing ends by them, and nothing is offered."""
    tools = [*TOOLS, (FINISH_TASK, finish_task)]
    provider, result, _ = play(calling(finishing()), said(""), tools=tools, mode=None)
    assert len(provider.requests) == 2
    assert (result.outcome, result.status, result.finish) == ("completed", "completed", None)


# --- The model says that it is done -------------------------------------------------------------------------------


@pytest.mark.behaviour(40)
def test_a_response_ends_completed() -> None:
    """The other mode of the source design: nothing waits for review."""
    with heard(TerminationSignalled) as records:
        _, result, _ = play(calling(finishing(name="finish_response"), text=LONG), mode="response")
    assert (result.outcome, result.status, result.complete) == ("completed", "completed", True)
    assert result.finish == Finish("finish_response", "done", "s")
    assert [answer.content for answer in result.tool_results] == ["Response complete. Summary: s"]
    assert [(record.signal, record.status, record.requires_review) for record in records] == [
        ("finish_response", "done", False)
    ]


@pytest.mark.behaviour(39)
def test_the_batch_is_run_whole_before_the_turn_ends() -> None:
    """Calls before and after the one that ends the turn run, and are recorded."""
    batch = calling(call(), finishing(), call("now", "{}", id="call_2"))
    with heard(ToolEnded) as ran:
        provider, result, _ = play(batch)
    assert [record.started.name for record in ran] == ["search", "finish_task", "now"]
    assert [answer.tool_call_id for answer in result.messages[-3:]] == ["call_1", "f", "call_2"]
    assert len(provider.requests) == 1


@pytest.mark.behaviour(39)
def test_of_several_the_first_counts() -> None:
    """As in the source design."""
    first, second = finishing('{"status": "partial"}'), finishing('{"status": "done"}', id="g")
    _, result, _ = play(calling(first, second))
    assert result.finish == Finish("finish_task", "partial")


@pytest.mark.behaviour(39)
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [(SEARCH, '"x"'), (SEARCH, "x"), (FINISH_TASK.but(parameters=SEARCH.parameters), '"x"'),
     (FINISH_TASK, '["x"]'), (FINISH_TASK, "7"), (FINISH_TASK, "null")],
    ids=["search", "plain text", "the host's own", "a list", "a number", "null"],
)  # fmt: skip
def test_any_other_call_needs_an_object(tool: Tool, arguments: str) -> None:
    """Nor is it taken for another tool, or another declaration."""
    refused = parse(call(tool.name, arguments), {tool.name: tool})
    assert isinstance(refused, Fault)
    assert refused.issue == "invalid_json"


@pytest.mark.behaviour(40)
@pytest.mark.parametrize(("mode", "status"), [("response", "max_iterations"), ("task", "iterations_exceeded")])
def test_the_limit_of_calls(mode: Mode, status: str) -> None:
    """One outcome, the mode's word for it; the tool in the last call that is allowed still counts."""
    name = "finish_response" if mode == "response" else "finish_task"
    with heard(TerminationSignalled) as records:
        _, result, _ = play(calling(call()), calling(call("now", "{}")), mode=mode, max_iterations=2)
        assert (result.outcome, result.status, result.complete) == ("max_iterations", status, False)
        assert result.finish is None
        assert records == []
        _, result, _ = play(calling(call()), calling(finishing(name=name)), mode=mode, max_iterations=2)
    assert result.outcome == "completed"


# --- The wallet guard ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour(41)
@pytest.mark.parametrize("mode", ["response", "task"])
@pytest.mark.parametrize("chunk", [None, 3])
def test_an_answer_without_action_is_an_implicit_completion(mode: Mode, chunk: int | None) -> None:
    """One call, the answer as it is, and the end announced with the rule that found it."""
    with heard() as records:
        _, result, _ = play(said(LONG), mode=mode, chunk=chunk)
    status = "implicit_completion" if mode == "task" else "completed"
    assert (result.outcome, result.status, result.complete) == ("implicit_completion", status, True)
    assert (result.text, result.answer, result.notice) == (LONG, LONG, None)
    assert result.finish == Finish(IMPLICIT, "no_action")
    [signalled] = [record for record in records if isinstance(record, TerminationSignalled)]
    assert (signalled.signal, signalled.status, signalled.iteration) == ("implicit_completion", "no_action", 1)
    assert signalled.requires_review == (mode == "task")
    assert (end(records).outcome, end(records).complete) == ("implicit_completion", True)


@pytest.mark.behaviour(41)
def test_a_cut_answer_is_judged_when_it_is_whole() -> None:
    """Continued first; short as it may be, it is not asked for again, for half of it is in the history."""
    _, result, _ = play(cut("Hello, wo"), said("rld, and all that."))
    assert (result.text, result.outcome) == ("Hello, world, and all that.", "implicit_completion")
    _, result, _ = play(cut("a"), said("b"))
    assert (result.text, result.outcome, result.continuations) == ("ab", "implicit_completion", 1)


@pytest.mark.behaviour(41)
@pytest.mark.parametrize("chunk", [None, 1])
def test_trivial_answers_are_asked_again_and_the_third_ends_the_turn(chunk: int | None) -> None:
    """As ordinary calls, with the same question; the third is the answer, the others leave no trace."""
    with heard(TerminationSignalled) as records:
        provider, result, _ = play(said("hm"), said(""), said("42"), chunk=chunk)
    assert provider.requests[0] == provider.requests[1] == provider.requests[2]
    assert (result.outcome, result.text, result.iterations, result.continuations) == (
        "implicit_completion", "42", 3, 0,
    )  # fmt: skip
    assert result.messages == (*ask().messages, said("42").message())
    assert result.usage.output_tokens == 30
    assert [(record.signal, record.status, record.iteration) for record in records] == [
        ("implicit_completion", "trivial", 3)
    ]


@pytest.mark.behaviour(41)
@pytest.mark.parametrize("chunk", [None, 1])
def test_a_trivial_answer_may_be_followed_by_a_better_one(chunk: int | None) -> None:
    """Text, or calls; whatever short text comes with those is kept."""
    _, result, _ = play(said("ok"), said(LONG), chunk=chunk)
    assert (result.text, result.finish) == (LONG, Finish(IMPLICIT, "no_action"))
    _, result, _ = play(
        said("ok"), calling(call(), text="Well: "), said(""), cut("So"), calling(finishing(), text=" be it."),
        chunk=chunk,
    )  # fmt: skip
    assert (result.text, result.status) == ("Well: So be it.", "pending_review")


@pytest.mark.behaviour(41)
def test_short_text_is_held_back_until_it_says_something() -> None:
    """Ten characters are enough; the rest streams as it comes."""
    controller = ContinuationController(
        Played(said("0123456789abc"), chunk=1), tools=TOOLS, policy=ContinuationPolicy(mode="response")
    )
    provider = controller._provider
    with closing(controller.stream(ask())) as items:  # type: ignore[type-var]
        first = [next(items) for _ in range(11)]
    assert isinstance(provider, Played)
    assert [item.text for item in first if isinstance(item, Delta)] == [*"0123456789", "a"]


@pytest.mark.behaviour(41)
def test_an_echo_and_a_repetition_end_the_turn_after_the_tools() -> None:
    """The calls are run and recorded; then the turn is over."""
    script = [calling(call(), text="Searching now."), calling(call(), text="found x, for certain")]
    tools = [(SEARCH, lambda _: "found x, for certain")]
    _, result, _ = play(*script, tools=tools)
    assert (result.outcome, result.finish) == ("implicit_completion", Finish(IMPLICIT, "echo"))
    assert (len(result.tool_results), result.answer) == (2, "found x, for certain")
    again = calling(call(), text="Searching now.")
    _, result, _ = play(again, again)
    assert (result.finish, len(result.tool_results)) == (Finish(IMPLICIT, "repeated"), 2)
    wrong = calling(call("search", "{}"), text="Searching now.")
    _, result, _ = play(wrong, wrong)
    assert result.finish == Finish(IMPLICIT, "repeated")


@pytest.mark.behaviour(41)
def test_trivial_answers_are_calls_of_the_loop_like_any_other() -> None:
    """They count against its limit, and what there is, is kept."""
    provider, result, _ = play(said("hm"), said("42"), max_iterations=2)
    assert len(provider.requests) == 2
    assert (result.outcome, result.status, result.text) == ("max_iterations", "iterations_exceeded", "42")
    assert result.messages[-1] == said("42").message()


@pytest.mark.behaviour(41)
def test_calls_alone_may_be_repeated() -> None:
    """A model that polls says nothing beside its calls."""
    again = [calling(call("now", "{}", id=f"c{n}")) for n in range(5)]
    _, result, _ = play(*again, calling(finishing()))
    assert result.status == "pending_review"


@pytest.mark.behaviour(41)
def test_without_the_guard_an_answer_is_taken_at_its_word() -> None:
    """It completes the turn, unless there is none; repetitions go on."""
    _, result, _ = play(said("ok"), wallet_guard=False)
    assert (result.outcome, result.status, result.finish) == ("completed", "completed", None)
    _, result, _ = play(said(""), wallet_guard=False)
    assert (result.outcome, result.status) == ("empty_response", "llm_empty_response_error")
    again = calling(call(), text="Searching now.")
    _, result, _ = play(again, again, calling(finishing()), wallet_guard=False)
    assert result.status == "pending_review"


@pytest.mark.behaviour(41)
def test_an_answer_in_json_is_not_trivial() -> None:
    """However short, it is what was asked for."""
    _, result, _ = play(said("{}"), request=ask(format={"type": "json_object"}))
    assert (result.text, result.outcome) == ("{}", "implicit_completion")
