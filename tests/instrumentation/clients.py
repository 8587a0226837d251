"""The clients of the matrix: what asks a model over HTTP, each with the two ways it has of asking.

`CLIENTS` has a row for each. A client is made for a server's URL: `ask` asks and reads the whole answer; `stream` gives
a stream of pieces, which its `close` leaves. What is asynchronous runs in a loop of the client's own, so that every
situation is written once.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from inspect import isawaitable
from typing import Any

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
STREAM: dict[str, Any] = {**ASK, "stream": True}
CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Kind:
    """One way of asking.

    Attributes:
        make: a client, of the URL, how many seconds it waits, and how often it tries; it may be awaited, as all here.
        ask: by that client, for a whole answer.
        stream: the same for a stream: what gives its pieces, and closes; or the pieces, and what closes them.
        provider, format: who answers by the path alone, and in which format.
        retries: it can be told to try again.
        close: closes the client.
    """

    name: str
    make: Callable[[str, float, int], Any]
    ask: Callable[[Any], Any]
    stream: Callable[[Any], Any]
    provider: str = "openai"
    format: str = "openai_chat"
    retries: bool = False
    close: Callable[[Any], Any] = lambda made: made.close()

    @property
    def is_async(self) -> bool:
        return self.name.startswith("Async")


class Stream:
    """Pieces as they arrive, and what leaves them."""

    def __init__(self, client: Client, made: Any) -> None:
        pieces, close = made if isinstance(made, tuple) else (made, getattr(made, "aclose", None) or made.close)
        self.pieces = aiter(pieces) if client.kind.is_async else iter(pieces)
        self.close = lambda: client.run(close())
        self.run = client.run

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if hasattr(self.pieces, "__next__"):
            return next(self.pieces)
        try:
            return self.run(anext(self.pieces))
        except StopAsyncIteration:
            raise StopIteration from None


class Client:
    """A client of a kind."""

    def __init__(self, kind: Kind, url: str, timeout_s: float = 10.0, tries: int = 1) -> None:
        self.kind = kind
        self.loop = asyncio.new_event_loop()

        async def make() -> Any:
            return kind.make(url, timeout_s, tries)

        self.made = self.run(make())  # some want a running loop by then

    def run(self, found: Any) -> Any:
        return self.loop.run_until_complete(found) if isawaitable(found) else found

    def ask(self) -> None:
        self.run(self.kind.ask(self.made))

    def stream(self) -> Stream:
        return Stream(self, self.run(self.kind.stream(self.made)))

    def close(self) -> None:
        self.run(self.kind.close(self.made))
        self.run(asyncio.sleep(0))
        self.run(self.loop.shutdown_asyncgens())
        self.loop.close()


# --- SDKs ----------------------------------------------------------------------------------------------------------


def sdk(kind: Any, path: str = "") -> Callable[[str, float, int], Any]:
    """Of openai's make."""
    return lambda url, timeout_s, tries: kind(
        base_url=url + path, api_key="none", timeout=timeout_s, max_retries=tries - 1
    )


def google(url: str, timeout_s: float, tries: int) -> Any:
    retries: Any = {"attempts": tries, "initial_delay": 0.001, "max_delay": 0.001}
    options: Any = {"base_url": url, "timeout": round(timeout_s * 1000), "retry_options": retries}
    return genai.Client(api_key="none", http_options=options)


async def close_google(made: Any) -> None:
    await made.aio.aclose()
    made.close()


def bedrock(url: str, timeout_s: float, tries: int) -> Any:
    config = botocore_config.Config(retries={"total_max_attempts": tries}, read_timeout=timeout_s)
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}
    return boto3.client("bedrock-runtime", endpoint_url=url, config=config, **keys)


def mistral(url: str, timeout_s: float, tries: int) -> Any:
    again = RetryConfig("backoff", BackoffStrategy(1, 1, 1.0, 5_000), retry_connection_errors=False)
    how: Any = {"timeout_ms": round(timeout_s * 1000), "retry_config": again if tries > 1 else None}
    return mistralai.client.Mistral(api_key="none", server_url=url, **how)


def mistral_stream(made: Any) -> Any:
    stream = made.chat.stream(**ASK)
    return iter(stream), stream.response.close


def cohere_client(url: str, timeout_s: float, tries: int) -> Any:
    made = cohere.ClientV2(api_key="none", base_url=url, timeout=timeout_s)
    options: Any = {"max_retries": tries - 1}
    return made, {**ASK, "request_options": options}


RESPONSES: dict[str, Any] = {"model": "m", "input": "hi"}
PROMPT: dict[str, Any] = {"model": "m", "prompt": "hi"}
CONTENTS: dict[str, Any] = {"model": "m", "contents": "hi"}
CONVERSE: dict[str, Any] = {"modelId": "m:0", "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
INVOKED: dict[str, Any] = {"modelId": "anthropic.claude-sonnet-5", "body": json.dumps(CLAUDE)}

SDKS = [
    *(
        Kind(
            name, sdk(made, "/v1"), lambda made: made.chat.completions.create(**ASK),
            lambda made: made.chat.completions.create(**STREAM), retries=True,
        )
        for name, made in (("OpenAI", openai.OpenAI), ("AsyncOpenAI", openai.AsyncOpenAI))
    ),
    Kind(
        "OpenAIResponses", sdk(openai.OpenAI, "/v1"), lambda made: made.responses.create(**RESPONSES),
        lambda made: made.responses.create(**RESPONSES, stream=True), format="openai_responses", retries=True,
    ),
    Kind(
        "OpenAICompletions", sdk(openai.OpenAI, "/v1"), lambda made: made.completions.create(**PROMPT),
        lambda made: made.completions.create(**PROMPT, stream=True), format="completions", retries=True,
    ),
    *(
        Kind(
            name, sdk(made), lambda made: made.messages.create(**CLAUDE),
            lambda made: made.messages.create(**CLAUDE, stream=True), "anthropic", "anthropic", retries=True,
        )
        for name, made in (("Anthropic", anthropic.Anthropic), ("AsyncAnthropic", anthropic.AsyncAnthropic))
    ),
    Kind(
        "Google", google, lambda made: made.models.generate_content(**CONTENTS),
        lambda made: made.models.generate_content_stream(**CONTENTS), "gcp.gemini", "gemini", retries=True,
    ),
    Kind(  # it sends through aiohttp, where that is installed
        "AsyncGoogle", google, lambda made: made.aio.models.generate_content(**CONTENTS),
        lambda made: made.aio.models.generate_content_stream(**CONTENTS), "gcp.gemini", "gemini", retries=True,
        close=close_google,
    ),
    Kind(
        "Converse", bedrock, lambda made: made.converse(**CONVERSE),
        lambda made: made.converse_stream(**CONVERSE)["stream"], "aws.bedrock", "bedrock_converse", retries=True,
    ),
    Kind(
        "Invoke", bedrock, lambda made: made.invoke_model(**INVOKED)["body"].read(),
        lambda made: made.invoke_model_with_response_stream(**INVOKED)["body"], "aws.bedrock", "bedrock_invoke",
        retries=True,
    ),
    Kind(
        "Cohere", cohere_client, lambda made: made[0].chat(**made[1]), lambda made: made[0].chat_stream(**made[1]),
        "cohere", "cohere", retries=True, close=id,
    ),
    Kind("Mistral", mistral, lambda made: made.chat.complete(**ASK), mistral_stream, retries=True, close=id),
    Kind(
        "Ollama", lambda url, timeout_s, tries: ollama.Client(host=url, timeout=timeout_s),
        lambda made: made.chat(**ASK), lambda made: made.chat(**STREAM), "ollama", "ollama", close=id,
    ),
]  # fmt: skip


# --- HTTP libraries, which know nothing of models --------------------------------------------------------------------


def send(made: Any, body: dict[str, Any]) -> Any:
    """By httpx: a response whose body has not been read; of the asynchronous client to be awaited."""
    return made.send(made.build_request("POST", CHAT, json=body), stream="stream" in body)


async def asend(made: Any) -> None:
    (await send(made, ASK)).raise_for_status()


def httpx_stream(made: Any) -> Any:
    response = send(made, STREAM)
    return response.iter_lines(), response.close


async def httpx_astream(made: Any) -> Any:
    response = await send(made, STREAM)
    return response.aiter_lines(), response.aclose


def of_httpx(library: Any) -> list[Kind]:
    def client(kind: Any) -> Callable[[str, float, int], Any]:
        return lambda url, timeout_s, tries: kind(base_url=url, timeout=timeout_s)

    number = library.__name__.removeprefix("httpx")
    return [
        Kind(f"Httpx{number}", client(library.Client), lambda made: send(made, ASK).raise_for_status(), httpx_stream),
        Kind(
            f"AsyncHttpx{number}", client(library.AsyncClient), asend, httpx_astream, close=lambda made: made.aclose()
        ),
    ]


class Plain:
    """A session of requests, a pool of urllib3 and the standard library, with what each request needs."""

    def __init__(self, url: str, timeout_s: float, tries: int) -> None:
        self.url, self.timeout_s = url + CHAT, timeout_s
        self.session = requests.Session()
        self.pool = urllib3.PoolManager(timeout=timeout_s, retries=False)

    def close(self) -> None:
        self.session.close()
        self.pool.clear()

    def post(self, body: dict[str, Any]) -> requests.Response:
        return self.session.post(self.url, json=body, timeout=self.timeout_s, stream="stream" in body)

    def iter_lines(self) -> Any:
        response = self.post(STREAM)
        return response.iter_lines(), response.close

    def request(self, body: dict[str, Any]) -> Any:
        return self.pool.request("POST", self.url, json=body, preload_content="stream" not in body)

    def stream(self) -> Any:
        response = self.request(STREAM)
        return response.stream(), response.close

    def urlopen(self, body: dict[str, Any]) -> Any:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
        return urllib.request.urlopen(request, timeout=self.timeout_s)

    def read(self) -> None:
        with self.urlopen(ASK) as response:
            json.load(response)


def session(url: str, timeout_s: float, tries: int) -> Any:
    return aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=timeout_s))


async def aiohttp_ask(made: Any) -> None:
    async with made.post(CHAT, json=ASK) as response:
        response.raise_for_status()
        await response.json()


async def aiohttp_stream(made: Any) -> Any:
    response = await made.post(CHAT, data=json.dumps(STREAM))
    return response.content, response.close


HTTPX, ASYNC_HTTPX, *HTTPX2 = of_httpx(httpx) + of_httpx(httpx2)
REQUESTS = Kind("Requests", Plain, lambda made: made.post(ASK).raise_for_status(), Plain.iter_lines)
URLLIB = Kind("Urllib", Plain, Plain.read, lambda made: made.urlopen(STREAM))
INVOKE = next(each for each in SDKS if each.name == "Invoke")
CLIENTS = [
    *SDKS, HTTPX, ASYNC_HTTPX, *HTTPX2, REQUESTS, URLLIB,
    Kind("Urllib3", Plain, lambda made: made.request(ASK), Plain.stream),
    Kind("AsyncAiohttp", session, aiohttp_ask, aiohttp_stream),
]  # fmt: skip
