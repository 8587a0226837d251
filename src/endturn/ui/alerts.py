"""The page of alerts: the conditions of the Prometheus rules, evaluated on the stored data.

The page evaluates each condition now; only Prometheus applies the time for which it must hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, assert_never

from endturn.generate import (
    ALERTS,
    JOB,
    Alert,
    AlertSettings,
    Condition,
    CountAtLeast,
    PrometheusOnly,
    RuleConfig,
    ShareAbove,
    alternatives,
    to_promql,
)
from endturn.telemetry import (
    Count,
    Metric,
    schema,
)
from endturn.ui.formatting import count, share
from endturn.ui.numbers import FILTER_LABELS, SERVICE, Labels, Numbers
from endturn.ui.store import Store
from endturn.ui.views import RANGES, View

SETTINGS: Final = AlertSettings(collector=RuleConfig().collector)
"""The default limits."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A share or number that a condition compares, with its value now for each label set."""

    condition: ShareAbove | CountAtLeast
    values: Mapping[Labels, float]

    @property
    def is_share(self) -> bool:
        """True if it compares a share, False if a number."""
        return isinstance(self.condition, ShareAbove)

    @property
    def limit(self) -> float:
        """The share that must be exceeded, or the number that must be reached."""
        condition = self.condition
        return condition.share if isinstance(condition, ShareAbove) else condition.number

    @property
    def window(self) -> str:
        """The length of the window, in words."""
        return _window(self.condition.over)

    def is_met(self, labels: Labels) -> bool:
        """Return True if the comparison holds for a label set."""
        value = self.values.get(labels)
        if value is None:
            return False
        return value > self.limit if self.is_share else value >= self.limit

    @property
    def met(self) -> dict[Labels, float]:
        """The label sets for which the comparison is true, with their values."""
        return {labels: value for labels, value in self.values.items() if self.is_met(labels)}


class AlertState(StrEnum):
    """The state of an alert on the page."""

    FIRING = "firing"
    FEW = "few"
    """Every share is above its limit, but there are too few turns to decide."""
    QUIET = "quiet"
    NO_DATA = "no data"
    """No data that the condition reads has arrived."""
    ELSEWHERE = "elsewhere"
    """It reads data that the page does not receive."""


STATES: Final = {
    AlertState.FIRING: "firing",
    AlertState.FEW: "too few to tell",
    AlertState.QUIET: "quiet",
    AlertState.NO_DATA: "no data",
    AlertState.ELSEWHERE: "not applicable",
}
"""The states in words, the most urgent first."""


@dataclass(frozen=True, slots=True)
class Term:
    """One comparison for one label set, in words."""

    text: str
    is_met: bool


@dataclass(frozen=True, slots=True)
class Branch:
    """A conjunction: all its terms must be met. An alert fires if one branch is met."""

    terms: tuple[Term, ...]
    lacks_turns: bool = False

    @property
    def is_met(self) -> bool:
        """True if every term is met."""
        return all(term.is_met for term in self.terms)

    @property
    def met(self) -> list[str]:
        """The terms that are met."""
        return [term.text for term in self.terms if term.is_met]

    @property
    def unmet(self) -> list[str]:
        """The terms that are not met."""
        return [term.text for term in self.terms if not term.is_met]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An alert for one label set.

    Attributes:
        branches: The met ones first.
        short: The main comparison, in a few words.
        link: The address of the list of its turns.
    """

    labels: Labels
    state: AlertState
    branches: tuple[Branch, ...]
    short: str
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertStatus:
    """One alert of the page.

    Attributes:
        cases: The label sets that fire, else those with too few turns, else the one that is closest
            to firing.
        needs: The data that the alert reads, if the page does not receive them; else "".
        links: Pages to look at: their names and addresses.
    """

    alert: Alert
    state: AlertState
    description: str
    cases: tuple[Case, ...]
    needs: str
    links: tuple[tuple[str, str], ...]


def alerts_page(view: View, store: Store) -> dict[str, object]:
    """Return the template's values: every alert, the most urgent first."""
    numbers = Numbers(store, view.scope)
    statuses = [_status(alert, view, numbers) for alert in ALERTS]
    order = [*AlertState]
    statuses.sort(key=lambda status: order.index(status.state))
    states = Counter(status.state for status in statuses)
    return {
        "alerts": statuses,
        "states": STATES,
        "firing": states[AlertState.FIRING],
        "few": states[AlertState.FEW],
        "evaluated": len(statuses) - states[AlertState.ELSEWHERE] - states[AlertState.NO_DATA],
        "measured": numbers.measured,
    }


def runbook_page(view: View, store: Store) -> dict[str, object] | None:
    """Return the template's values for a runbook; None for an alert that does not exist."""
    alert = next(
        (candidate for candidate in ALERTS if candidate.name == view.parameters["alert"]), None
    )
    if alert is None:
        return None
    numbers = Numbers(store, view.scope)
    return {
        "status": _status(alert, view, numbers),
        "states": STATES,
        "hold": _window(alert.hold) if alert.hold else "",
        "keep_firing": _window(alert.keep_firing),
        "expression": to_promql(alert.condition(SETTINGS)),
    }


def _status(alert: Alert, view: View, numbers: Numbers) -> AlertStatus:
    condition = alert.condition(SETTINGS)
    groups = compare(condition, numbers)
    cases = _cases(groups, view)
    if isinstance(condition, PrometheusOnly):
        state = AlertState.ELSEWHERE
    elif cases and cases[0].state is not AlertState.QUIET:
        state = cases[0].state
    else:
        state = AlertState.QUIET if _has_data(groups, numbers) else AlertState.NO_DATA
    return AlertStatus(
        alert=alert,
        state=state,
        description=alert.description(SETTINGS),
        cases=cases if state is not AlertState.NO_DATA else (),
        needs=condition.needs if isinstance(condition, PrometheusOnly) else "",
        links=_links(groups, view),
    )


def _has_data(groups: Sequence[Sequence[Comparison]], numbers: Numbers) -> bool:
    """Return True if responses or turns came within the longest window of a condition."""
    longest = max(comparison.condition.over for group in groups for comparison in group)
    within = numbers.last(int(longest.total_seconds()))
    return any(within.total(Count(metric)) for metric in (schema.RESPONSES, schema.TURNS))


def _cases(groups: Sequence[Sequence[Comparison]], view: View) -> tuple[Case, ...]:
    """Return the label sets of the most urgent state, the closest to firing first.

    Of the quiet ones only the closest.
    """
    every = sorted(
        {labels for group in groups for comparison in group for labels in comparison.values}
    )
    firing = evaluate(groups)
    cases = [_case(groups, labels, view, is_firing=labels in firing) for labels in every]
    for state in (AlertState.FIRING, AlertState.FEW):
        if urgent := [case for case in cases if case.state is state]:
            urgent.sort(key=lambda case: -_closeness(groups, case.labels))
            return tuple(urgent)
    closest = max(every, key=lambda labels: _closeness(groups, labels), default=None)
    return tuple(case for case in cases if case.labels == closest)


def _closeness(groups: Sequence[Sequence[Comparison]], labels: Labels) -> float:
    """Return how close a label set is to firing: 1 if it fires.

    Of the closest branch, the value of its farthest term as a part of the limit.
    """
    return max(
        min(comparison.values.get(labels, 0.0) / comparison.limit for comparison in group)
        for group in groups
    )


def _case(
    groups: Sequence[Sequence[Comparison]], labels: Labels, view: View, *, is_firing: bool
) -> Case:
    branches = sorted(
        (_branch(group, labels) for group in groups),
        key=lambda branch: (not branch.is_met, not branch.lacks_turns, len(branch.unmet)),
    )
    if is_firing:
        state = AlertState.FIRING
    else:
        state = AlertState.FEW if branches[0].lacks_turns else AlertState.QUIET
    best = max(groups, key=lambda group: min(e.values.get(labels, 0.0) / e.limit for e in group))
    return Case(
        labels=labels,
        state=state,
        branches=tuple(branches),
        short=_short(best, labels),
        link=_turns_link(view, groups[0][0], labels),
    )


def _branch(group: Sequence[Comparison], labels: Labels) -> Branch:
    terms = tuple(
        Term(_text(comparison, group[:place], labels), comparison.is_met(labels))
        for place, comparison in enumerate(group)
    )
    unmet = [comparison for comparison, term in zip(group, terms, strict=True) if not term.is_met]
    has_share = any(isinstance(comparison.condition, ShareAbove) for comparison in group)
    return Branch(
        terms,
        # More traffic does not raise a difference of two numbers.
        lacks_turns=has_share
        and bool(unmet)
        and all(_is_number(comparison.condition) for comparison in unmet),
    )


def _is_number(condition: ShareAbove | CountAtLeast) -> bool:
    return isinstance(condition, CountAtLeast) and condition.without is None


# --- In words -------------------------------------------------------------------------------------


def _window(length: timedelta) -> str:
    minutes = int(length / timedelta(minutes=1))
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 72 * 60 else f"{minutes // 1440} d"


def _text(comparison: Comparison, before: Sequence[Comparison], labels: Labels) -> str:
    """Return a comparison as a part of a sentence, without repeating the ones before it."""
    condition, value = comparison.condition, comparison.values.get(labels)
    match condition:
        case ShareAbove(part=part, total=total):
            same = [
                other.condition
                for other in before
                if isinstance(other.condition, ShareAbove)
                and (other.condition.part, other.condition.total) == (part, total)
            ]
            if value is None:
                return f"none in {comparison.window}"
            if any(other.share == condition.share for other in same):
                return f"{share(value)} in {comparison.window}"
            of = f"{share(value)} {condition.phrase} in {comparison.window}"
            return f"{of} (limit {share(comparison.limit)})"
        case CountAtLeast():
            number = value or 0.0
            one, several = condition.noun
            noun = one if number == 1 else several
            within = (
                ""
                if before and before[0].condition.over == condition.over
                else (f" in {comparison.window}")
            )
            return f"{count(number)} {noun}{within} (at least {count(comparison.limit)})"
        case _:
            assert_never(condition)


def _short(group: Sequence[Comparison], labels: Labels) -> str:
    """Return the first share and the first number of a branch, each with its limit."""
    parts = []
    shares = [comparison for comparison in group if isinstance(comparison.condition, ShareAbove)]
    if shares:
        value = shares[0].values.get(labels)
        parts.append(f"{share(value)} (limit {share(shares[0].limit)})")
    for comparison in group:
        if isinstance(comparison.condition, CountAtLeast):
            number = comparison.values.get(labels, 0.0)
            needed = " needed" if shares else ""
            parts.append(f"{count(number)} of {count(comparison.limit)}{needed}")
            break
    return " · ".join(parts)


# --- Links ----------------------------------------------------------------------------------------

Link = tuple[str, str, Mapping[str, str]]

_UNFINISHED_PAGES: Final[Sequence[Link]] = (
    ("The unfinished turns", "/turns", {"state": "unfinished"}),
    ("Who is cut off, and at which limit", "/", {}),
)
_REASON_PAGES: Final[Sequence[Link]] = (
    ("Stop reasons and their numbers", "/reasons", {}),
    ("Who is cut off, and at which limit", "/", {}),
)
_PAGES: Final[Mapping[Metric, Sequence[Link]]] = {
    schema.TRUNCATION_EXITS: _UNFINISHED_PAGES,
    schema.RESPONSES: _REASON_PAGES,
    schema.UNMAPPED: _REASON_PAGES[:1],
    schema.SUSPECTED_METRIC: (
        ("The turns", "/turns", {}),
        ("Stop reasons and their numbers", "/reasons", {}),
    ),
    schema.LISTENER_FAILURES: (("The numbers as a table", "/export/numbers.csv", {}),),
    schema.SERIES_CAPPED: (("The numbers as a table", "/export/numbers.csv", {}),),
}
"""Pages to look at, by the metric of an alert's first comparison: name, path, parameters."""
_OTHER_PAGES: Final[Sequence[Link]] = (("The turns, worst first", "/turns", {"sort": "worst"}),)
"""Pages to look at for an alert about any other metric."""


def _links(groups: Sequence[Sequence[Comparison]], view: View) -> tuple[tuple[str, str], ...]:
    if not groups:
        return ()
    condition = groups[0][0].condition
    counted = condition.part if isinstance(condition, ShareAbove) else condition.count
    return tuple(
        (name, view.link(path, **parameters))
        for name, path, parameters in _PAGES.get(counted.metric, _OTHER_PAGES)
    )


# --- Conditions -----------------------------------------------------------------------------------


def compare(condition: Condition, numbers: Numbers) -> list[list[Comparison]]:
    """Return a condition's comparisons at the end of the scope; one whole group must be met.

    Empty for a condition that needs more than is stored here.
    """
    return [
        [Comparison(term, _values(term, numbers)) for term in group]
        for group in alternatives(condition)
    ]


def evaluate(groups: Sequence[Sequence[Comparison]]) -> dict[Labels, float]:
    """Return the label sets that meet a condition, with the value of the first comparison."""
    true: dict[Labels, float] = {}
    for group in groups:
        met = [comparison.met for comparison in group]
        true = {labels: met[0][labels] for labels in set.intersection(*map(set, met))} | true
    return dict(sorted(true.items()))


def _values(condition: ShareAbove | CountAtLeast, numbers: Numbers) -> dict[Labels, float]:
    within = numbers.last(int(condition.over.total_seconds()))
    by = tuple(SERVICE if label == JOB else label for label in condition.by)
    match condition:
        case ShareAbove(part=part, total=total):
            counts_of_part = within.number(part, by)
            totals = within.number(total, by)
            return {
                labels: counts_of_part.get(labels, 0.0) / number
                for labels, number in totals.items()
            }
        case CountAtLeast(count=count, without=without):
            counts = within.number(count, by)
            others = within.number(without, by) if without else {}
            return {labels: number - others.get(labels, 0.0) for labels, number in counts.items()}
        case _:
            assert_never(condition)


def _turns_link(view: View, comparison: Comparison, labels: Labels) -> str:
    """Return the address of the turns about which a comparison is true."""
    condition = comparison.condition
    range_ = next(
        name for name, seconds in RANGES.items() if seconds >= condition.over.total_seconds()
    )
    count = condition.part if isinstance(condition, ShareAbove) else condition.count
    state = "unfinished" if count.metric == schema.TRUNCATION_EXITS else ""
    columns = (SERVICE if label == JOB else label for label in condition.by)
    of = dict(zip(columns, labels, strict=True))
    chosen = {name: of[label] for name, label in FILTER_LABELS.items() if label in of}
    return view.link("/turns", range=range_, state=state, **chosen)
