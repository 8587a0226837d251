"""Whether a text is strictly a JSON object, and whether an object fits a schema: pure, and never lenient by guessing.

What it is not: a JSON Schema library. `mismatch` looks at type, enum, const, required, properties,
additionalProperties, items, anyOf, oneOf, allOf and local $ref. All that it refuses, JSON Schema refuses; not the other
way round.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from endturn.chat import Json


class Malformed(ValueError):
    """A text that is no strict JSON object. `issue`: `incomplete_json` where it is the beginning of a longer text."""

    def __init__(self, issue: str, message: str) -> None:
        super().__init__(message)
        self.issue = issue


def strict_object(text: str) -> Json:
    """The JSON object that a text is, and nothing else.

    Raises:
        Malformed: it is none, has a key twice, or holds a number that JSON does not know.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        issue = "incomplete_json" if _is_beginning(text, error) else "invalid_json"
        raise Malformed(issue, str(error)) from None
    except RecursionError:
        raise Malformed("invalid_json", "it is nested too deeply") from None
    if not isinstance(value, dict):
        raise Malformed("invalid_json", f"it is of type {type(value).__name__}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Malformed("invalid_json", f"the key {twice!r} is given twice")
    return found


def _constant(name: str) -> NoReturn:
    raise Malformed("invalid_json", f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise Malformed("invalid_json", f"{text} is too large a number")
    return value


_STUB: Final = re.compile(r"tr?u?|fa?l?s?|nu?l?|-|\.|\.?\d*[eE][+-]?|u[0-9a-fA-F]{0,4}")
"""The beginning of a literal, of a number's fraction or exponent, of an escape."""


def _is_beginning(text: str, error: json.JSONDecodeError) -> bool:
    """Whether what the parser stumbled over is the end of the text, and so the text may have been longer."""
    rest = text[error.pos :].rstrip()
    return not rest or error.msg.startswith("Unterminated string") or _STUB.fullmatch(rest) is not None


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list, tuple),
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def _is(value: object, name: object) -> bool:
    kinds = _TYPES.get(name) if isinstance(name, str) else None
    if kinds is None:
        return True  # a type that JSON Schema does not know refuses nothing
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, kinds) and not (name == "integer" and isinstance(value, float) and value % 1)


def _at(root: Any, reference: str) -> Any:
    """What a local reference points at; {} (which refuses nothing) where it points elsewhere."""
    found = root if reference.startswith("#") else {}
    for part in reference.removeprefix("#").split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        found = found.get(part, {}) if isinstance(found, Mapping) else {}
    return found


def mismatch(value: Any, schema: Any, *, where: str = "arguments", root: Any = None, hops: int = 8) -> str | None:
    """Where a value does not fit a JSON Schema, in words; None where no misfit is seen."""
    root = schema if root is None else root
    if schema is False:
        return f"{where} is not allowed"
    if not isinstance(schema, Mapping) or not hops:  # references that lead in a circle
        return None

    def same(schema: Any) -> str | None:
        return mismatch(value, schema, where=where, root=root, hops=hops - 1)

    def within(part: Any, schema: Any, name: str) -> str | None:
        return mismatch(part, schema, where=where + name, root=root)

    if isinstance(reference := schema.get("$ref"), str):
        return same(_at(root, reference))
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        return f"{where} must be of type {' or '.join(map(str, kinds))}"
    allowed = schema.get("enum")
    if isinstance(allowed, list) and value not in allowed:
        return f"{where} must be one of {json.dumps(allowed)}"
    if "const" in schema and value != schema["const"]:
        return f"{where} must be {json.dumps(schema['const'])}"
    for each in _list(schema, "allOf"):
        if wrong := same(each):
            return wrong
    for choice in ("anyOf", "oneOf"):  # of oneOf only that one fits at all: two that fit may differ in what is not seen
        wrongs = [same(each) for each in _list(schema, choice)]
        if wrongs and all(wrongs):
            return wrongs[0]
    if isinstance(value, dict):
        for name in _list(schema, "required"):
            if name not in value:
                return f"{where}.{name} is missing"
        properties = schema.get("properties") or {}
        others = True if "patternProperties" in schema else schema.get("additionalProperties", True)
        for name, part in value.items():
            if wrong := within(part, properties.get(name, others), f".{name}"):
                return wrong
    elif isinstance(value, list) and "prefixItems" not in schema:
        for index, part in enumerate(value):
            if wrong := within(part, schema.get("items", True), f"[{index}]"):
                return wrong
    return None


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    found = schema.get(key)
    return found if isinstance(found, list) else []
