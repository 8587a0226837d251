"""Putting instrumentation in place, again, and taking it away; what it emits; and what happens when it fails."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx2
import openai
import pytest
from opentelemetry import trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.instrumentation.utils import suppress_instrumentation

from endturn.calls import listeners
from endturn.errors import UsageError
from endturn.instrumentation._instrument import instrument, uninstrument
from endturn.instrumentation.decorators import observe_provider_call, observe_turn
from endturn.telemetry import cleanup
from tests.formats.replies import template
from tests.telemetry.mocked import ASK, CHUNKS, STREAM, WHOLE, Records, achat, body, chat, events, settle
from tests.telemetry.stage import Recording, Stage, counted, in_a_child
from tests.telemetry.test_observe import seen

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


def test_somebody_who_patched_later_keeps_their_patch(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """What wraps ours is left alone; ours then lets every call through."""
    ours = vars(httpx2.Client)["send"]
    monkeypatch.setattr(httpx2.Client, "send", lambda *args, **kwargs: ours(*args, **kwargs))
    uninstrument()
    chat(body(WHOLE)).chat.completions.create(**ASK)
    assert not records
    monkeypatch.undo()
    httpx2.Client.send = ours.__wrapped__  # type: ignore[method-assign]


# --- Again: what is given takes the place of what was set before ----------------------------------------------------

SECRET: dict[str, Any] = {**ASK, "messages": [{"role": "user", "content": "a secret of many words"}]}


def hide(text: str) -> str:
    return text.replace("secret", "[hidden]")


def said(stage: Stage) -> str:
    """What is recorded on its span of one call, as asked."""
    chat(body(WHOLE)).chat.completions.create(**SECRET)
    cleanup.run()
    return str(stage.finished()[-1]["attributes"].get("gen_ai.input.messages"))


def test_the_hosts_own_call_decides_where_the_process_was_started_observed(recording: Recording) -> None:
    """Its redaction, and agents among the labels, take effect from then on; what it leaves out stays. A stream that
    began before ends its span after it, and its response is counted once."""
    stage = recording(events="spans", content="SPAN_ONLY")
    assert "secret" in said(stage)
    stream = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    next(stream)
    instrument(redact=hide, agent=True)
    assert len(list(stream)) > 0
    assert "a [hidden] of" in said(stage)
    assert stage.finished()[-1]["events"]  # as the file said
    observe_turn(agent="support")(lambda: said(stage))()
    assert any("support" in key for key in stage.points()["endturn.turns"])
    assert sum(stage.points()["endturn.responses"].values()) == 4 == len(stage.finished()) - 1


def test_what_a_later_call_gives_takes_the_place_of_what_was_set(
    recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    """Content is switched on and off while calls are observed. The rest stays; a call that asks for the same, or for
    nothing, is silent; one with a mistake changes nothing."""
    caplog.set_level(logging.INFO, "endturn")
    stage, second = recording(events="logs"), Stage()
    assert said(stage) == "None"
    instrument(content="SPAN_ONLY", redact=hide)
    assert "a [hidden] of" in said(stage)
    caplog.clear()
    instrument()
    instrument(events="logs", content="SPAN_ONLY", tracer_provider=stage.tracers)
    with pytest.raises(TypeError, match="redakt"):
        instrument(redakt=str.upper)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="redact='hide': it must be a function"):
        instrument(redact="hide", tracer_provider=second.tracers)  # type: ignore[arg-type]
    assert "from now on calls are recorded" not in caplog.text
    instrument(redact=str.upper, tracer_provider=second.tracers)
    assert caplog.text.count("from now on calls are recorded") == 1
    assert "A SECRET OF MANY WORDS" in said(second)
    instrument(content="no_content")
    assert said(second) == "None"
    assert len(stage.finished()) == 2


# --- Signals -------------------------------------------------------------------------------------------------------


@pytest.fixture
def stage(recording: Recording) -> Stage:
    """A host's providers, to which its calls are recorded."""
    return recording()


async def test_no_span_stays_current(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Neither while a stream is read, nor after it was left, in whatever task; each is one span and one count."""
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
    assert reasons == {"cancelled": 2, "end_turn": 1}
    assert {key[-1]: count for key, count in counted(stage.points()["endturn.responses"]).items()} == reasons
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
    """The child, too, is within the span that the parent exports."""
    within: list[str] = []
    ask_with(lambda request: within.append(in_a_child(lambda: trace.get_current_span().get_span_context().span_id)))
    assert within == [str(span["span"]) for span in stage.finished()]


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
    "end": ("endturn.calls.call_scope.Call.end", explode),
    "step": ("endturn.calls.call_scope.Call.step", explode),
    "a chunk": ("endturn.calls.call_scope.Call.record_chunk", explode),
    "listener": ("endturn.telemetry.recorder.Recorder.__call__", explode),
    "resolve": ("endturn.telemetry.turn_inference.TurnInference.resolve", explode),
    "ended": ("endturn.telemetry.turn_inference.TurnInference.on_call_end", explode),
    "request": ("endturn.instrumentation.body.json_object", explode),
    "recognition": ("endturn.instrumentation.exchange.endpoint", explode),
    "error": ("endturn.instrumentation.body.error_of", explode),
    "answer": ("endturn.instrumentation.body.BodyReader", explode),
    "responses being made": ("endturn.instrumentation.background_responses.keep_open", explode),
    "fetches": ("endturn.instrumentation.background_responses.pending", explode),
    "ends of fetches": ("endturn.instrumentation.background_responses.on_fetched", explode),
    "a decorated call": ("endturn.instrumentation.decorators.open_call", explode),
    "a decorated turn": ("endturn.instrumentation.decorators.start_turn", explode),
    "a turn's step": ("endturn.calls.turn_scope.TurnScope.step", explode),
    "a turn's end": ("endturn.calls.turn_scope.TurnScope.end", explode),
}


def result(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except Exception as error:
        return type(error), str(error)


def outcomes() -> Iterator[object]:
    """What a host sees of every form of call: types, contents, exceptions, and how much was read."""

    def ask(reply: Any, **how: Any) -> Any:
        return chat(reply).chat.completions.create(**ASK, **how)

    for reply in (body(WHOLE), body({"error": {"message": "no"}}, 400), httpx2.ConnectError("refused")):
        yield result(partial(ask, reply))
    yield list(ask(events(*STREAM), stream=True))
    with ask(events(*STREAM), stream=True) as closed:
        yield type(closed), next(closed)
    lost = ask(events(*CHUNKS, error=httpx2.ReadError("gone")), stream=True)
    yield [next(lost) for _ in CHUNKS], result(lambda: next(lost))
    states = ("queued", "in_progress", "completed")
    client = chat(*(body(template("response", output=[], status=state)) for state in states))
    job = client.responses.create(model="m", input="hi", background=True)
    yield job, *(client.responses.retrieve(job.id) for _ in range(2))


@pytest.mark.parametrize(("where", "what"), BREAKS.values(), ids=BREAKS.keys())
async def test_telemetry_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch, where: str, what: Any) -> None:
    """Whatever of ours raises, the host sees what it would have seen without us."""

    async def everything() -> list[object]:
        decorated = [[each async for each in seen(decorate)] for decorate in (observe_provider_call, observe_turn)]
        return [*outcomes(), *decorated]

    bare = await everything()
    stop = listeners.subscribe(lambda record: None)
    instrument()
    try:
        monkeypatch.setattr(where, what)
        assert await everything() == bare
    finally:
        monkeypatch.undo()
        uninstrument()
        stop()
