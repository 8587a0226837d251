"""Frameworks that endturn does not know: it sees the HTTP client that each of them uses."""

from __future__ import annotations

from tests.environments.frameworks.agents import ANSWERING, WITH_TOOLS
from tests.support.agent_runs import checks_of

test_an_answer, test_a_tool_loop = checks_of(ANSWERING, WITH_TOOLS)
