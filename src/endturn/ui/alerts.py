"""The page of alerts: the conditions of the Prometheus rules, evaluated on what is stored here.

For how long a condition must hold is Prometheus' business; on the page it is true now or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, assert_never

from endturn.generate import (
    ALERTS,
    JOB,
    SITE,
    Alert,
    AlertSettings,
    Condition,
    CountAtLeast,
    RuleConfig,
    ShareAbove,
    alternatives,
)
from endturn.telemetry import INDICATORS, UNFINISHED_TURNS, Count
from endturn.ui.numbers import OF_WHOM, SERVICE, Labels, Numbers
from endturn.ui.store import Store
from endturn.ui.views import RANGES, View

SETTINGS: Final = AlertSettings(collector=RuleConfig().collector)
"""The limits that stand by default."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A share or number that a condition compares, with its value now for each label set."""

    condition: ShareAbove | CountAtLeast
    values: Mapping[Labels, float]

    @property
    def is_share(self) -> bool:
        """Whether it is a share, not a number."""
        return isinstance(self.condition, ShareAbove)

    @property
    def limit(self) -> float:
        """The share that must be exceeded, or the number that must be reached."""
        condition = self.condition
        return condition.share if isinstance(condition, ShareAbove) else condition.number

    @property
    def highest(self) -> float | None:
        """The highest value now; None for a share of nothing."""
        return max(self.values.values(), default=None if self.is_share else 0.0)

    @property
    def minutes(self) -> int:
        """The length of the window."""
        return int(self.condition.over / timedelta(minutes=1))

    @property
    def title(self) -> str:
        """What is compared, in the indicators' words."""
        match self.condition:
            case ShareAbove(part=part, whole=whole):
                for indicator in INDICATORS.values():
                    if (indicator.count, indicator.whole) == (part, whole):
                        return indicator.title
                return f"{_title(part)} of {_title(whole).lower()}"
            case CountAtLeast(count=count, without=without):
                return _title(count) + (f" without {_title(without).lower()}" if without else "")
            case _:
                assert_never(self.condition)

    @property
    def met(self) -> dict[Labels, float]:
        """The label sets for which the comparison is true, with their values."""
        return {
            labels: value
            for labels, value in self.values.items()
            if (value > self.limit if self.is_share else value >= self.limit)
        }


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """One alert of the page.

    Attributes:
        firing: Value, labels and link to the turns of each label set for which it is true.
    """

    alert: Alert
    description: str
    comparisons: tuple[Comparison, ...]
    firing: tuple[tuple[float, Labels, str], ...]

    @property
    def runbook_url(self) -> str:
        """The address of the runbook page."""
        return f"{SITE}/docs/runbooks/{self.alert.name}.md"


def shown(view: View, store: Store) -> dict[str, Any]:
    """Return what the page shows: every alert, those that are true now first."""
    numbers = Numbers(store, view.scope)
    statuses = [_status(alert, view, numbers) for alert in ALERTS]
    statuses.sort(key=lambda status: (not status.firing, not status.comparisons))
    return {"alerts": statuses, "firing": sum(bool(status.firing) for status in statuses)}


def _status(alert: Alert, view: View, numbers: Numbers) -> AlertStatus:
    groups = compare(alert.condition(SETTINGS), numbers)
    firing = tuple(
        (value, labels, _turns_link(view, groups[0][0], labels))
        for labels, value in evaluate(groups).items()
    )
    comparisons = tuple(comparison for group in groups for comparison in group)
    return AlertStatus(alert, alert.description(SETTINGS), comparisons, firing)


def compare(condition: Condition, numbers: Numbers) -> list[list[Comparison]]:
    """Return a condition's comparisons at the end of the scope: one group must be met whole.

    Empty for a condition that needs more than is stored here.
    """
    return [
        [Comparison(each, _values(each, numbers)) for each in group]
        for group in alternatives(condition)
    ]


def evaluate(groups: Sequence[Sequence[Comparison]]) -> dict[Labels, float]:
    """Return the label sets for which a condition is true, with the first comparison's value."""
    true: dict[Labels, float] = {}
    for group in groups:
        met = [comparison.met for comparison in group]
        true = {labels: met[0][labels] for labels in set.intersection(*map(set, met))} | true
    return dict(sorted(true.items()))


def _values(condition: ShareAbove | CountAtLeast, numbers: Numbers) -> dict[Labels, float]:
    within = numbers.last(int(condition.over.total_seconds()))
    by = tuple(SERVICE if label == JOB else label for label in condition.by)
    match condition:
        case ShareAbove(part=part, whole=whole):
            parts = within.number(part, by)
            wholes = within.number(whole, by)
            return {labels: parts.get(labels, 0.0) / number for labels, number in wholes.items()}
        case CountAtLeast(count=count, without=without):
            counts = within.number(count, by)
            others = within.number(without, by) if without else {}
            return {labels: number - others.get(labels, 0.0) for labels, number in counts.items()}
        case _:
            assert_never(condition)


def _turns_link(view: View, comparison: Comparison, labels: Labels) -> str:
    """Return the address of the turns about which a comparison is true."""
    condition = comparison.condition
    range_ = next(name for name, seconds in RANGES.items() if seconds >= 60 * comparison.minutes)
    count = condition.part if isinstance(condition, ShareAbove) else condition.count
    state = "unfinished" if count.metric == UNFINISHED_TURNS.metric else ""
    columns = (SERVICE if label == JOB else label for label in condition.by)
    of = dict(zip(columns, labels, strict=True))
    chosen = {name: of[label] for name, label in OF_WHOM.items() if label in of}
    return view.link("/turns", range=range_, state=state, **chosen)


def _title(count: Count) -> str:
    """Return an indicator's title for a count; a number's, or else that of the share it is of."""
    numbers = [each.title for each in INDICATORS.values() if each.count == count and not each.whole]
    shares = [each.title for each in INDICATORS.values() if each.count == count]
    turns = [each.title for each in INDICATORS.values() if each.count.metric == count.metric]
    return next(iter((*numbers, *shares, *turns)))
