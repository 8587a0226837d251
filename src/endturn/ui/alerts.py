"""The page of alerts: the conditions of `generate/alerts.yaml` on what is stored here, with their runbooks.

How long a condition must hold before somebody is told is the rules' business; here it is true now or it is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from endturn.generate.config import SITE, Limits
from endturn.telemetry.indicators import INDICATORS, TURNS, Count
from endturn.ui.numbers import BY_MODEL, SERVICE, Labels, Numbers
from endturn.ui.rows import data
from endturn.ui.store import Store
from endturn.ui.views import View, count, share

Clause = list[Any]
"""A share or a number with its window and limit: see conditions.yaml."""
ROWS: Final = {row["name"]: row for row in data("alerts.yaml", "endturn.generate")}
CONDITIONS: Final[Mapping[str, list[list[Clause]]]] = data("conditions.yaml")


def shown(view: View, store: Store) -> dict[str, Any]:
    """Every alert, those that are true now first."""
    asked = Numbers(store, view.scope)
    limits = Limits().values
    found = [
        {
            **row, "here": name in CONDITIONS,
            "firing": _shown(evaluate(asked, name, limits), name) if name in CONDITIONS else [],
            "runbook": f"{SITE}/docs/runbooks/{name}.md",
            **{key: _said(row[key], limits) for key in ("meaning", "impact", "description")},
            **{key: [_said(each, limits) for each in row[key]] for key in ("look", "act")},
        }
        for name, row in ROWS.items()
    ]  # fmt: skip
    found.sort(key=lambda alert: (not alert["firing"], not alert["here"]))
    return {"alerts": found, "firing": sum(bool(alert["firing"]) for alert in found)}


def evaluate(asked: Numbers, name: str, limits: Mapping[str, str]) -> dict[Labels, float]:
    """Of whom an alert's condition is true at the end of the scope, with the value that says how bad it is."""
    by = tuple(BY_MODEL.values()) if ROWS[name]["link"] == "model" else (SERVICE,)
    found: dict[Labels, float] = {}
    for group in CONDITIONS[name]:
        values = [_clause(asked, clause, by, limits) for clause in group]
        found = {labels: values[0][labels] for labels in set.intersection(*map(set, values))} | found
    return dict(sorted(found.items()))


def _shown(found: Mapping[Labels, float], name: str) -> list[tuple[str, Labels]]:
    """The values as people read them: of a clause with a part and a whole, shares."""
    written = share if len(CONDITIONS[name][0][0]) == 4 else count
    return [(written(value), labels) for labels, value in found.items()]


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


def _count(name: str) -> Count:
    """An indicator's count, or its whole; of turns those that no person stopped, as the recorded rules have them."""
    of, _, side = name.partition(".")
    if of == "turns":
        return TURNS
    whole = INDICATORS[of].whole
    return whole if side and whole is not None else INDICATORS[of].count


def _said(text: str, limits: Mapping[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda name: limits.get(name[1], name[1]), text)
