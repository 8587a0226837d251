"""Collections of turns that wait for their next call, until a deadline."""

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
    """The waiting entries, by the number of their latest call.

    Not thread-safe: the caller holds a lock.

    Args:
        limit: maximum number of entries.

    Attributes:
        earliest: a time before or at the earliest deadline.
        by_number: the entries, the oldest first; `add` and `remove` change it.
    """

    def __init__(self, limit: int) -> None:
        self.earliest = inf
        self._limit = limit
        self.by_number: OrderedDict[int, Entry] = OrderedDict()
        """Ordered, because the oldest are removed first: a plain `dict` takes long to find the next
        one."""
        self._deadlines: list[tuple[float, int]] = []
        """A heap. Removed entries stay in it until their deadline, or until they are most of it."""

    def entries(self) -> list[Entry]:
        """List the entries, the oldest first."""
        return list(self.by_number.values())

    def add(self, entry: Entry) -> list[Entry]:
        """Add an entry.

        Returns:
            The oldest entries beyond the bound: the caller removes and ends them.
        """
        self.by_number[entry.number] = entry
        if entry.deadline < self.earliest:
            self.earliest = entry.deadline
        heappush(self._deadlines, (entry.deadline, entry.number))
        if len(self._deadlines) > 2 * len(self.by_number) + 64:
            self._deadlines = [
                (waiting.deadline, number) for number, waiting in self.by_number.items()
            ]
            heapify(self._deadlines)
        excess = len(self.by_number) - self._limit
        return (
            []
            if excess <= 0
            else [
                waiting for waiting, _ in zip(self.by_number.values(), range(excess), strict=False)
            ]
        )

    def remove(self, entry: Entry) -> bool:
        """Remove an entry. Returns False if it does not wait any more."""
        if self.by_number.get(entry.number) is not entry:
            return False
        del self.by_number[entry.number]
        return True

    def expired(self, now: float) -> list[Entry]:
        """List the entries whose deadline has passed, the earliest deadline first."""
        expired: list[Entry] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, number = heappop(self._deadlines)
            entry = self.by_number.get(number)
            if entry is not None and entry.deadline == deadline:
                expired.append(entry)
        self.earliest = self._deadlines[0][0] if self._deadlines else inf
        return expired
