"""The limit on output tokens that requests set, and the one that answers need, in PromQL."""

from __future__ import annotations

from typing import Final

from endturn.generate.queries import (
    ALL,
    HistogramPart,
    Labels,
    Queries,
    Window,
    has_value,
    sum_by,
    variable_matchers,
)
from endturn.telemetry import schema

QUERIES: Final = Queries(variable_matchers())
COMPLETE: Final = has_value(schema.COMPLETE, "true")
MIN_TURNS: Final = 100
"""No limit is recommended below this many turns: a 99th percentile needs them."""
LIMITED_SHARE: Final = 0.95
"""The limit of requests is derived if this share of the calls sets one."""


def needed_limit(*, by: Labels = ALL) -> str:
    """Return the limit that would have let 99 of 100 complete turns' longest answers finish."""
    longest = QUERIES.quantile(0.99, schema.TURN_OUTPUT, COMPLETE, by=by, over=Window.DASHBOARD)
    turns = QUERIES.histogram(schema.TURN_OUTPUT, HistogramPart.COUNT, COMPLETE)
    number = sum_by(by, f"increase({turns}[{Window.DASHBOARD}])")
    return f"{longest}\nand {number} >= {MIN_TURNS}"


def present_limit(*, by: Labels = ALL) -> str:
    """Return the limit that requests set: a mean if they set different ones."""
    tokens, calls = (
        QUERIES.rate(
            schema.TOKEN_USAGE,
            part,
            has_value(schema.TOKEN_TYPE, "output"),
            by=by,
            over=Window.DASHBOARD,
        )
        for part in (HistogramPart.SUM, HistogramPart.COUNT)
    )
    used, limited_calls = (
        sum_by(by, f"rate({QUERIES.histogram(schema.BUDGET_USED, part)}[{Window.DASHBOARD}])")
        for part in (HistogramPart.SUM, HistogramPart.COUNT)
    )
    return f"{tokens} / ({used} > 0)\nand {limited_calls} >= {LIMITED_SHARE} * {calls}"
