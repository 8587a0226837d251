"""The output limit that requests set, and the one that answers need."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models import units

from endturn.generate.boards import links, panels
from endturn.generate.boards.links import dashboard_link
from endturn.generate.boards.panels import description
from endturn.generate.boards.tables import Column, table_panel
from endturn.generate.queries import (
    ALL,
    CALL,
    CLUSTER,
    ENVIRONMENT,
    JOB,
    SERVICE,
    HistogramPart,
    Labels,
    Queries,
    Window,
    has_value,
    or_zero,
    sum_by,
    variable_matchers,
)
from endturn.telemetry import INDICATORS, schema

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


def by_service_and_model() -> table.Panel:
    """List the limits of each service and model, most unfinished turns first."""
    return table_panel(
        42,
        "Limits, most unfinished first",
        columns=_columns((*SERVICE, *CALL)),
        sort_by="Unfinished",
    ).description(
        description(
            question="Which max_tokens must be raised, and to what?",
            formula=(
                "one row per service and model, over the time range. The limit now: output tokens "
                f"÷ token budget used, if at least {LIMITED_SHARE:.0%} of the calls set "
                "one. The limit needed: 99th percentile of the output tokens of complete turns' "
                f"longest answers, from {MIN_TURNS} turns"
            ),
            advice=(
                "The limit needed is above the limit now: raise max_tokens. A cell without a "
                "number: no limit is set, or there are too few complete turns to tell."
            ),
            source=panels.FROM_PROCESS,
        )
    )


def _columns(by: Labels) -> list[Column]:
    return [
        Column(title="Service", label=JOB),
        Column(title="Environment", label=ENVIRONMENT, width=110),
        Column(title="Cluster", label=CLUSTER, is_hidden=True),
        Column(title="Provider", label=schema.PROVIDER.label, width=100),
        Column(
            title="Model",
            label=schema.REQUEST_MODEL.label,
            link=dashboard_link(
                "This model",
                "endturn-model",
                sets=links.ROW_SERVICE | links.ROW_MODEL,
                keeps=links.SOURCE,
            ),
        ),
        Column(
            title="Truncated",
            query=QUERIES.ratio(INDICATORS["truncation"], by=by),
            unit=units.PercentUnit,
            decimals=1,
            width=100,
            steps=panels.TRUNCATION_STEPS,
        ),
        Column(
            title="Unfinished",
            query=or_zero(
                QUERIES.events(INDICATORS["unfinished"].count, by=by),
                QUERIES.events(INDICATORS["turns"].count, by=by),
            ),
            width=110,
            steps=panels.UNFINISHED_STEPS,
        ),
        Column(
            title="Limit now",
            query=present_limit(by=by),
            unit=units.NoUnit,
            decimals=0,
            width=100,
        ),
        Column(
            title="Limit needed",
            query=needed_limit(by=by),
            unit=units.NoUnit,
            decimals=0,
            width=115,
        ),
    ]
