"""The turns of agents of frameworks that take openai 3 are the same, however they are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import agents as openai_agents
import openai
from agents.extensions.handoff_filters import remove_all_tools
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_openai import ChatOpenAI
from openinference.instrumentation.langchain import LangChainInstrumentor
from pydantic import BaseModel, SecretStr

from endturn.testing.scripted import call, say
from tests.environments.frameworks import test_agents as agents
from tests.support.agent_runs import HI, KEY, MODEL
from tests.support.agreement import LOOP, STEPS, check_of, figures_of

Tools = Sequence[Callable[..., Any]]


class Forecast(BaseModel):
    """What the agent answers."""

    text: str


def structured_agent(url: str, *, tools: Tools) -> Any:
    """Each of its requests forces a tool call, as its answer is one too."""
    model = ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key=SecretStr(KEY), max_retries=0)
    agent: Any = create_agent(model, tools=[*tools], response_format=ToolStrategy(Forecast))
    return agent.invoke({"messages": HI})["structured_response"]


async def handing_over(url: str, *, tools: Tools) -> Any:
    """An agent that hands over to another, which gets the history without its calls of tools."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        model = openai_agents.OpenAIChatCompletionsModel(MODEL, client)
        other = openai_agents.Agent("other", model=model)
        handoff = openai_agents.handoff(other, input_filter=remove_all_tools)
        functions: list[Any] = [*map(openai_agents.function_tool, tools)]
        agent = openai_agents.Agent("helper", model=model, tools=functions, handoffs=[handoff])
        return (await openai_agents.Runner.run(agent, "hi")).final_output


test_agreement = check_of(
    agents.agent_framework_chat, agents.langchain, agents.openai_agents, agents.openai_agents_chat,
    spans=[LangChainInstrumentor], spanless=[agents.openai_agents, agents.openai_agents_chat],
    unseen=[agents.langchain],
    unlike={  # they answer the call with an error, and have it made again
        (agents.agent_framework_chat, "a cut tool call"): "completed",
        (agents.openai_agents_chat, "a cut tool call"): "completed",
    },
)  # fmt: skip
test_figures = figures_of(
    {
        "AG2": (agents.ag2_agent, LOOP),
        "Agno": (agents.agno_agent, LOOP),
        "Haystack": (agents.haystack, LOOP),
        "Semantic Kernel": (agents.semantic_kernel, LOOP),
        "LangGraph": (agents.langchain, LOOP),
        "Microsoft Agent Framework": (agents.agent_framework_chat, LOOP),
        "OpenAI Agents": (agents.openai_agents, LOOP),
        "LangChain, with structured output": (structured_agent, [*STEPS, call("Forecast", {"text": "It rains."})]),
        "OpenAI Agents, whose handover leaves the results of tools out": (
            handing_over,
            [*STEPS, call("transfer_to_other"), say("It rains.")],
        ),
    }
)
