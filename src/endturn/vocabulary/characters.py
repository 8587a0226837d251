r"""Whole characters: half a surrogate pair, which a server that cuts in UTF-16 leaves, is no text.

JSON can hold half a pair (`"\ud83d"`); Python takes it, and raises when the text is encoded. The
two halves are joined where both come; one alone becomes U+FFFD, as a decoder of bytes does.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final

HALF: Final = "\N{REPLACEMENT CHARACTER}"
"""What stands for half a character, where a limit has cut it."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def whole(text: str) -> str:
    """Return the text with pairs of surrogates joined, and U+FFFD for one alone."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return _SURROGATE.sub(HALF, paired(text))


def cleaned(value: Any) -> Any:
    """Return a JSON value with all of its texts whole: the value itself if they are."""
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, list | tuple):
        parts = [cleaned(part) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        items = {cleaned(name): cleaned(part) for name, part in value.items()}
        same = all(new is old for new, old in zip(items.values(), value.values(), strict=False))
        return value if same and items.keys() == value.keys() else items
    return value


def paired(text: str) -> str:
    """Text whose characters are whole, of one that may hold the two halves of one apart."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


class Pieces:
    """Texts that arrive in pieces, each perhaps cut within a character.

    The next piece brings the other half.
    """

    __slots__ = ("_halves",)

    def __init__(self) -> None:
        self._halves: dict[Hashable, str] = {}

    def take(self, piece: str, of: Hashable) -> str:
        """Return the complete characters of a text's next piece."""
        if not self._halves and (piece.isascii() or _SURROGATE.search(piece) is None):
            return piece
        joined = paired(self._halves.pop(of, "") + piece)
        if "\ud800" <= joined[-1:] <= "\udbff":
            joined, self._halves[of] = joined[:-1], joined[-1]
        return _SURROGATE.sub(HALF, joined)

    @property
    def are_whole(self) -> bool:
        """Whether no text waits for the other half of a character."""
        return not self._halves

    def left(self, of: Hashable) -> str:
        """Return the replacement for half a character at the text's end; empty if there is none."""
        return HALF if of in self._halves else ""
