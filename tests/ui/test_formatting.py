"""Counts and durations as text: by hand at the edges of each unit, and read back over the whole range."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, strategies as st

from endturn.ui import formatting

SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86_400}
SIZES = {"": 1, "M": 1e6, "B": 1e9, "T": 1e12}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"), (math.nan, "–"), (0, "0 s"), (1e-6, "1 µs"), (0.00032, "320 µs"), (0.34, "340 ms"),
        (0.9996, "1 s"), (2.5, "2.5 s"), (59.9, "59.9 s"), (59.96, "1 min"), (60, "1 min"), (75.4, "1 min 15.4 s"),
        (90, "1 min 30 s"), (99.97, "1 min 40 s"), (119, "1 min 59 s"), (120, "2 min"), (150, "2 min 30 s"),
        (179, "2 min 59 s"), (3599.7, "1 h"), (3900, "1 h 5 min"), (7200, "2 h"), (86_399, "1 d"),
        (100_000, "1 d 3 h 50 min"), (1e6, "11 d 14 h"), (1e9, "11\u202f574 d"), (-90, "−1 min 30 s"),
    ],
)  # fmt: skip
def test_a_duration(seconds: float | None, text: str) -> None:
    """The units change where the number would become long; a rounded value changes with them."""
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (math.nan, "–"), (0, "0"), (0.25, "0.25"), (12.5, "12.5"), (53, "53"), (999.6, "1\u202f000"),
        (1248, "1\u202f248"), (999_999, "999\u202f999"), (999_999.6, "1 M"), (1_392_446, "1.39 M"),
        (1_400_000, "1.4 M"),
        (999_999_999, "1 B"), (1e9, "1 B"), (1e15, "1\u202f000 T"), (-53, "−53"),
    ],
)  # fmt: skip
def test_a_count(value: float | None, text: str) -> None:
    """Whole below a million, then three digits; a billion is not a thousand million."""
    assert formatting.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0, "0%"), (0.4615, "46.2%"), (0.0004, "0.0%"), (0.99951, "100%"), (1, "100%")]
)
def test_a_share(value: float | None, text: str) -> None:
    """In percent, with one decimal unless it is none or all."""
    assert formatting.share(value) == text


def parsed_duration(text: str) -> float:
    """Read a duration; no part of it may be as long as its next unit."""
    parts = [(float(number.replace("\u202f", "")), unit) for number, unit in re.findall(r"([\d.\u202f]+) (\S+)", text)]
    assert " ".join(f"{number:,.10g} {unit}".replace(",", "\u202f") for number, unit in parts) == text
    limits = {"ns": 1000, "µs": 1000, "ms": 1000, "s": 60, "min": 60, "h": 24, "d": math.inf}
    assert all(number < limits[unit] for number, unit in parts)
    sizes = [SECONDS[unit] for _, unit in parts]
    assert sizes == sorted(set(sizes), reverse=True)
    return sum(number * SECONDS[unit] for number, unit in parts)


def parsed_count(text: str) -> float:
    """Read a count."""
    (match,) = re.findall(r"^([\d.\u202f]+)(?: ([MBT]))?$", text)
    return float(match[0].replace("\u202f", "")) * SIZES[match[1]]


@given(st.one_of(st.just(0.0), st.floats(1e-6, 1e9), st.integers(0, 30_000_000).map(lambda value: value / 100)))
def test_a_duration_is_read_back(seconds: float) -> None:
    """Within 0.5 %, from a microsecond to thirty years."""
    assert parsed_duration(formatting.duration(seconds)) == pytest.approx(seconds, rel=0.005, abs=1e-15)


@given(st.one_of(st.integers(0, 10**15), st.integers(0, 10**7), st.floats(1e-5, 1e15)))
def test_a_count_is_read_back(value: float) -> None:
    """Within 0.5 %; a fraction from a hundred on is rounded to a whole number."""
    assert parsed_count(formatting.count(value)) == pytest.approx(value, rel=0.005)
