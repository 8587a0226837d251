"""A response that is repeated in a turn does not run its tools again."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.calls.outcomes import TurnOutcome
from endturn.calls.records import DispatchBlocked
from endturn.continuation.controller import ContinuationController
from endturn.continuation.policy import ContinuationPolicy
from endturn.vocabulary.messages import ChatResponse, ToolCall
from tests.support.turns import SEARCH, Played, ask, call, calling, heard, said


def played(*script: ChatResponse, **policy: Any) -> tuple[list[str], Any, list[Any]]:
    """Return the calls that ran, the result, and the calls that were announced as blocked."""
    ran: list[str] = []

    def search(asked: ToolCall) -> str:
        ran.append(str(asked.arguments))
        return "found"

    with heard(DispatchBlocked) as blocked:
        result = ContinuationController(
            Played(*script), tools={"search": search}, policy=ContinuationPolicy(**policy)
        ).run(ask(tools=(SEARCH,)))
    return ran, result, blocked


FIRST = calling(call(), text="I look.", id="resp_1")


@pytest.mark.behaviour(37)
def test_a_replayed_response_ends_the_turn() -> None:
    """A cache returns it fifty times: its tool runs once, and the history has only the messages before the replay."""
    ran, result, blocked = played(*[FIRST] * 50)
    assert (len(ran), result.outcome, result.complete, result.requests) == (1, TurnOutcome.REPETITION, False, 2)
    assert [each.reason for each in blocked] == ["repeated"]
    assert [len(message.tool_calls) for message in result.messages if message.role == "assistant"] == [1, 0]


@pytest.mark.behaviour(37)
def test_a_replayed_batch_does_not_run_in_part() -> None:
    """A batch with a call that already ran is refused completely."""
    both = calling(call(), call(id="call_2", arguments='{"q": "y"}'), id="resp_1")
    ran, result, _ = played(FIRST, both)
    assert (len(ran), result.outcome) == (1, TurnOutcome.REPETITION)


@pytest.mark.behaviour(37)
def test_a_replayed_wrong_call_ends_the_turn() -> None:
    """It was answered with its error, which would otherwise repeat until the last iteration."""
    wrong = calling(call(name="gone"), id="resp_1")
    ran, result, _ = played(*[wrong] * 50)
    assert (ran, result.outcome, result.requests) == ([], TurnOutcome.REPETITION, 2)


@pytest.mark.behaviour(37)
@pytest.mark.parametrize(
    ("second", "policy"),
    [
        (calling(call(), id="resp_2"), {}),
        (calling(call(arguments='{"q": "y"}'), id="resp_1"), {}),
        (calling(call(id="call_2"), id="resp_1"), {}),
        (FIRST, {"rerun_calls": True}),
    ],
    ids=["another response", "other arguments", "another id", "it is wanted"],
)
def test_another_call_with_the_same_id_runs(second: ChatResponse, policy: dict[str, Any]) -> None:
    """Some servers number calls per response (llama.cpp, some gateways), or give all responses the same id."""
    ran, result, blocked = played(FIRST, second, said("Done."), **policy)
    assert (len(ran), result.outcome, blocked) == (2, TurnOutcome.COMPLETED, [])


@pytest.mark.behaviour(37)
def test_responses_without_an_id_are_no_replay() -> None:
    """Ollama's have none, and the same tool call may be intended twice."""
    ran, result, _ = played(calling(call()), calling(call()), said("Done."))
    assert (len(ran), result.outcome) == (2, TurnOutcome.COMPLETED)


RANDOM = "call_9fK2mQx7Lp3sT1vZ"


@pytest.mark.behaviour(37)
@pytest.mark.parametrize("arguments", ['{"q": "x"}', '{"q": "another"}'])
def test_a_random_id_runs_once(arguments: str) -> None:
    """No other call can have it, in whatever response and with whatever arguments."""
    again = calling(call(id=RANDOM, arguments=arguments), id="resp_2")
    ran, result, blocked = played(calling(call(id=RANDOM), id="resp_1"), again, said("Done."))
    assert (len(ran), result.outcome) == (1, TurnOutcome.REPETITION)
    assert [each.reason for each in blocked] == ["repeated"]
