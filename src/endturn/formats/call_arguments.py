"""Parse the arguments of tool calls, and check that they are complete."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pydantic_core import from_json

from endturn.calls import RequestedCall
from endturn.formats.reading import strict
from endturn.vocabulary import Json


def arguments(raw: str | None) -> Json | None:
    """Parse a call's arguments strictly.

    One JSON object without NaN, infinities or duplicate keys; else None.
    """
    if not raw:
        return None
    try:
        parsed = strict(raw)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def is_json_object(raw: str) -> bool:
    """Return whether a text is one JSON object, as any parser reads it.

    NaN and repeated keys are accepted: they are no sign of truncation.
    """
    if not raw.startswith("{"):
        return False
    try:
        from_json(raw)
    except (ValueError, TypeError):  # TypeError: the text holds half of a surrogate pair
        try:
            json.loads(raw)  # accepts more, and is much slower
        except (ValueError, RecursionError):
            return False
    return True


def are_whole(arguments: Any) -> bool:
    """Return whether a call's arguments are complete: an object, its JSON text, or nothing."""
    raw = arguments.strip() if isinstance(arguments, str) else ""
    return not raw or is_json_object(raw)


def finished_calls(calls: Iterable[tuple[Any, Any, Any]]) -> list[RequestedCall]:
    """List calls by their ids and names.

    The list is empty if one of them is not plain and has to be read separately.

    Args:
        calls: id, name and arguments of each. The iterator may raise LookupError or TypeError for a
            missing member.
    """
    requested = []
    try:
        for id_, name, call_arguments in calls:
            if not (
                id_.__class__ is name.__class__ is str
                and id_
                and name
                and id_.isascii()
                and name.isascii()
            ):
                return []
            if (
                call_arguments != ""
                and (
                    from_json(call_arguments) if call_arguments.__class__ is str else call_arguments
                ).__class__
                is not dict
            ):
                return []
            requested.append(RequestedCall(id_, name))
    except (LookupError, TypeError, ValueError):
        return []
    return requested


def is_plain_text(raw: str) -> bool:
    """Return whether a text is plain, or a JSON string, and not the beginning of other JSON."""
    if not raw.startswith('"'):
        return not raw.startswith(("{", "["))
    try:
        return isinstance(json.loads(raw), str)
    except ValueError:
        return False


def object_or_text(raw: str) -> Json | str:
    """Return a call's arguments, as text if they are incomplete.

    An object that was completed here could be mistaken for the model's own.
    """
    parsed = arguments(raw)
    return raw if parsed is None else parsed
