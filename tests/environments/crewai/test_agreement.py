"""What an inferred turn counts of CrewAI's agents."""

from __future__ import annotations

from tests.environments.crewai import test_agents as agents
from tests.support.agreement import LOOP, figures_of

test_figures = figures_of({"CrewAI": (agents.crew, LOOP)})
