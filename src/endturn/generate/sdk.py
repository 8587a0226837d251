"""What we use of the Grafana Foundation SDK, imported without the warning that its classic dashboard raises."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # Grafana takes no v2 dashboard from a file, so the classic one it is.
    warnings.filterwarnings("ignore", message="Prefer using dashboardv2", category=DeprecationWarning)
    from grafana_foundation_sdk.builders import (
        bargauge,
        common,
        dashboard,
        heatmap,
        logs,
        loki,
        prometheus,
        stat,
        table,
        tempo,
        timeseries,
    )
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import common as common_models
    from grafana_foundation_sdk.models import dashboard as models
    from grafana_foundation_sdk.models import heatmap as heatmap_models
    from grafana_foundation_sdk.models import loki as loki_models
    from grafana_foundation_sdk.models import prometheus as prometheus_models
    from grafana_foundation_sdk.models import tempo as tempo_models

__all__ = [
    "JSONEncoder", "bargauge", "common", "common_models", "dashboard", "heatmap", "heatmap_models", "logs", "loki",
    "loki_models", "models", "prometheus", "prometheus_models", "stat", "table", "tempo", "tempo_models", "timeseries",
]  # fmt: skip
