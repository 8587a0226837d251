"""The presets: each source's own behaviour, scenario by scenario, through the controller and over real formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from endturn.calls.records import ContinuationAttempted
from endturn.continuation.controller import ContinuationController
from endturn.continuation.policy import ContinuationPolicy, presets
from endturn.errors import UsageError
from endturn.testing.scripted import Ending, Reply, ScriptedProvider
from endturn.vocabulary.messages import ChatResponse, ToolCall, Usage
from endturn.vocabulary.stop import StopReason
from endturn.vocabulary.tsv import read_tsv
from tests.support.turns import NOW, SEARCH, Played, ask, heard, said
from tests.turns.record import response

REQUEST = ask(tools=(SEARCH, NOW))
JSON = REQUEST.but(tools=(), format={"type": "object", "properties": {"a": {"type": "integer"}}})
SCENARIOS: Final[dict[str, list[dict[str, Any]]]] = json.loads(
    Path(__file__).with_name("scenarios.json").read_text("utf-8")
)
"""What a provider says, call by call, in the words of tests/turns; then it says "never"."""


class Row(NamedTuple):
    """The behaviour of a source design in a scenario, from presets.tsv."""

    scenario: str
    preset: str
    sent: str
    ran: str
    outcome: str
    source: str


ROWS: Final = [Row(*cells) for _, cells in read_tsv(Path(__file__).parent, "presets.tsv", range(6, 7))]
UNSAID: Final = {
    "openai_chat": {"context window exceeded", "pause_turn"},
    "anthropic": {"filtered"},
    "bedrock_converse": {"pause_turn", "refusal", "text cut, and the rest is refused"},
    "openai_responses": {"pause_turn", "stop with calls", "tool_call without calls"},
}
"""Real formats, and which of the scenarios they have no words for."""
IN_STREAMS = {"missing terminal", "missing terminal with a call", "tool_call with invalid JSON"}
"""What no whole body says: half of one is an error, and some hold objects."""


def reply(says: ChatResponse) -> Reply:
    """Return the scripted reply in a format."""
    stop, usage = says.stop, says.usage
    reason = stop.promoted_from or stop.reason
    return Reply(
        text=says.text,
        reasoning=says.reasoning,
        calls=says.tool_calls,
        stop="some_new_value" if reason is StopReason.UNKNOWN else reason,
        ending=Ending.COMPLETE if stop.terminal_seen else Ending.TIDY,
        usage=Usage(5, REQUEST.max_tokens) if stop.suspected else usage,
    )


def play(row: Row, over: str = "", *, stream: bool) -> dict[str, Any]:
    """Play a scenario with a provider function, or with a server of a format."""
    script, ran = [*map(response, SCENARIOS[row.scenario]), said("never")], list[str]()
    provider: Any = (
        ScriptedProvider([*map(reply, script)], format=over) if over else Played(*script, chunk=5 if stream else None)
    )

    def run(asked: ToolCall) -> str:
        ran.append(asked.id)
        return "found"

    controller = ContinuationController(
        provider.stream if over and stream else provider,
        tools={"search": run, "now": run},
        format=over or "anthropic",
        policy=ContinuationPolicy.preset(row.preset),
    )
    with heard(ContinuationAttempted) as attempts:
        result = controller.run(JSON if row.scenario.startswith("JSON") else REQUEST)
    strategies = (attempt.continuation.strategy.value for attempt in attempts)
    answers = [request.messages[-1] for request in provider.requests[1:]]
    sent = [next(strategies) if each.role != "tool" else ("errors" if each.is_error else "results") for each in answers]
    answered = {message.tool_call_id for message in result.tool_results}
    assert {each.id for message in result.messages for each in message.tool_calls} <= answered
    for message in result.messages:
        blocks = json.dumps(message.blocks and message.blocks.items)
        assert message.tool_calls or not any(f'"{name}"' in blocks for name in ("search", "now"))
    assert result.complete is (result.outcome == "completed")
    return {
        "sent": " ".join(sent),
        "ran": " ".join(ran),
        "outcome": result.outcome.value,
        "text": result.text,
        "history": [(message.role, message.text) for message in result.segments],
        "notice": result.notice,
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.preset}: {row.scenario} ({row.source})")
def test_a_preset_does_what_its_source_does(row: Row) -> None:
    """Requests, tool runs and outcomes agree over every format; calls that did not run are in no history."""
    for stream in (True, False):
        played = play(row, stream=stream)
        assert (played["sent"], played["ran"], played["outcome"]) == (row.sent, row.ran, row.outcome)
        for over, unsaid in UNSAID.items():
            if row.scenario not in unsaid and (stream or row.scenario not in IN_STREAMS):
                assert (over, play(row, over, stream=stream)) == (over, played)


def test_every_source_design_covers_every_scenario() -> None:
    cells = [(row.scenario, row.preset) for row in ROWS]
    assert sorted(cells) == sorted((scenario, preset) for scenario in SCENARIOS for preset in presets())


LIMITS = json.loads(Path(__file__).with_name("limits.json").read_text("utf-8"))


@pytest.mark.parametrize(("name", "keys"), LIMITS.items(), ids=LIMITS)
def test_the_limits_of_a_preset_are_its_designs(name: str, keys: dict[str, Any]) -> None:
    assert ContinuationPolicy.preset(name).model_dump().items() >= keys.items()


# --- By name ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", presets())
def test_a_preset_is_found_by_its_name(name: str) -> None:
    """It is the same from code, from a variable and as a key, and has every key of its table."""
    policy = ContinuationPolicy.preset(name)
    assert ContinuationPolicy.load(environ={"ENDTURN_AGENT_PRESET": name}) == policy
    assert ContinuationPolicy.load(environ={}, preset=name) == policy
    assert policy.model_dump(mode="json").items() >= presets()[name].items()
    assert policy.model_fields_set == presets()[name].keys()


@pytest.mark.parametrize("name", ["claude", "ZeroClaw", "", 3, ["wave"]])
def test_an_unknown_name_is_rejected_with_the_allowed_names(name: object) -> None:
    with pytest.raises(UsageError, match="the presets are: anthropic, botnexus, forgeflare, wave, zeroclaw"):
        ContinuationPolicy.preset(name)  # type: ignore[arg-type]
