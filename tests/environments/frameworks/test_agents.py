"""Agents of frameworks that take openai 3, each as its documentation begins, which endturn does not know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ag2
import agent_framework
import agents
import huggingface_hub
import openai
from ag2.config import OpenAIConfig
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from agno.agent import Agent as AgnoAgent
from agno.models.openai.like import OpenAILike
from haystack.components.agents import Agent as HaystackAgent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from llm.default_plugins.openai_models import Chat
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function

from tests.support.agent_runs import HI, KEY, MODEL, check_of, weather

Tools = Sequence[Callable[..., Any]]


async def ag2_agent(url: str, *, tools: Tools = (), retries: int = 0) -> Any:
    config = OpenAIConfig(MODEL, base_url=f"{url}/v1", api_key=KEY, max_retries=retries)
    return (await ag2.Agent("helper", config=config, tools=tools).ask("hi")).body


async def agent_framework_responses(url: str) -> Any:
    client = OpenAIChatClient(model=MODEL, base_url=f"{url}/v1", api_key=KEY)
    return str(await agent_framework.Agent(client).run("hi"))


async def agent_framework_chat(url: str, *, stream: bool = False, tools: Tools = ()) -> Any:
    client = OpenAIChatCompletionClient(model=MODEL, base_url=f"{url}/v1", api_key=KEY)
    agent = agent_framework.Agent(client, tools=[*tools])
    return [str(update) async for update in agent.run("hi", stream=True)] if stream else str(await agent.run("hi"))


def agno_agent(url: str, *, stream: bool = False, tools: Tools = ()) -> Any:
    model = OpenAILike(MODEL, base_url=f"{url}/v1", api_key=KEY)
    ran = AgnoAgent(model=model, tools=[*tools], telemetry=False).run("hi", stream=stream)
    return [event.content for event in ran] if stream else ran.content


def haystack(url: str, *, stream: bool = False, tools: Tools = (), retries: int = 0) -> Any:
    pieces: list[str] = []
    options: dict[str, Any] = {"streaming_callback": lambda chunk: pieces.append(chunk.content)} if stream else {}
    generator = OpenAIChatGenerator(
        Secret.from_token(KEY), model=MODEL, api_base_url=f"{url}/v1", max_retries=retries, **options
    )
    hi = [ChatMessage.from_user("hi")]
    if tools:
        agent = HaystackAgent(chat_generator=generator, tools=[*map(create_tool_from_function, tools)])
        return agent.run(hi)["messages"][-1].text
    return [generator.run(hi)["replies"][0].text, pieces]


def hugging_face(url: str, *, stream: bool = False) -> Any:
    client = huggingface_hub.InferenceClient(base_url=f"{url}/v1", api_key=KEY)
    answer = client.chat_completion(HI, model=MODEL, stream=stream)
    return [chunk.choices[0].delta.content for chunk in answer] if stream else answer.choices[0].message.content


def langchain(url: str, *, stream: bool = False, tools: Tools = (), retries: int = 0) -> Any:
    model = ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key=KEY, max_retries=retries)
    if tools:
        return create_agent(model, tools=[*tools]).invoke({"messages": HI})["messages"][-1].content
    return [chunk.content for chunk in model.stream("hi")] if stream else model.invoke("hi").content


def llm_prompt(url: str, *, stream: bool = False) -> Any:
    return list(Chat("m", model_name=MODEL, api_base=f"{url}/v1", key=KEY).prompt("hi", stream=stream))


class Plugin:
    """The tool as Semantic Kernel wants it."""

    @kernel_function
    def weather(self, city: str) -> str:
        """Say what the weather is."""
        return weather(city)


async def openai_agents(url: str, *, tools: Tools = ()) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        model = agents.OpenAIResponsesModel(MODEL, client)
        agent = agents.Agent("helper", model=model, tools=[*map(agents.function_tool, tools)])
        return (await agents.Runner.run(agent, "hi")).final_output


async def openai_agents_chat(url: str, *, tools: Tools = ()) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        model = agents.OpenAIChatCompletionsModel(MODEL, client)
        agent = agents.Agent("helper", model=model, tools=[*map(agents.function_tool, tools)])
        return (await agents.Runner.run(agent, "hi")).final_output


async def semantic_kernel(url: str, *, stream: bool = False, tools: Tools = (), retries: int = 0) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=retries) as client:
        service = OpenAIChatCompletion(MODEL, async_client=client)
        agent = ChatCompletionAgent(service=service, plugins=[Plugin()] if tools else [])
        if stream:
            return [str(message) async for message in agent.invoke_stream("hi")]
        return str(await agent.get_response("hi"))


test_each_request_counts_once = check_of(
    ag2_agent, agent_framework_chat, agent_framework_responses, agno_agent, haystack, hugging_face, langchain,
    llm_prompt, semantic_kernel,
)  # fmt: skip
