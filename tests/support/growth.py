"""A law on work: four times as much input takes at most six times the CPU time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from math import inf

LIMIT = 6.0
"""Four, and what a busy machine, its caches and a sort may add. Work that grows with the square takes sixteen times."""
FLOOR_S = 0.001
"""What is shorter is not measured: only what takes longer than six of these can break the law."""
TRIES = 12


def spent(work: Callable[[], object]) -> float:
    """Seconds of CPU time, without garbage collections: they depend on what else is there."""
    gc.disable()
    try:
        began = time.process_time()
        work()
        return time.process_time() - began
    finally:
        gc.enable()


def growth(
    prepare: Callable[[int], Callable[[], object]], n: int, *, suspicious: float = LIMIT, again: int = 0
) -> float:
    """Measure how many times as long the work on 4n takes as that on n: the best of several tries.

    What is suspicious is measured again at a larger size: what a busy machine adds is gone there, and what grows with
    the square is not.

    Args:
        prepare: makes the work on a number of things; making it does not count.
        suspicious: the ratio from which on it is. Of few things, the square is hidden by what each of them costs: a
            lower one finds it there.
        again: the number of things then; twice as many by default.
    """
    ratio = _ratio(prepare, n, suspicious, 2 if again else TRIES)
    return ratio if ratio <= suspicious else _ratio(prepare, again or 2 * n, LIMIT, TRIES)


def _ratio(prepare: Callable[[int], Callable[[], object]], n: int, enough: float, tries: int) -> float:
    small, large = prepare(n), prepare(4 * n)
    least, most = inf, inf
    for _ in range(tries):
        least, most = min(least, spent(small)), min(most, spent(large))
        if most <= enough * max(least, FLOOR_S):
            break
    return most / max(least, FLOOR_S)
