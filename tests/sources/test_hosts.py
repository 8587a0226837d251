"""What the designs ask of a host's side: stored messages, transcripts, tools of its own, logs."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from endturn import (
    ContinuationController,
    ContinuationPolicy,
    Message,
    ScriptedProvider,
    StopReason,
    Tool,
    UsageError,
)
from endturn.scripted import Ending, Reply, call, partial_call, reason, say
from endturn.transcript import recover
from tests.support.processes import REPOSITORY
from tests.support.scripted_turns import (
    DEPLOY,
    SEARCH,
    ask,
    calls_in,
    cut,
    every_format,
    lines,
    play,
    whole_and_streamed,
)

# --- What a host stores -------------------------------------------------------------------------------------------

WHOLE_CALL = call("search", {"q": "x"}, text="So: ")
CUT_CALLS = {
    "cut off": partial_call("deploy", {"now": True}, after=1, text="So: "),
    "whole, of a cut response": call("deploy", {"now": True}, text="So: ").but(stop=StopReason.MAX_TOKENS),
    "of a lost stream": partial_call("deploy", {"now": True}, after=1, text="So: ").but(ending=Ending.TIDY),
}


@every_format
@pytest.mark.parametrize(("name", "stream"), [*((name, True) for name in CUT_CALLS), ("cut off", False)])
def test_the_message_of_a_response_leaves_cut_calls_out(format_name: str, name: str, stream: bool) -> None:
    """Without a controller too, what is stored cannot be run or sent again: no mirror of it has the call."""
    provider = ScriptedProvider([CUT_CALLS[name], WHOLE_CALL], format=format_name)
    request = ask(tools=(SEARCH, DEPLOY))
    response: Any = list(provider.stream(request))[-1] if stream else provider.complete(request)
    message = response.message()
    assert calls_in([message]) == []
    assert (message.text, message.stop_reason) == ("So: ", response.stop_reason)
    assert calls_in([response.message(include_cut=True)]) == ["deploy"]
    whole = provider.complete(ask().but(messages=(*ask().messages, message, Message(role="user", content="And?"))))
    assert "deploy" not in json.dumps(provider.received[-1].body)
    assert (whole.message().tool_calls, whole.message().blocks) == (whole.tool_calls, whole.blocks)


@every_format
def test_what_is_read_back_holds_no_call_that_did_not_run(format_name: str, tmp_path: Path) -> None:
    """The transcript keeps the response as it came; the messages made of it, and what takes it up, do not hold it."""
    path = tmp_path / "turns.jsonl"
    play([WHOLE_CALL.but(stop=StopReason.MAX_TOKENS)], preset="botnexus", format_name=format_name, transcript=path)
    assert "search" in path.read_text()
    (turn,) = recover(path)
    assert (turn.text, calls_in(turn.messages), calls_in(turn.segments)) == ("So: ", [], [])


_DIES = """
import os, sys
from endturn import ContinuationController, ContinuationPolicy, Message, Request, ScriptedProvider
from endturn.scripted import reason
provider = ScriptedProvider([reason("length", "Hello, wo"), lambda request: os._exit(9)])
question = Message(role="user", content="Why?")
controller = ContinuationController(provider, policy=ContinuationPolicy(transcript=sys.argv[1]))
controller.run(Request(model="m", messages=(question,), max_tokens=100))
"""


def test_a_process_that_dies_in_a_continuation_has_written_its_prompt(tmp_path: Path) -> None:
    """Each message stands before the call that it goes with; the turn is taken up, with one prompt."""
    path = tmp_path / "turns.jsonl"
    done = subprocess.run([sys.executable, "-c", _DIES, str(path)], cwd=REPOSITORY, check=False, timeout=60)
    assert done.returncode == 9
    assert path.read_text().count("Do not repeat already-sent text.") == 1
    (turn,) = recover(path)
    assert (turn.ended, turn.damaged, turn.text) == (False, False, "Hello, wo")
    assert [message.text for message in turn.messages] == ["Why?", "Hello, wo"]
    provider = ScriptedProvider([say("rld.")])
    result = ContinuationController(provider).run(turn.resume())
    assert (result.text, result.outcome) == ("Hello, world.", "completed")
    why, begun, prompt = [message.text for message in provider.requests[0].messages]
    assert (why, begun, prompt[:35]) == ("Why?", "Hello, wo", "Previous response was truncated by ")
    assert [message.text for message in result.messages] == ["Why?", "Hello, world."]


# --- Turns one after the other, and turns that are stopped --------------------------------------------------------


def test_the_count_outlives_tools_and_begins_anew_with_new_input() -> None:
    """Tool results do not reset it, and a dispatch does not raise it; the next turn has three again."""
    script = [cut("a "), call("search", {"q": "x"}), cut("b "), cut("c "), cut("d "), *(cut(f"{n} ") for n in "efgh")]
    provider = ScriptedProvider(script)
    policy = ContinuationPolicy.preset("forgeflare")
    controller = ContinuationController(provider, tools=[(SEARCH, lambda _: "found")], policy=policy)
    for asked in (5, 9):
        assert controller.run(ask()).continuations == 3
        assert len(provider.requests) == asked


def test_a_turn_that_is_stopped_says_so() -> None:
    """An interrupt carries the turn's result."""

    def interrupted(_: object) -> Reply:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        play([cut("a "), interrupted], mode="task")
    result = raised.value.turn_result  # type: ignore[attr-defined]
    assert (result.status, result.complete, result.messages[-1].text) == ("stopped", False, "a ")


# --- Tools of the host's own --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["response", "task"])
@pytest.mark.parametrize("guard", [True, False], ids=["guarded", "unguarded"])
@whole_and_streamed
def test_a_terminator_whose_function_raised_ends_nothing(mode: str, guard: bool, stream: bool) -> None:
    """It is answered with an error, the loop goes on, and the next one counts."""
    first = iter([True])

    def function(_: object) -> str:
        if next(first, False):
            raise RuntimeError("not yet")
        return "ended"

    ends = call(f"finish_{mode}", {"summary": "now"})
    provider = ScriptedProvider([ends, ends])
    tools = [(play([say("Yes, it is done.")], mode=mode).requests[0].tools[-1], function)]
    policy = ContinuationPolicy(mode=mode, wallet_guard=guard)
    result = ContinuationController(provider.stream if stream else provider, tools=tools, policy=policy).run(ask())
    assert [message.is_error for message in result.tool_results] == [True, False]
    assert (len(provider.requests), result.finish is not None, result.complete) == (2, True, True)


FINISH_TASK = Tool(name="finish_task", parameters={"type": "object", "properties": {"summary": {"type": "string"}}})


@pytest.mark.parametrize(
    ("settings", "tools", "told"),
    [
        pytest.param({"policy": ContinuationPolicy(mode="task")}, (), "finish_task", id="a mode without its tool"),
        pytest.param({"tools": {"serch": lambda _: ""}}, (SEARCH,), "serch", id="a function without its tool"),
        pytest.param({"policy": ContinuationPolicy(mode="task")}, (FINISH_TASK,), "", id="a host that offers it"),
    ],
)
def test_what_can_have_no_effect_is_told(
    settings: dict[str, Any], tools: tuple[Tool, ...], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By a warning of the logger `endturn`, or as a mistake, with the tool's name; a host that offers it is not."""
    caplog.set_level(logging.WARNING, "endturn")
    said = []
    try:
        provider = ScriptedProvider(say("All of it.") if told else call("finish_task", {"summary": "s"}))
        result = ContinuationController(provider, **settings).run(ask(tools=tools))
        assert told or [asked.name for asked in result.calls] == ["finish_task"]
    except UsageError as error:
        said = [str(error)]
    said += lines(caplog, logging.WARNING)
    assert any(told in line for line in said) if told else not said


# --- Logs -----------------------------------------------------------------------------------


def test_an_unknown_reason_is_logged_once_without_telemetry(caplog: pytest.LogCaptureFixture) -> None:
    """Once for each provider, model and value, with the value itself."""
    caplog.set_level(logging.DEBUG, "endturn")
    for model, value in (("drift-1", "halted"), ("drift-1", "halted"), ("drift-1", "parked"), ("drift-2", "halted")):
        assert play([reason(value, "So.")], request=ask(model=model)).result.outcome == "unknown_reason"
    assert [sum(value in line for line in lines(caplog)) for value in ("halted", "parked")] == [2, 1]
