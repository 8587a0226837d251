"""Generate the committed files: dashboards, rules and their tests, reference documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.generate.alerts import ALERTS as ALERTS
    from endturn.generate.alerts.conditions import (
        Condition as Condition,
        CountAtLeast as CountAtLeast,
        PrometheusOnly as PrometheusOnly,
        ShareAbove as ShareAbove,
        alternatives as alternatives,
        to_promql as to_promql,
    )
    from endturn.generate.alerts.model import Alert as Alert, AlertSettings as AlertSettings
    from endturn.generate.config import (
        SITE as SITE,
        AlertLimits as AlertLimits,
        RuleConfig as RuleConfig,
    )
    from endturn.generate.queries import JOB as JOB
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "alerts": ("ALERTS",),
            "alerts.conditions": (
                "Condition", "CountAtLeast", "PrometheusOnly", "ShareAbove", "alternatives",
                "to_promql",
            ),
            "alerts.model": ("Alert", "AlertSettings"),
            "config": ("AlertLimits", "RuleConfig", "SITE"),
            "queries": ("JOB",),
        },
    )  # fmt: skip
