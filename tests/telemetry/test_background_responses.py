"""Responses that are made in the background: one record of each, which the fetch ends that shows how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx2
import openai
import pytest

from endturn.chat import Json
from endturn.events import Turn, TurnKind, TurnOutcome
from endturn.instrumentation import background_responses
from endturn.instrumentation.decorators import observe_turn
from endturn.scopes import start_turn
from endturn.stop import StopReason
from tests.formats import replies_openai_responses as replies
from tests.telemetry.mocked import Records, achat, body, chat, events, settle

ASK: Json = {"model": "gpt-5.6-mini", "input": "hi"}
JOB: Json = {**ASK, "background": True}
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


ID = "resp_68a1"
STEPS: dict[str, Callable[[Any], object]] = {
    "create": lambda responses: responses.create(**JOB),
    "stream": lambda responses: list(responses.create(**JOB, stream=True)),
    "begin": lambda responses: leave(responses.create(**JOB, stream=True)),
    "get": lambda responses: responses.retrieve(ID),
    "follow": lambda responses: list(responses.retrieve(ID, stream=True)),
    "look": lambda responses: leave(responses.retrieve(ID, stream=True)),
    "take up": lambda responses: list(responses.retrieve(ID, stream=True, starting_after=3)),
    "cancel": lambda responses: responses.cancel(ID),
}
CANCELLED = replies.body([], "cancelled", background=True, usage=None)
FAILED = replies.named({"type": "error", "code": "server_error", "message": "try again", "param": None})
JOBS: dict[str, list[tuple[str, Callable[[], httpx2.Response | Exception], int]]] = {
    "it is over when it is fetched whole": [
        ("create", lambda: body(QUEUED), 0),
        ("get", lambda: body(RUNNING), 0),
        ("get", lambda: body(FINAL), 1),
        ("get", lambda: body(FINAL), 1),
    ],
    "it is done at once": [("create", lambda: body(FINAL), 1)],
    "it is streamed to its end": [("stream", lambda: events(*JOB_STREAM), 1)],
    # To leave a job's stream does not end the job: it is over where its stream, taken up again, tells its end.
    "its stream is taken up again": [
        ("begin", lambda: events(*JOB_STREAM), 0),
        ("take up", lambda: events(*JOB_STREAM[4:]), 1),
    ],
    # A fetch that fails, is lost, is left or brings an error says nothing of the response.
    "what happens to a fetch alone": [
        ("create", lambda: body(QUEUED), 0),
        ("get", lambda: body({"error": {"message": "overloaded"}}, 500), 0),
        ("get", lambda: httpx2.ConnectError("refused"), 0),
        ("follow", lambda: events(*JOB_STREAM[:3], error=httpx2.ReadError("gone")), 0),
        ("look", lambda: events(*JOB_STREAM), 0),
        ("follow", lambda: events(*JOB_STREAM[:2], *FAILED), 0),
        ("get", lambda: body(FINAL), 1),
    ],
    "it is cancelled": [("create", lambda: body(QUEUED), 0), ("cancel", lambda: body(CANCELLED), 1)],
    "it is another process's": [("get", lambda: body(FINAL), 0)],
}
"""What a host does, what it is answered, and how many calls have ended then."""


@pytest.mark.parametrize("steps", JOBS.values(), ids=JOBS)
def test_a_job(records: Records, steps: list[tuple[str, Callable[[], Any], int]]) -> None:
    """One call, however often it is fetched, whose reason is the last that was fetched."""
    responses = chat(*(answer() for _, answer, _ in steps)).responses
    for name, _, ended in steps:
        with suppress(openai.APIError):
            STEPS[name](responses)
        settle()
        assert len(records.ended) == ended
    assert len(records.started) == len(records.ended)
    for call in records.ended:
        is_cancelled = steps[-1][0] == "cancel"
        assert call.stop.reason is (StopReason.CANCELLED if is_cancelled else StopReason.MAX_TOKENS)
        assert is_cancelled or call.stop.raw == "incomplete:max_output_tokens"
        assert is_cancelled or (call.usage is not None and call.usage.output_tokens == 17)


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
