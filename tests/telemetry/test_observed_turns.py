"""Observed turns of several calls: which truncated response stands unfinished, and when a turn is over."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from endturn.controller import ContinuationController
from endturn.errors import ProviderUnavailable
from endturn.events import ContinuationAttempted, Turn, TurnKind, TurnOutcome, TurnStarted
from endturn.instrumentation.decorators import observe_turn
from endturn.instrumentation.instrument import uninstrument
from endturn.scopes import infer_with, start_turn
from endturn.stop import StopReason
from tests.support.turns import SEARCH, Played, ask, call, calling, cut, said
from tests.telemetry.mocked import CUT, CUT_STREAM, WHOLE, Records, achat, body, chat, events


def asked(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_a_turn_that_returns_a_stream_ends_with_it(records: Records) -> None:
    """What a function hands back unread is read, or left, by its host: then the turn is over, and known."""

    @observe_turn(agent="support")
    def answer(question: str) -> Any:
        return chat(events(*CUT_STREAM)).chat.completions.create(model="big", messages=asked(question), stream=True)

    leave: list[Any] = [list, lambda stream: stream.close()]
    for ended, leaves in enumerate(leave):
        handed_back = answer(f"Why {ended}?")
        next(handed_back)
        assert len(records.turns) == ended
        leaves(handed_back)
    assert [(turn.outcome, turn.turn.model, turn.turn.provider) for turn in records.turns] == [
        (TurnOutcome.NOT_CONTINUED, "big", "openai"),
        (TurnOutcome.CANCELLED, "big", "openai"),
    ]


# --- A controller within -------------------------------------------------------------------------------------------


def test_a_controllers_turn_within_is_a_part_of_the_observed_one(records: Records) -> None:
    """Over 500, 500, 200 one turn is counted, the outer: its calls, tokens, continuations; each record has its id."""
    provider = Played(cut("a ", tokens=500), cut("b ", tokens=500), said("c", tokens=200))

    @observe_turn(agent="support", conversation_id="c")
    def answer() -> str:
        result = ContinuationController(provider, agent="inner").run(ask(max_tokens=500))
        return result.text

    assert answer() == "a b c"
    (ended,) = records.turns
    turn = ended.turn
    assert (ended.outcome, ended.complete, turn.kind) == (TurnOutcome.COMPLETED, True, TurnKind.OBSERVED)
    assert (turn.iterations, turn.continuations, turn.truncated) == (3, 2, True)
    assert (turn.output_tokens, turn.answer_tokens) == (1200, 1200)
    assert (turn.agent, turn.conversation, turn.open_streams) == ("support", "c", 0)
    begun = [record for record in records if isinstance(record, TurnStarted)]
    assert [record.turn for record in begun] == [turn]
    assert {call.turn.id for call in records.started} == {turn.id}
    assert {call.turn.agent for call in records.started} == {"support"}
    assert [record.turn.id for record in records if isinstance(record, ContinuationAttempted)] == [turn.id] * 2


def run(*script: Any) -> object:
    try:
        return ContinuationController(Played(*script)).run(ask())
    except ProviderUnavailable as error:
        return error


GONE = ProviderUnavailable("gone")
WITHIN: dict[str, tuple[Any, TurnOutcome, int]] = {
    "given up": (lambda: run(*[cut("a ")] * 4), TurnOutcome.RETRY_LIMIT, 4),
    "failed later": (lambda: run(cut("a "), GONE), TurnOutcome.PROVIDER_ERROR, 2),
    "raised": (lambda: run(GONE), TurnOutcome.PROVIDER_ERROR, 1),
    "refused": (lambda: run(said("", StopReason.REFUSED)), TurnOutcome.REFUSED, 1),
    "asked elsewhere then": (
        lambda: [run(GONE), chat(body(WHOLE)).chat.completions.create(model="m", messages=asked("hi"))],
        TurnOutcome.COMPLETED,
        2,
    ),
    "tried again": (lambda: [run(GONE), run(said("Yes"))], TurnOutcome.COMPLETED, 2),
}
"""What is done in an observed function, how its turn ends, and after how many calls."""


@pytest.mark.parametrize(("work", "outcome", "calls"), WITHIN.values(), ids=WITHIN)
def test_what_became_of_the_controllers_turn_is_what_became_of_the_outer(
    records: Records, work: Any, outcome: TurnOutcome, calls: int
) -> None:
    """Where the function itself says nothing else; a host that asks again or elsewhere then has its answer."""
    observe_turn(work)()
    (ended,) = records.turns
    assert (ended.outcome, ended.turn.iterations) == (outcome, calls)
    assert ended.complete is (outcome is TurnOutcome.COMPLETED)


def test_a_turn_that_is_streamed_out_of_the_observed_function_ends_it(records: Records) -> None:
    """The outer turn is over when the inner one is: read to its end, or left."""

    @observe_turn
    def begins() -> tuple[Any]:
        items = ContinuationController(Played(said("abcd"), chunk=1)).stream(ask())
        next(items)
        return (items,)

    (items,) = begins()
    assert not records.turns
    list(items)
    (items,) = begins()
    items.close()
    assert [ended.outcome for ended in records.turns] == [TurnOutcome.COMPLETED, TurnOutcome.CANCELLED]


def test_a_controller_that_a_tool_runs_has_its_own_turn(records: Records) -> None:
    """Another's question, another's answer."""

    def search(_: Any) -> str:
        return ContinuationController(Played(said("found"))).run(ask()).text

    controller = ContinuationController(Played(calling(call()), said("Done.")), tools=[(SEARCH, search)])
    observe_turn(lambda: controller.run(ask()))()
    assert [(ended.turn.kind, ended.turn.iterations) for ended in records.turns] == [
        (TurnKind.CONTROLLER, 1), (TurnKind.OBSERVED, 2),
    ]  # fmt: skip


# --- Turns in turns ------------------------------------------------------------------------------------------------


async def test_sub_agents_side_by_side(records: Records) -> None:
    """Each has a turn of its own, and what one leaves cut is its own: the agent that called it completes."""
    client = achat(*(body(CUT if number % 2 else WHOLE) for number in range(6)))

    class Sub:
        @observe_turn(agent="sub")
        async def run(self, number: int) -> None:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": str(number)}])
            await asyncio.sleep(0)
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": f"again {number}"}])

    @observe_turn(agent="main")
    async def main() -> None:
        await asyncio.gather(*(Sub().run(number) for number in range(3)))

    await main()
    *inner, outer = records.turns
    assert [turn.turn.iterations for turn in inner] == [2, 2, 2]
    assert (outer.turn.iterations, outer.outcome) == (0, TurnOutcome.COMPLETED)
    assert len({call.started.turn.id for call in records.ended}) == 3


async def test_a_coroutine_that_returns_a_generator(records: Records) -> None:
    """Its turn lasts until what it returned has been read."""
    client = achat(body(CUT))

    async def pieces() -> Any:
        answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        yield answer.choices[0].message.content

    @observe_turn(agent="a")
    async def agent() -> Any:
        return pieces()

    handed = await agent()
    assert not records.turns
    assert inspect.isasyncgen(handed)
    async for _ in handed:
        pass
    (turn,) = records.turns
    assert (turn.outcome, turn.turn.iterations) == (TurnOutcome.NOT_CONTINUED, 1)


@pytest.mark.parametrize("inferring", [True, False], ids=["inferred", "alone"])
async def test_a_turn_that_is_over_gives_way_to_the_one_around_it(records: Records, inferring: bool) -> None:
    """A worker that an inner turn started makes its calls in the outer, as long as that lasts; then by themselves."""
    if not inferring:
        infer_with(None)
    client = achat(body(WHOLE), body(CUT))
    inner_over, outer_over = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        for over in (inner_over, outer_over):
            await over.wait()
            await client.chat.completions.create(model="m", messages=asked("x"))
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

    called = asyncio.Event()
    worker = await outer()
    outer_over.set()
    await worker
    uninstrument()
    assert [(turn.turn.agent, turn.turn.iterations, turn.outcome) for turn in records.turns] == [
        ("inner", 0, TurnOutcome.COMPLETED),
        ("outer", 1, TurnOutcome.COMPLETED),
        (None, 1, TurnOutcome.NOT_CONTINUED),
    ]


def test_turns_that_start_each_other_are_not_kept(records: Records) -> None:
    """However many have been: of those around a turn, what is over holds no other that is."""
    scope = start_turn(Turn(kind=TurnKind.OBSERVED))
    for _ in range(10):
        with scope.step():
            following = start_turn(Turn(kind=TurnKind.OBSERVED))
        assert following.turn.around is scope.turn
        assert scope.turn.around is None or scope.turn.around.around is None
        scope.end(TurnOutcome.COMPLETED)
        scope = following
    scope.end(TurnOutcome.COMPLETED)
