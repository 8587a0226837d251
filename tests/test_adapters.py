"""Real SDKs, asked by the controllers through the adapters, against a scripted server: turns go as with our client."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anthropic
import groq
import httpx
import httpx2
import mistralai.client as mistralai
import ollama
import openai
import pytest
import together
from google import genai

from endturn import adapters
from endturn.chat import Blocks, ChatResponse, Delta, Message, Request, Tool, ToolCall
from endturn.clients import AsyncClient, Client
from endturn.continuation.policy import PROMPT, ContinuationPolicy
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
    partial_call,
    pause,
    reason,
    say,
    think,
    truncate,
)
from endturn.stop import StopReason
from tests.support.announced import observed

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


def _cohere(kind: Any, http: Any) -> Make:
    return lambda url, patience_s: kind(api_key="none", base_url=url, max_retries=0, httpx_client=http())


def _stainless(kind: Any, path: str = "") -> Make:
    return lambda url, patience_s: kind(api_key="none", base_url=url + path, max_retries=0, timeout=patience_s)


GOOGLE = _google, lambda url, patience_s: _google(url, patience_s).aio
OPENAI = _stainless(openai.OpenAI, "/v1"), _stainless(openai.AsyncOpenAI, "/v1")
SDKS = {
    "openai": Sdk(*OPENAI),
    "openai responses": Sdk(*OPENAI, format="openai_responses"),
    # A model that takes no prefill, so that the rest is asked for as elsewhere.
    "anthropic": Sdk(_stainless(anthropic.Anthropic), _stainless(anthropic.AsyncAnthropic), model="claude-opus-5"),
    "google": Sdk(*GOOGLE),
    "boto3": Sdk(_boto),
}
MORE = {
    "google interactions": Sdk(*GOOGLE, format="gemini_interactions"),
    "groq": Sdk(_stainless(groq.Groq), _stainless(groq.AsyncGroq)),
    "together": Sdk(_stainless(together.Together), _stainless(together.AsyncTogether)),
    "mistral": Sdk(lambda url, patience_s: mistralai.Mistral(api_key="none", server_url=url)),
    "ollama": Sdk(lambda url, patience_s: ollama.Client(url), lambda url, patience_s: ollama.AsyncClient(url)),
    "cohere": Sdk(_cohere(cohere.ClientV2, httpx.Client), _cohere(cohere.AsyncClientV2, httpx.AsyncClient)),
}


def _ours(name: str, path: str = "", **more: str) -> Sdk:
    return Sdk(
        lambda url, patience_s: Client(name, api_key="k", base_url=url + path),
        lambda url, patience_s: AsyncClient(name, api_key="k", base_url=url + path),
        **more,
    )


OURS = {"our client": _ours("openai", "/v1"), "our client, anthropic": _ours("anthropic", model="claude-opus-5")}
JOBS = {"openai responses": SDKS["openai responses"], "google interactions": MORE["google interactions"]}
"""Those that make responses in the background."""


@dataclass(frozen=True, slots=True)
class Way:
    """An SDK, asked in one of four ways."""

    sdk: Sdk
    stream: bool
    asynchronous: bool

    @asynccontextmanager
    async def asking(self, scripted: ScriptedProvider, patience_s: float = 30) -> AsyncIterator[Any]:
        """A client of a scripted provider, which is closed after."""
        make = self.sdk.amake if self.asynchronous else self.sdk.make
        assert make is not None
        with scripted.serve() as url:
            client = make(url, patience_s)
            try:
                yield client
            finally:
                await _close(client)

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
whole_and_streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

SEARCH = Tool(
    name="search",
    description="Looks things up.",
    parameters={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
FIRST, REST = "Because of how light", " is scattered by the air, blue light most of all."


# --- A turn -------------------------------------------------------------------------------------------------------


class Situation(NamedTuple):
    """What a provider says, and what a turn makes of it.

    Attributes:
        text, outcome: where the turn ends first; whole: its text when it has been taken up again.
        counted: the responses by their stop reason, when it has.
        streamed: it happens to streams alone.
    """

    script: list[Reply]
    text: str
    outcome: str
    whole: str
    counted: Mapping[str, int]
    streamed: bool = False


CUT, HALF, WHOLE = truncate(FIRST, after=99), "Because of how", FIRST + REST
ASKS = call("search", {"q": "sky"})
LOST = {"missing": 1, "end_turn": 1}
SITUATIONS = {
    "a cut answer": Situation([CUT, say(REST)], WHOLE, "completed", "", {"max_tokens": 1, "end_turn": 1}),
    "a tool loop": Situation(
        [ASKS.but(text="Let me see."), say("Blue.")],
        "Let me see.Blue.", "completed", "", {"tool_call": 1, "end_turn": 1},
    ),
    "a cut tool call": Situation(
        [partial_call("search", {"q": "sky"}), ASKS, say("Blue.")],
        "Blue.", "completed", "", {"max_tokens": 1, "tool_call": 1, "end_turn": 1},
    ),
    "a failed continuation": Situation(
        [CUT, fail(503, message="So it goes"), say(REST)],
        FIRST, "provider_error", WHOLE, {"max_tokens": 1, "error": 1, "end_turn": 1},
    ),
    "a stream that ends early": Situation(
        [cut(FIRST, after=3, tidy=True), say(REST)], HALF, "stream_cut", HALF + REST, LOST, True
    ),
    "a stream that breaks": Situation([cut(FIRST, after=3), say(REST)], HALF, "stream_cut", HALF + REST, LOST, True),
    "an error within a stream": Situation(
        [fail(503, text=FIRST), say(REST)], FIRST, "provider_error", WHOLE, {"error": 1, "end_turn": 1}, True
    ),
}  # fmt: skip


def _situations() -> list[Any]:
    interactions = {name: sdk for name, sdk in MORE.items() if name == "google interactions"}
    return [
        pytest.param(way, situation, id=f"{name}-{known.id}")
        for name, situation in SITUATIONS.items()
        for sdks in [
            MORE if name == "a cut answer" else interactions if "a stream" in name else {},
            SDKS,
            OURS,
        ]
        for known in _ways(sdks)
        for way in known.values
        if way.stream or not situation.streamed
    ]


@pytest.mark.parametrize(("way", "situation"), _situations())
@pytest.mark.behaviour(3, 9, 12, 19, 21, 33, 42)
async def test_a_turn(way: Way, situation: Situation) -> None:
    """It goes as the script has it, can be taken up where it ended, and every call is counted once by its reason."""
    provider = ScriptedProvider(situation.script, format=way.sdk.format or "openai_chat")
    ran: list[Any] = []

    def search(asked: ToolCall) -> str:
        ran.append(asked.arguments)
        return "It is blue."

    settings: dict[str, Any] = {"tools": [(SEARCH, search)]} if "tool_call" in situation.counted else {}
    with observed() as seen:
        async with way.asking(provider) as client:
            result = await way.turn(client, way.request(), **settings)
            assert (result.text, result.outcome) == (situation.text, situation.outcome)
            if not result.complete:
                resumed = await way.turn(client, result.resume())
                assert (resumed.text, resumed.complete) == (situation.whole, True)
    assert Counter(seen.reasons()) == situation.counted
    first, *others = provider.received
    assert {each.stream for each in provider.received} == {way.stream}
    assert {each.request.max_tokens for each in provider.received} >= {400}
    for each in others:
        question = each.request.messages[0]
        if way.sdk is SDKS["boto3"] and situation is SITUATIONS["a cut tool call"]:
            # Converse wants roles to alternate: with no answer between them, two user messages go as one.
            blocks: Any = question.content
            question = question.but(content=blocks[0]["text"])
        assert question == first.request.messages[0]
    if settings:
        assert ran == [{"q": "sky"}]
        assert first.request.tools == (SEARCH,)
        said, answered = provider.requests[-1].messages[-2:]
        assert [(asked.name, asked.arguments) for asked in said.tool_calls] == [("search", {"q": "sky"})]
        assert (answered.role, answered.text, answered.tool_call_id) == ("tool", "It is blue.", said.tool_calls[0].id)
    elif situation.outcome == "completed":
        assert others[0].request.messages[-1].text == PROMPT
    if situation.outcome == "provider_error":
        error = result.error
        assert isinstance(error, ProviderUnavailable)
        assert error.retryable
        assert (error.partial is not None) is situation.streamed
        if not situation.streamed:
            assert (error.status, "So it goes" in str(error)) == (503, True)
            ours = way.sdk in OURS.values()
            assert ours or is_of_an_sdk(error.__cause__)


def is_of_an_sdk(error: object) -> bool:
    return type(error).__module__.split(".")[0] in ("openai", "anthropic", "google", "botocore")


@whole_and_streamed
@pytest.mark.behaviour(23)
async def test_signed_thinking_goes_back_before_its_text(stream: bool) -> None:
    """Block by block, as Anthropic gave it."""
    way = Way(OURS["our client, anthropic"], stream=stream, asynchronous=False)
    provider = ScriptedProvider([think("Let me think.", text=FIRST).but(stop=truncate("x").stop), say(REST)])
    async with way.asking(provider) as client:
        assert (await way.turn(client, way.request())).text == FIRST + REST
    thinking, text = provider.received[1].body["messages"][1]["content"]
    assert (thinking["type"], bool(thinking["signature"]), text["type"]) == ("thinking", True, "text")


# --- Leaving ------------------------------------------------------------------------------------------------------


def connections(url: str) -> int:
    """How many connections to this server are established, as Linux sees them; other systems show none."""
    table, port = Path("/proc/self/net/tcp"), urlsplit(url).port
    lines = table.read_text().splitlines()[1:] if table.exists() else []
    return sum(line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01" for line in lines)


LEFT = [
    pytest.param(*each.values, cancelled, id=f"{each.id}-{'cancelled' if cancelled else 'left'}")
    for each in _only(WAYS, stream=True)
    for cancelled in (False, True)
    if not cancelled or each.values[0].asynchronous
]


@pytest.mark.parametrize(("way", "cancelled"), LEFT)
@pytest.mark.behaviour(18)
async def test_a_stream_that_is_left_is_closed(way: Way, cancelled: bool) -> None:
    """By its consumer or by a cancelled task: its connection is closed at once, though the client stays open."""
    provider = ScriptedProvider([say(FIRST + REST).but(pace_s=0.2)])
    arrived = asyncio.Event()

    async def consume(client: Any) -> None:
        async for _ in AsyncContinuationController(way.provider(client)).stream(way.request()):
            arrived.set()

    async with way.asking(provider) as client:
        if cancelled:
            task = asyncio.create_task(consume(client))
            await asyncio.wait_for(arrived.wait(), 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as raised:
                await task
            assert raised.value.turn_result.outcome == "cancelled"  # type: ignore[attr-defined]
            del task, raised
        else:
            stream = way.provider(client)(way.request())
            assert isinstance(await anext(stream) if way.asynchronous else next(stream), Delta)
            await stream.aclose() if way.asynchronous else stream.close()
        url = f"http://{provider.received[0].headers['host']}"
        await asyncio.sleep(0.05)
        gc.collect()  # Google's async generators do not close those within them; what is left open warns
        for _ in range(20):  # within a second, which is less than the stream would go on
            if not connections(url):
                break
            await asyncio.sleep(0.05)
        assert connections(url) == 0


# --- Pauses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", _ways({name: SDKS[name] for name in ("google", "anthropic")}))
@pytest.mark.behaviour(13, 14)
async def test_a_pause_is_driven_by_the_controller(way: Way) -> None:
    """Gemini's token goes back as it came, Anthropic's turn is sent again: by us, within the policy's limits.

    Told to, Google's SDK follows tokens itself; then the controller is told that it does, and has one call.
    """
    provider = ScriptedProvider(
        [pause("One "), pause("two "), say("three."), pause("One "), pause("One "), say("two.")]
    )
    async with way.asking(provider) as client:
        result = await way.turn(client, way.request())
        assert (result.text, result.complete, result.requests) == ("One two three.", True, 3)
        limited = await way.turn(client, way.request(), policy=ContinuationPolicy(continuation_max_resumes=0))
        assert limited.outcome == "resume_limit"
        if way.sdk is SDKS["google"]:
            follows = {"automatic_continuation": True}
            assert way.provider(client, **follows).follows_tokens
            result = await way.turn(client, way.request(), options=follows)
            assert (result.text, result.iterations, len(provider.requests)) == ("One two.", 1, 6)


@pytest.mark.parametrize("way", _ways(JOBS))
@pytest.mark.behaviour(13)
async def test_a_response_in_the_background_is_fetched(way: Way) -> None:
    """It is fetched by its id through the SDK's own method, and not started twice."""
    being_made = reason("in_progress")
    script = [being_made, being_made.but(text="Blu"), say("Blue.")]
    provider = ScriptedProvider(script, format=way.sdk.format or "")
    async with way.asking(provider) as client:
        assert way.provider(client).retrieves
        result = await way.turn(client, way.request(extra={"background": True}), sleep=lambda seconds: None)
    assert (result.text, result.complete) == ("Blue.", True)
    fetched = [received.request.retrieve for received in provider.received]
    assert fetched[0] is None
    assert None not in fetched[1:]


# --- What is sent -------------------------------------------------------------------------------------------------


EXTRA: dict[str, dict[str, Any]] = {
    "openai": {"user": "u", "a_new_member": {"x": 1}},
    "openai responses": {"store": False, "a_new_member": 1},
    "anthropic": {"thinking": {"type": "disabled"}, "top_k": 4},
    "google": {"safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}], "aNew": 1},
    "boto3": {"additionalModelRequestFields": {"top_k": 5}},
}


@pytest.mark.parametrize("name", SDKS)
async def test_what_arrives_is_what_was_asked(name: str) -> None:
    """Tools, choice, format, settings, and members that the SDK has no argument for: the server reads our request."""
    way = Way(SDKS[name], stream=False, asynchronous=False)
    form = {"type": "object", "properties": {"a": {"type": "integer"}}}
    request = way.request(temperature=0.5, tools=(SEARCH,), tool_choice="search", format=form, extra=EXTRA[name])
    provider = ScriptedProvider([say("{}")])
    async with way.asking(provider) as client:
        way.provider(client)(request)
    (received,) = provider.received
    speaks = format_of(received.format)
    assert [*EXTRA[name]][-1] in received.body
    found, sent = received.request, request_of(speaks, {"model": request.model, **speaks.encode(request)})
    if name == "google":  # its SDK has a spelling of its own within a tool
        assert found.extra.pop("tools")
    assert found == sent


@pytest.mark.parametrize(
    ("name", "options", "extra"),
    [
        ("google", {"http_options": {"headers": {"x-team": "sky"}, "extra_body": {"b": 2}}, "top_p": 0.5},
         {"generationConfig": {"aNewOne": 1}}),
        *((name, {"extra_headers": {"x-team": "sky"}, "extra_body": {"b": 2}, "temperature": 0.1, "timeout": 20},
           {"a_new_member": 1}) for name in ("openai", "anthropic")),
    ],
)  # fmt: skip
async def test_options_are_arguments_of_every_call(name: str, options: dict[str, Any], extra: dict[str, Any]) -> None:
    """Headers, further body, a time limit: the SDK's own words; what a request says wins, and is merged into theirs."""
    way = Way(SDKS[name], stream=False, asynchronous=False)
    provider = ScriptedProvider([CUT, say(REST)])
    async with way.asking(provider) as client:
        await way.turn(client, way.request(temperature=0.9, extra=extra), options=options)
    for received in provider.received:
        assert (received.headers["x-team"], received.body["b"], received.request.temperature) == ("sky", 2, 0.9)
        assert extra.items() <= received.body.items() or received.body["generationConfig"] == {
            "maxOutputTokens": 400, "temperature": 0.9, "topP": 0.5, "aNewOne": 1,
        }  # fmt: skip


SIGNED: dict[str, Any] = {"text": "Blue.", "thoughtSignature": "c2lnbmVk/+8="}
REDACTED: dict[str, Any] = {"reasoningContent": {"redactedContent": "c2VjcmV0/+8="}}
IMAGE: dict[str, Any] = {"image": {"format": "png", "source": {"bytes": "aW1hZ2U="}}}


@whole_and_streamed
@pytest.mark.parametrize(
    ("name", "format", "blocks", "question", "member"),
    [
        ("google", "gemini", (SIGNED,), "Why?", "contents"),
        ("boto3", "bedrock_converse", (REDACTED, {"text": "Blue."}), [IMAGE, {"text": "What?"}], "messages"),
    ],
)
@pytest.mark.behaviour(23)
async def test_bytes_go_back_as_they_came(
    name: str, format: str, blocks: tuple[Any, ...], question: Any, member: str, stream: bool
) -> None:
    """Google's signatures and AWS's redacted thinking are bytes in their SDKs: what comes back is what was sent."""
    way = Way(SDKS[name], stream=stream, asynchronous=False)
    said = Message(role="assistant", content="Blue.", blocks=Blocks(format, blocks))
    asked = way.request()
    request = asked.but(messages=(Message(role="user", content=question), said, *asked.messages))
    provider = ScriptedProvider([say("ok")])
    async with way.asking(provider) as client:
        await way.turn(client, request)
    (received,) = provider.received
    found = json.dumps(received.body[member]).replace("_-8", "/+8")  # which alphabet of base64, is the SDK's choice
    assert json.loads(found) == format_of(received.format).encode(request)[member]


# --- What SDKs raise ----------------------------------------------------------------------------------------------


ERRORS: dict[str, tuple[Reply, type[ProviderError], int | None, StopReason | None]] = {
    "window": (fail(400, "context_length_exceeded"), RequestRejected, 400, StopReason.CONTEXT_WINDOW_EXCEEDED),
    "key": (fail(401), RequestRejected, 401, None),
    "rate": (fail(429), ProviderUnavailable, 429, None),
    "failure": (fail(500), ProviderUnavailable, 500, None),
    "no answer": (hang_up(), ProviderUnavailable, None, None),
    "late": (say("late").but(delay_s=PATIENCE_S + 1.2), ProviderTimeout, None, None),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", ERRORS)
async def test_what_an_sdk_raises_is_ours(way: Way, case: str) -> None:
    """Whose fault it is, the status, what it says of the stop; the SDK's exception is the cause."""
    reply, kind, status, reason = ERRORS[case]
    async with way.asking(ScriptedProvider([reply]), 30 if case != "late" else PATIENCE_S) as client:
        with pytest.raises(kind) as raised:
            await way.asked(client, way.request())
        assert raised.value.provider == way.provider(client).provider
    error = raised.value
    assert (type(error), error.status, error.stop and error.stop.reason) == (kind, status, reason)
    assert (error.request_id is not None) is (error.body is not None) is (status is not None)
    assert isinstance(error.__cause__, Exception)


@pytest.mark.parametrize("way", _only([*WAYS, *_ways(MORE)], stream=False))
@pytest.mark.parametrize("tidy", [True, False], ids=["half a body", "a lost body"])
async def test_a_body_that_is_cut_or_lost(way: Way, tidy: bool) -> None:
    """Half a JSON text is a DecodeError, a lost connection none; where boto3 is silent about either, it is one too."""
    silent = way.sdk is SDKS["boto3"]
    kind = DecodeError if tidy or silent else ProviderUnavailable
    async with way.asking(ScriptedProvider([CUT, cut(FIRST, tidy=tidy)])) as client:
        result = await way.turn(client, way.request())
    assert (result.text, result.outcome, type(result.error)) == (FIRST, "provider_error", kind)
    assert re.search("was cut on its way" if silent else "its SDK cannot read|failed", str(result.error))
    assert (result.error is None or result.error.__cause__ is None) is silent


ASKED = Request(model="m", messages=(Message(role="user", content="hi"),))


def test_anything_else_passes() -> None:
    """What is neither an answer nor a lost connection is the host's own."""

    def refuse(request: Any) -> None:
        raise LookupError("the host's hook")

    hooked = openai.OpenAI(api_key="none", http_client=httpx2.Client(event_hooks={"request": [refuse]}))
    with hooked, pytest.raises(LookupError, match="the host's hook"):
        adapters.provider(hooked)(ASKED)
    with closing(_boto("http://127.0.0.1:9", 1)) as client, pytest.raises(Exception, match="Unknown parameter"):
        adapters.provider(client)(ASKED.but(extra={"aNewMember": 1}))


# --- Who is asked -------------------------------------------------------------------------------------------------


def _client(kind: Any, **settings: Any) -> Any:
    return kind(**{"api_key": "none", **settings})


def test_a_clients_method_is_refused_at_once() -> None:
    """It takes no Request. The error says what to hand over, to the controllers too; a subclass's own method may."""

    class Ours(openai.OpenAI):
        def ask(self, request: Request) -> ChatResponse:
            raise AssertionError("never called")

    methods = [
        _client(openai.OpenAI).chat.completions.create,
        _client(openai.AsyncOpenAI).responses.create,
        _client(anthropic.Anthropic).messages.create,
        _client(genai.Client).models.generate_content,
        _boto("http://127.0.0.1:9", 1).converse,
        ollama.Client().chat,
        openai.OpenAI,
    ]
    for method in methods:
        for refuses in (ContinuationController, AsyncContinuationController, adapters.provider):
            with pytest.raises(UsageError, match="hand over the SDK's client itself, or adapters"):
                refuses(method)
    ours: Any = adapters.provider(_client(Ours))
    assert (ours.format, ours.provider) == ("openai_chat", "openai")
    ContinuationController(_client(Ours).ask)
    ContinuationController(adapters.provider(methods[0], format="openai_chat"))


# --- A client itself, functions, ours -----------------------------------------------------------------------------


@whole_and_streamed
async def test_a_function_of_a_body(stream: bool) -> None:
    """One that takes a body's members, and gives the format's own answer: sync or async, objects or dictionaries."""
    request = ASKED.but(max_tokens=400, extra={"a_new_member": 1})
    with ScriptedProvider([CUT, say(REST)] * 2).serve() as url:
        async with _client(openai.AsyncOpenAI, base_url=f"{url}/v1") as aclient:
            asked: Any = adapters.provider(aclient.chat.completions.create, format="openai_chat", stream=stream)
            result = await AsyncContinuationController(asked).run(request)
        with _client(openai.OpenAI, base_url=f"{url}/v1") as client:

            def complete(*, a_new_member: int, **body: Any) -> Any:
                answer = client.chat.completions.create(**body)
                return (chunk.to_dict() for chunk in answer) if stream else answer.to_dict()

            plain = adapters.provider(complete, format="openai_chat", stream=stream)
            again = ContinuationController(plain).run(request)
    assert result.text == again.text == FIRST + REST


def test_a_provider_function_is_given_back() -> None:
    """As are our clients; streamed, their method for it."""
    assert adapters.provider(print) is print
    with Client("openai", api_key="none") as client:
        assert adapters.provider(client) is client
        assert adapters.provider(client, stream=True) == client.stream
    other = AsyncClient("openai", api_key="none", http=httpx.AsyncClient())
    assert adapters.provider(other, stream=True) == other.stream
