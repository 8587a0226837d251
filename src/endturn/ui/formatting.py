"""Counts, shares and durations as people read them: on pages, charts, reports.

The page's script has no formatters; it shows the texts that the server wrote. A formatted count or
duration differs from its value by 0.5 % at most.
"""

from __future__ import annotations

import math
from typing import Final

ABSENT: Final = "–"
"""Stands for a value that does not exist."""
THIN_SPACE: Final = "\u202f"
"""Separates groups of three digits."""
_LARGE: Final = ((1e12, "T"), (1e9, "B"), (1e6, "M"))
"""Units of counts, the same sizes as in Grafana's unit `short`."""
_HUGE: Final = 1e18
_SMALL: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
"""Units of durations below a minute, in seconds."""
_LONG: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
"""Units of longer durations, in seconds."""
_RESOLUTIONS: Final = ((100 * 86_400, 86_400), (100 * 3_600, 3_600), (86_400, 600), (7_200, 60),
                       (3_600, 10), (0, 1))  # fmt: skip
"""Pairs of a shortest duration and the unit to which it is rounded, both in seconds.

The rounding error is at most 0.5 %."""
_ENDLESS: Final = 1e6 * 86_400
"""The shortest duration whose days are written as a power of ten."""


def count(value: float | None) -> str:
    """Format a count: `53`, `12 345` in groups of three digits, `1.39 M` from a million on."""
    if value is None or math.isnan(value):
        return ABSENT
    if value < 0:
        return f"−{count(-value)}"
    if value < 100 and (rough := _rounded(value)) != int(rough):
        return f"{rough:.12f}".rstrip("0") if rough >= 1e-6 else f"{rough:.3g}"
    if value < 999_999.5:
        return _grouped(value)
    value = _rounded(value)
    if value >= _HUGE:
        return f"{value:.3g}"
    size, unit = next((size, unit) for size, unit in _LARGE if value >= size)
    mantissa = value / size
    return f"{f'{mantissa:.3g}' if mantissa < 1000 else _grouped(mantissa)} {unit}"


def plural(number: float, noun: str) -> str:
    """Format a count with its noun: `1 turn`, `2 turns`."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def share(value: float | None) -> str:
    """Format a share in percent, with one decimal: `46.2%`, `0%`, `100%`."""
    if value is None or math.isnan(value):
        return ABSENT
    percent = value * 100
    return f"{percent:.0f}%" if percent in (0, 100) or percent >= 99.95 else f"{percent:.1f}%"


def duration(seconds: float | None) -> str:
    """Format a duration: `340 ms`, `2.5 s`, `2 min 30 s`, `1 h 5 min`, `3 d 4 h`.

    Args:
        seconds: the duration. None and NaN are a dash.
    """
    if seconds is None or math.isnan(seconds):
        return ABSENT
    if seconds < 0:
        return f"−{duration(-seconds)}"
    if seconds >= _ENDLESS:
        return f"{seconds / 86_400:.3g} d"
    if seconds < 100:
        seconds = _rounded(seconds)
        if seconds < 60:
            return _short(seconds)
        minutes, rest = divmod(seconds, 60)
        return f"{minutes:.0f} min" + (f" {rest:.3g} s" if round(rest, 1) else "")
    resolution = next(step for least, step in _RESOLUTIONS if seconds >= least)
    remainder = round(seconds / resolution) * resolution
    parts = []
    for size, unit in _LONG:
        number, remainder = divmod(remainder, size)
        if number:
            parts.append(f"{_grouped(number)} {unit}")
    return " ".join(parts)


def _short(seconds: float) -> str:
    if seconds == 0:
        return "0 s"
    size, unit = next(((size, unit) for size, unit in _SMALL if seconds >= size), _SMALL[-1])
    return f"{_rounded(seconds / size):g} {unit}"


def _grouped(value: float) -> str:
    """Round to a whole number, and write its digits in groups of three."""
    return f"{value:,.0f}".replace(",", THIN_SPACE)


def _rounded(value: float) -> float:
    """Round to three significant digits."""
    return float(f"{value:.3g}")
