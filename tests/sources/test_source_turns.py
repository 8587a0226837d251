"""The source designs' turns, as `turns/<design>.yaml` has them: what a provider says, and what has to become of it.

A row is one way of playing, or a list of several; `presets`, `formats`, `clients` (the vendors' SDKs), `models`,
`modes`, `streamed`, `policies` and `scripts` multiply it. A line of a script is a text that ends the turn,
`{cut: text}`, `{fail: status}`, or the members of a scripted reply; the third item of a call is how many tokens of its
arguments arrived, `tokens` are those that the provider counted, null where it does not say. What is expected is named
in `facts`, or is a member of the result, or of its `usage`; a mapping says what is in it (`has`, `lacks`, `begins`,
`one_of`, `some`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn import ContinuationPolicy, Message, StopReason, Usage
from endturn.scripted import Ending, Reply, call, fail, partial_call
from tests.support import scripted_turns as turns

HERE = Path(__file__).parent / "turns"
Row = Mapping[str, Any]


def reply(line: Any, mode: str) -> Reply:
    """A line of a script; a call of `finish` is one of the tool that ends a turn of the mode."""
    if isinstance(line, str):
        return Reply(text=line)
    if "fail" in line:
        return fail(line["fail"])
    calls = [
        (partial_call(name, given, after=arrived[0]) if arrived else call(name, given)).calls[0]
        for name, given, *arrived in line.get("calls", ())
    ]
    calls = [each.but(name=f"finish_{mode}") if each.name == "finish" else each for each in calls]
    stop = line.get("stop", "max_tokens" if "cut" in line else "tool_call" if calls else "end_turn")
    return Reply(
        text=line.get("cut", line.get("text", "")),
        calls=tuple(calls),
        stop=StopReason(stop) if stop in {*StopReason} else stop,
        ending=Ending(line.get("ending", "whole")),
        usage="counted" if "tokens" not in line else line["tokens"] and Usage(5, line["tokens"]),
    )


def ways(row: Row) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every way of playing a row: its name, and the arguments of `play`."""
    every = row.get("formats", ["openai_chat"])
    spoken = [(name, "", "m") for name in (turns.FORMATS if every == "every" else every)]
    over = [("", *each) for each in (turns.PREFILLED.values() if row.get("models") == "prefilled" else spoken)]
    over += [(name, "openai_chat", "", "m") for name in turns.CLIENTS if row.get("clients") == "every"]
    for (says, script), preset, (client, format_name, dialect, model), mode, policy, stream in product(
        row.get("scripts", {"": row.get("script")}).items(),
        row.get("presets", [None]),
        over,
        ("response", "task") if row.get("modes") == "both" else ("",),
        row.get("policies", [row.get("policy", {})]),
        (False, True) if row.get("streamed") == "both" else (row.get("streamed", False),),
    ):
        replies = [reply(line, mode) for line in script]
        unsaid = {stop for name, stop in turns.NO_WORD if name == format_name}
        if any(one.stop in unsaid and not (one.calls and one.stop == "tool_call") for one in replies):
            continue
        told = (says, preset, client or format_name, model, mode, *policy.values(), "streamed" if stream else "whole")
        how: dict[str, Any] = {
            "script": replies,
            "preset": preset,
            "format_name": format_name,
            "dialect": dialect,
            "stream": stream,
            "client": client,
            "request": turns.ask(model=model, **row.get("request", {})),
            "exhausted": row.get("exhausted", "error"),
        }
        yield "-".join(str(each) for each in told if each), how | policy | ({"mode": mode} if mode else {})


def cases() -> Iterator[Any]:
    """All of them."""
    for design in sorted(HERE.glob("*.yaml")):
        for name, rows in yaml.safe_load(design.read_text()).items():
            for number, row in enumerate(rows if isinstance(rows, list) else [rows]):
                for says, how in ways(row):
                    yield pytest.param(how, row["expected"], id=f"{design.stem}-{name}-{number}-{says}")


def facts(played: turns.Played) -> dict[str, Any]:
    """What a row may expect beside the members of the turn's result."""
    result, finish = played.result, played.result.finish
    answers = [message for message in result.messages if message.role == "assistant"]
    answered = {message.tool_call_id for message in result.messages if message.role == "tool"}
    return {
        "requests": len(played.requests),
        "ran": [list(ran) for ran in played.ran],
        "prompts": played.prompts,
        "limits": [request.max_tokens for request in played.requests],
        "tools": [tool.name for tool in played.requests[0].tools],
        "asked_by": [request.messages[-1].role for request in played.requests],
        "calls_sent": [turns.calls_in(request.messages) for request in played.requests],
        "calls": turns.calls_in(result.messages),
        "unanswered": [one.id for message in answers for one in message.tool_calls if one.id not in answered],
        "history": [[message.role, message.text] for message in result.messages],
        "parts": [message.text for message in result.segments],
        "reasons": [message.stop_reason for message in answers],
        "words": [message.finish_reason for message in answers],
        "results": [message.text for message in result.tool_results],
        "errors": [message.is_error for message in result.tool_results],
        "stopped": result.stop and result.stop.reason,
        "finish": finish and [finish.signal, finish.status, finish.summary],
    }


def matches(want: Any, got: Any) -> bool:
    """Whether a value is what is expected of it."""
    if not isinstance(want, dict):
        return bool(got == want)
    text = str(got)
    return (
        text.startswith(want.get("begins", ""))
        and all(part in text for part in want.get("has", ()))
        and not any(part in text for part in want.get("lacks", ()))
        and got in want.get("one_of", [got])
        and bool(got) is want.get("some", bool(got))
    )


def differing(want: Row, got: Mapping[str, Any]) -> dict[str, Any]:
    """What is not as it is expected, as it is."""
    return {name: got.get(name) for name, value in want.items() if not matches(value, got.get(name))}


# Where aiohttp is installed, Google's SDK asks through a class of its own that aiohttp warns of.
@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize(("how", "expected"), [*cases()])
def test_a_turn_goes_as_its_design_says(
    how: dict[str, Any], expected: Row, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests, tools, the result and its history; events, metrics, log lines and transcript where a row names them."""
    caplog.set_level(logging.DEBUG, "endturn")
    beside = {"events", "sums", "turn", "logged", "debugged", "written", "keys"} & expected.keys()
    if "written" in beside:
        how |= {"transcript": tmp_path / "turns.jsonl"}
    with ExitStack() as stack:
        telemetry = stack.enter_context(turns.observed()) if beside & {"events", "sums", "turn"} else turns.Telemetry()
        played = turns.play(**how)
    result, told = played.result, facts(played)
    wanted = {name: value for name, value in expected.items() if name not in beside}
    members = {name: attrgetter(name)(result) for name in wanted.keys() - told.keys()}
    assert differing(wanted, told | members) == {}
    assert [Message.model_validate_json(each.model_dump_json()) for each in result.messages] == [*result.messages]
    for name, events in expected.get("events", {}).items():
        found = telemetry.events(name)
        assert [differing(*pair) for pair in zip(events, found, strict=True)] == [{}] * len(events)
    assert differing(expected.get("turn", {}), telemetry.turn() if "turn" in beside else {}) == {}
    for name, attributes, value in expected.get("sums", ()):
        assert matches(value, telemetry.total(name, **attributes)), name
    lines = turns.lines(caplog, logging.INFO)
    assert {part: sum(part in line for line in lines) for part in expected.get("logged", {})} == expected.get(
        "logged", {}
    )
    for part in expected.get("debugged", ()):
        assert any(part in line for line in turns.lines(caplog))
    for text, times in expected.get("written", {}).items():
        assert (tmp_path / "turns.jsonl").read_text().count(text) == times
    preset = how["preset"]
    policy = ContinuationPolicy() if preset is None else ContinuationPolicy.preset(preset)
    keys = {name: getattr(policy, name) for name in expected.get("keys", {})}
    assert keys == {name: tuple(v) if isinstance(v, list) else v for name, v in expected.get("keys", {}).items()}


SEAMS = yaml.safe_load((HERE.parent / "seams.yaml").read_text())


@pytest.mark.parametrize(("first", "second", "whole"), SEAMS.values(), ids=list(SEAMS))
@turns.whole_and_streamed
def test_a_seam_leaves_no_trace(first: str, second: str, whole: str, stream: bool) -> None:
    """What is repeated stands once, what a cut character left is gone, and what is the model's own stays."""
    played = turns.play([turns.cut(first), Reply(text=second)], stream=stream)
    assert (played.result.text, played.result.outcome) == (whole, "completed")
    assert played.result.messages[-1].text == whole
