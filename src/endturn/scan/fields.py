"""Read single fields of foreign records, whose values may have any type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from endturn.formats import dialect_in, format_of
from endturn.vocabulary import Row, rows_of


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> Sequence[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else ()


def objects(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list; nothing for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return the value if it is text, else the empty string."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int | None:
    """Return the value if it is a count of tokens, else None."""
    return value if value.__class__ is int and 0 <= value < 2**31 else None


_EARLIEST_S: Final = 100_000_000
_LATEST_S: Final = 7_258_118_400
"""The years 1973 and 2200: values outside are no time of a call, and may exceed the range of times.
"""


def time_ns(value: Any) -> int | None:
    """Return a moment in nanoseconds since 1970.

    Args:
        value: ISO 8601 with a zone, or a number of seconds, milliseconds, microseconds or
            nanoseconds since 1970, distinguished by size.

    Returns:
        None for anything else, a time without a zone and one before 1973 or after 2200 included.
    """
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        if moment.tzinfo is None:
            return None
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        seconds = since.days * 86_400 + since.seconds
        if not _EARLIEST_S < seconds < _LATEST_S:
            return None
        return (seconds * 1_000_000 + since.microseconds) * 1_000
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    for a_second in (1, 10**3, 10**6, 10**9):
        if _EARLIEST_S * a_second < value < _LATEST_S * a_second:
            return int(value * (10**9 // a_second))
    return None


def stop_rows(format_name: str, provider: str = "") -> Mapping[str, Row]:
    """Return the table of stop reasons of a format, in a provider's dialect."""
    return rows_of(format_name, dialect_in(format_of(format_name), provider) if provider else "")
