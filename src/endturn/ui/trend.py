"""The headline over time: the share of truncated turns that ended unfinished.

A turn counts at the time of its last response. A turn that still waits for its continuation may end
either way, so the share is a range while such turns are in its window; the chart hatches it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from endturn.telemetry import INDICATORS, TRUNCATED_TURNS, UNFINISHED_TURNS
from endturn.ui.axes import NS
from endturn.ui.bounds import finite
from endturn.ui.charts import Chart, ChartSeries, Undecided
from endturn.ui.numbers import Numbers
from endturn.ui.store import Store
from endturn.ui.views import View

WINDOW_S: Final = 60
"""The shortest window, in seconds. Each value is that of the window before it, usually a tenth of
the range."""
MIN_STORED_SHARE: Final = 0.9
"""The share of the truncated turns in metrics that must be stored for turns to be counted. It is
below 1, since metrics are exported later than turns, which matters at the edges of the range."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Truncated turns by step.

    Attributes:
        unfinished: those that ended unfinished.
        truncated: all that ended.
        waiting: those that have not ended.
    """

    unfinished: Sequence[float]
    truncated: Sequence[float]
    waiting: Sequence[float]

    @classmethod
    def of_turns(cls, view: View, store: Store, numbers: Numbers) -> Self:
        """Count stored turns."""
        where, parameters = view.where("end_ns")
        last = numbers.number_of_steps - 1
        columns = [[0.0] * numbers.number_of_steps for _ in range(3)]
        query = (
            "SELECT greatest(0, least((end_ns - $start) // $step, $last)),"
            " count_if(state = 'unfinished'), count_if(state <> 'open'), count_if(state = 'open')"
            f" FROM turns WHERE {where} AND state IN ('unfinished', 'finished', 'open') GROUP BY 1"
        )
        sizes = {"step": numbers.step_ns, "last": last}
        for step, *counts in store.read_tuples(query, parameters | sizes):
            for column, number in zip(columns, counts, strict=True):
                column[step] = number
        return cls(*columns)

    @classmethod
    def of_metrics(cls, numbers: Numbers, waiting: Sequence[float]) -> Self:
        """Count from metrics, at the times of their exports."""
        empty = [0.0] * numbers.number_of_steps
        unfinished, truncated = (
            numbers.steps(count, ()).get((), empty) for count in (UNFINISHED_TURNS, TRUNCATED_TURNS)
        )
        return cls(unfinished, truncated, waiting)

    def windows(self, length: int) -> Self:
        """Return the sums over `length` steps, each ending with one step."""
        return type(self)(
            *(_sums(column, length) for column in (self.unfinished, self.truncated, self.waiting))
        )


def trend(view: View, store: Store, numbers: Numbers) -> Chart:
    """Return the chart of the headline, without series if no turn was truncated.

    It counts stored turns, since metrics count a turn only when its end is known, up to half a
    minute later. If spans are sampled or not sent, it counts metrics.
    """
    counts = Counts.of_turns(view, store, numbers)
    if sum(counts.truncated) < MIN_STORED_SHARE * numbers.total(TRUNCATED_TURNS):
        counts = Counts.of_metrics(numbers, counts.waiting)
    length = max(1, numbers.number_of_steps // 10, math.ceil(WINDOW_S * NS / numbers.step_ns))
    windows = counts.windows(length)
    steps = list(zip(windows.unfinished, windows.truncated, windows.waiting, strict=True))
    shares = finite(
        unfinished / truncated if truncated and not waiting else None
        for unfinished, truncated, waiting in steps
    )
    lowest, highest = (
        finite(
            (unfinished + part * waiting) / (truncated + waiting) if waiting else None
            for unfinished, truncated, waiting in steps
        )
        for part in (0, 1)
    )
    undecided = Undecided(name="not yet decided", lowest=lowest, highest=highest)
    line = ChartSeries(name="not continued", colour="lost", values=shares, filled=True)
    return Chart(
        id="trend",
        title=INDICATORS["unfinished_share"].title,
        kind="line",
        unit="share",
        start_ns=numbers.scope.start_ns,
        step_ns=numbers.step_ns,
        series=(line,) if any(windows.truncated) or any(windows.waiting) else (),
        undecided=undecided if any(windows.waiting) else None,
    )


def _sums(column: Sequence[float], length: int) -> list[float]:
    ends: Iterable[int] = range(1, len(column) + 1)
    return [sum(column[max(0, end - length) : end]) for end in ends]
