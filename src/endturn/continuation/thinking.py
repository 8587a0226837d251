"""Remove thinking that a server leaves in the text of an answer.

It is either between marks, or a repetition of the separate reasoning.
"""

from __future__ import annotations

import re
from typing import Final

from endturn.vocabulary import package_data, read_tsv


def _pattern(mark: str) -> str:
    """Return a pattern of a mark, with optional white space in it and before its last `>`."""
    words = r"\s*".join(re.escape(word) for word in mark.split())
    return rf"{words[:-1]}\s*>" if re.fullmatch(r"</?[\w:]+>", mark) else words


def _marks() -> dict[str, str]:
    """Return each opening mark with the pattern of its closing marks."""
    closing_patterns: dict[str, list[str]] = {}
    for _, (opening, closing, _) in read_tsv(package_data(), "thinking_marks.tsv", range(3, 4)):
        closing_patterns.setdefault(opening, []).append(_pattern(closing))
    return {opening: "|".join(closings) for opening, closings in closing_patterns.items()}


_MARKS: Final = tuple(
    (re.compile(_pattern(opening), re.IGNORECASE), re.compile(closings, re.IGNORECASE))
    for opening, closings in _marks().items()
)
_PREFIX_PATTERN: Final = r"[\s\u200b-\u200d\u2060\ufeff]*(?:```[ \t]*\n\s*)?"
_START: Final = re.compile(_PREFIX_PATTERN)
_ROLE: Final = re.compile(rf"{_PREFIX_PATTERN}(?:<\|start\|>\s*(?:assistant)?)?\s*", re.IGNORECASE)
"""Text that may precede the first mark: white space and characters without width, the line that
opens a block of code (of no language), the header of a message in the harmony format."""
_OPENINGS: Final = tuple(
    role + "".join(opening.lower().split())
    for opening in _marks()
    for role in ("", "<|start|>", "<|start|>assistant")
)
_LONGEST_PIECE: Final = 64
_SHORTEST_PIECE: Final = 3
"""The minimum length of a text that may be a truncated opening mark, in characters."""
_HEADER: Final = re.compile(r"\s*(?:<\|constrain\|>\s*\w+)?\s*(?:<\|message\|>)?", re.IGNORECASE)
"""Text that may follow a closing mark that begins the next message."""
MIN_REPEATED_CHARS: Final = 40
"""The minimum length of a text that counts as the beginning of longer reasoning, in characters."""


def without_thinking(text: str, reasoning: str | None = None) -> str:
    """Return an answer's text without thinking.

    Thinking is the text from an opening mark at the beginning to its closing mark, or to the end if
    there is none, and text that repeats the response's separate reasoning.

    Args:
        text: the text of one response.
        reasoning: the response's separate reasoning.
    """
    rest = _without_marked(text)
    plain, plain_reasoning = " ".join(rest.split()), " ".join((reasoning or "").split())
    if not plain or not plain_reasoning:
        return rest
    if plain_reasoning == plain or (
        len(plain) >= MIN_REPEATED_CHARS and plain_reasoning.startswith(plain)
    ):
        return ""
    if len(plain_reasoning) >= MIN_REPEATED_CHARS and plain.startswith(plain_reasoning):
        return plain[len(plain_reasoning) :]
    return rest


def _without_marked(text: str) -> str:
    """Return the text after its leading marked blocks; "" if the last one is not closed."""
    rest = text
    while True:
        start = _ROLE.match(rest)
        at = 0 if start is None else start.end()
        for opening, closing in _MARKS:
            opening_match = opening.match(rest, at)
            if opening_match is None:
                continue
            closing_match = closing.search(rest, opening_match.end())
            if closing_match is None:
                return ""
            header = _HEADER.match(rest, closing_match.end())
            rest = rest[closing_match.end() if header is None else header.end() :]
            break
        else:
            return "" if _is_piece_of_mark(rest) else rest


def _is_piece_of_mark(text: str) -> bool:
    """Return whether a text is only the beginning of an opening mark, which a limit truncated."""
    if len(text) > _LONGEST_PIECE:
        return False
    start = _START.match(text)
    piece = "".join(text[0 if start is None else start.end() :].lower().split())
    is_in_brackets = len(piece) >= _SHORTEST_PIECE and not piece[0].isalnum()
    return is_in_brackets and any(opening.startswith(piece) for opening in _OPENINGS)
