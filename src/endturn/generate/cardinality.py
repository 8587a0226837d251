"""Upper bounds of the number of series of a process.

The formula, over what the schema declares and the caps of open labels.

The attribute sets of a metric are the product of its labels' values: of a closed label those
declared, of an open one its cap, `other` and its absence. A model counts with its provider, a port
with its address. Sets end at `SETS`; from there on its open labels read `other`, so that only
products of closed ones are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from endturn.telemetry import CAPS, SETS, Attribute, Metric, schema

PAIRS: Final = CAPS["model"] + CAPS["provider"] + 1
"""Providers with their models: those let in, `other` of each provider, and `other` of `other`."""
CAPPED: Final = {
    schema.RESPONSE_MODEL: "model",
    schema.AGENT: "agent",
    schema.SERVER_ADDRESS: "server_address",
    schema.ERROR_TYPE: "error_type",
}
"""By which cap the values of an open label are bounded."""
TOGETHER: Final = (schema.REQUEST_MODEL, schema.SERVER_PORT)
"""Labels that count with the one before them."""
ALWAYS: Final = (schema.PROVIDER, schema.SERVER_PORT)
"""Open labels that beyond the limit read the same in every set; another may be absent, too."""

NAMES: Final = {
    schema.OPERATION: "operations",
    schema.PROVIDER: "models",
    schema.AGENT: "agents",
    schema.RESPONSE_MODEL: "answering models",
    schema.SERVER_ADDRESS: "addresses",
    schema.ERROR_TYPE: "errors",
    schema.LISTENER: "listeners",
}
"""Names of labels in the formula, where a label's own name would mislead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The largest number of series of one metric in one process.

    Attributes:
        formula: where its sets come from, in words.
        sets: its attribute sets, at most.
        series: what a set is in Prometheus: a histogram's are its buckets, the last, the sum and
            the count.
    """

    metric: Metric
    formula: str
    sets: int
    series: int

    @property
    def total(self) -> int:
        """Its series in Prometheus, at most."""
        return self.sets * self.series


def bound(metric: Metric) -> Bound:
    """The bound of a metric."""
    factors = {
        attribute: _values(attribute)
        for attribute in metric.attributes
        if attribute not in TOGETHER
    }
    product = prod(factors.values())
    beyond = prod(
        _values(attribute) if attribute.is_closed else 2
        for attribute in metric.attributes
        if attribute not in ALWAYS
    )
    formula = " × ".join(
        f"{NAMES.get(attribute, attribute.key.rpartition('.')[2])} {values}"
        for attribute, values in factors.items()
    )
    if product > SETS + beyond:
        formula = f"{SETS:,} of {formula}; then {beyond} of closed labels"
    series = len(metric.buckets) + 3 if metric.instrument == "histogram" else 1
    return Bound(metric=metric, formula=formula, sets=min(product, SETS + beyond), series=series)


def bounds(generation: str = "default") -> Sequence[Bound]:
    """The bounds of all metrics that a process records.

    Args:
        generation: of the conventions' names, in the words of `schema.SEMCONV`.
    """
    emitted = schema.SEMCONV[generation]
    return [bound(metric) for metric in schema.METRICS if _is_of(metric, emitted)]


def _is_of(metric: Metric, emitted: Sequence[schema.Generation]) -> bool:
    if not metric.name.startswith("gen_ai."):
        return True
    return any(
        metric.name.startswith(schema.LATER) is (metrics is schema.INFERENCE_METRICS)
        for metrics in emitted
    )


def _values(attribute: Attribute) -> int:
    """Return the number of values that a label can have, its absence included."""
    if attribute is schema.PROVIDER:
        return PAIRS
    if attribute.is_closed:
        return len(attribute.values) or 2
    cap = CAPPED.get(attribute)
    return SETS if cap is None else CAPS[cap] + 2
