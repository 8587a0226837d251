"""Spans as other instrumentations make them, by the real SDK: which are adopted, which are turns, which are counted."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, AlwaysRecordSampler
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.util._once import Once

import endturn
from endturn import hooks
from endturn.events import TurnOutcome
from endturn.instrumentation import http_clients
from endturn.scripted import Reply, ScriptedProvider, fail, say, truncate
from endturn.stop import StopReason
from endturn.telemetry import cleanup, foreign_spans, span_conventions
from tests.telemetry.mocked import ASK, WHOLE, Records, body, chat

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
TOOL = {"gen_ai.operation.name": "execute_tool"}
DONE: dict[str, Any] = {"gen_ai.response.finish_reasons": ("stop",), "gen_ai.usage.output_tokens": 3}
LENGTH: dict[str, Any] = {"gen_ai.response.finish_reasons": ("length",), "gen_ai.usage.output_tokens": 5}
LLM = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-5"}
REASON = "endturn.stop.reason"


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

    def tracer(self, scope: str = "somebody") -> trace.Tracer:
        return self.provider.get_tracer(scope)

    def call(self, told: dict[str, Any], asked: dict[str, Any] | None = None, scope: str = "somebody") -> None:
        """A span of one call, whose end tells this."""
        with self.tracer(scope).start_as_current_span(
            "chat gpt-5", kind=SpanKind.CLIENT, attributes={**CHAT, **(asked or {})}
        ) as it:
            it.set_attributes(told)

    def ask(self, *replies: Reply, stream: bool = False) -> None:
        """Send a request for each reply, over HTTP."""
        with httpx.Client(transport=ScriptedProvider(list(replies)).transport()) as client:
            for _ in replies:
                client.post("http://gateway/v1/chat/completions", json={**ASK, "model": "gpt-5", "stream": stream})

    def reasons(self) -> list[str]:
        return [ended.stop.reason.value for ended in self.records.ended]

    def spans(self) -> list[tuple[str, dict[str, Any]]]:
        """Each span's scope and attributes, in the order in which they ended."""
        return [
            (span_conventions.scope_of(span), dict(span.attributes or {}))
            for span in self.exporter.get_finished_spans()
        ]

    def attributes(self) -> list[dict[str, Any]]:
        return [attributes for _, attributes in self.spans()]

    def close(self) -> None:
        self.provider.shutdown()
        self.stop()


@pytest.fixture
def world() -> Iterator[World]:
    """Spans alone: no HTTP client is watched."""
    with hooks.strict():
        made = World()
        yield made
        made.close()


@pytest.fixture
def watched(world: World) -> Iterator[World]:
    """Spans, and the exchanges within them."""
    http_clients.install(lambda: True)
    yield world
    http_clients.uninstall()


# --- A span that is of an exchange -----------------------------------------------------------------------------------

EMITTERS: list[Any] = [
    pytest.param("opentelemetry.instrumentation.genai.openai", "chat gpt-5", CHAT, id="OpenTelemetry"),
    pytest.param("openinference.instrumentation.openai", "ChatCompletion", LLM, id="OpenInference"),
    pytest.param("opentelemetry.instrumentation.openai.v1", "openai.chat", {}, id="OpenLLMetry"),
    pytest.param("logfire.openai", "Chat Completion", {**CHAT, "logfire.span_type": "span"}, id="Logfire"),
    pytest.param("com.anthropic.sdk.python", "anthropic.messages.create", {}, id="Anthropic"),
    pytest.param("langfuse-sdk", "generation", {"langfuse.observation.type": "generation"}, id="Langfuse"),
]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("scope", "name", "known"), EMITTERS)
def test_an_exchange_adopts_the_span_that_is_made_of_it(
    watched: World, scope: str, name: str, known: dict[str, Any], late: bool
) -> None:
    """Whenever that says what it is: it is given the reason, none is made beside it, one response is counted."""
    with watched.tracer(scope).start_as_current_span(name, attributes=None if late else known) as span:
        span.set_attributes(known)
        watched.ask(truncate("Hello there", after=1))
        span.set_attributes(LENGTH)
    ((by, found),) = watched.spans()
    assert by == scope
    assert (found[REASON], found["endturn.turn.iteration"], found["endturn.counted"]) == ("max_tokens", 1, True)
    assert watched.reasons() == ["max_tokens"]
    assert len(watched.records.turns) == 1


def test_two_instrumentations_of_one_call(watched: World) -> None:
    """The inner one's span is adopted, also through a span of the host's own; the outer one's is marked as counted."""
    with (
        watched.tracer("pydantic-ai").start_as_current_span("chat gpt-5", attributes=CHAT) as outer,
        watched.tracer("mine").start_as_current_span("between"),
        watched.tracer("openinference.x").start_as_current_span("ChatCompletion") as inner,
        watched.tracer("mine").start_as_current_span("POST"),
    ):
        inner.set_attributes(LLM)
        watched.ask(say("Hello"))
        outer.set_attributes(DONE)
    found = dict(watched.spans())
    assert watched.reasons() == ["end_turn"]
    assert [scope for scope, known in found.items() if REASON in known] == ["openinference.x"]
    assert all("endturn.counted" in found[scope] for scope in ("pydantic-ai", "openinference.x"))


def test_of_several_exchanges_in_a_span_the_first_that_succeeds_adopts_it(watched: World) -> None:
    """Failed ones, and later ones, have spans of ours below it. Its status stays its own."""
    with watched.tracer("theirs").start_as_current_span("chat", attributes=CHAT):
        watched.ask(fail(500), fail(429), say("Hello"), truncate("Hello there", after=1))
    spans = watched.exporter.get_finished_spans()
    theirs = spans[-1]
    assert [(span_conventions.scope_of(span), (span.attributes or {})[REASON]) for span in spans] == [
        ("endturn", "error"),
        ("endturn", "error"),
        ("endturn", "max_tokens"),
        ("theirs", "end_turn"),
    ]
    assert theirs.status.status_code is StatusCode.UNSET
    assert "error.type" not in (theirs.attributes or {})
    context = theirs.get_span_context()
    assert context is not None
    assert {span.parent.span_id for span in spans[:-1] if span.parent} == {context.span_id}
    assert watched.reasons() == ["error", "error", "end_turn", "max_tokens"]


def test_a_stream_that_is_handed_over_outlives_its_span(watched: World, caplog: pytest.LogCaptureFixture) -> None:
    """Events and metrics alone tell of the end, once: a span that has ended is not written to."""
    client = httpx.Client(transport=ScriptedProvider([truncate("Hello there", after=1)]).transport())
    with watched.tracer("opentelemetry.instrumentation.openai.v1").start_as_current_span("openai.chat"):
        request = client.build_request(
            "POST", "http://gateway/v1/chat/completions", json={**ASK, "model": "gpt-5", "stream": True}
        )
        response = client.send(request, stream=True)
    assert watched.reasons() == []
    response.read()
    ((_, found),) = watched.spans()
    assert REASON not in found
    assert found["endturn.counted"] is True
    assert watched.reasons() == ["max_tokens"]
    assert not caplog.records


LATE: dict[str, Any] = {**LLM, "llm.model_name": "openai/gpt-5", "llm.finish_reason": "stop"}


@pytest.mark.parametrize("told", [LATE, {**CHAT, **DONE}, {"openinference.span.kind": "LLM"}])
@pytest.mark.parametrize("stream", [False, True])
def test_a_span_that_is_never_current_is_not_counted_beside_the_exchange(
    watched: World, told: dict[str, Any], stream: bool
) -> None:
    """LangChain's, by OpenInference and by OpenLLMetry: ours stands beside it."""
    span = watched.tracer("theirs").start_span("ChatOpenAI")
    watched.ask(say("Hello"), stream=stream)
    span.set_attributes(told)
    span.end()
    assert watched.reasons() == ["end_turn"]
    assert [REASON in known for known in watched.attributes()] == [True, False]


def test_a_span_that_is_made_afterwards_is_known_by_the_response(watched: World) -> None:
    """Of another model, by its name, but of the same response."""
    watched.ask(say("Hello"))
    (ended,) = watched.records.ended
    known = {**CHAT, **DONE, "gen_ai.request.model": "alias", "gen_ai.response.id": ended.response_id}
    start = ended.started.started_ns
    watched.tracer("theirs").start_span("chat", attributes=known, start_time=start).end()
    assert watched.reasons() == ["end_turn"]
    other = {**known, "gen_ai.response.id": "another"}
    watched.tracer("theirs").start_span("chat", attributes=other, start_time=start).end()
    assert watched.reasons() == ["end_turn"] * 2


def test_a_call_of_another_kind_beside_an_exchange_is_counted(watched: World) -> None:
    """Another model's, of which no exchange is seen: gRPC, a bare socket."""
    span = watched.tracer("theirs").start_span("chat", attributes={**CHAT, "gen_ai.request.model": "local"})
    watched.ask(say("Hello"))
    span.set_attributes(LENGTH)
    span.end()
    assert watched.reasons() == ["end_turn", "max_tokens"]


# --- Agents' spans ---------------------------------------------------------------------------------------------------


def test_an_agents_span_is_the_turn_of_the_exchanges_below(watched: World) -> None:
    """Eight requests are eight responses of one turn, though their spans say late what they are (Google ADK)."""
    with watched.tracer("gcp.vertex.agent").start_as_current_span("invoke_agent helper", attributes=AGENT):
        for number in range(8):
            with watched.tracer("gcp.vertex.agent").start_as_current_span("generate_content gpt-5") as span:
                span.set_attributes({**CHAT, "gen_ai.operation.name": "generate_content"})
                watched.ask(truncate("Hello there", after=1) if number == 7 else say("Hello"))
                span.set_attributes(DONE)
    agent = watched.attributes()[-1]
    assert watched.reasons() == ["end_turn"] * 7 + ["max_tokens"]
    assert (agent["endturn.turn.iterations"], agent["endturn.turn.outcome"]) == (8, "not_continued")
    assert (agent["endturn.turn.truncated"], agent["endturn.turn.complete"]) == (True, False)
    (turn,) = watched.records.turns
    assert (turn.outcome, turn.turn.id) == (TurnOutcome.NOT_CONTINUED, agent["endturn.turn.id"])


@pytest.mark.parametrize("name", ["invoke_agent Strands", "run"])
def test_an_agents_span_whose_attributes_come_late_is_a_turn(watched: World, name: str) -> None:
    """Strands starts it, then says what it is: that is read when an exchange begins, and its name when it ends."""
    with watched.tracer("strands.telemetry.tracer").start_as_current_span(name) as span:
        span.set_attribute("gen_ai.operation.name", "invoke_agent")
        watched.ask(say("One"), say("Two"))
        span.set_attribute("gen_ai.agent.name", "Strands")
    (turn,) = watched.records.turns
    assert (turn.turn.iterations, turn.turn.agent, turn.outcome) == (2, "Strands", TurnOutcome.COMPLETED)
    assert watched.attributes()[-1]["endturn.turn.iterations"] == 2


def test_a_tool_within_an_agent_calls_a_model_in_the_same_turn(watched: World) -> None:
    """A sub-agent's span is a turn of its own; a tool's is none."""
    tracer = watched.tracer()
    with tracer.start_as_current_span("agent", attributes=AGENT):
        watched.ask(say("One"))
        with tracer.start_as_current_span("tool", attributes=TOOL):
            watched.ask(say("Two"))
            with tracer.start_as_current_span("agent", attributes={**AGENT, "gen_ai.agent.name": "inner"}):
                watched.ask(say("Three"))
    assert {turn.turn.agent: turn.turn.iterations for turn in watched.records.turns} == {"helper": 2, "inner": 1}


def test_a_stream_that_is_read_after_the_agent_ended_is_its_turns(watched: World) -> None:
    """The turn ends with the stream; the agent's span has been written by then."""
    client = httpx.Client(transport=ScriptedProvider([truncate("Hello there", after=1)]).transport())
    with (
        watched.tracer().start_as_current_span("agent", attributes=AGENT),
        client.stream("POST", "http://gateway/v1/chat/completions", json={**ASK, "stream": True}) as response,
    ):
        span = trace.get_current_span()
        span.end()
        assert not watched.records.turns
        response.read()
    (turn,) = watched.records.turns
    assert turn.outcome is TurnOutcome.NOT_CONTINUED


def test_an_agent_that_calls_no_model_is_no_turn(world: World) -> None:
    """A workflow around agents has no calls of its own: it is not counted beside them, of which spans alone tell."""
    workflow = {"traceloop.span.kind": "workflow"}
    agent = {"openinference.span.kind": "AGENT"}
    with (
        world.tracer().start_as_current_span("workflow", attributes=workflow),
        world.tracer().start_as_current_span("agent", attributes=agent),
    ):
        world.call(LENGTH)
        world.call(DONE)
    (turn,) = world.records.turns
    assert (turn.outcome, turn.turn.iterations, turn.turn.continuations) == (TurnOutcome.COMPLETED, 2, 0)
    assert world.attributes()[2]["endturn.turn.truncated"] is True
    assert ["endturn.turn.outcome" in each for each in world.attributes()] == [False, False, True, False]


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
    assert [(turn.turn.iterations, turn.outcome) for turn in world.records.turns] == [
        (1, TurnOutcome.COMPLETED),
        (1, TurnOutcome.NOT_CONTINUED),
    ]


# --- Spans alone -----------------------------------------------------------------------------------------------------


GOOGLE = {"gen_ai.operation.name": "generate_content", "gen_ai.provider.name": "gcp.gemini",
          "gen_ai.request.model": "gemini-3", "gen_ai.response.finish_reasons": ("max_tokens",)}  # fmt: skip
INFERENCE = {"openinference.span.kind": "LLM", "llm.provider": "google", "llm.model_name": "g",
             "llm.finish_reason": "MAX_TOKENS"}  # fmt: skip
OLD = {"llm.request.type": "chat", "gen_ai.system": "MistralAI", "gen_ai.completion.0.finish_reason": "length"}
OWN = {**CHAT, "gen_ai.provider.name": "anthropic", "anthropic.message.stop_reason": "pause_turn"}
EMPTY = {**CHAT, "gen_ai.response.finish_reasons": (), "llm.finish_reason": "length"}
NEW_WORD = {**CHAT, "gen_ai.response.finish_reasons": ("wat",)}
GEMINI = ("opentelemetry.instrumentation.google_genai", "generate_content gemini")

SPELLINGS: dict[str, tuple[str, str, dict[str, Any], str, str]] = {
    "conventions": ("x", "chat", {**CHAT, **LENGTH}, "max_tokens", "openai"),
    "google, lower case": (*GEMINI, GOOGLE, "max_tokens", "gcp.gemini"),
    "openinference": ("openinference.instrumentation.x", "LLM", INFERENCE, "max_tokens", "gcp.gemini"),
    "openllmetry of old": ("opentelemetry.instrumentation.mistralai", "mistral.chat", OLD, "max_tokens", "mistral_ai"),
    "anthropic's own": ("com.anthropic.sdk.python", "anthropic.messages.create", OWN, "paused", "anthropic"),
    "an empty list": ("x", "chat", EMPTY, "max_tokens", "openai"),
    "nothing told": ("x", "chat", CHAT, "unknown", "openai"),
    "an output that tells nothing": ("x", "LM", {**LLM, "output.value": '{"answer": "4"}'}, "unknown", ""),
    "a new word": ("x", "chat", NEW_WORD, "unknown", "openai"),
}


@pytest.mark.parametrize(("scope", "name", "known", "reason", "provider"), SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("late", [False, True])
def test_reasons_are_read_in_every_spelling(
    world: World, scope: str, name: str, known: dict[str, Any], reason: str, provider: str, late: bool
) -> None:
    """Whatever an emitter calls it, it becomes one reason of one provider. What has ended is not written to."""
    with world.tracer(scope).start_as_current_span(name, attributes=None if late else known) as span:
        span.set_attributes(known)
    ended = world.records.only()
    assert (ended.stop.reason, ended.started.provider) == (reason, provider)
    assert REASON not in world.attributes()[0]


@pytest.mark.parametrize("operation", ["embeddings", "fetch_response"])
def test_what_does_not_stop_is_not_counted(world: World, operation: str) -> None:
    """A fetched response repeats the reasons of the one that it fetches; embeddings have none."""
    world.call({**DONE, "gen_ai.operation.name": operation}, {"gen_ai.operation.name": operation})
    assert world.records == []
    assert "endturn.counted" not in world.attributes()[0]


def test_a_clean_stop_at_the_limit_is_suspected(world: World) -> None:
    """An emitter that claims `stop` for an answer that used up the limit is not believed silently."""
    world.call({**DONE, "gen_ai.usage.output_tokens": 50}, {"gen_ai.request.max_tokens": 50})
    assert world.records.only().stop.suspected


def test_a_counted_call_says_so_from_its_beginning(world: World) -> None:
    """A Collector does not count it again. What another process has counted is not counted here."""
    world.call(LENGTH)
    assert world.attributes()[0]["endturn.counted"] is True
    world.call(LENGTH, {"endturn.counted": True})
    assert world.reasons() == ["max_tokens"]


def test_an_error_is_one_and_keeps_its_class(world: World) -> None:
    """A call that raised is counted as an error, whose class the span names."""
    with pytest.raises(KeyError), world.tracer().start_as_current_span("chat", attributes=CHAT):
        raise KeyError
    ended = world.records.only()
    assert ended.stop.reason is StopReason.ERROR
    assert type(ended.error).__name__ == "KeyError"


def test_calls_are_each_counted_once(world: World) -> None:
    """Of two spans of one call, the inner one tells; of two calls at once, of the same model, each."""
    with world.tracer("outer").start_as_current_span("chat", attributes=CHAT) as outer:
        with world.tracer("mine").start_as_current_span("between"):
            world.call(LENGTH, scope="inner")
        outer.set_attributes(LENGTH)
    assert world.reasons() == ["max_tokens"]
    first, second = (world.tracer().start_span("chat", attributes={**CHAT, **DONE}) for _ in range(2))
    first.end()
    second.end()
    assert world.reasons() == ["max_tokens", "end_turn", "end_turn"]
    assert {turn.outcome for turn in world.records.turns} == {TurnOutcome.NOT_CONTINUED, TurnOutcome.COMPLETED}


def test_of_a_stream_logfire_tells_on_a_span_of_its_own(world: World) -> None:
    """The call's span, which ended when the stream was handed over, is not counted besides."""
    tracer = world.tracer("logfire.openai")
    tracer.start_span("Chat Completion", attributes={**CHAT, "logfire.span_type": "span"}).end()
    assert world.records == []
    tracer.start_span("streamed", attributes={**CHAT, **LENGTH, "logfire.span_type": "log"}).end()
    assert world.reasons() == ["max_tokens"]
    counted: dict[str, Any] = {**CHAT, "logfire.span_type": "span", "endturn.counted": True}
    tracer.start_span("Chat Completion", attributes=counted).end()
    tracer.start_span("streamed", attributes={**CHAT, **LENGTH, "logfire.span_type": "log"}).end()
    assert world.reasons() == ["max_tokens"]  # what another process has counted


@pytest.mark.parametrize("always", [True, False])
def test_head_sampling_hides_calls_unless_every_span_is_recorded(always: bool) -> None:
    """A dropped span reaches no processor; `AlwaysRecordSampler` lets it be counted without being exported."""
    with hooks.strict():
        world = World(sampler=AlwaysRecordSampler(ALWAYS_OFF) if always else ALWAYS_OFF)
        world.call(LENGTH, scope="opentelemetry.instrumentation.genai.openai")
        assert len(world.records.ended) == always
        assert world.exporter.get_finished_spans() == ()
        world.close()


# --- instrument() ----------------------------------------------------------------------------------------------------


def test_a_provider_that_is_installed_later_is_found_at_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts set up OpenTelemetry after the line of instrumentation. Its functions are as they were."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    before = dict(vars(trace))
    records = Records()
    stop = hooks.subscribe(records.append)
    endturn.instrument()
    provider = TracerProvider(shutdown_on_exit=False)
    tracer = provider.get_tracer("x")
    try:
        assert dict(vars(trace)) == before
        trace.set_tracer_provider(provider)
        client = chat(body(WHOLE), body(WHOLE))
        client.chat.completions.create(**ASK)
        with tracer.start_as_current_span("agent", attributes=AGENT):
            client.chat.completions.create(**ASK)
            tracer.start_span("chat", attributes={**CHAT, **LENGTH}).end()
        assert [ended.stop.reason.value for ended in records.ended] == ["end_turn", "end_turn", "max_tokens"]
        assert [turn.turn.iterations for turn in records.turns] == [1, 2]
    finally:
        endturn.uninstrument()
    tracer.start_span("chat", attributes={**CHAT, **LENGTH}).end()
    assert len(records.ended) == 3
    stop()


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
    agent = world.tracer().start_span("agent", attributes=AGENT)
    with trace.use_span(agent, end_on_exit=False), world.tracer().start_as_current_span("step"):
        world.call(DONE)
    del agent
    gc.collect()
    assert not world.records.turns
    cleanup.run()
    assert [turn.outcome for turn in world.records.turns] == [TurnOutcome.CANCELLED]


def test_no_more_spans_are_kept_than_allowed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is given up where too many are open at once: an agent's turn ends with that."""
    monkeypatch.setattr(foreign_spans, "OPEN", 3)
    agent = world.tracer().start_span("agent", attributes=AGENT)
    with trace.use_span(agent, end_on_exit=False):
        world.call(DONE)
    spans = [world.tracer().start_span("x") for _ in range(5)]
    assert [turn.outcome for turn in world.records.turns] == [TurnOutcome.CANCELLED]
    for span in [agent, *spans]:
        span.end()
    assert len(world.records.turns) == 1


def test_a_forked_child_has_nothing_open(world: World) -> None:
    """What its parent opened, its parent ends."""
    agent = world.tracer().start_span("agent", attributes=AGENT)
    with trace.use_span(agent, end_on_exit=False):
        world.call(DONE)
    child = os.fork()
    if child == 0:
        agent.end()
        os._exit(len(world.records.turns))
    assert os.waitpid(child, 0)[1] == 0
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
