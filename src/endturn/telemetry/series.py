"""The series of a metric: which labels are let in, and the sums by label set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from opentelemetry.metrics import Observation

from endturn.telemetry import schema
from endturn.telemetry.schema import Metric

MOST: Final = 2**53
"""The most that one measurement may be: what a float holds exactly. An integer beyond 64 bits that
got into a sum would fail every later export of the process, the host's own metrics too."""

OTHER: Final = "other"
"""What a capped label reads."""

LENGTH: Final = 128
"""Characters of a label's value; the Collector cuts those that it makes there, too."""

SETS: Final = 1_400
"""Attribute sets of one instrument, before its open labels read `other`. Past 2,000 the SDK merges
what comes into one set without any label."""

CAPS: Final = {"provider": 32, "model": 100, "agent": 10, "server_address": 64, "error_type": 32}
"""How many values of an open label a process lets in, by the name that
`endturn.series.capped_label` has for it."""

Attributes = dict[str, str | int | bool]
Values = tuple[str | int | bool | None, ...]
"""One value for each attribute of the metric, in the schema's order; None and "" leave the
attribute out."""

Pair = tuple[str, str]
"""Provider and model."""


class Caps:
    """The cardinality caps of open labels.

    Of each the first values that come are let in, later ones read `other`.

    A model counts with its provider, a port with its address; `cardinality` says what that comes
    to.

    Args:
        capped: is told that one measurement's label was replaced, and which
            (`endturn.series.capped_label`).
    """

    def __init__(self, capped: Callable[[str], None]) -> None:
        self.capped = capped
        self._known: dict[str, set[object]] = {label: set() for label in schema.CAPPED.values}

    def admits(self, label: str, value: object) -> bool:
        """Whether a value may stand in a label."""
        admitted = self._known[label]
        if value not in admitted and len(admitted) >= CAPS[label]:
            self.capped(label)
            return False
        admitted.add(value)
        return True

    def pair(self, provider: str, model: str) -> Pair:
        """Provider and model as metrics may carry them."""
        provider, model = provider[:LENGTH], model[:LENGTH]
        if (provider, model) in self._known["model"]:
            return provider, model
        if not self.admits("provider", provider):
            return OTHER, OTHER
        return provider, model if self.admits("model", (provider, model)) else OTHER

    def shown(self, label: str, value: str | None) -> str | None:
        """A value as metrics may carry it."""
        return value if value is None or self.admits(label, value := value[:LENGTH]) else OTHER


class Series:
    """What is known of one metric.

    Its attribute sets so far, each built once, and of a counter their sums.
    """

    def __init__(self, metric: Metric, caps: Caps) -> None:
        self._caps = caps
        self._keys = tuple(attribute.key for attribute in metric.attributes)
        self._closed = tuple(attribute.is_closed for attribute in metric.attributes)
        self._sets: dict[Values, Attributes] = {}
        self._sums: dict[Values, float] = {}
        self._reported: set[Values] = set()
        self.taken: list[Observation] = []

    def attributes(self, values: Values) -> Attributes:
        """The set of these values."""
        return self._sets.get(values) or self._sets[self._admit(values)]

    def _admit(self, values: Values) -> Values:
        """The values that have a set.

        These, or with every open label `other` where they would be one too many.
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
        """Add to a sum; 0 only brings it into being, so that its first increment is seen as one."""
        if 0 <= amount <= MOST:
            if values not in self._sums:
                values = self._admit(values)
            self._sums[values] = self._sums.get(values, 0) + amount

    def reset(self) -> None:
        """Every sum back to zero; the attribute sets stay."""
        self._sums = dict.fromkeys(self._sums, 0)
        self._reported.clear()

    def take(self, *, zero_first: bool) -> bool:
        """Have the sums as they are now observed.

        With `zero_first`, 0 for each that was never observed before.

        Returns:
            Whether a sum that is more is given as 0.
        """
        new = self._sums.keys() - self._reported if zero_first else set()
        self._reported |= new
        self.taken = [
            Observation(0 if each in new else sum_, self._sets[each])
            for each, sum_ in self._sums.items()
        ]
        return any(self._sums[each] for each in new)
