"""The Grafana dashboards, one module each, built with the Grafana Foundation SDK.

Only `endturn generate` imports this package, which needs the extra `grafana`. The committed JSON is
what everything else reads.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # The SDK's first import warns that newer Grafanas have another format. Grafana loads only the
    # classic one from a file, so this is the one to build.
    warnings.filterwarnings(
        "ignore", message="Prefer using dashboardv2", category=DeprecationWarning
    )
    import grafana_foundation_sdk.builders.bargauge
    import grafana_foundation_sdk.builders.dashboard  # noqa: F401 - for their warnings
