"""The tool gate: what runs, what is answered, what is asked for again, and what a strict payload is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.chat import ToolCall
from endturn.continuation.policy import Dispatch
from endturn.continuation.termination import FINISH_TASK
from endturn.continuation.tool_gate import Answer, Fault, Malformed, Repair, Run, judge, parse, strict_object
from endturn.formats.settings import tool_schemas
from endturn.stop import StopReason
from endturn.telemetry import schema
from tests.support.turns import NOW, SEARCH, ask, call, calling, cut, said
from tests.turns.record import response

pytestmark = [pytest.mark.behaviour(number) for number in (33, 34, 35, 36)]

TOOLS = {"search": SEARCH, "now": NOW, "finish_task": FINISH_TASK}
GOOD = call()
SUMMARY = call("finish_task", "Done.")
ROWS = [json.loads(line) for line in Path(__file__).with_name("gate.jsonl").read_text("utf-8").splitlines()]
"""Responses in the words of tests/turns, under a way of dispatching, each with what becomes of its calls."""


def judged(row: dict[str, Any]) -> str:
    """The gate's verdict in words."""
    match judge(response(row["says"]), TOOLS, dispatch=row.get("dispatch", "verified_terminal")):
        case Run():
            return "run"
        case Repair(issue, reason):
            return f"repair {issue} {reason}"
        case None:
            return "nothing"
        case verdict:
            return f"{type(verdict).__name__.lower()} {verdict.reason}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["why"])
def test_the_gate(row: dict[str, Any]) -> None:
    """What becomes of a response's calls, under each way of dispatching."""
    assert judged(row) == row["verdict"]


def test_the_reasons_and_issues_are_the_declared_ones() -> None:
    """Every reason and issue that the gate gives is a value of the telemetry schema."""
    verdicts = [row["verdict"].split() for row in ROWS]
    reasons = {each[-1] for each in verdicts if len(each) > 1}
    assert reasons | {"repair_failed", "repeated"} == set(schema.BLOCK_REASON.values)
    assert {issue for kind, issue, *_ in (each for each in verdicts if len(each) > 2)} == set(schema.ISSUE.values)


def test_every_call_of_a_wrong_batch_is_answered_once() -> None:
    """Each call is told what is wrong with it, a good one that it was not run; an id is answered once."""
    verdict = judge(calling(GOOD, call("find", id="2"), call(arguments="{}", id="3")), {"search": SEARCH, "now": NOW})
    assert isinstance(verdict, Answer)
    assert {answered.id: text for answered, text in verdict.errors} == {
        "call_1": "not run, because another call of the same response was not valid",
        "2": "there is no tool called 'find'; the tools are: search, now",
        "3": 'the arguments do not fit the tool\'s schema: arguments does not fit {"required": ["q"]}',
    }
    twice = judge(calling(GOOD, GOOD), TOOLS)
    assert isinstance(twice, Answer)
    assert [answered.id for answered, _ in twice.errors] == ["call_1"]


def test_what_runs() -> None:
    """Of a cut batch the calls that parse, each once; a whole summary; a suspect batch where the policy trusts it."""
    batch = [GOOD, call("now", "{}", id="2"), GOOD, call(id="3"), call(arguments='{"q": "hal', id="4", closed=False)]
    parsed = judge(cut(calls=batch), TOOLS, dispatch="any_parsed")
    assert isinstance(parsed, Run)
    assert [run.id for run in parsed.calls] == ["call_1", "2", "3"]
    empty = [ToolCall(id=id_, name="now", arguments={}) for id_ in "ab"]  # from a wire that sends objects
    arrived = judge(cut(calls=empty), TOOLS, dispatch="any_parsed")
    assert isinstance(arrived, Run)
    assert [run.id for run in arrived.calls] == ["a"]
    whole = judge(calling(SUMMARY), TOOLS)
    assert isinstance(whole, Run)
    assert whole.calls[0].arguments == {"summary": "Done."}
    assert isinstance(judge(calling(GOOD, suspected=True), TOOLS, suspect_full_budget=False), Run)


@given(
    texts=st.lists(st.sampled_from(['{"q": "x"}', "{}", "", '{"q": "ha', "[]", "null"]), min_size=1, max_size=3),
    closed=st.booleans(),
    dispatch=st.sampled_from(["verified_terminal", "tool_call_only"]),
    reason=st.sampled_from([r for r in StopReason if r is not StopReason.TOOL_CALL]),
)
def test_no_cut_call_is_ever_dispatched(texts: list[str], closed: bool, dispatch: Dispatch, reason: StopReason) -> None:
    """Whatever its calls look like, a response that is not a tool call runs nothing."""
    calls = [call(arguments=text, id=str(index), closed=closed) for index, text in enumerate(texts)]
    assert not isinstance(judge(said(reason=reason, calls=calls), {}, dispatch=dispatch), Run)


def test_a_tool_needs_a_declaration_and_a_function() -> None:
    """Only a host that runs its tools itself may have told the provider of others."""
    unknown = "there is no tool called 'search'; "
    assert parse(GOOD, {"now": NOW}, runnable={"now"}) == Fault("unknown_tool", f"{unknown}the tools are: now")
    assert parse(GOOD, {}, runnable={"search"}) == Fault("unknown_tool", f"{unknown}no tools were offered")
    assert parse(GOOD, {}) == GOOD.but(arguments={"q": "x"})


@pytest.mark.parametrize(
    "shape",
    [
        {"type": "function", "function": {"name": "search", "parameters": SEARCH.parameters}},
        {"name": "search", "input_schema": SEARCH.parameters},
    ],
)
def test_tools_in_the_providers_own_shape_are_declared(shape: dict[str, Any]) -> None:
    """`extra` is merged in last, so what it says of tools is what the provider was told."""
    assert tool_schemas(ask(tools=(SEARCH,))) == {"search": SEARCH}
    assert tool_schemas(ask(tools=(NOW,), extra={"tools": [shape, {"type": "web_search"}, "?"]})) == {"search": SEARCH}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [(SEARCH, '"x"'), (SEARCH, "x"), (FINISH_TASK.but(parameters=SEARCH.parameters), '"x"'),
     (FINISH_TASK, '["x"]'), (FINISH_TASK, "7"), (FINISH_TASK, "null"), (NOW, {"q": float("nan")})],
)  # fmt: skip
def test_a_call_needs_an_object(tool: Any, arguments: Any) -> None:
    """A text is a summary for the tools that end a task alone, as they are declared; no value may be NaN."""
    given_so = {"arguments" if isinstance(arguments, dict) else "arguments_raw": arguments}
    refused = parse(ToolCall(id="1", name=tool.name, **given_so), {tool.name: tool})
    assert isinstance(refused, Fault)
    assert refused.issue == "invalid_json"
    as_it_is = ToolCall(id="1", name="search", arguments={"q": "x"})
    assert parse(as_it_is, TOOLS) == as_it_is


# --- Strict JSON --------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=3)


@given(value=OBJECTS, ascii_only=st.booleans())
def test_every_beginning_of_an_object_is_incomplete(value: dict[str, Any], ascii_only: bool) -> None:
    """A JSON object parses to itself; cut anywhere it is recognised as the beginning of a longer text."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert strict_object(text) == value
    for size in range(len(text)):
        with pytest.raises(Malformed) as caught:
            strict_object(text[:size])
        assert caught.value.issue == "incomplete_json", text[:size]
