"""Validate a value by a JSON Schema: the jsonschema library's errors, as a line for the model.

The schema is the host's, the value is the model's. So a schema that cannot be applied (it is not a
JSON Schema, or one of its references is dangling, circular or points to the network) accepts every
value, which is logged once for each tool. No value can hang the turn: the library matches patterns
with `re`, which may take forever; here pydantic's engine matches them, in time linear in the text.
A pattern that it does not support (look-around, back references), or interprets differently from
ECMA 262, accepts every value. `format` is not asserted. Importing this module imports jsonschema,
which takes longer than all of endturn, so the gate imports it only when it needs it.
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
from pydantic import Field, TypeAdapter, ValidationError as PydanticError
from pydantic_core import SchemaError as UnknownPattern
from referencing import Registry
from referencing.exceptions import Unresolvable

log = logging.getLogger("endturn")

MAX_SCHEMA_CHARS: Final = 300
"""The maximum number of characters of the schema that a message quotes."""


def mismatch(value: Any, schema: Any, *, tool: str = "") -> str | None:
    """Return a message about a value that does not fit a JSON Schema.

    None if it fits, or if the schema cannot be applied. Of the value, the message quotes only the
    names on the path to the error: a value may be long, or a secret.

    Args:
        schema: of the draft that its `$schema` names, else 2020-12.
        tool: the tool's name, for the log.
    """
    try:
        errors = _validator(json.dumps(schema)).iter_errors(value)
        best_error = best_match(islice(errors, 100))  # every entry of a long list may be wrong
    except SchemaError as error:
        _ignore(
            tool,
            f"it is not a JSON Schema: {error.json_path} does not fit {error.validator!r} "
            f"of the draft",
        )
    except Unresolvable as error:
        _ignore(tool, f"its reference {error.ref!r} is unresolved, and nothing is fetched")
    except ArithmeticError:
        return "a number in the arguments is too large"
    except BaseException as error:  # an error of the library; a gate that raises would end the turn
        # its lazily compiled parts
        out_of_stack = type(error).__name__ in ("RecursionError", "PanicException")
        if not out_of_stack and not isinstance(error, Exception):
            raise
        if out_of_stack and _is_deep(value):
            return "the arguments are nested too deeply"
        reason = "it is circular, or nested too deeply"
        _ignore(tool, reason if out_of_stack else f"checking it raised {type(error).__name__}")
    else:
        return None if best_error is None else _describe(best_error)
    return None


_DEEP: Final = 32
"""Levels of nesting from which a check that ran out of stack is the value's fault, not the
schema's."""


def _is_deep(value: Any) -> bool:
    """Return whether a value is nested deeper than that.

    Level by level: it may be too deep for recursion.
    """
    level = [value]
    for _ in range(_DEEP):
        children = (
            item.values() if isinstance(item, dict) else item
            for item in level
            if isinstance(item, dict | list)
        )
        level = [member for members in children for member in members]
    return bool(level)


@lru_cache(maxsize=256)
def _ignore(tool: str, cause: str) -> None:
    """Log that a tool's schema is not used. The cache limits it to once."""
    log.warning("[tools] the schema of the tool %r is not checked: %s", tool, cause)


@lru_cache(maxsize=256)
def _validator(text: str) -> Validator:
    """Return the validator of a schema, given as JSON.

    Raises:
        SchemaError: it is no JSON Schema.
    """
    schema = json.loads(text)
    draft: Any = validator_for(schema, default=Draft202012Validator)
    # else `re` would have to know every pattern
    draft.check_schema(schema, format_checker=FormatChecker(formats=()))
    keywords: dict[str, Any] = {"pattern": _pattern, "uniqueItems": _unique_items}
    if '"patternProperties"' in text:
        keywords |= {
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
        }
        # the library's own check matches names with `re`
        keywords["unevaluatedProperties"] = lambda *_: ()
    if isinstance(schema, dict):
        # on a nested `$schema`, the library would return to its own keywords
        schema.pop("$schema", None)
    registry: Registry[Any] = Registry()  # only the drafts are registered, and nothing is fetched
    checker: Validator = extend(draft, keywords)(schema, registry=registry)  # type: ignore[no-untyped-call]
    return checker


# --- Keywords that the library checks in more than linear time ------------------------------------

_Errors = Iterator[ValidationError]

_NOT_ECMA: Final = re.compile(r"(?<!\\)\[[^\]]*(?<!\\)(?:\[|&&|--|~~)|\\[<>]")
"""Syntax that the engine interprets differently from ECMA 262: nested classes, set operations, word
boundaries."""


@lru_cache(maxsize=1_024)
def _pattern_engine(pattern: str) -> TypeAdapter[str] | None:
    """Return a validator that searches a pattern in linear time; None if it cannot be read."""
    if not _NOT_ECMA.search(pattern):
        try:
            return TypeAdapter(Annotated[str, Field(pattern=pattern)])
        except UnknownPattern:
            pass
    log.warning(
        "[tools] the pattern %r is not checked: it cannot be matched in linear time",
        _shorten(pattern),
    )
    return None


def _contains_match(pattern: str, text: str) -> bool | None:
    """Return whether a text contains a match of a pattern; None if that cannot be decided."""
    engine = _pattern_engine(pattern)
    if engine is None:
        return None
    try:
        engine.validate_python(text)
    except PydanticError as error:
        # Half a surrogate pair is no text to the engine.
        return (
            False
            if error.errors(include_input=False)[0]["type"] == "string_pattern_mismatch"
            else None
        )
    return True


def _pattern(validator: Validator, pattern: str, value: Any, schema: Any) -> _Errors:
    if validator.is_type(value, "string") and _contains_match(pattern, value) is False:
        yield ValidationError("unlike the pattern")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], value: Any, schema: Any
) -> _Errors:
    if validator.is_type(value, "object"):
        for pattern, inner in patterns.items():
            for name, part in value.items():
                if _contains_match(pattern, name):
                    yield from validator.descend(part, inner, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, others: Any, value: Any, schema: dict[str, Any]
) -> _Errors:
    patterns = schema.get("patternProperties", {})
    if validator.is_type(value, "object"):
        named = [
            name
            for name in value
            if any(_contains_match(pattern, name) is not False for pattern in patterns)
        ]
        plain = {"properties": dict.fromkeys([*schema.get("properties", {}), *named])}
        yield from Draft202012Validator.VALIDATORS["additionalProperties"](
            validator, others, value, plain
        )


def _unique_items(validator: Validator, is_required: Any, value: Any, schema: Any) -> _Errors:
    # The library compares all pairs. This check does not treat 1 and 1.0 as equal.
    if not is_required or not validator.is_type(value, "array"):
        return
    if len({json.dumps(part, sort_keys=True) for part in value}) < len(value):
        yield ValidationError("the same twice")


# --- Messages -------------------------------------------------------------------------------------


def _describe(error: ValidationError) -> str:
    """Return the path to the error, and the violated keyword as the schema has it."""
    path = "arguments" + "".join(
        f"[{step}]" if isinstance(step, int) else f".{_shorten(step, 60)}"
        for step in error.absolute_path
    )
    if "propertyNames" in list(error.absolute_schema_path):
        path = f"a name in {path}"
    match error.validator, error.validator_value:
        case "additionalProperties", False:
            # the message names only those members
            return f"{path}: {_shorten(error.message)}"
        case None, _:  # a nested schema is `false`, and the library does not report its place
            return f"{path} is not allowed, or has a value that is not allowed"
        case keyword, value:
            return (
                f"{path} does not fit {_shorten(json.dumps({keyword: value}, ensure_ascii=False))}"
            )


def _shorten(text: str, limit: int = MAX_SCHEMA_CHARS) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
