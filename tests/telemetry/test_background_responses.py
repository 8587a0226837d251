"""Responses that are made in the background, by the SDK: instrumentation/answers.yaml has how they are fetched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from endturn.chat import Json
from endturn.events import Turn, TurnKind, TurnOutcome
from endturn.instrumentation import background_responses
from endturn.instrumentation.decorators import observe_turn
from endturn.scopes import start_turn
from endturn.stop import StopReason
from tests.formats import replies_openai_responses as replies
from tests.telemetry.mocked import Records, achat, body, chat, events

JOB: Json = {"model": "gpt-5.6-mini", "input": "hi", "background": True}
QUEUED = replies.body([], "queued", background=True, usage=None)
RUNNING = replies.body([], "in_progress", background=True, usage=None)
FINAL = replies.cut([replies.say("Hello the", status="incomplete")], background=True)
JOB_STREAM = replies.named(*replies.begun(background=True), *replies.said(0, "w0 ", "w1 "), replies.ended(FINAL))


def leave(stream: Any) -> None:
    with stream:
        next(stream)


@pytest.fixture(autouse=True)
def no_job_is_left() -> Iterator[None]:
    """Every test settles the jobs that it began."""
    yield
    assert not background_responses.are_pending()


async def test_an_async_job(records: Records) -> None:
    """The same, asynchronously, through a raw response."""
    client = achat(body(QUEUED), body(RUNNING), body(FINAL))
    job = await client.responses.create(**JOB)
    await client.responses.with_raw_response.retrieve(job.id)
    assert not records.ended
    async with client.responses.with_streaming_response.retrieve(job.id) as raw:
        await raw.read()
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_a_job_that_nobody_fetches(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is `paused`, as it was seen last: after an hour, or when there are too many, or at the end."""
    ids = iter(range(9))

    def job() -> httpx2.Response:
        return body({**QUEUED, "id": f"resp_{next(ids)}"})

    monkeypatch.setattr(background_responses, "PENDING", 2)
    client = chat(*(job() for _ in range(3)))
    for _ in range(3):
        client.responses.create(**JOB)
    assert [ended.response_id for ended in records.ended] == ["resp_0"]
    monkeypatch.setattr(background_responses, "IDLE_S", 0.0)
    background_responses.sweep()
    assert [ended.response_id for ended in records.ended] == ["resp_0", "resp_1", "resp_2"]
    assert {(ended.stop.reason, ended.stop.raw) for ended in records.ended} == {(StopReason.PAUSED, "queued")}
    assert {turn.outcome for turn in records.turns} == {TurnOutcome.LEFT_PAUSED}
    assert not background_responses.are_pending()


def test_a_job_in_a_controller_s_turn(records: Records) -> None:
    """The controller fetches on its own account: the call that started the job is over with its answer."""
    scope = start_turn(Turn(kind=TurnKind.CONTROLLER))
    with scope.step():
        chat(body(QUEUED)).responses.create(**JOB)
    scope.end(TurnOutcome.LEFT_PAUSED)
    assert records.only().stop.reason is StopReason.PAUSED


def test_an_observed_turn_does_not_wait_for_a_job_s_stream(records: Records) -> None:
    """A turn that left a job's stream is over; the job's end is recorded when it is fetched."""
    client = chat(events(*JOB_STREAM), body(FINAL))

    @observe_turn(agent="researcher")
    def agent() -> str:
        leave(client.responses.create(**JOB, stream=True))
        return "started"

    assert agent() == "started"
    assert [turn.turn.agent for turn in records.turns] == ["researcher"]
    client.responses.retrieve("resp_68a1")
    assert records.only().stop.reason is StopReason.MAX_TOKENS
    assert records.ended[0].started.turn.open_streams == 0
