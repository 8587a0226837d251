"""What is recorded of what was said, cut to size; every text is redacted first, by the host's function."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from endturn import announce

log = logging.getLogger("endturn")

Redact = Callable[[str], str]
"""Is given each text before it is recorded, and gives what may be."""

TEXTS: Final = 8
"""How many texts of the greatest length there is room for in all: what is older is left out."""

_DEPTH: Final = 32
_OVERHEAD: Final = 8
"""What anything counts besides its text: a million empty strings are not small."""
_OWN: Final = frozenset({"type", "role", "finish_reason", "modality", "mime_type", "size"})
"""Members of messages and parts whose values are the conventions' words and figures, not the host's text."""


class RedactionFailed(Exception):
    """The host's redaction raised, or gave no text."""


class Bound:
    """Room for what one attribute holds.

    Args:
        longest: characters of one text.
        redact: the host's redaction.

    Attributes:
        cut: something was left out.
    """

    __slots__ = ("_left", "_longest", "_redact", "cut")

    def __init__(self, longest: int, redact: Redact | None) -> None:
        self._longest = longest
        self._left = longest * TEXTS
        self._redact = redact
        self.cut = False

    def all(self, things: list[Any], *, newest: bool = False) -> list[Any]:
        """As many messages, or parts, as there is room for: the first ones, or the newest.

        Raises:
            RedactionFailed: none of it may be recorded.
        """
        kept = []
        for thing in reversed(things) if newest else things:
            if self._left <= 0:
                self.cut = True
                break
            kept.append(self._part(thing))
        return kept[::-1] if newest else kept

    def _part(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """A message, or a part of one: the names of its members are the conventions'."""
        self._left -= _OVERHEAD
        found: dict[str, Any] = {}
        for name, value in part.items():
            if name in _OWN:
                found[name] = value
            elif isinstance(value, list) and name in ("parts", "response"):
                found[name] = self.all(value)
            else:
                found[name] = self._value(value, _DEPTH)
        return found

    def _value(self, value: Any, depth: int) -> Any:
        """A value of the host's, or the model's, as JSON can hold it."""
        self._left -= _OVERHEAD
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return self._number(value)
        if isinstance(value, Mapping | list | tuple) and (not depth or self._left <= 0):
            self.cut = True
            return None
        if isinstance(value, Mapping):
            return {self._text(str(key)): self._value(inner, depth - 1) for key, inner in self._while_room(value)}
        if isinstance(value, list | tuple):
            return [self._value(inner, depth - 1) for _, inner in self._while_room(dict(enumerate(value)))]
        self.cut = True  # Bytes, and what else an SDK takes that JSON does not have.
        return None

    def _while_room(self, members: Mapping[Any, Any]) -> Any:
        for pair in members.items():
            if self._left <= 0:
                self.cut = True
                return
            yield pair

    def _text(self, text: str) -> str:
        """A text, redacted whole and then cut: half of a secret is one that no redaction finds."""
        shown = self._redacted(text)
        room = max(0, min(self._longest, self._left))
        if len(shown) > room:
            self.cut = True
            shown = f"{shown[:room]}… [{len(shown) - room:,} more characters]"
        self._left -= len(shown)
        # What UTF-8 cannot hold no exporter can send.
        return shown if shown.isascii() else shown.encode("utf-8", "replace").decode("utf-8")

    def _number(self, value: float) -> Any:
        written = str(value)
        shown = self._redacted(written)
        if shown != written:
            return self._text(shown)
        # What no exporter can send, or JSON cannot say, is text.
        fits = math.isfinite(value) if isinstance(value, float) else -(1 << 63) <= value < 1 << 63
        return value if fits else self._text(written)

    def _redacted(self, text: str) -> str:
        if self._redact is None:
            return text
        try:
            shown = self._redact(text)
            if not isinstance(shown, str):
                raise TypeError("a redaction gives text")
        except Exception:
            if announce.is_strict():
                raise
            _say_failed(self._redact)
            raise RedactionFailed from None
        return shown


_said: set[str] = set()


def _say_failed(redact: Redact) -> None:
    announce.lost("redact")
    name = str(getattr(redact, "name", None) or getattr(redact, "__qualname__", type(redact).__qualname__))
    if name not in _said:
        _said.add(name)
        log.exception("endturn: the redaction %s failed; what was said in such calls is not recorded", name)
