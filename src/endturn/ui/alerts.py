"""The page of alerts.

The conditions of `generate/alerts.yaml` on what is stored here, with their runbooks.

How long a condition must hold before somebody is told is the rules' business; here it is true now
or it is not.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from endturn.generate import SITE, Limits
from endturn.telemetry import INDICATORS, TURNS, Count
from endturn.ui.numbers import BY_MODEL, SERVICE, Labels, Numbers
from endturn.ui.rows import data
from endturn.ui.store import Store
from endturn.ui.views import RANGES, View

ROWS: Final = {row["name"]: row for row in data("alerts.yaml", "endturn.generate")}
CONDITIONS: Final[Mapping[str, list[list[list[Any]]]]] = data("conditions.yaml")


@dataclass(frozen=True, slots=True)
class Clause:
    """A share or number with its window and limit (conditions.yaml), and its values by labels."""

    part: str
    whole: str
    minutes: int
    limit: float
    values: Mapping[Labels, float]
    highest: float | None

    @property
    def true(self) -> dict[Labels, float]:
        """The values of those for whom it is true."""
        passes = operator.gt if self.whole else operator.ge
        return {labels: value for labels, value in self.values.items() if passes(value, self.limit)}


def shown(view: View, store: Store) -> dict[str, Any]:
    """Every alert, those that are true now first."""
    asked = Numbers(store, view.scope)
    limits = Limits().values
    found = []
    for name, row in ROWS.items():
        groups = measured(asked, name, limits)
        texts: dict[str, Any] = {
            key: _said(row[key], limits) for key in ("meaning", "impact", "description")
        }
        texts |= {key: [_said(each, limits) for each in row[key]] for key in ("look", "act")}
        about = texts | {
            "clauses": list(itertools.chain(*groups)),
            "runbook": f"{SITE}/docs/runbooks/{name}.md",
        }
        about["firing"] = [
            (value, who, _turns(view, groups[0][0], who)) for who, value in evaluate(groups).items()
        ]
        found.append(row | about)
    found.sort(key=lambda alert: (not alert["firing"], not alert["clauses"]))
    return {
        "alerts": found,
        "firing": sum(bool(alert["firing"]) for alert in found),
        "indicators": INDICATORS,
    }


def measured(asked: Numbers, name: str, limits: Mapping[str, str]) -> list[list[Clause]]:
    """The groups of an alert's condition at the end of the scope.

    None where it needs more than is stored here.
    """
    by = tuple(BY_MODEL.values()) if ROWS[name]["link"] == "model" else (SERVICE,)
    return [[_clause(asked, each, by, limits) for each in group] for group in CONDITIONS[name]]


def evaluate(groups: Sequence[Sequence[Clause]]) -> dict[Labels, float]:
    """Of whom a condition is true, with the value that says how bad it is."""
    found: dict[Labels, float] = {}
    for group in groups:
        values = [clause.true for clause in group]
        found = {
            labels: values[0][labels] for labels in set.intersection(*map(set, values))
        } | found
    return dict(sorted(found.items()))


def _turns(view: View, clause: Clause, labels: Labels) -> str:
    """Where the turns are of which a clause is true."""
    range_ = next(each for each, seconds in RANGES.items() if seconds >= 60 * clause.minutes)
    state = "unfinished" if clause.part in ("unfinished", "given_up") else ""
    return view.link(
        "/turns", range=range_, state=state, **dict(zip(BY_MODEL, labels, strict=False))
    )


def _clause(
    asked: Numbers, row: Sequence[Any], by: Sequence[str], limits: Mapping[str, str]
) -> Clause:
    part, *whole, minutes, name = row
    within = asked.last(60 * minutes)
    values = within.number(_count(part), by)
    if whole:
        wholes = within.number(_count(*whole), by)
        values = {labels: values.get(labels, 0.0) / number for labels, number in wholes.items()}
    highest = max(values.values(), default=None if whole else 0.0)
    return Clause(part, "".join(whole), minutes, float(limits.get(name, name)), values, highest)


def _count(name: str) -> Count:
    """An indicator's count, or its whole.

    Of turns those that were not cancelled, as the recorded rules have them.
    """
    of, _, side = name.partition(".")
    if of == "turns":
        return TURNS
    whole = INDICATORS[of].whole
    return whole if side and whole is not None else INDICATORS[of].count


def _said(text: str, limits: Mapping[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda name: limits.get(name[1], name[1]), text)
