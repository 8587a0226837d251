"""Calls of real SDKs that ask no model to write: embeddings, rankings, pictures, speech, classes, counts of tokens."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from inspect import isawaitable
from types import ModuleType
from typing import Any

import anthropic
import cohere
import httpx
import httpx2
import ollama
import openai
import pytest
from google import genai
from mistralai.client import Mistral

from endturn.instrumentation.recognition import endpoint
from endturn.scripted.loopback import Answer, RequestSummary, Server
from tests.formats.others_bedrock_invoke import OTHERS, PROFILE
from tests.telemetry.mocked import Records, settle

SAID = json.dumps({"id": "x", "object": "list", "model": "m", "data": [], "results": [], "usage": {}, "embeddings": []})
MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]


@pytest.fixture
def asked() -> list[RequestSummary]:
    """What has arrived."""
    return []


@pytest.fixture
def url(asked: list[RequestSummary]) -> Iterator[str]:
    """A server that answers whatever it is asked."""

    def answer(request: RequestSummary) -> Answer:
        asked.append(request)
        return Answer(headers={"content-type": "application/json"}, chunks=(SAID.encode(),), length=len(SAID))

    with Server(answer).running() as found:
        yield found


def over_openai(url: str) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def over_aopenai(url: str) -> Any:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def over_azure(url: str) -> Any:
    return openai.AzureOpenAI(azure_endpoint=url, api_key="none", api_version="2025-01-01", max_retries=0)


def over_groq(url: str) -> Any:
    return import_module("groq").Groq(base_url=url, api_key="none", max_retries=0)


def over_together(url: str) -> Any:
    return import_module("together").Together(base_url=f"{url}/v1", api_key="none", max_retries=0)


def over_anthropic(url: str) -> Any:
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)


def over_vertex(url: str) -> Any:
    return anthropic.AnthropicVertex(
        base_url=f"{url}/v1", access_token="none", project_id="p", region="r", max_retries=0
    )


def over_cohere(url: str) -> Any:
    return cohere.Client(api_key="none", base_url=url)


def over_cohere_v2(url: str) -> Any:
    return cohere.ClientV2(api_key="none", base_url=url)


def over_acohere_v2(url: str) -> Any:
    return cohere.AsyncClientV2(api_key="none", base_url=url)


def over_mistral(url: str) -> Any:
    return Mistral(api_key="none", server_url=url)


def over_ollama(url: str) -> Any:
    return ollama.Client(host=url)


def over_aollama(url: str) -> Any:
    return ollama.AsyncClient(host=url)


def over_google(url: str) -> Any:
    return genai.Client(api_key="none", http_options={"base_url": url, "retry_options": {"attempts": 1}})


def over_google_vertex(url: str) -> Any:
    return genai.Client(vertexai=True, api_key="none", http_options={"base_url": url, "retry_options": {"attempts": 1}})


PAGE = {"type": "document_url", "document_url": "https://example.com/a.pdf"}
PICTURE = {"model": "m", "prompt": "a cat"}
SPEECH = {"model": "m", "input": "hi", "voice": "v"}

CALLS: list[tuple[Callable[[str], Any], str, Callable[[Any], Any]]] = [
    (over_openai, "embeddings", lambda sdk: sdk.embeddings.create(model="m", input="hi")),
    (over_openai, "images", lambda sdk: sdk.images.generate(**PICTURE)),
    (over_openai, "images edited", lambda sdk: sdk.images.edit(image=b"x", **PICTURE)),
    (over_openai, "speech", lambda sdk: sdk.audio.speech.create(**SPEECH)),
    (over_openai, "transcriptions", lambda sdk: sdk.audio.transcriptions.create(model="m", file=("a.wav", b"x"))),
    (over_openai, "moderations", lambda sdk: sdk.moderations.create(input="hi")),
    (over_openai, "counts", lambda sdk: sdk.responses.input_tokens.count(model="m", input="hi")),
    (over_openai, "another's ranking", lambda sdk: sdk.post("/rerank", body={"query": "hi"}, cast_to=object)),
    (over_aopenai, "embeddings", lambda sdk: sdk.embeddings.create(model="m", input="hi")),
    (over_aopenai, "images", lambda sdk: sdk.images.generate(**PICTURE)),
    (over_azure, "embeddings", lambda sdk: sdk.embeddings.create(model="m", input="hi")),
    (over_azure, "images", lambda sdk: sdk.images.generate(**PICTURE)),
    (over_groq, "embeddings", lambda sdk: sdk.embeddings.create(model="m", input="hi")),
    (over_groq, "speech", lambda sdk: sdk.audio.speech.create(**SPEECH)),
    (over_together, "embeddings", lambda sdk: sdk.embeddings.create(model="m", input="hi")),
    (over_together, "rerank", lambda sdk: sdk.rerank.create(model="m", query="hi", documents=["a"])),
    (over_together, "images", lambda sdk: sdk.images.generate(**PICTURE)),
    (over_anthropic, "counts", lambda sdk: sdk.messages.count_tokens(model="m", messages=MESSAGES)),
    (over_vertex, "counts", lambda sdk: sdk.messages.count_tokens(model="m", messages=MESSAGES)),
    (over_cohere, "embed", lambda sdk: sdk.embed(texts=["hi"], model="m", input_type="search_query")),
    (over_cohere, "rerank", lambda sdk: sdk.rerank(query="hi", documents=["a"], model="m")),
    (over_cohere, "classify", lambda sdk: sdk.classify(inputs=["hi"], model="m")),
    (over_cohere, "tokenize", lambda sdk: sdk.tokenize(text="hi", model="m", offline=False)),
    (over_cohere_v2, "embed", lambda sdk: sdk.embed(texts=["hi"], model="m", input_type="search_query")),
    (over_cohere_v2, "rerank", lambda sdk: sdk.rerank(query="hi", documents=["a"], model="m")),
    (over_acohere_v2, "embed", lambda sdk: sdk.embed(texts=["hi"], model="m", input_type="search_query")),
    (over_acohere_v2, "rerank", lambda sdk: sdk.rerank(query="hi", documents=["a"], model="m")),
    (over_mistral, "embeddings", lambda sdk: sdk.embeddings.create(model="m", inputs=["hi"])),
    (over_mistral, "embeddings, async", lambda sdk: sdk.embeddings.create_async(model="m", inputs=["hi"])),
    (over_mistral, "ocr", lambda sdk: sdk.ocr.process(model="m", document=PAGE)),
    (over_mistral, "moderations", lambda sdk: sdk.classifiers.moderate(model="m", inputs=["hi"])),
    (over_mistral, "moderated chats", lambda sdk: sdk.classifiers.moderate_chat(model="m", inputs=[MESSAGES])),
    (over_ollama, "embed", lambda sdk: sdk.embed(model="m", input="hi")),
    (over_ollama, "embeddings", lambda sdk: sdk.embeddings(model="m", prompt="hi")),
    (over_aollama, "embed", lambda sdk: sdk.embed(model="m", input="hi")),
    (over_google, "embed", lambda sdk: sdk.models.embed_content(model="m", contents="hi")),
    (over_google, "counts", lambda sdk: sdk.models.count_tokens(model="m", contents="hi")),
    (over_google, "embed, async", lambda sdk: sdk.aio.models.embed_content(model="m", contents="hi")),
    (over_google_vertex, "embed", lambda sdk: sdk.models.embed_content(model="m", contents="hi")),
    (over_google_vertex, "images", lambda sdk: sdk.models.generate_images(model="m", prompt="a cat")),
]


@pytest.mark.filterwarnings("ignore::Warning")  # the SDKs' own
@pytest.mark.parametrize(
    ("over", "ask"),
    [pytest.param(over, ask, id=f"{over.__name__.removeprefix('over_')}: {what}") for over, what, ask in CALLS],
)
def test_an_sdks_other_calls_pass(
    records: Records, url: str, asked: list[RequestSummary], over: Callable[[str], Any], ask: Callable[[Any], Any]
) -> None:
    """The request arrives and nothing is recorded, whatever the SDK makes of an answer that is not quite its own."""
    with contextlib.suppress(Exception):
        made = ask(over(url))
        if isawaitable(made):
            asyncio.run(_waited(made))
    settle()
    assert asked
    assert not records


async def _waited(made: Awaitable[Any]) -> Any:
    return await made


BEDROCK = "https://bedrock-runtime.us-east-1.amazonaws.com/model"


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
@pytest.mark.parametrize("model", OTHERS)
@pytest.mark.parametrize("hidden", [False, True], ids=["named", "profile"])
def test_bedrocks_over_plain_http_pass(records: Records, library: ModuleType, model: str, hidden: bool) -> None:
    """Signed by hand, as LiteLLM does: the path names the model, and where that hides one, the body tells."""
    body, said = OTHERS[model]
    client = library.Client(transport=library.MockTransport(lambda request: library.Response(200, json=said)))
    path = httpx.URL(f"{BEDROCK}/{PROFILE.replace('/', '%2F') if hidden else model}/invoke")
    assert client.post(str(path), json=body).json() == said
    assert not records


@pytest.mark.parametrize(
    "path",
    [
        "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict",
        "/v1/projects/p/locations/l/publishers/mistralai/models/mistral-ocr-2505:rawPredict",
        "/v1/projects/p/locations/l/publishers/google/models/gemini-embedding-001:predict",
        "/v1/projects/p/locations/l/publishers/google/models/imagen-4:predict",
        "/v1/projects/p/locations/l/endpoints/1:predict",
    ],
)
def test_vertex_ais_other_paths(path: str) -> None:
    """Counting tokens and reading documents go the way that Anthropic's and Mistral's chats go, by another name."""
    assert endpoint("POST", f"https://us-east5-aiplatform.googleapis.com{path}") is None
