"""Conditions of alerts, and their PromQL.

The local page evaluates the same conditions on its own store (`endturn.ui.alerts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from endturn.generate.queries import SERVICE, Labels, Matcher, Queries, duration, selector
from endturn.generate.recorded_counts import OVERLAP, SERVICE_COUNTS
from endturn.telemetry import Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAbove:
    """`part` / `total` over a window exceeds a share, for each combination of the labels `by`.

    Attributes:
        phrase: The words after the percentage, as in "of responses truncated".
    """

    part: Count
    total: Count
    over: timedelta
    share: float
    phrase: str
    by: Labels = SERVICE


@dataclass(frozen=True, slots=True, kw_only=True)
class CountAtLeast:
    """A window has at least a number of events of `count`, less those of `without`.

    Attributes:
        noun: What is counted: singular, plural.
    """

    count: Count
    over: timedelta
    number: int
    noun: tuple[str, str]
    without: Count | None = None
    by: Labels = SERVICE


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every condition holds for the same labels."""

    conditions: tuple[ShareAbove | CountAtLeast, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one condition holds."""

    conditions: tuple[AllOf, ...]


@dataclass(frozen=True, slots=True)
class PrometheusOnly:
    """A PromQL condition about series that the local page does not store.

    Attributes:
        needs: Those series, as a noun phrase.
    """

    expression: str
    needs: str


Condition = ShareAbove | CountAtLeast | AllOf | AnyOf | PrometheusOnly


def all_of(*conditions: ShareAbove | CountAtLeast) -> AllOf:
    """Return the condition that all of these hold."""
    return AllOf(conditions)


def any_of(*conditions: AllOf) -> AnyOf:
    """Return the condition that one of these holds."""
    return AnyOf(conditions)


def alternatives(condition: Condition) -> Iterator[tuple[ShareAbove | CountAtLeast, ...]]:
    """Yield the groups of comparisons of which one must be true; none for `PrometheusOnly`."""
    match condition:
        case ShareAbove() | CountAtLeast():
            yield (condition,)
        case AllOf(conditions):
            yield conditions
        case AnyOf(options):
            for option in options:
                yield option.conditions
        case PrometheusOnly():
            return
        case _:
            assert_never(condition)


def to_promql(condition: Condition, services: Sequence[Matcher] = ()) -> str:
    """Return the condition as PromQL.

    Args:
        condition: The condition.
        services: Matchers of the services that it is about; empty for all services.
    """
    if isinstance(condition, PrometheusOnly):
        return condition.expression
    return "\nor ".join(  # `and` binds tighter than `or`
        "\nand ".join(_comparison(comparison, tuple(services)) for comparison in group)
        for group in alternatives(condition)
    )


def _comparison(condition: ShareAbove | CountAtLeast, services: tuple[Matcher, ...]) -> str:
    """Return the PromQL of one comparison.

    Counts of turns by service are recorded each minute; anything else is read from its counters.
    """
    queries = Queries(services)
    window = duration(int(condition.over.total_seconds()))

    def recorded(count: Count) -> str:
        return f"sum_over_time({selector(SERVICE_COUNTS[count], services)}[{window}])"

    match condition:
        case ShareAbove(part=part, total=total, share=share, by=by):
            if by == SERVICE and {part, total} <= SERVICE_COUNTS.keys():
                return f"{recorded(part)} / {recorded(total)} > {share:.6g}"
            return (
                f"{queries.increase(part, by=by, over=window)}\n"
                f"/ {queries.increase(total, by=by, over=window)} > {share:.6g}"
            )
        case CountAtLeast(count=count, number=number, without=without, by=by):
            if by == SERVICE and count in SERVICE_COUNTS:
                if without is None:
                    return f"{recorded(count)} / {OVERLAP} >= {number}"
                return f"{recorded(count)} - {recorded(without)} >= {number * OVERLAP}"
            events = queries.events(count, by=by, over=window)
            if without is not None:
                events = f"{events} - {queries.events(without, by=by, over=window)}"
            return f"{events} >= {number}"
        case _:
            assert_never(condition)
