"""Agents that keep a log: what a scan reads in it is what was observed while the agent ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import litellm
import pytest
from inspect_ai import Task, eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

import endturn
from endturn.testing.scripted import ScriptedProvider, call, say, truncate
from tests.support.announced import observed
from tests.support.logged_calls import observed_calls, observed_turns, scanned

litellm.suppress_debug_info = True

DONE = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
LIMIT = 50


def test_a_trajectory_of_mini_swe_agent(tmp_path: Path) -> None:
    """A tool call, an answer that is cut and refused for its form, and the call that submits."""
    provider = ScriptedProvider(
        [call("bash", {"command": "echo hi"}), truncate("one two three four", after=2), call("bash", {"command": DONE})]
    )
    log = tmp_path / "run.traj.json"
    with provider.serve() as url, observed() as records:
        settings: dict[str, Any] = {"api_base": f"{url}/v1", "api_key": "none", "max_tokens": LIMIT, "max_retries": 0}
        model = LitellmModel(model_name="openai/m", model_kwargs=settings, cost_tracking="ignore_errors")
        agent = DefaultAgent(
            model, LocalEnvironment(), system_template="You help.", instance_template="{{task}}", output_path=log
        )
        endturn.observe_turn(agent="mini")(agent.run)("count")
    calls, turns = scanned([log])
    assert [logged.reason for logged in calls] == ["tool_call", "max_tokens", "tool_call"]
    assert calls == observed_calls(records)
    # the log says what the client asked for, and that the last tool call ended the turn; neither was observed
    assert turns == [turn._replace(complete=True) for turn in observed_turns(records)]


@tool
def weather() -> Tool:
    async def execute(city: str) -> str:
        """Tell the weather of a city.

        Args:
            city: Its name.
        """
        return f"sunny in {city}"

    return execute


@pytest.mark.parametrize(
    "reasons",
    [["max_tokens"], ["end_turn"], ["tool_call", "max_tokens"], ["tool_call", "tool_call", "end_turn"]],
    ids="-".join,
)
def test_an_evaluation_of_inspect(reasons: list[str], tmp_path: Path) -> None:
    """Of one sample, with tools and without."""
    replies = {
        "max_tokens": truncate("one two three four", after=2),
        "end_turn": say("all of it"),
        "tool_call": call("weather", {"city": "Oslo"}),
    }
    provider = ScriptedProvider([replies[reason] for reason in reasons])
    with provider.serve() as url, observed() as records:
        model = get_model(
            "openai-api/local/m", base_url=f"{url}/v1", api_key="none", config=GenerateConfig(max_tokens=LIMIT),
            memoize=False,
        )  # fmt: skip
        task = Task(dataset=[Sample(input="go")], solver=[use_tools(weather()), generate()])
        run = endturn.observe_turn(agent="inspect")(evaluate)
        (log,) = run(task, model=model, log_dir=str(tmp_path), display="none")
    assert log.status == "success"
    calls, turns = scanned([tmp_path])
    assert [logged.reason for logged in calls] == reasons
    # Inspect has words of its own for the reasons
    assert [logged._replace(raw=None) for logged in calls] == [
        logged._replace(raw=None) for logged in observed_calls(records)
    ]
    assert turns == observed_turns(records)
