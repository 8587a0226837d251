"""Real SDKs, asked by the controllers through the adapters, against a scripted server: turns go as with our client."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anthropic
import groq
import httpx
import mistralai.client as mistralai
import ollama
import openai
import pytest
import together
from google import genai
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import endturn
from endturn import adapters
from endturn.chat import Blocks, ChatResponse, Delta, Message, Request, Tool, ToolCall
from endturn.clients import AsyncClient, Client
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.result import Resumption
from endturn.controller import AsyncContinuationController, ContinuationController, TurnResult
from endturn.errors import DecodeError, ProviderError, ProviderTimeout, ProviderUnavailable, RequestRejected, UsageError
from endturn.formats import format_of
from endturn.formats.request_body import request_of
from endturn.scripted import (
    Reply,
    ScriptedProvider,
    call,
    cut,
    fail,
    hang_up,
    pause,
    reason,
    say,
    truncate,
)
from endturn.stop import StopReason

# Neither typed nor with stubs; nor is the SDK's v2 client, to the checker.
boto3: Any = import_module("boto3")
cohere: Any = import_module("cohere")

# Where aiohttp is installed, Google's SDK asks through a class of its own that aiohttp warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

PATIENCE_S = 0.3
"""How long the clients wait where a test wants them to lose patience."""

Make = Callable[[str, float], Any]


@dataclass(frozen=True, slots=True)
class Sdk:
    """An SDK's clients at an address, with so many seconds of patience and no retries."""

    make: Make
    amake: Make | None = None
    format: str | None = None
    model: str = "some-model"


def _google(url: str, patience_s: float) -> Any:
    options: Any = {"base_url": url, "retry_options": {"attempts": 1}, "timeout": int(patience_s * 1000)}
    return genai.Client(api_key="none", http_options=options)


def _boto(url: str, patience_s: float) -> Any:
    config = import_module("botocore.config").Config(retries={"total_max_attempts": 1}, read_timeout=patience_s)
    keys = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "secret"}
    session = boto3.session.Session()
    return session.client("bedrock-runtime", endpoint_url=url, region_name="eu-west-1", config=config, **keys)


def _stainless(kind: Any, path: str = "") -> Make:
    return lambda url, patience_s: kind(api_key="none", base_url=url + path, max_retries=0, timeout=patience_s)


OPENAI = _stainless(openai.OpenAI, "/v1"), _stainless(openai.AsyncOpenAI, "/v1")
SDKS = {
    "openai": Sdk(*OPENAI),
    "openai responses": Sdk(*OPENAI, format="openai_responses"),
    # A model that takes no prefill, so that the rest is asked for as elsewhere.
    "anthropic": Sdk(_stainless(anthropic.Anthropic), _stainless(anthropic.AsyncAnthropic), model="claude-opus-5"),
    "google": Sdk(_google, lambda url, patience_s: _google(url, patience_s).aio),
    "boto3": Sdk(_boto),
}
MORE = {
    "google interactions": Sdk(
        _google, lambda url, patience_s: _google(url, patience_s).aio, format="gemini_interactions"
    ),
    "groq": Sdk(_stainless(groq.Groq), _stainless(groq.AsyncGroq)),
    "together": Sdk(_stainless(together.Together), _stainless(together.AsyncTogether)),
    "mistral": Sdk(lambda url, patience_s: mistralai.Mistral(api_key="none", server_url=url)),
    "ollama": Sdk(lambda url, patience_s: ollama.Client(url), lambda url, patience_s: ollama.AsyncClient(url)),
    "cohere": Sdk(
        lambda url, patience_s: cohere.ClientV2(
            api_key="none", base_url=url, max_retries=0, httpx_client=httpx.Client()
        ),
        lambda url, patience_s: cohere.AsyncClientV2(
            api_key="none", base_url=url, max_retries=0, httpx_client=httpx.AsyncClient()
        ),
    ),
}


JOBS = {"openai responses": SDKS["openai responses"], "google interactions": MORE["google interactions"]}
"""Those that make responses in the background."""


@dataclass(frozen=True, slots=True)
class Way:
    """An SDK, asked in one of four ways."""

    sdk: Sdk
    stream: bool
    asynchronous: bool

    @asynccontextmanager
    async def client(self, url: str, patience_s: float = 30) -> AsyncIterator[Any]:
        """The client, which is closed after."""
        make = self.sdk.amake if self.asynchronous else self.sdk.make
        assert make is not None
        made = make(url, patience_s)
        try:
            yield made
        finally:
            await _close(made)

    def provider(self, client: Any, **options: Any) -> Any:
        """The provider function over it."""
        return adapters.provider(client, stream=self.stream, format=self.sdk.format, **options)

    async def turn(
        self, client: Any, start: Request | Resumption, *, options: Mapping[str, Any] | None = None, **settings: Any
    ) -> TurnResult:
        """One turn of a controller that asks it."""
        asked = client
        if self.stream or options:
            asked = self.provider(client, **(options or {}))
        else:
            settings |= {"format": self.sdk.format or ""}  # the client itself, without a word about how it is asked
        if self.asynchronous:
            return await AsyncContinuationController(asked, **settings).run(start)
        return ContinuationController(asked, **settings).run(start)

    async def asked(self, client: Any, request: Request) -> ChatResponse:
        """One call of the provider function alone."""
        answer = self.provider(client)(request)
        if self.stream:
            answer = [item async for item in answer][-1] if self.asynchronous else list(answer)[-1]
        elif self.asynchronous:
            answer = await answer
        assert isinstance(answer, ChatResponse)
        return answer

    def request(self, **fields: Any) -> Request:
        """A question."""
        return Request(
            model=self.sdk.model,
            messages=(Message(role="user", content="Why is the sky blue?"),),
            **{"max_tokens": 400, **fields},
        )


async def _close(client: Any) -> None:
    """Close whatever an SDK calls its client."""
    for within in ("", "_client", "_client_wrapper.httpx_client.httpx_client", "sdk_configuration.client"):
        owner = client
        for name in filter(None, within.split(".")):
            owner = getattr(owner, name, None)
        closing = getattr(owner, "aclose", None) or getattr(owner, "close", None)
        if closing is not None:
            closed = closing()
            if asyncio.iscoroutine(closed):
                await closed


def _ways(sdks: Mapping[str, Sdk]) -> list[Any]:
    return [
        pytest.param(Way(sdk, stream, asynchronous), id=f"{name}{' async' * asynchronous}{' streamed' * stream}")
        for name, sdk in sdks.items()
        for asynchronous in (False, True)
        for stream in (False, True)
        if sdk.amake or not asynchronous
    ]


def _only(ways: list[Any], **wanted: bool) -> list[Any]:
    return [way for way in ways if all(getattr(way.values[0], name) is value for name, value in wanted.items())]


WAYS = _ways(SDKS)
each_way = pytest.mark.parametrize("way", WAYS)
each_stream = pytest.mark.parametrize("way", _only(WAYS, stream=True))
each_whole = pytest.mark.parametrize("way", _only(WAYS, stream=False))

SEARCH = Tool(
    name="search",
    description="Looks things up.",
    parameters={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
FIRST, REST = "Because of how light", " is scattered by the air, blue light most of all."


def connections(url: str) -> int:
    """How many connections to this server are established, as Linux sees them; other systems show none."""
    table, port = Path("/proc/self/net/tcp"), urlsplit(url).port
    lines = table.read_text().splitlines()[1:] if table.exists() else []
    return sum(line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01" for line in lines)


async def _all_closed(url: str) -> None:
    """Within a second, which is less than the stream would go on."""
    for _ in range(20):
        if not connections(url):
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"{connections(url)} connections are still open")


# --- A turn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [*WAYS, *_ways(MORE)])
@pytest.mark.behaviour(12)
@pytest.mark.behaviour(21)
async def test_a_cut_answer_is_continued_and_merged(way: Way) -> None:
    """Two calls of the SDK, one answer; the second call repeats the first, and adds to it."""
    provider = ScriptedProvider([truncate(FIRST, after=99), say(REST)], format=way.sdk.format or "openai_chat")
    with provider.serve() as url:
        async with way.client(url) as client:
            result = await way.turn(client, way.request())
    assert (result.text, result.outcome, result.complete, result.continuations) == (FIRST + REST, "completed", True, 1)
    first, second = provider.received
    assert first.stream is second.stream is way.stream
    assert second.request.messages[: len(first.request.messages)] == first.request.messages
    assert second.request.messages[-1].text == ContinuationPolicy().prompt
    assert (first.request.max_tokens, first.format) == (400, way.provider(client).format)


@each_way
@pytest.mark.behaviour(33)
async def test_a_tool_loop(way: Way) -> None:
    """The SDK's call is run, and its result goes back with it."""
    provider = ScriptedProvider([call("search", {"q": "sky"}, text="Let me see."), say("Blue.")])
    ran: list[Any] = []

    def search(asked: ToolCall) -> str:
        ran.append(asked.arguments)
        return "It is blue."

    with provider.serve() as url:
        async with way.client(url) as client:
            result = await way.turn(client, way.request(), tools=[(SEARCH, search)])
    assert (result.text, result.complete, ran) == ("Let me see.Blue.", True, [{"q": "sky"}])
    assert provider.requests[0].tools == (SEARCH,)
    said, answered = provider.requests[1].messages[-2:]
    assert [(asked.name, asked.arguments) for asked in said.tool_calls] == [("search", {"q": "sky"})]
    assert (answered.role, answered.text, answered.tool_call_id) == ("tool", "It is blue.", said.tool_calls[0].id)


@each_way
@pytest.mark.behaviour(19)
async def test_an_error_on_a_continuation_keeps_the_partial(way: Way) -> None:
    """The turn ends with what there is; the error is ours, the SDK's its cause; `resume()` goes on."""
    provider = ScriptedProvider([truncate(FIRST, after=99), fail(503, message="So it goes"), say(REST)])
    with provider.serve() as url:
        async with way.client(url) as client:
            failed = await way.turn(client, way.request())
            assert (failed.text, failed.outcome, failed.complete) == (FIRST, "provider_error", False)
            resumed = await way.turn(client, failed.resume())
    error = failed.error
    assert isinstance(error, ProviderUnavailable)
    assert (error.status, error.retryable, "So it goes" in str(error)) == (503, True, True)
    assert error.__cause__ is not None
    assert type(error.__cause__).__module__.split(".")[0] in ("openai", "anthropic", "google", "botocore")
    assert (resumed.text, resumed.complete) == (FIRST + REST, True)


INTERACTIONS = _ways({"google interactions": MORE["google interactions"]})


@pytest.mark.parametrize("way", _only([*WAYS, *INTERACTIONS], stream=True))
@pytest.mark.parametrize("tidy", [True, False], ids=["tidy", "broken"])
@pytest.mark.behaviour(3)
async def test_a_cut_stream(way: Way, tidy: bool) -> None:
    """What arrived is the answer, and says that it was cut: whether the SDK raises or is silent. `resume()` goes on."""
    provider = ScriptedProvider([cut(FIRST, after=3, tidy=tidy), say(REST)])
    with provider.serve() as url:
        async with way.client(url) as client:
            result = await way.turn(client, way.request())
            resumed = await way.turn(client, result.resume())
    assert (result.text, result.outcome, result.complete) == ("Because of how", "stream_cut", False)
    assert result.messages[-1].stop_reason is StopReason.MISSING
    assert resumed.text == "Because of how" + REST


@each_stream
@pytest.mark.behaviour(9)
async def test_an_error_within_a_stream(way: Way) -> None:
    """It is the provider's error, with what came before it."""
    provider = ScriptedProvider([fail(503, text=FIRST), say(REST)])
    with provider.serve() as url:
        async with way.client(url) as client:
            result = await way.turn(client, way.request())
            resumed = await way.turn(client, result.resume())
    assert (result.text, result.outcome) == (FIRST, "provider_error")
    assert isinstance(result.error, ProviderUnavailable)
    assert result.error.partial is not None
    assert result.error.partial.text == FIRST
    assert resumed.text == FIRST + REST


@pytest.mark.parametrize("way", _only(WAYS, stream=True, asynchronous=True))
@pytest.mark.behaviour(18)
async def test_cancelling_leaves_nothing_open(way: Way) -> None:
    """A stream that is cancelled half-way closes its connection at once, though the client stays open."""
    provider = ScriptedProvider([say(FIRST + REST).but(pace_s=0.2)])
    with provider.serve() as url:
        async with way.client(url) as client:
            items: list[Any] = []
            arrived = asyncio.Event()

            async def consume() -> None:
                controller = AsyncContinuationController(way.provider(client))
                async for item in controller.stream(way.request()):
                    items.append(item)
                    arrived.set()

            task = asyncio.create_task(consume())
            await asyncio.wait_for(arrived.wait(), 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as raised:
                await task
            assert raised.value.turn_result.outcome == "cancelled"  # type: ignore[attr-defined]  # the controller's
            await _all_closed(url)
    del task, raised
    gc.collect()  # what is left open warns, and a warning is an error


@each_stream
@pytest.mark.behaviour(18)
async def test_leaving_a_stream_closes_it(way: Way) -> None:
    """A provider's stream that is left after its first delta is closed, and so is the SDK's."""
    provider = ScriptedProvider([say(FIRST + REST).but(pace_s=0.2)])
    with provider.serve() as url:
        async with way.client(url) as client:
            stream = way.provider(client)(way.request())
            if way.asynchronous:
                assert isinstance(await anext(stream), Delta)
                await stream.aclose()
            else:
                assert isinstance(next(stream), Delta)
                stream.close()
            await asyncio.sleep(0.05)
            gc.collect()  # Google's async generators do not close those within them
            await _all_closed(url)


# --- Pauses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", _ways({name: SDKS[name] for name in ("google", "anthropic")}))
@pytest.mark.behaviour(13)
@pytest.mark.behaviour(14)
async def test_a_pause_is_driven_by_the_controller(way: Way) -> None:
    """Gemini's token goes back as it came, Anthropic's turn is sent again: by us, within the policy's limits."""
    provider = ScriptedProvider([pause("One "), pause("two "), say("three."), pause("One ")])
    with provider.serve() as url:
        async with way.client(url) as client:
            result = await way.turn(client, way.request())
            assert (result.text, result.complete, result.requests) == ("One two three.", True, 3)
            limited = await way.turn(client, way.request(), policy=ContinuationPolicy(continuation_max_resumes=0))
    assert limited.outcome == "resume_limit"


@pytest.mark.parametrize("way", _ways({"google": SDKS["google"]}))
@pytest.mark.behaviour(14)
async def test_tokens_that_the_sdk_may_follow_itself(way: Way) -> None:
    """Told to, Google's SDK does; then the controller is told that it does, and has one call."""
    provider = ScriptedProvider([pause("One "), say("two.")])
    with provider.serve() as url:
        async with way.client(url) as client:
            follows = {"automatic_continuation": True}
            assert way.provider(client, **follows).follows_tokens
            result = await way.turn(client, way.request(), options=follows)
    assert (result.text, result.iterations, len(provider.requests)) == ("One two.", 1, 2)


@pytest.mark.parametrize("way", _ways(JOBS))
@pytest.mark.behaviour(13)
async def test_a_response_in_the_background_is_fetched(way: Way) -> None:
    """It is fetched by its id through the SDK's own method, and not started twice."""
    format_name, extra = way.sdk.format or "", {"background": True}
    being_made = reason("in_progress")
    provider = ScriptedProvider([being_made, being_made.but(text="Blu"), say("Blue.")], format=format_name)
    with provider.serve() as url:
        async with way.client(url) as client:
            assert way.provider(client).retrieves
            result = await way.turn(client, way.request(extra=extra), sleep=_no_sleep)
    assert (result.text, result.complete) == ("Blue.", True)
    fetched = [received.request.retrieve for received in provider.received]
    assert fetched[0] is None
    assert None not in fetched[1:]


def _no_sleep(seconds: float) -> None:
    """Time passes at once."""


# --- What is sent -------------------------------------------------------------------------------------------------


EXTRA: dict[str, tuple[dict[str, Any], str]] = {
    "openai": ({"user": "u", "a_new_member": {"x": 1}}, "a_new_member"),
    "openai responses": ({"store": False, "a_new_member": 1}, "a_new_member"),
    "anthropic": ({"top_k": 4, "thinking": {"type": "disabled"}}, "top_k"),
    "google": ({"safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}], "aNew": 1}, "aNew"),
    "boto3": ({"additionalModelRequestFields": {"top_k": 5}}, "additionalModelRequestFields"),
}


@pytest.mark.parametrize("name", SDKS)
async def test_what_arrives_is_what_was_asked(name: str) -> None:
    """Tools, choice, format, settings, and members that the SDK has no argument for: the server reads our request."""
    way = Way(SDKS[name], stream=False, asynchronous=False)
    extra, newest = EXTRA[name]
    request = way.request(
        temperature=0.5,
        tools=(SEARCH,),
        tool_choice="search",
        format={"type": "object", "properties": {"a": {"type": "integer"}}},
        extra=extra,
    )
    provider = ScriptedProvider([say("{}")])
    with provider.serve() as url:
        async with way.client(url) as client:
            way.provider(client)(request)
    (received,) = provider.received
    speaks = format_of(received.format)
    assert newest in received.body
    found, sent = received.request, request_of(speaks, {"model": request.model, **speaks.encode(request)})
    if name == "google":  # its SDK has a spelling of its own within a tool
        assert found.extra.pop("tools")
    assert found == sent


async def test_a_member_of_generation_config_that_the_sdk_does_not_know() -> None:
    """It is merged into the body's, beside the host's own HTTP options."""
    way = Way(SDKS["google"], stream=False, asynchronous=False)
    provider = ScriptedProvider([say("ok")])
    with provider.serve() as url:
        async with way.client(url) as client:
            options = {"http_options": {"headers": {"x-team": "sky"}, "extra_body": {"b": 2}}, "top_p": 0.5}
            way.provider(client, **options)(way.request(extra={"generationConfig": {"aNewOne": 1}}))
    (received,) = provider.received
    assert received.body["generationConfig"] == {"maxOutputTokens": 400, "topP": 0.5, "aNewOne": 1}
    assert (received.body["b"], received.headers["x-team"]) == (2, "sky")


@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_options_are_arguments_of_every_call(name: str) -> None:
    """Headers, further body, a time limit: the SDK's own words; what a request says wins."""
    way = Way(SDKS[name], stream=False, asynchronous=False)
    provider = ScriptedProvider([truncate(FIRST, after=99), say(REST)])
    options = {"extra_headers": {"x-team": "sky"}, "extra_body": {"b": 2}, "temperature": 0.1, "timeout": 20}
    with provider.serve() as url:
        async with way.client(url) as client:
            await way.turn(client, way.request(temperature=0.9, extra={"a_new_member": 1}), options=options)
    for received in provider.received:
        assert received.headers["x-team"] == "sky"
        assert (received.body["b"], received.body["a_new_member"]) == (2, 1)
        assert received.request.temperature == 0.9


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.behaviour(23)
async def test_bytes_go_back_as_they_came(stream: bool) -> None:
    """Google's signatures and AWS's redacted thinking are bytes in their SDKs: what comes back is what was sent."""
    signed: dict[str, Any] = {"text": "Blue.", "thoughtSignature": "c2lnbmVk/+8="}
    history = Message(role="assistant", content="Blue.", blocks=Blocks("gemini", (signed,)))
    redacted: dict[str, Any] = {"reasoningContent": {"redactedContent": "c2VjcmV0/+8="}}
    image: dict[str, Any] = {"image": {"format": "png", "source": {"bytes": "aW1hZ2U="}}}
    secret = Message(
        role="assistant", content="Blue.", blocks=Blocks("bedrock_converse", (redacted, {"text": "Blue."}))
    )
    for name, messages in (
        ("google", (history,)),
        ("boto3", (Message(role="user", content=[image, {"text": "What?"}]), secret)),
    ):
        way = Way(SDKS[name], stream=stream, asynchronous=False)
        asked = way.request()
        request = asked.but(messages=(*messages, *asked.messages))
        provider = ScriptedProvider([say("ok")])
        with provider.serve() as url:
            async with way.client(url) as client:
                await way.turn(client, request)
        (received,) = provider.received
        member_name = "contents" if name == "google" else "messages"
        expected = format_of(received.format).encode(request)[member_name]
        found = received.body[member_name]
        if name == "google":  # which of the two alphabets of base64, is the SDK's choice
            found[0]["parts"][0]["thoughtSignature"] = found[0]["parts"][0]["thoughtSignature"].replace("_-8", "/+8")
        assert found == expected


# --- What SDKs raise ----------------------------------------------------------------------------------------------


ERRORS: dict[str, tuple[Reply, type[ProviderError], int | None, StopReason | None]] = {
    "window": (fail(400, "context_length_exceeded"), RequestRejected, 400, StopReason.CONTEXT_WINDOW_EXCEEDED),
    "key": (fail(401), RequestRejected, 401, None),
    "rate": (fail(429), ProviderUnavailable, 429, None),
    "failure": (fail(500), ProviderUnavailable, 500, None),
    "no answer": (hang_up(), ProviderUnavailable, None, None),
    "late": (say("late").but(delay_s=PATIENCE_S + 1.2), ProviderTimeout, None, None),
}


@each_way
@pytest.mark.parametrize("case", ERRORS)
async def test_what_an_sdk_raises_is_ours(way: Way, case: str) -> None:
    """Whose fault it is, the status, what it says of the stop; the SDK's exception is the cause."""
    reply, kind, status, reason = ERRORS[case]
    with ScriptedProvider([reply]).serve() as url:
        async with way.client(url, 30 if case != "late" else PATIENCE_S) as client:
            with pytest.raises(kind) as raised:
                await way.asked(client, way.request())
    error = raised.value
    assert type(error) is kind
    assert error.status == status
    assert error.provider == way.provider(client).provider
    assert (error.stop.reason if error.stop else None) is reason
    assert (error.request_id is not None) is (error.body is not None) is (status is not None)
    assert isinstance(error.__cause__, Exception)


@pytest.mark.parametrize("way", _only([*WAYS, *_ways(MORE)], stream=False))
@pytest.mark.parametrize("tidy", [True, False], ids=["half a body", "a lost body"])
async def test_a_body_that_is_cut_or_lost(way: Way, tidy: bool) -> None:
    """Half a JSON text is a DecodeError, a lost connection none; where boto3 is silent about either, it is one too."""
    provider = ScriptedProvider([cut(FIRST, tidy=tidy), truncate(FIRST, after=99), cut(FIRST, tidy=tidy)])
    silent = way.sdk is SDKS["boto3"]
    kind = DecodeError if tidy or silent else ProviderUnavailable
    with provider.serve() as url:
        async with way.client(url) as client:
            with pytest.raises(kind, match="was cut on its way" if silent else "its SDK cannot read|failed") as raised:
                await way.asked(client, way.request())
            result = await way.turn(client, way.request())
    assert (raised.value.__cause__ is None) is silent
    assert (result.text, result.outcome) == (FIRST, "provider_error")
    assert type(result.error) is kind


def test_anything_else_passes() -> None:
    """What is neither an answer nor a lost connection is the host's own."""

    def refuse(request: Any) -> None:
        raise LookupError("the host's hook")

    import httpx2

    hooked = openai.OpenAI(api_key="none", http_client=httpx2.Client(event_hooks={"request": [refuse]}))
    request = Request(model="m", messages=(Message(role="user", content="hi"),))
    with hooked, pytest.raises(LookupError, match="the host's hook"):
        adapters.provider(hooked)(request)
    with closing(_boto("http://127.0.0.1:9", 1)) as client, pytest.raises(Exception, match="Unknown parameter"):
        adapters.provider(client)(request.but(extra={"aNewMember": 1}))


# --- Who is asked -------------------------------------------------------------------------------------------------


def _client(kind: Any, **settings: Any) -> Any:
    return kind(**{"api_key": "none", **settings})


HOMES: dict[str, tuple[Callable[[], Any], tuple[str, str, str]]] = {
    "openai": (lambda: _client(openai.OpenAI), ("openai_chat", "openai", "")),
    "its async": (lambda: _client(openai.AsyncOpenAI), ("openai_chat", "openai", "")),
    "azure": (
        lambda: _client(openai.AzureOpenAI, azure_endpoint="https://r.openai.azure.com", api_version="2024-10-21"),
        ("openai_chat", "azure.ai.openai", "azure"),
    ),
    "groq by address": (
        lambda: _client(openai.OpenAI, base_url="https://api.groq.com/openai/v1"),
        ("openai_chat", "groq", "groq"),
    ),
    "a server of one's own": (
        lambda: _client(openai.OpenAI, base_url="http://localhost:8000/v1"),
        ("openai_chat", "openai", "compatible"),
    ),
    "anthropic": (lambda: _client(anthropic.Anthropic), ("anthropic", "anthropic", "")),
    "anthropic on bedrock": (
        lambda: anthropic.AnthropicBedrock(aws_region="eu-west-1", aws_access_key="a", aws_secret_key="b"),
        ("anthropic", "aws.bedrock", ""),
    ),
    "anthropic on vertex": (
        lambda: anthropic.AnthropicVertex(region="r", project_id="p", access_token="t"),
        ("anthropic", "gcp.vertex_ai", ""),
    ),
    "gemini": (lambda: _client(genai.Client), ("gemini", "gcp.gemini", "")),
    "vertex": (lambda: _client(genai.Client, vertexai=True), ("gemini", "gcp.vertex_ai", "vertex")),
    "bedrock": (lambda: _boto("http://127.0.0.1:9", 1), ("bedrock_converse", "aws.bedrock", "")),
    "mistral": (lambda: _client(mistralai.Mistral), ("openai_chat", "mistral_ai", "mistral")),
    "together": (lambda: _client(together.Together), ("openai_chat", "together", "together")),
    "ollama": (lambda: ollama.Client(), ("ollama", "ollama", "")),
    "a host's own class": (
        lambda: _client(type("Ours", (openai.OpenAI,), {})),
        ("openai_chat", "openai", ""),
    ),
}


@pytest.mark.parametrize("name", HOMES)
async def test_who_is_asked_is_told_by_the_client(name: str) -> None:
    """The format by its class, provider and dialect by its class or address."""
    make, expected = HOMES[name]
    client = make()
    asked: Any = adapters.provider(client)
    assert (asked.format, asked.provider, asked.dialect) == expected
    await _close(client)


def test_a_dialect_can_be_told() -> None:
    """vLLM behind OpenAI's SDK: it takes a prefill, and its limit is `max_tokens` elsewhere."""
    with _client(openai.OpenAI, base_url="http://localhost:8000/v1") as client:
        assert adapters.provider(client, dialect="vllm").dialect == "vllm"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("client", "settings", "says"),
    [
        pytest.param(42, {}, "not a value of type int; known are the clients of openai, anthropic", id="a number"),
        pytest.param(openai, {}, "not a value of type module", id="a module"),
        pytest.param("openai", {}, "not a value of type str", id="a name"),
        pytest.param(lambda: None, {"timeout": 3}, "is a provider function", id="settings of a function"),
        pytest.param(lambda: None, {"stream": True}, "is a provider function", id="a function to stream"),
        pytest.param(lambda: None, {"format": "telegraph"}, "no format is called 'telegraph'", id="no format"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(client: Any, settings: dict[str, Any], says: str) -> None:
    """The error says what to do instead."""
    with pytest.raises(UsageError, match=says):
        adapters.provider(client, **settings)


def _methods() -> list[Any]:
    return [
        _client(openai.OpenAI).chat.completions.create,
        _client(openai.AsyncOpenAI).responses.create,
        _client(anthropic.Anthropic).messages.create,
        _client(genai.Client).models.generate_content,
        _boto("http://127.0.0.1:9", 1).converse,
        ollama.Client().chat,
        openai.OpenAI,
    ]


def test_a_clients_method_is_refused_at_once() -> None:
    """It takes no Request. The error says what to hand over, to the controllers too; a subclass's own method may."""

    class Ours(openai.OpenAI):
        def ask(self, request: Request) -> ChatResponse:
            raise AssertionError("never called")

    for method in _methods():
        for refuses in (ContinuationController, AsyncContinuationController, adapters.provider):
            with pytest.raises(UsageError, match="hand over the SDK's client itself, or adapters"):
                refuses(method)
    ContinuationController(_client(Ours).ask)
    ContinuationController(adapters.provider(_methods()[0], format="openai_chat"))


def test_a_format_that_the_sdk_does_not_speak() -> None:
    """It names those that it does."""
    with _client(anthropic.Anthropic) as client, pytest.raises(UsageError, match="it is in: anthropic"):
        adapters.provider(client, format="openai_chat")


def test_a_client_of_another_aws_service() -> None:
    """Only bedrock-runtime is known."""
    other = boto3.session.Session().client(
        "s3", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    with closing(other), pytest.raises(UsageError, match="bedrock-runtime"):
        adapters.provider(other)


def test_no_sdk_is_imported() -> None:
    """Knowing them costs nothing."""
    code = (
        "import sys, endturn.adapters, endturn.controller\n"
        "print([m for m in ('openai', 'anthropic', 'google.genai', 'botocore', 'httpx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


# --- A client itself, functions, ours -----------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_function_of_a_body(stream: bool) -> None:
    """One that takes a body's members, and gives the format's own answer: sync or async, objects or dictionaries."""
    way = Way(SDKS["openai"], stream=stream, asynchronous=False)
    provider = ScriptedProvider([truncate(FIRST, after=99), say(REST)] * 2)

    with provider.serve() as url:
        async with _client(openai.AsyncOpenAI, base_url=f"{url}/v1") as aclient:
            asked: Any = adapters.provider(aclient.chat.completions.create, format="openai_chat", stream=stream)
            result = await AsyncContinuationController(asked).run(way.request(extra={"a_new_member": 1}))
        with _client(openai.OpenAI, base_url=f"{url}/v1") as client:

            def complete(**body: Any) -> Any:
                answer = client.chat.completions.create(**body)
                return (chunk.to_dict() for chunk in answer) if stream else answer.to_dict()

            plain = adapters.provider(complete, format="openai_chat", stream=stream)
            again = ContinuationController(plain).run(way.request())
    assert result.text == again.text == FIRST + REST


def test_a_provider_function_is_given_back() -> None:
    """As are our clients; streamed, their method for it."""

    def ask(request: Request) -> ChatResponse:
        raise AssertionError("never called")

    assert adapters.provider(ask) is ask
    with Client("openai", api_key="none") as client:
        assert adapters.provider(client) is client
        assert adapters.provider(client, stream=True) == client.stream
    other = AsyncClient("openai", api_key="none", http=httpx.AsyncClient())
    assert adapters.provider(other, stream=True) == other.stream
    provider = ScriptedProvider([truncate(FIRST, after=99), say(REST)])
    with provider.serve() as url, Client("openai", api_key="none", base_url=f"{url}/v1") as client:
        controller = ContinuationController(adapters.provider(client, stream=True))
        result = controller.run(Request(model="m", messages=(Message(role="user", content="hi"),)))
    assert result.text == FIRST + REST


# --- Announcing ---------------------------------------------------------------------------------------------------


@each_way
@pytest.mark.behaviour(42)
async def test_each_call_is_announced_once(way: Way) -> None:
    """With the SDKs instrumented, a turn of two calls counts two: by the SDK's layer, or by the controller's."""
    reader = InMemoryMetricReader()
    provider = ScriptedProvider([truncate(FIRST, after=99), say(REST)])
    endturn.instrument(meter_provider=MeterProvider(metric_readers=[reader]))
    try:
        with provider.serve() as url:
            async with way.client(url) as client:
                result = await way.turn(client, way.request())
    finally:
        endturn.uninstrument()
    assert result.continuations == 1
    assert _counted(reader) == {"max_tokens": 1, "end_turn": 1}


def _counted(reader: InMemoryMetricReader) -> dict[Any, Any]:
    """The counter of responses, by their stop reason; without the zeros that it begins with."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (point.attributes or {}).get("endturn.stop.reason"): getattr(point, "value", 0)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "endturn.responses"
        for point in metric.data.data_points
        if getattr(point, "value", 0)
    }
