"""The indicators as SQL over the increments of metric points.

The numbers equal those of Prometheus for the queries of `generate/queries.py`.

An increment has the time of its export. So a count over a time range is exact to one export
interval at each edge, as `queries.events_in` is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from duckdb import DuckDBPyConnection

from endturn.telemetry import INDICATORS, Condition, Count, Indicator, Metric, schema
from endturn.ui.rows import LABELS, PLACE_COLUMNS
from endturn.ui.store import Store

SERVICE: Final = "service"
BY_MODEL: Final = {
    "service": SERVICE,
    "provider": schema.PROVIDER.label,
    "model": schema.REQUEST_MODEL.label,
}
FILTER_LABELS: Final = BY_MODEL | {name: label for name, (label, _) in PLACE_COLUMNS.items()}
"""The labels that restrict a view, by the query parameters of its address."""
STEP: Final = "step"
MOST: Final = 1e300
"""The largest number: sums of some thousand are finite, so JSON can represent them."""
Label = str
"""`service`, the label of an attribute, or `step`."""
Labels = tuple[Any, ...]

_LABELS: Final = frozenset({SERVICE, *LABELS})
_NAME_LABELS: Final = {
    new.name: {key.label: value for key, value in says.items()}
    for later in schema.SUCCESSORS.values()
    for new, says in later
}
"""Label values that later conventions express by the name of a metric, by that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The data that a page reads: a time range, and values of `FILTER_LABELS` that restrict it."""

    start_ns: int
    end_ns: int
    only: Mapping[str, str] = field(default_factory=dict)


class Numbers:
    """Numbers of one store within one scope, all from one snapshot: that of the first number.

    Args:
        step_ns: the length of the steps of `steps`; 0 is the whole range.
    """

    def __init__(self, store: Store, scope: Scope, step_ns: int = 0) -> None:
        self.store, self.scope = store, scope
        self.step_ns = step_ns or scope.end_ns - scope.start_ns
        self.number_of_steps = max(1, math.ceil((scope.end_ns - scope.start_ns) / self.step_ns))
        self._last: dict[int, Numbers] = {}
        self._whose = (
            " AND ".join(f"{FILTER_LABELS[name]} = ${name}" for name in scope.only) or "true"
        )

    def last(self, seconds: int) -> Numbers:
        """Return the numbers of the last seconds of the scope."""
        start = self.scope.end_ns - seconds * 1_000_000_000
        return self._last.setdefault(
            seconds, Numbers(self.store, replace(self.scope, start_ns=start))
        )

    def number(self, count: Count, by: Sequence[Label] = ()) -> dict[Labels, float]:
        """Count by labels; of a histogram, count its values.

        Label sets without any are left out.
        """
        label_values = _NAME_LABELS.get(count.metric.name, {})
        columns = [
            f"'{label_values[label]}'" if label in label_values else _column(label) for label in by
        ]
        where = [
            f"metric = $1 AND le IS {'NOT ' if count.metric.instrument == 'histogram' else ''}NULL",
            *map(_condition, count.only),
            *(f"NOT {_condition(condition)}" for condition in count.never),
        ]
        query = f"SELECT {', '.join([*columns, 'sum(added)'])} FROM added JOIN series USING (id)"
        rows = self._increments.execute(
            f"{query} WHERE {' AND '.join(where)} GROUP BY ALL", [count.metric.name]
        ).fetchall()
        # Files of earlier versions may contain values near the largest float.
        return {tuple(labels): min(added, MOST) for *labels, added in rows if added}

    def total(self, count: Count) -> float:
        """Count without labels."""
        return self.number(count).get((), 0.0)

    def share(self, indicator: Indicator, by: Sequence[Label] = ()) -> dict[Labels, float]:
        """Return a share by labels.

        Label sets whose denominator is 0 are left out.
        """
        assert indicator.denominator is not None
        part, wholes = self.number(indicator.count, by), self.number(indicator.denominator, by)
        return {
            labels: part.get(labels, 0.0) / value for labels, value in wholes.items() if value > 0
        }

    def value(self, name: str) -> float | None:
        """Return an indicator by its name.

        A count is None without metrics, a share if its denominator is 0.
        """
        indicator = INDICATORS[name]
        if indicator.denominator is None:
            return self.total(indicator.count) if self.measured else None
        return self.share(indicator).get(())

    @cached_property
    def measured(self) -> bool:
        """True if any metric of the scope's services and models has arrived, at any time."""
        query = f"SELECT 1 FROM increments JOIN series ON id = series WHERE {self._whose} LIMIT 1"
        return bool(self.store.read_tuples(query, self.scope.only))

    def steps(self, count: Count, by: Sequence[Label]) -> dict[Labels, list[float]]:
        """Count in each step of the range, by labels, zeros included."""
        steps: dict[Labels, list[float]] = defaultdict(lambda: [0.0] * self.number_of_steps)
        for (*labels, step), added in self.number(count, (*by, STEP)).items():
            steps[tuple(labels)][step] = added
        return dict(steps)

    def buckets(self, metric: Metric, by: Sequence[Label] = ()) -> dict[Labels, dict[float, float]]:
        """Count the values in each bucket of a histogram, by its upper bound.

        The metric of later conventions is counted too.
        """
        names = [metric, *(new for new, _ in schema.SUCCESSORS.get(metric, ()))]
        bounds = (
            "SELECT DISTINCT unnest(bounds) FROM series WHERE list_contains($1, metric) ORDER BY 1"
        )
        empty = dict.fromkeys(
            (bound for (bound,) in self.store.read_tuples(bounds, [[m.name for m in names]])), 0.0
        )
        counts_of: dict[Labels, dict[float, float]] = defaultdict(lambda: dict(empty))
        for metric_or_successor in names:
            for (*labels, le), added in self.number(
                Count(metric_or_successor), (*by, "le")
            ).items():
                counts = counts_of[tuple(labels)]
                counts[le] = counts.get(le, 0.0) + added  # bounds may have changed over time
        return dict(counts_of)

    def quantiles(self, q: float, metric: Metric, by: Sequence[Label] = ()) -> dict[Labels, float]:
        """Return a quantile by labels, interpolated within its bucket."""
        return {labels: quantile(q, counts) for labels, counts in self.buckets(metric, by).items()}

    @cached_property
    def _increments(self) -> DuckDBPyConnection:
        """A connection with the temporary table `added`: increments by series, bucket and step.

        One pass over the stored increments serves every number. The table has no labels, because
        joining them here would take most of the time. It ends with its connection.
        """
        scope = self.scope
        connection = self.store.connection()
        connection.execute(
            f"CREATE TEMP TABLE added AS SELECT series AS id, le, ((at_ns - $start - 1) // "
            f"$step)::INT AS {STEP},"
            " sum(added) AS added"
            " FROM increments WHERE at_ns > $start AND at_ns <= $end"
            f" AND series IN (SELECT id FROM series WHERE {self._whose}) GROUP BY ALL",
            {"start": scope.start_ns, "end": scope.end_ns, "step": self.step_ns, **scope.only},
        )
        return connection


def _condition(condition: Condition) -> str:
    attribute, values = condition
    # values of the schema, never user input
    quoted = ", ".join(f"'{value}'" for value in sorted(values))
    return f"({_column(attribute.label)} IN ({quoted}))"


def _column(label: Label) -> str:
    return f"coalesce({label}, '')" if label in _LABELS else label


def quantile(q: float, counts: Mapping[float, float]) -> float:
    """Return a quantile of buckets, computed as Prometheus' histogram_quantile does.

    It is linear within a bucket, and at most the last finite bound.

    Args:
        counts: the number of values in each bucket, by its upper bound, empty ones included.
    """
    rank = q * sum(counts.values())
    below = lower = 0.0
    for bound, count in sorted(counts.items()):
        if count and below + count >= rank:
            return lower if bound == math.inf else lower + (bound - lower) * (rank - below) / count
        below += count
        lower = bound
    return math.nan


def step_of(range_ns: int, most: int = 120) -> int:
    """Return a round length in nanoseconds that divides a range into at most `most` steps."""
    seconds = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
    fits = (step for step in seconds if range_ns <= step * most * 1_000_000_000)
    return next(fits, 86400 * math.ceil(range_ns / (most * 86400 * 10**9))) * 1_000_000_000
