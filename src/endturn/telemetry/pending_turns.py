"""The turns that were cut off and may be continued, found by how their continuation would be known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from endturn.records import Turn

Key = tuple[int | str, bytes | str]
"""A history: how many messages it has, and their hash. Or what a server keeps: "response" or "conversation", its id."""


@dataclass(slots=True, eq=False, kw_only=True)
class PendingTurn:
    """A turn whose response was cut off, and how its continuation would be known.

    Attributes:
        number: of the call.
        question: the digest of the user's message that it answers.
        first: the history of the turn's first call, with its system prompts and without.
        keys: that, and the history and the names of its latest call: frameworks append each part, or merge them.
        tail: the last visible characters of the cut answer.
        lost: the response was cut by its transport, or the continuation failed: asking again is a retry.
        failed: the latest attempt raised.
        maximum: the output limit that cut it; again: it had cut the same answer before.
        touched: when it was cut, in seconds of the clock.
    """

    turn: Turn
    number: int
    question: bytes | None
    first: tuple[Key, ...]
    keys: tuple[Key, ...]
    tail: str
    lost: bool
    failed: bool
    maximum: int | None
    again: bool
    touched: float


class PendingTurns:
    """The oldest first."""

    def __init__(self) -> None:
        self._by_number: dict[int, PendingTurn] = {}
        self._by_key: dict[int | str, dict[bytes | str, dict[int, PendingTurn]]] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[PendingTurn]:
        return iter(self._by_number.values())

    def add(self, cut: PendingTurn) -> None:
        """Let one wait; it is the youngest then."""
        self._by_number[cut.number] = cut
        for kind, value in cut.keys:
            self._by_key.setdefault(kind, {}).setdefault(value, {})[cut.number] = cut

    def remove(self, cut: PendingTurn) -> bool:
        """Let one wait no longer; False where it does not."""
        if self._by_number.pop(cut.number, None) is None:
            return False
        for kind, value in cut.keys:
            alike = self._by_key[kind]
            del alike[value][cut.number]
            if not alike[value]:
                del alike[value]
            if not alike:
                del self._by_key[kind]
        return True

    def lengths(self, most: int) -> list[int]:
        """How many messages the histories have that may be the beginning of one with `most`."""
        return sorted(kind for kind in self._by_key if isinstance(kind, int) and kind <= most)

    def of(self, key: Key) -> list[PendingTurn]:
        """Those that answer this history, or are called so; the youngest first."""
        kind, value = key
        return list(self._by_key.get(kind, {}).get(value, {}).values())[::-1]
