"""Limits of the numbers and names that are recorded of a call."""

from __future__ import annotations

from typing import Any, Final

MAX_COUNT: Final = 2**31 - 1
"""The largest count (tokens, choices) of one call that is recorded. No model comes near it, formats
with a schema count in 32 bits, and a 64-bit sum has room for four thousand million of them. A
larger number is an error of the server; exported, it would make the collector reject a whole batch,
the host's own metrics among them."""


MAX_STOP_SEQUENCES: Final = 16
"""Stop sequences that are recorded; most providers allow four or five."""


MAX_NAME_LENGTH: Final = 256
"""Characters of a recorded name. Every export of a metric repeats the names in its attributes."""


def is_plausible(figure: Any, least: float, most: float) -> bool:
    """Return whether a value is a number within these limits."""
    is_number = isinstance(figure, int | float) and figure.__class__ is not bool
    return is_number and bool(least <= figure <= most)


def shorten_name(name: str) -> str:
    """Return a name or an id cut to its usual length, in characters that can be exported."""
    if len(name) <= MAX_NAME_LENGTH and name.isascii():
        return name
    return name[:MAX_NAME_LENGTH].encode("utf-8", "replace").decode()


# Removed in 0.2: the names of 0.1.
LONGEST_NAME = MAX_NAME_LENGTH
MOST = MAX_COUNT
MOST_SEQUENCES = MAX_STOP_SEQUENCES
name_shown = shorten_name
