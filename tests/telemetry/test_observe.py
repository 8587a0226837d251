"""The decorators: what a function is and does stays the same, whatever its kind; what it calls is announced."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any

import openai
import pytest

import endturn
from endturn.chat import ChatResponse, Delta, Message, Request, Usage
from endturn.errors import ProviderUnavailable, UsageError
from endturn.events import TurnKind, TurnOutcome, TurnStarted
from endturn.formats import FORMATS, Context, format_of
from endturn.instrumentation.decorators import observe_provider_call, observe_turn
from endturn.scopes import current_turn
from endturn.stop import Stop, StopReason
from endturn.telemetry import cleanup
from tests.formats.recorded import RECORDED
from tests.formats.replies import DONE_EVENT, chat_body, chunk
from tests.telemetry.mocked import Records, body, chat

CHAT = RECORDED["openai_chat"].bodies
CUT = ChatResponse(
    text="Half an ans", stop=Stop(StopReason.MAX_TOKENS, "length"), usage=Usage(3, 4), id="r1", model="m-1"
)
WHOLE = ChatResponse(text="wer.", stop=Stop(StopReason.END_TURN, "stop"))
REQUEST = Request(model="m", messages=(Message(role="user", content="hi"),), max_tokens=4)
observe: Callable[[Callable[..., Any]], Callable[..., Any]] = observe_provider_call(provider="p")


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


@pytest.mark.parametrize("function", [plain, coroutine, generator, async_generator])
def test_a_decorated_function_is_what_it_was(decorate: Callable[[Any], Any], function: Any) -> None:
    """Its kind, signature, name and documentation are unchanged."""
    wrapped = decorate(function)
    assert wrapped is not function
    for ask in (
        "isfunction",
        "iscoroutinefunction",
        "isgeneratorfunction",
        "isasyncgenfunction",
        "signature",
        "unwrap",
    ):
        assert getattr(inspect, ask)(wrapped) == getattr(inspect, ask)(function), ask
    for name in ("__name__", "__module__", "__doc__"):
        assert getattr(wrapped, name) == getattr(function, name)


async def given(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


async def conversation(made: Any) -> list[Any]:
    """What a generator of either kind gives, is sent, is thrown and returns."""
    send, throw = (made.asend, made.athrow) if hasattr(made, "asend") else (made.send, made.throw)
    said = [await given(send(None)), await given(send("sent")), await given(throw(Stopped("thrown")))]
    said.append(await given(send("more")))
    try:
        return [*said, await given(send(None))]
    except (StopIteration, StopAsyncIteration) as end:
        return [*said, getattr(end, "value", "over")]


async def test_a_decorated_function_does_what_it_did(records: Records, decorate: Callable[[Any], Any]) -> None:
    """Arguments, results, send, throw and the return value pass; nothing runs before the await."""
    assert decorate(plain)(1, b="y") == (1, "y")
    thing = object()
    assert decorate(lambda: thing)() is thing
    records.clear()
    pending = decorate(coroutine)(1, b="y")
    assert inspect.iscoroutine(pending)
    assert not records
    assert await pending == (1, "y")
    assert await conversation(decorate(generator)(1, b="y")) == [1, "sent", "Stopped('thrown')", "more", "y"]
    made = decorate(async_generator)(1, b="y")
    assert await conversation(made) == [1, "sent", "Stopped('thrown')", "more", "over"]


async def test_a_decorated_generator_is_closed_as_it_was(records: Records, decorate: Callable[[Any], Any]) -> None:
    """What it does at its end is done then and there."""
    closed: list[int] = []

    def closes() -> Iterator[int]:
        with ExitStack() as stack:
            stack.callback(closed.append, 1)
            yield 1

    async def acloses() -> AsyncIterator[int]:
        with ExitStack() as stack:
            stack.callback(closed.append, 2)
            yield 1

    made, amade = decorate(closes)(), decorate(acloses)()
    assert (next(made), await anext(amade)) == (1, 1)
    made.close()
    await amade.aclose()
    assert closed == [1, 2]


def test_nobody_listening_touches_nothing(decorate: Callable[[Any], Any]) -> None:
    """A plain function's generator is handed on as it is."""
    made = (number for number in range(3))
    assert decorate(lambda: made)() is made


# --- Calls ---------------------------------------------------------------------------------------------------------


def test_what_a_call_returns_is_read(records: Records) -> None:
    """Our response, a provider's body, an SDK's object; from a text alone nothing is guessed. A C function has no
    signature."""
    made = openai.types.chat.ChatCompletion.model_validate(CHAT["length"])
    for response in (CUT, CHAT["length"], made, "Half an ans", SimpleNamespace(text="x")):
        assert observe(lambda response: response)(response) is response
    assert observe(max)(1, 2) == 2
    assert records.reasons() == [StopReason.MAX_TOKENS] * 3 + [StopReason.UNKNOWN] * 3
    assert {started.provider for started in records.started} == {"p"}
    assert records.started[0].model == "m-1"  # better the model that answered than none


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
    with pytest.raises(UsageError, match="openai"):
        observe_provider_call(format="opnai")  # not only with the first call


HISTORY: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
MORE: list[dict[str, Any]] = [
    *HISTORY,
    {"role": "assistant", "content": "Half an ans"},
    {"role": "user", "content": "Please continue."},
]


LEFT: list[ChatResponse] = []


def ask(model: str, messages: list[Any], max_tokens: int = 7) -> ChatResponse:
    return LEFT.pop(0)


async def ask_later(model: str, messages: list[Any], max_tokens: int = 7) -> ChatResponse:
    return LEFT.pop(0)


def streamed(model: str, messages: list[Any], max_tokens: int = 7) -> Iterator[ChatResponse]:
    yield LEFT.pop(0)


def any_arguments(*args: Any, max_tokens: int = 7, **kwargs: Any) -> ChatResponse:
    return LEFT.pop(0)


def renamed(history: list[Any], model: str = "m", stop: tuple[str, ...] = ("END",), max_tokens: int = 7) -> Any:
    return LEFT.pop(0)


class Provider:
    """Functions that are found in other ways than as plain ones."""

    def method(self, model: str, messages: list[Any], max_tokens: int = 7) -> ChatResponse:
        return LEFT.pop(0)

    __call__ = method
    decorated = observe(method)
    static = observe(staticmethod(ask))


WAYS: dict[str, Callable[[list[Any]], Any]] = {
    "by name": lambda messages: observe(ask)(model="m", messages=messages),
    "by position": lambda messages: observe(ask)("m", messages, 7),
    "coroutine": lambda messages: asyncio.run(observe(ask_later)("m", messages)),
    "generator": lambda messages: list(observe(streamed)("m", messages=messages)),
    "bound method": lambda messages: observe(Provider().method)("m", messages),
    "method": lambda messages: Provider().decorated("m", messages),
    "static method": lambda messages: Provider().static("m", messages),
    "callable object": lambda messages: observe(Provider())("m", messages),
    "partial": lambda messages: observe(partial(ask, "m"))(messages),
    "no names": lambda messages: observe(any_arguments)(messages, model="m"),
    "another name": lambda messages: observe(renamed)(messages),
    "another name, by name": lambda messages: observe(renamed)(history=messages),
}
"""Functions of the messages alone; the model is always "m", the limit 7."""


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_request_is_found_whatever_is_decorated(records: Records, way: Callable[[list[Any]], Any]) -> None:
    """The model, the limit and the messages; so what asks for the rest is known as a continuation."""
    LEFT[:] = [CUT, WHOLE]
    way(HISTORY)
    way(MORE)
    first, second = records.started
    assert [(started.model, started.maximum) for started in (first, second)] == [("m", 7), ("m", 7)]
    assert first.continuation is None
    assert second.continuation is not None
    assert first.turn is second.turn


def test_what_may_not_be_the_history_is_not_taken_for_it(records: Records) -> None:
    """Two lists of messages, or lists of something else."""
    for first, then in (
        ({"one": HISTORY, "other": HISTORY}, {"one": MORE, "other": MORE}),
        ({"one": ["hi"]}, {"one": ["hi", "Half an ans", "Please continue."]}),
        ({"one": []}, {"one": []}),
    ):
        LEFT[:] = [CUT, WHOLE]
        ask = observe(lambda **kwargs: LEFT.pop(0))
        ask(**first)
        ask(**then)
    assert [started.continuation for started in records.started] == [None] * 6


def test_a_call_that_does_not_fit_the_signature_raises_what_it_did(records: Records) -> None:
    """Python says what is wrong with it."""

    observed = observe(ask)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'messages'"):
        observed("m")
    with pytest.raises(TypeError, match="takes from 2 to 3 positional arguments but 4 were given"):
        observed("m", HISTORY, 3, 4)
    with pytest.raises(TypeError, match="got multiple values for argument 'model'"):
        observed("m", HISTORY, model="n")


CHUNKS = [chunk({"role": "assistant", "content": "a"}), chunk({"content": "b"}), chunk({}, "length"), DONE_EVENT]

STREAMS: list[tuple[list[Any], StopReason]] = [
    ([Delta(text="Half "), Delta(text="an ans"), CUT], StopReason.MAX_TOKENS),
    ([Delta(text="Half ")], StopReason.MISSING),  # without their response
    ([event.data for event in CHUNKS[:-1]], StopReason.MAX_TOKENS),
    ([event.data for event in CHUNKS[:-2]], StopReason.MISSING),
    (["Half ", "an ans"], StopReason.UNKNOWN),
]


@pytest.mark.parametrize(("items", "reason"), STREAMS)
async def test_streams_are_read_as_they_pass(records: Records, items: list[Any], reason: StopReason) -> None:
    """Generators of Deltas, of a provider's chunks; and plain functions that return such a generator."""

    def streamed() -> Iterator[Any]:
        yield from items

    async def astreamed() -> AsyncIterator[Any]:
        for item in items:
            yield item

    assert list(observe(streamed)()) == items
    assert [item async for item in observe(astreamed)()] == items
    assert list(observe(lambda: streamed())()) == items
    assert records.reasons() == [reason] * 3
    assert all(ended.started.stream and ended.first_chunk_s is not None for ended in records.ended)


def test_a_stream_that_is_left(records: Records) -> None:
    """Closing early, and dropping, is `cancelled`; one that never ran was never a call."""

    @observe
    def streamed() -> Iterator[Any]:
        yield from STREAMS[2][0]

    made: Any = streamed()
    next(made)
    made.close()
    streamed()
    next(streamed())
    gc.collect()
    cleanup.run()
    assert records.reasons() == [StopReason.CANCELLED] * 2


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
        pytest.param(KeyboardInterrupt(), StopReason.CANCELLED, id="interrupted"),
    ],
)
def test_a_call_that_raises(records: Records, error: BaseException, reason: StopReason) -> None:
    """The error, and what it says of the stop."""

    def fails() -> None:
        raise error

    with pytest.raises(type(error)):
        observe(fails)()
    ended = records.only()
    assert (ended.stop.reason, ended.error) == (reason, error)


def test_controller_decorator_and_sdk_at_once_are_one_call(records: Records) -> None:
    """All layers at once, over 500, 500, 200 and a continuation: each attempt is one record, in one turn."""
    cut, rest = chat_body({"content": "Half an ans"}, "length"), chat_body({"content": "wer."})
    client = chat(body({}, 500), body({}, 500), body(cut), body(rest), max_retries=2)
    speaks = format_of("openai_chat")

    @observe_provider_call(provider="outer")
    def ask(request: Request) -> ChatResponse:
        answer = client.chat.completions.create(**speaks.encode(request))
        return speaks.decode(answer.model_dump(), ctx=Context())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", lambda seconds: None)
        result = endturn.ContinuationController(ask, provider_name="openai").run(REQUEST.but(max_tokens=100))
    assert result.text == "Half an answer."
    assert records.reasons() == ["error", "error", "max_tokens", "end_turn"]
    (turn,) = records.turns
    assert {started.turn for started in records.started} == {turn.turn}
    assert (turn.turn.kind, turn.turn.iterations, turn.turn.continuations) == (TurnKind.CONTROLLER, 4, 1)
    assert len(records.attempts) == 1
    assert records.started[-1].continuation is not None


# --- Turns ---------------------------------------------------------------------------------------------------------


def provider_of(*responses: ChatResponse) -> Callable[[Request], ChatResponse]:
    """A provider function that gives these."""
    left = list(responses)
    found: Callable[[Request], ChatResponse] = observe(lambda request: left.pop(0))
    return found


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


def test_a_turn_that_raises(records: Records) -> None:
    """`provider_error`, with the error; `cancelled` where somebody stopped it; cut where the answer was cut."""
    with pytest.raises(Stopped):
        observe_turn(raises)(Stopped)
    for stopped in (KeyboardInterrupt, asyncio.CancelledError):
        with pytest.raises(stopped):
            observe_turn(raises)(stopped)
    assert [ended.outcome for ended in records.turns] == [TurnOutcome.PROVIDER_ERROR, *[TurnOutcome.CANCELLED] * 2]
    assert isinstance(records.turns[0].error, Stopped)

    @observe_turn
    def parses() -> object:
        provider_of(CUT)(REQUEST)
        return json.loads("Half an ans")

    with pytest.raises(ValueError, match="Expecting"):
        parses()
    assert records.turns[-1].outcome is TurnOutcome.NOT_CONTINUED


def raises(kind: type[BaseException]) -> None:
    raise kind


def test_a_generator_s_turn_is_current_only_while_it_runs(records: Records) -> None:
    """What its consumer does between two items is not part of the turn; one that stops has cancelled."""
    ask = provider_of(WHOLE, WHOLE)

    @observe_turn
    def handle() -> Iterator[str]:
        yield ask(REQUEST).text
        yield "never asked for"

    for _ in handle():
        assert current_turn() is None
        ask(REQUEST)
        break
    gc.collect()
    cleanup.run()
    assert [started.turn.kind for started in records.started] == [TurnKind.OBSERVED, TurnKind.IMPLICIT]
    assert records.turns[-1].outcome is TurnOutcome.CANCELLED


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


def test_a_wrapped_stream_belongs_to_the_turn_it_began_in(records: Records) -> None:
    """Also where it is read to its end after that turn's code has left."""

    @observe
    def ask() -> Iterator[Any]:
        yield Delta(text="x")
        yield CUT

    kept: list[Any] = []

    @observe_turn
    def handle() -> None:
        kept.append(ask())
        next(kept[0])

    handle()
    list(kept[0])
    (started,) = records.started
    assert started.turn.kind is TurnKind.OBSERVED
