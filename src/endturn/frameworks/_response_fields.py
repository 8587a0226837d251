"""Read fields of frameworks' responses in place, and reject other values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import reduce
from typing import Any

from endturn.errors import UsageError
from endturn.formats import PLAIN, items, member


def nested(response: Any, *names: str) -> Any:
    """Return the field that is reached through these fields; None if one of them is absent."""
    return reduce(member, names, response)


def first_present(*values: Any) -> Any:
    """Return the first value that is neither None nor the empty string; None if there is none."""
    return next((value for value in values if value is not None and value != ""), None)


def first_item(value: Any) -> Any:
    """Return the first item of a list or tuple; None for anything else."""
    return next(iter(items(value)), None)


def has_field(response: Any, name: str) -> bool:
    """Return whether a mapping or an object has a field of that name, whatever its value."""
    if isinstance(response, Mapping):
        return name in response
    return response is not None and bool(try_read(lambda: hasattr(response, name)))


def try_read(reader: Callable[[], Any]) -> Any:
    """Return what reading a foreign object gives; None if it raises."""
    with suppress(Exception):
        return reader()
    return None


def reject_plain_value(reader: str, expected: str, value: Any) -> None:
    """Reject values that have no fields.

    Args:
        reader: name of the public function, for the message.
        expected: what that function reads, for the message.

    Raises:
        UsageError: the value is text, a number, a list or None.
    """
    if value is None or isinstance(value, PLAIN):
        type_name = type(value).__name__
        raise UsageError(f"{reader}() reads {expected}, not {type_name} {value!r:.40}")


def unsupported(reader: str, expected: str, value: Any) -> UsageError:
    """Return the error for a value of another kind.

    The message names the class, or the keys of a mapping, never their values: they may be content.
    """
    description = type(value).__name__
    if isinstance(value, Mapping):
        description = f"a mapping with {sorted(map(str, value))[:5]}"
    elif isinstance(value, PLAIN):
        description = f"{description} {value!r:.40}"
    return UsageError(f"{reader}() reads {expected}, not {description}")
