"""Agents' tool loops as people write them, over the vendors' SDKs.

Each asks a question, runs the tool that the model asks for, and hands the last answer back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

TOOL = "search"
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}}

Agent = Callable[[str, str, bool], None]
"""Answers a question: by the provider's URL, and streamed or not."""

Run = Callable[[Callable[[], Any]], Any]
"""Runs one step of an agent."""


def here(step: Callable[[], Any]) -> Any:
    return step()


def in_a_thread(step: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(step).result()


def openai_chat(url: str, question: str, stream: bool, *, run: Run = here) -> None:
    from openai import OpenAI

    tools: Any = [{"type": "function", "function": {"name": TOOL, "parameters": SCHEMA}}]
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=2) as client:
        while True:
            message = run(partial(_openai_message, client, stream, {"messages": messages, "tools": tools}))
            if not message.tool_calls:
                return
            messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
            messages += [{"role": "tool", "tool_call_id": each.id, "content": "42"} for each in message.tool_calls]


def _openai_message(client: Any, stream: bool, asked: dict[str, Any]) -> Any:
    if not stream:
        return client.chat.completions.create(model="m", **asked).choices[0].message
    with client.chat.completions.stream(model="m", **asked) as events:
        return events.until_done().current_completion_snapshot.choices[0].message


def openai_threads(url: str, question: str, stream: bool) -> None:
    """Every step in a thread of its own."""
    openai_chat(url, question, stream, run=in_a_thread)


def openai_responses(url: str, question: str, stream: bool, *, stateful: bool = False) -> None:
    from openai import OpenAI

    tools: Any = [{"type": "function", "name": TOOL, "parameters": SCHEMA, "strict": False}]
    items: list[Any] = [{"role": "user", "content": question}]
    previous: Any = None
    with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        while True:
            asked: dict[str, Any] = {"model": "m", "input": items, "tools": tools}
            if previous is not None:
                asked["previous_response_id"] = previous
            if stream:
                *_, last = client.responses.create(**asked, stream=True)
                response: Any = last.response
            else:
                response = client.responses.create(**asked)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return
            results = [{"type": "function_call_output", "call_id": each.call_id, "output": "42"} for each in calls]
            if stateful:
                items, previous = results, response.id
            else:
                items = [*items, *(item.model_dump(exclude_none=True) for item in response.output), *results]


def openai_responses_stateful(url: str, question: str, stream: bool) -> None:
    openai_responses(url, question, stream, stateful=True)


def openai_responses_background(url: str, question: str, stream: bool) -> None:
    """Each response is a job of the server's, which is fetched until it is over."""
    from openai import OpenAI

    tools: Any = [{"type": "function", "name": TOOL, "parameters": SCHEMA, "strict": False}]
    asked: dict[str, Any] = {"input": question}
    with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        while True:
            response: Any = client.responses.create(model="m", tools=tools, background=True, **asked)
            job = response.id
            while response.status in ("queued", "in_progress"):
                response = client.responses.retrieve(job)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return
            results = [{"type": "function_call_output", "call_id": each.call_id, "output": "42"} for each in calls]
            asked = {"input": results, "previous_response_id": response.id}


def anthropic(url: str, question: str, stream: bool, *, run: Run = here) -> None:
    from anthropic import Anthropic

    tools: Any = [{"name": TOOL, "input_schema": SCHEMA}]
    messages: list[Any] = [{"role": "user", "content": question}]
    with Anthropic(base_url=url, api_key="none") as client:
        while True:
            asked: dict[str, Any] = {"model": "m", "max_tokens": 99, "messages": messages, "tools": tools}
            message = run(partial(_anthropic_message, client, stream, asked))
            uses = [block for block in message.content if block.type == "tool_use"]
            if not uses:
                return
            # A cache mark moves from message to message.
            results: list[Any] = [{"type": "tool_result", "tool_use_id": use.id, "content": "42"} for use in uses]
            results[-1]["cache_control"] = {"type": "ephemeral"}
            messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]


def _anthropic_message(client: Any, stream: bool, asked: dict[str, Any]) -> Any:
    if not stream:
        return client.messages.create(**asked)
    with client.messages.stream(**asked) as events:
        return events.get_final_message()


def anthropic_threads(url: str, question: str, stream: bool) -> None:
    """Every step in a thread of its own."""
    anthropic(url, question, stream, run=in_a_thread)


def anthropic_async(url: str, question: str, stream: bool) -> None:
    """Every step in a task of its own."""
    from anthropic import AsyncAnthropic

    async def ask(client: AsyncAnthropic, messages: list[Any]) -> Any:
        asked: dict[str, Any] = {"model": "m", "max_tokens": 99, "messages": messages}
        if not stream:
            return await client.messages.create(**asked)
        async with client.messages.stream(**asked) as events:
            return await events.get_final_message()

    async def run() -> None:
        messages: list[Any] = [{"role": "user", "content": question}]
        async with AsyncAnthropic(base_url=url, api_key="none") as client:
            while True:
                message = await asyncio.create_task(ask(client, messages))
                uses = [block for block in message.content if block.type == "tool_use"]
                if not uses:
                    return
                results = [{"type": "tool_result", "tool_use_id": use.id, "content": "42"} for use in uses]
                messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]

    asyncio.run(run())


def gemini(url: str, question: str, stream: bool) -> None:
    from google import genai
    from google.genai import types

    declared = types.FunctionDeclaration(name=TOOL, parameters_json_schema=SCHEMA)
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[declared])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    contents: list[Any] = [types.Content(role="user", parts=[types.Part(text=question)])]
    with genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url)) as client:
        while True:
            asked: dict[str, Any] = {"model": "m", "contents": contents, "config": config}
            if stream:
                chunks = list(client.models.generate_content_stream(**asked))
            else:
                chunks = [client.models.generate_content(**asked)]
            parts = [part for chunk in chunks for part in chunk.parts or ()]
            calls: list[Any] = [part.function_call for part in parts if part.function_call]
            if not calls:
                return
            contents.append(types.Content(role="model", parts=parts))
            results = [types.Part.from_function_response(name=each.name, response={"result": "42"}) for each in calls]
            contents.append(types.Content(role="user", parts=results))


def interactions(url: str, question: str, stream: bool, *, stored: bool = True) -> None:
    """Gemini's Interactions."""
    from google import genai
    from google.genai import types

    tools: Any = [{"type": "function", "name": TOOL, "parameters": SCHEMA}]
    history: list[Any] = [{"type": "user_input", "content": [{"type": "text", "text": question}]}]
    with genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url)) as client:
        asked: dict[str, Any] = {"input": question} if stored else {"input": history, "store": False}
        while True:
            if stream:
                steps, found = _interaction_steps(
                    client.interactions.create(model="m", tools=tools, **asked, stream=True)
                )
            else:
                made: Any = client.interactions.create(model="m", tools=tools, **asked)
                steps, found = [step.model_dump(exclude_none=True) for step in made.steps], made.id
            calls = [step for step in steps if step["type"] == "function_call"]
            if not calls:
                return
            results = [
                {"type": "function_result", "name": TOOL, "call_id": each["id"], "result": "42"} for each in calls
            ]
            if stored:
                asked = {"input": results, "previous_interaction_id": found}
            else:
                history = [*history, *steps, *results]
                asked = {"input": history, "store": False}


def _interaction_steps(events: Any) -> tuple[list[dict[str, Any]], str]:
    steps: dict[int, dict[str, Any]] = {}
    found = ""
    for event in events:
        if event.event_type == "interaction.created":
            found = event.interaction.id
        if event.event_type == "step.start":
            steps[event.index] = event.step.model_dump(exclude_none=True)
    for step in steps.values():
        if step["type"] == "function_call":
            step["arguments"] = {}
    return list(steps.values()), found


def interactions_stateless(url: str, question: str, stream: bool) -> None:
    interactions(url, question, stream, stored=False)


def converse(url: str, question: str, stream: bool) -> None:
    import boto3

    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}
    client = boto3.client("bedrock-runtime", endpoint_url=url, **keys)
    tools = {"tools": [{"toolSpec": {"name": TOOL, "inputSchema": {"json": SCHEMA}}}]}
    messages: list[Any] = [{"role": "user", "content": [{"text": question}]}]
    while True:
        asked: dict[str, Any] = {"modelId": "m:0", "messages": messages, "toolConfig": tools}
        if stream:
            content = _converse_content(client.converse_stream(**asked)["stream"])
        else:
            content = client.converse(**asked)["output"]["message"]["content"]
        uses = [block["toolUse"] for block in content if "toolUse" in block]
        if not uses:
            client.close()
            return
        results = [{"toolResult": {"toolUseId": use["toolUseId"], "content": [{"text": "42"}]}} for use in uses]
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]


def _converse_content(stream: Any) -> list[Any]:
    blocks: dict[int, Any] = {}
    for event in stream:
        if "contentBlockStart" in event and "toolUse" in (start := event["contentBlockStart"]["start"]):
            blocks[event["contentBlockStart"]["contentBlockIndex"]] = {"toolUse": {**start["toolUse"], "input": ""}}
        if "contentBlockDelta" in event and "toolUse" in (delta := event["contentBlockDelta"]["delta"]):
            blocks[event["contentBlockDelta"]["contentBlockIndex"]]["toolUse"]["input"] += delta["toolUse"]["input"]
    for block in blocks.values():
        block["toolUse"]["input"] = json.loads(block["toolUse"]["input"])
    return list(blocks.values())


def cohere(url: str, question: str, stream: bool) -> None:
    import cohere as sdk

    client = sdk.ClientV2(api_key="none", base_url=url)
    tools: Any = [{"type": "function", "function": {"name": TOOL, "parameters": SCHEMA}}]
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        asked: dict[str, Any] = {"model": "m", "messages": messages, "tools": tools}
        if stream:
            events: Any = list(client.chat_stream(**asked))
            calls = [event.delta.message.tool_calls for event in events if event.type == "tool-call-start"]
        else:
            calls = client.chat(**asked).message.tool_calls or []
        if not calls:
            return
        called = [{"id": each.id, "type": "function", "function": {"name": TOOL, "arguments": "{}"}} for each in calls]
        messages.append({"role": "assistant", "tool_calls": called})
        messages += [{"role": "tool", "tool_call_id": each.id, "content": "42"} for each in calls]


def ollama(url: str, question: str, stream: bool) -> None:
    import ollama as sdk

    client = sdk.Client(host=url)
    tools: Any = [{"type": "function", "function": {"name": TOOL, "parameters": SCHEMA}}]
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        asked: dict[str, Any] = {"model": "m", "messages": messages, "tools": tools}
        replies = list(client.chat(**asked, stream=True)) if stream else [client.chat(**asked)]
        calls = [each for reply in replies for each in reply.message.tool_calls or ()]
        if not calls:
            return
        messages.append(sdk.Message(role="assistant", tool_calls=calls))
        messages += [{"role": "tool", "tool_name": each.function.name, "content": "42"} for each in calls]


def invoke(url: str, question: str, stream: bool) -> None:
    """Claude by Bedrock's InvokeModel."""
    import boto3

    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}
    client = boto3.client("bedrock-runtime", endpoint_url=url, **keys)
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        body = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 99, "messages": messages}
        reply = client.invoke_model(modelId="anthropic.claude-sonnet-4-5-v1:0", body=json.dumps(body))
        content = json.loads(reply["body"].read())["content"]
        uses = [block for block in content if block["type"] == "tool_use"]
        if not uses:
            client.close()
            return
        results = [{"type": "tool_result", "tool_use_id": use["id"], "content": "42"} for use in uses]
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]


def mistral(url: str, question: str, stream: bool) -> None:
    from mistralai.client import Mistral

    tools: Any = [{"type": "function", "function": {"name": TOOL, "parameters": SCHEMA}}]
    messages: list[Any] = [{"role": "user", "content": question}]
    client = Mistral(api_key="none", server_url=url)
    while True:
        choices: Any = client.chat.complete(model="m", messages=messages, tools=tools).choices
        message = choices[0].message
        if not message.tool_calls:
            return
        messages.append(message)
        messages += [
            {"role": "tool", "name": TOOL, "tool_call_id": each.id, "content": "42"} for each in message.tool_calls
        ]


def openai_async(url: str, question: str, stream: bool) -> None:
    """Every step in a task of its own."""
    from openai import AsyncOpenAI

    async def ask(client: AsyncOpenAI, messages: list[Any]) -> Any:
        if not stream:
            return (await client.chat.completions.create(model="m", messages=messages)).choices[0].message
        async with client.chat.completions.stream(model="m", messages=messages) as events:
            await events.until_done()
            return events.current_completion_snapshot.choices[0].message

    async def run() -> None:
        messages: list[Any] = [{"role": "user", "content": question}]
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
            while True:
                message = await asyncio.create_task(ask(client, messages))
                if not message.tool_calls:
                    return
                messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
                messages += [{"role": "tool", "tool_call_id": each.id, "content": "42"} for each in message.tool_calls]

    asyncio.run(run())


AGENTS: dict[str, Agent] = {
    agent.__name__: agent
    for agent in (
        *(openai_chat, openai_threads, openai_async),
        *(openai_responses, openai_responses_stateful),
        *(anthropic, anthropic_threads, anthropic_async),
        *(gemini, interactions, interactions_stateless),
        *(converse, cohere, ollama, invoke, mistral),
    )
}
STREAMING = [name for name in AGENTS if name not in ("invoke", "mistral")]
