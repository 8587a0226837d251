"""Loops written by hand, and Pydantic AI's agents: their turns are the same, however they are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import anthropic
import openai
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from endturn.testing.scripted import call
from tests.support.agent_runs import HI, KEY, MODEL
from tests.support.agreement import LOOP, STEPS, check_of, figures_of

Tools = Sequence[Callable[..., Any]]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def arguments_of(text: str) -> Any:
    """As a host reads them that takes no notice of a cut."""
    try:
        return json.loads(text)
    except ValueError:
        return {"city": "nowhere"}


def chat_loop(url: str, *, tools: Tools) -> Any:
    """OpenAI's chat completions: whatever calls there are, they are run."""
    functions: Any = [{"type": "function", "function": {"name": tools[0].__name__, "parameters": PARAMETERS}}]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY)
    messages: list[Any] = [*HI]
    while True:
        said = client.chat.completions.create(model=MODEL, messages=messages, tools=functions).choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            return said.content
        for asked in said.tool_calls:
            given = arguments_of(asked.function.arguments)  # type: ignore[union-attr]
            messages.append({"role": "tool", "tool_call_id": asked.id, "content": tools[0](**given)})


def streamed_chat_loop(url: str, *, tools: Tools) -> Any:
    """The same, streamed, by an SDK that adds the chunks up."""
    functions: Any = [{"type": "function", "function": {"name": tools[0].__name__, "parameters": PARAMETERS}}]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY)
    messages: list[Any] = [*HI]
    while True:
        text, calls = "", {}
        for chunk in client.chat.completions.create(model=MODEL, messages=messages, tools=functions, stream=True):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for part in choice.delta.tool_calls or ():
                    known = calls.setdefault(
                        part.index, {"id": part.id, "type": "function", "function": {"name": "", "arguments": ""}}
                    )
                    if part.function is not None:
                        known["function"]["name"] += part.function.name or ""
                        known["function"]["arguments"] += part.function.arguments or ""
        if not calls:
            return text
        messages.append({"role": "assistant", "content": text or None, "tool_calls": [*calls.values()]})
        for asked in calls.values():
            given = arguments_of(asked["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": asked["id"], "content": tools[0](**given)})


def responses_loop(url: str, *, tools: Tools) -> Any:
    """OpenAI's Responses, whose server keeps the conversation."""
    functions: Any = [{"type": "function", "name": tools[0].__name__, "parameters": PARAMETERS, "strict": False}]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY)
    items: Any = HI
    previous: Any = openai.omit
    while True:
        said = client.responses.create(model=MODEL, input=items, tools=functions, previous_response_id=previous)
        previous = said.id
        items = [
            {
                "type": "function_call_output",
                "call_id": item.call_id,
                "output": tools[0](**arguments_of(item.arguments)),
            }
            for item in said.output
            if item.type == "function_call"
        ]
        if not items:
            return said.output_text


def messages_loop(url: str, *, tools: Tools) -> Any:
    """Anthropic's messages."""
    offered: Any = [{"name": tools[0].__name__, "input_schema": PARAMETERS}]
    client = anthropic.Anthropic(base_url=url, api_key=KEY)
    messages: list[Any] = [*HI]
    while True:
        said = client.messages.create(model="claude-x", messages=messages, tools=offered, max_tokens=50)
        messages.append(
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in said.content]}
        )
        results = [
            {
                "type": "tool_result",
                "tool_use_id": block.id,
                "content": tools[0](**(block.input or {"city": "nowhere"})),
            }
            for block in said.content
            if block.type == "tool_use"
        ]
        if not results:
            return said.content
        messages.append({"role": "user", "content": results})


async def pydantic_ai_agent(url: str, *, tools: Tools) -> Any:
    """It makes spans of its agents where it is asked to."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))
        agent: Agent[None, str] = Agent(model, name="helper", tools=[*tools], capabilities=[Instrumentation()])
        return (await agent.run("hi")).output


async def structured_agent(url: str, *, tools: Tools) -> Any:
    """Each of its requests forces a tool call, as its answer is one too."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))
        agent: Agent[None, Forecast] = Agent(model, tools=[*tools], output_type=Forecast)
        return (await agent.run("hi")).output


class Forecast(BaseModel):
    """What the agent answers."""

    text: str


test_agreement = check_of(
    chat_loop, streamed_chat_loop, responses_loop, messages_loop, pydantic_ai_agent,
    spanless=[chat_loop, streamed_chat_loop, responses_loop, messages_loop],
    unlike={(pydantic_ai_agent, "a cut tool call"): "completed"},  # it has the call made again
)  # fmt: skip
test_figures = figures_of(
    {
        "a loop by hand, OpenAI's chat completions": (chat_loop, LOOP),
        "the same, streamed": (streamed_chat_loop, LOOP),
        "a loop by hand, OpenAI's Responses": (responses_loop, LOOP),
        "a loop by hand, Anthropic's messages": (messages_loop, LOOP),
        "Pydantic AI": (pydantic_ai_agent, LOOP),
        "Pydantic AI, with structured output": (
            structured_agent,
            [*STEPS, call("final_result", {"text": "It rains."})],
        ),
    }
)
