"""OpenHands' SDK: what a scan reads in a conversation and its completions is what was observed while the agent ran."""

from __future__ import annotations

from pathlib import Path

import litellm
import pytest
from openhands.sdk import LLM, Agent, Conversation
from pydantic import SecretStr

import endturn
from endturn.testing.scripted import ScriptedProvider, call, say, truncate
from tests.support.announced import observed
from tests.support.logged_calls import observed_calls, observed_turns, scanned

litellm.suppress_debug_info = True

LIMIT = 50
REPLIES = {
    "max_tokens": truncate("one two three four", after=2),
    "end_turn": say("all of it"),
    "tool_call": call("think", {"thought": "hm"}),
}


@pytest.mark.parametrize("reasons", [["max_tokens"], ["end_turn"], ["tool_call", "max_tokens"]], ids="-".join)
def test_a_conversation(reasons: list[str], tmp_path: Path) -> None:
    provider = ScriptedProvider([REPLIES[reason] for reason in reasons])
    with provider.serve() as url, observed() as records:
        llm = LLM(
            model="openai/m", base_url=f"{url}/v1", api_key=SecretStr("none"), max_output_tokens=LIMIT, num_retries=0,
            log_completions=True, log_completions_folder=str(tmp_path / "completions"), usage_id="agent",
        )  # fmt: skip
        conversation = Conversation(
            agent=Agent(llm=llm, tools=[]), workspace=str(tmp_path), persistence_dir=str(tmp_path / "state"),
            visualizer=None,
        )  # fmt: skip
        conversation.send_message("go")
        endturn.observe_turn(agent="openhands")(conversation.run)()
        conversation.close()
    calls, turns = scanned([tmp_path / "state", tmp_path / "completions"])
    assert [logged.reason for logged in calls] == reasons
    assert calls == observed_calls(records)
    assert turns == observed_turns(records)
