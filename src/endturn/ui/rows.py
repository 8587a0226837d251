"""The records that the store takes: rows of spans and events, and points of metrics.

The columns of the rows are in tables.sql.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from endturn.telemetry import schema


def read_file(name: str) -> str:
    """Read a file of this package, such as SQL or a style sheet."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


MODEL_CALLS: Final = ("chat", "generate_content", "text_completion")
"""The operations that are calls to a model."""

PLACE_COLUMNS: Final = {
    "environment": ("deployment_environment_name", "deployment.environment.name"),
    "cluster": ("cluster", "k8s.cluster.name"),
}
"""Attributes of the place where a service runs: by the column of spans, events and turns, the label
of series and the resource attribute."""
LABELS: Final = (
    *sorted({attribute.label for metric in schema.METRICS for attribute in metric.attributes}),
    *(label for label, _ in PLACE_COLUMNS.values()),
)
"""Labels of series besides service and instance: each attribute of a declared metric, and where the
service runs."""

METRICS: Final = {metric.name: metric for metric in schema.METRICS}

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """One series: a metric of one process, with its labels in the order of `LABELS`."""

    metric: str
    service: str
    instance: str
    labels: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """The values of a series at one export.

    Attributes:
        started_ns: the start time of the count; 0 if unknown.
        delta: the values count since the previous export, instead of since `started_ns`.
        values: the value of a counter; of a histogram the sum, then the count of each bucket.
        bounds: the upper bounds of a histogram's buckets, the last one infinite.
    """

    series: SeriesKey
    started_ns: int
    at_ns: int
    delta: bool
    values: tuple[float, ...]
    bounds: tuple[float, ...] = ()


@dataclass(slots=True)
class Batch:
    """The records of one request, the number of rejected ones, and why they were rejected."""

    spans: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    texts: list[Row] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    rejected: int = 0
    error_message: str = ""
    from_file: bool = False

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.spans) + len(self.events) + len(self.points)

    def reject(self, count: int, error_message: str) -> None:
        """Count rejected records; the first reason is kept."""
        self.rejected += count
        self.error_message = self.error_message or error_message

    def add(self, other: Batch) -> None:
        """Append the rows of another batch."""
        self.spans += other.spans
        self.events += other.events
        self.texts += other.texts
        self.points += other.points


@dataclass(frozen=True, slots=True)
class Contents:
    """The number of records of each kind in a file."""

    spans: int
    events: int
    points: int

    def __str__(self) -> str:
        return f"{self.spans} spans, {self.events} events, {self.points} metric points"
