"""Upper bounds of the number of series of a process.

The bounds follow from the schema and the caps of open labels. The number of a metric's attribute
sets is the product of its labels' numbers of values: for a closed label the declared values, for an
open one its cap, `other` and its absence. A model counts together with its provider, a port with
its address. The number of sets is capped at `SETS`; beyond that, open labels have the value
`other`, so that only products of closed labels are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from endturn.telemetry import CAPS, SETS, Attribute, Metric, schema

PAIRS: Final = CAPS["model"] + CAPS["provider"] + 1
"""Pairs of provider and model: the admitted ones, `other` of each provider, and `other` of `other`.
"""
CAPPED: Final = {
    schema.RESPONSE_MODEL: "model",
    schema.AGENT: "agent",
    schema.SERVER_ADDRESS: "server_address",
    schema.ERROR_TYPE: "error_type",
}
"""Open label -> the cap that bounds its values."""
TOGETHER: Final = (schema.REQUEST_MODEL, schema.SERVER_PORT)
"""Labels that count with the one before them."""
ALWAYS: Final = (schema.PROVIDER, schema.SERVER_PORT)
"""Open labels that have the same value in every set beyond the limit; other labels may be absent.
"""

NAMES: Final = {
    schema.OPERATION: "operations",
    schema.PROVIDER: "models",
    schema.AGENT: "agents",
    schema.RESPONSE_MODEL: "answering models",
    schema.SERVER_ADDRESS: "addresses",
    schema.ERROR_TYPE: "errors",
    schema.LISTENER: "listeners",
}
"""Names of labels in the formula, if a label's own name would mislead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The largest number of series of one metric in one process.

    Attributes:
        formula: the formula of its sets, as text.
        sets: the maximum number of its attribute sets.
        series: the number of series of one set in Prometheus: for a histogram its buckets, the last
            bucket, the sum and the count.
    """

    metric: Metric
    formula: str
    sets: int
    series: int

    @property
    def total(self) -> int:
        """The maximum number of its series in Prometheus."""
        return self.sets * self.series


def bound(metric: Metric) -> Bound:
    """Return the bound of a metric."""
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
    """Return the bounds of all metrics that a process records.

    Args:
        generation: of the conventions' names, as in `schema.SEMCONV`.
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
    """Return the number of values that a label can have, including its absence."""
    if attribute is schema.PROVIDER:
        return PAIRS
    if attribute.is_closed:
        return len(attribute.values) or 2
    cap = CAPPED.get(attribute)
    return SETS if cap is None else CAPS[cap] + 2
