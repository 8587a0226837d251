"""The conventions' metrics beside other instrumentations: recorded once, by those or by endturn."""

from __future__ import annotations

from tests.environments.measured import check_of, once

test_metrics_of_the_conventions = check_of(
    {
        "genai-openai": once("opentelemetry.instrumentation.genai.openai"),
        "genai-openai-raw": ({"opentelemetry.instrumentation.genai.openai": 3}, {}),
        "genai-anthropic": once("opentelemetry.instrumentation.genai.anthropic"),
        "openllmetry-openai": once("opentelemetry.instrumentation.openai.v1"),
        # It hands a raw stream over, and measures nothing of it.
        "openllmetry-openai-raw": ({"opentelemetry.instrumentation.openai.v1": 2, "endturn": 1}, {}),
        "openllmetry-anthropic": once("opentelemetry.instrumentation.anthropic"),
        "openinference-openai": once("endturn"),
        "openinference-anthropic": once("endturn"),
        "anthropic": once("endturn"),
        "langfuse": once("endturn"),
        "genai-elsewhere": once("endturn"),
        "genai-beside-openinference": once("endturn"),
    }
)
