"""What is set before an environment's packages are imported: nothing is fetched from the network, or sent there."""

import os

os.environ |= {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # LiteLLM's and DSPy's list of prices
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
}
