"""White space and common prefixes of two texts at a seam."""

from __future__ import annotations

import re
from typing import Final

SPACE_RUN: Final = re.compile(r"\s+")


def common_prefix_size(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def normalize_space(text: str, *, after_blank: bool = True) -> str:
    """Return a text with one blank for each run of white space.

    `after_blank`: it follows a blank, and begins with none.
    """
    words = " ".join(text.split())
    before = " " if text[:1].isspace() and not after_blank else ""
    after = " " if text[-1:].isspace() and words else ""
    return before + words + after


def plain_length(text: str, size: int, *, after_blank: bool) -> int:
    """Return the length of the part of a text that has `size` characters when normalized.

    `after_blank`: it follows a blank.
    """
    for index, character in enumerate(text):
        if not size:
            return index
        is_blank = character.isspace()
        size -= not (is_blank and after_blank)
        after_blank = is_blank
    return len(text)


def leading_space(text: str) -> str:
    """Return the white space at a text's start."""
    return text[: len(text) - len(text.lstrip())]


def added_space(text_space: str, response_space: str, *, is_exact: bool) -> str:
    """Return what a repetition adds to the white space at the text's end.

    Another or a second blank adds nothing. Further lines, or a deeper indentation of the last, do:
    code depends on it.
    """
    if (is_exact or "\n" in response_space) and response_space.startswith(text_space):
        return response_space[len(text_space) :]
    (_, newline, indentation), (_, response_newline, response_indentation) = (
        text_space.rpartition("\n"),
        response_space.rpartition("\n"),
    )
    return (
        response_indentation[len(indentation) :]
        if newline and response_newline and response_indentation.startswith(indentation)
        else ""
    )
