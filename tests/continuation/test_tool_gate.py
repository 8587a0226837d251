"""The tool gate: what runs, what is answered, what is asked for again, and what a strict payload is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.chat import ChatResponse, ToolCall
from endturn.continuation.policy import Dispatch
from endturn.continuation.termination import FINISH_TASK
from endturn.continuation.tool_gate import (
    Answer,
    Fault,
    Malformed,
    Refused,
    Repair,
    Run,
    Verdict,
    judge,
    parse,
    strict_object,
)
from endturn.formats.settings import tool_schemas
from endturn.stop import Resume, StopReason
from endturn.telemetry import schema
from tests.support.turns import NOW, SEARCH, ask, call, calling, cut, paused, said

TOOLS = {"search": SEARCH, "now": NOW}
GOOD = call()
CUT = call(arguments='{"q": "hal', closed=False)

TABLE: list[Any] = [
    pytest.param(calling(GOOD), "verified_terminal", Run, id="tool_call"),
    pytest.param(calling(GOOD), "tool_call_only", Run, id="tool_call, only"),
    pytest.param(calling(GOOD), "any_parsed", Run, id="tool_call, any"),
    pytest.param(cut(calls=[GOOD]), "verified_terminal", Repair("unverified_terminal", "truncated"), id="cut, valid"),
    pytest.param(cut(calls=[GOOD]), "tool_call_only", Repair("unverified_terminal", "truncated"), id="cut, only"),
    pytest.param(cut(calls=[GOOD]), "any_parsed", Run, id="cut, any"),
    pytest.param(cut(calls=[CUT]), "any_parsed", Repair("incomplete_json", "truncated"), id="cut within, any"),
    pytest.param(cut(calls=[CUT]), "verified_terminal", Repair("incomplete_json", "truncated"), id="cut within"),
    pytest.param(
        cut(calls=[call(arguments="{}")]), "verified_terminal", Repair("schema_mismatch", "truncated"), id="cut to {}"
    ),
    pytest.param(
        said(reason=StopReason.MISSING, calls=[GOOD]),
        "verified_terminal",
        Repair("unverified_terminal", "unverified_terminal"),
        id="no terminal",
    ),
    pytest.param(said(reason=StopReason.MISSING, calls=[GOOD]), "any_parsed", Repair, id="no terminal, any"),
    pytest.param(calling(GOOD, suspected=True), "verified_terminal", Repair("suspected", "suspected"), id="suspect"),
    pytest.param(calling(GOOD, suspected=True), "any_parsed", Run, id="suspect, any"),
    pytest.param(calling(CUT), "verified_terminal", Repair("incomplete_json", "unverified_terminal"), id="not closed"),
    pytest.param(
        calling(GOOD, terminal_seen=False),
        "verified_terminal",
        Repair("incomplete_json", "unverified_terminal"),
        id="a reason without an end",
    ),
    pytest.param(
        calling(call(arguments='{"q": "hal')), "verified_terminal", Repair("incomplete_json", "invalid_json"), id="half"
    ),
    pytest.param(calling(), "verified_terminal", Repair("no_calls", "unverified_terminal"), id="none came"),
    pytest.param(calling(call("find")), "verified_terminal", "unknown_tool", id="unknown tool"),
    pytest.param(calling(call("find")), "tool_call_only", "unknown_tool", id="unknown tool, only"),
    pytest.param(calling(call(arguments="{}")), "verified_terminal", "schema_mismatch", id="schema"),
    pytest.param(calling(call(arguments="{}")), "tool_call_only", Run, id="schema, only"),
    pytest.param(calling(call(arguments="[1]")), "verified_terminal", "invalid_json", id="no object"),
    pytest.param(calling(call(arguments='{"q": NaN}')), "tool_call_only", "invalid_json", id="NaN"),
    pytest.param(calling(GOOD, GOOD), "verified_terminal", "duplicate_id", id="duplicate id"),
    pytest.param(calling(GOOD, call("find", id="2")), "verified_terminal", "unknown_tool", id="one of two is wrong"),
    pytest.param(calling(call("now", ""), GOOD.but(id="2")), "verified_terminal", Run, id="nothing for a tool without"),
    pytest.param(calling(call(arguments="")), "verified_terminal", Repair("incomplete_json", "invalid_json"), id='""'),
    pytest.param(calling(call(arguments=None, id="1")), "verified_terminal", Repair, id="no arguments at all"),
    pytest.param(said(calls=[GOOD]), "verified_terminal", Refused("not_a_tool_call"), id="end_turn, not promoted"),
    pytest.param(said(reason=StopReason.REFUSED, calls=[GOOD]), "any_parsed", Refused, id="refused"),
    pytest.param(said(reason=StopReason.SAFETY_BLOCKED, calls=[GOOD]), "any_parsed", Refused, id="filtered"),
    pytest.param(said(reason=StopReason.UNKNOWN, calls=[GOOD]), "any_parsed", Refused, id="unknown"),
    pytest.param(paused(calls=[GOOD]), "verified_terminal", Refused("not_a_tool_call"), id="paused"),
    pytest.param(
        said(reason=StopReason.ERROR, resume=Resume.REPAIR),
        "verified_terminal",
        Repair("provider_rejected", "not_a_tool_call"),
        id="the provider rejected the call",
    ),
    pytest.param(said(reason=StopReason.ERROR), "verified_terminal", None, id="error"),
    pytest.param(said("Hello"), "verified_terminal", None, id="text"),
    pytest.param(cut("Hel"), "verified_terminal", None, id="cut text"),
]


@pytest.mark.behaviour(33)
@pytest.mark.behaviour(34)
@pytest.mark.behaviour(35)
@pytest.mark.behaviour(36)
@pytest.mark.parametrize(("response", "dispatch", "expected"), TABLE)
def test_the_gate(response: Any, dispatch: Dispatch, expected: Any) -> None:
    """What becomes of a response's calls, under each way of dispatching."""
    verdict = judge(response, TOOLS, dispatch=dispatch)
    match expected:
        case str():
            assert isinstance(verdict, Answer)
            assert verdict.reason == expected
        case type():
            assert isinstance(verdict, expected)
        case _:
            assert verdict == expected


def test_a_suspect_batch_runs_where_the_policy_trusts_it() -> None:
    """`suspect_full_budget` off: a full budget is no sign."""
    assert isinstance(judge(calling(GOOD, suspected=True), TOOLS, suspect_full_budget=False), Run)


def test_the_reasons_and_issues_are_the_declared_ones() -> None:
    """Every reason and issue that the gate gives is a value of the telemetry schema."""
    reasons: set[str] = {"repair_failed", "repeated"}
    issues: set[str] = set()
    for response, dispatch, _ in (case.values for case in TABLE):
        verdict: Verdict | None = judge(response, TOOLS, dispatch=dispatch)
        match verdict:
            case Repair():
                reasons.add(verdict.reason)
                issues.add(verdict.issue)
            case Answer() | Refused():
                reasons.add(verdict.reason)
            case _:
                pass
    assert reasons == set(schema.BLOCK_REASON.values)
    assert issues == set(schema.ISSUE.values) - {"invalid_json"}


def test_every_call_of_a_wrong_batch_is_answered_once() -> None:
    """Each call is told what is wrong with it, a good one that it was not run; an id is answered once."""
    verdict = judge(calling(GOOD, call("find", id="2"), call(arguments="{}", id="3")), TOOLS)
    assert isinstance(verdict, Answer)
    told = {answered.id: text for answered, text in verdict.errors}
    assert told == {
        "call_1": "not run, because another call of the same response was not valid",
        "2": "there is no tool called 'find'; the tools are: search, now",
        "3": 'the arguments do not fit the tool\'s schema: arguments does not fit {"required": ["q"]}',
    }
    twice = judge(calling(GOOD, GOOD), TOOLS)
    assert isinstance(twice, Answer)
    assert [answered.id for answered, _ in twice.errors] == ["call_1"]


def test_any_parsed_runs_what_parses_and_leaves_the_rest() -> None:
    """The other sources' rule: of a cut batch the calls that parse are run."""
    batch = [GOOD, call("now", "{}", id="2"), GOOD, call(id="3"), CUT.but(id="4")]
    verdict = judge(cut(calls=batch), TOOLS, dispatch="any_parsed")
    assert isinstance(verdict, Run)
    assert [run.id for run in verdict.calls] == ["call_1", "2", "3"]


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(cut(calls=[call("finish_task", "Nearly do")]), id="cut text"),
        pytest.param(calling(call("finish_task", "Nearly do", closed=False)), id="open text"),
        pytest.param(calling(call("finish_task", '{"summary": "torn')), id="a torn object"),
        pytest.param(calling(call("finish_task", '"torn')), id="a torn string"),
    ],
)
def test_half_a_summary_is_none(response: ChatResponse) -> None:
    """Plain text that may go on with anything, and the beginning of JSON, end no task."""
    assert isinstance(judge(response, {"finish_task": FINISH_TASK}, dispatch="any_parsed"), Repair)
    whole = judge(calling(call("finish_task", "Done.")), {"finish_task": FINISH_TASK})
    assert isinstance(whole, Run)
    assert whole.calls[0].arguments == {"summary": "Done."}


@pytest.mark.behaviour(34)
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


def test_a_tool_without_a_function_is_unknown_to_a_controller_that_runs_tools() -> None:
    """Declared is not enough where the host gave functions."""
    assert parse(GOOD, TOOLS, runnable={"now"}) == Fault(
        "unknown_tool", "there is no tool called 'search'; the tools are: now"
    )


def test_a_tool_that_the_request_does_not_declare_is_unknown() -> None:
    """A function is not enough either. Only a host that runs its tools itself may have told the provider otherwise."""
    assert parse(GOOD, {}, runnable={"search"}) == Fault(
        "unknown_tool", "there is no tool called 'search'; no tools were offered"
    )
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


def test_an_object_that_a_format_gave_is_taken_as_it_is() -> None:
    """Arguments that are an object already are only checked."""
    given_object = ToolCall(id="1", name="search", arguments={"q": "x"})
    assert parse(given_object, TOOLS) == given_object
    bad = parse(ToolCall(id="1", name="now", arguments={"q": float("nan")}), TOOLS)
    assert isinstance(bad, Fault)
    assert bad.issue == "invalid_json"


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


@pytest.mark.behaviour(35)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' is given twice"),
        ('{"a": {"b": 1, "b": 1}}', "the key 'b' is given twice"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ('{"a": -Infinity}', "-Infinity is no JSON number"),
        ('{"a": 1e999}', "1e999 is too large a number"),
        ("[]", "it is of type list"),
        ('"text"', "it is of type str"),
        ("null", "it is of type NoneType"),
        ('{"a": 1} {"b": 2}', "Extra data"),
        ("{'a': 1}", "Expecting property name"),
        ('{"a": "line\nbreak"}', "Invalid control character"),
    ],
)
def test_what_is_no_strict_object(text: str, message: str) -> None:
    """Duplicate keys, numbers that JSON does not know, and anything but one object are refused, and not as cut."""
    with pytest.raises(Malformed, match=message) as caught:
        strict_object(text)
    assert caught.value.issue == "invalid_json"
