"""Observed turns: whose calls they have, which truncated response stands unfinished, and when a turn is over."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from endturn.calls.outcomes import TurnKind, TurnOutcome
from endturn.calls.records import TurnStarted
from endturn.calls.turn import Turn
from endturn.calls.turn_scope import current_turn, infer_with, start_turn
from endturn.continuation.controller import ContinuationController
from endturn.errors import ProviderUnavailable
from endturn.formats import Context, format_of
from endturn.instrumentation._instrument import uninstrument
from endturn.instrumentation.decorators import observe_provider_call, observe_turn
from endturn.vocabulary.messages import ChatResponse, Request
from endturn.vocabulary.stop import StopReason
from tests.formats.replies import chat_body
from tests.support.turns import SEARCH, Played, ask, call, calling, cut, said
from tests.telemetry.mocked import ASK, CUT, CUT_STREAM, WHOLE, Records, achat, body, chat, events, settle


def asked(text: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def model(*script: Any, chunk: int | None = None) -> Callable[..., Any]:
    """A provider function of the host's own, observed."""
    return observe_provider_call(provider="p")(Played(*script, chunk=chunk))


def test_a_turn_and_its_calls(records: Records) -> None:
    """Calls within belong to it; it names its agent and its conversation."""
    complete = model(said("Half"), said("All."))

    @observe_turn(agent="support", conversation_id=lambda question, session: session["id"])
    def handle(question: str, session: dict[str, str]) -> Any:
        complete(ask())
        return complete(ask("Why?")).text

    assert handle("hi", session={"id": "c9"}) == "All."
    (ended,) = records.turns
    assert records.told() == ["support 2 completed"]
    assert (ended.turn.kind, ended.turn.conversation, ended.complete) == (TurnKind.OBSERVED, "c9", True)
    assert {started.turn for started in records.started} == {ended.turn}
    assert isinstance(records[0], TurnStarted)


@observe_turn
def fails(error: BaseException, *script: Any) -> None:
    for response in script:
        model(response)(ask())
    raise error


def test_a_turn_that_raises(records: Records) -> None:
    """`provider_error`, with the error; `cancelled` where somebody stopped it; cut where the answer was cut."""
    errors = [RuntimeError(), KeyboardInterrupt(), asyncio.CancelledError()]
    for error in errors:
        with pytest.raises(type(error)):
            fails(error)
    with pytest.raises(ValueError, match="no JSON"):
        fails(ValueError("no JSON"), cut('{"half'))
    assert records.told() == ["None 0 provider_error", *["None 0 cancelled"] * 2, "None 1 not_continued"]
    assert records.turns[0].error is errors[0]


# --- Generators and streams ----------------------------------------------------------------------------------------


def test_a_generator_s_turn_is_current_only_while_it_runs(records: Records) -> None:
    """What its consumer does between two items is not part of the turn; one that stops has cancelled."""
    complete = model(said(), said())

    @observe_turn
    def handle() -> Iterator[str]:
        yield complete(ask()).text
        yield "never asked for"

    for _ in handle():
        assert current_turn() is None
        complete(ask())
        break
    settle()
    assert [started.turn.kind for started in records.started] == [TurnKind.OBSERVED, TurnKind.IMPLICIT]
    assert records.turns[-1].outcome is TurnOutcome.CANCELLED


async def test_an_async_generator_s_turn_is_current_only_while_it_runs(records: Records) -> None:
    """The same; and it may be driven from several contexts."""
    complete = model(said(), said())

    @observe_turn
    async def handle() -> AsyncIterator[str]:
        yield complete(ask()).text
        await asyncio.sleep(0)
        yield complete(ask()).text

    made = handle()
    await asyncio.create_task(anext(made))  # type: ignore[arg-type] # an awaitable, as an async generator gives
    assert current_turn() is None
    await asyncio.create_task(anext(made), context=contextvars.Context())  # type: ignore[arg-type]
    with pytest.raises(StopAsyncIteration):
        await anext(made)
    assert records.told() == ["None 2 completed"]


def begun(stream: Any) -> tuple[Any]:
    """One that has begun, where the decorator does not see it."""
    next(stream)
    return (stream,)


HANDED_BACK: dict[str, tuple[Callable[[], Any], TurnOutcome]] = {
    "an SDK's": (
        lambda: chat(events(*CUT_STREAM)).chat.completions.create(**ASK, stream=True), TurnOutcome.NOT_CONTINUED,
    ),
    "a controller's": (
        lambda: begun(ContinuationController(Played(said("abcd"), chunk=1)).stream(ask())), TurnOutcome.COMPLETED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("leave", [list, lambda stream: stream.close()], ids=["read", "left"])
@pytest.mark.parametrize(("work", "outcome"), HANDED_BACK.values(), ids=HANDED_BACK)
def test_a_turn_that_hands_back_a_stream_ends_with_it(
    records: Records, work: Any, outcome: TurnOutcome, leave: Any
) -> None:
    """What a function hands back unread is read, or left, by its host: then the turn is over, and known."""
    handed = observe_turn(work)()
    (stream,) = handed if isinstance(handed, tuple) else (handed,)
    next(stream)
    assert not records.turns
    leave(stream)
    assert records.told() == [f"None 1 {outcome if leave is list else 'cancelled'}"]
    (ended,) = records.turns
    assert (ended.turn.model, ended.turn.provider) == (records.only().started.request.model, "openai")


def test_a_wrapped_stream_belongs_to_the_turn_it_began_in(records: Records) -> None:
    """Also where it is read to its end after that turn's code has left."""
    (stream,) = observe_turn(lambda: begun(model(cut("ab"), chunk=1)(ask())))()
    list(stream)
    assert records.only().started.turn.kind is TurnKind.OBSERVED


async def test_a_coroutine_that_returns_a_generator(records: Records) -> None:
    """Its turn lasts until what it returned has been read."""
    client = achat(body(CUT))

    async def pieces() -> Any:
        yield await client.chat.completions.create(**ASK)

    @observe_turn(agent="a")
    async def agent() -> Any:
        return pieces()

    handed = await agent()
    assert not records.turns
    assert inspect.isasyncgen(handed)
    assert len([each async for each in handed]) == 1
    assert records.told() == ["a 1 not_continued"]


# --- A controller within -------------------------------------------------------------------------------------------


def test_turn_controller_decorator_and_sdk_at_once(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 500, 500, 200 and a continuation each attempt is one record, and one turn is counted, the outer: its calls,
    tokens, continuations; each record has its id."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    client = chat(body({}, 500), body({}, 500), body(CUT), body(chat_body({"content": "re."})), max_retries=2)
    speaks = format_of("openai_chat")

    @observe_provider_call(provider="outer")
    def complete(request: Request) -> ChatResponse:
        answer = client.chat.completions.create(**speaks.encode(request))
        return speaks.decode(answer.model_dump(), ctx=Context())

    controller = ContinuationController(complete, provider_name="openai", agent="inner")
    turn_of: Any = observe_turn(agent="support", conversation_id="c")
    assert turn_of(lambda: controller.run(ask()).text)() == "Hello there."
    assert records.reasons() == ["error", "error", "max_tokens", "end_turn"]
    assert records.told() == ["support 4 completed"]
    (ended,) = records.turns
    turn, tokens = ended.turn, sum(call.usage.output_tokens or 0 for call in records.ended if call.usage)
    assert (ended.complete, turn.kind, turn.continuations, turn.truncated) == (True, TurnKind.OBSERVED, 1, True)
    assert (turn.output_tokens, turn.answer_tokens, turn.conversation, turn.open_streams) == (tokens, tokens, "c", 0)
    assert [record.turn for record in records if isinstance(record, TurnStarted)] == [turn]
    assert {(call.turn.id, call.turn.agent) for call in records.started} == {(turn.id, "support")}
    assert records.started[-1].continuation is not None
    assert [record.turn.id for record in records.attempts] == [turn.id]


def run(*script: Any) -> object:
    try:
        return ContinuationController(Played(*script)).run(ask())
    except ProviderUnavailable as error:
        return error


GONE = ProviderUnavailable("gone")
WITHIN: dict[str, tuple[Any, str]] = {
    "given up": (lambda: run(*(cut(f"{word} ") for word in "abcd")), "4 retry_limit"),
    "failed later": (lambda: run(cut("a "), GONE), "2 provider_error"),
    "raised": (lambda: run(GONE), "1 provider_error"),
    "refused": (lambda: run(said("", StopReason.REFUSED)), "1 refused"),
    "asked elsewhere then": (lambda: [run(GONE), chat(body(WHOLE)).chat.completions.create(**ASK)], "2 completed"),
    "tried again": (lambda: [run(GONE), run(said("Yes"))], "2 completed"),
}
"""What is done in an observed function, after how many calls its turn ends, and how."""


@pytest.mark.parametrize(("work", "told"), WITHIN.values(), ids=WITHIN)
def test_what_became_of_the_controllers_turn_is_what_became_of_the_outer(
    records: Records, work: Any, told: str
) -> None:
    """Where the function itself says nothing else; a host that asks again or elsewhere then has its answer."""
    observe_turn(work)()
    assert records.told() == [f"None {told}"]
    assert records.turns[0].complete is ("completed" in told)


def test_a_controller_that_a_tool_runs_has_its_own_turn(records: Records) -> None:
    """Another's question, another's answer."""

    def search(_: Any) -> str:
        return ContinuationController(Played(said("found")), agent="inner").run(ask()).text

    controller = ContinuationController(Played(calling(call()), said("Done.")), tools=[(SEARCH, search)])
    observe_turn(agent="outer")(lambda: controller.run(ask()))()
    assert records.told() == ["inner 1 completed", "outer 2 completed"]


# --- Turns in turns ------------------------------------------------------------------------------------------------


async def test_sub_agents_side_by_side(records: Records) -> None:
    """Each has a turn of its own, and what one leaves cut is its own: the agent that called it completes."""
    client = achat(*(body(CUT if number % 2 else WHOLE) for number in range(6)))

    @observe_turn(agent="sub")
    async def sub(number: int) -> None:
        await client.chat.completions.create(**asked(str(number)))
        await asyncio.sleep(0)
        await client.chat.completions.create(**asked(f"again {number}"))

    @observe_turn(agent="main")
    async def main() -> None:
        await asyncio.gather(*(sub(number) for number in range(3)))

    await main()
    assert [(ended.turn.agent, ended.turn.iterations) for ended in records.turns] == [*[("sub", 2)] * 3, ("main", 0)]
    assert records.turns[-1].outcome is TurnOutcome.COMPLETED
    assert len({call.started.turn.id for call in records.ended}) == 3


@pytest.mark.parametrize("inferring", [True, False], ids=["inferred", "alone"])
async def test_a_turn_that_is_over_gives_way_to_the_one_around_it(records: Records, inferring: bool) -> None:
    """A worker that an inner turn started makes its calls in the outer, as long as that lasts; then by themselves."""
    if not inferring:
        infer_with(None)
    client = achat(body(WHOLE), body(CUT))
    inner_over, outer_over, called = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        for over in (inner_over, outer_over):
            await over.wait()
            await client.chat.completions.create(**ASK)
            called.set()

    @observe_turn(agent="inner")
    async def inner() -> asyncio.Task[None]:
        return asyncio.create_task(work())

    @observe_turn(agent="outer")
    async def outer() -> asyncio.Task[None]:
        worker = await inner()
        inner_over.set()
        await called.wait()
        return worker

    worker = await outer()
    outer_over.set()
    await worker
    uninstrument()
    assert records.told() == ["inner 0 completed", "outer 1 completed", "None 1 not_continued"]


def test_turns_that_start_each_other_are_not_kept(records: Records) -> None:
    """However many have been: of those around a turn, what is over holds no other that is."""
    scope = start_turn(Turn(kind=TurnKind.OBSERVED))
    for _ in range(10):
        with scope.step():
            following = start_turn(Turn(kind=TurnKind.OBSERVED))
        assert following.turn.enclosing is scope.turn
        assert scope.turn.enclosing is None or scope.turn.enclosing.enclosing is None
        scope.end(TurnOutcome.COMPLETED)
        scope = following
    scope.end(TurnOutcome.COMPLETED)
