"""All alerts of a configuration, the central one first: answers that were cut off and handed on as they were."""

from __future__ import annotations

from typing import Final

from endturn.generate import alerts_collector, alerts_pipeline, alerts_responses, alerts_turns
from endturn.generate.config import RuleConfig
from endturn.generate.declare import Alert

EVERY: Final = (
    alerts_turns.not_continued,
    alerts_turns.budget_burning,
    alerts_turns.few_unfinished,
    alerts_turns.given_up,
    alerts_turns.repairs,
    alerts_turns.slow,
    alerts_responses.truncated,
    alerts_responses.nearly_used,
    alerts_responses.unknown,
    alerts_responses.suspected,
    alerts_pipeline.listener,
    alerts_pipeline.absent,
    alerts_pipeline.unevaluated,
    alerts_collector.down,
    alerts_collector.losing,
    alerts_collector.refusing,
    alerts_collector.filling,
)


def alerts(config: RuleConfig) -> tuple[Alert, ...]:
    """All of them. A silent service is missed only where the configuration names it."""
    made = tuple(one(config) for one in EVERY)
    return (*made, alerts_pipeline.silent(config)) if config.expected else made
