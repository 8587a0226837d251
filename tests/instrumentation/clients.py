"""The clients of the matrix: what asks a model over HTTP, each with the two ways it has of asking.

A client is made for a server's URL. `ask` asks and reads the whole answer; `stream` gives a stream of pieces, which its
`close` leaves. Those that are asynchronous run in a loop of their own, so that every situation is written once.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from importlib import import_module
from operator import attrgetter
from typing import Any, ClassVar

import aiohttp
import anthropic
import cohere
import httpx
import httpx2
import mistralai.client
import ollama
import openai
import requests
import urllib3
from google import genai
from mistralai.client.utils import BackoffStrategy, RetryConfig

boto3: Any = import_module("boto3").Session()  # Neither typed nor with stubs.
botocore_config: Any = import_module("botocore.config")

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CLAUDE: dict[str, Any] = {**ASK, "max_tokens": 99}


class Stream:
    """Pieces as they arrive, and what leaves them."""

    def __init__(self, pieces: Iterator[Any], close: Callable[[], object]) -> None:
        self.pieces = iter(pieces)
        self.close = close

    def __iter__(self) -> Iterator[Any]:
        return self.pieces

    def __next__(self) -> Any:
        return next(self.pieces)


class Client:
    """What a client has.

    Attributes:
        provider, format: who answers by the path alone, and in which format.
        retries: it can be told to try again.
        whole: it can ask for a whole answer; streams: it can stream.
    """

    provider = "openai"
    format = "openai_chat"
    retries = False
    made: Any

    def __init__(self, url: str, timeout_s: float = 10.0, tries: int = 1) -> None:
        self.url, self.timeout_s, self.tries = url, timeout_s, tries
        self.open()

    def open(self) -> None: ...

    def ask(self) -> None:
        raise NotImplementedError

    def stream(self) -> Stream:
        raise NotImplementedError

    def close(self) -> None:
        close = getattr(getattr(self, "made", None), "close", None)
        if close is not None:
            close()


class AsyncClient(Client):
    """A client whose ways are coroutines."""

    is_async: ClassVar = True

    def __init__(self, url: str, timeout_s: float = 10.0, tries: int = 1) -> None:
        self.loop = asyncio.new_event_loop()
        self.url, self.timeout_s, self.tries = url, timeout_s, tries
        self.run(self.aopen())

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def aopen(self) -> None:
        self.open()

    async def aask(self) -> None:
        raise NotImplementedError

    async def astream(self) -> tuple[AsyncIterator[Any], Callable[[], Awaitable[object]]]:
        raise NotImplementedError

    def ask(self) -> None:
        self.run(self.aask())

    def stream(self) -> Stream:
        pieces, close = self.run(self.astream())

        def each() -> Iterator[Any]:
            with suppress(StopAsyncIteration):
                while True:
                    yield self.run(anext(pieces))

        return Stream(each(), lambda: self.run(close()))

    async def aclose(self) -> None:
        await self.made.close()

    def close(self) -> None:
        self.run(self.aclose())
        self.run(asyncio.sleep(0))
        self.run(self.loop.shutdown_asyncgens())
        self.loop.close()


class SDK(Client):
    """A client that asks either way by one method.

    Attributes:
        kind: the SDK's class; path: of its base URL; method: what asks; asked: with what.
    """

    retries = True
    kind: Any
    path = ""
    method: str
    asked: dict[str, Any]

    def open(self) -> None:
        options: dict[str, Any] = {"timeout": self.timeout_s, "max_retries": self.tries - 1}
        self.made = self.kind(base_url=f"{self.url}{self.path}", api_key="none", **options)

    def create(self, **more: Any) -> Any:
        return attrgetter(self.method)(self.made)(**self.asked, **more)

    def ask(self) -> None:
        self.create()

    def stream(self) -> Stream:
        made = self.create(stream=True)
        return Stream(made, made.close)


class AsyncSDK(AsyncClient):
    """The same, where that is a coroutine."""

    create: Callable[..., Any]

    async def aask(self) -> None:
        await self.create()

    async def astream(self) -> Any:
        made = await self.create(stream=True)
        return aiter(made), made.close


class OpenAI(SDK):
    kind: Any = openai.OpenAI
    path, method, asked = "/v1", "chat.completions.create", ASK


class AsyncOpenAI(AsyncSDK, OpenAI):
    kind = openai.AsyncOpenAI


class OpenAIResponses(OpenAI):
    format = "openai_responses"
    method, asked = "responses.create", {"model": "m", "input": "hi"}


class OpenAICompletions(OpenAI):
    format = "completions"
    method, asked = "completions.create", {"model": "m", "prompt": "hi"}


class Anthropic(SDK):
    provider = format = "anthropic"
    kind: Any = anthropic.Anthropic
    method, asked = "messages.create", CLAUDE


class AsyncAnthropic(AsyncSDK, Anthropic):
    kind = anthropic.AsyncAnthropic


class Google(Client):
    provider, format = "gcp.gemini", "gemini"
    retries = True
    asked: ClassVar[Any] = {"model": "m", "contents": "hi"}

    def open(self) -> None:
        retries: Any = {"attempts": self.tries, "initial_delay": 0.001, "max_delay": 0.001}
        options: Any = {"base_url": self.url, "timeout": round(self.timeout_s * 1000), "retry_options": retries}
        self.made = genai.Client(api_key="none", http_options=options)

    def ask(self) -> None:
        self.made.models.generate_content(**self.asked)

    def stream(self) -> Stream:
        made = self.made.models.generate_content_stream(**self.asked)
        return Stream(made, made.close)


class AsyncGoogle(AsyncClient, Google):
    """It sends through aiohttp, where that is installed."""

    async def aask(self) -> None:
        await self.made.aio.models.generate_content(**self.asked)

    async def astream(self) -> Any:
        made = await self.made.aio.models.generate_content_stream(**self.asked)
        return aiter(made), made.aclose

    async def aclose(self) -> None:
        await self.made.aio.aclose()
        self.made.close()


class Converse(Client):
    provider, format = "aws.bedrock", "bedrock_converse"
    retries = True

    def open(self) -> None:
        config = botocore_config.Config(retries={"total_max_attempts": self.tries}, read_timeout=self.timeout_s)
        keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}
        self.made = boto3.client("bedrock-runtime", endpoint_url=self.url, config=config, **keys)

    def ask(self) -> None:
        self.made.converse(modelId="m:0", messages=[{"role": "user", "content": [{"text": "hi"}]}])

    def stream(self) -> Stream:
        asked = [{"role": "user", "content": [{"text": "hi"}]}]
        made = self.made.converse_stream(modelId="m:0", messages=asked)["stream"]
        return Stream(made, made.close)


class Invoke(Converse):
    format = "bedrock_invoke"
    asked: ClassVar = {"modelId": "anthropic.claude-sonnet-5", "body": json.dumps(CLAUDE)}

    def ask(self) -> None:
        self.made.invoke_model(**self.asked)["body"].read()

    def stream(self) -> Stream:
        made = self.made.invoke_model_with_response_stream(**self.asked)["body"]
        return Stream(made, made.close)


class Cohere(Client):
    provider = format = "cohere"
    retries = True

    def open(self) -> None:
        self.made = cohere.ClientV2(api_key="none", base_url=self.url, timeout=self.timeout_s)
        self.options: Any = {"max_retries": self.tries - 1}

    def ask(self) -> None:
        self.made.chat(**ASK, request_options=self.options)

    def stream(self) -> Stream:
        made = self.made.chat_stream(**ASK, request_options=self.options)
        return Stream(made, made.close)

    def close(self) -> None: ...


class Mistral(Client):
    retries = True

    def open(self) -> None:
        again = RetryConfig("backoff", BackoffStrategy(1, 1, 1.0, 5_000), retry_connection_errors=False)
        self.made = mistralai.client.Mistral(
            api_key="none",
            server_url=self.url,
            timeout_ms=round(self.timeout_s * 1000),
            retry_config=again if self.tries > 1 else None,
        )

    def ask(self) -> None:
        self.made.chat.complete(**ASK)

    def stream(self) -> Stream:
        made = self.made.chat.stream(**ASK)
        return Stream(iter(made), made.response.close)

    def close(self) -> None: ...


class Ollama(SDK):
    provider = format = "ollama"
    retries = False
    method, asked = "chat", ASK

    def open(self) -> None:
        self.made = ollama.Client(host=self.url, timeout=self.timeout_s)


class Raw(Client):
    """A client that knows nothing of models."""

    @property
    def chat(self) -> str:
        return f"{self.url}/v1/chat/completions"


class Httpx(Raw):
    library: Any = httpx

    def open(self) -> None:
        self.made = self.library.Client(timeout=self.timeout_s)

    def ask(self) -> None:
        self.made.post(self.chat, json=ASK).raise_for_status()

    def stream(self) -> Stream:
        request = self.made.build_request("POST", self.chat, json={**ASK, "stream": True})
        response = self.made.send(request, stream=True)
        return Stream(response.iter_lines(), response.close)


class Httpx2(Httpx):
    library = httpx2


class AsyncHttpx(AsyncClient, Raw):
    library: Any = httpx

    async def aopen(self) -> None:
        self.made = self.library.AsyncClient(timeout=self.timeout_s)

    async def aask(self) -> None:
        (await self.made.post(self.chat, json=ASK)).raise_for_status()

    async def astream(self) -> Any:
        request = self.made.build_request("POST", self.chat, json={**ASK, "stream": True})
        response = await self.made.send(request, stream=True)
        return response.aiter_lines(), response.aclose

    async def aclose(self) -> None:
        await self.made.aclose()


class AsyncHttpx2(AsyncHttpx):
    library = httpx2


class Requests(Raw):
    def open(self) -> None:
        self.made = requests.Session()

    def ask(self) -> None:
        self.made.post(self.chat, json=ASK, timeout=self.timeout_s).raise_for_status()

    def stream(self) -> Stream:
        response = self.made.post(self.chat, json={**ASK, "stream": True}, stream=True, timeout=self.timeout_s)
        return Stream(response.iter_lines(), response.close)


class Urllib3(Raw):
    def open(self) -> None:
        self.made = urllib3.PoolManager(timeout=self.timeout_s, retries=False)

    def ask(self) -> None:
        self.made.request("POST", self.chat, json=ASK)

    def stream(self) -> Stream:
        body: Any = {**ASK, "stream": True}
        response: Any = self.made.request("POST", self.chat, json=body, preload_content=False)
        return Stream(response.stream(), response.close)

    def close(self) -> None:
        self.made.clear()


class Urllib(Raw):
    def send(self, body: Any) -> Any:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.chat, json.dumps(body).encode(), headers)
        return urllib.request.urlopen(request, timeout=self.timeout_s)

    def ask(self) -> None:
        with self.send(ASK) as response:
            json.load(response)

    def stream(self) -> Stream:
        response = self.send({**ASK, "stream": True})
        return Stream(response, response.close)


class Aiohttp(AsyncClient, Raw):
    async def aopen(self) -> None:
        self.made = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self.timeout_s))

    async def aask(self) -> None:
        async with self.made.post(self.chat, json=ASK) as response:
            response.raise_for_status()
            await response.json()

    async def astream(self) -> Any:
        response = await self.made.post(self.chat, data=json.dumps({**ASK, "stream": True}))

        async def close() -> None:
            response.close()

        return aiter(response.content), close


CLIENTS: list[type[Client]] = [
    OpenAI, AsyncOpenAI, OpenAIResponses, OpenAICompletions, Anthropic, AsyncAnthropic, Google, AsyncGoogle, Converse,
    Invoke, Cohere, Mistral, Ollama, Httpx, Httpx2, AsyncHttpx, AsyncHttpx2, Requests, Urllib3, Urllib, Aiohttp,
]  # fmt: skip
