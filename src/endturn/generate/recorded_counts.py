"""Recording rules that count turns each minute."""

from __future__ import annotations

from typing import Final

from endturn.generate.queries import (
    CALL,
    SERVICE,
    Labels,
    Queries,
    duration,
    events_for_rules,
    sum_by,
)
from endturn.telemetry import TRUNCATED_TURNS, TURNS, UNFINISHED_TURNS, Count

INTERVAL: Final = 60
"""Seconds between two evaluations."""
WINDOW: Final = 300
"""Seconds that a recorded count covers."""
MEMORY: Final = 900
"""Length in seconds of a gap in telemetry that is bridged; EndturnTelemetryAbsent reports a longer
one."""
OVERLAP: Final = WINDOW // INTERVAL
"""Number of samples of a recorded series that contain one event."""

MODEL_COUNTS: Final = {
    TURNS: "endturn:turns:count5m",
    TRUNCATED_TURNS: "endturn:turns_truncated:count5m",
    UNFINISHED_TURNS: "endturn:turns_unfinished:count5m",
}
"""Recorded series by service, provider and model."""
SERVICE_COUNTS: Final = {
    TURNS: "endturn:service_turns:count5m",
    TRUNCATED_TURNS: "endturn:service_truncated:count5m",
    UNFINISHED_TURNS: "endturn:service_unfinished:count5m",
}
"""Recorded series by service."""


def recording_rules() -> list[dict[str, str]]:
    """Return the recording rules, as Prometheus reads them.

    Each reads only counters. A rule that read another rule's result would, after a restart of
    Prometheus, see the value from before it for as long as Prometheus looks back for a sample (5
    minutes).
    """
    by_model = (*SERVICE, *CALL)
    return [
        {"record": name, "expr": _recent_events(count, by)}
        for names, by in ((MODEL_COUNTS, by_model), (SERVICE_COUNTS, SERVICE))
        for count, name in names.items()
    ]


def _recent_events(count: Count, by: Labels) -> str:
    """Return the events of the last five minutes: zero if there were only turns.

    So both sides of a share have a series.
    """
    events = events_for_rules(Queries().counter(count), by=by, over=WINDOW, memory=MEMORY)
    if count == TURNS:
        return events
    turns = sum_by(by, f"last_over_time({Queries().counter(TURNS)}[{duration(WINDOW)}])")
    return f"{events} or {turns} * 0"
