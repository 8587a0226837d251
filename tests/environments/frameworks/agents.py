"""Agents of frameworks that take openai 3, each as its documentation begins."""

from __future__ import annotations

import asyncio
from typing import Any

import ag2
import agent_framework
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

from tests.support.agent_runs import HI, KEY, MODEL, Agent, weather


def ag2_agent(url: str, *tools: Any) -> Any:
    config = OpenAIConfig(MODEL, base_url=f"{url}/v1", api_key=KEY, max_retries=0)
    return asyncio.run(ag2.Agent("helper", config=config, tools=tools).ask("hi")).body


def ag2_tools(url: str) -> Any:
    return ag2_agent(url, weather)


def agent_framework_responses(url: str) -> Any:
    async def run() -> Any:
        client = OpenAIChatClient(model=MODEL, base_url=f"{url}/v1", api_key=KEY)
        return str(await agent_framework.Agent(client).run("hi"))

    return asyncio.run(run())


def agent_framework_stream(url: str) -> Any:
    async def run() -> Any:
        client = OpenAIChatCompletionClient(model=MODEL, base_url=f"{url}/v1", api_key=KEY)
        return [str(update) async for update in agent_framework.Agent(client).run("hi", stream=True)]

    return asyncio.run(run())


def agent_framework_tools(url: str) -> Any:
    async def run() -> Any:
        client = OpenAIChatCompletionClient(model=MODEL, base_url=f"{url}/v1", api_key=KEY)
        return str(await agent_framework.Agent(client, tools=[weather]).run("hi"))

    return asyncio.run(run())


def agno_agent(url: str, *tools: Any) -> Any:
    model = OpenAILike(MODEL, base_url=f"{url}/v1", api_key=KEY)
    return AgnoAgent(model=model, tools=list(tools), telemetry=False).run("hi").content


def agno_stream(url: str) -> Any:
    model = OpenAILike(MODEL, base_url=f"{url}/v1", api_key=KEY)
    return [event.content for event in AgnoAgent(model=model, telemetry=False).run("hi", stream=True)]


def agno_tools(url: str) -> Any:
    return agno_agent(url, weather)


def haystack_generator(url: str, **options: Any) -> OpenAIChatGenerator:
    return OpenAIChatGenerator(Secret.from_token(KEY), model=MODEL, api_base_url=f"{url}/v1", max_retries=0, **options)


def haystack_chat(url: str) -> Any:
    return haystack_generator(url).run([ChatMessage.from_user("hi")])["replies"][0].text


def haystack_stream(url: str) -> Any:
    pieces: list[str] = []
    generator = haystack_generator(url, streaming_callback=lambda chunk: pieces.append(chunk.content))
    generator.run([ChatMessage.from_user("hi")])
    return pieces


def haystack_tools(url: str) -> Any:
    agent = HaystackAgent(chat_generator=haystack_generator(url), tools=[create_tool_from_function(weather)])
    return agent.run([ChatMessage.from_user("hi")])["messages"][-1].text


def hugging_face_chat(url: str) -> Any:
    client = huggingface_hub.InferenceClient(base_url=f"{url}/v1", api_key=KEY)
    return client.chat_completion(HI, model=MODEL).choices[0].message.content


def hugging_face_stream(url: str) -> Any:
    client = huggingface_hub.InferenceClient(base_url=f"{url}/v1", api_key=KEY)
    return [chunk.choices[0].delta.content for chunk in client.chat_completion(HI, model=MODEL, stream=True)]


def langchain_model(url: str) -> ChatOpenAI:
    return ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key=KEY, max_retries=0)


def langchain_chat(url: str) -> Any:
    return langchain_model(url).invoke("hi").content


def langchain_stream(url: str) -> Any:
    return [chunk.content for chunk in langchain_model(url).stream("hi")]


def langchain_tools(url: str) -> Any:
    return create_agent(langchain_model(url), tools=[weather]).invoke({"messages": HI})["messages"][-1].content


def llm_prompt(url: str, *, stream: bool = False) -> Any:
    return list(Chat("m", model_name=MODEL, api_base=f"{url}/v1", key=KEY).prompt("hi", stream=stream))


def llm_stream(url: str) -> Any:
    return llm_prompt(url, stream=True)


class Plugin:
    """The tool as Semantic Kernel wants it."""

    @kernel_function
    def weather(self, city: str) -> str:
        """Say what the weather is."""
        return weather(city)


def semantic_kernel_agent(url: str, *plugins: Any) -> Any:
    async def run() -> Any:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            service = OpenAIChatCompletion(MODEL, async_client=client)
            return str(await ChatCompletionAgent(service=service, plugins=list(plugins)).get_response("hi"))

    return asyncio.run(run())


def semantic_kernel_stream(url: str) -> Any:
    async def run() -> Any:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            agent = ChatCompletionAgent(service=OpenAIChatCompletion(MODEL, async_client=client))
            return [str(message) async for message in agent.invoke_stream("hi")]

    return asyncio.run(run())


def semantic_kernel_tools(url: str) -> Any:
    return semantic_kernel_agent(url, Plugin())


ANSWERING: list[Agent] = [
    ag2_agent,
    agent_framework_responses,
    agent_framework_stream,
    agno_agent,
    agno_stream,
    haystack_chat,
    haystack_stream,
    hugging_face_chat,
    hugging_face_stream,
    langchain_chat,
    langchain_stream,
    llm_prompt,
    llm_stream,
    semantic_kernel_agent,
    semantic_kernel_stream,
]
WITH_TOOLS: list[Agent] = [
    ag2_tools,
    agent_framework_tools,
    agno_tools,
    haystack_tools,
    langchain_tools,
    semantic_kernel_tools,
]
