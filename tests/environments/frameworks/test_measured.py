"""The conventions' metrics beside frameworks that record them, and beside instrumentations of LangChain."""

from __future__ import annotations

from tests.environments.measured import check_of, once

test_metrics_of_the_conventions = check_of(
    {
        "agent-framework": once("agent_framework"),
        # It records no duration of a call that failed.
        "openllmetry-langchain": once("opentelemetry.instrumentation.langchain", durations=2),
        "openinference-langchain": once("endturn"),
    }
)
