"""What the real SDKs make of recorded replies is read as the replies are; what they send is what encode() wrote."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, AsyncAnthropic
from openai import APIError, AsyncOpenAI, OpenAI

from endturn.chat import ChatResponse, Json, Message, Request, Tool
from endturn.formats import Context, Event, format_of, framing
from endturn.formats.anthropic import FORMAT as anthropic
from endturn.formats.openai_chat import FORMAT as openai_chat
from endturn.formats.request_body import request_of
from endturn.sdk_objects import dumped
from endturn.stop import StopReason
from tests.formats.recorded import RECORDED

CTX = Context()
REQUEST = Request(
    model="m", messages=(Message(role="user", content="hi"),), tools=(Tool(name="weather"),), max_tokens=64
)
BODIES = {name: RECORDED[name].bodies for name in ("openai_chat", "anthropic")}
STREAMS = {name: RECORDED[name].streams for name in BODIES}
EACH_BODY = [pytest.param(api, name, id=f"{api}-{name}") for api in BODIES for name in BODIES[api]]
# The SDK raises over an error after the end.
EACH_STREAM = [
    pytest.param(api, name, id=f"{api}-{name}")
    for api in STREAMS
    for name in STREAMS[api]
    if not name.startswith("error")
]


class Server:
    """Answers every request with one recorded reply, as a body or as a stream cut after some of its events."""

    def __init__(self, api: str, name: str, *, cut: int | None = None) -> None:
        self.api = format_of(api)
        self.name = name
        self.cut = cut
        self.asked: list[Json] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """One answer."""
        body = json.loads(request.content)
        self.asked.append(body)
        if not body.get("stream"):
            return httpx2.Response(200, json=BODIES[self.api.name][self.name])
        content = b"".join(framing.frame(event) for event in STREAMS[self.api.name][self.name][: self.cut])
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=content)

    def client(self) -> Any:
        """The SDK's call that makes a response, synchronous."""
        http = httpx2.Client(transport=httpx2.MockTransport(self))
        if self.api.name == openai_chat.name:
            return OpenAI(api_key="x", http_client=http, max_retries=0).chat.completions.create
        return Anthropic(api_key="x", http_client=http, max_retries=0).beta.messages.create

    def async_client(self) -> Any:
        """The SDK's call that makes a response, asynchronous."""
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self))
        if self.api.name == openai_chat.name:
            return AsyncOpenAI(api_key="x", http_client=http, max_retries=0).chat.completions.create
        return AsyncAnthropic(api_key="x", http_client=http, max_retries=0).beta.messages.create


def response_of(api: str, name: str) -> ChatResponse:
    """A recorded body as a response."""
    return format_of(api).decode(BODIES[api][name], ctx=CTX)


def streamed(api: str, name: str) -> ChatResponse:
    """A recorded stream as a response."""
    decoder = format_of(api).decoder(CTX)
    for event in STREAMS[api][name]:
        list(decoder.feed(event))
    return decoder.close()


@pytest.mark.parametrize(("api", "name"), EACH_BODY)
def test_bodies(api: str, name: str) -> None:
    """The SDK's object of a body is the same response; the SDK sends what encode wrote."""
    response = response_of(api, name)
    server = Server(api, name)
    asked = format_of(api).encode(REQUEST)
    got = server.client()(**asked)
    summarizer = format_of(api).summarizer(CTX)
    summarizer.feed(dumped(got))
    assert summarizer.close().stop == response.stop
    again = format_of(api).decode(dumped(got), ctx=CTX)
    assert (again.text, again.tool_calls, again.stop, again.usage) == (
        response.text,
        response.tool_calls,
        response.stop,
        response.usage,
    )
    assert server.asked == [asked]
    assert request_of(format_of(api), server.asked[0]) == REQUEST


@pytest.mark.parametrize(("api", "name"), EACH_STREAM)
def test_streams(api: str, name: str) -> None:
    """A summarizer that is shown the SDK's own stream objects learns what the events say."""
    response = streamed(api, name)
    summarizer = format_of(api).summarizer(CTX)
    stream: Iterator[Any] = Server(api, name).client()(**format_of(api).encode(REQUEST, stream=True))
    for event in stream:
        summarizer.feed(dumped(event))
    seen = summarizer.close()
    assert (seen.stop, seen.usage) == (response.stop, response.usage)
    assert (seen.tail, seen.output_chars) == (response.text[-64:], len(response.text))


@pytest.mark.parametrize(("api", "name"), [("openai_chat", "tool calls"), ("anthropic", "tool use")])
async def test_asynchronous(api: str, name: str) -> None:
    """The asynchronous SDKs give the same."""
    create = Server(api, name).async_client()
    summarizer = format_of(api).summarizer(CTX)
    summarizer.feed(dumped(await create(**format_of(api).encode(REQUEST))))
    assert summarizer.close().stop == response_of(api, name).stop
    summarizer = format_of(api).summarizer(CTX)
    stream: AsyncIterator[Any] = await create(**format_of(api).encode(REQUEST, stream=True))
    async for event in stream:
        summarizer.feed(dumped(event))
    assert summarizer.close().stop == streamed(api, name).stop


@pytest.mark.parametrize("api", ["openai_chat", "anthropic"])
def test_a_cut_stream_is_missing(api: str) -> None:
    """A list of events cut short by the caller is a cut stream for the SDK too; it ends without an error."""
    summarizer = format_of(api).summarizer(CTX)
    for event in Server(api, "text", cut=4).client()(**format_of(api).encode(REQUEST, stream=True)):
        summarizer.feed(dumped(event))
    seen = summarizer.close()
    assert (seen.stop.reason, seen.output_chars > 0) == (StopReason.MISSING, True)


def test_the_message_stream_of_anthropic_accumulates_a_reply() -> None:
    """The SDK's own accumulator builds the same message from a stream's events."""
    response = streamed("anthropic", "tool use")
    http = httpx2.Client(transport=httpx2.MockTransport(Server("anthropic", "tool use")))
    summarizer = anthropic.summarizer(CTX)
    with Anthropic(api_key="x", http_client=http).messages.stream(
        model="m", max_tokens=64, messages=[{"role": "user", "content": "hi"}]
    ) as stream:
        for event in stream:
            summarizer.feed(dumped(event))
        final = stream.get_final_message()
    assert summarizer.close().stop == response.stop
    assert anthropic.decode(dumped(final), ctx=CTX).text == response.text
    assert final.stop_reason == "tool_use"


def test_the_openai_sdk_raises_over_an_error_chunk_and_the_watch_says_so() -> None:
    """What a summarizer over HTTP sees of an error chunk is what the SDK raises."""
    error = {"error": {"message": "boom", "type": "server_error"}}

    def answer(request: httpx2.Request) -> httpx2.Response:
        content = framing.frame(Event(None, error))
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=content)

    client = OpenAI(api_key="x", http_client=httpx2.Client(transport=httpx2.MockTransport(answer)))
    with pytest.raises(APIError, match="boom"):
        list(client.chat.completions.create(model="m", messages=[], stream=True))
    summarizer = openai_chat.summarizer(CTX)
    summarizer.feed(dumped(error))
    assert (summarizer.close().stop.reason, summarizer.close().stop.raw) == (StopReason.ERROR, "server_error")
