"""Limits on received data, applied before it is stored, and safe reading of stored JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from endturn.ui import content_names

WORD: Final = 256
"""The longest name, label, id or other word, in characters."""
TEXT: Final = 16 * 1024
"""The longest event body, and the longest value of an attribute."""
CONTENT: Final = 512 * 1024
"""The longest value of an attribute that holds messages."""
SEARCHED: Final = 1000
"""The number of characters that are searched of a question, and of each end of an answer."""
ROW: Final = 2 * CONTENT
"""The largest total length of the attributes of one span or event."""
ATTRIBUTES: Final = 256
"""The most attributes of one span or event; OpenTelemetry SDKs keep 128 by default."""
LINKS: Final = 128
"""The most links of a span."""
BUCKETS: Final = 256
"""The most buckets of a histogram."""
NUMBER: Final = 1 << 53
"""Exclusive upper bound of stored integers; sums of a million of them fit in 128 bits."""
VALUE: Final = 1e18
"""Exclusive upper bound of a metric point's value, so that no sum of stored points is infinite."""
TIME_NS: Final = 7_258_118_400 * 1_000_000_000
"""Exclusive upper bound of times: the year 2200. Columns hold nanoseconds until 2262, which leaves
room for the times that pages add."""

_CONTENT_KEYS: Final = frozenset(content_names.NAMES)
_OWN: Final = ("endturn.", "gen_ai.")
"""Prefixes of attributes that the pages read; they take precedence over others."""


def word(text: str) -> str:
    """Return a word of at most `WORD` characters.

    A longer one is cut and gets a digest of the full text, so that different words stay different,
    which ids of turns and labels of series require.
    """
    if len(text) <= WORD:
        return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{text[: WORD - 13]}…{digest}"


def word_or_none(value: object) -> str | None:
    """Return a value as a bounded word; None stays None."""
    return None if value is None else word(str(value))


def shorten(text: str, most: int) -> str:
    """Return a text of at most `most` characters; a longer one ends in an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def number_or_none(value: object) -> int | None:
    """Return a count that can be stored; None for any other value."""
    return value if type(value) is int and 0 <= value < NUMBER else None


def attributes_json(values: Mapping[str, Any]) -> str:
    """Return attributes as JSON within the limits; longer values are shortened or left out."""
    bounded: dict[str, Any] = {}
    room = ROW
    for key in sorted(values, key=lambda name: not name.startswith(_OWN))[:ATTRIBUTES]:
        value = _value(values[key], CONTENT if key in _CONTENT_KEYS else TEXT)
        room -= len(key) + (len(value) if isinstance(value, str) else len(_json(value)))
        if room < 0:
            break
        bounded[word(key)] = value
    return _json(bounded)


def _value(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return shorten(value, most)
    if isinstance(value, list | dict) and len(text := _json(value)) > most:
        return shorten(text, most)
    return value


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def parse_json(text: object) -> Any:
    """Parse JSON that was received and is stored as text.

    Returns None for invalid JSON, and for JSON that is nested too deeply.
    """
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def finite(values: Iterable[float | None]) -> list[float | None]:
    """Return numbers as JSON can represent them: None replaces infinity and NaN."""
    return [None if value is None or value - value != 0 else value for value in values]
