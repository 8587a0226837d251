"""The page of alerts: the conditions of `generate/alerts.yaml` on what is stored here, with their runbooks.

How long a condition must hold before somebody is told is the rules' business; here it is true now or it is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from endturn.generate.config import SITE, Limits
from endturn.telemetry.indicators import INDICATORS, TURNS, Count
from endturn.ui.numbers import BY_MODEL, SERVICE, Labels, Numbers
from endturn.ui.rows import data
from endturn.ui.store import Store
from endturn.ui.views import View, count, share

Clause = list[Any]
"""A share or a number with its window and limit: see conditions.yaml."""
CONDITIONS: Final[Mapping[str, list[list[Clause]]]] = data("conditions.yaml")


@dataclass(frozen=True, slots=True)
class Firing:
    """A condition that is true, of whom, and the value that says how bad it is."""

    labels: Labels
    value: float
    is_share: bool

    @property
    def shown(self) -> str:
        """The value, as people read it."""
        return share(self.value) if self.is_share else count(self.value)


def shown(view: View, store: Store) -> dict[str, Any]:
    """Every alert, those that are true now first."""
    asked = Numbers(store, view.scope)
    limits = Limits().values
    found = [
        {
            "name": name, "severity": row["severity"], "here": name in CONDITIONS,
            "firing": evaluate(asked, name, limits) if name in CONDITIONS else [],
            "runbook": f"{SITE}/docs/runbooks/{name}.md",
            **{key: _said(row[key], limits) for key in ("meaning", "impact", "description")},
            **{key: [_said(each, limits) for each in row[key]] for key in ("look", "act")},
        }
        for name, row in _rows().items()
    ]  # fmt: skip
    found.sort(key=lambda alert: (not alert["firing"], not alert["here"]))
    return {"alerts": found, "firing": sum(bool(alert["firing"]) for alert in found)}


def evaluate(asked: Numbers, name: str, limits: Mapping[str, str]) -> list[Firing]:
    """Of whom an alert's condition is true at the end of the scope."""
    by = tuple(BY_MODEL.values()) if _rows()[name]["link"] == "model" else (SERVICE,)
    found: dict[Labels, Firing] = {}
    for group in CONDITIONS[name]:
        values = [_clause(asked, clause, by, limits) for clause in group]
        for labels in set.intersection(*map(set, values)):
            found.setdefault(labels, Firing(labels, values[0][labels], _is_share(group[0])))
    return [found[labels] for labels in sorted(found)]


def _clause(asked: Numbers, clause: Clause, by: Sequence[str], limits: Mapping[str, str]) -> dict[Labels, float]:
    """The values of those for whom a clause is true."""
    part, *whole, minutes, name = clause
    within = asked.last(60 * minutes)
    limit = float(limits.get(name, name))
    parts = within.number(_count(part), by)
    if not whole:
        return {labels: value for labels, value in parts.items() if value >= limit}
    wholes = within.number(_count(*whole), by)
    shares = {labels: value / wholes[labels] for labels, value in parts.items() if wholes.get(labels)}
    return {labels: value for labels, value in shares.items() if value > limit}


def _is_share(clause: Clause) -> bool:
    return len(clause) == 4


def _count(name: str) -> Count:
    """An indicator's count, or its whole; of turns those that no person stopped, as the recorded rules have them."""
    of, _, side = name.partition(".")
    if of == "turns":
        return TURNS
    whole = INDICATORS[of].whole
    return whole if side and whole is not None else INDICATORS[of].count


@cache
def _rows() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in data("alerts.yaml", "endturn.generate")}


def _said(text: str, limits: Mapping[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda name: limits.get(name[1], name[1]), text)
