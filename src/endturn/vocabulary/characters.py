r"""Repair half surrogate pairs, which servers produce that split text in UTF-16.

JSON can hold half a pair (`"\ud83d"`); Python accepts it, and raises when the text is encoded. Two
halves are joined if both arrive; a single one becomes U+FFFD, as in decoders of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final

REPLACEMENT_CHARACTER: Final = "\N{REPLACEMENT CHARACTER}"
"""The replacement for half a character, such as a limit leaves."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def fix_surrogates(text: str) -> str:
    """Return the text with pairs of surrogates joined, and U+FFFD for one alone."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return _SURROGATE.sub(REPLACEMENT_CHARACTER, join_surrogates(text))


def fix_json_surrogates(value: Any) -> Any:
    """Return a JSON value with all of its texts repaired; the value itself if none needs it."""
    if isinstance(value, str):
        return fix_surrogates(value)
    if isinstance(value, list | tuple):
        parts = [fix_json_surrogates(part) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        items = {
            fix_json_surrogates(name): fix_json_surrogates(part) for name, part in value.items()
        }
        is_same = all(new is old for new, old in zip(items.values(), value.values(), strict=False))
        return value if is_same and items.keys() == value.keys() else items
    return value


def join_surrogates(text: str) -> str:
    """Return a text with separate halves of surrogate pairs joined."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


class PieceJoiner:
    """Texts that arrive in pieces, which may be split within a character.

    Half a character is held until the next piece of its text.
    """

    __slots__ = ("_halves",)

    def __init__(self) -> None:
        self._halves: dict[Hashable, str] = {}

    def take(self, piece: str, key: Hashable) -> str:
        """Return the complete characters of a text's next piece."""
        if not self._halves and (piece.isascii() or _SURROGATE.search(piece) is None):
            return piece
        text = join_surrogates(self._halves.pop(key, "") + piece)
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._halves[key] = text[:-1], text[-1]
        return _SURROGATE.sub(REPLACEMENT_CHARACTER, text)

    @property
    def are_complete(self) -> bool:
        """True if no text has half a character at its end."""
        return not self._halves

    def replacement(self, key: Hashable) -> str:
        """Return the replacement for half a character at the text's end; empty if there is none."""
        return REPLACEMENT_CHARACTER if key in self._halves else ""
