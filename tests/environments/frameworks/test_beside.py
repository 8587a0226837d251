"""Beside two instrumentations of LangChain, whose spans are not current while the HTTP request is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openinference.instrumentation.langchain import LangChainInstrumentor as OpenInference
from opentelemetry.instrumentation.langchain import LangchainInstrumentor as OpenLLMetry

from tests.environments.frameworks import test_agents as agents
from tests.support.agent_runs import TRACERS, check_of


@pytest.fixture(autouse=True, params=[OpenInference, OpenLLMetry], ids=["OpenInference", "OpenLLMetry"])
def instrumentor(request: pytest.FixtureRequest) -> Iterator[None]:
    """One of them, at work before endturn is."""
    made: Any = request.param()
    made.instrument(tracer_provider=TRACERS, skip_dep_check=True)
    yield
    made.uninstrument()


test_each_request_counts_once = check_of(agents.langchain)
