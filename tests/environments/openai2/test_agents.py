"""Agents of frameworks that keep openai below 3, each as its documentation begins, which endturn does not know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import aisuite
import autogen_agentchat.agents as autogen
import dspy
import instructor
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

from tests.support.agent_runs import HI, KEY, MODEL, check_of

LITELLM = f"openai/{MODEL}"
Tools = Sequence[Callable[..., Any]]


def smolagents_agent(url: str, *, tools: Tools = ()) -> Any:
    model = smolagents.OpenAIServerModel(MODEL, api_base=f"{url}/v1", api_key=KEY)
    kind: Any = smolagents.ToolCallingAgent if tools else smolagents.CodeAgent
    return kind([*map(smolagents.tool, tools)], model, max_steps=2, verbosity_level=0).run("hi")


def dspy_module(url: str) -> Any:
    # Its own engine sends over bare sockets, which nothing sees.
    lm = dspy.LM(LITELLM, api_base=f"{url}/v1", api_key=KEY, engine="litellm", cache=False, num_retries=0)
    with dspy.context(lm=lm):
        return dspy.Predict("question -> answer")(question="hi").answer


def aisuite_client(url: str) -> Any:
    client = aisuite.Client({"openai": {"base_url": f"{url}/v1", "api_key": KEY}})
    return client.chat.completions.create(f"openai:{MODEL}", HI).choices[0].message.content


async def autogen_agent(url: str, *, stream: bool = False, tools: Tools = ()) -> Any:
    model = OpenAIChatCompletionClient(model=MODEL, base_url=f"{url}/v1", api_key=KEY)
    options: dict[str, Any] = {"tools": [*tools], "reflect_on_tool_use": True} if tools else {}
    agent = autogen.AssistantAgent("helper", model, model_client_stream=stream, **options)
    return (await agent.run(task="hi")).messages[-1].content


async def autogen_loop(url: str, *, tools: Tools) -> Any:
    model = OpenAIChatCompletionClient(model=MODEL, base_url=f"{url}/v1", api_key=KEY)
    agent = autogen.AssistantAgent("helper", model, tools=[*tools], max_tool_iterations=8)
    return (await agent.run(task="hi")).messages[-1].content


def mirascope_model(url: str, *, stream: bool = False) -> Any:
    mirascope.register_provider("openai:completions", scope="openai/", base_url=f"{url}/v1", api_key=KEY)
    model = mirascope.use_model(LITELLM)
    return list(model.stream("hi").text_stream()) if stream else model.call("hi").text()


def strands_agent(url: str, *, tools: Tools = ()) -> Any:
    model = OpenAIModel(client_args={"base_url": f"{url}/v1", "api_key": KEY}, model_id=MODEL)
    return str(strands.Agent(model=model, tools=[*map(strands.tool, tools)], callback_handler=None)("hi"))


class Weather(BaseModel):
    """What is asked of Instructor, which has the model call it as a tool."""

    city: str


def instructor_model(url: str, *, tools: Tools) -> Any:
    client = instructor.from_openai(openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0))
    return client.chat.completions.create(model=MODEL, messages=HI, response_model=Weather, max_retries=2)


def llama_index_model(url: str, *, stream: bool = False) -> Any:
    model = LlamaOpenAI(MODEL, api_base=f"{url}/v1", api_key=KEY, max_retries=0)
    if stream:
        return [piece.delta for piece in model.stream_complete("hi")]
    return model.chat([ChatMessage("hi")]).message.content


async def llama_index_agent(url: str, *, tools: Tools, retries: int = 0) -> Any:
    model = LlamaOpenAI(MODEL, api_base=f"{url}/v1", api_key=KEY, max_retries=retries)
    return str(await FunctionAgent(tools=[*tools], llm=model).run("hi"))


async def adk_agent(url: str, *, stream: bool = False, tools: Tools = ()) -> Any:
    model = LiteLlm(LITELLM, api_base=f"{url}/v1", api_key=KEY)
    runner = InMemoryRunner(AdkAgent(name="helper", model=model, tools=[*tools]), app_name="app")
    config = RunConfig(streaming_mode=StreamingMode.SSE if stream else StreamingMode.NONE)
    session = await runner.session_service.create_session(app_name="app", user_id="user")
    events = runner.run_async(
        user_id="user", session_id=session.id, new_message=types.UserContent("hi"), run_config=config
    )
    return [part.text async for event in events if event.content for part in event.content.parts]


test_each_request_counts_once = check_of(
    adk_agent, aisuite_client, autogen_agent, dspy_module, instructor_model, llama_index_agent, llama_index_model,
    mirascope_model, smolagents_agent, strands_agent,
    in_text=[smolagents_agent],
)  # fmt: skip
