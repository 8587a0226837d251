"""Putting instrumentation in place and taking it away; what it emits; and what happens when it fails."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from endturn import hooks
from endturn.instrumentation import instrument as instrument_module
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


def test_a_host_that_sets_up_its_providers_later_is_not_warned() -> None:
    """Nothing is said: by its first call they are there, and it is recorded."""
    code = """
import sys; sys.path.insert(0, ".")
import endturn
endturn.instrument()
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
kept, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
from tests.telemetry.mocked import ASK, WHOLE, body, chat
chat(body(WHOLE)).chat.completions.create(**ASK)
print([span.name for span in kept.get_finished_spans()])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("['chat gpt-5.6-mini']\n", "")


IMPORTS = """
import sys, logging
{first}
import endturn
endturn.instrument()
assert not [name for name in ("openai", "anthropic", "httpx", "httpx2") if name in sys.modules] or {early}
import openai
import httpx2
assert hasattr(httpx2.Client.send, "__wrapped__")
endturn.uninstrument()
assert not hasattr(httpx2.Client.send, "__wrapped__")
"""


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


@pytest.mark.parametrize(
    ("first", "early"),
    [pytest.param("", False, id="imported later"), pytest.param("import openai", True, id="imported before")],
)
def test_the_sdk_may_be_imported_before_or_after(first: str, early: bool) -> None:
    """Instrumenting imports no SDK; whenever the host imports one, it is observed from then on."""
    code = IMPORTS.format(first=first, early=early)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_process_that_ends_in_mid_stream_ends_its_calls() -> None:
    """At exit, what is being read and what waits for a continuation is announced."""
    code = """
import sys; sys.path.insert(0, ".")
import endturn, openai
from endturn import hooks
hooks.subscribe(lambda record: print(type(record).__name__, getattr(record, "outcome", ""), flush=True))
endturn.instrument()
from tests.telemetry.mocked import ASK, STREAM, CUT, chat, events, body
stream = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
next(stream)
chat(body(CUT)).chat.completions.create(**ASK)
print("exit", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.split("exit")[1].split()
    assert said == ["CallEnded", "TurnEnded", "cancelled", "TurnEnded", "not_continued"]
    assert not re.search("Traceback|Exception", done.stderr), done.stderr


# --- Signals -------------------------------------------------------------------------------------------------------


async def test_signals_of_every_form(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """One span and one count for each attempt, streamed, left, cancelled; no span stays current anywhere."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    instrument(tracer_provider=tracers, meter_provider=meters)
    try:
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
    finally:
        uninstrument()
    assert not trace.get_current_span().get_span_context().is_valid
    reasons = [(span.attributes or {})["endturn.stop.reason"] for span in spans.get_finished_spans()]
    assert sorted(map(str, reasons)) == ["cancelled", "cancelled", "end_turn", "end_turn", "error", "error"]
    data = reader.get_metrics_data()
    assert data is not None
    points = [
        point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "endturn.responses"
        for point in metric.data.data_points
    ]
    assert sum(getattr(point, "value", 0) for point in points) == 6
    assert "detach" not in caplog.text


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
}


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
def test_telemetry_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch, where: str, what: Any) -> None:
    """Whatever of ours raises, the host sees what it would have seen without us."""
    bare = list(outcomes())
    stop = hooks.subscribe(lambda record: None)
    instrument()
    try:
        monkeypatch.setattr(where, what)
        assert list(outcomes()) == bare
    finally:
        monkeypatch.undo()
        uninstrument()
        stop()
