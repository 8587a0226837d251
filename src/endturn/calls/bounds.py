"""Limits of the figures and names that are believed and recorded of a call."""

from __future__ import annotations

from typing import Any, Final

MOST: Final = 2**31 - 1
"""The most of anything (tokens, answers) that is believed of one call. No model comes near it,
formats with a schema count in 32 bits, and what 64 bits must hold, the sum over a process's calls,
has room for four thousand million such. A larger figure is a server's mistake; exported, it would
cost the host a whole batch, its own metrics among them."""


MOST_SEQUENCES: Final = 16
"""Stop sequences that are told of; most providers allow four or five."""


LONGEST_NAME: Final = 256
"""Characters of a name. Every export of the process repeats those that metrics have."""


def is_plausible(figure: Any, least: float, most: float) -> bool:
    """Whether a figure is a number within these limits."""
    is_number = isinstance(figure, int | float) and figure.__class__ is not bool
    return is_number and bool(least <= figure <= most)


def name_shown(name: str) -> str:
    """Return a name or an id cut to its usual length, in characters that can be exported."""
    if len(name) <= LONGEST_NAME and name.isascii():
        return name
    return name[:LONGEST_NAME].encode("utf-8", "replace").decode()
