"""Putting instrumentation in place and taking it away; what it emits; and what happens when it fails."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import openai
import pytest
from opentelemetry import trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from endturn import hooks
from endturn.instrumentation import instrument as instrument_module
from endturn.instrumentation.decorators import observe_provider_call, observe_turn
from endturn.instrumentation.instrument import instrument, uninstrument
from tests.formats import replies_openai_responses as replies
from tests.telemetry.mocked import (
    ASK,
    CHUNKS,
    CUT,
    STREAM,
    WHOLE,
    Answer,
    Records,
    achat,
    body,
    chat,
    events,
    settle,
)
from tests.telemetry.stage import Recording, Stage

# --- Putting in place and taking away ------------------------------------------------------------------------------


CLIENTS = (httpx2.Client, httpx2.AsyncClient)


def test_instrumenting_twice_is_one_patch_and_all_of_it_is_undone() -> None:
    """The methods come back, the very same ones; their names and signatures never changed."""
    before = [vars(kind)["send"] for kind in CLIENTS]
    instrument()
    instrument()
    during = [vars(kind)["send"] for kind in CLIENTS]
    assert all(new is not old and new.__wrapped__ is old for new, old in zip(during, before, strict=True))
    assert [inspect.signature(new) for new in during] == [inspect.signature(old) for old in before]
    uninstrument()
    after = [vars(kind)["send"] for kind in CLIENTS]
    assert all(new is old for new, old in zip(after, before, strict=True))
    uninstrument()


def test_somebody_who_patched_later_keeps_their_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What wraps ours is left alone; ours then lets every call through."""
    kept = Records()
    stop = hooks.subscribe(kept.append)
    instrument()
    ours = vars(httpx2.Client)["send"]
    monkeypatch.setattr(httpx2.Client, "send", lambda *args, **kwargs: ours(*args, **kwargs))
    uninstrument()
    chat(body(WHOLE)).chat.completions.create(**ASK)
    stop()
    assert not kept
    monkeypatch.undo()
    httpx2.Client.send = ours.__wrapped__  # type: ignore[method-assign]


def test_without_a_sdk_the_remedy_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first model call that goes unrecorded, and not before: a host may set up its providers after our line."""
    monkeypatch.setattr(instrument_module, "_warned", False)
    with caplog.at_level(logging.WARNING, "endturn"):
        for number in range(2):
            instrument()
            assert len(caplog.records) == number
            for _ in range(2):
                chat(body(WHOLE)).chat.completions.create(**ASK)
            uninstrument()
    assert [("endturn.configure()" in message, "is not recorded" in message) for message in caplog.messages] == [
        (True, True)
    ]


@pytest.mark.parametrize(
    ("variable", "warns"),
    [("service.name=a,service.instance.id=worker", True), ("service.name=a", False)],
    ids=["configured", "random"],
)
def test_a_name_that_processes_share_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str, warns: bool
) -> None:
    """A host's own provider that is named by a variable would mix the series of all its processes."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", variable)
    instrument(tracer_provider=TracerProvider(), meter_provider=MeterProvider([InMemoryMetricReader()]))
    uninstrument()
    assert ("one service.instance.id" in caplog.text) is warns


# --- Signals -------------------------------------------------------------------------------------------------------


@pytest.fixture
def stage(recording: Recording) -> Stage:
    """A host's providers, to which its calls are recorded."""
    return recording()


async def test_signals_of_every_form(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One span and one count for each attempt, streamed, left, cancelled; no span stays current anywhere."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    chat(body({}, 500), body({}, 500), body(WHOLE), max_retries=2).chat.completions.create(**ASK)
    for item in chat(events(*STREAM)).chat.completions.create(**ASK, stream=True):
        assert item
        assert not trace.get_current_span().get_span_context().is_valid
    async with await achat(events(*STREAM)).chat.completions.create(**ASK, stream=True) as stream:
        await anext(stream)
    other: Any = await achat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    await asyncio.create_task(anext(other))
    del other
    settle()
    await asyncio.sleep(0)
    assert not trace.get_current_span().get_span_context().is_valid
    reasons = Counter(span["attributes"]["endturn.stop.reason"] for span in stage.finished())
    assert reasons == {"cancelled": 2, "end_turn": 2, "error": 2}
    counts = {reason: count for (*_, reason), count in stage.points()["endturn.responses"].items() if count}
    assert counts == reasons
    assert "detach" not in caplog.text


Hook = Callable[[httpx2.Request], object]


def ask_with(hook: Hook) -> None:
    """One call, within which the hook runs."""
    transport = httpx2.MockTransport(lambda request: body(WHOLE))
    http = httpx2.Client(transport=transport, event_hooks={"request": [hook]})
    openai.OpenAI(api_key="none", max_retries=0, http_client=http).chat.completions.create(**ASK)


def test_what_is_made_within_a_call_is_in_its_span(stage: Stage) -> None:
    """A hook's span and log record are; also where observation has ended meanwhile."""
    tracer, logger = stage.tracers.get_tracer("host"), stage.loggers.get_logger("host")

    def hook(request: httpx2.Request) -> None:
        uninstrument()
        tracer.start_span("GET").end()
        logger.emit(body="within", event_name="endturn.termination_signal", severity_number=SeverityNumber.INFO)

    with tracer.start_as_current_span("host"):
        ask_with(hook)
    inner, made, outer = stage.finished()
    assert (made["name"], made["parent"], inner["parent"]) == (f"chat {ASK['model']}", outer["span"], made["span"])
    assert {each.log_record.span_id for each in stage.logs.get_finished_logs()} == {made["span"]}


def test_events_without_spans_are_of_the_hosts_trace() -> None:
    """Where there is no tracer, an event has the ids of the span that the call was made in."""
    stage = Stage()
    instrument(logger_provider=stage.loggers)
    with stage.tracers.get_tracer("host").start_as_current_span("host"):
        chat(body(WHOLE)).chat.completions.create(**ASK)
    uninstrument()
    assert [event["span"] for event in stage.events()] == [stage.finished()[0]["span"]]


def test_a_call_in_which_a_process_forks_is_the_parents(stage: Stage) -> None:
    """The child, too, is within the span that the parent exports, and exports none of that call itself."""
    reading, writing = os.pipe()
    process = os.getpid()

    def hook(request: httpx2.Request) -> None:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        else:
            os.write(writing, b"%d " % trace.get_current_span().get_span_context().span_id)

    try:
        ask_with(hook)
    finally:
        if os.getpid() != process:
            os.write(writing, b"%d" % len(stage.finished()))
            os._exit(0)
    span_id, exported = os.read(reading, 100).split()
    os.close(reading)
    os.close(writing)
    (made,) = stage.finished()
    assert (int(span_id), int(exported)) == (made["span"], 0)


def test_a_span_is_adopted_though_instrumentation_is_suppressed(stage: Stage) -> None:
    """Who makes a span of a call keeps others from making one too; the stop reason is on it all the same."""
    known = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": ASK["model"]}
    with suppress_instrumentation():
        chat(body(WHOLE)).chat.completions.create(**ASK)
        with stage.tracers.get_tracer("theirs").start_as_current_span("theirs", attributes=known):
            chat(body(WHOLE)).chat.completions.create(**ASK)
    (span,) = stage.finished()
    assert (span["name"], span["attributes"]["endturn.stop.reason"]) == ("theirs", "end_turn")


# --- When telemetry fails ------------------------------------------------------------------------------------------


def explode(*args: object, **kwargs: object) -> Any:
    raise RuntimeError("telemetry")


class Exploding:
    """Raises wherever it is touched."""

    def __init__(self, *args: object) -> None:
        pass

    feed = close = explode


BREAKS = {
    "inspect": ("endturn.formats.format.Format.request_summary", explode),
    "watch": ("endturn.formats.format.Format.summarizer", explode),
    "see and close": ("endturn.formats.format.Format.summarizer", Exploding),
    "open_call": ("endturn.instrumentation.exchange.open_call", explode),
    "end": ("endturn.scopes.Call.end", explode),
    "step": ("endturn.scopes.Call.step", explode),
    "a chunk": ("endturn.scopes.Call.chunk", explode),
    "listener": ("endturn.telemetry.recorder.Recorder.__call__", explode),
    "resolve": ("endturn.telemetry.turn_inference.TurnInference.resolve", explode),
    "ended": ("endturn.telemetry.turn_inference.TurnInference.ended", explode),
    "request": ("endturn.instrumentation.body.json_object", explode),
    "recognition": ("endturn.instrumentation.exchange.endpoint", explode),
    "error": ("endturn.instrumentation.body.error_of", explode),
    "answer": ("endturn.instrumentation.body.Answer", explode),
    "responses being made": ("endturn.instrumentation.background_responses.keep", explode),
    "fetches": ("endturn.instrumentation.background_responses.pending", explode),
    "ends of fetches": ("endturn.instrumentation.background_responses.fetched", explode),
    "a decorated call": ("endturn.instrumentation.decorators.open_call", explode),
    "what it asks": ("endturn.instrumentation.decorators._asked", explode),
    "what it gives": ("endturn.instrumentation.decorators._CallRun._read", explode),
    "a decorated turn": ("endturn.instrumentation.decorators.start_turn", explode),
    "a turn's step": ("endturn.scopes.TurnScope.step", explode),
    "a turn's end": ("endturn.scopes.TurnScope.end", explode),
}


async def later(value: object) -> object:
    return value


def pieces(*values: object) -> Iterator[object]:
    yield from values


async def later_pieces(*values: object) -> AsyncIterator[object]:
    for value in values:
        yield value


async def decorated() -> AsyncIterator[object]:
    """The same of functions of every kind."""
    for decorate in (observe_provider_call, observe_turn):
        yield decorate(lambda: WHOLE)()
        yield await decorate(later)(WHOLE)
        yield list(decorate(pieces)(*(event.data for event in CHUNKS)))
        yield [each async for each in decorate(later_pieces)("a", 1)]
        with pytest.raises(ZeroDivisionError):
            decorate(lambda: 1 // 0)()


def outcomes() -> Iterator[object]:
    """What a host sees of every form of call: types, contents, exceptions, and how much was read."""
    yield chat(body(WHOLE)).chat.completions.create(**ASK).model_dump()
    stream = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    yield type(stream)
    yield [item.model_dump() for item in stream]
    with chat(events(*STREAM)).chat.completions.create(**ASK, stream=True) as closed:
        yield next(closed).model_dump()
    yield chat(body(WHOLE)).chat.completions.with_raw_response.create(**ASK).parse().model_dump()
    with chat(body(WHOLE)).chat.completions.with_streaming_response.create(**ASK) as raw:
        yield raw.read()
    with chat(events(*STREAM)).chat.completions.with_streaming_response.create(**ASK, stream=True) as lines:
        yield list(lines.iter_lines())
    for fails in (body({"error": {"message": "no"}}, 400), httpx2.ConnectError("refused"), body(CUT)):
        try:
            chat(fails).chat.completions.parse(**ASK, response_format=Answer)
        except Exception as error:
            yield type(error), str(error)
    asked: Any = {"model": "m", "input": "hi"}
    told = replies.named(*replies.begun(), *replies.said(0, "w0 "), replies.ended(replies.cut([])))
    yield [item.model_dump() for item in chat(events(*told)).responses.create(**asked, stream=True)]
    client = chat(body(replies.body([], "queued")), body(replies.body([], "in_progress")), body(replies.cut([])))
    job = client.responses.create(**asked, background=True)
    yield job.model_dump(), *(client.responses.retrieve(job.id).model_dump() for _ in range(2))
    lost = chat(events(*CHUNKS, error=httpx2.ReadError("gone"))).chat.completions.create(**ASK, stream=True)
    try:
        yield [item.model_dump() for item in lost]
    except Exception as error:
        yield type(error), str(error)


@pytest.mark.parametrize(("where", "what"), BREAKS.values(), ids=BREAKS.keys())
async def test_telemetry_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch, where: str, what: Any) -> None:
    """Whatever of ours raises, the host sees what it would have seen without us."""
    bare = [*outcomes(), *[each async for each in decorated()]]
    stop = hooks.subscribe(lambda record: None)
    instrument()
    try:
        monkeypatch.setattr(where, what)
        assert [*outcomes(), *[each async for each in decorated()]] == bare
    finally:
        monkeypatch.undo()
        uninstrument()
        stop()
