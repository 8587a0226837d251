"""Spans and exchanges of each row of spans.yaml, which has what becomes of them."""

# ruff: noqa: SIM117 - nested as the spans are

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import httpx
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import endturn
from endturn.calls import listeners
from endturn.telemetry.attributes import error_of
from endturn.testing.scripted import Reply, ScriptedProvider, fail, say, truncate
from tests.telemetry.mocked import ASK, Records

Attributes = dict[str, Any]

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
DONE: dict[str, Any] = {"gen_ai.response.finish_reasons": ("stop",), "gen_ai.usage.output_tokens": 3}
LENGTH: dict[str, Any] = {"gen_ai.response.finish_reasons": ("length",), "gen_ai.usage.output_tokens": 5}
TOOL = {"gen_ai.operation.name": "execute_tool"}
LLM = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-5"}
CUT = truncate("Hello there", after=1)


class World:
    """A tracer provider with the processor, and what is announced."""

    def __init__(self, **options: Any) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False, **options)
        self.exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.processor = endturn.AdoptingSpanProcessor(tracer_provider=self.provider, counted=True)
        self.provider.add_span_processor(self.processor)
        self.records = Records()
        self.stop = listeners.subscribe(self.records.append)
        self.held: list[httpx.Response] = []
        self.has_raised = False

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

    @contextmanager
    def span(
        self,
        name: str,
        scope: str = "somebody",
        *,
        known: Attributes | None = None,
        late: Attributes | None = None,
        then: Attributes | None = None,
        apart: bool = False,
        raises: BaseException | None = None,
    ) -> Iterator[None]:
        """Make a span.

        Args:
            known: attributes that it begins with; late: those that it gets soon after; then: at its end.
            apart: it is never current.
            raises: what its owner records.
        """
        span = self.tracer(scope).start_span(name, attributes=known)
        with nullcontext() if apart else trace.use_span(span):
            span.set_attributes(late or {})
            yield
            span.set_attributes(then or {})
            if raises is not None:
                self.has_raised = True
                span.record_exception(raises)
                span.set_status(StatusCode.ERROR)
        span.end()

    def say(self) -> None:
        """Ask over HTTP, and read the answer."""
        self.ask(say("Hello")).read()

    def stream(self) -> None:
        """Ask for a stream, and read it."""
        self.ask(say("Hello"), stream=True).read()

    def cut(self) -> None:
        """Ask over HTTP; the answer is truncated."""
        self.ask(CUT).read()

    def fail(self, status: int) -> None:
        """Ask over HTTP; the answer is an error."""
        self.ask(fail(status)).read()

    def open(self) -> None:
        """Ask for a stream that is truncated, and leave it to `read`."""
        self.held.append(self.ask(CUT, stream=True))

    def read(self) -> None:
        """Read the stream that is open."""
        self.held.pop().read()


Scene = Callable[[World], None]

SCENES: dict[str, Scene] = {}
"""The scenes by the names of their rows."""


def scene(row: str = "") -> Callable[[Scene], Scene]:
    """Register what happens in this row, or in the row that is named as the function is."""

    def register(play: Scene) -> Scene:
        name = row or play.__name__.replace("_", " ")
        assert name not in SCENES
        SCENES[name] = play
        return play

    return register


@scene("two instrumentations of one call, the inner through a span of the host's own")
def two_instrumentations_of_one_call_the_inner_through_a_span_of_the_host_s_own(world: World) -> None:
    with world.span("chat gpt-5", "pydantic-ai", known=CHAT, then=DONE):
        with world.span("between", "mine"):
            with world.span("ChatCompletion", "openinference.x", late=LLM):
                with world.span("POST", "mine"):
                    world.say()


@scene()
def of_several_exchanges_in_a_span_the_first_that_succeeds_adopts_it(world: World) -> None:
    with world.span("chat", "theirs", known=CHAT):
        world.fail(500)
        world.fail(429)
        world.say()
        world.cut()


@scene()
def a_span_that_is_never_current(world: World) -> None:
    with world.span("ChatOpenAI", "theirs", then=CHAT | DONE, apart=True):
        world.say()


@scene("a span that is never current, of OpenInference, streamed")
def a_span_that_is_never_current_of_openinference_streamed(world: World) -> None:
    with world.span(
        "ChatOpenAI", "theirs", then=LLM | {"llm.model_name": "openai/gpt-5", "llm.finish_reason": "stop"}, apart=True
    ):
        world.stream()


@scene()
def a_span_that_is_never_current_and_says_little(world: World) -> None:
    with world.span("ChatOpenAI", "theirs", then={"openinference.span.kind": "LLM"}, apart=True):
        world.say()


@scene()
def a_stream_that_is_handed_over_outlives_its_span(world: World) -> None:
    with world.span("openai.chat", "opentelemetry.instrumentation.openai.v1"):
        world.open()
    world.read()


@scene()
def a_call_of_another_kind_beside_an_exchange(world: World) -> None:
    with world.span("chat", "theirs", known=CHAT | {"gen_ai.request.model": "local"}, then=LENGTH, apart=True):
        world.say()


@scene("an agent's span is the turn of the exchanges below")
def an_agent_s_span_is_the_turn_of_the_exchanges_below(world: World) -> None:
    with world.span("invoke_agent helper", "adk", known=AGENT):
        with world.span("generate_content gpt-5", "adk", late=CHAT, then=DONE):
            world.say()
        with world.span("generate_content gpt-5", "adk", late=CHAT, then=DONE):
            world.say()
        with world.span("generate_content gpt-5", "adk", late=CHAT, then=DONE):
            world.cut()


@scene("a stream that is read after the agent ended is its turn's")
def a_stream_that_is_read_after_the_agent_ended_is_its_turn_s(world: World) -> None:
    with world.span("agent", known=AGENT):
        world.open()
    world.read()


@scene("an agent's span whose attributes come late")
def an_agent_s_span_whose_attributes_come_late(world: World) -> None:
    with world.span(
        "invoke_agent Strands",
        "s",
        late={"gen_ai.operation.name": "invoke_agent"},
        then={"gen_ai.agent.name": "Strands"},
    ):
        world.say()
        world.say()


@scene("an agent's span whose attributes come late, by any name")
def an_agent_s_span_whose_attributes_come_late_by_any_name(world: World) -> None:
    with world.span("run", "s", late={"gen_ai.operation.name": "invoke_agent"}, then={"gen_ai.agent.name": "Strands"}):
        world.say()


@scene()
def a_tool_within_an_agent_calls_a_model_in_the_same_turn(world: World) -> None:
    with world.span("agent", known=AGENT):
        world.say()
        with world.span("tool", known=TOOL):
            world.say()
            with world.span("agent", known=AGENT | {"gen_ai.agent.name": "inner"}):
                world.say()


@scene()
def an_agent_that_calls_no_model_is_no_turn(world: World) -> None:
    with world.span("workflow", known={"traceloop.span.kind": "workflow"}):
        with world.span("agent", known={"openinference.span.kind": "AGENT"}):
            with world.span("chat", known=CHAT, then=LENGTH):
                pass
            with world.span("chat", known=CHAT, then=DONE):
                pass


@scene()
def an_agent_that_fails(world: World) -> None:
    with world.span("agent", known=AGENT, raises=RuntimeError()):
        with world.span("chat", known=CHAT, then=DONE):
            pass


@scene()
def an_agent_that_raises_on_a_cut_answer(world: World) -> None:
    with world.span("agent", known=AGENT, raises=RuntimeError()):
        world.cut()


@scene("an agent that raises on a cut answer, of which spans tell")
def an_agent_that_raises_on_a_cut_answer_of_which_spans_tell(world: World) -> None:
    with world.span("agent", known=AGENT, raises=RuntimeError()):
        with world.span("chat", known=CHAT, then=LENGTH):
            pass


@scene()
def an_agent_that_raises_on_a_call_that_failed_after_a_cut_answer(world: World) -> None:
    with world.span("agent", known=AGENT, raises=RuntimeError()):
        world.cut()
        world.fail(500)


@scene()
def an_agent_that_raises_on_a_cut_answer_after_a_call_that_failed(world: World) -> None:
    with world.span("agent", known=AGENT, raises=RuntimeError()):
        world.fail(500)
        world.cut()


@scene()
def an_agent_that_is_cancelled_in_a_cut_answer(world: World) -> None:
    with world.span("agent", known=AGENT, raises=asyncio.CancelledError()):
        world.cut()


@scene()
def an_agent_that_is_cancelled(world: World) -> None:
    with world.span("agent", known=AGENT, raises=asyncio.CancelledError()):
        with world.span("chat", known=CHAT, then=DONE):
            pass


@scene()
def a_counted_call_says_so(world: World) -> None:
    with world.span("chat", known=CHAT, then=LENGTH):
        pass


@scene()
def a_clean_stop_at_the_limit(world: World) -> None:
    with world.span("chat", known=CHAT | {"gen_ai.request.max_tokens": 3}, then=DONE):
        pass


@scene()
def a_call_that_raised(world: World) -> None:
    with world.span("chat", known=CHAT, raises=KeyError()):
        pass


@scene()
def what_another_process_has_counted(world: World) -> None:
    with world.span("chat", known=CHAT | {"endturn.counted": True}, then=LENGTH):
        pass


@scene()
def a_fetched_response(world: World) -> None:
    with world.span("chat", known=CHAT | {"gen_ai.operation.name": "fetch_response"}, then=DONE):
        pass


@scene()
def embeddings(world: World) -> None:
    with world.span("chat", known=CHAT | {"gen_ai.operation.name": "embeddings"}, then=DONE):
        pass


@scene()
def of_two_spans_of_one_call_the_inner_one_tells(world: World) -> None:
    with world.span("chat", "outer", known=CHAT, then=LENGTH):
        with world.span("between", "mine"):
            with world.span("chat", "inner", known=CHAT, then=LENGTH):
                pass


@scene("of two calls at once, of the same model, each is counted")
def of_two_calls_at_once_of_the_same_model_each_is_counted(world: World) -> None:
    with world.span("chat", known=CHAT, then=DONE, apart=True):
        with world.span("chat", known=CHAT, then=DONE, apart=True):
            pass


@scene("of a stream Logfire tells on a span of its own")
def of_a_stream_logfire_tells_on_a_span_of_its_own(world: World) -> None:
    with world.span("Chat Completion", "logfire.openai", known=CHAT | {"logfire.span_type": "span"}):
        pass
    with world.span("streamed", "logfire.openai", known=CHAT | LENGTH | {"logfire.span_type": "log"}):
        pass


@scene("of a stream Logfire tells, which another process has counted")
def of_a_stream_logfire_tells_which_another_process_has_counted(world: World) -> None:
    with world.span(
        "Chat Completion", "logfire.openai", known=CHAT | {"logfire.span_type": "span", "endturn.counted": True}
    ):
        pass
    with world.span("streamed", "logfire.openai", known=CHAT | LENGTH | {"logfire.span_type": "log"}):
        pass
