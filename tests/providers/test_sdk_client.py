"""Every client that a controller asks, against a scripted server: real SDKs through the adapters, and our own.

A situation is what a provider says; each is played by every client, whole and streamed, sync and async.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
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

from endturn.continuation.controller import AsyncContinuationController, ContinuationController, TurnResult
from endturn.continuation.policy import PROMPT, ContinuationPolicy
from endturn.continuation.result import Resumption
from endturn.errors import DecodeError, ProviderError, ProviderTimeout, ProviderUnavailable, RequestRejected, UsageError
from endturn.formats import FORMATS, format_of
from endturn.formats.request_body import request_of
from endturn.providers import sdk_client
from endturn.providers.http_client import AsyncClient, Client
from endturn.testing.scripted import (
    Reply,
    ScriptedProvider,
    call,
    cut,
    empty,
    fail,
    hang_up,
    partial_call,
    pause,
    reason,
    refuse,
    say,
    think,
    truncate,
)
from endturn.vocabulary.messages import Blocks, ChatResponse, Delta, Message, Request, Tool, ToolCall, Usage
from endturn.vocabulary.stop import StopReason
from tests.instrumentation import clients
from tests.providers.test_http_client import made
from tests.support.announced import observed

# Neither typed nor with stubs; nor is the SDK's v2 client, to the checker.
boto3: Any = import_module("boto3")
cohere: Any = import_module("cohere")

pytestmark = [
    # Where aiohttp is installed, Google's SDK asks through a class of its own that aiohttp warns of.
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:some_new_value is not a valid FinishReason"),  # it makes one
]

PATIENCE_S = 0.2
"""How long the clients wait where a test wants them to lose patience."""

Make = Callable[[str, float, int], Any]


@dataclass(frozen=True, slots=True)
class Sdk:
    """An SDK's clients, of a URL, how many seconds they wait, how often they try; `told` which format to speak."""

    make: Make
    amake: Make | None = None
    format: str = "openai_chat"
    told: bool = False
    model: str = "some-model"
    dialect: str = ""


def _both(make: clients.Make, kind: Any, akind: Any) -> tuple[Make, Make]:
    return partial(make, kind), partial(make, akind)


def _cohere(kind: Any, url: str, patience_s: float, tries: int) -> Any:
    return kind(api_key="none", base_url=url, max_retries=tries - 1, timeout=patience_s)


def _ours(format: str) -> clients.Make:
    return lambda kind, url, patience_s, tries: made(kind, format, url, patience_s)


OPENAI = _both(clients.sdk("/v1"), openai.OpenAI, openai.AsyncOpenAI)
GOOGLE = _both(clients.google, genai.Client, lambda **given: genai.Client(**given).aio)
# Models that take no prefill, so that the rest is asked for as elsewhere.
MODELS = {"anthropic": "claude-opus-5"}
SDKS = {
    "openai": Sdk(*OPENAI),
    "openai responses": Sdk(*OPENAI, "openai_responses", told=True),
    "anthropic": Sdk(
        *_both(clients.sdk(), anthropic.Anthropic, anthropic.AsyncAnthropic), "anthropic", model=MODELS["anthropic"]
    ),
    "google": Sdk(*GOOGLE, "gemini"),
    "boto3": Sdk(partial(clients.bedrock, boto3.client), format="bedrock_converse"),
}
MORE = {
    "openai completions": Sdk(*OPENAI, "completions", told=True),
    "google interactions": Sdk(*GOOGLE, "gemini_interactions", told=True),
    "groq": Sdk(*_both(clients.sdk(), groq.Groq, groq.AsyncGroq), dialect="groq"),
    "together": Sdk(*_both(clients.sdk(), together.Together, together.AsyncTogether), dialect="together"),
    "mistral": Sdk(partial(clients.mistral, mistralai.Mistral), dialect="mistral"),
    "ollama": Sdk(*_both(clients.ollama, ollama.Client, ollama.AsyncClient), "ollama"),
    "cohere": Sdk(*_both(_cohere, cohere.ClientV2, cohere.AsyncClientV2), "cohere"),
}
OURS = {
    f"our client, {format}": Sdk(
        *_both(_ours(format), Client, AsyncClient), format, model=MODELS.get(format, "some-model")
    )
    for format in FORMATS
}


@dataclass(frozen=True, slots=True)
class Way:
    """An SDK, asked in one of four ways."""

    sdk: Sdk
    stream: bool
    asynchronous: bool

    @property
    def told(self) -> str | None:
        """The format that is named beside the client."""
        return self.sdk.format if self.sdk.told else None

    @property
    def is_ours(self) -> bool:
        return self.sdk in OURS.values()

    @asynccontextmanager
    async def asking(self, scripted: ScriptedProvider, patience_s: float = 30) -> AsyncIterator[Any]:
        """A client of a scripted provider, which is closed after."""
        make = self.sdk.amake if self.asynchronous else self.sdk.make
        assert make is not None
        with scripted.serve() as url:
            client = make(url, patience_s, 1)
            try:
                yield client
            finally:
                await _close(client)

    def provider(self, client: Any, **options: Any) -> Any:
        """The provider function over it."""
        return sdk_client.provider(client, stream=self.stream, format=self.told, **options)

    async def turn(
        self, client: Any, start: Request | Resumption, *, options: Mapping[str, Any] | None = None, **settings: Any
    ) -> TurnResult:
        """One turn of a controller that asks it."""
        asked = client
        if self.stream or options:
            asked = self.provider(client, **(options or {}))
        else:
            settings |= {"format": self.told or ""}  # the client itself, without a word about how it is asked
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
        question = Message(role="user", content=QUESTION)
        return Request(model=self.sdk.model, messages=(question,), **{"max_tokens": 400, **fields})


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


def _ways(sdks: Mapping[str, Sdk], streams: Sequence[bool] = (False, True)) -> list[list[Any]]:
    """The ways of asking each SDK."""
    return [
        [
            pytest.param(Way(sdk, stream, asynchronous), id=f"{name}{' async' * asynchronous}{' streamed' * stream}")
            for asynchronous in (False, True)
            for stream in streams
            if sdk.amake or not asynchronous
        ]
        for name, sdk in sdks.items()
    ]


def each_way(sdks: Mapping[str, Sdk], streams: Sequence[bool] = (False, True)) -> pytest.MarkDecorator:
    """Each SDK in each way of asking it."""
    return pytest.mark.parametrize("way", [way for ways in _ways(sdks, streams) for way in ways])


def each_case(
    cases: Iterable[str],
    sdks: Callable[[str], Mapping[str, Sdk]],
    streams: Callable[[str], Sequence[bool]] = lambda case: (False, True),
) -> pytest.MarkDecorator:
    """Each case with each SDK in each way; in `make test` in one of the ways, so that any two of the three meet."""
    return pytest.mark.parametrize(
        ("way", "case"),
        [
            pytest.param(
                *way.values,
                case,
                id=f"{case}-{way.id}",
                marks=[pytest.mark.slow] * (place != (number + other) % len(ways)),
            )
            for number, case in enumerate(cases)
            for other, ways in enumerate(_ways(sdks(case), streams(case)))
            for place, way in enumerate(ways)
        ],
    )


whole_and_streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

SEARCH = Tool(
    name="search",
    description="Looks things up.",
    parameters={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
QUESTION, FIRST, REST = (
    "Why is the sky blue?",
    "Because of how light",
    " is scattered by the air, blue light most of all 👋🏽.",
)


# --- A turn -------------------------------------------------------------------------------------------------------


class Situation(NamedTuple):
    """What a provider says, and what a turn makes of it.

    Attributes:
        text, outcome: where the turn ends first; whole: its text when it has been taken up again, if it can be.
        counted: the responses by their stop reason, when it has.
        streamed: it happens to streams alone.
        detail: what is said of the stop besides, where that is promised.
    """

    script: list[Reply]
    text: str
    outcome: str
    whole: str
    counted: Mapping[str, int]
    streamed: bool = False
    detail: str | None = None


CUT, HALF, WHOLE = truncate(FIRST, after=99), "Because of how", FIRST + REST
ARGUMENTS = {"q": "sky ü"}
ASKS = call("search", ARGUMENTS).also("search", {"q": "sea"})
LOST = {"missing": 1, "end_turn": 1}
SITUATIONS = {
    "a cut answer": Situation([CUT, say(REST)], WHOLE, "completed", "", {"max_tokens": 1, "end_turn": 1}),
    "a new word": Situation([reason("some_new_value", FIRST)], FIRST, "unknown_reason", "", {"unknown": 1}),
    "thinking": Situation([think("Let me see", text=FIRST)], FIRST, "completed", "", {"end_turn": 1}),
    "a refusal": Situation([refuse("No.")], "No.", "refused", "", {"refused": 1}),
    "nothing": Situation([empty()], "", "completed", "", {"end_turn": 1}),
    "thinking alone": Situation([think("Let me see")], "", "reasoning_exhausted", "", {"max_tokens": 1}),
    "a tool loop": Situation(
        [ASKS.but(text="Let me see."), say("Blue.")],
        "Let me see.Blue.", "completed", "", {"tool_call": 1, "end_turn": 1},
    ),
    "a cut tool call": Situation(
        [partial_call("search", ARGUMENTS), ASKS, say("Blue.")],
        "Blue.", "completed", "", {"max_tokens": 1, "tool_call": 1, "end_turn": 1},
    ),
    "a failed continuation": Situation(
        [CUT, fail(503, message="So it goes"), say(REST)],
        FIRST, "provider_error", WHOLE, {"max_tokens": 1, "error": 1, "end_turn": 1},
    ),
    "a stream that ends early": Situation(
        [cut(FIRST, after=3, tidy=True), say(REST)], HALF, "stream_cut", HALF + REST, LOST, True
    ),
    "a stream that breaks": Situation(
        [cut(FIRST, after=3), say(REST)], HALF, "stream_cut", HALF + REST, LOST, True, "connection"
    ),
    "an error within a stream": Situation(
        [fail(503, text=FIRST), say(REST)], FIRST, "provider_error", WHOLE, {"error": 1, "end_turn": 1}, True
    ),
}  # fmt: skip
UNSAID = {
    "a refusal": {*FORMATS} - {"openai_chat", "openai_responses", "anthropic", "bedrock_invoke"},
    "an error within a stream": {"cohere"},  # there it is an ordinary end
    **{name: {"completions"} for name in ("thinking", "thinking alone", "a tool loop", "a cut tool call")},
}
"""What some formats have no words for."""
FEW = {"a cut answer", "a new word", "thinking", "a tool loop", "a stream that ends early"}
"""What the less usual SDKs are asked: their clients are made like those of the others."""


def _speaking(case: str) -> dict[str, Sdk]:
    """The SDKs whose formats have words for it."""
    sdks = SDKS | OURS | (MORE if case in FEW else {})
    return {name: sdk for name, sdk in sdks.items() if sdk.format not in UNSAID.get(case, ())}


@each_case(SITUATIONS, _speaking, lambda case: [True] if SITUATIONS[case].streamed else [False, True])
@pytest.mark.behaviour(3, 9, 12, 19, 21, 33, 42)
async def test_a_turn(way: Way, case: str) -> None:
    """It goes as the script has it, can be taken up where it ended, and every call is counted once by its reason."""
    situation = SITUATIONS[case]
    provider = ScriptedProvider(situation.script, format=way.sdk.format, dialect=way.sdk.dialect)
    ran: list[Any] = []

    def search(asked: ToolCall) -> str:
        ran.append(asked.arguments)
        return f"It is blue, {len(ran)}."

    settings: dict[str, Any] = {"tools": [(SEARCH, search)]} if "tool_call" in situation.counted else {}
    with observed() as seen:
        async with way.asking(provider) as client:
            result = await way.turn(client, way.request(), **settings)
            assert (result.text, result.outcome) == (situation.text, situation.outcome)
            if situation.whole:
                resumed = await way.turn(client, result.resume())
                assert (resumed.text, resumed.complete) == (situation.whole, True)
    assert situation.detail in (None, result.stop and result.stop.detail)
    assert Counter(seen.reasons()) == situation.counted
    for each in provider.received:
        assert (each.stream, each.request.messages[0].role) == (way.stream, "user")
        assert each.request.messages[0].text.startswith(QUESTION)  # a prompt goes on with what was said
        assert (each.request.max_tokens or 0) >= 400
    if settings:
        assert ran == [ARGUMENTS, {"q": "sea"}]
        assert provider.requests[0].tools == (SEARCH,)
        said, *answered = provider.requests[-1].messages[-3:]
        assert [(asked.name, asked.arguments) for asked in said.tool_calls] == [("search", given) for given in ran]
        assert [(each.role, each.text, each.tool_call_id) for each in answered] == [
            ("tool", f"It is blue, {number}.", asked.id) for number, asked in enumerate(said.tool_calls, 1)
        ]
    elif case == "a cut answer" and way.sdk.format != "completions":
        assert provider.requests[1].messages[-1].text == PROMPT
    if situation.outcome == "provider_error":
        error = result.error
        assert isinstance(error, ProviderUnavailable)
        assert error.retryable
        assert (error.partial is not None) is situation.streamed
        if not situation.streamed:
            assert (error.status, "So it goes" in str(error)) == (503, True)
            assert way.is_ours or is_of_an_sdk(error.__cause__)


def is_of_an_sdk(error: object) -> bool:
    """Of one of those above, not of the HTTP library under it."""
    vendors = "openai anthropic google botocore groq together mistralai ollama cohere"
    return type(error).__module__.split(".")[0] in vendors.split()


@each_way(OURS)
async def test_what_our_clients_give_is_messages_card(way: Way) -> None:
    """Text, thinking, calls, figures and quotas are those that the scripted provider gives in process."""
    reply = say(FIRST) if way.sdk.format == "completions" else ASKS.but(text=FIRST, reasoning="Hm.")
    reply = reply.but(headers={"x-ratelimit-remaining-tokens": "1990"})
    provider = ScriptedProvider([reply, reply], format=way.sdk.format)
    expected = provider.complete(way.request())
    async with way.asking(provider) as client:
        response = await way.asked(client, way.request())
    for name in ("text", "reasoning", "stop_reason", "raw_stop_reason", "usage"):
        assert getattr(response, name) == getattr(expected, name), name
    calls, said = ([(each.name, each.arguments) for each in one.tool_calls] for one in (response, expected))
    assert calls == said
    assert response.quota == {"remaining_tokens": "1990"}


# --- Leaving ------------------------------------------------------------------------------------------------------


def connections(url: str) -> int:
    """How many connections to this server are established, as Linux sees them; other systems show none."""
    table, port = Path("/proc/self/net/tcp"), urlsplit(url).port
    lines = table.read_text().splitlines()[1:] if table.exists() else []
    return sum(line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01" for line in lines)


@each_way(SDKS, [True])
@pytest.mark.behaviour(18)
async def test_a_stream_that_is_left_is_closed(way: Way) -> None:
    """By its consumer or by a cancelled task: its connection is closed at once, though the client stays open."""
    provider = ScriptedProvider([say(FIRST + REST).but(pace_s=0.2)] * 2)
    arrived = asyncio.Event()

    async def consume(client: Any) -> None:
        async for _ in AsyncContinuationController(way.provider(client)).stream(way.request()):
            arrived.set()

    async with way.asking(provider) as client:
        stream = way.provider(client)(way.request())
        assert isinstance(await anext(stream) if way.asynchronous else next(stream), Delta)
        await stream.aclose() if way.asynchronous else stream.close()
        await closed(provider)
        if way.asynchronous:
            task = asyncio.create_task(consume(client))
            await asyncio.wait_for(arrived.wait(), 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as raised:
                await task
            assert raised.value.turn_result.outcome == "cancelled"  # type: ignore[attr-defined]
            del task, raised
            await closed(provider)


async def closed(provider: ScriptedProvider) -> None:
    """Wait for a second until nobody is connected any more, which is less than a stream would go on."""
    url = f"http://{provider.received[0].headers['host']}"
    await asyncio.sleep(0.05)
    gc.collect()  # Google's async generators do not close those within them; what is left open warns
    for _ in range(20):
        if not connections(url):
            break
        await asyncio.sleep(0.05)
    assert connections(url) == 0


# --- Pauses -------------------------------------------------------------------------------------------------------

INTERACTIONS = {"google interactions": MORE["google interactions"]}


@each_way({name: SDKS[name] for name in ("google", "anthropic")})
@pytest.mark.behaviour(13, 14)
async def test_a_pause_is_driven_by_the_controller(way: Way) -> None:
    """Gemini's token goes back as it came, Anthropic's turn is sent again: by us, within the policy's limits."""
    provider = ScriptedProvider([pause("One "), pause("two "), say("three."), pause("One ")])
    async with way.asking(provider) as client:
        result = await way.turn(client, way.request())
        assert (result.text, result.complete, result.requests) == ("One two three.", True, 3)
        limited = await way.turn(client, way.request(), policy=ContinuationPolicy(continuation_max_resumes=0))
        assert limited.outcome == "resume_limit"
    assert (provider.requests[1].token is not None) is (way.sdk is SDKS["google"])


@each_way({"google": SDKS["google"], **INTERACTIONS})
@pytest.mark.behaviour(14)
async def test_googles_sdk_follows_tokens_by_itself(way: Way) -> None:
    """Where it is told to, or always; nobody above it hears of the pause: all hops are one response."""
    follows = {} if way.sdk.told else {"automatic_continuation": True}
    provider = ScriptedProvider([pause("One "), say("two.")], format=way.sdk.format)
    async with way.asking(provider) as client:
        assert way.provider(client, **follows).follows_tokens
        result = await way.turn(client, way.request(), options=follows)
    assert (result.text, result.complete, result.iterations) == ("One two.", True, 1)
    first, second = provider.requests
    assert (first.token, second.token is None) == (None, False)
    assert second.previous_id == ("v1_00000001" if way.sdk.told else None)


FETCHING = {name: sdk for name, sdk in OURS.items() if sdk.format in ("openai_responses", "gemini_interactions")}


@each_way({"openai": SDKS["openai responses"], **INTERACTIONS, **FETCHING})
@pytest.mark.behaviour(13)
async def test_a_response_in_the_background_is_fetched(way: Way) -> None:
    """It is fetched by its id, through the SDK's own method or by our client, and not started twice."""
    being_made = reason("in_progress")
    script = [being_made, being_made.but(text="Blu"), say("Blue.")]
    provider = ScriptedProvider(script, format=way.sdk.format)
    async with way.asking(provider) as client:
        assert way.is_ours or way.provider(client).retrieves
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


@whole_and_streamed
@pytest.mark.parametrize("name", EXTRA)
async def test_what_arrives_is_what_was_asked(name: str, stream: bool) -> None:
    """Tools, choice, format, settings, and members that the SDK has no argument for: the server reads our request."""
    way = Way(SDKS[name], stream=stream, asynchronous=False)
    form = {"type": "object", "properties": {"a": {"type": "integer"}}}
    request = way.request(temperature=0.5, tools=(SEARCH,), tool_choice="search", format=form, extra=EXTRA[name])
    request = request.but(messages=(Message(role="system", content="Be brief."), *request.messages))
    provider = ScriptedProvider([say("{}")])
    async with way.asking(provider) as client:
        await way.asked(client, request)
    (received,) = provider.received
    speaks = format_of(received.format)
    assert [*EXTRA[name]][-1] in received.body
    found = received.request
    sent = request_of(speaks, {"model": request.model, **speaks.encode(request, stream=stream)})
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


ERRORS: dict[str, tuple[Reply, type[ProviderError], StopReason | None]] = {
    "window": (fail(400, "context_length_exceeded"), RequestRejected, StopReason.CONTEXT_WINDOW_EXCEEDED),
    "parameter": (fail(400), RequestRejected, None),
    "key": (fail(401), RequestRejected, None),
    "model": (fail(404), RequestRejected, None),
    "rate": (fail(429, retry_after_s=7), ProviderUnavailable, None),
    "failure": (fail(500), ProviderUnavailable, None),
    "gateway timeout": (fail(504), ProviderTimeout, None),
    "no answer": (hang_up(), ProviderUnavailable, None),
    "late": (say("late").but(delay_s=PATIENCE_S + 1.2), ProviderTimeout, None),
}


@each_case(ERRORS, lambda case: SDKS | OURS | (MORE if case == "rate" else {}))
async def test_errors_say_whose_fault_they_are(way: Way, case: str) -> None:
    """By their type; with the status, what it says of the stop and of trying again; an SDK's exception is the cause."""
    reply, kind, reason = ERRORS[case]
    status = reply.failure and reply.failure.status
    async with way.asking(ScriptedProvider([reply]), 30 if case != "late" else PATIENCE_S) as client:
        with pytest.raises(kind) as raised:
            await way.asked(client, way.request())
        assert raised.value.provider == (client if way.is_ours else way.provider(client)).provider
    error, hides_headers = raised.value, way.sdk is MORE["ollama"]
    assert (type(error), error.status, error.stop and error.stop.reason) == (kind, status, reason)
    assert (error.body is not None) is (status is not None)
    assert (error.request_id is not None) is (status is not None and not hides_headers)
    assert error.retry_after_s == (7 if case == "rate" and not hides_headers else None)
    assert error.retryable is (kind is not RequestRejected)
    assert way.is_ours or is_of_an_sdk(error.__cause__) or status is None


@each_case(["half a body", "a lost body"], lambda case: SDKS | MORE | OURS, lambda case: [False])
async def test_a_body_that_is_cut_or_lost(way: Way, case: str) -> None:
    """Half a JSON text is a DecodeError, a lost connection none; where boto3 is silent about either, it is one too."""
    silent, tidy = way.sdk is SDKS["boto3"], case == "half a body"
    kind = DecodeError if tidy or silent else ProviderUnavailable
    async with way.asking(ScriptedProvider([CUT, cut(FIRST, tidy=tidy)])) as client:
        result = await way.turn(client, way.request())
    assert (result.text, result.outcome, type(result.error)) == (FIRST, "provider_error", kind)
    assert way.is_ours or re.search("was cut on its way" if silent else "its SDK cannot read|failed", str(result.error))
    assert way.is_ours or (result.error is None or result.error.__cause__ is None) is silent


ASKED = Request(model="m", messages=(Message(role="user", content="hi"),))


def test_anything_else_passes() -> None:
    """What is neither an answer nor a lost connection is the host's own."""

    def refuse(request: Any) -> None:
        raise LookupError("the host's hook")

    hooked = openai.OpenAI(api_key="none", http_client=httpx2.Client(event_hooks={"request": [refuse]}))
    with hooked, pytest.raises(LookupError, match="the host's hook"):
        sdk_client.provider(hooked)(ASKED)
    with (
        closing(SDKS["boto3"].make("http://127.0.0.1:9", 1, 1)) as client,
        pytest.raises(Exception, match="Unknown parameter"),
    ):
        sdk_client.provider(client)(ASKED.but(extra={"aNewMember": 1}))


# --- Who is asked -------------------------------------------------------------------------------------------------


def _client(kind: Any, **settings: Any) -> Any:
    return kind(**{"api_key": "none", **settings})


def test_a_clients_method_is_refused_at_once() -> None:
    """It takes no Request. The error says what to hand over, to the controllers too; a subclass's own method may."""

    class Ours(openai.OpenAI):
        def ask(self, request: Request) -> ChatResponse:
            raise AssertionError("never called")

    methods = [
        _client(openai.AsyncOpenAI).chat.completions.create,
        _client(genai.Client).models.generate_content,
        SDKS["boto3"].make("http://127.0.0.1:9", 1, 1).converse,
        openai.OpenAI,
    ]
    for method in methods:
        for refuses in (ContinuationController, AsyncContinuationController, sdk_client.provider):
            with pytest.raises(UsageError, match="pass the SDK's client itself, or adapters"):
                refuses(method)
    ours: Any = sdk_client.provider(_client(Ours))
    assert (ours.format, ours.provider) == ("openai_chat", "openai")
    ContinuationController(_client(Ours).ask)
    ContinuationController(sdk_client.provider(methods[0], format="openai_chat"))


# --- A client itself, functions, ours -----------------------------------------------------------------------------


@whole_and_streamed
async def test_a_method_beside_its_format(stream: bool) -> None:
    """An SDK's own method takes a body's members, and those that it has no argument for."""
    request = ASKED.but(max_tokens=400, extra={"a_new_member": 1})
    provider = ScriptedProvider([CUT, say(REST)])
    with provider.serve() as url:
        async with _client(openai.AsyncOpenAI, base_url=f"{url}/v1") as client:
            asked: Any = sdk_client.provider(client.chat.completions.create, format="openai_chat", stream=stream)
            result = await AsyncContinuationController(asked).run(request)
    assert (result.text, provider.received[1].body["a_new_member"]) == (WHOLE, 1)


@whole_and_streamed
def test_invoked_models(stream: bool) -> None:
    """A function of each family's body; Bedrock's figures are in the last chunk of a stream, whatever the family."""
    models = [
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "anthropic.claude-v2:1", "amazon.nova-lite-v1:0",
        "amazon.titan-text-express-v1", "mistral.mixtral-8x7b-instruct-v0:1", "cohere.command-r-plus-v1:0",
        "cohere.command-text-v14", "ai21.jamba-1-5-mini-v1:0", "us.deepseek.r1-v1:0",
        "arn:aws:bedrock:us-east-1:111122223333:inference-profile/us.meta.llama3-3-70b-instruct-v1:0",
    ]  # fmt: skip
    scripted = ScriptedProvider([truncate("One two three", after=2).but(usage=Usage(5, 2))] * len(models))
    with scripted.serve() as url, closing(SDKS["boto3"].make(url, 30, 1)) as client:

        def invoke(**body: Any) -> Any:
            method = client.invoke_model_with_response_stream if stream else client.invoke_model
            answer = method(modelId=models[len(scripted.received)], body=json.dumps(body))["body"]
            return answer if stream else json.load(answer)

        asked = sdk_client.provider(invoke, format="bedrock_invoke", stream=stream)
        for model in models:
            said = asked(ASKED.but(model=model, max_tokens=1000))
            response = list(said)[-1] if stream else said
            assert (response.text, response.stop.reason) == ("One two", StopReason.MAX_TOKENS)
            assert not stream or response.usage == Usage(5, 2)
            received = scripted.received[-1]
            assert (received.format, received.stream) == ("bedrock_invoke", stream)
            assert (received.request.model, received.request.max_tokens) == (model, 1000)


def test_a_provider_function_is_given_back() -> None:
    """As are our clients; streamed, their method for it."""
    assert sdk_client.provider(print) is print
    with Client("openai", api_key="none") as client:
        assert sdk_client.provider(client) is client
        assert sdk_client.provider(client, stream=True) == client.stream
    other = AsyncClient("openai", api_key="none", http=httpx.AsyncClient())
    assert sdk_client.provider(other, stream=True) == other.stream


# --- Which provider a client asks -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("make_client", "format_name", "provider_name", "dialect"),
    [
        pytest.param(lambda: openai.OpenAI(api_key="k"), "openai_chat", "openai", "", id="OpenAI"),
        pytest.param(lambda: openai.AsyncOpenAI(api_key="k"), "openai_chat", "openai", "", id="AsyncOpenAI"),
        pytest.param(
            lambda: openai.AzureOpenAI(
                api_key="k",
                azure_endpoint="https://r.openai.azure.com",
                api_version="2024-10-21",
            ),
            "openai_chat",
            "azure.ai.openai",
            "azure",
            id="AzureOpenAI",
        ),
        pytest.param(
            lambda: openai.OpenAI(api_key="k", base_url="https://api.groq.com/openai/v1"),
            "openai_chat",
            "groq",
            "groq",
            id="OpenAI at Groq",
        ),
        pytest.param(
            lambda: openai.OpenAI(api_key="k", base_url="http://localhost:8000/v1"),
            "openai_chat",
            "openai",
            "compatible",
            id="OpenAI at an unknown server",
        ),
        pytest.param(lambda: anthropic.Anthropic(api_key="k"), "anthropic", "anthropic", "", id="Anthropic"),
        pytest.param(
            lambda: anthropic.AnthropicBedrock(aws_region="eu-west-1", aws_access_key="a", aws_secret_key="b"),
            "anthropic",
            "aws.bedrock",
            "",
            id="AnthropicBedrock",
        ),
        pytest.param(
            lambda: anthropic.AnthropicVertex(region="r", project_id="p", access_token="t"),
            "anthropic",
            "gcp.vertex_ai",
            "",
            id="AnthropicVertex",
        ),
        pytest.param(lambda: genai.Client(api_key="k"), "gemini", "gcp.gemini", "", id="google-genai"),
        pytest.param(
            lambda: genai.Client(api_key="k", vertexai=True),
            "gemini",
            "gcp.vertex_ai",
            "vertex",
            id="google-genai for Vertex AI",
        ),
        pytest.param(
            lambda: boto3.client("bedrock-runtime", region_name="eu-west-1"),
            "bedrock_converse",
            "aws.bedrock",
            "",
            id="boto3",
        ),
        pytest.param(lambda: mistralai.Mistral(api_key="k"), "openai_chat", "mistral_ai", "mistral", id="Mistral"),
        pytest.param(lambda: together.Together(api_key="k"), "openai_chat", "together", "together", id="Together"),
        pytest.param(ollama.Client, "ollama", "ollama", "", id="Ollama"),
    ],
)
def test_recognizes_a_client(
    make_client: Callable[[], Any], format_name: str, provider_name: str, dialect: str
) -> None:
    adapted: Any = sdk_client.provider(make_client())
    assert (adapted.format, adapted.provider, adapted.dialect) == (format_name, provider_name, dialect)


def test_a_dialect_can_be_named() -> None:
    adapted: Any = sdk_client.provider(openai.OpenAI(api_key="k"), dialect="vllm")
    assert (adapted.format, adapted.provider, adapted.dialect) == ("openai_chat", "openai", "vllm")


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        (42, {}, "not a value of type int; supported are the clients of openai, anthropic"),
        ("openai", {}, "not a value of type str"),
        (openai, {}, "not a value of type module"),
        (print, {"timeout": 3}, "is a provider function"),
        (print, {"stream": True}, "is a provider function"),
        (print, {"format": "telegraph"}, "unknown format 'telegraph'"),
    ],
)
def test_rejects_what_is_no_client(value: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sdk_client.provider(value, **options)


def test_rejects_a_format_that_the_client_does_not_have() -> None:
    with pytest.raises(UsageError, match="supported: anthropic"):
        sdk_client.provider(anthropic.Anthropic(api_key="k"), format="openai_chat")


def test_rejects_another_client_of_boto3() -> None:
    with pytest.raises(UsageError, match="bedrock-runtime"):
        sdk_client.provider(boto3.client("s3", region_name="eu-west-1"))
