"""Recording rules that count turns each minute."""

from __future__ import annotations

from typing import Final

from endturn.generate.queries import CALL, SERVICE, Queries, events_for_rules, sum_by
from endturn.telemetry import TRUNCATED_TURNS, TURNS, UNFINISHED_TURNS

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
    """Return the recording rules, as Prometheus reads them."""
    rules = []
    for count, name in MODEL_COUNTS.items():
        events = events_for_rules(
            Queries().counter(count), by=(*SERVICE, *CALL), over=WINDOW, memory=MEMORY
        )
        # Zero where there were turns but none of these: both sides of a share have a series.
        zero = "" if count == TURNS else f" or {MODEL_COUNTS[TURNS]} * 0"
        rules.append({"record": name, "expr": events + zero})
    rules += [
        {"record": name, "expr": sum_by(SERVICE, MODEL_COUNTS[count])}
        for count, name in SERVICE_COUNTS.items()
    ]
    return rules
