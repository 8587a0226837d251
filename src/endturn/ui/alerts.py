"""The page of alerts: the conditions of `generate/alerts.yaml` on what is stored here, with their runbooks.

How long a condition must hold before somebody is told is the rules' business; here it is true now or it is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

from endturn.generate.config import SITE, Limits
from endturn.telemetry import schema
from endturn.telemetry.indicators import INDICATORS, TURNS, Count
from endturn.ui.numbers import SERVICE, Labels, Numbers
from endturn.ui.store import Store
from endturn.ui.views import View, count, share

MINUTE, HOUR, DAY = 60, 3600, 86400


@dataclass(frozen=True, slots=True)
class Share:
    """Of the whole, the part is more than a limit, in a window."""

    part: str
    whole: str
    window: int
    limit: str


@dataclass(frozen=True, slots=True)
class Least:
    """There are so many at least, in a window."""

    of: str
    window: int
    limit: str


Clause = Share | Least


def _unfinished(whole: str, limit: str, *windows: int) -> tuple[Clause, ...]:
    """A share in several windows, and enough turns in the first of them."""
    shares = (Share("unfinished", whole, window, limit) for window in windows)
    return (*shares, Least("unfinished", windows[0], "unfinished"))


CONDITIONS: Final[Mapping[str, tuple[tuple[Clause, ...], ...]]] = {
    "EndturnTurnsUnfinished": (
        _unfinished("turns", "fast", HOUR, 15 * MINUTE),
        _unfinished("turns", "slow", 6 * HOUR, 30 * MINUTE),
    ),
    "EndturnBudgetBurning": (_unfinished("turns", "burn", 3 * DAY, 6 * HOUR),),
    "EndturnTruncatedNotContinued": (
        (*_unfinished("truncated_turns", "not_continued", 6 * HOUR), Least("continuations", DAY, "1")),
    ),
    "EndturnResponsesTruncated": (
        (
            Share("truncation", "truncation.whole", 30 * MINUTE, "truncated"),
            Least("truncation", 30 * MINUTE, "truncations"),
        ),
    ),
    "EndturnContinuationsExhausted": ((Least("given_up", 30 * MINUTE, "exhausted"),),),
    "EndturnRepairsFailing": (
        (
            Share("repair_failure", "repair_failure.whole", 30 * MINUTE, "repair_failure"),
            Least("repair_failure", 30 * MINUTE, "failed_repairs"),
        ),
    ),
    "EndturnStopReasonUnknown": ((Least("unknown", 30 * MINUTE, "unknown"),),),
    "EndturnTruncationSuspected": ((Least("suspected", 30 * MINUTE, "suspected"),),),
    "EndturnRecordingFailing": ((Least("recording_failures", 15 * MINUTE, "failures"),),),
}
"""When each alert's condition is true: all clauses of one of its groups."""
MODEL: Final = (SERVICE, schema.PROVIDER.label, schema.REQUEST_MODEL.label)


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
    found = []
    for row in _rows():
        condition = CONDITIONS.get(row["name"])
        true = evaluate(asked, row["name"], limits) if condition else []
        texts = {key: _said(row[key], limits) for key in ("meaning", "impact", "description")}
        found.append(
            {
                "name": row["name"], "severity": row["severity"], "firing": true, "here": condition is not None,
                "look": [_said(each, limits) for each in row["look"]],
                "runbook": f"{SITE}/docs/runbooks/{row['name']}.md",
                "act": [_said(each, limits) for each in row["act"]], **texts,
            }
        )  # fmt: skip
    found.sort(key=lambda alert: (not alert["firing"], not alert["here"]))
    return {"alerts": found, "firing": sum(bool(alert["firing"]) for alert in found)}


def evaluate(asked: Numbers, name: str, limits: Mapping[str, str]) -> list[Firing]:
    """Of whom an alert's condition is true at the end of the scope."""
    row = next(row for row in _rows() if row["name"] == name)
    by = MODEL if row["link"] == "model" else (SERVICE,)
    found: dict[Labels, Firing] = {}
    for group in CONDITIONS[name]:
        values = [_clause(asked, clause, by, limits) for clause in group]
        for labels in set.intersection(*map(set, values)):
            found.setdefault(labels, Firing(labels, values[0][labels], isinstance(group[0], Share)))
    return [found[labels] for labels in sorted(found)]


def _clause(asked: Numbers, clause: Clause, by: Sequence[str], limits: Mapping[str, str]) -> dict[Labels, float]:
    """The values of those for whom a clause is true."""
    within = Numbers(asked.store, asked.scope.last(clause.window))
    limit = float(limits.get(clause.limit, clause.limit))
    match clause:
        case Share(part, whole):
            parts, wholes = within.number(_count(part), by), within.number(_count(whole), by)
            shares = {labels: value / wholes[labels] for labels, value in parts.items() if wholes.get(labels)}
            return {labels: value for labels, value in shares.items() if value > limit}
        case Least(of):
            return {labels: value for labels, value in within.number(_count(of), by).items() if value >= limit}


def _count(name: str) -> Count:
    """An indicator's count, or its whole; of turns those that no person stopped, as the recorded rules have them."""
    of, _, side = name.partition(".")
    if of == "turns":
        return TURNS
    whole = INDICATORS[of].whole
    return whole if side and whole is not None else INDICATORS[of].count


@cache
def _rows() -> list[dict[str, Any]]:
    text = files("endturn.generate").joinpath("alerts.yaml").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (both safe)
    return rows


def _said(text: str, limits: Mapping[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda name: limits.get(name[1], name[1]), text)
