"""The presets: each source's own behaviour, scenario by scenario, through the controller."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from endturn.chat import Message, Request, ToolCall
from endturn.continuation.policy import PROMPT, ContinuationPolicy, presets
from endturn.controller import ContinuationController, TurnResult
from endturn.errors import UsageError
from endturn.events import ContinuationAttempted
from endturn.stop import StopReason
from endturn.tables import lines
from tests.support.turns import NOW, SEARCH, Played, ask, call, calling, heard, said
from tests.turns.record import response

REQUEST = ask(tools=(SEARCH, NOW))
JSON = REQUEST.but(tools=(), format={"type": "object", "properties": {"a": {"type": "integer"}}})
SCENARIOS: Final[dict[str, list[dict[str, Any]]]] = json.loads(
    Path(__file__).with_name("scenarios.json").read_text("utf-8")
)
"""What a provider says, call by call, in the words of tests/turns; then it says "never"."""


class Row(NamedTuple):
    """What a source does in a scenario, as presets.tsv has it."""

    scenario: str
    preset: str
    sent: str
    ran: str
    outcome: str
    source: str


ROWS: Final = [Row(*cells) for _, cells in lines(Path(__file__).parent, "presets.tsv", range(6, 7))]


def play(name: str, policy: ContinuationPolicy) -> tuple[Played, TurnResult, list[str], list[str]]:
    """One turn: the provider, the result, what followed the first request, and the ids of the calls that ran."""
    provider, ran = Played(*map(response, SCENARIOS[name]), said("never")), list[str]()

    def run(asked: ToolCall) -> str:
        ran.append(asked.id)
        return "found"

    tools = {"search": run, "now": run}
    controller = ContinuationController(provider, tools=tools, format="anthropic", policy=policy)
    with heard(ContinuationAttempted) as attempts:
        result = controller.run(JSON if name.startswith("JSON") else REQUEST)
    asked = iter(attempts)
    sent = []
    for request in provider.requests[1:]:
        last = request.messages[-1]
        if last.role == "tool":
            sent.append("errors" if last.is_error else "results")
        else:
            sent.append(next(asked).continuation.strategy.value)
    return provider, result, sent, ran


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.preset}: {row.scenario} ({row.source})")
def test_a_preset_does_what_its_source_does(row: Row) -> None:
    """What is sent, what runs, how the turn ends; nothing that did not run can be replayed."""
    _, result, sent, ran = play(row.scenario, ContinuationPolicy.preset(row.preset))
    assert (" ".join(sent), " ".join(ran), result.outcome.value) == (row.sent, row.ran, row.outcome)
    answered = {message.tool_call_id for message in result.tool_results}
    assert {each.id for message in result.messages for each in message.tool_calls} <= answered
    assert result.complete is (row.outcome == "completed")


def test_every_source_is_asked_about_every_scenario() -> None:
    cells = [(row.scenario, row.preset) for row in ROWS]
    assert sorted(cells) == sorted((scenario, preset) for scenario in SCENARIOS for preset in presets())


def test_the_prompts_are_the_sources() -> None:
    """Four lines, or one; always the last user message."""
    for name, prompt in (("zeroclaw", PROMPT), ("forgeflare", "Continue from where you left off."), ("wave", PROMPT)):
        provider, *_ = play("text cut", ContinuationPolicy.preset(name))
        assert provider.requests[1].messages[-1] == Message(role="user", content=prompt, synthetic=True)


@pytest.mark.behaviour(22, 25)
def test_parts_stay_apart_however_they_were_asked_for_and_are_joined_when_they_are_sent_again() -> None:
    """A policy that keeps parts keeps those of a pause too; an empty one is none. A provider is sent one message."""
    _, result, *_ = play("pause_turn", ContinuationPolicy.preset("forgeflare", continuation_max_resumes=1))
    assert [message.text for message in result.messages] == ["hi", "Look", " here."]
    again = (*result.messages, Message(role="user", content="And?"))
    provider = Played(said("So."))
    ContinuationController(provider, policy=ContinuationPolicy.preset("forgeflare")).run(
        Request(model="m", messages=again)
    )
    assert [message.text for message in provider.requests[0].messages] == ["hi", "Look here.", "And?"]
    _, result, *_ = play("empty max_tokens", ContinuationPolicy.preset("forgeflare"))
    assert [message.text for message in result.messages] == ["hi"]


@pytest.mark.behaviour(38)
def test_calls_that_a_policy_does_not_promote_are_answered_by_nobody_and_not_replayed() -> None:
    """A clean stop ends the turn with its text; the record of it has no call, the stop says what happened."""
    _, result, *_ = play("stop with calls", ContinuationPolicy.preset("anthropic"))
    assert (result.text, result.messages[-1].tool_calls, result.messages[-1].blocks) == ("So: ", (), None)
    assert result.stop is not None
    assert result.stop.promoted_from is StopReason.END_TURN


@pytest.mark.behaviour(4)
def test_a_null_reason_is_no_end_where_it_is_not_promoted() -> None:
    """Complete calls without any reason are not run, and the turn is not called complete."""
    silent = calling(call(), text="So: ").with_stop(promoted_from=StopReason.MISSING, raw=None)
    controller = ContinuationController(
        Played(silent), tools={"search": lambda asked: "found"}, policy=ContinuationPolicy.preset("anthropic")
    )
    result = controller.run(REQUEST)
    assert (result.tool_results, result.outcome, result.complete) == ((), "stream_cut", False)


# --- By name ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", presets())
def test_a_preset_is_had_by_its_name(name: str) -> None:
    """From code, from a variable and as a key it is the same, and every key of its table is in it."""
    policy = ContinuationPolicy.preset(name)
    assert ContinuationPolicy.load(environ={"ENDTURN_AGENT_PRESET": name}) == policy
    assert ContinuationPolicy.load(environ={}, preset=name) == policy
    assert policy.model_dump(mode="json").items() >= presets()[name].items()
    assert policy.model_fields_set == presets()[name].keys()


@pytest.mark.parametrize("name", ["claude", "ZeroClaw", "", 3, ["wave"]])
def test_an_unknown_name_is_refused_with_the_names(name: object) -> None:
    with pytest.raises(UsageError, match="the presets are: anthropic, botnexus, forgeflare, wave, zeroclaw"):
        ContinuationPolicy.preset(name)  # type: ignore[arg-type]
