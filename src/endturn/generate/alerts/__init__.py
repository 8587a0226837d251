"""The alerts, from which rules, rule tests, runbooks and the local page follow."""

from __future__ import annotations

from typing import Final

from endturn.generate.alerts import (
    collectors,
    continuations,
    kafka,
    losses,
    queues,
    recording,
    responses,
    turns,
)
from endturn.generate.alerts.model import Alert

ALERTS: Final[tuple[Alert, ...]] = (
    *turns.ALERTS,
    *continuations.ALERTS,
    *responses.ALERTS,
    *recording.ALERTS,
    *collectors.ALERTS,
    *queues.ALERTS,
    *kafka.ALERTS,
    *losses.ALERTS,
)
"""Every alert, in the order of the rule files."""
