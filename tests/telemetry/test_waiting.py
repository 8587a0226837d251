"""Turns that wait: what it costs to let go of the oldest."""

from __future__ import annotations

import time
from dataclasses import dataclass

from endturn.telemetry.waiting import WaitingTurns

MOST = 1_000


@dataclass
class Entry:
    number: int
    deadline: float = 1.0


def test_the_oldest_is_let_go_of_as_quickly_however_many_went_before() -> None:
    """At the bound each new entry pushes out one: that does not look through the places of those before it."""

    def push_out(number: int) -> None:
        for entry in waiting.add(Entry(number)):
            assert waiting.remove(entry)

    waiting: WaitingTurns[Entry] = WaitingTurns(MOST)
    for number in range(MOST):
        assert waiting.add(Entry(number)) == []
    excess = waiting.add(Entry(MOST))
    assert [entry.number for entry in excess] == [0]
    assert waiting.remove(excess[0])
    spent: list[float] = []
    for number in range(MOST + 1, 40 * MOST):
        began = time.perf_counter()
        push_out(number)
        spent.append(time.perf_counter() - began)
    assert sum(sorted(spent[-MOST:])[: MOST // 2]) <= 10 * sum(sorted(spent[:MOST])[: MOST // 2])
