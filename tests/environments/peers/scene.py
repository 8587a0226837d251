"""Another instrumentation, a provider that plays a script, and what comes out of both and of endturn."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import anthropic
import openai
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import endturn
from endturn import hooks
from endturn.scripted import Reply, ScriptedProvider
from endturn.telemetry import cleanup

ASK: dict[str, Any] = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50}
TELL: dict[str, Any] = {**ASK, "model": "claude-x"}


@dataclass
class Scene:
    """What was exported."""

    tracers: TracerProvider
    meters: MeterProvider
    loggers: LoggerProvider
    spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    logs: InMemoryLogRecordExporter = field(default_factory=InMemoryLogRecordExporter)
    provider: ScriptedProvider | None = None
    url: str = ""

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

    def told(self, attribute: str = "endturn.stop.reason") -> list[Any]:
        """What spans say of why a model stopped, or of something else."""
        said = [span.attributes or {} for span in self.finished()]
        return [attributes[attribute] for attributes in said if attribute in attributes]

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
        self.loggers.force_flush()
        names = [log.log_record.event_name or "" for log in self.logs.get_finished_logs()]
        return [name for name in names if name.startswith("endturn.")]

    def counted(self, name: str) -> dict[str, int]:
        """A sum, or a histogram's count, by the last of its attributes; what is zero is left out."""
        found: Counter[str] = Counter()
        data = self.reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        for metric in (metric for scope in scopes for metric in scope.metrics if metric.name == name):
            for point in metric.data.data_points:
                counts: Any = getattr(point, "value", None) or getattr(point, "count", 0)
                found[str([*(point.attributes or {}).values()][-1])] += counts
        return dict(+found)

    def responses(self) -> dict[str, int]:
        """How many responses were counted, by reason."""
        return self.counted("endturn.responses")


@contextmanager
def scene(
    *script: Reply,
    emit: Callable[[Any, Any], Callable[[], None]],
    observed: bool,
    sampler: Any = None,
    first: str = "emitter",
    tracers: TracerProvider | None = None,
    **options: Any,
) -> Iterator[Scene]:
    """A provider on loopback, watched by another instrumentation and by endturn.

    Args:
        emit: sets the other instrumentation up with a tracer provider and a meter provider; gives what undoes it.
        observed: endturn sees the requests; otherwise it has nothing but the spans.
        first: who is set up first, the "emitter" or "endturn".
    """
    if emit is traceloop:
        tracers = TRACERS
    if emit is logfire:
        tracers = _logfire_tracers()
    tracers = tracers or TracerProvider(sampler=sampler, shutdown_on_exit=False)
    options.setdefault("counted", True)  # no reader has collected yet
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    loggers = LoggerProvider(shutdown_on_exit=False)
    made = Scene(tracers, meters, loggers, reader=reader)
    tracers.add_span_processor(SimpleSpanProcessor(made.spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(made.logs))
    undo: Callable[[], None] | None = emit(tracers, meters) if first == "emitter" else None
    if observed:
        endturn.instrument(tracer_provider=tracers, meter_provider=meters, logger_provider=loggers, **options)
    else:
        given = endturn.AdoptingSpanProcessor(
            tracer_provider=tracers, meter_provider=meters, logger_provider=loggers, **options
        )
        tracers.add_span_processor(given)
    undo = undo or emit(tracers, meters)
    made.provider = ScriptedProvider(list(script))
    try:
        with hooks.strict(), made.provider.serve() as url:
            made.url = url
            yield made
    finally:
        undo()
        if observed:
            endturn.uninstrument()
        else:
            given.shutdown()
        assert not hooks.listening()


def genai(tracers: Any, meters: Any) -> Callable[[], None]:
    """OpenTelemetry's own."""
    from opentelemetry.instrumentation.genai.anthropic import AnthropicInstrumentor
    from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

    return _both(OpenAIInstrumentor(), AnthropicInstrumentor(), tracer_provider=tracers, meter_provider=meters)


def openinference(tracers: Any, meters: Any) -> Callable[[], None]:
    """Arize's."""
    from openinference.instrumentation.anthropic import AnthropicInstrumentor
    from openinference.instrumentation.openai import OpenAIInstrumentor

    return _both(OpenAIInstrumentor(), AnthropicInstrumentor(), tracer_provider=tracers)


TRACERS = TracerProvider(shutdown_on_exit=False)


def traceloop(tracers: Any, meters: Any) -> Callable[[], None]:
    """OpenLLMetry. It cannot be undone (0.62.4): it is set up once in a process, out of which the others stay."""
    if traceloop in _set_up:
        return lambda: None
    _set_up.add(traceloop)
    from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    _both(OpenAIInstrumentor(), AnthropicInstrumentor(), tracer_provider=tracers, meter_provider=meters)
    return lambda: None


_set_up: set[Any] = set()


@cache
def _logfire_tracers() -> Any:
    import logfire
    from opentelemetry import trace

    logfire.configure(send_to_logfire=False, console=False, metrics=False, inspect_arguments=False)
    return trace.get_tracer_provider()


def logfire(tracers: Any, meters: Any) -> Callable[[], None]:
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


def nothing(tracers: Any, meters: Any) -> Callable[[], None]:
    """Nobody else. Anthropic's SDK makes spans of its own, of the global provider."""
    return lambda: None


def _both(*instrumentors: Any, **given: Any) -> Callable[[], None]:
    for one in instrumentors:
        one.instrument(skip_dep_check=True, **given)

    def undo() -> None:
        for one in instrumentors:
            one.uninstrument()

    return undo
