"""The span processor over spans as other instrumentations make them, where no real package is at hand."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, AlwaysRecordSampler
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.util._once import Once

import endturn
from endturn import announce
from endturn.instrumentation import processor, sequence
from endturn.records import Strategy, TurnOutcome
from endturn.stop import StopReason
from endturn.telemetry import cleanup, enclosing, foreign
from tests.telemetry.mocked import ASK, CUT, WHOLE, Records, body, chat

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
TOOL = {"gen_ai.operation.name": "execute_tool"}
DONE: dict[str, Any] = {"gen_ai.response.finish_reasons": ("stop",), "gen_ai.usage.output_tokens": 3}
LENGTH: dict[str, Any] = {"gen_ai.response.finish_reasons": ("length",), "gen_ai.usage.output_tokens": 5}


class World:
    """A tracer provider with the processor, and what is announced."""

    def __init__(self, **options: Any) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False, **options)
        self.exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.processor = endturn.AdoptingSpanProcessor(tracer_provider=self.provider)
        self.provider.add_span_processor(self.processor)
        self.records = Records()
        self.stop = announce.listen(self.records.append)

    def tracer(self, scope: str = "somebody") -> trace.Tracer:
        return self.provider.get_tracer(scope)

    def call(self, told: dict[str, Any], scope: str = "somebody", **asked: Any) -> None:
        """A span of one call, whose end tells this."""
        with self.tracer(scope).start_as_current_span(
            "chat gpt-5", kind=SpanKind.CLIENT, attributes={**CHAT, **asked}
        ) as it:
            it.set_attributes(told)

    def attributes(self) -> list[dict[str, Any]]:
        return [dict(span.attributes or {}) for span in self.exporter.get_finished_spans()]

    def close(self) -> None:
        self.provider.shutdown()
        self.stop()


@pytest.fixture
def world() -> Iterator[World]:
    with announce.strict():
        made = World()
        yield made
        made.close()
    cleanup.run()
    assert not enclosing._open
    assert not enclosing._frames
    assert not sequence._waiting


VERCEL = {"ai.model.provider": "openai.chat", "ai.model.id": "gpt-5", "ai.settings.maxOutputTokens": 5}


@pytest.mark.parametrize(
    ("scope", "name", "known", "reason", "provider"),
    [
        pytest.param("x", "chat", {**CHAT, **LENGTH}, "max_tokens", "openai", id="conventions"),
        pytest.param(
            "opentelemetry.instrumentation.google_genai",
            "generate_content gemini",
            {
                "gen_ai.operation.name": "generate_content",
                "gen_ai.provider.name": "gcp.gemini",
                "gen_ai.request.model": "gemini-3",
                "gen_ai.response.finish_reasons": ("max_tokens",),
            },
            "max_tokens",
            "gcp.gemini",
            id="google, lower case",
        ),
        pytest.param(
            "ai",
            "ai.streamText.doStream",
            {**VERCEL, "ai.response.finishReason": "length", "ai.usage.outputTokens": 5},
            "max_tokens",
            "openai",
            id="vercel",
        ),
        pytest.param(
            "openinference.instrumentation.x",
            "LLM",
            {
                "openinference.span.kind": "LLM",
                "llm.provider": "google",
                "llm.model_name": "g",
                "llm.finish_reason": "MAX_TOKENS",
            },
            "max_tokens",
            "gcp.gemini",
            id="openinference",
        ),
        pytest.param(
            "opentelemetry.instrumentation.mistralai",
            "mistral.chat",
            {"llm.request.type": "chat", "gen_ai.system": "MistralAI", "gen_ai.completion.0.finish_reason": "length"},
            "max_tokens",
            "mistral_ai",
            id="openllmetry of old",
        ),
        pytest.param(
            "com.anthropic.sdk.python",
            "anthropic.messages.create",
            {**CHAT, "gen_ai.provider.name": "anthropic", "anthropic.message.stop_reason": "pause_turn"},
            "paused",
            "anthropic",
            id="anthropic's own",
        ),
        pytest.param("x", "chat", {**CHAT}, "unknown", "openai", id="nothing told"),
        pytest.param(
            "x", "chat", {**CHAT, "gen_ai.response.finish_reasons": ("wat",)}, "unknown", "openai", id="a new word"
        ),
    ],
)
def test_reasons_are_read_in_every_spelling(
    world: World, scope: str, name: str, known: dict[str, Any], reason: str, provider: str
) -> None:
    """Whatever an emitter calls it, it becomes one reason of one provider, and stands on the span."""
    with world.tracer(scope).start_as_current_span(name, attributes=known):
        pass
    ended = world.records.only()
    assert (ended.stop.reason, ended.started.provider) == (reason, provider)
    assert world.attributes()[0]["endturn.stop.reason"] == reason


@pytest.mark.parametrize("operation", ["embeddings", "fetch_response", "retrieval", "create_agent"])
def test_what_does_not_stop_is_not_counted(world: World, operation: str) -> None:
    """A fetched response repeats the reasons of the one that it fetches; embeddings have none."""
    world.call({**DONE, "gen_ai.operation.name": operation}, **{"gen_ai.operation.name": operation})
    assert world.records == []
    assert "endturn.stop.reason" not in world.attributes()[0]


@pytest.mark.parametrize("told", [DONE, {**DONE, "ai.response.finishReason": "stop"}])
def test_a_clean_stop_at_the_limit_is_suspected(world: World, told: dict[str, Any]) -> None:
    """An emitter that claims `stop` for an answer that used up the limit is not believed silently."""
    asked: dict[str, Any] = {"gen_ai.request.max_tokens": 50}
    world.call({**told, "gen_ai.usage.output_tokens": 50}, **asked)
    assert world.records.only().stop.suspected
    assert world.attributes()[0]["endturn.stop.suspected"] is True


def test_a_span_that_is_marked_already_is_left_alone(world: World) -> None:
    """Another process, or another language's bridge, has counted it."""
    world.call({**DONE, "endturn.counted": True})
    assert world.records == []


def test_an_error_is_one_and_keeps_its_class(world: World) -> None:
    """A call that raised is counted as an error, whose class the span names."""
    with pytest.raises(KeyError), world.tracer().start_as_current_span("chat", attributes=CHAT):
        raise KeyError
    ended = world.records.only()
    assert ended.stop.reason is StopReason.ERROR
    assert type(ended.error).__name__ == "KeyError"


def test_the_call_within_is_the_one_that_counts(world: World) -> None:
    """Of two spans of one call, nested through somebody's own, the inner one tells, and is counted once."""
    with world.tracer("outer").start_as_current_span("chat", attributes=CHAT) as outer:
        with world.tracer("mine").start_as_current_span("between"):
            world.call(LENGTH, scope="inner")
        outer.set_attributes(LENGTH)
    assert world.records.only().stop.reason is StopReason.MAX_TOKENS
    assert ["endturn.stop.reason" in each for each in world.attributes()] == [True, False, False]


def test_the_response_that_was_announced_is_not_another(world: World) -> None:
    """A span that is made of a call after it was announced is known by the response's id."""
    told = {**DONE, "gen_ai.response.id": "r1"}
    tracer = world.tracer("late")
    world.call(told)
    start = world.records.only().started.started_ns
    tracer.start_span("chat", attributes={**CHAT, **told}, start_time=start).end()
    assert len(world.records.ended) == 1
    tracer.start_span("chat", attributes={**CHAT, **told}).end()
    assert len(world.records.ended) == 2, "the same id again, of a call that began later, is another's"


def test_a_continuation_is_known_by_its_order(world: World) -> None:
    """In one agent's span, the next call of the model after a cut one continues it; the turn is marked as inferred."""
    with world.tracer().start_as_current_span("agent", attributes=AGENT):
        world.call(LENGTH)
        world.call(DONE)
    (turn,) = world.records.turns
    assert (turn.outcome, turn.turn.continuations, turn.turn.inferred) == (TurnOutcome.COMPLETED, 1, True)
    assert turn.turn.agent == "helper"
    (attempt,) = world.records.attempts
    assert attempt.continuation.strategy is Strategy.PROMPT
    first, second, agent = world.attributes()
    assert "endturn.continuation.index" not in first
    assert second["endturn.continuation.index"] == 1
    assert agent["endturn.turn.outcome"] == "completed"
    assert agent["endturn.turn.inferred"] is True


@pytest.mark.parametrize("between", ["tool", "other model", "at once"])
def test_what_is_no_continuation(world: World, between: str) -> None:
    """A call after a tool, one of another model, and one that began before the cut answer ended continue nothing."""
    with world.tracer().start_as_current_span("agent", attributes=AGENT):
        early = world.tracer().start_span("chat", attributes=CHAT) if between == "at once" else None
        world.call(LENGTH)
        if between == "tool":
            world.tracer().start_span("tool", attributes=TOOL).end()
        if early is not None:
            early.end()
        else:
            world.call(DONE, **({"gen_ai.request.model": "other"} if between == "other model" else {}))
    assert world.records.attempts == []


def test_without_an_agent_the_parent_bounds_a_turn(world: World) -> None:
    """Calls below one span of the host's own: the second continues the first; a cut one is over with the span."""
    with world.tracer().start_as_current_span("request"):
        world.call(LENGTH)
        world.call(DONE)
        world.call(LENGTH)
        assert len(world.records.turns) == 1
    assert [turn.outcome for turn in world.records.turns] == [TurnOutcome.COMPLETED, TurnOutcome.NOT_CONTINUED]
    assert [turn.turn.continuations for turn in world.records.turns] == [1, 0]


def test_calls_without_a_parent_are_alone(world: World) -> None:
    """Two traces tell nothing of one another."""
    world.call(LENGTH)
    world.call(DONE)
    assert [turn.outcome for turn in world.records.turns] == [TurnOutcome.NOT_CONTINUED, TurnOutcome.COMPLETED]


def test_an_agent_that_calls_no_model_is_no_turn(world: World) -> None:
    """A workflow around agents has no calls of its own: it is not counted beside them."""
    workflow = {"traceloop.span.kind": "workflow"}
    agent = {"openinference.span.kind": "AGENT"}
    with (
        world.tracer().start_as_current_span("workflow", attributes=workflow),
        world.tracer().start_as_current_span("agent", attributes=agent),
    ):
        world.call(DONE)
    assert len(world.records.turns) == 1
    assert ["endturn.turn.outcome" in each for each in world.attributes()] == [False, True, False]


@pytest.mark.parametrize(
    ("raised", "outcome"), [(RuntimeError, TurnOutcome.PROVIDER_ERROR), (asyncio.CancelledError, TurnOutcome.CANCELLED)]
)
def test_an_agent_that_raises(world: World, raised: type[BaseException], outcome: TurnOutcome) -> None:
    """Its turn failed, or was cancelled, as the span's exception says."""
    with world.tracer().start_as_current_span("agent", attributes=AGENT) as span:
        world.call(DONE)
        span.record_exception(raised())
        span.set_status(StatusCode.ERROR)
    assert world.records.turns[0].outcome is outcome


def test_an_observed_function_comes_before_an_agents_span(world: World) -> None:
    """What is declared is the turn; the agent's span within it opens none."""

    @endturn.observe_turn
    def run() -> None:
        with world.tracer().start_as_current_span("agent", attributes=AGENT):
            world.call(DONE)

    run()
    (turn,) = world.records.turns
    assert turn.turn.iterations == 1


def test_an_agents_span_that_outlives_the_observed_function(world: World) -> None:
    """What is called in it when the declared turn is over belongs to a turn of the agent's own."""
    spans = []

    @endturn.observe_turn
    def run() -> None:
        spans.append(world.tracer().start_span("agent", attributes=AGENT))

    run()
    with trace.use_span(spans[0], end_on_exit=True):
        world.call(LENGTH)
    assert [(turn.turn.iterations, turn.outcome) for turn in world.records.turns] == [
        (0, TurnOutcome.COMPLETED),
        (1, TurnOutcome.NOT_CONTINUED),
    ]


def test_a_decorated_call_is_announced_from_below(world: World) -> None:
    """A wrapper around a call whose span tells of it makes no record of its own."""

    @endturn.observe_provider_call(provider="openai", model="gpt-5")
    def ask() -> dict[str, Any]:
        world.call(DONE)
        return WHOLE

    ask()
    assert world.records.only().stop.reason is StopReason.END_TURN


def test_a_span_that_cannot_be_written_to_is_counted_all_the_same() -> None:
    """Where `end` cannot be wrapped the span is read once it has ended: announced, and nothing is written."""
    with announce.strict():
        world = World()

        class Late(SpanProcessor):
            """Hides the beginning of every span from the processor within."""

            def on_end(self, span: ReadableSpan) -> None:
                world.processor.on_end(span)

        other = TracerProvider(shutdown_on_exit=False)
        exporter = InMemorySpanExporter()
        other.add_span_processor(Late())
        other.add_span_processor(SimpleSpanProcessor(exporter))
        with other.get_tracer("x").start_as_current_span("chat", attributes=CHAT) as span:
            span.set_attributes(LENGTH)
        assert world.records.only().stop.reason is StopReason.MAX_TOKENS
        assert "endturn.stop.reason" not in (exporter.get_finished_spans()[0].attributes or {})
        world.close()


def test_the_sdks_own_hook_comes_too_late_to_write() -> None:
    """Why `end` is wrapped: in `_on_ending` a span is closed already (opentelemetry-sdk 1.40 to 1.45)."""
    recording = []

    class Ending(SpanProcessor):
        def _on_ending(self, span: Span) -> None:
            recording.append(span.is_recording())

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Ending())
    provider.get_tracer("x").start_span("x").end()
    assert recording == [False]


@pytest.mark.parametrize("always", [True, False])
def test_head_sampling_hides_calls_unless_every_span_is_recorded(always: bool) -> None:
    """A dropped span reaches no processor; `AlwaysRecordSampler` lets it be counted without being exported."""
    with announce.strict():
        world = World(sampler=AlwaysRecordSampler(ALWAYS_OFF) if always else ALWAYS_OFF)
        world.call(LENGTH, scope="opentelemetry.instrumentation.genai.openai")
        assert len(world.records.ended) == always
        assert world.exporter.get_finished_spans() == ()
        world.close()


def test_a_patched_call_in_an_agents_span_belongs_to_its_turn() -> None:
    """The turn's id is on our span, its tally on the agent's; another thread's call is its own turn."""
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    records = Records()
    stop = announce.listen(records.append)
    endturn.instrument(tracer_provider=provider)
    try:
        with provider.get_tracer("x").start_as_current_span("agent", attributes=AGENT):
            with provider.get_tracer("x").start_as_current_span("step"):
                client = chat(body(WHOLE), body(CUT), body(WHOLE))
                client.chat.completions.create(**ASK)
                with provider.get_tracer("y").start_as_current_span("tool", attributes=TOOL):
                    client.chat.completions.create(**ASK)
            thread = threading.Thread(target=lambda: client.chat.completions.create(**ASK))
            thread.start()
            thread.join()
        agent = exporter.get_finished_spans()[-1].attributes or {}
        assert agent["endturn.turn.iterations"] == 2
        assert agent["endturn.turn.outcome"] == "not_continued"
        assert len({ended.started.turn.id for ended in records.ended}) == 2
    finally:
        endturn.uninstrument()
        stop()


def test_a_provider_that_is_installed_later_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts set up OpenTelemetry after the line of instrumentation; afterwards nothing is noticed any more."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    records = Records()
    stop = announce.listen(records.append)
    endturn.instrument()
    provider = TracerProvider(shutdown_on_exit=False)
    try:
        trace.set_tracer_provider(provider)
        assert trace._set_tracer_provider.__module__ == "endturn.instrumentation.providers"
        with provider.get_tracer("x").start_as_current_span("chat", attributes=CHAT) as span:
            span.set_attributes(LENGTH)
        assert records.only().stop.reason is StopReason.MAX_TOKENS
    finally:
        endturn.uninstrument()
    assert trace._set_tracer_provider.__module__ == "opentelemetry.trace"
    with provider.get_tracer("x").start_as_current_span("chat", attributes={**CHAT, **LENGTH}):
        pass
    assert len(records.ended) == 1
    stop()


def test_one_processor_is_enough_for_a_provider() -> None:
    """Instrumenting again, or adding one by hand besides, counts nothing twice."""
    provider = TracerProvider(shutdown_on_exit=False)
    records = Records()
    stop = announce.listen(records.append)
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
    assert len([row for row in processor._attached if row[0]() is provider]) == 1


def test_spans_that_nobody_ends_are_let_go_of(world: World) -> None:
    """A span that its owner drops leaves nothing behind, and an agent's turn ends with it."""
    agent = world.tracer().start_span("agent", attributes=AGENT)
    with trace.use_span(agent, end_on_exit=False):
        world.call(DONE)
        for _ in range(100):
            world.tracer().start_span("chat", attributes=CHAT)
    gc.collect()
    assert len(enclosing._open) == 1
    world.tracer().start_span("chat", attributes={**CHAT, **DONE}).end()
    del agent
    gc.collect()
    cleanup.run()
    assert not enclosing._open
    assert len(world.records.turns) == 2


def test_no_more_spans_are_remembered_than_allowed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten where too many are open at once, and can still end."""
    monkeypatch.setattr(enclosing, "OPEN", 3)
    spans = [world.tracer().start_span("chat", attributes={**CHAT, **DONE}) for _ in range(5)]
    assert len(enclosing._open) == 3
    for span in spans:
        span.end()
    assert len(world.records.ended) == 5


def test_a_forked_child_has_nothing_open(world: World) -> None:
    """What its parent opened, its parent ends."""
    agent = world.tracer().start_span("agent", attributes=AGENT)
    child = os.fork()
    if child == 0:
        os._exit(len(enclosing._open) + len(enclosing._frames))
    assert os.waitpid(child, 0)[1] == 0
    agent.end()


def test_unrelated_spans_are_neither_remembered_nor_changed(world: World) -> None:
    """Where nothing of a model is open, a span costs a look at its attributes."""
    span: Any = world.tracer().start_span("GET /")
    assert enclosing.is_idle()
    assert "end" not in vars(span)
    span.end()


def test_a_processor_that_fails_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of ours reaches neither the host nor the other instrumentation."""
    world = World()

    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(foreign, "told", broken)
    world.call(DONE)
    monkeypatch.setattr(foreign, "role_of", broken)
    world.call(DONE)
    assert len(world.exporter.get_finished_spans()) == 2
    world.close()
