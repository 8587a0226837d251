"""From the costs of single rounds to figures: lower quartiles, their spread, and goals."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Rounds = dict[str, list[float]]
"""What each arm cost, round by round."""

Costs = Mapping[str, float]
"""The lower quartile of each arm's costs."""

REDRAWS: Final = 400
"""How often the rounds are drawn anew, with repetition, for the spread of a figure."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should be at most, or at least."""

    limit: float
    at_least: bool = False

    def is_met_by(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure.

    Attributes:
        key: identifies the row, also on the page.
        low, high: the middle nine tenths of the figure when the rounds are drawn anew.
    """

    key: str
    title: str
    unit: str
    value: float
    low: float
    high: float
    goal: Goal | None = None

    def line(self) -> str:
        """The row as one line of text."""
        figure = f"{number(self.value)} ({number(self.low)} … {number(self.high)}) {self.unit}"
        if self.goal is None:
            return f"{self.title:<76} {figure}"
        return f"{self.title:<76} {figure:<34} goal {self.goal}: {self.verdict()}"

    def verdict(self) -> str:
        """Whether the goal is met."""
        return "met" if self.goal is None or self.goal.is_met_by(self.value) else "missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """How a row is calculated.

    Attributes:
        figure: the value, from the lower quartiles of the arms of one group.
        peers: the other instrumentations whose arms it needs.
    """

    key: str
    title: str
    unit: str
    figure: Callable[[Costs], float]
    goal: Goal | None = None
    peers: tuple[str, ...] = ()

    def row(self, rounds: Rounds) -> Row:
        """Calculate the figure and its spread. What disturbs a process only adds to a cost, hence lower quartiles."""
        count = min(len(costs) for costs in rounds.values())
        generator = random.Random(0)
        redrawn = sorted(
            self.figure(_quartiles(rounds, generator.choices(range(count), k=count))) for _ in range(REDRAWS)
        )
        return Row(
            key=self.key,
            title=self.title,
            unit=self.unit,
            value=self.figure(_quartiles(rounds, range(count))),
            low=redrawn[REDRAWS // 20],
            high=redrawn[-REDRAWS // 20],
            goal=self.goal,
        )


def row_of_rounds(title: str, unit: str, values: Sequence[float], goal: Goal | None = None) -> Row:
    """Make a row of a figure that was calculated for each round: its median, and that of rounds drawn anew."""
    generator = random.Random(0)
    redrawn = sorted(statistics.median(generator.choices(values, k=len(values))) for _ in range(REDRAWS))
    value = statistics.median(values)
    return Row(
        key=title,
        title=title,
        unit=unit,
        value=value,
        low=redrawn[REDRAWS // 20],
        high=redrawn[-REDRAWS // 20],
        goal=goal,
    )


def lower_quartile(values: Sequence[float]) -> float:
    """The value that a quarter of them are below."""
    return sorted(values)[len(values) // 4]


def _quartiles(rounds: Rounds, drawn: Sequence[int]) -> Costs:
    return {arm: lower_quartile([costs[at] for at in drawn]) for arm, costs in rounds.items()}


def number(value: float) -> str:
    """A figure with the digits that mean something."""
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{value:,.{digits}f}"
