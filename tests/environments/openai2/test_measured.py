"""The conventions' metrics beside frameworks that record them: Google ADK."""

from __future__ import annotations

from tests.environments.measured import check_of, once

test_metrics_of_the_conventions = check_of({"adk": once("gcp.vertex.agent")})
