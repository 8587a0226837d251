"""Spans as other instrumentations make them, by the real SDK: which are adopted, which are turns, which are counted."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, AlwaysRecordSampler
from opentelemetry.trace import SpanKind, StatusCode

import endturn
from endturn import hooks
from endturn.instrumentation import http_clients
from endturn.scripted import Reply, ScriptedProvider, fail, say, truncate
from endturn.telemetry import cleanup, foreign_spans, span_conventions
from endturn.telemetry.attributes import error_of
from tests.telemetry.mocked import ASK, Records
from tests.telemetry.stage import in_a_child

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
DONE: dict[str, Any] = {"gen_ai.response.finish_reasons": ("stop",), "gen_ai.usage.output_tokens": 3}
LENGTH: dict[str, Any] = {"gen_ai.response.finish_reasons": ("length",), "gen_ai.usage.output_tokens": 5}
REASON = "endturn.stop.reason"
SCENARIOS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("spans.yaml").read_text())
_, EMITTERS, SPELLINGS = (SCENARIOS.pop(name) for name in ("attributes", "emitters", "spellings"))


class World:
    """A tracer provider with the processor, and what is announced."""

    def __init__(self, **options: Any) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False, **options)
        self.exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.processor = endturn.AdoptingSpanProcessor(tracer_provider=self.provider, counted=True)
        self.provider.add_span_processor(self.processor)
        self.records = Records()
        self.stop = hooks.subscribe(self.records.append)
        self.held: list[httpx.Response] = []

    def tracer(self, scope: str = "somebody") -> trace.Tracer:
        return self.provider.get_tracer(scope)

    def call(self, told: dict[str, Any], asked: dict[str, Any] | None = None, scope: str = "somebody") -> None:
        """A span of one call, whose end tells this."""
        with self.tracer(scope).start_as_current_span(
            "chat gpt-5", kind=SpanKind.CLIENT, attributes={**CHAT, **(asked or {})}
        ) as it:
            it.set_attributes(told)

    def agent(self) -> trace.Span:
        """An agent's span that has had a call, and is open."""
        span = self.tracer().start_span("agent", attributes=AGENT)
        with trace.use_span(span, end_on_exit=False):
            self.call(DONE)
        return span

    def ask(self, reply: Reply, stream: bool = False) -> httpx.Response:
        """Send a request over HTTP; nothing of the answer has been read."""
        client = httpx.Client(transport=ScriptedProvider([reply]).transport())
        body = {**ASK, "model": "gpt-5", "stream": stream}
        request = client.build_request("POST", "http://gateway/v1/chat/completions", json=body)
        return client.send(request, stream=True)

    def reasons(self) -> list[str]:
        """Of the calls that have ended; with what they failed with, and whether the reason is suspected."""
        return [
            " ".join(filter(None, (ended.stop.reason, error_of(ended), "suspected" * ended.stop.suspected)))
            for ended in self.records.ended
        ]

    def close(self) -> None:
        self.provider.shutdown()
        self.stop()


@pytest.fixture
def world() -> Iterator[World]:
    """Spans, and the exchanges within them."""
    http_clients.install(lambda: True)
    with hooks.strict():
        made = World()
        yield made
        made.close()
    http_clients.uninstall()


# --- What becomes of spans -------------------------------------------------------------------------------------------

RAISED: dict[str, type[BaseException]] = {
    "RuntimeError": RuntimeError, "CancelledError": asyncio.CancelledError, "KeyError": KeyError,
}  # fmt: skip
CUT = truncate("Hello there", after=1)
REPLIES = {"say": say("Hello"), "stream": say("Hello"), "cut": CUT, "open": CUT}


def play(world: World, step: Any) -> None:
    """Make a span and what is in it, or ask over HTTP."""
    if step == "read":
        world.held.pop().read()
        return
    if isinstance(step, str):
        response = world.ask(REPLIES.get(step) or fail(int(step.split()[1])), step in ("stream", "open"))
        world.held.append(response) if step == "open" else response.read()
        return
    span = world.tracer(step.get("scope", "somebody")).start_span(step["span"], attributes=step.get("known"))
    with nullcontext() if "apart" in step else trace.use_span(span):
        span.set_attributes(step.get("late", {}))
        for each in step.get("do", ()):
            play(world, each)
        span.set_attributes(step.get("then", {}))
        if "raises" in step:
            span.record_exception(RAISED[step["raises"]]())
            span.set_status(StatusCode.ERROR)
    span.end()


def shown(spans: Sequence[ReadableSpan]) -> Iterator[str]:
    scopes = {span.context.span_id: span_conventions.scope_of(span) for span in spans if span.context}
    for span in spans:
        known = span.attributes or {}
        told = str(known.get(REASON) or known.get("endturn.turn.outcome", "-"))
        calls = " " + str(known["endturn.turn.iterations"]) if "endturn.turn.iterations" in known else ""
        within = f" in {scopes[span.parent.span_id]}" if span.parent else ""
        yield f"{span_conventions.scope_of(span)} {told}{calls}{within}" + " *" * bool(known.get("endturn.counted"))


for scope, name, known in EMITTERS:  # whenever its span says what it is: no other is made beside it
    for when in ("known", "late"):
        made = {"span": name, "scope": scope, when: known, "do": ["cut"], "then": LENGTH}
        told = {"reasons": ["max_tokens"], "spans": [f"{scope} max_tokens *"], "turns": ["None 1 not_continued"]}
        SCENARIOS[f"an exchange adopts the span of {scope}, {when}"] = {"do": [made], **told}


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_becomes_of_spans(world: World, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """As spans.yaml says of them; no span of somebody else's is given a status by us, or written to after its end."""
    given = SCENARIOS[name]
    for step in given["do"]:
        play(world, step)
    spans, turns = world.exporter.get_finished_spans(), world.records.turns
    assert not caplog.records
    assert world.reasons() == given["reasons"]
    assert given.get("spans", list(shown(spans))) == list(shown(spans))
    assert given.get("turns", world.records.told()) == world.records.told()
    for span in spans:
        if span_conventions.scope_of(span) != "endturn" and "raises" not in str(given):
            assert span.status.status_code is StatusCode.UNSET
            assert "error.type" not in (span.attributes or {})
    agents = [span.attributes for span in spans if "endturn.turn.outcome" in (span.attributes or {})]
    assert {str(known["endturn.turn.id"]) for known in agents if known} <= {turn.turn.id for turn in turns}


def test_a_span_that_is_made_afterwards_is_known_by_the_response(world: World) -> None:
    """Of another model, by its name, but of the same response."""
    world.ask(say("Hello")).read()
    (ended,) = world.records.ended
    known = {**CHAT, **DONE, "gen_ai.request.model": "alias", "gen_ai.response.id": ended.response_id}
    start = ended.started.started_ns
    world.tracer("theirs").start_span("chat", attributes=known, start_time=start).end()
    assert world.reasons() == ["end_turn"]
    other = {**known, "gen_ai.response.id": "another"}
    world.tracer("theirs").start_span("chat", attributes=other, start_time=start).end()
    assert world.reasons() == ["end_turn"] * 2


def test_an_observed_function_comes_before_an_agents_span(world: World) -> None:
    """What is declared is the turn, as long as it lasts; an agent's span within it opens one only after that."""
    spans = []

    @endturn.observe_turn
    def run() -> None:
        spans.append(world.tracer().start_span("agent", attributes=AGENT))
        with trace.use_span(spans[0]):
            world.call(DONE)

    run()
    with trace.use_span(spans[0], end_on_exit=True):
        world.call(LENGTH)
    assert world.records.told() == ["None 1 completed", "helper 1 not_continued"]


@pytest.mark.parametrize(("scope", "name", "known", "reason", "provider"), SPELLINGS)
@pytest.mark.parametrize("late", [False, True])
def test_reasons_are_read_in_every_spelling(
    world: World, scope: str, name: str, known: dict[str, Any], reason: str, provider: str, late: bool
) -> None:
    """Whatever an emitter calls it, it becomes one reason of one provider. What has ended is not written to."""
    with world.tracer(scope).start_as_current_span(name, attributes=None if late else known) as span:
        span.set_attributes(known)
    ended = world.records.only()
    assert (ended.stop.reason, ended.started.provider) == (reason, provider)
    assert [REASON in (span.attributes or {}) for span in world.exporter.get_finished_spans()] == [False]


@pytest.mark.parametrize("always", [True, False])
def test_head_sampling_hides_calls_unless_every_span_is_recorded(always: bool) -> None:
    """A dropped span reaches no processor; `AlwaysRecordSampler` lets it be counted without being exported."""
    with hooks.strict():
        world = World(sampler=AlwaysRecordSampler(ALWAYS_OFF) if always else ALWAYS_OFF)
        world.call(LENGTH, scope="opentelemetry.instrumentation.genai.openai")
        assert len(world.records.ended) == always
        assert world.exporter.get_finished_spans() == ()
        world.close()


class Unhashable(TracerProvider):
    """Logfire's provider compares by value."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_one_processor_is_enough_for_a_provider() -> None:
    """Instrumenting again, or adding one by hand besides, counts nothing twice."""
    provider = Unhashable(shutdown_on_exit=False)
    records = Records()
    stop = hooks.subscribe(records.append)
    mine = endturn.AdoptingSpanProcessor(tracer_provider=provider)
    provider.add_span_processor(mine)
    for _ in range(2):
        endturn.instrument(tracer_provider=provider)
        with provider.get_tracer("x").start_as_current_span("chat", attributes=CHAT) as span:
            span.set_attributes(DONE)
        endturn.uninstrument()
    mine.shutdown()
    stop()
    assert len(records.ended) == 2


# --- What is kept ----------------------------------------------------------------------------------------------------


def test_spans_that_nobody_ends_are_let_go_of(world: World) -> None:
    """A turn ends with the agent's span that its owner dropped, at the next safe moment: not in the destructor."""
    agent = world.agent()
    del agent
    gc.collect()
    assert not world.records.turns
    cleanup.run()
    assert world.records.told() == ["helper 1 cancelled"]


def test_no_more_spans_are_kept_than_allowed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is given up where too many are open at once: an agent's turn ends with that."""
    monkeypatch.setattr(foreign_spans, "OPEN", 3)
    agent = world.agent()
    spans = [world.tracer().start_span("x") for _ in range(5)]
    assert world.records.told() == ["helper 1 cancelled"]
    for span in [agent, *spans]:
        span.end()
    assert len(world.records.turns) == 1


def test_a_forked_child_has_nothing_open(world: World) -> None:
    """What its parent opened, its parent ends."""
    agent = world.agent()

    def child() -> object:
        agent.end()
        return world.records.told()

    assert in_a_child(child) == "[]"
    agent.end()
    assert len(world.records.turns) == 1


def test_a_processor_that_fails_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of ours reaches neither the host nor the other instrumentation."""
    world = World()

    def broken(span: ReadableSpan) -> None:
        raise RuntimeError

    monkeypatch.setattr(span_conventions, "request_of", broken)
    world.call(DONE)
    monkeypatch.setattr(foreign_spans, "kind_of", broken)
    world.call(DONE)
    assert len(world.exporter.get_finished_spans()) == 2
    world.close()
