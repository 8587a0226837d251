"""The tool gate: calls that run, are answered or are requested again, and strict payloads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.continuation.policy import Dispatch
from endturn.continuation.termination import FINISH_TASK
from endturn.continuation.tool_gate import (
    Fault,
    MalformedJsonError,
    Refused,
    Repair,
    ReportErrors,
    RunCalls,
    judge,
    parse,
    strict_object,
)
from endturn.telemetry import schema
from endturn.vocabulary.stop import StopReason
from tests.support.turns import NOW, SEARCH, call, said
from tests.turns.record import response

pytestmark = [pytest.mark.behaviour(number) for number in (33, 34, 35, 36)]

TOOLS = {"search": SEARCH, "now": NOW, "finish_task": FINISH_TASK}
GOOD = call()
ROWS = [json.loads(line) for line in Path(__file__).with_name("gate.jsonl").read_text("utf-8").splitlines()]
"""Responses in the words of tests/turns, some under a policy, each with what becomes of its calls."""


def judged(row: dict[str, Any]) -> str:
    """Return the gate's verdict as text: the calls that run or are answered, and the reason."""
    match judge(response(row["says"]), TOOLS, **row.get("policy", {})):
        case RunCalls(calls):
            return " ".join(["run", *(each.id for each in calls)])
        case ReportErrors(errors, reason):
            return " ".join(["answer", reason, *(each.id for each, _ in errors)])
        case Repair(issue, reason):
            return f"repair {reason} {issue}"
        case Refused(reason):
            return f"refused {reason}"
    return "nothing"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["why"])
def test_the_gate(row: dict[str, Any]) -> None:
    """The verdict on a response's calls, with each value of `dispatch`."""
    assert judged(row) == row["verdict"]


def test_the_reasons_and_issues_are_the_declared_ones() -> None:
    """Every reason and issue of the gate is a value of the telemetry schema."""
    refused = [row["verdict"].split() for row in ROWS if not row["verdict"].startswith(("run", "nothing"))]
    assert {each[1] for each in refused} | {"repair_failed", "repeated"} == set(schema.BLOCK_REASON.values)
    assert {each[2] for each in refused if each[0] == "repair"} == set(schema.ISSUE.values)


@given(
    texts=st.lists(st.sampled_from(['{"q": "x"}', "{}", "", '{"q": "ha', "[]", "null"]), min_size=1, max_size=3),
    closed=st.booleans(),
    dispatch=st.sampled_from(["verified_terminal", "tool_call_only"]),
    reason=st.sampled_from([r for r in StopReason if r is not StopReason.TOOL_CALL]),
)
def test_no_truncated_call_is_ever_dispatched(
    texts: list[str], closed: bool, dispatch: Dispatch, reason: StopReason
) -> None:
    """Whatever its calls look like, a response that is not a tool call runs nothing."""
    calls = [call(arguments=text, id=str(index), closed=closed) for index, text in enumerate(texts)]
    assert not isinstance(judge(said(reason=reason, calls=calls), {}, dispatch=dispatch), RunCalls)


def test_a_tool_needs_a_declaration_and_a_function() -> None:
    """Only a host that runs its tools itself may have declared other tools to the provider."""
    unknown = "there is no tool called 'search'; "
    assert parse(GOOD, TOOLS, runnable={"now"}) == Fault("unknown_tool", f"{unknown}the tools are: now")
    assert parse(GOOD, {}, runnable={"search"}) == Fault("unknown_tool", f"{unknown}no tools were offered")
    assert parse(GOOD, {}) == GOOD.but(arguments={"q": "x"})
    assert isinstance(parse(GOOD.but(arguments_raw='{"q": "ha'), TOOLS), Fault)  # the text counts


def test_a_plain_text_is_a_summary_only_for_our_own_tools() -> None:
    """This applies to our declarations: a host may declare its own tool with that name."""
    done = call("finish_task", " Done. ")
    assert parse(done, TOOLS) == done.but(arguments={"summary": "Done."})
    own = FINISH_TASK.but(parameters=SEARCH.parameters)
    assert isinstance(parse(call("finish_task", '"x"'), {"finish_task": own}), Fault)


# --- Strict JSON --------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=3)


@given(value=OBJECTS, ascii_only=st.booleans())
def test_every_beginning_of_an_object_is_incomplete(value: dict[str, Any], ascii_only: bool) -> None:
    """A JSON object parses to itself; truncated anywhere, it is recognised as the beginning of a longer text."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert strict_object(text) == value
    for size in range(len(text)):
        with pytest.raises(MalformedJsonError) as caught:
            strict_object(text[:size])
        assert caught.value.issue == "incomplete_json", text[:size]


@pytest.mark.behaviour(35)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        ('{"a": {"b": 1, "b": 1}}', "the key 'b' occurs twice"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": -Infinity}', "-Infinity is not a JSON number"),
        ('{"a": 1e999}', "1e999 is too large a number"),
        ("[]", "it is of type list"),
        ('"text"', "it is of type str"),
        ("null", "it is of type NoneType"),
        ('{"a": 1} {"b": 2}', "Extra data"),
        ("{'a': 1}", "Expecting property name"),
        ('{"a": "line\nbreak"}', "Invalid control character"),
    ],
)
def test_arguments_are_one_strict_json_object(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        strict_object(text)
