"""Beside two instrumentations of LangChain, whose spans are not current while the HTTP request is made."""

from __future__ import annotations

from openinference.instrumentation.langchain import LangChainInstrumentor as OpenInference
from opentelemetry.instrumentation.langchain import LangchainInstrumentor as OpenLLMetry

from tests.environments.frameworks import test_agents as agents
from tests.support.agent_runs import check_of

test_with_openinference = check_of(agents.langchain, beside=[OpenInference])
test_with_openllmetry = check_of(agents.langchain, beside=[OpenLLMetry])
