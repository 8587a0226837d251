"""Whether a value fits a JSON Schema: what the jsonschema library says of it, in words for the model.

The schema is the host's, the value is the model's. So a schema that cannot be followed (it is no JSON Schema, or a
reference of it leads nowhere, to the network, or in a circle) refuses nothing, which is logged once for each tool; and
no value can hang the turn, whose patterns would take `re` for ever: they are matched in time linear in the text, by the
engine in pydantic's core. One that it does not know (it has no look-around and no back references), or reads otherwise
than ECMA 262, refuses nothing. `format` is not asserted.

Importing this module imports jsonschema, which takes longer than all of endturn: the gate does so when it first has to.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, Final

from jsonschema import Draft202012Validator, FormatChecker, SchemaError, ValidationError
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from pydantic import Field, TypeAdapter, ValidationError as Unlike
from pydantic_core import SchemaError as Unreadable
from referencing import Registry
from referencing.exceptions import Unresolvable

log = logging.getLogger("endturn")

DEEP: Final = 32
"""Levels within levels. Where so deep a value is too deep to be checked, that is its own fault, not the schema's."""

SHOWN: Final = 300
"""Characters of the schema, at most, that the model is told."""


def mismatch(value: Any, schema: Any, *, tool: str = "") -> str | None:
    """Where a value does not fit a JSON Schema, in words; None where it fits, or the schema cannot be followed.

    Nothing of the value is in the words but the names that lead to the place.

    Args:
        schema: of the draft that its `$schema` names, else 2020-12.
        tool: whose schema it is, for the log.
    """
    try:
        validator = _validator(json.dumps(schema))
        worst = best_match(islice(validator.iter_errors(value), 100))  # a long list may be wrong all along
    except SchemaError as error:
        _ignored(tool, f"it is no JSON Schema: {error.json_path} does not fit {error.validator!r} of the draft")
    except Unresolvable as error:
        _ignored(tool, f"the reference {error.ref!r} in it leads nowhere, and nothing is fetched")
    except ArithmeticError:
        return "a number in the arguments is too large"
    except BaseException as error:  # of the library; a gate that raises would end the turn
        kind = type(error).__name__
        if kind in ("RecursionError", "PanicException"):  # the second where the stack ends in its compiled parts
            if _is_deep(value):
                return "the arguments are nested too deeply"
            _ignored(tool, "it leads in a circle, or is nested too deeply")
        elif isinstance(error, Exception):
            _ignored(tool, f"checking it raised {kind}")
        else:
            raise
    else:
        return None if worst is None else _said(worst)
    return None


@lru_cache(maxsize=256)
def _ignored(tool: str, why: str) -> None:
    """Say that a tool's schema is not used. The cache is what makes it once."""
    log.warning("[tools] the schema of the tool %r refuses nothing: %s", tool, why)


@lru_cache(maxsize=256)
def _validator(text: str) -> Validator:
    """What checks values by a schema, given as JSON.

    Raises:
        SchemaError: it is none.
    """
    schema = json.loads(text)
    draft: Any = validator_for(schema, default=Draft202012Validator)
    draft.check_schema(schema, format_checker=FormatChecker(formats=()))  # else `re` would have to know every pattern
    keywords: dict[str, Any] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    if '"patternProperties"' in text:
        keywords["unevaluatedProperties"] = _nothing  # the library's own matches names with `re`
    if isinstance(schema, dict):
        schema.pop("$schema", None)  # wherever the library sees it, it returns to keywords of its own
    registry: Registry[Any] = Registry()  # of the drafts alone, and nothing is fetched
    checker: Validator = extend(draft, keywords)(schema, registry=registry)  # type: ignore[no-untyped-call]
    return checker


def _is_deep(value: Any) -> bool:
    """Whether there are more than DEEP levels in a value. Level by level: it may be too deep for recursion."""
    level = [value]
    for _ in range(DEEP):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [value for values in inner for value in values]
    return bool(level)


# --- Keywords: as the library's, in linear time -------------------------------------------------------------------

_Errors = Iterator[ValidationError]

_OTHERWISE: Final = re.compile(r"(?<!\\)\[[^\]]*(?<!\\)(?:\[|&&|--|~~)|\\[<>]")
"""What the engine reads otherwise than ECMA 262: classes within classes, sets of them, the edges of words."""


@lru_cache(maxsize=1_024)
def _engine(pattern: str) -> TypeAdapter[str] | None:
    """What finds a pattern in a text, in linear time; None where it cannot be read."""
    if not _OTHERWISE.search(pattern):
        try:
            return TypeAdapter(Annotated[str, Field(pattern=pattern)])
        except Unreadable:
            pass
    log.warning("[tools] the pattern %r refuses nothing: it cannot be matched in linear time", _short(pattern))
    return None


def _finds(pattern: str, text: str) -> bool | None:
    """Whether a text has a pattern in it; None where nobody can say."""
    engine = _engine(pattern)
    if engine is None:
        return None
    try:
        engine.validate_python(text)
    except Unlike as error:
        # Half a surrogate pair is no text to the engine.
        return False if error.errors(include_input=False)[0]["type"] == "string_pattern_mismatch" else None
    return True


def _pattern(validator: Validator, pattern: str, value: Any, schema: Any) -> _Errors:
    if validator.is_type(value, "string") and _finds(pattern, value) is False:
        yield ValidationError("unlike the pattern")


def _pattern_properties(validator: Any, patterns: dict[str, Any], value: Any, schema: Any) -> _Errors:
    if validator.is_type(value, "object"):
        for pattern, inner in patterns.items():
            for name, part in value.items():
                if _finds(pattern, name):
                    yield from validator.descend(part, inner, path=name, schema_path=pattern)


def _additional_properties(validator: Any, others: Any, value: Any, schema: dict[str, Any]) -> _Errors:
    if validator.is_type(value, "object"):
        named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name, part in value.items():
            if name not in named and all(_finds(pattern, name) is False for pattern in patterns):
                if others is False:
                    yield ValidationError("not allowed", path=[name])  # the library's own says no name
                else:
                    yield from validator.descend(part, others, path=name)


def _unique_items(validator: Validator, wanted: Any, value: Any, schema: Any) -> _Errors:
    # The library compares each two. That 1 and 1.0 are the same is not seen here.
    if (
        wanted
        and validator.is_type(value, "array")
        and len({json.dumps(part, sort_keys=True) for part in value}) < len(value)
    ):
        yield ValidationError("the same twice")


def _nothing(validator: Validator, wanted: Any, value: Any, schema: Any) -> _Errors:
    return iter(())


# --- Words --------------------------------------------------------------------------------------------------------

_WANTED: Final = {
    "anyOf": "must fit one of",
    "const": "must be",
    "enum": "must be one of",
    "exclusiveMaximum": "must be less than",
    "exclusiveMinimum": "must be more than",
    "maximum": "must be at most",
    "minimum": "must be at least",
    "multipleOf": "must be a multiple of",
    "not": "must not fit",
    "oneOf": "must fit exactly one of",
    "pattern": "must match",
}
"""What a keyword asks for, before its value. The others are told by their names."""


def _said(error: ValidationError) -> str:
    """Where a value is wrong, and what is wanted there."""
    where = "arguments" + "".join(
        f"[{step}]" if isinstance(step, int) else f".{_short(step, 60)}" for step in error.absolute_path
    )
    if "propertyNames" in list(error.absolute_schema_path):
        where = f"a name in {where}"
    keyword, wanted = error.validator, error.validator_value
    match keyword, wanted:
        case "additionalProperties", False:
            return f"{where} is not allowed"
        case None, _:  # a schema within is `false`, and the library does not say where
            return f"{where} must not be, or must not hold what it holds"
        case "required", list():
            given: Any = error.instance
            missing = [f"{where}.{name}" for name in wanted if name not in given]
            return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        case "type", str() | list():
            return f"{where} must be of type {wanted if isinstance(wanted, str) else ' or '.join(map(str, wanted))}"
        case _:
            asks = _WANTED.get(str(keyword)) or f"does not fit {json.dumps(keyword)}:"
            return f"{where} {asks} {_short(json.dumps(wanted, ensure_ascii=False))}"


def _short(text: str, limit: int = SHOWN) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
