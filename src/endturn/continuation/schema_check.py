"""Whether a value fits a JSON Schema: what the jsonschema library finds, in a line for the model.

The schema is the host's, the value is the model's. So a schema that cannot be followed (it is no
JSON Schema, or a reference of it leads nowhere, to the network, or in a circle) refuses nothing,
which is logged once for each tool. No value can hang the turn: the library searches patterns with
`re`, which may take for ever; here pydantic's engine does, in time linear in the text. A pattern
that it does not know (look-around, back references), or reads otherwise than ECMA 262, refuses
nothing. `format` is not asserted.

Importing this module imports jsonschema, which takes longer than all of endturn: the gate does so
when it first has to.
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

SHOWN: Final = 300
"""Characters of the schema, at most, that the model is told."""


def mismatch(value: Any, schema: Any, *, tool: str = "") -> str | None:
    """Where a value does not fit a JSON Schema, in words.

    None where it fits, or the schema cannot be followed.

    The words quote nothing of the value but the names that lead to the place: it may be long, or a
    secret.

    Args:
        schema: of the draft that its `$schema` names, else 2020-12.
        tool: whose schema it is, for the log.
    """
    try:
        errors = _validator(json.dumps(schema)).iter_errors(value)
        worst = best_match(islice(errors, 100))  # a long list may be wrong all along
    except SchemaError as error:
        _ignore(
            tool,
            f"it is no JSON Schema: {error.json_path} does not fit {error.validator!r} "
            f"of the draft",
        )
    except Unresolvable as error:
        _ignore(tool, f"the reference {error.ref!r} in it leads nowhere, and nothing is fetched")
    except ArithmeticError:
        return "a number in the arguments is too large"
    except BaseException as error:  # of the library; a gate that raises would end the turn
        # the second of its compiled parts
        out_of_stack = type(error).__name__ in ("RecursionError", "PanicException")
        if not out_of_stack and not isinstance(error, Exception):
            raise
        if out_of_stack and _is_deep(value):
            return "the arguments are nested too deeply"
        circle = "it leads in a circle, or is nested too deeply"
        _ignore(tool, circle if out_of_stack else f"checking it raised {type(error).__name__}")
    else:
        return None if worst is None else _described(worst)
    return None


_DEEP: Final = 32
"""Levels of nesting from which a check that ran out of stack is the value's fault, not the
schema's."""


def _is_deep(value: Any) -> bool:
    """Whether a value is nested deeper than that.

    Level by level: it may be too deep for recursion.
    """
    level = [value]
    for _ in range(_DEEP):
        inner = (
            each.values() if isinstance(each, dict) else each
            for each in level
            if isinstance(each, dict | list)
        )
        level = [part for parts in inner for part in parts]
    return bool(level)


@lru_cache(maxsize=256)
def _ignore(tool: str, why: str) -> None:
    """Say that a tool's schema is not used. The cache is what makes it once."""
    log.warning("[tools] the schema of the tool %r is not checked: %s", tool, why)


@lru_cache(maxsize=256)
def _validator(text: str) -> Validator:
    """What checks values by a schema, given as JSON.

    Raises:
        SchemaError: it is none.
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
        # the library's own matches names with `re`
        keywords["unevaluatedProperties"] = lambda *_: ()
    if isinstance(schema, dict):
        # wherever the library sees it, it returns to keywords of its own
        schema.pop("$schema", None)
    registry: Registry[Any] = Registry()  # of the drafts alone, and nothing is fetched
    checker: Validator = extend(draft, keywords)(schema, registry=registry)  # type: ignore[no-untyped-call]
    return checker


# --- Keywords that the library checks in more than linear time ------------------------------------

_Errors = Iterator[ValidationError]

_NOT_ECMA: Final = re.compile(r"(?<!\\)\[[^\]]*(?<!\\)(?:\[|&&|--|~~)|\\[<>]")
"""What the engine reads otherwise than ECMA 262: classes within classes, sets of them, the edges of
words."""


@lru_cache(maxsize=1_024)
def _engine(pattern: str) -> TypeAdapter[str] | None:
    """What finds a pattern in a text, in linear time; None where it cannot be read."""
    if not _NOT_ECMA.search(pattern):
        try:
            return TypeAdapter(Annotated[str, Field(pattern=pattern)])
        except UnknownPattern:
            pass
    log.warning(
        "[tools] the pattern %r is not checked: it cannot be matched in linear time",
        _short(pattern),
    )
    return None


def _finds(pattern: str, text: str) -> bool | None:
    """Whether a text has a pattern in it; None where nobody can say."""
    engine = _engine(pattern)
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
    if validator.is_type(value, "string") and _finds(pattern, value) is False:
        yield ValidationError("unlike the pattern")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], value: Any, schema: Any
) -> _Errors:
    if validator.is_type(value, "object"):
        for pattern, inner in patterns.items():
            for name, part in value.items():
                if _finds(pattern, name):
                    yield from validator.descend(part, inner, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, others: Any, value: Any, schema: dict[str, Any]
) -> _Errors:
    patterns = schema.get("patternProperties", {})
    if validator.is_type(value, "object"):
        named = [
            name
            for name in value
            if any(_finds(pattern, name) is not False for pattern in patterns)
        ]
        plain = {"properties": dict.fromkeys([*schema.get("properties", {}), *named])}
        yield from Draft202012Validator.VALIDATORS["additionalProperties"](
            validator, others, value, plain
        )


def _unique_items(validator: Validator, wanted: Any, value: Any, schema: Any) -> _Errors:
    # The library compares each two. That 1 and 1.0 are the same is not seen here.
    if not wanted or not validator.is_type(value, "array"):
        return
    if len({json.dumps(part, sort_keys=True) for part in value}) < len(value):
        yield ValidationError("the same twice")


# --- Words ----------------------------------------------------------------------------------------


def _described(error: ValidationError) -> str:
    """Where a value is wrong, and what is wanted there.

    As the schema says it, which a model reads well.
    """
    where = "arguments" + "".join(
        f"[{step}]" if isinstance(step, int) else f".{_short(step, 60)}"
        for step in error.absolute_path
    )
    if "propertyNames" in list(error.absolute_schema_path):
        where = f"a name in {where}"
    match error.validator, error.validator_value:
        case "additionalProperties", False:
            # names those members, and quotes nothing else
            return f"{where}: {_short(error.message)}"
        case None, _:  # a schema within is `false`, and the library does not say where
            return f"{where} must not be, or must not hold what it holds"
        case keyword, wanted:
            return (
                f"{where} does not fit {_short(json.dumps({keyword: wanted}, ensure_ascii=False))}"
            )


def _short(text: str, limit: int = SHOWN) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
