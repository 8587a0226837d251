"""The decorators: what a function is and does stays the same, whatever its kind; what it calls is announced."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any

import openai
import pytest

from endturn.errors import ProviderUnavailable
from endturn.formats import FORMATS, format_of
from endturn.instrumentation.decorators import observe_provider_call, observe_turn
from endturn.vocabulary.messages import ChatResponse, Delta, Usage
from endturn.vocabulary.stop import Stop, StopReason
from tests.formats.recorded import RECORDED
from tests.formats.replies import DONE_EVENT, chunk
from tests.telemetry.mocked import Records, settle

CUT = ChatResponse(
    text="Half an ans", stop=Stop(StopReason.MAX_TOKENS, "length"), usage=Usage(3, 4), id="r1", model="m-1"
)
WHOLE = ChatResponse(text="wer.", stop=Stop(StopReason.END_TURN, "stop"))
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
decorators = pytest.mark.parametrize("decorate", DECORATORS.values(), ids=DECORATORS)


def plain(a: object, *, b: object = "x") -> object:
    """Plain."""
    return a, b


async def coroutine(a: object, *, b: object = "x") -> object:
    """Coroutine."""
    await asyncio.sleep(0)
    return a, b


def generator(a: Any, closed: list[int]) -> Generator[Any, Any, str]:
    """Generator."""
    with ExitStack() as stack:
        stack.callback(closed.append, 1)
        try:
            a = yield a
        except Stopped as error:
            a = yield repr(error)
        yield a
    return "over"


async def async_generator(a: Any, closed: list[int]) -> AsyncGenerator[Any, Any]:
    """Async generator."""
    with ExitStack() as stack:
        stack.callback(closed.append, 1)
        try:
            a = yield a
        except Stopped as error:
            a = yield repr(error)
        yield a


@decorators
@pytest.mark.parametrize("function", [plain, coroutine, generator, async_generator])
def test_a_decorated_function_is_what_it_was(decorate: Callable[[Any], Any], function: Any) -> None:
    """Its kind, signature, name and documentation are unchanged."""
    wrapped = decorate(function)
    assert wrapped is not function
    kinds = ("isfunction", "iscoroutinefunction", "isgeneratorfunction", "isasyncgenfunction", "signature", "unwrap")
    for ask in kinds:
        assert getattr(inspect, ask)(wrapped) == getattr(inspect, ask)(function), ask
    for name in ("__name__", "__module__", "__doc__"):
        assert getattr(wrapped, name) == getattr(function, name)


async def given(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


async def seen(decorate: Callable[[Any], Any]) -> AsyncIterator[object]:
    """What a host sees of functions of every kind: what they return, give, are sent, are thrown, do at their end."""
    yield decorate(plain)(1, b="y")
    yield await decorate(coroutine)(1, b="y")
    yield list(decorate(lambda: iter("ab"))())
    with pytest.raises(ZeroDivisionError):
        decorate(lambda: 1 // 0)()
    unfit: list[tuple[Any, Any]] = [((), {}), ((1, 2, 3), {}), ((1,), {"a": 2})]
    for args, named in unfit:
        with pytest.raises(TypeError) as refused:
            decorate(plain)(*args, **named)
        yield str(refused.value)  # Python says what does not fit the signature
    for function in (generator, async_generator):
        for is_read in (True, False):
            closed: list[int] = []
            made = decorate(function)(1, closed=closed)
            does = {name: getattr(made, name, None) or getattr(made, f"a{name}") for name in ("send", "throw", "close")}
            yield await given(does["send"](None)), await given(does["throw"](Stopped("thrown")))
            yield await given(does["send"]("sent")), [*closed]
            try:
                yield await given(does["send"](None) if is_read else does["close"]())
            except (StopIteration, StopAsyncIteration) as over:
                yield getattr(over, "value", "over")
            yield closed


async def test_a_decorated_function_does_what_it_did(records: Records) -> None:
    """Everything passes, and nothing runs before the await."""
    bare = [each async for each in seen(lambda function: function)]
    for decorate in DECORATORS.values():
        assert [each async for each in seen(decorate)] == bare
        records.clear()
        pending = decorate(coroutine)(1)
        assert inspect.iscoroutine(pending)
        assert not records
        await pending


@decorators
def test_nobody_listening_touches_nothing(decorate: Callable[[Any], Any]) -> None:
    """A plain function's generator is handed on as it is."""
    made = (number for number in range(3))
    assert decorate(lambda: made)() is made


# --- What is asked -------------------------------------------------------------------------------------------------

HISTORY: list[Any] = [{"role": "user", "content": "hi"}]
GOES_ON: list[Any] = [{"role": "assistant", "content": "Half an ans"}, {"role": "user", "content": "Please continue."}]
LEFT: list[ChatResponse] = []


def ask(model: str, messages: list[Any], max_tokens: int = 7) -> ChatResponse:
    return LEFT.pop(0)


async def ask_later(model: str, messages: list[Any], max_tokens: int = 7) -> ChatResponse:
    return LEFT.pop(0)


def streamed(model: str, messages: list[Any], max_tokens: int = 7) -> Iterator[ChatResponse]:
    yield LEFT.pop(0)


no_names = observe(lambda *args, max_tokens=7, **kwargs: LEFT.pop(0))
renamed = observe(lambda history, model="m", stop=("END",), max_tokens=7: LEFT.pop(0))


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
    "no names": lambda messages: no_names(messages, model="m"),
    "another name": lambda messages: renamed(messages),
    "another name, by name": lambda messages: renamed(history=messages),
}
"""Functions of the messages alone; the model is always "m", the limit 7."""


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_request_is_found_whatever_is_decorated(records: Records, way: Callable[[list[Any]], Any]) -> None:
    """The model, the limit and the messages; so what asks for the rest is known as a continuation."""
    LEFT[:] = [CUT, WHOLE]
    way(HISTORY)
    way(HISTORY + GOES_ON)
    first, second = records.started
    assert [(started.request.model, started.request.max_tokens) for started in (first, second)] == [("m", 7), ("m", 7)]
    assert (first.continuation is None, second.continuation is None) == (True, False)
    assert first.turn is second.turn


def test_what_may_not_be_the_history_is_not_taken_for_it(records: Records) -> None:
    """Two lists of messages, or lists of something else."""
    texts = ["hi", "Half an ans", "Please continue."]
    for first, then in ((HISTORY, HISTORY + GOES_ON), (texts[:1], texts), ([], [])):
        LEFT[:] = [CUT, WHOLE]
        for asked in (first, then):
            others = {"other": asked} if first is HISTORY else {}
            observe(lambda **kwargs: LEFT.pop(0))(one=asked, **others)
    assert [started.continuation for started in records.started] == [None] * 6


# --- What is answered ----------------------------------------------------------------------------------------------


def test_what_a_call_returns_is_read(records: Records) -> None:
    """Our response, a provider's body, an SDK's object; from a text alone nothing is guessed. A C function has no
    signature."""
    said = RECORDED["openai_chat"].bodies["length"]
    made = openai.types.chat.ChatCompletion.model_validate(said)
    for response in (CUT, said, made, "Half an ans", SimpleNamespace(text="x")):
        assert observe(lambda response: response)(response) is response
    assert observe(max)(1, 2) == 2
    assert records.reasons() == [StopReason.MAX_TOKENS] * 3 + [StopReason.UNKNOWN] * 3
    assert {started.endpoint.provider for started in records.started} == {"p"}
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
    assert records.reasons() == [StopReason.MAX_TOKENS, StopReason.MAX_TOKENS, StopReason.UNKNOWN]


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
    """Generators of Deltas, of a provider's chunks; plain functions that return such a generator. Closing early, and
    dropping, is `cancelled`; one that never ran was never a call."""

    def streamed() -> Iterator[Any]:
        yield from items

    async def astreamed() -> AsyncIterator[Any]:
        for item in items:
            yield item

    assert list(observe(streamed)()) == items
    assert [item async for item in observe(astreamed)()] == items
    assert list(observe(lambda: streamed())()) == items
    assert records.reasons() == [reason] * 3
    assert all(ended.started.request.stream and ended.first_chunk_s is not None for ended in records.ended)
    made: Any = observe(streamed)()
    next(made)
    made.close()
    observe(streamed)()
    next(observe(streamed)())
    settle()
    assert records.reasons()[3:] == [StopReason.CANCELLED] * 2


LONG = Stop(StopReason.CONTEXT_WINDOW_EXCEEDED)
ERRORS: list[tuple[BaseException, StopReason]] = [
    (ProviderUnavailable("503", status=503), StopReason.ERROR),
    (ProviderUnavailable("cut", partial=CUT), StopReason.MAX_TOKENS),
    (ProviderUnavailable("long", stop=LONG), LONG.reason),
    (KeyboardInterrupt(), StopReason.CANCELLED),
]


@pytest.mark.parametrize(("error", "reason"), ERRORS)
def test_a_call_that_raises(records: Records, error: BaseException, reason: StopReason) -> None:
    """The error, and what it says of the stop."""

    def fails() -> None:
        raise error

    with pytest.raises(type(error)):
        observe(fails)()
    assert (records.only().stop.reason, records.only().error) == (reason, error)
