"""What a model's text looks like: a telling repetition, an open code block, a preamble, a loop, an overlap.

Pure, and each in time linear in the text.
"""

from __future__ import annotations

import re
import string
import sys
from bisect import bisect_left
from itertools import product
from typing import Final, NamedTuple
from unicodedata import category

from endturn.tables import lines, shipped

_SAYS_NOTHING: Final = frozenset(string.digits + string.whitespace + string.punctuation)


def tells(text: str) -> bool:
    """Whether a repetition of this text means that it was written twice: rows of figures and rules repeat by nature."""
    return any(character not in _SAYS_NOTHING and not character.isspace() for character in text)


HALF: Final = "\N{REPLACEMENT CHARACTER}"
"""What a decoder makes of half a character, where a limit has cut it."""

LEADING_DOTS: Final = re.compile(r"\s*(?:\.{3}|…)")
_DOTS_BEGUN: Final = re.compile(r"\s*\.{0,2}")


def may_become_dots(text: str) -> bool:
    """Whether a text that goes on may still turn out to begin with dots."""
    return _DOTS_BEGUN.fullmatch(text) is not None


# --- Code blocks --------------------------------------------------------------------------------------------------


class Fence(NamedTuple):
    """A line that opens a code block: its backticks or tildes, and what follows them, lower case."""

    marker: str
    info: str


_INDENTED: Final = r"[ \t]*"
_LISTED: Final = _INDENTED + r"(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*"
_MARKED_AND_SAID: Final = r"(`{3,}(?=[^\n`]*$)|~{3,}(?!~))(.*)"
_FENCE: Final = re.compile(_INDENTED + _MARKED_AND_SAID)
_FENCES: Final = re.compile(rf"^({_LISTED}){_MARKED_AND_SAID}\n", re.MULTILINE)
_FENCE_BEGUN: Final = re.compile(_INDENTED + r"(?:`{0,2}|~{0,2}|`{3,}[^\n`]*|~{3,}[^\n]*)")


def fence(line: str) -> Fence | None:
    """A line as the fence that it is, however it is indented."""
    found = _FENCE.fullmatch(line)
    return None if found is None else Fence(found[1], found[2].strip().casefold())


def may_become_fence(line: str) -> bool:
    """Whether a line that is not over yet may still turn out to be one."""
    return _FENCE_BEGUN.fullmatch(line) is not None


def open_fence(text: str) -> Fence | None:
    """What opened the code block in which a text ends; None if it ends in none."""
    opened, indentation = None, 0
    for found in _FENCES.finditer(text):
        before, marker, info = found[1], found[2], found[3].strip()
        if opened is None:
            opened, indentation = Fence(marker, info.casefold()), len(before)
        elif not info and marker.startswith(opened.marker) and not before.strip() and len(before) <= indentation + 3:
            opened = None
    return opened


_SENTENCE_ENDS: Final = re.compile(r"[.!?…。！？؟।)\]}>\"'”’»`*_~|]\s*$")


def is_blank(text: str) -> bool:
    """Whether nothing of a text can be seen: white space, marks of width zero."""
    return all(character.isspace() or category(character) in ("Cf", "Cc") for character in text)


def ends_sentence(text: str) -> bool:
    """Whether a text may be over where it ends: its last character is one that sentences and markup end with."""
    return _SENTENCE_ENDS.search(text[-PREAMBLE:]) is not None


# --- Preambles ----------------------------------------------------------------------------------------------------

PREAMBLE: Final = 120
"""Characters that a preamble has at most."""

_ALONE: Final = ("continuing", "continued", "continuation", "resuming")
_KNOWN: Final = frozenset(
    " ".join(filter(None, words))
    for _, cells in lines(shipped(), "preambles.tsv", range(4, 5))
    for words in product(*(cell.split("|") for cell in cells))
)
_SORTED: Final = sorted(_KNOWN)
_WORDS: Final = re.compile(r"[a-z']+")
_PLAIN: Final = re.compile(r"[a-z' .,:;!…*_()\[\]>#–—\t\r-]*")
_MARKED: Final = re.compile(r"(\.\.\.|…|:|[)\]*_])\s*$")


def _words(line: str) -> str | None:
    """A line's words, lower case; None if it holds what no preamble holds."""
    line = line.lower().replace("’", "'")
    return " ".join(_WORDS.findall(line)) if _PLAIN.fullmatch(line) else None


def is_preamble(line: str) -> bool:
    """Whether a line announces a continuation instead of being one."""
    words = _words(line)
    return words in _KNOWN and (words not in _ALONE or _MARKED.search(line) is not None)


def may_become_preamble(line: str) -> bool:
    """Whether a line that is not over yet may still turn out to be one."""
    words = _words(line)
    if words is None:
        return False
    at = bisect_left(_SORTED, words)  # whatever begins with them, comes next
    return at < len(_SORTED) and _SORTED[at].startswith(words)


# --- Loops --------------------------------------------------------------------------------------------------------

LOOP_FROM: Final = 400
"""Characters that a text has at least to be called a loop."""
LOOP_TIMES: Final = 5
"""How often a loop says the same, at least."""


def loop_start(text: str) -> int | None:
    """Where a text that has gone over into a loop begins to repeat itself; None if it has not.

    A loop says one thing again and again, verbatim and with nothing in between: a syllable, a line, a period of many
    lines. It is what the text ends in, five times or more over at least half of 400 characters or more; the last time
    may be cut. Rows that share a passage and differ in their data are none, however long the passage. The place is the
    end of the first time: what follows it is repetition and nothing else.
    """
    text = text.rstrip(HALF)
    if len(text) < LOOP_FROM:
        return None
    half = text[len(text) // 2 :]
    # Five times in the whole text, so two and a half in its second half: there, what has one period from its beginning
    # over three fifths has that period throughout, or none so short. The first place is the period or nothing is.
    reach = len(half) * 2 // LOOP_TIMES
    period = half.find(half[: len(half) - reach], 1)
    if period < 0 or half[period:] != half[:-period]:
        return None
    start = len(text) - len(half)
    while start > 0 and text[start - 1] == text[start - 1 + period]:
        start -= 1
    return start + period if len(text) - start >= LOOP_TIMES * period else None


# --- Overlaps -----------------------------------------------------------------------------------------------------


def may_overlap_more(end: str, text: str) -> bool:
    """Whether a text that goes on may still turn out to begin with more of what another ends in."""
    return end != "" and text in end[:-1]


def overlap(end: str, text: str, *, below: int = sys.maxsize) -> int:
    """The length, below a limit, of the longest beginning of a text that is also an end of another."""
    starts = range(max(0, len(end) - min(len(text), below - 1)), len(end))
    return next((len(end) - start for start in starts if text.startswith(end[start:])), 0)
