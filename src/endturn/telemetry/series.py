"""The attribute sets of one instrument: each built once, born at zero, and never more than the SDK can hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Histogram, Observation

from endturn.telemetry import schema
from endturn.telemetry.schema import Attribute, Metric

Value = str | int | bool | None
Values = tuple[Value, ...]
"""One value for each attribute of the metric, in the schema's order; None leaves the attribute out."""

OTHER: Final = "other"
"""What a capped label reads."""

LIMIT: Final = 1_400
"""Attribute sets of one instrument. Past 2,000 the SDK merges what comes into one set without provider and model."""

PAIRS: Final = 100
"""(provider, model) pairs of one process: 11 stop reasons each are 1,100 attribute sets of `endturn.responses`."""

LABELS: Final = {schema.PROVIDER: 32, schema.AGENT: 10, schema.SERVER_ADDRESS: 16, schema.ERROR_TYPE: 32}
"""How many values each open label may take; what comes later reads `other`."""

Capped = Callable[[Attribute], None]
"""Is told that one measurement's label was replaced."""


class Caps:
    """Which values of the open labels have been let in."""

    __slots__ = ("_capped", "_pairs", "_seen")

    def __init__(self, capped: Capped) -> None:
        self._capped = capped
        self._pairs: dict[tuple[str, str], tuple[str, str]] = {}
        self._seen: dict[Attribute, set[str]] = {label: set() for label in LABELS}

    def pair(self, provider: str, model: str) -> tuple[str, str]:
        """Provider and model as metrics may carry them."""
        return self._pairs.get((provider, model)) or self._admit(provider, model)

    def label(self, label: Attribute, value: str | None) -> str | None:
        """Any other open label's value as metrics may carry it."""
        seen = self._seen[label]
        if value is None or value in seen:
            return value
        if len(seen) < LABELS[label]:
            seen.add(value)
            return value
        self._capped(label)
        return OTHER

    def _admit(self, provider: str, model: str) -> tuple[str, str]:
        kept = self.label(schema.PROVIDER, provider) or ""
        if len(self._pairs) >= PAIRS:
            self._capped(schema.REQUEST_MODEL)
            return kept, OTHER
        if kept == provider:
            # A replaced provider is not remembered: there is no end to what would have to be.
            self._pairs[provider, model] = kept, model
        return kept, model if kept == provider else OTHER


class Sets:
    """The attribute sets of one metric that exist so far."""

    __slots__ = ("_built", "_capped", "_keys", "_open", "metric")

    def __init__(self, metric: Metric, capped: Capped) -> None:
        self.metric = metric
        self._keys = tuple(attribute.key for attribute in metric.attributes)
        self._open = tuple(
            attribute in (schema.REQUEST_MODEL, schema.RESPONSE_MODEL) for attribute in metric.attributes
        )
        self._built: dict[Values, dict[str, str | int | bool]] = {}
        self._capped = capped

    def __len__(self) -> int:
        return len(self._built)

    def attributes(self, values: Values) -> tuple[Values, dict[str, str | int | bool]]:
        """The set for these values, and the values that it stands for: with models `other` where it is one too many."""
        built = self._built.get(values)
        if built is not None:
            return values, built
        if len(self._built) >= LIMIT and any(self._open):
            self._capped(schema.REQUEST_MODEL)
            values = tuple(OTHER if open_ else value for value, open_ in zip(values, self._open, strict=True))
            if values in self._built:
                return values, self._built[values]
        built = {key: value for key, value in zip(self._keys, values, strict=True) if value is not None and value != ""}
        self._built[values] = built
        return values, built


class Counter:
    """A sum for each attribute set, kept in a dictionary and read by an observable instrument."""

    __slots__ = ("sets", "sums")

    def __init__(self, metric: Metric, capped: Capped) -> None:
        self.sets = Sets(metric, capped)
        self.sums: dict[Values, int | float] = {}

    def add(self, values: Values, amount: float = 1) -> None:
        """Add to a sum; 0 only brings it into being, so that its first increment is seen as one."""
        known = self.sums.get(values)
        if known is None:
            values, _ = self.sets.attributes(values)
            known = self.sums.get(values, 0)
        self.sums[values] = known + amount

    def empty(self) -> None:
        """Every sum back to zero; the attribute sets stay."""
        self.sums = dict.fromkeys(self.sums, 0)

    def observe(self, options: CallbackOptions) -> Iterable[Observation]:
        """What the SDK calls when a reader collects."""
        return [Observation(amount, self.sets.attributes(values)[1]) for values, amount in list(self.sums.items())]


class Distribution:
    """A histogram whose attribute sets are built once and capped."""

    __slots__ = ("instrument", "sets")

    def __init__(self, metric: Metric, capped: Capped, instrument: Histogram) -> None:
        self.sets = Sets(metric, capped)
        self.instrument = instrument

    def record(self, amount: float, values: Values, context: Context) -> None:
        """Record one measurement; the context's span becomes its exemplar."""
        self.instrument.record(amount, self.sets.attributes(values)[1], context)
