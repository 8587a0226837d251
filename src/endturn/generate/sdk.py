"""What we use of the Grafana Foundation SDK, imported without the warning that its classic dashboard raises."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # Grafana takes no v2 dashboard from a file, so the classic one it is.
    warnings.filterwarnings("ignore", message="Prefer using dashboardv2", category=DeprecationWarning)
    from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import common as common_models
    from grafana_foundation_sdk.models import dashboard as models
    from grafana_foundation_sdk.models import prometheus as prometheus_models

__all__ = [
    "JSONEncoder", "bargauge", "common", "common_models", "dashboard", "models", "prometheus", "prometheus_models",
    "stat", "table", "timeseries",
]  # fmt: skip
