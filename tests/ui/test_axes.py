"""Ticks of axes: round, labelled, and no more than there is room for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from endturn.ui import axes
from endturn.ui.axes import NS, Unit


@pytest.mark.parametrize(
    ("unit", "highest", "labels"),
    [
        ("seconds", 0, "0 · 2 ms · 4 ms · 6 ms · 8 ms · 10 ms"),
        ("seconds", 0.34, "0 · 100 ms · 200 ms · 300 ms · 400 ms"),
        ("seconds", 9, "0 · 2 s · 4 s · 6 s · 8 s · 10 s"),
        ("seconds", 70, "0 · 15 s · 30 s · 45 s · 1 min · 1 min 15 s"),
        ("seconds", 150, "0 · 30 s · 1 min · 1 min 30 s · 2 min · 2 min 30 s"),
        ("seconds", 250, "0 · 1 min · 2 min · 3 min · 4 min · 5 min"),
        ("seconds", 7201, "0 · 30 min · 1 h · 1 h 30 min · 2 h · 2 h 30 min"),
        ("seconds", 400_000, "0 · 1 d · 2 d · 3 d · 4 d · 5 d"),
        ("count", 0, "0 · 1 · 2 · 3 · 4"),
        ("count", 53, "0 · 20 · 40 · 60"),
        ("count", 1_392_446, "0 · 500\u202f000 · 1 M · 1.5 M"),
        ("share", 0, "0 · 2% · 4% · 6% · 8% · 10%"),
        ("share", 0.46, "0 · 10% · 20% · 30% · 40% · 50%"),
        ("share", 1, "0 · 20% · 40% · 60% · 80% · 100%"),
        ("share", 4, "0 · 100% · 200% · 300% · 400%"),
    ],
)
def test_labels_of_values(unit: Unit, highest: float, labels: str) -> None:
    """Each gridline has one, the highest too."""
    assert " · ".join(tick.label for tick in axes.ticks(unit, highest)) == labels


@given(st.sampled_from(["count", "share", "seconds"]), st.floats(0, 1e18), st.integers(2, 8))
def test_an_axis_holds_its_values(unit: Unit, highest: float, most: int) -> None:
    """From zero to a tick that is not below the highest, in equal steps."""
    ticks = [tick.value for tick in axes.ticks(unit, highest, most)]
    assert ticks[0] == 0
    assert ticks[-1] >= highest * (1 - 1e-9)
    assert 2 <= len(ticks) <= most + 1
    assert ticks == pytest.approx([n * ticks[1] for n in range(len(ticks))])


@given(st.floats(0.51, 86_400))
def test_steps_of_durations_are_those_of_a_clock(least: float) -> None:
    """1, 2, 5, 10, 15 and 30 of seconds and of minutes, then hours."""
    minutes = [60 * n for n in (1, 2, 5, 10, 15, 30)]
    clock = [1, 2, 5, 10, 15, 30, *minutes, 3600, 7200, 10_800, 21_600, 43_200, 86_400]
    assert axes.duration_step(least) == min(step for step in clock if step >= least)


def at(text: str) -> int:
    """A moment as Unix time in nanoseconds."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * NS


@pytest.mark.parametrize(
    ("start", "end", "labels"),
    [
        ("2026-11-30T08:23:55", "2026-11-30T08:24:05", "08:23:56 08:23:58 08:24:00 08:24:02 08:24:04"),
        ("2026-11-30T08:09", "2026-11-30T08:24", "08:10 08:12 08:14 08:16 08:18 08:20 08:22 08:24"),
        ("2026-11-29T20:30", "2026-11-30T08:30", "22:00 00:00 02:00 04:00 06:00 08:00"),
        ("2026-11-25", "2026-11-30", "11-25 11-26 11-27 11-28 11-29 11-30"),
        ("2016-01-01", "2026-01-01", "2016-07 2017-11 2019-04 2020-08 2022-01 2023-05 2024-10"),
    ],
)  # fmt: skip
def test_labels_of_times(start: str, end: str, labels: str) -> None:
    """At round moments, as short as their distance allows."""
    assert " ".join(tick.label for tick in axes.time_ticks(at(start), at(end))) == labels
