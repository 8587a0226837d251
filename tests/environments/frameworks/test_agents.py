"""Frameworks that endturn does not know: it sees the HTTP client that each of them uses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from endturn.scripted import Reply
from tests.environments.frameworks.agents import ANSWERING, WITH_TOOLS
from tests.support.agent_runs import ANSWERS, TOOL_LOOPS, Agent, check_each_request_counts_once


@ANSWERS
@pytest.mark.parametrize("agent", ANSWERING)
def test_an_answer(agent: Agent, replies: Sequence[Reply]) -> None:
    check_each_request_counts_once(agent, replies)


@TOOL_LOOPS
@pytest.mark.parametrize("agent", WITH_TOOLS)
def test_a_tool_loop(agent: Agent, replies: Sequence[Reply]) -> None:
    check_each_request_counts_once(agent, replies)
