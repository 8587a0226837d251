"""What an inferred turn counts of PraisonAI's agents."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from praisonaiagents import Agent

from tests.support.agent_runs import KEY, MODEL
from tests.support.agreement import LOOP, figures_of


def praison(url: str, *, tools: Sequence[Callable[..., Any]]) -> Any:
    with mock.patch.dict(os.environ, {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": KEY}):
        return Agent(instructions="Be brief.", llm=MODEL, tools=[*tools]).chat("hi", stream=False)


test_figures = figures_of({"PraisonAI": (praison, LOOP)})
