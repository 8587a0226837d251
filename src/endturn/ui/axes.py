"""Ticks of chart axes: round values with their labels, for each unit.

An axis of values begins at zero and ends at a tick, so every gridline has a label.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from endturn.ui import formatting

Unit = Literal["count", "share", "seconds"]
Precision = Literal["second", "minute", "day", "month"]
NS: Final = 1_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
DURATION_STEPS: Final = (
    *(n for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    _DAY,
)
"""Distances between ticks of a time, in seconds, from one second to one day."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick of an axis of values."""

    value: float
    label: str


@dataclass(frozen=True, slots=True)
class TimeTick:
    """One tick of a time axis.

    Attributes:
        at_ns: its moment, Unix time.
        label: the moment in UTC, as short as the distance of the ticks allows.
        precision: the finest part of the label.
    """

    at_ns: int
    label: str
    precision: Precision


def ticks(unit: Unit, highest: float, most: int = 5) -> list[Tick]:
    """Return the ticks of an axis from zero to the first tick that is not below a value.

    Args:
        unit: of the values; durations are in seconds, shares in parts of one.
        highest: the highest value that is drawn; finite, not negative.
        most: how many ticks there may be above zero; at least 2.
    """
    highest = max(highest, {"count": most - 1, "share": 0.1, "seconds": 0.01}[unit])
    step = {"count": _count_step, "share": _decimal_step, "seconds": duration_step}[unit](
        highest / most
    )
    number = math.ceil(highest / step - 1e-9)
    return [Tick(n * step, _label(unit, n * step)) for n in range(number + 1)]


def duration_step(least: float) -> float:
    """Return the shortest round duration that is not below a value, in seconds."""
    if least <= 0.5:
        return _decimal_step(least)
    if least > _DAY:
        return _DAY * _decimal_step(least / _DAY)
    return next(step for step in DURATION_STEPS if least <= step)


def time_ticks(start_ns: int, end_ns: int, most: int = 8) -> list[TimeTick]:
    """Return the ticks of a time axis within a range, at round moments of UTC.

    Args:
        start_ns: the beginning of the range; Unix time.
        end_ns: its end.
        most: how many ticks there may be.
    """
    step = max(1, round(duration_step(max(end_ns - start_ns, 1) / NS / most)))
    first = math.ceil(start_ns / (step * NS))
    precision: Precision = (
        "second" if step < _MINUTE
        else "minute" if step < _DAY
        else "day" if step < 60 * _DAY
        else "month"
    )  # fmt: skip
    return [
        TimeTick(at * NS, _moment(at, precision), precision)
        for at in range(first * step, end_ns // NS + 1, step)
    ]


def _moment(at: int, precision: Precision) -> str:
    format_ = {"second": "%H:%M:%S", "minute": "%H:%M", "day": "%m-%d", "month": "%Y-%m"}
    return (_EPOCH + timedelta(seconds=at)).strftime(format_[precision])


def _label(unit: Unit, value: float) -> str:
    if value == 0:
        return "0"
    if unit == "share":
        return f"{float(f'{value * 100:.3g}'):g}%"
    return formatting.count(value) if unit == "count" else formatting.duration(value)


def _count_step(least: float) -> float:
    return max(1.0, _decimal_step(least))


def _decimal_step(least: float) -> float:
    """Return the least of 1, 2, 5 times a power of ten that is not below a positive value."""
    return next(step for step in _decimal_steps(least) if step >= least * (1 - 1e-9))


def _decimal_steps(least: float) -> Iterator[float]:
    power = math.floor(math.log10(least))
    for exponent in (power, power + 1):
        for digit in (1, 2, 5):
            yield float(f"{digit}e{exponent}")
