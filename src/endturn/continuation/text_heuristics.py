"""Heuristics about a model's text: distinctive repetitions, open code blocks, loops, overlaps.

Pure functions, each in time linear in the text.
"""

from __future__ import annotations

import re
import string
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple
from unicodedata import category

from endturn.vocabulary import REPLACEMENT_CHARACTER

_INDISTINCT_CHARACTERS: Final = frozenset(string.digits + string.whitespace + string.punctuation)


def is_distinctive(text: str) -> bool:
    """Return whether a text is distinctive: a repetition means that it was written twice.

    Rows of figures and rules repeat naturally.
    """
    return any(
        character not in _INDISTINCT_CHARACTERS and not character.isspace() for character in text
    )


LEADING_DOTS: Final = re.compile(r"\s*(?:\.{3}|…)")
LEADING_QUOTES: Final = re.compile(r"""\s*["'“”‘’«»„]+""")
_OPENING: Final = re.compile(r"""\s*(?:(`{3,}|~{3,})[^\n`]*\n\s*)?(["'“”‘’«»„*_`]*)""")
_CLOSING: Final = re.compile(r"""[\s"'“”‘’«»*_`~.!?…。]*""")


def opening(text: str) -> re.Match[str]:
    """Match the wrapping at a text's start: a code block's first line, quotation marks, marks."""
    match = _OPENING.match(text)
    assert match is not None  # the pattern also matches the empty text
    return match


def is_closing(text: str) -> bool:
    """Return whether a text only closes what `opening` matches; punctuation may precede."""
    return _CLOSING.fullmatch(text) is not None


_DOTS_BEGUN: Final = re.compile(r"\s*\.{0,2}")


def may_become_dots(text: str) -> bool:
    """Return whether an incomplete text may still begin with dots."""
    return _DOTS_BEGUN.fullmatch(text) is not None


# --- Code blocks ----------------------------------------------------------------------------------


class Fence(NamedTuple):
    """A line that opens a code block: its backticks or tildes, and the rest in lower case."""

    marker: str
    info: str


_INDENTATION: Final = r"[ \t]*"
_LIST_MARKERS: Final = _INDENTATION + r"(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*"
_FENCE_PATTERN: Final = r"(`{3,}(?=[^\n`]*$)|~{3,}(?!~))(.*)"
_FENCE: Final = re.compile(_INDENTATION + _FENCE_PATTERN)
_FENCES: Final = re.compile(rf"^({_LIST_MARKERS}){_FENCE_PATTERN}\n", re.MULTILINE)
_FENCE_BEGUN: Final = re.compile(_INDENTATION + r"(?:`{0,2}|~{0,2}|`{3,}[^\n`]*|~{3,}[^\n]*)")


def fence(line: str) -> Fence | None:
    """Return the fence on a line with any indentation; None if the line is no fence."""
    match = _FENCE.fullmatch(line)
    return None if match is None else Fence(match[1], match[2].strip().casefold())


def may_become_fence(line: str) -> bool:
    """Return whether an incomplete line may still become a fence."""
    return _FENCE_BEGUN.fullmatch(line) is not None


def open_fence(text: str) -> Fence | None:
    """Return the fence of the code block in which a text ends; None if it ends outside of code."""
    opened, indentation = None, 0
    for match in _FENCES.finditer(text):
        indentation_text, marker, info = match[1], match[2], match[3].strip()
        if opened is None:
            opened, indentation = Fence(marker, info.casefold()), len(indentation_text)
        elif (
            not info
            and marker.startswith(opened.marker)
            and not indentation_text.strip()
            and len(indentation_text) <= indentation + 3
        ):
            opened = None
    return opened


_TAIL_CHARS: Final = 120
"""The number of characters at a text's end that are checked."""
_SENTENCE_ENDS: Final = re.compile(r"[.!?…。！？؟।)\]}>\"'”’»`*_~|]\s*$")


def is_blank(text: str) -> bool:
    """Return whether a text is invisible: only white space and zero-width characters."""
    return all(character.isspace() or category(character) in ("Cf", "Cc") for character in text)


def ends_sentence(text: str) -> bool:
    """Return whether a text may be complete: its last character may end a sentence or markup."""
    return _SENTENCE_ENDS.search(text[-_TAIL_CHARS:]) is not None


# --- Loops ----------------------------------------------------------------------------------------

MIN_LOOP_CHARS: Final = 400
"""The minimum length of a text with a loop, in characters."""
MIN_LOOP_REPETITIONS: Final = 5
"""Minimum number of repetitions that make a loop."""


def loop_start(text: str) -> int | None:
    """Return the position from which a text only repeats itself in a loop; None if it does not.

    A loop repeats one period verbatim, with nothing in between: a syllable, a line, many lines. It
    is at the end of the text, has five or more repetitions, the last perhaps incomplete, and covers
    at least half of a text of 400 or more characters. Rows that share a passage but differ in their
    data are no loop. The position is the end of the first period: only repetitions follow it.
    """
    text = text.rstrip(REPLACEMENT_CHARACTER)
    if len(text) < MIN_LOOP_CHARS:
        return None
    half = text[len(text) // 2 :]
    # Five repetitions in the whole text are two and a half in its second half. A text that has one
    # period over its first three fifths has it throughout, or has none so short. So the first match
    # is the period, or there is none.
    reach = len(half) * 2 // MIN_LOOP_REPETITIONS
    period = half.find(half[: len(half) - reach], 1)
    if period < 0 or half[period:] != half[:-period]:
        return None
    start = len(text) - len(half)
    while start > 0 and text[start - 1] == text[start - 1 + period]:
        start -= 1
    return start + period if len(text) - start >= MIN_LOOP_REPETITIONS * period else None


# --- Natural repetition ---------------------------------------------------------------------------


def is_repeated(text: str) -> bool:
    """Return whether a text is three or more repetitions of the same words or characters.

    A repetition of such a text proves nothing. The last one may be incomplete.
    """
    words = re.findall(r"\w+", text.casefold())
    if any(
        _has_period(words, period)
        for period in range(1, len(words) // 3 + 1)
        if len(words) % period == 0
    ):
        return True
    text = f"{text.strip()} "
    return any(
        _has_period(text[:end], period)
        for end in (-1, None)
        for period in range(1, len(text[:end]) // 3 + 1)
    )


def _has_period(units: Sequence[str], period: int) -> bool:
    return units[period:] == units[:-period]


def overlaps_by_nature(end: str, size: int) -> bool:
    """Return whether the last `size` characters belong to a repetition that ends the text.

    Two periods are enough if the characters are one or more whole periods, as in a text that is cut
    there; otherwise it takes three. A blank may be missing at the end.
    """
    for text, min_length in ((end, size), (f"{end} ", size + 1)):
        for period in range(1, len(text) // 2 + 1):
            length = max(min_length, (3 if min_length % period else 2) * period)
            if length <= len(text) and text[-length:-period] == text[period - length :]:
                return True
    return False


# --- Overlaps -------------------------------------------------------------------------------------


def may_overlap_more(end: str, text: str) -> bool:
    """Return whether an incomplete text may still overlap more of another text's end."""
    return end != "" and text in end[:-1]


def overlap(end: str, text: str, *, below: int = sys.maxsize) -> int:
    """Return the length of the longest start of `text` that is also an end of `end`.

    Only lengths below `below` count.
    """
    starts = range(max(0, len(end) - min(len(text), below - 1)), len(end))
    return next((len(end) - start for start in starts if text.startswith(end[start:])), 0)
