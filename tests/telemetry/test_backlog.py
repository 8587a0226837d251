"""What waits for another thread: where it may, and that nothing of it is late or lost."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    BatchLogRecordProcessor,
    InMemoryLogRecordExporter,
    SimpleLogRecordProcessor,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from endturn import announce
from endturn.calls import Layer, open_call
from endturn.records import CallStarted, Record, believe
from endturn.stop import Stop, StopReason
from endturn.telemetry import backlog, janitor
from endturn.telemetry.recorder import Recorder

DONE = Stop(StopReason.END_TURN, "stop")
CUT = Stop(StopReason.MAX_TOKENS, "length", incomplete=True)


@dataclass
class Host:
    """A host's providers, which make batches, and a recorder that listens."""

    spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    logs: Any = field(default_factory=InMemoryLogRecordExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)

    def __post_init__(self) -> None:
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(BatchSpanProcessor(self.spans))
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        self.loggers.add_log_record_processor(BatchLogRecordProcessor(self.logs))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.recorder = Recorder(self.tracers, self.meters, self.loggers)

    def call(self, stop: Stop = DONE) -> None:
        """One whole call."""
        call = open_call(Layer.SDK, provider="openai", model="gpt-5", stream=False)
        assert call is not None
        call.end(stop, reasons=(stop.raw,))

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len(self.recorder.deferral._backlog._calls)

    def waits(self, recorder: Recorder | None = None) -> bool:
        """Whether calls would wait."""
        deferral = (recorder or self.recorder).deferral
        return deferral._waits(deferral.out)

    def counted(self) -> int:
        """Responses, as a reader that collects now sees them."""
        data: Any = self.reader.get_metrics_data()
        metrics = (each for one in data.resource_metrics for scope in one.scope_metrics for each in scope.metrics)
        return sum(
            point.value for each in metrics if each.name == "endturn.responses" for point in each.data.data_points
        )


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A host whose calls wait until somebody ends the wait: the janitor's thread does not."""
    monkeypatch.setattr(janitor, "after", lambda seconds, job: None)
    monkeypatch.setattr(janitor, "later", lambda job: None)
    made = Host()
    stop = announce.listen(made.recorder)
    with announce.strict():
        yield made
    stop()
    for provider in (made.tracers, made.loggers, made.meters):
        provider.shutdown()


def test_a_whole_call_waits_and_a_flush_ends_the_wait(host: Host) -> None:
    """`force_flush` of the tracer provider exports the span of a call that has just ended, with all its attributes."""
    host.call()
    assert host.waiting == 1
    assert host.tracers.force_flush()
    (span,) = host.spans.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["endturn.stop.reason"] == "end_turn"
    assert host.waiting == 0


def test_a_flush_of_the_logs_ends_the_wait(host: Host) -> None:
    """`force_flush` of the logger provider exports the event, with its span's ids and the time when it happened."""
    host.call()
    assert host.loggers.force_flush()
    host.tracers.force_flush()
    (record,) = host.logs.get_finished_logs()
    (span,) = host.spans.get_finished_spans()
    assert (record.log_record.trace_id, record.log_record.span_id) == (span.context.trace_id, span.context.span_id)
    assert record.log_record.timestamp == span.end_time


@pytest.mark.parametrize("method", ["force_flush", "shutdown"])
def test_a_flush_of_the_processor_itself_ends_the_wait(host: Host, method: str) -> None:
    """A host that keeps its processor flushes that, not the provider: what waits is handed on first."""
    host.call()
    processors = host.tracers._active_span_processor._span_processors
    (batching,) = (each for each in processors if type(each) is BatchSpanProcessor)
    getattr(batching, method)()
    assert not host.waiting
    assert len(host.spans.get_finished_spans()) == 1


def test_a_collection_ends_the_wait(host: Host) -> None:
    """A metric reader counts the call that has just ended."""
    host.call()
    assert host.counted() == 1
    assert host.waiting == 0


@pytest.mark.parametrize("first", ["tracers", "loggers"])
def test_a_shutdown_ends_the_wait_for_good(host: Host, first: str) -> None:
    """What waits when a provider shuts down is exported, and nothing waits afterwards."""
    host.call()
    getattr(host, first).shutdown()
    assert host.waiting == 0
    exported = {"tracers": host.spans.get_finished_spans, "loggers": host.logs.get_finished_logs}[first]()
    assert len(exported) == 1
    host.call()
    assert host.waiting == 0


def test_a_truncated_call_does_not_wait(host: Host) -> None:
    """What a continuation will be linked to is known at once."""
    host.call(CUT)
    assert host.waiting == 0


@pytest.mark.parametrize("signal", ["spans", "logs"])
def test_nothing_waits_where_it_could_be_told(host: Host, signal: str) -> None:
    """A host that adds a processor which exports at once gets every call at once from then on."""
    host.call()
    spans, logs = InMemorySpanExporter(), InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    if signal == "spans":
        host.tracers.add_span_processor(SimpleSpanProcessor(spans))
    else:
        host.loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))
    host.call()
    assert len(spans.get_finished_spans() if signal == "spans" else logs.get_finished_logs()) == 1


def test_what_waits_is_bounded(host: Host) -> None:
    """Where nobody works on it, whoever adds to it does."""
    for _ in range(4 * backlog.MANY):
        host.call()
        assert host.waiting <= backlog.MANY
    assert host.counted() == 4 * backlog.MANY


def test_what_another_thread_is_at_is_bounded(host: Host) -> None:
    """Whoever adds to it does not wait for another thread, until far too many wait."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with host.recorder.deferral._backlog._lock:
            held.set()
            done.wait(10)

    holding = threading.Thread(target=hold)
    holding.start()
    assert held.wait(10)
    for _ in range(backlog.MOST):
        host.call()
    assert host.waiting == backlog.MOST
    threading.Timer(0.1, done.set).start()
    host.call()
    assert host.waiting == 0
    holding.join()


def test_many_are_left_to_those_who_add_more(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread tells what few calls there were a tick ago, and the rest of many when no more come."""
    waiting = host.recorder.deferral._backlog
    for _ in range(3):
        host.call()
    waiting._tick()
    assert host.waiting == 3
    waiting._tick()
    assert host.waiting == 0
    for _ in range(backlog.MANY):
        host.call()
    waiting._tick()
    assert host.waiting == backlog.MANY
    host.call()
    assert host.waiting == 1
    monkeypatch.setattr(backlog, "TICK_S", 0.0)  # the last has not come just now
    waiting._tick()
    waiting._tick()
    assert host.waiting == 0


def test_the_thread_ends_the_wait() -> None:
    """Nobody has to flush: the span is handed on within the second."""
    made = Host()
    stop = announce.listen(made.recorder)
    try:
        made.call()
        deadline = time.monotonic() + 10
        while made.waiting and time.monotonic() < deadline:
            time.sleep(0.02)
        assert made.waiting == 0
    finally:
        stop()
        for provider in (made.tracers, made.loggers, made.meters):
            provider.shutdown()


def test_recorders_that_are_gone_leave_no_processor(host: Host) -> None:
    """A second recorder of the same providers takes the place of one that is no more."""
    host.call()
    processors: Any = host.tracers._active_span_processor
    assert [type(each).__name__ for each in processors._span_processors] == ["First", "BatchSpanProcessor"]
    other = Recorder(host.tracers, host.meters, host.loggers)
    assert host.waits(other)
    assert host.waits()
    assert len(processors._span_processors) == 3
    del other
    gc.collect()
    third = Recorder(host.tracers, host.meters, host.loggers)
    assert host.waits(third)
    assert len(processors._span_processors) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_leaves_what_waits_to_its_parent(host: Host) -> None:
    """In the child nothing waits; in the parent it still does."""
    host.call()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, b"%d" % host.waiting)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 8) == b"0"
    os.close(reading)
    os.close(writing)
    assert host.waiting == 1


def test_what_fails_is_counted_and_the_rest_goes_on(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call that cannot be announced costs no other."""
    host.call()
    host.recorder.deferral._backlog._calls.appendleft(object())  # type: ignore[arg-type]  # what nobody adds
    before = sum(announce.listener_failures().values())
    with monkeypatch.context() as lenient:
        lenient.setattr(announce, "_strict", False)
        assert host.counted() == 1
    assert sum(announce.listener_failures().values()) == before + 1


class Watchful:
    """A listener that would as soon be told later, and does something when a call begins."""

    def __init__(self, begun: Callable[[], object]) -> None:
        self.begun = begun
        self.starts = 0

    def waits(self) -> bool:
        return True

    def __call__(self, record: Record) -> None:
        if isinstance(record, CallStarted):
            self.starts += 1
            if self.starts == 1:
                self.begun()


def test_a_span_that_is_asked_for_while_it_begins_begins_once(host: Host) -> None:
    """What logs while a call is announced asks for the span of that very call."""
    watchful = Watchful(lambda: trace.get_current_span().get_span_context())
    stop = announce.listen(watchful)
    try:
        call = open_call(Layer.SDK, provider="openai", model="gpt-5", stream=False)
        assert call is not None
        with call.step():
            asked = trace.get_current_span().get_span_context()
        call.end(DONE)
        host.tracers.force_flush()
    finally:
        stop()
    (span,) = host.spans.get_finished_spans()
    assert watchful.starts == 1
    assert span.context == asked


def test_a_flush_while_a_span_begins_waits_for_no_thread_that_waits_for_it(host: Host) -> None:
    """A signal's handler may flush in the midst of a beginning, while another thread tells of other calls."""
    waiting, held, told = host.recorder.deferral._backlog, threading.Event(), threading.Event()
    call = open_call(Layer.SDK, provider="openai", model="gpt-5", stream=False)
    assert call is not None
    host.call()

    def tell() -> None:
        with waiting._lock:
            held.set()
            waiting._run(1)
        told.set()

    def handle() -> None:
        threading.Thread(target=tell, daemon=True).start()
        assert held.wait(10)
        assert told.wait(10)

    stop = announce.listen(Watchful(handle))
    try:
        with call.step():
            assert trace.get_current_span().get_span_context().is_valid
        call.end(DONE)
    finally:
        stop()


def test_who_listens_later_is_told_nothing_that_was_over(host: Host) -> None:
    """What waits is told to those who listened; nothing of it is lost when the recorder stops."""
    host.call()
    heard: list[Record] = []
    stop = announce.listen(heard.append)
    assert host.waiting == 0
    stop()
    assert heard == []


def test_a_call_put_off_is_told_though_somebody_listens_who_cannot_wait(host: Host) -> None:
    """`settle` ends the wait of what was put off before an impatient listener came."""
    call = open_call(Layer.SDK, provider="openai", model="gpt-5", stream=False)
    assert call is not None
    stop = announce.listen(lambda record: None)
    call.end(DONE)
    assert host.waiting == 1
    announce.settle()
    assert host.waiting == 0
    stop()


def test_a_wrappers_span_begins_with_its_attributes(host: Host) -> None:
    """It is announced when it has ended, too; a processor of the host's may look at the span's beginning."""
    seen: list[dict[str, Any]] = []

    class Looking(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            seen.append(dict(span.attributes))

    host.tracers.add_span_processor(Looking())
    call = open_call(Layer.WRAPPER, provider="openai", model="gpt-5", stream=False)
    assert call is not None
    call.end(DONE)
    assert seen[0]["gen_ai.request.model"] == "gpt-5"


def batching(**options: Any) -> BatchSpanProcessor:
    """The SDK's own processor, exporting to nobody in particular."""
    return BatchSpanProcessor(InMemorySpanExporter(), **options)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"max_queue_size": 32, "max_export_batch_size": 8}, id="a queue that so many would fill"),
        pytest.param({"schedule_delay_millis": 50}, id="a host in a hurry"),
    ],
)
def test_nothing_waits_for_a_processor_that_cannot_take_many_late(host: Host, options: dict[str, Any]) -> None:
    """A short queue would lose what is told in one go; who exports at once is told at once."""
    assert host.waits()
    host.tracers.add_span_processor(batching(**options))
    assert not host.waits()


def test_a_processor_whose_methods_a_host_replaced_is_told_as_things_happen(host: Host) -> None:
    """An `on_start` that somebody put on the SDK's processor adds to spans what is current when they begin."""
    started: list[str] = []
    processor = batching()
    original = processor.on_start

    def on_start(span: Any, parent_context: Any = None) -> None:
        started.append(span.name)
        original(span, parent_context)

    processor.on_start = on_start  # type: ignore[method-assign]
    host.tracers.add_span_processor(processor)
    host.call()
    assert host.waiting == 0
    assert started == ["chat gpt-5"]


def test_a_method_that_is_replaced_later_is_noticed_within_some_dozens_of_calls(host: Host) -> None:
    """A host may do so at any time; that it has not is not looked up for every call."""
    processor = batching()
    host.tracers.add_span_processor(processor)
    assert host.waits()
    processor.on_start = lambda *given: None  # type: ignore[method-assign]
    assert not all(host.waits() for _ in range(backlog.LOOK_AGAIN))


def test_a_processor_that_comes_later_gets_nothing_of_what_was_over(host: Host) -> None:
    """It would be handed the end of a span of which it never saw the beginning."""
    host.call()
    late = InMemorySpanExporter()
    host.tracers.add_span_processor(BatchSpanProcessor(late))
    host.call()
    assert host.tracers.force_flush()
    assert len(late.get_finished_spans()) == 1
    assert len(host.spans.get_finished_spans()) == 2


def test_a_host_s_own_flush_reaches_every_recorder(host: Host) -> None:
    """A processor that is flushed by itself has what waits, though another recorder had it before."""
    processors = host.tracers._active_span_processor._span_processors
    (batches,) = (each for each in processors if isinstance(each, BatchSpanProcessor))
    assert host.waits(Recorder(host.tracers, host.meters, host.loggers))
    host.call()
    assert host.waiting == 1
    assert batches.force_flush()
    assert len(host.spans.get_finished_spans()) == 1


def test_a_span_that_is_asked_for_while_it_is_begun_is_begun_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal's handler writes a log line with the ids of what is current, whatever it interrupts."""
    call = open_call(Layer.SDK, provider="openai", model="gpt-5", stream=False)
    assert call is not None
    (activation,) = call.activations
    pending: Any = activation.span  # type: ignore[attr-defined]

    def interrupted(facts: dict[str, Any]) -> None:
        pending.get_span_context()
        believe(facts)

    monkeypatch.setattr("endturn.calls.believe", interrupted)
    seen = pending.get_span_context()
    call.end(DONE, reasons=("stop",))
    assert host.tracers.force_flush()
    (span,) = host.spans.get_finished_spans()
    assert span.context is not None
    assert span.context.span_id == seen.span_id
    assert not host.recorder._open


def test_calls_do_not_wait_again_and_again_for_who_hangs(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever tells of calls hangs in a handler of the host's: one call waits for it, and what is too much is lost."""
    monkeypatch.setattr(janitor, "WAIT_S", 0.05)
    lost = announce.listener_failures().get("Backlog", 0)
    waiting = host.recorder.deferral._backlog
    waited: list[float] = []
    lock = waiting._lock

    class Hung:
        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            waited.extend([timeout] if blocking else [])
            return False

        def release(self) -> None:
            """Nobody has it."""

    waiting._lock = Hung()  # type: ignore[assignment]
    for _ in range(backlog.MOST + 10):
        host.call()
    waiting._lock = lock
    assert waited == [0.05]
    assert host.waiting == backlog.MOST
    assert announce.listener_failures()["Backlog"] == lost + 10
    assert host.tracers.force_flush()
    assert len(host.spans.get_finished_spans()) == backlog.MOST


def test_ids_of_an_extension_are_no_ids_of_the_sdk_s(host: Host) -> None:
    """AWS X-Ray's, in a package of the SDK's name, hold the time: they are made when the call is."""
    made = TracerProvider(id_generator=Extension(), shutdown_on_exit=False)
    made.add_span_processor(batching())
    assert not host.waits(Recorder(made, host.meters, host.loggers))


class Extension(RandomIdGenerator):
    """Makes ids, somewhere under `opentelemetry.sdk`."""

    __module__ = "opentelemetry.sdk.extension.aws.trace.aws_xray_id_generator"
