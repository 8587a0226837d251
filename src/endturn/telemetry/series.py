"""The series of a metric: limits of its label values, and the sums by label set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from opentelemetry.metrics import Observation

from endturn.telemetry import schema
from endturn.telemetry.schema import Metric

MOST: Final = 2**53
"""Maximum of one measurement: the largest integer that a float holds exactly. A sum beyond 64 bits
would fail all later exports of the process, including the host's own metrics."""

OTHER: Final = "other"
"""The value of a label past its cap."""

LENGTH: Final = 128
"""Maximum characters of a label's value. The Collector shortens its own labels to the same."""

SETS: Final = 1_400
"""Attribute sets of one instrument, beyond which its open labels are `other`. Beyond 2,000 the SDK
merges new sets into one without labels."""

CAPS: Final = {"provider": 32, "model": 100, "agent": 10, "server_address": 64, "error_type": 32}
"""Maximum number of values of an open label in a process, by the label's value in
`endturn.series.capped_label`."""

Attributes = dict[str, str | int | bool]
Values = tuple[str | int | bool | None, ...]
"""A value for each attribute of the metric, in the schema's order; None and "" omit the
attribute."""

Pair = tuple[str, str]
"""Provider and model."""


class Caps:
    """The cardinality caps of open labels.

    The first values of a label are kept, later ones become `other`. A model counts with its
    provider, a port with its address; `endturn.generate.cardinality` computes the totals.

    Args:
        capped: called with the label (as in `endturn.series.capped_label`) each time a measurement
            gets `other`.
    """

    def __init__(self, capped: Callable[[str], None]) -> None:
        self.capped = capped
        self._values: dict[str, set[object]] = {label: set() for label in schema.CAPPED.values}

    def admits(self, label: str, value: object) -> bool:
        """Return whether a label may have this value."""
        values = self._values[label]
        if value not in values and len(values) >= CAPS[label]:
            self.capped(label)
            return False
        values.add(value)
        return True

    def pair(self, provider: str, model: str) -> Pair:
        """Return provider and model as label values."""
        provider, model = provider[:LENGTH], model[:LENGTH]
        if (provider, model) in self._values["model"]:
            return provider, model
        if not self.admits("provider", provider):
            return OTHER, OTHER
        return provider, model if self.admits("model", (provider, model)) else OTHER

    def limit(self, label: str, value: str | None) -> str | None:
        """Return the value for a label: shortened, and `other` past the cap."""
        return value if value is None or self.admits(label, value := value[:LENGTH]) else OTHER


class MetricSeries:
    """The attribute sets of one metric, each built once, and a counter's sums by set."""

    def __init__(self, metric: Metric, caps: Caps) -> None:
        self._caps = caps
        self._keys = tuple(attribute.key for attribute in metric.attributes)
        self._closed = tuple(attribute.is_closed for attribute in metric.attributes)
        self._sets: dict[Values, Attributes] = {}
        self._sums: dict[Values, float] = {}
        self._reported: set[Values] = set()
        self.taken: list[Observation] = []

    def attributes(self, values: Values) -> Attributes:
        """Return the attribute set of these values."""
        return self._sets.get(values) or self._sets[self._admit(values)]

    def _admit(self, values: Values) -> Values:
        """Return the values under which a set is kept.

        With every open label `other` if the metric has too many sets.
        """
        if values not in self._sets:
            if len(self._sets) >= SETS and not all(self._closed):
                self._caps.capped("all")
                values = tuple(
                    value if closed else OTHER if isinstance(value, str) else None
                    for value, closed in zip(values, self._closed, strict=True)
                )
            pairs = zip(self._keys, values, strict=True)
            self._sets[values] = {
                key: value for key, value in pairs if value is not None and value != ""
            }
        return values

    def add(self, values: Values, amount: float = 1) -> None:
        """Add to a sum. 0 creates it, so that its first increment is visible as one."""
        if 0 <= amount <= MOST:
            if values not in self._sums:
                values = self._admit(values)
            self._sums[values] = self._sums.get(values, 0) + amount

    def reset(self) -> None:
        """Set all sums to zero; the attribute sets are kept."""
        self._sums = dict.fromkeys(self._sums, 0)
        self._reported.clear()

    def take(self, *, zero_first: bool) -> bool:
        """Copy the current sums to `taken`, for the next observation.

        Args:
            zero_first: 0 in place of each sum that was never observed before.

        Returns:
            Whether a sum above 0 was replaced by 0.
        """
        new = self._sums.keys() - self._reported if zero_first else set()
        self._reported |= new
        self.taken = [
            Observation(0 if values in new else sum_, self._sets[values])
            for values, sum_ in self._sums.items()
        ]
        return any(self._sums[values] for values in new)
