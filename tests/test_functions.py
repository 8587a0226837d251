"""Small functions and commands by what they are given and give: tests/functions has a file for each subject.

A file holds lists of cases, each list under what is called: a function by its whole name, or `endturn`, the command. A
case is what is given (`args`, and keywords by their names under `with`) and what comes of it: `gives`, of an object the
members that are named; or `raises`, with the words of the error; `why` names it. Of a command it is the exit status,
and words that `out` and `err` have. A call of a tool is given as `{"call": NAME, "arguments": …}`, a format's rows of
stop reasons as `{"rows": FORMAT}`, an object of a class as `{"made": "module:Class", "with": …}`.
"""

from __future__ import annotations

import json
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from endturn import cli
from endturn.chat import ToolCall
from endturn.continuation.termination import Finish
from endturn.errors import UsageError
from endturn.events import TurnOutcome
from endturn.formats import format_of
from tests.replies.record import plain

CASES = [
    pytest.param(
        called, case, id=f"{called}: {case.get('why', case.get('args'))} {case.get('with', '')}"[:90],
        marks=[pytest.mark.behaviour(number) for number in case.get("behaviours", group.get("behaviours", ()))],
    )
    for path in sorted((Path(__file__).parent / "functions").glob("*.json"))
    for called, group in json.loads(path.read_text("utf-8")).items()
    for case in group["cases"]
]  # fmt: skip


def given(value: Any) -> Any:
    """What JSON has no word for."""
    match value:
        case {"call": name, **rest}:
            return ToolCall.model_validate({"id": "c", "name": name, **rest})
        case {"rows": name}:
            return format_of(name).reasons[""]
        case {"made": kind, "with": settings}:
            return resolve_name(kind)(**settings)
        case {"named": name}:
            return resolve_name(name)
        case {"format": name}:
            return format_of(name)
        case {"outcome": name}:
            return TurnOutcome(name)
        case {"finish": [*members]}:
            return Finish(*members)
        case [*each] if any(isinstance(one, dict) and one.keys() & {"named", "made"} for one in each):
            return [*map(given, each)]
    return value


def members(value: Any, wanted: Any) -> Any:
    """Of an object, those that are named."""
    if isinstance(wanted, dict) and not isinstance(value, dict):
        return {name: plain(getattr(value, name)) for name in wanted}
    return plain(value)


@pytest.mark.parametrize(("called", "case"), CASES)
def test_what_is_given_gives_what_its_file_says(
    called: str, case: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Value, error, or what a command prints."""
    if called == "endturn":
        assert cli.main(case["args"]) == case["exit"]
        printed = capsys.readouterr()
        for stream, text in (("out", printed.out), ("err", printed.err)):
            assert [words for words in case.get(stream, ()) if words not in text] == []
            assert "Traceback" not in text
        return
    function = resolve_name(called)
    arguments = [given(each) for each in case.get("args", ())]
    keywords = {name: given(value) for name, value in case.get("with", {}).items()}
    if "raises" in case:
        with pytest.raises((UsageError, ValueError), match=case["raises"]):
            function(*arguments, **keywords)
    else:
        assert members(function(*arguments, **keywords), case["gives"]) == case["gives"]
