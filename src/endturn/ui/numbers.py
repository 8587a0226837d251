"""The indicators as SQL over what metric points added: the same numbers as `generate/promql.py` has Prometheus give.

An increment stands at the time of the export that brought it. So a count over a time range is exact to one export
interval at each edge, as `promql.number` is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from endturn.telemetry import schema
from endturn.telemetry.indicators import INDICATORS, Condition, Count, Indicator
from endturn.telemetry.schema import Metric
from endturn.ui.rows import LABELS
from endturn.ui.store import Store

SERVICE: Final = "service"
Label = str
"""`service`, or an attribute as a label."""
Labels = tuple[str, ...]

_LABELS: Final = frozenset({SERVICE, *LABELS})
_SAID: Final = {
    new.name: {key.label: value for key, value in says.items()}
    for later in schema.SUCCESSORS.values()
    for new, says in later
}
"""What the later generation of the conventions says by a metric's name instead of by a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is looked at: a time range, and whose telemetry. Empty means everybody's."""

    start_ns: int
    end_ns: int
    service: str = ""
    provider: str = ""
    model: str = ""

    @property
    def filters(self) -> dict[str, str]:
        """The columns that are restricted."""
        asked = {SERVICE: self.service, schema.PROVIDER.label: self.provider, schema.REQUEST_MODEL.label: self.model}
        return {column: value for column, value in asked.items() if value}

    def last(self, seconds: int) -> Scope:
        """The same, of the last seconds only."""
        return replace(self, start_ns=self.end_ns - seconds * 1_000_000_000)


class Numbers:
    """Numbers of one store within one scope."""

    def __init__(self, store: Store, scope: Scope) -> None:
        self.store, self.scope = store, scope

    def number(self, count: Count, by: Sequence[Label] = ()) -> dict[Labels, float]:
        """How many there were, by labels; without a row where there were none."""
        return {tuple(row[:-1]): row[-1] for row in self._sum(count, by) if row[-1]}

    def total(self, count: Count) -> float:
        """How many there were in all."""
        return self.number(count).get((), 0.0)

    def share(self, indicator: Indicator, by: Sequence[Label] = ()) -> dict[Labels, float]:
        """A part of a whole, by labels: zero where nothing bad happened, without a row where nothing happened."""
        assert indicator.whole is not None
        part, whole = self.number(indicator.count, by), self.number(indicator.whole, by)
        return {labels: part.get(labels, 0.0) / value for labels, value in whole.items() if value > 0}

    def value(self, name: str) -> float | None:
        """An indicator by its name: a count, or a share that is None where nothing happened."""
        indicator = INDICATORS[name]
        return self.total(indicator.count) if indicator.whole is None else self.share(indicator).get(())

    def steps(self, count: Count, by: Sequence[Label], step_ns: int) -> dict[Labels, list[float]]:
        """How many there were in each step of the range, by labels, zeros included."""
        start = self.scope.start_ns
        length = self.number_of_steps(step_ns)
        found: dict[Labels, list[float]] = defaultdict(lambda: [0.0] * length)
        columns = [*by, f"(at_ns - {start} - 1) // {step_ns}"]
        for *labels, step, added in self._sum(count, columns):
            found[tuple(labels)][int(step)] += added
        return dict(found)

    def number_of_steps(self, step_ns: int) -> int:
        """Into how many steps the range falls."""
        return max(1, math.ceil((self.scope.end_ns - self.scope.start_ns) / step_ns))

    def buckets(
        self, metric: Metric, by: Sequence[Label] = (), only: tuple[Condition, ...] = ()
    ) -> dict[Labels, dict[float, float]]:
        """How many values fell into each bucket, by its upper bound; of the later generation's metric too."""
        names = [metric, *(new for new, _ in schema.SUCCESSORS.get(metric, ()))]
        bounds = "SELECT DISTINCT unnest(bounds) FROM series WHERE list_contains($1, metric) ORDER BY 1"
        empty = dict.fromkeys((bound for (bound,) in self.store.read(bounds, [[m.name for m in names]])), 0.0)
        found: dict[Labels, dict[float, float]] = defaultdict(lambda: dict(empty))
        columns = [*by, "le"]
        for each in names:
            for *labels, le, added in self._sum(Count(each, only=only), columns):
                found[tuple(labels)][le] += added
        return dict(found)

    def quantiles(
        self, q: float, metric: Metric, by: Sequence[Label] = (), only: tuple[Condition, ...] = ()
    ) -> dict[Labels, float]:
        """A quantile by labels, interpolated within its bucket."""
        return {labels: quantile(q, counts) for labels, counts in self.buckets(metric, by, only).items()}

    def stepped_quantiles(
        self, q: float, metric: Metric, step_ns: int, only: tuple[Condition, ...] = ()
    ) -> list[float | None]:
        """A quantile in each step of the range, None where there were no values."""
        step = f"(at_ns - {self.scope.start_ns} - 1) // {step_ns}"
        found: list[float | None] = [None] * self.number_of_steps(step_ns)
        for (number,), counts in self.buckets(metric, (step,), only).items():
            found[int(number)] = quantile(q, counts)
        return found

    def _sum(self, count: Count, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """What was added, grouped by columns; of a histogram how many values."""
        scope = self.scope
        said = _SAID.get(count.metric.name, {})
        columns = [f"'{said[column]}'" if column in said else column for column in columns]
        where = [
            "metric = $metric", "at_ns > $start", "at_ns <= $end",
            f"le IS {'NOT ' if count.metric.instrument == 'histogram' else ''}NULL",
            *(f"{column} = ${column}" for column in scope.filters),
            *(_condition(condition) for condition in count.only),
            *(f"NOT {_condition(condition)}" for condition in count.never),
        ]  # fmt: skip
        plain = (f"coalesce({column}, '')" if column in _LABELS else column for column in columns)
        grouped = "".join(f"{column} AS g{n}, " for n, column in enumerate(plain))
        names = ", ".join(f"g{n}" for n in range(len(columns)))
        query = (
            f"SELECT {grouped}sum(added) FROM increments JOIN (SELECT * EXCLUDE at_ns FROM series) series"
            f" ON series.id = increments.series WHERE {' AND '.join(where)}" + (f" GROUP BY {names}" if names else "")
        )
        asked = {"metric": count.metric.name, "start": scope.start_ns, "end": scope.end_ns, **scope.filters}
        return [row for row in self.store.read(query, asked) if row[-1] is not None]


def _condition(condition: Condition) -> str:
    attribute, values = condition
    quoted = ", ".join(f"'{value}'" for value in sorted(values))  # words of the schema, never a user's
    return f"(coalesce({attribute.label}, '') IN ({quoted}))"


def quantile(q: float, counts: Mapping[float, float]) -> float:
    """A quantile of buckets, as Prometheus' histogram_quantile has it: linear within a bucket, the last bound at most.

    Args:
        counts: how many values fell into each bucket, by its upper bound, empty ones included.
    """
    wanted = q * sum(counts.values())
    below = lower = 0.0
    for bound, count in sorted(counts.items()):
        if count and below + count >= wanted:
            return lower if bound == math.inf else lower + (bound - lower) * (wanted - below) / count
        below += count
        lower = bound
    return math.nan


def step_of(range_ns: int, most: int = 120) -> int:
    """A round length for the steps of a chart, so that there are at most so many."""
    seconds = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
    fits = (each for each in seconds if range_ns <= each * most * 1_000_000_000)
    return next(fits, 86400 * math.ceil(range_ns / (most * 86400 * 10**9))) * 1_000_000_000
