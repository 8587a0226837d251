"""Spans of a tracer provider that is not recorded to: nothing is written on them, whatever they are of.

A vendor keeps such a provider to itself, with rules of its own for what may be recorded. source:
https://opentelemetry.io/docs/specs/otel/trace/api/#tracerprovider: there may be several in one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import endturn
from endturn.calls import listeners
from endturn.testing.scripted import Reply, ScriptedProvider, fail, say, truncate
from tests.support.announced import counted
from tests.telemetry.mocked import ASK

CALL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5"}
KINDS: dict[str, dict[str, Any]] = {
    "call": CALL,
    "call of OpenInference": {"openinference.span.kind": "LLM"},
    "agent": {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "theirs"},
    "tool": {"gen_ai.operation.name": "execute_tool"},
    "something": {},
}
REASON = "endturn.stop.reason"
REPLIES = {"end_turn": say("Hello"), "max_tokens": truncate("Hello there", after=1), "error": fail(500)}


class Exported:
    """A tracer provider and what it exports."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self.provider = provider or TracerProvider(shutdown_on_exit=False)
        self.exporter = InMemorySpanExporter()
        TracerProvider.add_span_processor(self.provider, SimpleSpanProcessor(self.exporter))

    def span(self, name: str, **attributes: Any) -> Any:
        return self.provider.get_tracer("them").start_as_current_span(name, attributes=attributes)

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return found

    def names(self) -> list[str]:
        return [span.name for span in self.exporter.get_finished_spans()]


def parent(span: ReadableSpan) -> int:
    assert span.parent is not None
    return int(span.parent.span_id)


def own_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def ask(*replies: Reply) -> None:
    """Over HTTP, as any SDK does, once for each reply."""
    client = httpx.Client(transport=ScriptedProvider(list(replies)).transport())
    for _ in replies:
        client.post("http://gateway/v1/chat/completions", json={**ASK, "model": "gpt-5"})


@contextmanager
def observed(host: TracerProvider, **options: Any) -> Iterator[InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    with listeners.strict():
        endturn.instrument(tracer_provider=host, meter_provider=meters, **options)
        try:
            yield reader
        finally:
            endturn.uninstrument()


@pytest.mark.parametrize("reason", REPLIES)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_written_on_them(kind: str, reason: str) -> None:
    """Events on spans included; the host's own trace is whole: its span, and ours of the call in it."""
    host, vendor = Exported(), Exported()
    with (
        observed(host.provider, content="SPAN_ONLY", events="both") as reader,
        host.span("request"),
        vendor.span("theirs", **KINDS[kind]),
    ):
        ask(REPLIES[reason])
    assert vendor.names() == ["theirs"]
    theirs, ours, request = vendor.named("theirs"), host.named("chat gpt-5"), host.named("request")
    assert dict(theirs.attributes or {}) == KINDS[kind]
    assert theirs.events == ()
    assert (ours.attributes or {})[REASON] == reason
    assert "gen_ai.input.messages" in (ours.attributes or {})
    assert parent(ours) == own_id(request)
    assert sum(counted(reader).values()) == 1
    assert sum(counted(reader, "gen_ai.client.operation.duration").values()) == 1


def test_a_call_of_the_hosts_around_one_of_theirs_is_adopted() -> None:
    """And an agent of the host's around one of theirs is the turn."""
    host, vendor = Exported(), Exported()
    with (
        observed(host.provider),
        host.span("agent", **KINDS["agent"]),
        host.span("chat", **CALL),
        vendor.span("theirs", **CALL),
    ):
        ask(say("Hello"))
    assert host.names() == ["chat", "agent"]
    assert (host.named("chat").attributes or {})[REASON] == "end_turn"
    assert (host.named("agent").attributes or {})["endturn.turn.outcome"] == "completed"
    assert dict(vendor.named("theirs").attributes or {}) == CALL


def test_a_tool_of_theirs_stands_between() -> None:
    """What a tool asks is no part of the call that it is run in."""
    host, vendor = Exported(), Exported()
    with observed(host.provider), host.span("chat", **CALL), vendor.span("tool", **KINDS["tool"]):
        ask(say("Hello"))
    assert REASON not in (host.named("chat").attributes or {})
    assert host.names() == ["chat gpt-5", "chat"]


def test_an_observed_turn_within_their_agent_has_a_span_of_its_own() -> None:
    host, vendor = Exported(), Exported()

    @endturn.observe_turn(agent="mine")
    def run() -> None:
        ask(say("Hello"))

    with observed(host.provider), vendor.span("theirs", **KINDS["agent"]):
        run()
    assert dict(vendor.named("theirs").attributes or {}) == KINDS["agent"]
    assert host.names() == ["chat gpt-5", "invoke_agent mine"]
    assert parent(host.named("chat gpt-5")) == own_id(host.named("invoke_agent mine"))


@pytest.mark.parametrize("dropped", ["host", "vendor"])
def test_spans_that_a_sampler_drops(dropped: str) -> None:
    """A call is counted once, and only the other's spans are exported."""
    off = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    host, vendor = Exported(off if dropped == "host" else None), Exported(off if dropped == "vendor" else None)
    with observed(host.provider) as reader, vendor.span("theirs", **CALL):
        ask(say("Hello"))
    assert counted(reader) == {"end_turn": 1}
    for span in vendor.exporter.get_finished_spans():
        assert dict(span.attributes or {}) == CALL


def test_a_span_that_began_before_the_provider_was_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that is installed late is looked at when the first request is sent, within a span that is open."""
    host, vendor = Exported(), Exported()
    installed: list[Any] = [trace.ProxyTracerProvider()]
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: installed[0])
    with listeners.strict():
        endturn.instrument(meter_provider=MeterProvider(shutdown_on_exit=False))
        installed[0] = host.provider
        with host.span("mine", **CALL):
            ask(say("Hello"))
        endturn.uninstrument()
        endturn.instrument(meter_provider=MeterProvider(shutdown_on_exit=False))
        with vendor.span("theirs", **CALL):
            ask(say("Hello"))
        endturn.uninstrument()
    assert (host.named("mine").attributes or {})[REASON] == "end_turn"
    assert dict(vendor.named("theirs").attributes or {}) == CALL


def test_a_processor_that_was_added_by_hand_reads_theirs() -> None:
    """The host asked for it: a call that is not sent over HTTP is counted; one that is has a span of the host's."""
    host, vendor = Exported(), Exported()
    processor = endturn.AdoptingSpanProcessor()
    vendor.provider.add_span_processor(processor)
    done = {"gen_ai.response.finish_reasons": ("stop",)}
    with observed(host.provider, counted=True) as reader:
        with vendor.span("over gRPC", **CALL) as span:
            span.set_attributes(done)
        with vendor.span("over HTTP", **CALL):
            ask(truncate("Hello there", after=1))
        assert counted(reader) == {"end_turn": 1, "max_tokens": 1}
    processor.shutdown()
    assert REASON not in (vendor.named("over HTTP").attributes or {})
    assert (host.named("chat gpt-5").attributes or {})[REASON] == "max_tokens"


# --- Providers whose methods a vendor has replaced --------------------------------------------------------------------


class Replacing(TracerProvider):
    """As Arize's and Phoenix's: who adds a processor is taken to replace theirs. source: arize.otel.otel."""

    def __init__(self) -> None:
        super().__init__(shutdown_on_exit=False)
        self.is_default = True

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        if self.is_default:
            self._active_span_processor.shutdown()
            self._active_span_processor._span_processors = ()
            self.is_default = False
        super().add_span_processor(span_processor)


def test_the_sdks_own_method_is_called() -> None:
    """Their exporter stays, whoever comes first."""
    host = Exported(Replacing())
    with observed(host.provider), host.span("mine", **CALL):
        ask(say("Hello"))
    assert (host.named("mine").attributes or {})[REASON] == "end_turn"


def test_a_provider_that_has_dropped_our_processor_is_looked_at_again() -> None:
    """Its host replaces the exporter after the first call."""
    host = Exported(Replacing())
    late = InMemorySpanExporter()
    with observed(host.provider):
        ask(say("Hello"))
        host.provider.add_span_processor(SimpleSpanProcessor(late))
        for _ in range(2):
            with host.span("mine", **CALL):
                ask(say("Hello"))
    told = [(span.name, (span.attributes or {}).get(REASON)) for span in late.get_finished_spans()]
    assert told == [("mine", "end_turn")] * 2
