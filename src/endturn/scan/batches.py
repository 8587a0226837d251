"""The identity of batch results, whose names are unique only within one batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from endturn.scan.past_calls import PastTurn


class BatchResult(NamedTuple):
    """One result of a batch.

    Attributes:
        turn: the turn, with only the result's call.
        name: the request's name, unique within its batch; "" if the file lacks it.
        has_id: the call's key is unique beyond its batch, like that of a response with an id.
    """

    turn: PastTurn
    name: str
    has_id: bool


def turns_of(results: Iterable[BatchResult]) -> Iterator[PastTurn]:
    """Yield the turns of a file of results, with keys that are unique over all batches.

    A failure usually has no id, and the next batch may have a request with the same name: so its
    key includes the identity of its batch, which is the same in a copy of the file. A file may hold
    several batches, one after the other: a repeated name begins the next.
    """
    batch = _Batch()
    for result in results:
        if result.name in batch.names:
            yield from batch.turns()
            batch = _Batch()
        batch.add(result)
        if result.has_id:
            yield result.turn
    yield from batch.turns()


class _Batch:
    """Collects the identity of one batch."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._without_id: list[PastTurn] = []
        self._smallest_id = ""
        self._content = blake2b(digest_size=16)

    def add(self, result: BatchResult) -> None:
        (call,) = result.turn.calls
        if result.name:
            self.names.add(result.name)
        if result.has_id:
            self._smallest_id = min(self._smallest_id or call.key, call.key)
        else:
            self._without_id.append(result.turn)
            self._content.update(f"{call.key}\0{call.error}\0".encode("utf-8", "replace"))

    def turns(self) -> Iterator[PastTurn]:
        """Yield the turns without an id, once all results of the batch were added."""
        identity = self._smallest_id or self._content.hexdigest()
        for turn in self._without_id:
            (call,) = turn.calls
            call.key = turn.id = f"{identity} {call.key}"
            yield turn
