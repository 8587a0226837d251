"""The decorators: what a function is and does stays the same, whatever its kind; what it calls is announced."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import openai
import pytest

import endturn
from endturn import hooks
from endturn.chat import ChatResponse, Delta, Message, Request, Usage
from endturn.errors import ProviderUnavailable, UsageError
from endturn.events import Strategy, TurnKind, TurnOutcome, TurnStarted
from endturn.formats import FORMATS, Context, format_of
from endturn.instrumentation.decorators import observe_provider_call, observe_turn
from endturn.scopes import current_turn
from endturn.stop import Stop, StopReason
from endturn.telemetry import cleanup
from tests.formats.recorded import RECORDED
from tests.formats.replies import DONE_EVENT, chat_body, chunk, message, say
from tests.telemetry.mocked import Records, Server, body

CHAT = RECORDED["openai_chat"].bodies
CUT = ChatResponse(
    text="Half an ans", stop=Stop(StopReason.MAX_TOKENS, "length"), usage=Usage(3, 4), id="r1", model="m-1"
)
WHOLE = ChatResponse(text="wer.", stop=Stop(StopReason.END_TURN, "stop"))
REQUEST = Request(model="m", messages=(Message(role="user", content="hi"),), max_tokens=4)
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class Stopped(Exception):
    pass


# --- Four kinds of function ----------------------------------------------------------------------------------------

DECORATORS: dict[str, Callable[[Any], Any]] = {
    "call": observe_provider_call,
    "call with arguments": observe_provider_call(provider="p", format="openai_chat", model="m"),
    "turn": observe_turn,
    "turn with arguments": observe_turn(agent="a", conversation_id=lambda *args, **kwargs: "c"),
}


@pytest.fixture(params=list(DECORATORS.values()), ids=list(DECORATORS))
def decorate(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    made: Callable[[Any], Any] = request.param
    return made


def plain(a: int, *, b: str = "x") -> tuple[int, str]:
    """Plain."""
    return a, b


async def coroutine(a: int, *, b: str = "x") -> tuple[int, str]:
    """Coroutine."""
    await asyncio.sleep(0)
    return a, b


def generator(a: int, *, b: str = "x") -> Generator[Any, Any, str]:
    """Generator."""
    got = yield a
    try:
        got = yield got
    except Stopped as error:
        got = yield repr(error)
    yield got
    return b


async def async_generator(a: int, *, b: str = "x") -> AsyncGenerator[Any, Any]:
    """Async generator."""
    got = yield a
    try:
        got = yield got
    except Stopped as error:
        got = yield repr(error)
    yield got


ASKS = (
    inspect.isfunction, inspect.iscoroutinefunction, inspect.isgeneratorfunction,
    inspect.isasyncgenfunction, inspect.signature, inspect.getdoc, inspect.unwrap,
)  # fmt: skip


@pytest.mark.parametrize("function", [plain, coroutine, generator, async_generator])
def test_a_decorated_function_is_what_it_was(decorate: Callable[[Any], Any], function: Any) -> None:
    """Its kind, signature, name and documentation are unchanged."""
    wrapped = decorate(function)
    assert wrapped is not function
    for ask in ASKS:
        assert ask(wrapped) == ask(function), ask
    assert (wrapped.__name__, wrapped.__module__, wrapped.__wrapped__) == (
        function.__name__, function.__module__, function,
    )  # fmt: skip


def test_a_plain_function(records: Records, decorate: Callable[[Any], Any]) -> None:
    """Arguments and result pass; the very same object comes back."""
    assert decorate(plain)(1, b="y") == (1, "y")
    thing = object()
    assert decorate(lambda: thing)() is thing


async def test_a_coroutine_function(records: Records, decorate: Callable[[Any], Any]) -> None:
    """Nothing runs before the await."""
    ran = []

    async def marks() -> int:
        ran.append(1)
        return 7

    pending = decorate(marks)()
    assert inspect.iscoroutine(pending)
    assert not ran
    assert await pending == 7
    assert await decorate(coroutine)(1, b="y") == (1, "y")


def conversation(made: Generator[Any, Any, Any]) -> list[Any]:
    said = [next(made), made.send("sent"), made.throw(Stopped("thrown")), made.send("more")]
    try:
        next(made)
    except StopIteration as end:
        said.append(end.value)
    return said


def test_a_generator_function(records: Records, decorate: Callable[[Any], Any]) -> None:
    """send, throw, close and the return value work as they did."""
    assert conversation(decorate(generator)(1, b="y")) == conversation(generator(1, b="y"))
    closed = []

    def closes() -> Iterator[int]:
        try:
            yield 1
        finally:
            closed.append(True)

    made = decorate(closes)()
    assert inspect.isgenerator(made)
    next(made)
    made.close()
    assert closed == [True]


async def test_an_async_generator_function(records: Records, decorate: Callable[[Any], Any]) -> None:
    """asend, athrow and aclose work as they did."""
    for function in (async_generator, decorate(async_generator)):
        made = function(1, b="y")
        assert [
            await anext(made), await made.asend("sent"), await made.athrow(Stopped("thrown")), await made.asend("more"),
        ] == [1, "sent", "Stopped('thrown')", "more"]  # fmt: skip
        with pytest.raises(StopAsyncIteration):
            await anext(made)
    closed = []

    async def closes() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    made = decorate(closes)()
    assert await anext(made) == 1
    await made.aclose()
    assert closed == [True]


def test_methods(records: Records, decorate: Callable[[Any], Any]) -> None:
    """Methods, class methods and static methods, decorated inside or outside of them."""

    class Agent:
        name = "agent"

        @decorate
        def method(self) -> str:
            return self.name

        @classmethod
        @decorate
        def inner(cls) -> str:
            return cls.name

        @decorate
        @classmethod
        def outer(cls) -> str:
            return cls.name

        @decorate
        @staticmethod
        def static() -> str:
            return "static"

    agent = Agent()
    assert (agent.method(), Agent.inner(), Agent.outer(), agent.outer(), Agent.static(), agent.static()) == (
        "agent", "agent", "agent", "agent", "static", "static",
    )  # fmt: skip


def test_nobody_listening_touches_nothing(decorate: Callable[[Any], Any]) -> None:
    """A plain function's generator is handed on as it is."""
    made = (number for number in range(3))
    assert decorate(lambda: made)() is made


def explode(*args: object, **kwargs: object) -> Any:
    raise RuntimeError("telemetry")


@pytest.mark.parametrize(
    "where",
    [
        "endturn.instrumentation.decorators.open_call",
        "endturn.instrumentation.decorators.start_turn",
        "endturn.scopes.Call.end",
        "endturn.scopes.Call.step",
        "endturn.scopes.Call.chunk",
        "endturn.scopes.TurnScope.step",
        "endturn.scopes.TurnScope.end",
        "endturn.instrumentation.decorators._asked",
        "endturn.instrumentation.decorators._CallRun._read",
        "endturn.telemetry.turn_inference.TurnInference.resolve",
    ],
)
async def test_telemetry_that_fails_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, decorate: Callable[[Any], Any], where: str
) -> None:
    """Whatever of ours raises, the functions do what they do."""
    stop = hooks.subscribe(lambda record: None)
    endturn.instrument()
    monkeypatch.setattr(where, explode)
    try:
        assert decorate(plain)(1) == (1, "x")
        assert decorate(lambda: CHAT["text"])() is CHAT["text"]
        assert await decorate(coroutine)(1) == (1, "x")
        assert list(decorate(generator)(1)) == [1, None, None]
        assert [item async for item in decorate(async_generator)(1)] == [1, None, None]
        with pytest.raises(ZeroDivisionError):
            decorate(lambda: 1 // 0)()
    finally:
        monkeypatch.undo()
        endturn.uninstrument()
        stop()


# --- Calls ---------------------------------------------------------------------------------------------------------

RESPONSES: dict[str, tuple[Any, StopReason]] = {
    "ChatResponse": (CUT, StopReason.MAX_TOKENS),
    "chat body": (CHAT["length"], StopReason.MAX_TOKENS),
    "anthropic body": (message([say("x")], "max_tokens"), StopReason.MAX_TOKENS),
    "object": (
        openai.types.chat.ChatCompletion.model_validate(CHAT["length"]),
        StopReason.MAX_TOKENS,
    ),
    "a null reason": (CHAT["null"], StopReason.MISSING),
    "only text": ("Half an ans", StopReason.UNKNOWN),
    "nothing": (None, StopReason.UNKNOWN),
    "something else": (SimpleNamespace(text="x"), StopReason.UNKNOWN),
}


@pytest.mark.parametrize(("response", "reason"), RESPONSES.values(), ids=RESPONSES.keys())
def test_what_a_call_returns_is_read(records: Records, response: Any, reason: StopReason) -> None:
    """Our response, a provider's body, an SDK's object; from a text alone nothing is guessed."""
    observed: Callable[[], Any] = observe_provider_call(provider="p")(lambda: response)
    assert observed() is response
    ended = records.only()
    assert ended.stop.reason is reason
    assert ended.started.provider == "p"


@pytest.mark.parametrize("name", FORMATS)
def test_a_body_of_a_named_format_is_read(records: Records, name: str) -> None:
    """Of every format, whole and streamed; what is no body of it is still not guessed at."""
    reply = ChatResponse(text="Half", stop=Stop(StopReason.MAX_TOKENS), usage=Usage(3, 4), model="m")
    whole, streamed = format_of(name).reply(reply, stream=False), format_of(name).reply(reply, stream=True)
    observe = observe_provider_call(provider="p", format=name)
    assert observe(lambda: whole)() == whole
    assert list(observe(lambda: (event for event in streamed))()) == streamed
    observe(lambda: {"answer": "Half"})()
    reasons = [ended.stop.reason for ended in records.ended]
    assert reasons == [StopReason.MAX_TOKENS, StopReason.MAX_TOKENS, StopReason.UNKNOWN]


def test_the_model_is_the_response_s_where_nobody_names_one(records: Records) -> None:
    """Better the model that answered than none."""
    observe_provider_call(provider="p")(lambda: CUT)()
    assert records.only().started.model == "m-1"


@pytest.mark.parametrize(
    ("decorator", "message"),
    [
        (observe_turn, r"by keyword, not a str: @observe_turn\(agent='…'\)"),
        (observe_provider_call, r"by keyword, not a str: @observe_provider_call\(provider='…'\)"),
    ],
)
def test_settings_are_given_by_keyword(decorator: Any, message: str) -> None:
    """A setting where the function belongs is refused at once, and says how it is given."""
    with pytest.raises(UsageError, match=message):
        decorator("support")
    with pytest.raises(UsageError, match=message):
        decorator()("support")


def test_an_unknown_format_is_refused_at_once() -> None:
    """A misspelt format is the decorator's error, not the first call's."""
    with pytest.raises(UsageError, match="openai"):
        observe_provider_call(format="opnai")


HISTORY: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
MORE: list[dict[str, Any]] = [
    *HISTORY,
    {"role": "assistant", "content": "Half an ans"},
    {"role": "user", "content": "Please continue."},
]


def kinds_of_function(*responses: ChatResponse) -> dict[str, Callable[..., Any]]:
    """A provider function of each kind, which gives these, and how its answer is read."""
    left = list(responses)

    def plain_(model: str, messages: list[Any], max_tokens: int = 7) -> ChatResponse:
        return left.pop(0)

    async def coroutine_(model: str, messages: list[Any], max_tokens: int = 7) -> ChatResponse:
        return left.pop(0)

    def generator_(model: str, messages: list[Any], max_tokens: int = 7) -> Iterator[Any]:
        yield left.pop(0)

    async def async_generator_(model: str, messages: list[Any], max_tokens: int = 7) -> AsyncIterator[Any]:
        yield left.pop(0)

    return {"plain": plain_, "coroutine": coroutine_, "generator": generator_, "async generator": async_generator_}


async def run_to_its_end(made: Any) -> None:
    """Have what a function of any kind returned run."""
    if inspect.isawaitable(made):
        await made
    elif hasattr(made, "__aiter__"):
        async for _ in made:
            pass
    elif inspect.isgenerator(made):
        for _ in made:
            pass


@pytest.mark.parametrize("kind", ["plain", "coroutine", "generator", "async generator"])
@pytest.mark.parametrize("ways", [0, 1, 2, 3], ids=["by name", "the model by position", "two", "all by position"])
async def test_a_request_is_found_by_name_and_by_position(records: Records, kind: str, ways: int) -> None:
    """The model, the limit and the messages; so what asks for the rest is known as a continuation."""
    ask = observe_provider_call(provider="p")(kinds_of_function(CUT, WHOLE)[kind])
    for messages in (HISTORY, MORE):
        given = {"model": "m", "messages": messages, "max_tokens": 9}
        names = list(given)[ways:]
        await run_to_its_end(ask(*list(given.values())[:ways], **{name: given[name] for name in names}))
    assert [(started.model, started.maximum) for started in records.started] == [("m", 9), ("m", 9)]
    first, second = records.started
    assert first.continuation is None
    assert second.continuation is not None
    assert first.turn is second.turn


class Provider:
    """Functions that are found in other ways than as plain ones."""

    def __init__(self) -> None:
        self.left = [CUT, WHOLE]

    def method(self, model: str, messages: list[Any], max_tokens: int = 7) -> ChatResponse:
        return self.left.pop(0)

    @observe_provider_call(provider="p")
    def decorated(self, model: str, messages: list[Any], max_tokens: int = 7) -> ChatResponse:
        return self.left.pop(0)

    def __call__(self, model: str, messages: list[Any], max_tokens: int = 7) -> ChatResponse:
        return self.left.pop(0)


def ways_to_ask() -> dict[str, Callable[[list[Any]], Any]]:
    """Functions of the messages alone; the model is always "m", the limit 7."""
    observe = observe_provider_call(provider="p")
    model, provider = "m", Provider()

    def ask(model: str, messages: list[Any], max_tokens: int = 7) -> ChatResponse:
        return provider.left.pop(0)

    def last(messages: list[Any], /, model: str = "m", *, max_tokens: int = 7) -> ChatResponse:
        return provider.left.pop(0)

    def any_arguments(*args: Any, max_tokens: int = 7, **kwargs: Any) -> ChatResponse:
        return provider.left.pop(0)

    def history(history: list[Any], model: str = "m", stop: tuple[str, ...] = ("END",), max_tokens: int = 7) -> Any:
        return provider.left.pop(0)

    method, called = observe(provider.method), observe(provider)
    by_position, by_name = observe(partial(ask, model)), observe(partial(ask, model=model))
    last, any_arguments, history = observe(last), observe(any_arguments), observe(history)
    return {
        "bound method": lambda messages: method(model, messages),
        "method": lambda messages: provider.decorated(model, messages),
        "callable object": lambda messages: called(model, messages),
        "partial of a position": lambda messages: by_position(messages),
        "partial of a name": lambda messages: by_name(messages=messages),
        "defaults": lambda messages: last(messages),
        "no names": lambda messages: any_arguments(messages, model=model),
        "another name": lambda messages: history(messages),
        "another name, by name": lambda messages: history(history=messages),
    }


@pytest.mark.parametrize("way", ways_to_ask())
def test_a_request_is_found_whatever_is_decorated(records: Records, way: str) -> None:
    """Methods, partial functions, defaults, a history of another name or of none."""
    ask = ways_to_ask()[way]
    ask(HISTORY)
    ask(MORE)
    assert [(started.model, started.maximum) for started in records.started] == [("m", 7), ("m", 7)]
    assert [started.continuation is not None for started in records.started] == [False, True]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param({"one": HISTORY, "other": HISTORY}, {"one": MORE, "other": MORE}, id="two of them"),
        pytest.param({"one": ["hi"]}, {"one": ["hi", "Half an ans", "Please continue."]}, id="no roles"),
        pytest.param({"one": []}, {"one": []}, id="empty"),
    ],
)
def test_what_may_not_be_the_history_is_not_taken_for_it(
    records: Records, first: dict[str, Any], then: dict[str, Any]
) -> None:
    """Two lists of messages, or lists of something else."""
    left = [CUT, WHOLE]
    ask: Callable[..., Any] = observe_provider_call(provider="p")(lambda **kwargs: left.pop(0))
    ask(**first)
    ask(**then)
    assert [started.continuation for started in records.started] == [None, None]


def test_a_call_that_does_not_fit_the_signature_raises_what_it_did(records: Records) -> None:
    """Python says what is wrong with it."""

    def ask(model: str, messages: list[Any]) -> ChatResponse:
        return WHOLE

    observed: Callable[..., Any] = observe_provider_call(provider="p")(ask)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'messages'"):
        observed("m")
    with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given"):
        observed("m", HISTORY, 3)
    with pytest.raises(TypeError, match="got multiple values for argument 'model'"):
        observed("m", HISTORY, model="n")


def test_what_has_no_signature_is_observed(records: Records) -> None:
    """A function that is written in C."""
    assert observe_provider_call(provider="p")(max)(1, 2) == 2
    assert records.only().stop.reason is StopReason.UNKNOWN


CHUNKS = [chunk({"role": "assistant", "content": "a"}), chunk({"content": "b"}), chunk({}, "length"), DONE_EVENT]

STREAMS: dict[str, tuple[list[Any], StopReason]] = {
    "deltas and their response": ([Delta(text="Half "), Delta(text="an ans"), CUT], StopReason.MAX_TOKENS),
    "deltas alone": ([Delta(text="Half ")], StopReason.MISSING),
    "chunks": ([event.data for event in CHUNKS[:-1]], StopReason.MAX_TOKENS),
    "chunks, cut": ([event.data for event in CHUNKS[:-2]], StopReason.MISSING),
    "text": (["Half ", "an ans"], StopReason.UNKNOWN),
}


@pytest.mark.parametrize(("items", "reason"), STREAMS.values(), ids=STREAMS.keys())
async def test_streams_are_read_as_they_pass(records: Records, items: list[Any], reason: StopReason) -> None:
    """Generators of Deltas, of a provider's chunks; and plain functions that return such a generator."""

    @observe_provider_call(provider="p")
    def streamed() -> Iterator[Any]:
        yield from items

    @observe_provider_call(provider="p")
    async def astreamed() -> AsyncIterator[Any]:
        for item in items:
            yield item

    @observe_provider_call(provider="p")
    def returned() -> Iterator[Any]:
        return (item for item in items)

    assert list(streamed()) == items
    assert [item async for item in astreamed()] == items
    assert list(returned()) == items
    assert [ended.stop.reason for ended in records.ended] == [reason] * 3
    assert all(ended.started.stream and ended.first_chunk_s is not None for ended in records.ended)


@pytest.mark.parametrize("items", [STREAMS["deltas alone"][0], STREAMS["chunks, cut"][0]], ids=["deltas", "chunks"])
def test_a_stream_that_is_left(records: Records, items: list[Any]) -> None:
    """Closing early is `cancelled`."""

    @observe_provider_call(provider="p")
    def streamed() -> Iterator[Any]:
        yield from items

    made: Any = streamed()
    next(made)
    made.close()
    cleanup.run()
    assert records.only().stop.reason is StopReason.CANCELLED


def test_a_stream_that_is_dropped(records: Records) -> None:
    """So is dropping it; one that never ran was never a call."""

    @observe_provider_call(provider="p")
    def streamed() -> Iterator[Any]:
        yield from CHUNKS

    streamed()
    next(streamed())
    gc.collect()
    cleanup.run()
    assert records.only().stop.reason is StopReason.CANCELLED


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(ProviderUnavailable("503", status=503), StopReason.ERROR, id="unavailable"),
        pytest.param(ProviderUnavailable("cut", partial=CUT), StopReason.MAX_TOKENS, id="partial"),
        pytest.param(
            ProviderUnavailable("long", stop=Stop(StopReason.CONTEXT_WINDOW_EXCEEDED)),
            StopReason.CONTEXT_WINDOW_EXCEEDED,
            id="says why",
        ),
        pytest.param(ValueError("x"), StopReason.ERROR, id="anything"),
        pytest.param(KeyboardInterrupt(), StopReason.CANCELLED, id="interrupted"),
    ],
)
def test_a_call_that_raises(records: Records, error: BaseException, reason: StopReason) -> None:
    """The error, and what it says of the stop."""

    def fails() -> None:
        raise error

    with pytest.raises(type(error)):
        observe_provider_call(provider="p")(fails)()
    ended = records.only()
    assert (ended.stop.reason, ended.error) == (reason, error)


def test_what_is_announced_below_is_not_announced_again(records: Records) -> None:
    """Decorator over decorator over the SDK, with retries within it: each attempt is announced once."""
    server = Server(body({}, 500), body({}, 500), body(chat_body({"content": "x"}, "length")))
    client = openai.OpenAI(api_key="n", http_client=server.http(), max_retries=2)

    @observe_provider_call(provider="outer")
    @observe_provider_call(provider="inner")
    def ask() -> Any:
        return client.chat.completions.create(**ASK)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", lambda seconds: None)
        ask()
    assert len(server.requests) == len(records.started) == len(records.ended) == 3
    assert {started.provider for started in records.started} == {"openai"}


def test_controller_decorator_and_sdk_at_once_are_one_call(records: Records) -> None:
    """All layers at once, over 500, 500, 200 and a continuation: each attempt is one record, in one turn."""
    cut, rest = chat_body({"content": "Half an ans"}, "length"), chat_body({"content": "wer."})
    server = Server(body({}, 500), body({}, 500), body(cut), body(rest))
    client = openai.OpenAI(api_key="n", http_client=server.http(), max_retries=2)
    speaks = format_of("openai_chat")

    @observe_provider_call(provider="outer")
    def ask(request: Request) -> ChatResponse:
        answer = client.chat.completions.create(**speaks.encode(request))
        return speaks.decode(answer.model_dump(), ctx=Context())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", lambda seconds: None)
        result = endturn.ContinuationController(ask, provider_name="openai").run(REQUEST.but(max_tokens=100))
    assert result.text == "Half an answer."
    assert len(server.requests) == 4
    assert [ended.stop.reason for ended in records.ended] == [
        StopReason.ERROR,
        StopReason.ERROR,
        StopReason.MAX_TOKENS,
        StopReason.END_TURN,
    ]
    (turn,) = records.turns
    assert {started.turn for started in records.started} == {turn.turn}
    assert (turn.turn.kind, turn.turn.iterations, turn.turn.continuations) == (TurnKind.CONTROLLER, 4, 1)
    assert len(records.attempts) == 1
    assert records.started[-1].continuation is not None


# --- Turns ---------------------------------------------------------------------------------------------------------


def provider_of(*responses: ChatResponse) -> Callable[[Request], ChatResponse]:
    """A provider function that gives these."""
    left = list(responses)
    return observe_provider_call(provider="p")(lambda request: left.pop(0))


def test_a_turn_and_its_calls(records: Records) -> None:
    """Calls within belong to it; it names its agent and its conversation."""
    ask = provider_of(WHOLE, WHOLE)

    @observe_turn(agent="support", conversation_id=lambda question, session: session["id"])
    def handle(question: str, session: dict[str, str]) -> str:
        ask(REQUEST)
        return ask(REQUEST.but(messages=())).text

    assert handle("hi", session={"id": "c9"}) == "wer."
    (ended,) = records.turns
    turn = ended.turn
    assert (turn.kind, turn.agent, turn.conversation, turn.iterations) == (TurnKind.OBSERVED, "support", "c9", 2)
    assert (ended.outcome, ended.complete) == (TurnOutcome.COMPLETED, True)
    assert {started.turn for started in records.started} == {turn}
    assert [type(record) for record in records].index(TurnStarted) == 0


def test_a_turn_whose_own_loop_continues(records: Records) -> None:
    """A continuation within it is recognised, and completes it."""
    ask = provider_of(CUT, WHOLE)

    @observe_turn
    def handle() -> str:
        first = ask(REQUEST)
        nudge = Message(role="user", content="Please continue.")
        return first.text + ask(REQUEST.but(messages=(*REQUEST.messages, first.message(), nudge))).text

    assert handle() == "Half an answer."
    (ended,) = records.turns
    assert (ended.outcome, ended.complete, ended.turn.continuations) == (TurnOutcome.COMPLETED, True, 1)
    assert [attempt.continuation.strategy for attempt in records.attempts] == [Strategy.PROMPT]


def test_a_turn_that_raises(records: Records) -> None:
    """`provider_error`, with the error; `cancelled` where somebody stopped it; cut where the answer was cut."""
    with pytest.raises(Stopped):
        observe_turn(stops)()
    with pytest.raises(KeyboardInterrupt):
        observe_turn(interrupted)()
    assert [ended.outcome for ended in records.turns] == [TurnOutcome.PROVIDER_ERROR, TurnOutcome.CANCELLED]
    assert isinstance(records.turns[0].error, Stopped)

    @observe_turn
    def parses() -> object:
        provider_of(CUT)(REQUEST)
        return json.loads("Half an ans")

    with pytest.raises(ValueError, match="Expecting"):
        parses()
    assert records.turns[-1].outcome is TurnOutcome.NOT_CONTINUED


def stops() -> None:
    raise Stopped


def interrupted() -> None:
    raise KeyboardInterrupt


async def test_a_turn_that_is_cancelled(records: Records) -> None:
    """A cancelled task's turn is `cancelled`."""

    @observe_turn
    async def handle() -> None:
        await asyncio.sleep(60)

    task = asyncio.create_task(handle())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [ended.outcome for ended in records.turns] == [TurnOutcome.CANCELLED]


def test_a_generator_s_turn_is_current_only_while_it_runs(records: Records) -> None:
    """What its consumer does between two items is not part of the turn."""
    ask = provider_of(WHOLE, WHOLE, WHOLE)

    @observe_turn
    def handle() -> Iterator[str]:
        yield ask(REQUEST).text
        yield ask(REQUEST).text

    for _ in handle():
        assert current_turn() is None
    ask(REQUEST)
    outer = records.started[2].turn
    assert outer.kind is TurnKind.IMPLICIT
    assert [started.turn.kind for started in records.started[:2]] == [TurnKind.OBSERVED] * 2


async def test_an_async_generator_s_turn_is_current_only_while_it_runs(records: Records) -> None:
    """The same; and it may be driven from several contexts."""
    ask = provider_of(WHOLE, WHOLE)

    @observe_turn
    async def handle() -> AsyncIterator[str]:
        yield ask(REQUEST).text
        await asyncio.sleep(0)
        yield ask(REQUEST).text

    made = handle()
    await asyncio.create_task(anext(made))  # type: ignore[arg-type] # an awaitable, as an async generator gives
    assert current_turn() is None
    await asyncio.create_task(anext(made), context=contextvars.Context())  # type: ignore[arg-type]
    with pytest.raises(StopAsyncIteration):
        await anext(made)
    assert [ended.outcome for ended in records.turns] == [TurnOutcome.COMPLETED]
    assert len({started.turn for started in records.started}) == 1


def test_a_generator_s_turn_that_is_closed(records: Records) -> None:
    """A consumer that stops has cancelled."""

    @observe_turn
    def handle() -> Iterator[int]:
        yield 1
        yield 2

    for _ in handle():
        break
    gc.collect()
    cleanup.run()
    assert [ended.outcome for ended in records.turns] == [TurnOutcome.CANCELLED]


def test_a_wrapped_stream_belongs_to_the_turn_it_began_in(records: Records) -> None:
    """Also where it is read to its end after that turn's code has left."""

    @observe_provider_call(provider="p")
    def ask() -> Iterator[Any]:
        yield Delta(text="x")
        yield CUT

    kept: list[Any] = []

    @observe_turn
    def handle() -> None:
        made = ask()
        next(made)
        kept.append(made)

    handle()
    list(kept[0])
    (started,) = records.started
    assert started.turn.kind is TurnKind.OBSERVED
