"""Spans as other instrumentations make them, by the real SDK: which are adopted, which are turns, which are counted."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, AlwaysRecordSampler
from opentelemetry.trace import StatusCode

import endturn
from endturn.calls import listeners
from endturn.calls.turn_scope import infer_with
from endturn.formats.framing import frame
from endturn.generate import emitters
from endturn.instrumentation import http_clients
from endturn.telemetry import cleanup, foreign_spans, span_conventions
from endturn.telemetry.turn_inference import IDLE_S, TurnInference
from endturn.testing.scripted import Reply, ScriptedProvider, say
from tests.formats.replies import chunk
from tests.telemetry.mocked import ASK, Records
from tests.telemetry.span_scenes import AGENT, CHAT, CUT, DONE, LENGTH, SCENES, Attributes, Scene, World
from tests.telemetry.stage import in_a_child

REASON = "endturn.stop.reason"
SCENARIOS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("spans.yaml").read_text())
_, EMITTERS, SPELLINGS = (SCENARIOS.pop(name) for name in ("attributes", "emitters", "spellings"))


@pytest.fixture
def world() -> Iterator[World]:
    """Spans, and the exchanges within them."""
    http_clients.install(lambda: True)
    with listeners.strict():
        made = World()
        yield made
        made.close()
    http_clients.uninstall()


# --- What becomes of spans -------------------------------------------------------------------------------------------


def shown(spans: Sequence[ReadableSpan]) -> Iterator[str]:
    scopes = {span.context.span_id: span_conventions.scope_of(span) for span in spans if span.context}
    for span in spans:
        known = span.attributes or {}
        told = str(known.get(REASON) or known.get("endturn.turn.outcome", "-"))
        calls = " " + str(known["endturn.turn.iterations"]) if "endturn.turn.iterations" in known else ""
        within = f" in {scopes[span.parent.span_id]}" if span.parent else ""
        yield f"{span_conventions.scope_of(span)} {told}{calls}{within}" + " *" * bool(known.get("endturn.counted"))


def adopted(scope: str, name: str, *, known: Attributes | None = None, late: Attributes | None = None) -> Scene:
    """Return the scene of an exchange in a span of an emitter."""

    def play(world: World) -> None:
        with world.span(name, scope, known=known, late=late, then=LENGTH):
            world.cut()

    return play


for scope, name, attributes in EMITTERS:  # whenever its span says what it is: no other is made beside it
    for when, played in (
        ("known", adopted(scope, name, known=attributes)),
        ("late", adopted(scope, name, late=attributes)),
    ):
        row = f"an exchange adopts the span of {scope}, {when}"
        SCENES[row] = played
        SCENARIOS[row] = {
            "reasons": ["max_tokens"],
            "spans": [f"{scope} max_tokens *"],
            "turns": ["None 1 not_continued"],
        }


def test_each_scene_has_a_row() -> None:
    assert SCENES.keys() == SCENARIOS.keys()


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_becomes_of_spans(world: World, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """As spans.yaml says of them; no span of somebody else's is given a status by us, or written to after its end."""
    given = SCENARIOS[name]
    SCENES[name](world)
    spans, turns = world.exporter.get_finished_spans(), world.records.turns
    assert not caplog.records
    assert world.reasons() == given["reasons"]
    assert given.get("spans", list(shown(spans))) == list(shown(spans))
    assert given.get("turns", world.records.told()) == world.records.told()
    for span in spans:
        if span_conventions.scope_of(span) != "endturn" and not world.has_raised:
            assert span.status.status_code is StatusCode.UNSET
            assert "error.type" not in (span.attributes or {})
    agents = [span.attributes for span in spans if "endturn.turn.outcome" in (span.attributes or {})]
    assert {str(known["endturn.turn.id"]) for known in agents if known} <= {turn.turn.id for turn in turns}


@pytest.mark.parametrize("source", [source for source in emitters.SOURCES if not source.span])
@pytest.mark.parametrize("operation", emitters.INFERENCE)
def test_what_the_collector_counts_is_counted_here(
    world: World, source: emitters.AttributeSource, operation: str
) -> None:
    """Every attribute in which it looks for a reason, on spans of every operation that it takes for a call."""
    provider = source.provider or "openai"
    raw = "max_tokens" if provider == "anthropic" else "length"
    known = {"gen_ai.operation.name": operation.upper(), "gen_ai.provider.name": provider, source.attribute: raw}
    world.tracer().start_span("a call", attributes=known).end()
    assert world.reasons() == ["max_tokens"]


def test_a_span_that_is_made_afterwards_is_known_by_the_response(world: World) -> None:
    """Of another model, by its name, but of the same response."""
    world.ask(say("Hello")).read()
    (ended,) = world.records.ended
    known = {**CHAT, **DONE, "gen_ai.request.model": "alias", "gen_ai.response.id": ended.response.id}
    start = ended.started.started_ns
    world.tracer("theirs").start_span("chat", attributes=known, start_time=start).end()
    assert world.reasons() == ["end_turn"]
    other = {**known, "gen_ai.response.id": "another"}
    world.tracer("theirs").start_span("chat", attributes=other, start_time=start).end()
    assert world.reasons() == ["end_turn"] * 2


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-2026-08-07"])
@pytest.mark.parametrize("has_id", [True, False])
def test_a_stream_that_is_left_is_known_by_its_first_event(world: World, model: str, has_id: bool) -> None:
    """A span that is never current ends before the stream does, and names the model as the response does."""
    events = [chunk({"content": word}, id="chatcmpl-7" if has_id else None, model=model) for word in ("Hello", "there")]
    body = b"".join(map(frame, events))
    pieces = httpx.Response(
        200,
        headers={"content-type": "text/event-stream"},
        content=iter([body[: len(body) // 2], body[len(body) // 2 :]]),
    )
    client = httpx.Client(transport=httpx.MockTransport(lambda request: pieces))
    span = world.tracer("langfuse-sdk").start_span("generation", attributes={"langfuse.observation.type": "generation"})
    asked = {**ASK, "model": "gpt-5", "stream": True}
    with client.stream("POST", "http://gateway/v1/chat/completions", json=asked) as response:
        next(response.iter_raw())
        told = {"gen_ai.request.model": model} | ({"gen_ai.response.id": "chatcmpl-7"} if has_id else {})
        span.set_attributes(told)
        span.end()
    assert world.reasons() == ["cancelled"]


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
    assert (ended.stop.reason, ended.started.endpoint.provider) == (reason, provider)
    assert [REASON in (span.attributes or {}) for span in world.exporter.get_finished_spans()] == [False]


STOPPED = ["asyncio.exceptions.CancelledError", "trio.Cancelled", "KeyboardInterrupt", "GeneratorExit"]


@pytest.mark.parametrize("name", STOPPED)
@pytest.mark.parametrize(
    ("told", "reason", "outcome"), [(DONE, "end_turn", "completed"), ({}, "cancelled", "cancelled")]
)
def test_a_call_that_its_host_stops(world: World, name: str, told: Any, reason: str, outcome: str) -> None:
    """Its span has failed, and the response has not, where the reason had come before."""
    span = world.tracer("opentelemetry.instrumentation.openai").start_span("chat gpt-5", attributes=CHAT)
    span.set_attributes({**told, "error.type": name})
    span.set_status(trace.Status(trace.StatusCode.ERROR))
    span.end()
    assert world.reasons() == [reason]
    assert world.records.told() == [f"None 1 {outcome}"]


@pytest.mark.parametrize("always", [True, False])
def test_head_sampling_hides_calls_unless_every_span_is_recorded(always: bool) -> None:
    """A dropped span reaches no processor; `AlwaysRecordSampler` lets it be counted without being exported."""
    with listeners.strict():
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
    stop = listeners.subscribe(records.append)
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
    monkeypatch.setattr(foreign_spans, "MAX_OPEN_SPANS", 3)
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


# --- Runs of an agent, one after the other ---------------------------------------------------------------------------

TIDES = {"role": "user", "content": "Tides?"}
PARTIAL = [TIDES, {"role": "assistant", "content": "Hello"}]


def chat(messages: list[dict[str, str]], reply: Reply, *, stream: bool = False) -> None:
    """Ask over HTTP, and read the answer."""
    client = httpx.Client(transport=ScriptedProvider([reply]).transport())
    body = {"model": "gpt-5", "messages": messages, "max_tokens": 1, "stream": stream}
    client.post("http://gateway/v1/chat/completions", json=body)


def test_a_run_that_raised_on_a_cut_answer_ends_at_once(world: World) -> None:
    """Nothing of it waits, though a new run might ask for the rest."""
    infer_with(TurnInference())
    try:
        with (
            suppress(RuntimeError),
            world.tracer().start_as_current_span("agent", attributes=AGENT),
        ):
            chat([TIDES], CUT)
            raise RuntimeError
        assert world.records.told() == ["helper 1 not_continued"]
    finally:
        infer_with(None)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("agents", "messages", "told"),
    [
        (1, None, ["helper 1 not_continued"]),
        (2, [*PARTIAL, {"role": "user", "content": "Continue."}], ["helper 2 completed"]),
        (1, [*PARTIAL, {"role": "user", "content": "Continue."}], ["helper 2 completed"]),
        (2, [*PARTIAL, {"role": "user", "content": "And on Mars?"}], ["helper 1 not_continued", "helper 1 completed"]),
        (1, [*PARTIAL, {"role": "user", "content": "And on Mars?"}], ["helper 1 not_continued", "None 1 completed"]),
        (2, [{"role": "user", "content": "Something else"}], ["helper 1 completed", "helper 1 not_continued"]),
    ],
)
def test_a_new_run_may_continue_what_the_last_one_left(
    world: World, agents: int, messages: list[dict[str, str]] | None, told: list[str], stream: bool
) -> None:
    """Whether it has an agent's span or none; a run that nobody continues ends when it has waited."""
    now = [0.0]
    inferring = TurnInference(clock=lambda: now[0])
    infer_with(inferring)
    try:
        with world.tracer().start_as_current_span("agent", attributes=AGENT):
            chat([TIDES], CUT, stream=stream)
        assert not world.records.turns
        if messages is not None:
            with world.tracer().start_as_current_span("agent", attributes=AGENT if agents > 1 else {}):
                chat(messages, say("there"), stream=stream)
        now[0] = IDLE_S + 1
        inferring.sweep()
    finally:
        infer_with(None)
    assert world.records.told() == told
    assert not inferring.open_turns


def test_the_processor_keeps_its_old_names_for_one_release() -> None:
    """`awake` and `counted` are the names of 0.1."""
    processor = endturn.AdoptingSpanProcessor(counted=True)
    try:
        assert processor.counted() is processor.counts_responses() is True
        assert processor.awake() is processor.is_enabled()
    finally:
        processor.shutdown()
