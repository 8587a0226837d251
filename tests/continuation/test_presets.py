"""The presets: each source's own behaviour, scenario by scenario, through the controller."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from endturn.chat import ToolCall
from endturn.continuation.policy import ContinuationPolicy, presets
from endturn.controller import ContinuationController
from endturn.errors import UsageError
from endturn.events import ContinuationAttempted
from endturn.tables import lines
from tests.support.turns import NOW, SEARCH, Played, ask, heard, said
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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.preset}: {row.scenario} ({row.source})")
def test_a_preset_does_what_its_source_does(row: Row) -> None:
    """What is sent, what runs, how the turn ends; nothing that did not run can be replayed."""
    provider, ran = Played(*map(response, SCENARIOS[row.scenario]), said("never")), list[str]()

    def run(asked: ToolCall) -> str:
        ran.append(asked.id)
        return "found"

    policy = ContinuationPolicy.preset(row.preset)
    controller = ContinuationController(provider, tools={"search": run, "now": run}, format="anthropic", policy=policy)
    with heard(ContinuationAttempted) as attempts:
        result = controller.run(JSON if row.scenario.startswith("JSON") else REQUEST)
    strategies = (attempt.continuation.strategy.value for attempt in attempts)
    answers = [request.messages[-1] for request in provider.requests[1:]]
    sent = [next(strategies) if each.role != "tool" else ("errors" if each.is_error else "results") for each in answers]
    assert (" ".join(sent), " ".join(ran), result.outcome.value) == (row.sent, row.ran, row.outcome)
    answered = {message.tool_call_id for message in result.tool_results}
    assert {each.id for message in result.messages for each in message.tool_calls} <= answered
    assert result.complete is (row.outcome == "completed")


def test_every_source_is_asked_about_every_scenario() -> None:
    cells = [(row.scenario, row.preset) for row in ROWS]
    assert sorted(cells) == sorted((scenario, preset) for scenario in SCENARIOS for preset in presets())


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
