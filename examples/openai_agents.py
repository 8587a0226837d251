"""An agent of the OpenAI Agents SDK, which uses the Responses API.

pip install endturn openai-agents
OPENAI_API_KEY=… python examples/openai_agents.py "What is the weather in Oslo?"
"""

import sys

from agents import Agent, Runner, function_tool
from telling import tell

import endturn

endturn.instrument()
tell()


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"It rains in {city}."


agent = Agent(name="weather", model="gpt-5-mini", tools=[weather])


@endturn.observe_turn(agent="openai-agents")
def answer(question: str) -> str:
    return Runner.run_sync(agent, question).final_output


if __name__ == "__main__":
    print(answer(" ".join(sys.argv[1:]) or "What is the weather in Oslo?"))
