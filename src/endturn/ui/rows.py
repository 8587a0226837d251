"""What is kept of telemetry.

Rows of spans and events (their columns are in tables.sql), and points of metrics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

import yaml

from endturn.telemetry import schema


def data(name: str, package: str = __package__) -> Any:
    """A data file of a package: YAML parsed, anything else as text."""
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    if not name.endswith(".yaml"):
        return text
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (both safe)


MODEL_CALLS: Final = ("chat", "generate_content", "text_completion")
"""The operations that are calls to a model."""

WHERE: Final = {
    "environment": ("deployment_environment_name", "deployment.environment.name"),
    "cluster": ("cluster", "k8s.cluster.name"),
}
"""Where a service runs: the column of spans, events and turns, the label of series, the resource's
attribute."""
LABELS: Final = (
    *sorted({attribute.label for metric in schema.METRICS for attribute in metric.attributes}),
    *(label for label, _ in WHERE.values()),
)
"""What tells series apart, beside service and instance: where it runs, and each attribute of a
declared metric."""

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
    """What one export says of a series.

    Attributes:
        started_ns: since when it has counted; 0 where that is not said.
        delta: it counted from nothing since the export before, instead of since `started_ns`.
        values: a counter's value; of a histogram the sum, then how many fell into each bucket.
        bounds: a histogram's bucket bounds, the last one infinite.
    """

    series: SeriesKey
    started_ns: int
    at_ns: int
    delta: bool
    values: tuple[float, ...]
    bounds: tuple[float, ...] = ()


@dataclass(slots=True)
class Batch:
    """What one request holds, and how much of it was refused, with the reason."""

    spans: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    texts: list[Row] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    rejected: int = 0
    why: str = ""
    from_file: bool = False

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self.spans) + len(self.events) + len(self.points)

    def reject(self, count: int, why: str) -> None:
        """Leave out some of the request."""
        self.rejected += count
        self.why = self.why or why

    def add(self, other: Batch) -> None:
        """Take another's rows too."""
        self.spans += other.spans
        self.events += other.events
        self.texts += other.texts
        self.points += other.points


@dataclass(frozen=True, slots=True)
class Contents:
    """How many records of each kind a file contains."""

    spans: int
    events: int
    points: int

    def __str__(self) -> str:
        return f"{self.spans} spans, {self.events} events, {self.points} metric points"
