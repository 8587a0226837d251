"""A Pydantic AI agent with a tool.

pip install endturn 'pydantic-ai-slim[openai]'
OPENAI_API_KEY=… python examples/pydantic_ai_agent.py "What is the weather in Oslo?"
"""

import sys

from pydantic_ai import Agent
from telling import tell

import endturn

endturn.instrument()
tell()

agent = Agent("openai-chat:gpt-5-mini")


@agent.tool_plain
def weather(city: str) -> str:
    """The weather in a city."""
    return f"It rains in {city}."


@endturn.observe_turn(agent="pydantic-ai")
def answer(question: str) -> str:
    return agent.run_sync(question).output


if __name__ == "__main__":
    print(answer(" ".join(sys.argv[1:]) or "What is the weather in Oslo?"))
