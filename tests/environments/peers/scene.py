"""Another instrumentation, a provider that plays a script, and what comes out of both and of endturn."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pkgutil import resolve_name
from typing import Any

import anthropic
import openai
from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import endturn
from endturn.calls import listeners
from endturn.telemetry import cleanup
from endturn.testing.scripted import Reply, ScriptedProvider
from tests.support.announced import counted

ASK: dict[str, Any] = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50}
TELL: dict[str, Any] = {**ASK, "model": "claude-x"}

Undo = Callable[[], object]
Emit = Callable[[TracerProvider, MeterProvider], Undo]
"""Sets another instrumentation up; gives what undoes it."""


@dataclass
class Scene:
    """What was exported."""

    tracers: TracerProvider
    url: str
    spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    logs: InMemoryLogRecordExporter = field(default_factory=InMemoryLogRecordExporter)

    def ask(self, ask: Callable[[Scene], Any]) -> None:
        """Have an agent do something, and whatever it dropped noticed."""
        ask(self)
        gc.collect()
        cleanup.run()

    def openai(self, kind: Any = openai.OpenAI) -> Any:
        return kind(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def anthropic(self) -> anthropic.Anthropic:
        telemetry: Any = {"tracer_provider": self.tracers}
        return anthropic.Anthropic(base_url=self.url, api_key="none", max_retries=0, open_telemetry=telemetry)

    def finished(self) -> list[ReadableSpan]:
        return list(self.spans.get_finished_spans())

    def told(self) -> list[Any]:
        """What spans say of why a model stopped."""
        said = [span.attributes or {} for span in self.finished()]
        return [attributes["endturn.stop.reason"] for attributes in said if "endturn.stop.reason" in attributes]

    def turns(self) -> dict[str, dict[str, Any]]:
        """What spans say of how turns ended, by their names."""
        said = {span.name: dict(span.attributes or {}) for span in self.finished()}
        return {name: attributes for name, attributes in said.items() if "endturn.turn.outcome" in attributes}

    def uncounted(self) -> list[ReadableSpan]:
        """The spans that a Collector that counts model calls would count, besides what was counted here."""
        return [
            span
            for span in self.finished()
            if ({"gen_ai.operation.name", "openinference.span.kind"} & set(span.attributes or ()))
            and (span.attributes or {}).get("gen_ai.operation.name", "chat") == "chat"
            and "endturn.counted" not in (span.attributes or {})
        ]

    def events(self) -> list[str]:
        names = [log.log_record.event_name or "" for log in self.logs.get_finished_logs()]
        return [name for name in names if name.startswith("endturn.")]

    def counted(self, name: str = "endturn.responses") -> dict[str, int]:
        return counted(self.reader, name)


@contextmanager
def scene(*script: Reply, emit: Emit, observed: bool, first: str = "emitter") -> Iterator[Scene]:
    """A provider on loopback, watched by another instrumentation and by endturn.

    Args:
        observed: endturn sees the requests; otherwise it has nothing but the spans.
        first: who is set up first, the "emitter" or "endturn".
    """
    made = TRACERS if emit is traceloop else _logfire_tracers() if emit is logfire else None
    tracers = made or TracerProvider(shutdown_on_exit=False)
    with ScriptedProvider(list(script)).serve() as url:
        on = Scene(tracers, url)
        meters = MeterProvider([on.reader], shutdown_on_exit=False)
        loggers = LoggerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(on.spans))
        loggers.add_log_record_processor(SimpleLogRecordProcessor(on.logs))
        given: Any = {"tracer_provider": tracers, "meter_provider": meters, "logger_provider": loggers}
        undo = emit(tracers, meters) if first == "emitter" else None
        if observed:
            endturn.instrument(**given)
            stop: Undo = endturn.uninstrument
        else:
            processor = endturn.AdoptingSpanProcessor(**given)
            tracers.add_span_processor(processor)
            stop = processor.shutdown
        undo = undo or emit(tracers, meters)
        try:
            with listeners.strict():
                yield on
        finally:
            undo()
            stop()
            assert not listeners.listening()


def instrumented(package: str, tracers: TracerProvider, meters: MeterProvider) -> Undo:
    """By a package's instrumentations of both SDKs."""
    both = [resolve_name(f"{package}.{sdk.lower()}:{sdk}Instrumentor")() for sdk in ("OpenAI", "Anthropic")]
    for one in both:
        one.instrument(skip_dep_check=True, tracer_provider=tracers, meter_provider=meters)
    return lambda: [one.uninstrument() for one in both]


def genai(tracers: TracerProvider, meters: MeterProvider) -> Undo:
    """OpenTelemetry's own."""
    return instrumented("opentelemetry.instrumentation.genai", tracers, meters)


def openinference(tracers: TracerProvider, meters: MeterProvider) -> Undo:
    """Arize's."""
    return instrumented("openinference.instrumentation", tracers, meters)


TRACERS = TracerProvider(shutdown_on_exit=False)


@cache
def _traceloop_once() -> Undo:
    return instrumented("opentelemetry.instrumentation", TRACERS, MeterProvider(shutdown_on_exit=False))


def traceloop(tracers: TracerProvider, meters: MeterProvider) -> Undo:
    """OpenLLMetry. It cannot be undone (0.62.4): it is set up once in a process, out of which the others stay."""
    _traceloop_once()
    return lambda: None


@cache
def _logfire_tracers() -> Any:
    import logfire

    logfire.configure(send_to_logfire=False, console=False, metrics=False, inspect_arguments=False)
    return trace.get_tracer_provider()


def logfire(tracers: TracerProvider, meters: MeterProvider) -> Undo:
    """Pydantic's Logfire, without sending anything anywhere."""
    import logfire

    undo = [logfire.instrument_openai(), logfire.instrument_anthropic()]

    def done() -> None:
        for one in undo:
            with one:
                pass
        for client in (openai.OpenAI, openai.AsyncOpenAI, anthropic.Anthropic, anthropic.AsyncAnthropic):
            if "request" in vars(client):  # it leaves the base class's method, of the time when it was set up
                del client.request

    return done


def nothing(tracers: TracerProvider, meters: MeterProvider) -> Undo:
    """Nobody else. Anthropic's SDK makes spans of its own, of the global provider."""
    return lambda: None
