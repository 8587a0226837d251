"""The turns of agents of frameworks that keep openai below 3 are the same, however they are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import dspy
import openai
import smolagents
import tenacity
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

from endturn.testing.scripted import call, fail, say
from tests.environments.openai2 import test_agents as agents
from tests.support.agent_runs import HI, KEY, MODEL
from tests.support.agreement import LOOP, STEPS, check_of, figures_of

Tools = Sequence[Callable[..., Any]]


def smolagents_agent(url: str, *, tools: Tools) -> Any:
    """It tells the model a tool's result as the user's text."""
    model = smolagents.OpenAIServerModel(MODEL, api_base=f"{url}/v1", api_key=KEY)
    return smolagents.ToolCallingAgent([*map(smolagents.tool, tools)], model, max_steps=8, verbosity_level=0).run("hi")


def dspy_react(url: str, *, tools: Tools) -> Any:
    """It has the model name tools in text, and asks for the answer in the end."""
    lm = dspy.LM(agents.LITELLM, api_base=f"{url}/v1", api_key=KEY, engine="litellm", cache=False, num_retries=0)
    with dspy.context(lm=lm):
        return dspy.ReAct("question -> answer", tools=[*tools])(question="hi").answer


def tenacious_client(url: str, *, tools: Tools) -> Any:
    """Its SDK makes one attempt; what repeats it stands around the SDK."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)

    @tenacity.retry(stop=tenacity.stop_after_attempt(3))
    def ask() -> Any:
        return client.chat.completions.create(model=MODEL, messages=HI)  # type: ignore[arg-type]

    return ask()


def _fields(**values: str) -> str:
    """An answer as DSPy's prompt asks for it."""
    return "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in [*values.items(), ("completed", "")])


REACT: Final = [
    *(
        say(_fields(next_thought="Ask.", next_tool_name="weather", next_tool_args=f'{{"city": "{city}"}}'))
        for city in ("Oslo", "Rome", "Lima")
    ),
    say(_fields(next_thought="Done.", next_tool_name="finish", next_tool_args="{}")),
    say(_fields(reasoning="It rains.", answer="It rains.")),
]

test_agreement = check_of(
    agents.adk_agent, agents.autogen_loop, agents.llama_index_agent, agents.strands_agent,
    spans=[LlamaIndexInstrumentor], unseen=[agents.llama_index_agent],
    unlike={(agents.autogen_loop, "a cut tool call"): "completed"},  # it answers the call with an error
)  # fmt: skip
test_figures = figures_of(
    {
        "AutoGen": (agents.autogen_loop, LOOP),
        "Google ADK": (agents.adk_agent, LOOP),
        "LlamaIndex": (agents.llama_index_agent, LOOP),
        "strands": (agents.strands_agent, LOOP),
        "smolagents": (smolagents_agent, [*STEPS, call("final_answer", {"answer": "It rains."})]),
        "DSPy's ReAct, which asks for the answer once more": (dspy_react, REACT),
        "Instructor, whose first answer is not valid": (
            agents.instructor_model,
            [call("Weather", {"town": "Oslo"}), call("Weather", {"city": "Oslo"})],
        ),
        "`tenacity` around an SDK, whose first attempt fails": (tenacious_client, [fail(500), say("Hello.")]),
    }
)
