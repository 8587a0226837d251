"""Arguments and JSON Schemas: rejected values, messages, and schemas and values that must not break a turn."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, reject, strategies as st

from endturn.continuation.schema_check import mismatch
from endturn.continuation.tool_gate import Fault, parse
from endturn.vocabulary.messages import Tool
from tests.support.turns import call


def takes(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties."""
    return {"type": "object", "properties": properties}


# --- The law --------------------------------------------------------------------------------------------------------

PLAIN = [True, False, {"type": "string"}, {"minimum": 3}, {"pattern": "^a"}, {"uniqueItems": True}, {"$ref": "#"}]
SCHEMAS = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "items": inner,
            "not": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=2),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "additionalProperties": inner,
        },
    ),
    max_leaves=6,
)
"""Keywords of our own, among some of the library's."""
GIVEN = st.recursive(
    st.sampled_from(["a", "ab", 1, 2.0, 4, 1.5, True, None]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


def accepts(value: Any, root: dict[str, Any]) -> bool:
    """Return the library's own verdict; a schema with endless recursion is no example."""
    try:
        return not list(jsonschema.Draft202012Validator(root).iter_errors(value))
    except BaseException as error:
        if type(error).__name__ not in ("RecursionError", "PanicException"):
            raise
        reject()


@pytest.mark.behaviour(35)
@given(inner=SCHEMAS, value=GIVEN)
def test_exactly_the_values_that_json_schema_rejects_are_rejected(inner: Any, value: Any) -> None:
    """Our own keywords change the cost of a check, not its result."""
    root = {"allOf": [inner], "$defs": {"word": {"type": "string"}}}
    assert (mismatch(value, root) is None) == accepts(value, root)


# --- Words ----------------------------------------------------------------------------------------------------------

NODE = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}}, "required": ["v"]}


ROWS = [json.loads(line) for line in Path(__file__).with_name("schemas.jsonl").read_text("utf-8").splitlines()]
"""Values and schemas, each with what is said of them, null where the one fits the other."""


@pytest.mark.behaviour(35)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['of']}: {row['value']}"[:60])
def test_a_mismatch_is_reported_with_its_path(row: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """The message has the path and the violated keyword; none of these schemas is ignored."""
    told, says = mismatch(row["value"], row["schema"], tool=str(row)), row["says"]
    assert told is None if says is None else says in (told or "")
    assert not caplog.records


@pytest.mark.parametrize(
    "schema", [{"type": "string"}, {"enum": ["a"]}, {"not": {}}, {"pattern": "^a$"}, {"maxLength": 1}]
)
def test_the_message_quotes_no_value_and_is_short(schema: dict[str, Any]) -> None:
    """The model's value is not repeated: it may be a secret, or a hundred thousand characters."""
    secret = "sk-secret"
    for value in ({"a": secret}, {"a": {"b": secret}}, {"a": [secret]}):
        for whole in (takes(a=schema), {"additionalProperties": {"anyOf": [schema, schema]}}):
            assert secret not in (mismatch(value, whole) or "")
    told = mismatch({"a" * 1_000: 0}, {"additionalProperties": {"enum": ["x" * 1_000]}})
    assert told is not None
    assert len(told) < 400


# --- Schemas that cannot be followed ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "schema"),
    [
        ("it is not a JSON Schema: $.properties.a.type", takes(a={"type": "text"})),
        ("it is not a JSON Schema: $.required does not fit 'type'", {"required": "a"}),
        ("it is not a JSON Schema", []),
        ("raised AttributeError", {"$schema": 7}),
        ("raised TypeError", takes(a=object())),
        ("is unresolved", takes(a={"$ref": "#/$defs/none"})),
        ("is unresolved, and nothing is fetched", takes(a={"$ref": "http://localhost:1/x"})),
        ("it is circular", {"$ref": "#"}),
        ("it is circular", {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}),
    ],
)
def test_an_invalid_schema_accepts_every_value(
    schema: Any, why: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged once for each tool; no reference is fetched."""
    monkeypatch.setattr(socket, "socket", None)
    one, other = f"takes {schema}", f"also takes {schema}"
    for tool in (one, one, other):
        assert mismatch({"a": 1}, schema, tool=tool) is None
    first, second = caplog.messages
    assert f"the tool {one!r} is not checked" in first
    assert why in first
    assert f"the tool {other!r} is not checked" in second


def test_a_schema_that_is_changed_is_another() -> None:
    """Validators are cached by a schema's content, not by its identity."""
    schema = takes(a={"type": "string"})
    assert mismatch({"a": 1}, schema) is not None
    schema["properties"]["a"]["type"] = "integer"
    assert mismatch({"a": 1}, schema) is None


# --- Values that would take too long, or too much ---------------------------------------------------------------------


@pytest.mark.parametrize("names", ["$schema", "patternProperties", "unevaluatedProperties", "propertyNames", "pattern"])
def test_a_catastrophic_pattern_does_not_hang(names: str) -> None:
    """Patterns are searched in linear time, in values and in names, in every draft."""
    wild = {"pattern": "^(a+)+$"}
    schemas: dict[str, dict[str, Any]] = {
        "$schema": {"$schema": "http://json-schema.org/draft-07/schema#", **takes(a=wild, next={"$ref": "#"})},
        "patternProperties": {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": {"pattern": "^(a|a)*$"}},
        "unevaluatedProperties": {"patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False},
        "propertyNames": {"propertyNames": wild},
        "pattern": takes(a=wild),
    }  # fmt: skip
    text = "a" * 50_000 + "!"
    mismatch({"a": text, text: text, "next": {"a": text}}, schemas[names])


@pytest.mark.parametrize("pattern", ["^(?!a)", r"(a)\1", "[", "[[:alpha:]]", "[a-z&&b]", r"\<a\>"])
def test_a_pattern_without_a_linear_match_accepts_every_value(pattern: str, caplog: pytest.LogCaptureFixture) -> None:
    """Look-around, back references, and syntax that the engine reads differently; the rest of the schema counts."""
    schema = takes(a={"pattern": pattern}, b={"type": "string"})
    assert mismatch({"a": "abc"}, schema) is None
    assert mismatch({"a": "abc", "b": 1}, schema) == 'arguments.b does not fit {"type": "string"}'
    assert mismatch({"abc": 1}, {"patternProperties": {pattern: False}, "additionalProperties": False}) is None
    (message,) = caplog.messages
    assert "cannot be matched in linear time" in message


def test_a_long_list_does_not_hang() -> None:
    """Neither comparing all pairs of its items, nor finding an error in each."""
    assert mismatch({"a": [{"n": n} for n in range(20_000)]}, takes(a={"uniqueItems": True})) is None
    assert mismatch({"a": list(range(100_000))}, takes(a={"items": {"type": "string"}})) is not None


def test_arguments_nested_too_deeply_are_refused() -> None:
    """A RecursionError of a check becomes an answer to the model, not an exception of the turn."""
    deep: Any = {"v": 1}
    for _ in range(400):
        deep = {"v": 1, "next": deep}
    assert mismatch(deep, NODE) == "the arguments are nested too deeply"
    told = parse(call("walk", json.dumps(deep)), {"walk": Tool(name="walk", parameters=NODE)})
    assert told == Fault(
        "schema_mismatch", "the arguments do not fit the tool's schema: the arguments are nested too deeply"
    )


class Breaking(dict[str, Any]):
    """A schema that raises when it is read."""

    def items(self) -> Any:
        raise self["raises"]


@pytest.mark.parametrize("kind", ["PanicException", "RecursionError"])
def test_an_error_of_the_library_becomes_a_message(kind: str) -> None:
    """The compiled parts of the library panic if the stack overflows within them; only an interrupt is an interrupt."""
    breaking = Breaking(raises=type(kind, (BaseException,), {}))
    deep: dict[str, Any] = {}
    for _ in range(50):
        deep = {"a": deep}
    assert mismatch(deep, breaking) == "the arguments are nested too deeply"
    assert mismatch({"a": 1}, breaking) is None
    with pytest.raises(KeyboardInterrupt):
        mismatch({}, Breaking(raises=KeyboardInterrupt))
