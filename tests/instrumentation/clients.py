"""The clients of the matrix: what asks a model over HTTP, each with the two ways it has of asking.

`ROWS` has a row for each, `CLIENTS` those whose package is installed where the tests run. A client is made for a
server's URL: `ask` asks and reads the whole answer; `stream` gives a stream of pieces, which its `close` leaves. What
is asynchronous runs in a loop of the client's own, so that every situation is written once.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from inspect import isawaitable
from pkgutil import resolve_name
from typing import Any

from endturn.vocabulary.messages import Message, Request

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CLAUDE: dict[str, Any] = {**ASK, "max_tokens": 99}
STREAM: dict[str, Any] = {**ASK, "stream": True}
CHAT = "/v1/chat/completions"

Make = Callable[[Any, str, float, int], Any]
"""Makes a client, of its class, the URL, how many seconds it waits, and how often it tries; it may be awaited."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way of asking.

    Attributes:
        of: the class of its clients, or what else makes them, as `package:name`.
        ask: by a client, for a whole answer; it may be awaited, as all here.
        stream: the same for a stream: what gives its pieces, and closes; or the pieces, and what closes them.
        provider, format: who answers by the path alone, and in which format.
        retries: it can be told to try again.
        close: closes the client.
    """

    name: str
    of: str
    make: Make
    ask: Callable[[Any], Any]
    stream: Callable[[Any], Any]
    provider: str = "openai"
    format: str = "openai_chat"
    model: str = "m"
    retries: bool = False
    close: Callable[[Any], Any] = lambda made: made.close()

    @property
    def is_async(self) -> bool:
        return self.name.startswith("Async")

    @property
    def is_ours(self) -> bool:
        """It announces its calls itself, as errors where an SDK's have lost their end."""
        return self.of.startswith("endturn.")

    @property
    def is_installed(self) -> bool:
        try:
            return find_spec(self.of.partition(":")[0]) is not None
        except ModuleNotFoundError:  # nor is what it would be in
            return False


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
            made = kind.make(resolve_name(kind.of), url, timeout_s, tries)
            return await made if isawaitable(made) else made

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


def sdk(path: str = "") -> Make:
    """Of openai's make."""
    return lambda of, url, timeout_s, tries: of(
        base_url=url + path, api_key="none", timeout=timeout_s, max_retries=tries - 1
    )


def google(of: Any, url: str, timeout_s: float, tries: int) -> Any:
    retries = {"attempts": tries, "initial_delay": 0.001, "max_delay": 0.001}
    return of(
        api_key="none", http_options={"base_url": url, "timeout": round(timeout_s * 1000), "retry_options": retries}
    )


async def close_google(made: Any) -> None:
    await made.aio.aclose()
    made.close()


def bedrock(create: Any, url: str, timeout_s: float, tries: int, config: str = "botocore.config:Config") -> Any:
    how = resolve_name(config)(retries={"total_max_attempts": tries}, read_timeout=timeout_s)
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}
    return create("bedrock-runtime", endpoint_url=url, config=how, **keys)


def async_bedrock(get_session: Any, url: str, timeout_s: float, tries: int) -> Any:
    return bedrock(get_session().create_client, url, timeout_s, tries, "aiobotocore.config:AioConfig").__aenter__()


async def member(name: str, answer: Any) -> Any:
    return (await answer)[name]


async def read(answer: Any) -> None:
    await (await answer)["body"].read()


def mistral(of: Any, url: str, timeout_s: float, tries: int) -> Any:
    utils = resolve_name("mistralai.client.utils")
    again = utils.RetryConfig("backoff", utils.BackoffStrategy(1, 1, 1.0, 5_000), retry_connection_errors=False)
    how = {"timeout_ms": round(timeout_s * 1000), "retry_config": again if tries > 1 else None}
    return of(api_key="none", server_url=url, **how)


def mistral_stream(made: Any) -> Any:
    stream = made.chat.stream(**ASK)
    return iter(stream), stream.response.close


def cohere(of: Any, url: str, timeout_s: float, tries: int) -> Any:
    made = of(api_key="none", base_url=url, timeout=timeout_s)
    return made, {**ASK, "request_options": {"max_retries": tries - 1}}


def ours(of: Any, url: str, timeout_s: float, tries: int) -> Any:
    return of("openai", api_key="none", base_url=url + "/v1", timeout=timeout_s)


async def ours_stream(made: Any) -> Any:
    return made.stream(OURS)


def ollama(of: Any, url: str, timeout_s: float, tries: int) -> Any:
    return of(host=url, timeout=timeout_s)


OURS = Request(model="m", messages=(Message(role="user", content="hi"),))
RESPONSES: dict[str, Any] = {"model": "m", "input": "hi"}
PROMPT: dict[str, Any] = {"model": "m", "prompt": "hi"}
CONTENTS: dict[str, Any] = {"model": "m", "contents": "hi"}
GEMINI: dict[str, Any] = {"provider": "gcp.gemini", "format": "gemini", "retries": True}
INTERACTIONS: dict[str, Any] = {"provider": "gcp.gemini", "format": "gemini_interactions"}
CONVERSE: dict[str, Any] = {"modelId": "m:0", "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
INVOKED: dict[str, Any] = {"modelId": "anthropic.claude-sonnet-5", "body": json.dumps(CLAUDE)}
BEDROCK: dict[str, Any] = {"provider": "aws.bedrock", "format": "bedrock_converse", "model": "m:0", "retries": True}
INVOKE: dict[str, Any] = BEDROCK | {"format": "bedrock_invoke", "model": INVOKED["modelId"]}
AIOBOTOCORE = "aiobotocore.session:get_session"

SDKS = [
    *(
        Kind(
            name, f"openai:{name}", sdk("/v1"), lambda made: made.chat.completions.create(**ASK),
            lambda made: made.chat.completions.create(**STREAM), retries=True,
        )
        for name in ("OpenAI", "AsyncOpenAI")
    ),
    Kind(
        "OpenAIResponses", "openai:OpenAI", sdk("/v1"), lambda made: made.responses.create(**RESPONSES),
        lambda made: made.responses.create(**RESPONSES, stream=True), format="openai_responses", retries=True,
    ),
    Kind(
        "OpenAICompletions", "openai:OpenAI", sdk("/v1"), lambda made: made.completions.create(**PROMPT),
        lambda made: made.completions.create(**PROMPT, stream=True), format="completions", retries=True,
    ),
    *(
        Kind(
            name, f"anthropic:{name}", sdk(), lambda made: made.messages.create(**CLAUDE),
            lambda made: made.messages.create(**CLAUDE, stream=True), "anthropic", "anthropic", retries=True,
        )
        for name in ("Anthropic", "AsyncAnthropic")
    ),
    Kind(
        "Google", "google.genai:Client", google, lambda made: made.models.generate_content(**CONTENTS),
        lambda made: made.models.generate_content_stream(**CONTENTS), **GEMINI,
    ),
    Kind(  # it sends through aiohttp, where that is installed
        "AsyncGoogle", "google.genai:Client", google, lambda made: made.aio.models.generate_content(**CONTENTS),
        lambda made: made.aio.models.generate_content_stream(**CONTENTS), **GEMINI, close=close_google,
    ),
    Kind(
        "GoogleInteractions", "google.genai:Client", google, lambda made: made.interactions.create(**RESPONSES),
        lambda made: made.interactions.create(**RESPONSES, stream=True), **INTERACTIONS,
    ),
    Kind(
        "AsyncGoogleInteractions", "google.genai:Client", google,
        lambda made: made.aio.interactions.create(**RESPONSES),
        lambda made: made.aio.interactions.create(**RESPONSES, stream=True), **INTERACTIONS, close=close_google,
    ),
    Kind(
        "Converse", "boto3:client", bedrock, lambda made: made.converse(**CONVERSE),
        lambda made: made.converse_stream(**CONVERSE)["stream"], **BEDROCK,
    ),
    Kind(
        "AsyncConverse", AIOBOTOCORE, async_bedrock, lambda made: made.converse(**CONVERSE),
        lambda made: member("stream", made.converse_stream(**CONVERSE)), **BEDROCK,
    ),
    Kind(
        "Invoke", "boto3:client", bedrock, lambda made: made.invoke_model(**INVOKED)["body"].read(),
        lambda made: made.invoke_model_with_response_stream(**INVOKED)["body"], **INVOKE,
    ),
    Kind(
        "AsyncInvoke", AIOBOTOCORE, async_bedrock, lambda made: read(made.invoke_model(**INVOKED)),
        lambda made: member("body", made.invoke_model_with_response_stream(**INVOKED)), **INVOKE,
    ),
    Kind(
        "Cohere", "cohere:ClientV2", cohere, lambda made: made[0].chat(**made[1]),
        lambda made: made[0].chat_stream(**made[1]), "cohere", "cohere", retries=True, close=id,
    ),
    Kind(
        "Mistral", "mistralai.client:Mistral", mistral, lambda made: made.chat.complete(**ASK), mistral_stream,
        retries=True, close=id,
    ),
    Kind(
        "Ollama", "ollama:Client", ollama, lambda made: made.chat(**ASK), lambda made: made.chat(**STREAM), "ollama",
        "ollama", close=id,
    ),
    Kind(
        "Client", "endturn.providers.http_client:Client", ours, lambda made: made(OURS), lambda made: made.stream(OURS)
    ),
    Kind(
        "AsyncClient", "endturn.providers.http_client:AsyncClient", ours, lambda made: made(OURS), ours_stream,
        close=lambda made: made.aclose(),
    ),
]  # fmt: skip


# --- HTTP libraries, which know nothing of models --------------------------------------------------------------------


def httpx(of: Any, url: str, timeout_s: float, tries: int) -> Any:
    return of(base_url=url, timeout=timeout_s)


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


def requests(of: Any, url: str, timeout_s: float, tries: int) -> Any:
    return partial(of().post, url + CHAT, timeout=timeout_s)


def requests_stream(post: Any) -> Any:
    response = post(json=STREAM, stream=True)
    return response.iter_lines(), response.close


def urllib3(of: Any, url: str, timeout_s: float, tries: int) -> Any:
    return partial(of(timeout=timeout_s, retries=False).request, "POST", url + CHAT)


def urllib3_stream(request: Any) -> Any:
    response = request(json=STREAM, preload_content=False)
    return response.stream(), response.close


def urlopen(of: Any, url: str, timeout_s: float, tries: int) -> Any:
    headers = {"content-type": "application/json"}
    return lambda body: of(urllib.request.Request(url + CHAT, json.dumps(body).encode(), headers), timeout=timeout_s)


def urlopen_ask(post: Any) -> None:
    with post(ASK) as response:
        json.load(response)


def session(of: Any, url: str, timeout_s: float, tries: int) -> Any:
    return of(url, timeout=resolve_name("aiohttp:ClientTimeout")(total=timeout_s))


async def aiohttp_ask(made: Any) -> None:
    async with made.post(CHAT, json=ASK) as response:
        response.raise_for_status()
        await response.json()


async def aiohttp_stream(made: Any) -> Any:
    response = await made.post(CHAT, data=json.dumps(STREAM))
    return response.content, response.close


ROWS = [
    *SDKS,
    *(
        Kind(f"{wait}{each.title()}", f"{each}:{wait}Client", httpx, ask, stream, close=close)
        for each in ("httpx", "httpx2")
        for wait, ask, stream, close in (
            ("", lambda made: send(made, ASK).raise_for_status(), httpx_stream, lambda made: made.close()),
            ("Async", asend, httpx_astream, lambda made: made.aclose()),
        )
    ),
    Kind(
        "Requests", "requests:Session", requests, lambda post: post(json=ASK).raise_for_status(), requests_stream,
        close=lambda post: post.func.__self__.close(),
    ),
    Kind("Urllib", "urllib.request:urlopen", urlopen, urlopen_ask, lambda post: post(STREAM), close=id),
    Kind(
        "Urllib3", "urllib3:PoolManager", urllib3, lambda request: request(json=ASK), urllib3_stream,
        close=lambda request: request.func.__self__.clear(),
    ),
    Kind("AsyncAiohttp", "aiohttp:ClientSession", session, aiohttp_ask, aiohttp_stream),
]  # fmt: skip
CLIENTS = {kind.name: kind for kind in ROWS if kind.is_installed}
