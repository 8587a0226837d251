"""Observed turns of several calls: which truncated response stands unfinished, and when a turn is over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from endturn import announce
from endturn.records import TurnOutcome
from endturn.telemetry.instrument import instrument, uninstrument
from endturn.telemetry.observe import observe_turn
from tests.telemetry.mocked import CUT, CUT_STREAM, STREAM, WHOLE, Records, achat, body, chat, events


@pytest.fixture
def records() -> Iterator[Records]:
    """What is announced while the SDKs are instrumented."""
    seen = Records()
    instrument()
    stop = announce.listen(seen.append)
    try:
        with announce.strict():
            yield seen
    finally:
        stop()
        uninstrument()


def asked(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_a_whole_answer_to_another_message_finishes_nothing(records: Records) -> None:
    """An agent that hands back a cut answer and then has a title made left it unfinished."""

    @observe_turn(agent="support")
    def answer(question: str) -> None:
        client = chat(body(CUT), body(WHOLE))
        client.chat.completions.create(model="big", messages=asked(question))
        client.chat.completions.create(model="small", messages=asked("Give this chat a title."))

    answer("Why do answers stop?")
    (turn,) = records.turns
    assert (turn.outcome, turn.complete) == (TurnOutcome.NOT_CONTINUED, False)
    assert (turn.turn.model, turn.turn.truncated, turn.turn.unfinished) == ("big", True, True)


def test_a_whole_answer_to_the_same_message_finishes_it(records: Records) -> None:
    """Asked again in other words around the same question, by whatever model, the answer came."""

    @observe_turn
    def answer(question: str) -> None:
        client = chat(body(CUT), body(WHOLE))
        client.chat.completions.create(model="small", messages=asked(question))
        brief = [{"role": "system", "content": "Be brief."}, *asked(question)]
        client.chat.completions.create(model="big", messages=brief)

    answer("Why do answers stop?")
    (turn,) = records.turns
    assert (turn.outcome, turn.turn.unfinished) == (TurnOutcome.COMPLETED, False)


async def test_of_parallel_calls_each_answers_for_itself(records: Records) -> None:
    """Three calls at once, the first cut: two whole ones do not finish it."""

    @observe_turn
    async def fan_out() -> None:
        clients = [achat(body(CUT)), achat(body(WHOLE)), achat(body(WHOLE))]
        await asyncio.gather(
            *(
                client.chat.completions.create(model="m", messages=asked(f"part {number}"))
                for number, client in enumerate(clients)
            )
        )

    await fan_out()
    (turn,) = records.turns
    assert (turn.outcome, turn.turn.iterations) == (TurnOutcome.NOT_CONTINUED, 3)


async def test_each_of_several_cut_calls_can_be_continued(records: Records) -> None:
    """Two cut answers in one turn, both continued: none stands unfinished."""
    nudge = {"role": "user", "content": "Continue."}

    @observe_turn
    async def two() -> None:
        clients = [achat(body(CUT), body(WHOLE)) for _ in range(2)]
        for number, client in enumerate(clients):
            await client.chat.completions.create(model="m", messages=asked(f"part {number}"))
        for number, client in enumerate(clients):
            history = [*asked(f"part {number}"), {"role": "assistant", "content": "Hello the"}, nudge]
            await client.chat.completions.create(model="m", messages=history)

    await two()
    (turn,) = records.turns
    assert (turn.outcome, turn.turn.continuations, turn.turn.unfinished) == (TurnOutcome.COMPLETED, 2, False)


@pytest.mark.parametrize(
    ("stream", "outcome"),
    [(CUT_STREAM, TurnOutcome.NOT_CONTINUED), (STREAM, TurnOutcome.COMPLETED)],
    ids=["cut", "whole"],
)
def test_a_turn_that_returns_a_stream_ends_with_it(records: Records, stream: Any, outcome: TurnOutcome) -> None:
    """What a function hands back unread is read by its host: then the turn is over, and known."""

    @observe_turn(agent="support")
    def answer(question: str) -> Any:
        return chat(events(*stream)).chat.completions.create(model="big", messages=asked(question), stream=True)

    handed_back = answer("Why?")
    assert not records.turns
    for _ in handed_back:
        pass
    (turn,) = records.turns
    assert (turn.outcome, turn.turn.model, turn.turn.provider) == (outcome, "big", "openai")


async def test_a_turn_that_returns_a_stream_which_is_closed_is_cancelled(records: Records) -> None:
    """Leaving the stream leaves the turn."""

    @observe_turn
    async def answer() -> Any:
        return await achat(events(*STREAM)).chat.completions.create(model="m", messages=asked("Why?"), stream=True)

    stream = await answer()
    await anext(stream)
    await stream.close()
    (turn,) = records.turns
    assert turn.outcome is TurnOutcome.CANCELLED
