"""Agents of frameworks that keep openai below 3, each as its documentation begins."""

from __future__ import annotations

import asyncio
from typing import Any

import aisuite
import autogen_agentchat.agents as autogen
import dspy
import instructor
import litellm
import openai
import smolagents
import strands
from autogen_ext.models.openai import OpenAIChatCompletionClient
from google.adk.agents import Agent as AdkAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai import OpenAI as LlamaOpenAI
from mirascope import llm as mirascope
from pydantic import BaseModel
from strands.models.openai import OpenAIModel

from tests.support.agent_runs import HI, KEY, MODEL, Agent, weather

LITELLM = f"openai/{MODEL}"


def litellm_router(url: str) -> Any:
    deployment = {"model": LITELLM, "api_base": f"{url}/v1", "api_key": KEY}
    router = litellm.Router([{"model_name": "m", "litellm_params": deployment}], num_retries=0)
    return router.completion("m", HI).choices[0].message.content


def litellm_router_of_claude(url: str) -> Any:
    deployment = {"model": "anthropic/claude-sonnet-4-5", "api_base": url, "api_key": KEY}
    router = litellm.Router([{"model_name": "m", "litellm_params": deployment}], num_retries=0)

    async def ask() -> Any:
        return [chunk.choices[0].delta.content async for chunk in await router.acompletion("m", HI, stream=True)]

    return asyncio.run(ask())


def smolagents_model(url: str) -> Any:
    model = smolagents.LiteLLMModel(LITELLM, api_base=f"{url}/v1", api_key=KEY)
    return [piece.content for piece in model.generate_stream([smolagents.ChatMessage(role="user", content="hi")])]


def smolagents_code(url: str) -> Any:
    model = smolagents.OpenAIServerModel(MODEL, api_base=f"{url}/v1", api_key=KEY)
    return smolagents.CodeAgent([], model, max_steps=2, verbosity_level=0).run("hi")


def smolagents_tools(url: str) -> Any:
    model = smolagents.OpenAIServerModel(MODEL, api_base=f"{url}/v1", api_key=KEY)
    agent = smolagents.ToolCallingAgent([smolagents.tool(weather)], model, max_steps=2, verbosity_level=0)
    return agent.run("hi")


def dspy_module(url: str) -> Any:
    # Its own engine sends over bare sockets, which nothing sees.
    lm = dspy.LM(LITELLM, api_base=f"{url}/v1", api_key=KEY, engine="litellm", cache=False, num_retries=0)
    with dspy.context(lm=lm):
        return dspy.Predict("question -> answer")(question="hi").answer


def dspy_model(url: str) -> Any:
    return dspy.LM(LITELLM, api_base=f"{url}/v1", api_key=KEY, engine="litellm", cache=False, num_retries=0)("hi")


def aisuite_client(url: str) -> Any:
    client = aisuite.Client({"openai": {"base_url": f"{url}/v1", "api_key": KEY}})
    return client.chat.completions.create(f"openai:{MODEL}", HI).choices[0].message.content


def autogen_agent(url: str, **options: Any) -> Any:
    model = OpenAIChatCompletionClient(model=MODEL, base_url=f"{url}/v1", api_key=KEY)

    async def run() -> Any:
        return (await autogen.AssistantAgent("helper", model, **options).run(task="hi")).messages[-1].content

    return asyncio.run(run())


def autogen_stream(url: str) -> Any:
    return autogen_agent(url, model_client_stream=True)


def autogen_tools(url: str) -> Any:
    return autogen_agent(url, tools=[weather], reflect_on_tool_use=True)


def mirascope_call(url: str) -> Any:
    mirascope.register_provider("openai:completions", scope="openai/", base_url=f"{url}/v1", api_key=KEY)
    return mirascope.use_model(LITELLM).call("hi").text()


def mirascope_stream(url: str) -> Any:
    mirascope.register_provider("openai:completions", scope="openai/", base_url=f"{url}/v1", api_key=KEY)
    return list(mirascope.use_model(LITELLM).stream("hi").text_stream())


def strands_agent(url: str, *tools: Any) -> Any:
    model = OpenAIModel(client_args={"base_url": f"{url}/v1", "api_key": KEY}, model_id=MODEL)
    return str(strands.Agent(model=model, tools=list(tools), callback_handler=None)("hi"))


def strands_tools(url: str) -> Any:
    return strands_agent(url, strands.tool(weather))


class Weather(BaseModel):
    """What is asked of Instructor."""

    city: str


def instructor_model(url: str) -> Any:
    client = instructor.from_openai(openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0))
    return client.chat.completions.create(model=MODEL, messages=HI, response_model=Weather, max_retries=2)


def llama_index_chat(url: str) -> Any:
    return (
        LlamaOpenAI(MODEL, api_base=f"{url}/v1", api_key=KEY, max_retries=0).chat([ChatMessage("hi")]).message.content
    )


def llama_index_stream(url: str) -> Any:
    model = LlamaOpenAI(MODEL, api_base=f"{url}/v1", api_key=KEY, max_retries=0)
    return [piece.delta for piece in model.stream_complete("hi")]


def llama_index_tools(url: str) -> Any:
    model = LlamaOpenAI(MODEL, api_base=f"{url}/v1", api_key=KEY, max_retries=0)

    async def run() -> Any:
        return str(await FunctionAgent(tools=[weather], llm=model).run("hi"))

    return asyncio.run(run())


def adk_agent(url: str, *tools: Any, stream: bool = False) -> Any:
    model = LiteLlm(LITELLM, api_base=f"{url}/v1", api_key=KEY)
    runner = InMemoryRunner(AdkAgent(name="helper", model=model, tools=list(tools)), app_name="app")
    config = RunConfig(streaming_mode=StreamingMode.SSE if stream else StreamingMode.NONE)

    async def run() -> Any:
        session = await runner.session_service.create_session(app_name="app", user_id="user")
        events = runner.run_async(
            user_id="user", session_id=session.id, new_message=types.UserContent("hi"), run_config=config
        )
        return [part.text async for event in events if event.content for part in event.content.parts]

    return asyncio.run(run())


def adk_stream(url: str) -> Any:
    return adk_agent(url, stream=True)


def adk_tools(url: str) -> Any:
    return adk_agent(url, weather)


ANSWERING: list[Agent] = [
    adk_agent,
    adk_stream,
    aisuite_client,
    autogen_agent,
    autogen_stream,
    dspy_model,
    dspy_module,
    litellm_router,
    litellm_router_of_claude,
    llama_index_chat,
    llama_index_stream,
    mirascope_call,
    mirascope_stream,
    smolagents_code,
    smolagents_model,
    strands_agent,
]
WITH_TOOLS: list[Agent] = [
    adk_tools,
    autogen_tools,
    instructor_model,
    llama_index_tools,
    smolagents_tools,
    strands_tools,
]
