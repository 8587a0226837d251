"""Other SDKs of the same generator, groq and together: observed as openai's and anthropic's are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import groq
import httpx
import pytest
import together
from groq.types.chat import ChatCompletion as GroqCompletion
from together.types.chat import ChatCompletion as TogetherCompletion

from endturn.chat import Json
from endturn.instrumentation.recognition import provider_of
from endturn.scripted import ScriptedProvider, cut, essay, fail, partial_call, say
from endturn.stop import StopReason
from tests.telemetry.mocked import Records, settle

ASK: Json = {"model": "m", "messages": [{"role": "user", "content": "Write."}], "max_tokens": 2}
SCRIPT: Json = {
    "m": essay("One two three four five six."),
    "cut": lambda request: cut("One two three four.", after=2),
    "call": lambda request: partial_call("write", {"body": "One two three four"}, after=3),
    "window": lambda request: fail(400, "context_length_exceeded"),
    "whole": lambda request: say("Done."),
}
SDKS: Json = {"groq": (groq, "Groq"), "together": (together, "Together")}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A scripted provider on loopback."""
    with ScriptedProvider(SCRIPT).serve() as served:
        yield served


@pytest.fixture(params=[pytest.param(sdk, id=name) for name, sdk in SDKS.items()])
def sdk(request: pytest.FixtureRequest, url: str) -> Iterator[tuple[Any, Any, Any]]:
    """The package, a client and an async client of it."""
    package, name = request.param
    options: Json = {"api_key": "none", "base_url": url, "max_retries": 0}
    with getattr(package, name)(**options) as client:
        yield package, client, getattr(package, f"Async{name}")(**options)


def test_whole_answers(records: Records, sdk: tuple[Any, Any, Any]) -> None:
    """The SDK's own type comes back; at an address of no provider it is a compatible server."""
    _, client, _ = sdk
    result = client.chat.completions.create(**ASK)
    assert type(result) in (GroqCompletion, TogetherCompletion)
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "length")
    assert (ended.started.provider, ended.started.server_address) == ("openai", "127.0.0.1")


async def test_streams(records: Records, sdk: tuple[Any, Any, Any]) -> None:
    """Read, left and dropped, sync and async: one record each."""
    package, client, aclient = sdk
    with client.chat.completions.create(**ASK, stream=True) as stream:
        assert type(stream) is package.Stream
        assert [chunk.choices[0].finish_reason for chunk in stream if chunk.choices][-1] == "length"
    with client.chat.completions.create(**ASK, stream=True) as stream:
        next(stream)
    stream = client.chat.completions.create(**ASK, stream=True)
    next(stream)
    stream = None
    settle()
    async with aclient:
        astream = await aclient.chat.completions.create(**ASK, stream=True)
        assert type(astream) is package.AsyncStream
        assert [chunk async for chunk in astream]
        async with await aclient.chat.completions.create(**ASK, stream=True) as left:
            await anext(left)
    await asyncio.sleep(0)
    assert [(ended.stop.reason, ended.stop.detail) for ended in records.ended] == [
        (StopReason.MAX_TOKENS, None),
        (StopReason.CANCELLED, None),
        (StopReason.CANCELLED, "abandoned"),
        (StopReason.MAX_TOKENS, None),
        (StopReason.CANCELLED, None),
    ]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        pytest.param("cut", StopReason.MISSING, id="cut off"),
        pytest.param("call", StopReason.MAX_TOKENS, id="a call that was cut off"),
        pytest.param("whole", StopReason.END_TURN, id="whole"),
    ],
)
def test_what_a_stream_says(records: Records, sdk: tuple[Any, Any, Any], model: str, reason: StopReason) -> None:
    """The reason is the wire's; a connection that is lost is `missing`."""
    _, client, _ = sdk
    ask = {**ASK, "model": model, "max_tokens": 99}
    stream = client.chat.completions.create(**ask, stream=True)
    with pytest.raises(httpx.RemoteProtocolError) if model == "cut" else nullcontext() as raised:
        list(stream)
    ended = records.only()
    assert (ended.stop.reason, ended.error) == (reason, raised and raised.value)


def test_raw_answers_and_errors(records: Records, sdk: tuple[Any, Any, Any]) -> None:
    """Raw, raw and read by the host, refused: the right reason, and the SDK's own exception."""
    package, client, _ = sdk
    assert client.chat.completions.with_raw_response.create(**ASK).parse().choices[0].finish_reason == "length"
    with client.chat.completions.with_streaming_response.create(**ASK, stream=True) as raw:
        assert list(raw.iter_lines())
    with pytest.raises(package.BadRequestError):
        client.chat.completions.create(**{**ASK, "model": "window"})
    assert [ended.stop.reason for ended in records.ended] == [
        StopReason.MAX_TOKENS,
        StopReason.MAX_TOKENS,
        StopReason.CONTEXT_WINDOW_EXCEEDED,
    ]


def test_text_completions(records: Records, url: str) -> None:
    """Together's old completions are the text format."""
    client = together.Together(api_key="none", base_url=url, max_retries=0)
    client.completions.create(model="m", prompt="Once upon", max_tokens=2)
    client.close()
    ended = records.only()
    assert (ended.stop.reason, ended.started.operation) == (StopReason.MAX_TOKENS, "text_completion")


@pytest.mark.parametrize(
    ("host", "provider", "dialect"),
    [
        ("api.openai.com", "openai", ""),
        ("eu.api.openai.com", "openai", ""),
        ("me.openai.azure.us", "azure.ai.openai", "azure"),
        ("us-east5-aiplatform.googleapis.com", "gcp.vertex_ai", "compatible"),
        ("bedrock-runtime.eu-west-1.amazonaws.com", "aws.bedrock", "compatible"),
        ("bedrock-mantle.eu-west-1.api.aws", "aws.bedrock", "compatible"),
        ("aws-external-anthropic.eu-west-1.api.aws", "anthropic", ""),
        ("us-south.ml.cloud.ibm.com", "ibm.watsonx.ai", "watsonx"),
        ("API.GROQ.COM.", "groq", "groq"),
        ("notapi.groq.com", "", "compatible"),
    ],
)
def test_who_is_behind_a_host(host: str, provider: str, dialect: str) -> None:
    """Regions stand before a host's name or within it; a lookalike is nobody."""
    assert provider_of(host) == (provider, dialect)
