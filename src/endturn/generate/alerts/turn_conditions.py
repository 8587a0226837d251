"""The conditions of the alerts about turns that end unfinished."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from endturn.generate.alerts.conditions import (
    AllOf,
    Condition,
    CountAtLeast,
    ShareAbove,
    all_of,
    any_of,
)
from endturn.generate.alerts.model import AlertSettings
from endturn.generate.config import FAST, FAST_TICKET, SLOW, TICKET
from endturn.telemetry import TRUNCATED_TURNS, TURNS, UNFINISHED_TURNS

FAST_WINDOWS: Final = (timedelta(hours=1), timedelta(minutes=15))
SLOW_WINDOWS: Final = (timedelta(hours=6), timedelta(minutes=30))
TICKET_WINDOWS: Final = (timedelta(days=3), timedelta(hours=6))
FAST_TICKET_WINDOWS: Final = (timedelta(hours=1), timedelta(minutes=15))
"""The long and the short window over which a burn rate is measured."""


def _burns(settings: AlertSettings, rate: float, windows: tuple[timedelta, timedelta]) -> AllOf:
    """Unfinished turns consume the error budget at a multiple of the allowed rate."""
    limits = settings.limits
    shares = (
        ShareAbove(
            part=UNFINISHED_TURNS,
            total=TURNS,
            over=over,
            share=rate * limits.budget,
            phrase="of turns unfinished",
        )
        for over in windows
    )
    return all_of(*shares, _enough_unfinished(settings, windows[0]))


def _enough_unfinished(settings: AlertSettings, over: timedelta) -> CountAtLeast:
    return CountAtLeast(
        count=UNFINISHED_TURNS,
        over=over,
        number=settings.limits.unfinished,
        noun=("unfinished turn", "unfinished turns"),
    )


def turns_unfinished(settings: AlertSettings) -> Condition:
    """Return the condition that pages, over an hour or six."""
    return any_of(_burns(settings, FAST, FAST_WINDOWS), _burns(settings, SLOW, SLOW_WINDOWS))


def budget_burning(settings: AlertSettings) -> Condition:
    """Return the condition that opens a ticket, over days or an hour."""
    return any_of(
        _burns(settings, TICKET, TICKET_WINDOWS),
        _burns(settings, FAST_TICKET, FAST_TICKET_WINDOWS),
    )


def truncated_not_continued(settings: AlertSettings) -> Condition:
    """Return the condition about services that continue."""
    window, day = timedelta(hours=6), timedelta(days=1)
    return all_of(
        ShareAbove(
            part=UNFINISHED_TURNS,
            total=TRUNCATED_TURNS,
            over=window,
            share=settings.limits.not_continued,
            phrase="of truncated turns unfinished",
        ),
        _enough_unfinished(settings, window),
        # A service that never finishes a truncated turn has no continuation, and is only observed.
        CountAtLeast(
            count=TRUNCATED_TURNS,
            without=UNFINISHED_TURNS,
            over=day,
            number=1,
            noun=("finished truncated turn", "finished truncated turns"),
        ),
    )
