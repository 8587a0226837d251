"""Turns that wait for their next call, until a deadline."""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from math import inf
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """A turn that waits; `number` is its latest call's."""

    number: int
    deadline: float


Entry = TypeVar("Entry", bound=Waiting)


class WaitingTurns(Generic[Entry]):
    """The entries that wait, by the number of their latest call.

    Not safe for threads: the caller holds a lock.

    Args:
        most: how many may wait at once.

    Attributes:
        earliest: no entry's deadline is earlier.
    """

    def __init__(self, most: int) -> None:
        self.earliest = inf
        self._most = most
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        """The oldest are removed first: a plain `dict` would look for the next one for long."""
        self._deadlines: list[tuple[float, int]] = []
        """A heap. What was removed stays in it until its deadline, or until most of the heap is
        such."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry: Entry) -> bool:
        return self._entries.get(entry.number) is entry

    def entries(self) -> list[Entry]:
        """List the entries, the oldest first."""
        return list(self._entries.values())

    def add(self, entry: Entry) -> list[Entry]:
        """Add an entry.

        Returns:
            The oldest entries beyond the bound: the caller removes and ends them.
        """
        self._entries[entry.number] = entry
        if entry.deadline < self.earliest:
            self.earliest = entry.deadline
        heappush(self._deadlines, (entry.deadline, entry.number))
        if len(self._deadlines) > 2 * len(self._entries) + 64:
            self._deadlines = [
                (waiting.deadline, number) for number, waiting in self._entries.items()
            ]
            heapify(self._deadlines)
        excess = len(self._entries) - self._most
        return (
            []
            if excess <= 0
            else [
                waiting for waiting, _ in zip(self._entries.values(), range(excess), strict=False)
            ]
        )

    def remove(self, entry: Entry) -> bool:
        """Remove an entry; False where it does not wait any more."""
        if entry not in self:
            return False
        del self._entries[entry.number]
        return True

    def expired(self, now: float) -> list[Entry]:
        """List the entries whose deadline has passed, the earliest deadline first."""
        over: list[Entry] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, number = heappop(self._deadlines)
            entry = self._entries.get(number)
            if entry is not None and entry.deadline == deadline:
                over.append(entry)
        self.earliest = self._deadlines[0][0] if self._deadlines else inf
        return over
