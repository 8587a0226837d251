"""The tool gate: what runs, what is answered, what is asked for again, and what a strict payload is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.chat import ToolCall
from endturn.continuation.policy import Dispatch
from endturn.continuation.termination import FINISH_TASK
from endturn.continuation.tool_gate import (
    Answer,
    Fault,
    Malformed,
    Refused,
    Repair,
    Run,
    judge,
    parse,
    strict_object,
)
from endturn.formats.settings import tool_schemas
from endturn.stop import Resume, StopReason
from endturn.telemetry import schema
from tests.support.turns import NOW, SEARCH, ask, call, calling, cut, paused, said

pytestmark = [pytest.mark.behaviour(number) for number in (33, 34, 35, 36)]

TOOLS = {"search": SEARCH, "now": NOW, "finish_task": FINISH_TASK}
GOOD = call()
CUT = call(arguments='{"q": "hal', closed=False)
EMPTY = call(arguments="{}")
LOST = said(reason=StopReason.MISSING, calls=[GOOD])
SUSPECT = calling(GOOD, suspected=True)
REJECTED = said(reason=StopReason.ERROR, resume=Resume.REPAIR)


def half(arguments: str, **fields: Any) -> Any:
    """A summary that was cut: plain text that may go on with anything, or the beginning of JSON."""
    return call("finish_task", arguments, **fields)


TABLE: dict[str, tuple[Any, str, Any]] = {
    "tool_call": (calling(GOOD), "verified_terminal", Run),
    "tool_call, only": (calling(GOOD), "tool_call_only", Run),
    "tool_call, any": (calling(GOOD), "any_parsed", Run),
    "cut, valid": (cut(calls=[GOOD]), "verified_terminal", Repair("unverified_terminal", "truncated")),
    "cut, only": (cut(calls=[GOOD]), "tool_call_only", Repair("unverified_terminal", "truncated")),
    "cut, any": (cut(calls=[GOOD]), "any_parsed", Run),
    "cut within": (cut(calls=[CUT]), "verified_terminal", Repair("incomplete_json", "truncated")),
    "cut within, any": (cut(calls=[CUT]), "any_parsed", Repair("incomplete_json", "truncated")),
    "cut to {}": (cut(calls=[EMPTY]), "verified_terminal", Repair("schema_mismatch", "truncated")),
    "no terminal": (LOST, "verified_terminal", Repair("unverified_terminal", "unverified_terminal")),
    "no terminal, any": (LOST, "any_parsed", Repair),
    "suspect": (SUSPECT, "verified_terminal", Repair("suspected", "suspected")),
    "suspect, any": (SUSPECT, "any_parsed", Run),
    "not closed": (calling(CUT), "verified_terminal", Repair("incomplete_json", "unverified_terminal")),
    "a reason without an end": (
        calling(GOOD, terminal_seen=False),
        "verified_terminal",
        Repair("incomplete_json", "unverified_terminal"),
    ),
    "half": (calling(call(arguments='{"q": "hal')), "verified_terminal", Repair("incomplete_json", "invalid_json")),
    "none came": (calling(), "verified_terminal", Repair("no_calls", "unverified_terminal")),
    "unknown tool": (calling(call("find")), "verified_terminal", "unknown_tool"),
    "unknown tool, only": (calling(call("find")), "tool_call_only", "unknown_tool"),
    "schema": (calling(EMPTY), "verified_terminal", "schema_mismatch"),
    "schema, only": (calling(EMPTY), "tool_call_only", Run),
    "no object": (calling(call(arguments="[1]")), "verified_terminal", "invalid_json"),
    "NaN": (calling(call(arguments='{"q": NaN}')), "tool_call_only", "invalid_json"),
    "duplicate id": (calling(GOOD, GOOD), "verified_terminal", "duplicate_id"),
    "one of two is wrong": (calling(GOOD, call("find", id="2")), "verified_terminal", "unknown_tool"),
    "nothing for a tool without": (calling(call("now", ""), GOOD.but(id="2")), "verified_terminal", Run),
    '""': (calling(call(arguments="")), "verified_terminal", Repair("incomplete_json", "invalid_json")),
    "no arguments at all": (calling(call(arguments=None, id="1")), "verified_terminal", Repair),
    "end_turn, not promoted": (said(calls=[GOOD]), "verified_terminal", Refused("not_a_tool_call")),
    "refused": (said(reason=StopReason.REFUSED, calls=[GOOD]), "any_parsed", Refused),
    "filtered": (said(reason=StopReason.SAFETY_BLOCKED, calls=[GOOD]), "any_parsed", Refused),
    "unknown": (said(reason=StopReason.UNKNOWN, calls=[GOOD]), "any_parsed", Refused),
    "paused": (paused(calls=[GOOD]), "verified_terminal", Refused("not_a_tool_call")),
    "the provider rejected it": (REJECTED, "verified_terminal", Repair("provider_rejected", "not_a_tool_call")),
    "error": (said(reason=StopReason.ERROR), "verified_terminal", None),
    "text": (said("Hello"), "verified_terminal", None),
    "cut text": (cut("Hel"), "verified_terminal", None),
    "a cut summary": (cut(calls=[half("Nearly do")]), "any_parsed", Repair),
    "an open summary": (calling(half("Nearly do", closed=False)), "any_parsed", Repair),
    "a torn object": (calling(half('{"summary": "torn')), "any_parsed", Repair),
    "a torn string": (calling(half('"torn')), "any_parsed", Repair),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_gate(name: str) -> None:
    """What becomes of a response's calls, under each way of dispatching."""
    response, dispatch, expected = TABLE[name]
    verdict: Any = judge(response, TOOLS, dispatch=dispatch)  # type: ignore[arg-type]
    match expected:
        case str():
            assert isinstance(verdict, Answer)
            assert verdict.reason == expected
        case type():
            assert isinstance(verdict, expected)
        case _:
            assert verdict == expected


def test_the_reasons_and_issues_are_the_declared_ones() -> None:
    """Every reason and issue that the gate gives is a value of the telemetry schema."""
    verdicts = [judge(response, TOOLS, dispatch=dispatch) for response, dispatch, _ in TABLE.values()]  # type: ignore[arg-type]
    reasons = {each.reason for each in verdicts if isinstance(each, Repair | Answer | Refused)}
    issues = {each.issue for each in verdicts if isinstance(each, Repair)}
    assert reasons | {"repair_failed", "repeated"} == set(schema.BLOCK_REASON.values)
    assert issues == set(schema.ISSUE.values)


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
    batch = [GOOD, call("now", "{}", id="2"), GOOD, call(id="3"), CUT.but(id="4")]
    parsed = judge(cut(calls=batch), TOOLS, dispatch="any_parsed")
    assert isinstance(parsed, Run)
    assert [run.id for run in parsed.calls] == ["call_1", "2", "3"]
    whole = judge(calling(half("Done.")), TOOLS)
    assert isinstance(whole, Run)
    assert whole.calls[0].arguments == {"summary": "Done."}
    assert isinstance(judge(SUSPECT, TOOLS, suspect_full_budget=False), Run)


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
