"""A host with the SDK's batch processors: what is made within a call is in its span, and nothing is kept of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import openai
import pytest
from opentelemetry import context, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, InMemoryLogRecordExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import endturn
from tests.telemetry.mocked import ASK, STREAM, WHOLE, Server, body, chat, events

Hook = Callable[[httpx2.Request], object]


class Host:
    """A host's providers, which make batches, and a client of which calls are observed."""

    def __init__(self, **options: Any) -> None:
        self.spans = InMemorySpanExporter()
        self.logs: Any = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False, **options)
        self.tracers.add_span_processor(BatchSpanProcessor(self.spans))
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        self.loggers.add_log_record_processor(BatchLogRecordProcessor(self.logs))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.tracer = self.tracers.get_tracer("host")

    def observe(self) -> None:
        """Observe calls, with all three."""
        endturn.instrument(tracer_provider=self.tracers, meter_provider=self.meters, logger_provider=self.loggers)

    def ask(self, hook: Hook | None = None, reply: Any = WHOLE) -> Any:
        """One call; the hook runs within it."""
        hooks: dict[str, list[Any]] = {"request": [hook] if hook is not None else []}
        http = httpx2.Client(transport=httpx2.MockTransport(Server(body(reply))), event_hooks=hooks)
        return openai.OpenAI(api_key="none", max_retries=0, http_client=http).chat.completions.create(**ASK)

    def exported(self) -> dict[str, list[ReadableSpan]]:
        """The spans by name."""
        assert self.tracers.force_flush()
        assert self.loggers.force_flush()
        found: dict[str, list[ReadableSpan]] = {}
        for span in self.spans.get_finished_spans():
            found.setdefault(span.name, []).append(span)
        return found

    def emitted(self) -> list[Any]:
        """The log records."""
        self.exported()
        return [each.log_record for each in self.logs.get_finished_logs()]


class Logging(logging.Handler):
    """What the host logs goes to its logger provider, with the ids of the span that is current."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._logger = host.loggers.get_logger("host")

    def emit(self, record: logging.LogRecord) -> None:
        self._logger.emit(body=record.getMessage())


CHAT = f"chat {ASK['model']}"


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


@pytest.fixture
def host() -> Iterator[Host]:
    """A host that sets up OpenTelemetry itself."""
    made = Host()
    yield made
    endturn.uninstrument()
    for provider in (made.tracers, made.loggers, made.meters):
        provider.shutdown()


@pytest.fixture
def observed(host: Host) -> Host:
    """The same, with its calls observed."""
    host.observe()
    return host


def test_what_is_made_within_a_call_is_in_its_span(observed: Host) -> None:
    """A span and a log record of a hook's are in the call's span, which ends with it, with what the hook sets."""
    handler = Logging(observed)
    log = logging.getLogger("tests.deferred")

    def hook(request: httpx2.Request) -> None:
        with observed.tracer.start_as_current_span("GET"):
            pass
        seen.append(trace.get_current_span())
        seen[0].set_attribute("host.own", 1)
        log.warning("within")

    seen: list[trace.Span] = []
    log.addHandler(handler)
    try:
        with observed.tracer.start_as_current_span("host"):
            observed.ask(hook)
    finally:
        log.removeHandler(handler)
    assert not seen[0].is_recording()
    seen[0].set_attribute("too.late", 1)
    spans = observed.exported()
    (made,), (outer,), (inner,) = spans[CHAT], spans["host"], spans["GET"]
    assert parent(made) == ids(outer)[1]
    assert parent(inner) == ids(made)[1]
    assert made.attributes is not None
    assert made.attributes["host.own"] == 1
    assert "too.late" not in made.attributes
    assert made.start_time is not None
    assert inner.start_time is not None
    assert made.start_time <= inner.start_time
    assert [(each.trace_id, each.span_id) for each in observed.emitted()] == [ids(made), ids(made)]


def test_a_call_under_way_when_observation_ends_is_recorded(observed: Host) -> None:
    """What is made within it is in its span, which is exported: nobody's parent is missing."""

    def hook(request: httpx2.Request) -> None:
        endturn.uninstrument()
        with observed.tracer.start_as_current_span("GET"):
            pass

    with observed.tracer.start_as_current_span("host"):
        observed.ask(hook)
    spans = observed.exported()
    assert parent(spans["GET"][0]) == ids(spans[CHAT][0])[1]
    assert parent(spans[CHAT][0]) == ids(spans["host"][0])[1]
    assert len(observed.emitted()) == 1


def test_a_call_goes_where_calls_went_when_it_began(observed: Host) -> None:
    """The host sets other providers while a call is under way: it goes to the first."""
    other = Host()
    observed.ask()
    stream = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    endturn.instrument(tracer_provider=other.tracers)
    for _ in stream:
        pass
    observed.ask()
    other.tracers.force_flush()
    assert len(other.exported()[CHAT]) == 1
    assert len(observed.exported()[CHAT]) == 2


def test_events_without_spans_are_of_the_hosts_trace(host: Host) -> None:
    """Where there is no tracer, an event has the ids of the span that the call was made in."""
    endturn.instrument(logger_provider=host.loggers)
    with host.tracer.start_as_current_span("host"):
        host.ask()
    with host.tracer.start_as_current_span("flushing"):
        (event,) = host.emitted()
    assert (event.trace_id, event.span_id) == ids(host.exported()["host"][0])


def test_a_call_in_which_a_process_forks_is_the_parents(observed: Host) -> None:
    """The child, too, is within the span that the parent exports, and exports none of that call itself."""
    reading, writing = os.pipe()
    process = os.getpid()

    def hook(request: httpx2.Request) -> None:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        else:
            os.write(writing, b"%d " % trace.get_current_span().get_span_context().span_id)

    try:
        observed.ask(hook)
    finally:
        if os.getpid() != process:
            os.write(writing, b"%d" % len(observed.exported()))
            os._exit(0)
    span_id, exported = os.read(reading, 100).split()
    os.close(reading)
    os.close(writing)
    (made,) = observed.exported()[CHAT]
    assert int(span_id) == ids(made)[1]
    assert int(exported) == 0


def test_a_span_is_adopted_though_instrumentation_is_suppressed(observed: Host) -> None:
    """Who makes a span of a call keeps others from making one too; the stop reason is on it all the same."""
    foreign = observed.tracers.get_tracer("opentelemetry.instrumentation.openai_v2")
    known = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": ASK["model"]}
    with foreign.start_as_current_span("theirs", attributes=known):
        token = context.attach(context.set_value("suppress_instrumentation", True))
        observed.ask()
        context.detach(token)
    spans = observed.exported()
    assert list(spans) == ["theirs"]
    assert (spans["theirs"][0].attributes or {})["endturn.stop.reason"] == "end_turn"
