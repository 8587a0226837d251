"""While nobody records, nothing of a call is read, and nothing imported that would read it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import permutations
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from endturn.calls import listeners as hooks
from endturn.calls.call_scope import Layer, open_call
from endturn.calls.facts import EndpointFacts, RequestFacts, ResponseFacts
from endturn.calls.listeners import RECHECK_S, Listener
from endturn.telemetry import otel_providers
from endturn.telemetry.otel_providers import Options
from endturn.telemetry.recorder import Recorder
from endturn.vocabulary.stop import Stop, StopReason

PROGRAM = """
import logging, sys, time
logging.getLogger("endturn").setLevel(logging.ERROR)
import endturn, httpx
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

class Unread(httpx.Request):
    @property
    def content(self):
        read.append(1)
        return super().content

read = []
body = {"choices": [{"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "Half"}}]}
client = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json=body)))

def ask():
    client.send(Unread("POST", "https://api.openai.com/v1/chat/completions", json={"model": "m", "messages": []}))

endturn.instrument()
ask()
print(len(read), "endturn.instrumentation.exchange" in sys.modules, "pydantic" in sys.modules)
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
time.sleep(0.06)
ask()
print(len(read) > 0, [span.name for span in exporter.get_finished_spans()])
"""


def test_nothing_is_read_until_a_provider_is_set_up_and_then_it_is_recorded() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["0 False False", "True ['chat m']"]


class Clock:
    """A monotonic clock that stands still until it is told to go on."""

    now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(hooks, "time", clock)
    return clock


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The global tracer provider, and how often it was looked for."""
    found: dict[str, Any] = {"provider": None, "looks": 0}
    proxy = otel_providers.CURRENT["tracer"]()

    def tracers() -> Any:
        found["looks"] += 1
        return found["provider"] or proxy

    monkeypatch.setitem(otel_providers.CURRENT, "tracer", tracers)
    return found


@contextmanager
def heard_by(*listeners: Listener) -> Iterator[None]:
    """Have listeners told of calls, within the block."""
    stops = [hooks.subscribe(listener) for listener in listeners]
    try:
        yield
    finally:
        for stop in stops:
            stop()


def test_missing_providers_are_looked_for_now_and_then(clock: Clock, installed: dict[str, Any]) -> None:
    """However many calls nobody records: 2.5 seconds of them, one every 5 ms."""
    with heard_by(Recorder(options=Options(events="spans"))):
        for _ in range(500):
            assert not hooks.listening()
            clock.now_s += 0.005
    assert 40 <= installed["looks"] <= 55


def test_a_provider_is_seen_at_once_by_the_first_call(clock: Clock, installed: dict[str, Any]) -> None:
    with heard_by(Recorder()):
        installed["provider"] = TracerProvider()
        assert hooks.listening()


def test_a_provider_is_seen_50_ms_after_a_call_that_nobody_recorded(clock: Clock, installed: dict[str, Any]) -> None:
    with heard_by(Recorder()):
        assert not hooks.listening()
        installed["provider"] = TracerProvider()
        clock.now_s += 1.1 * RECHECK_S
        assert hooks.listening()


def test_a_listener_that_is_added_is_asked_at_once(clock: Clock, installed: dict[str, Any]) -> None:
    def listen(record: object) -> None:
        """Always wants to be told."""

    with heard_by(Recorder()):
        assert not hooks.listening()
        with heard_by(listen):
            assert hooks.listening()
        assert not hooks.listening()


class LateListener:
    """Has another listener told of calls when it is first asked whether it is enabled, as a late set-up does."""

    def __init__(self, later: Listener) -> None:
        self._later = later

    def __call__(self, record: object) -> None:
        """Nothing comes of a record."""

    def is_enabled(self) -> bool:
        hooks.subscribe(self._later)
        return False


def test_a_listener_that_another_brings_is_asked_at_once(clock: Clock) -> None:
    told: list[object] = []
    with heard_by(LateListener(told.append)):
        hooks.listening()
        assert hooks.listening()
    hooks.subscribe(told.append)()


class NamedListener:
    """Is not enabled, and says so under one of the two names of the method."""

    def __init__(self, name: str) -> None:
        setattr(self, name, lambda: False)

    def __call__(self, record: object) -> None:
        """Nothing comes of a record."""


@pytest.mark.parametrize("name", ["is_enabled", "awake"])
def test_both_names_of_the_predicate_are_called(clock: Clock, name: str) -> None:
    """`awake` is the name of 0.1."""
    with heard_by(NamedListener(name)):
        assert not hooks.listening()


class Sdk:
    """The three providers, and as which signals a call has come out."""

    def __init__(self) -> None:
        self.spans, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.logs = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]  # the SDK's has no annotations
        self.made: dict[str, Any] = {
            "tracer": TracerProvider(shutdown_on_exit=False),
            "meter": MeterProvider([self.reader], shutdown_on_exit=False),
            "logger": LoggerProvider(shutdown_on_exit=False),
        }
        self.made["tracer"].add_span_processor(SimpleSpanProcessor(self.spans))
        self.made["logger"].add_log_record_processor(SimpleLogRecordProcessor(self.logs))

    def signals(self, number: int) -> set[str]:
        """The signals of the call of that number, which is its name too."""
        counted = counted_by_model(self.reader, "gen_ai.client.operation.duration")
        spans = [span.attributes or {} for span in self.spans.get_finished_spans()]
        logs = [log.log_record.attributes or {} for log in self.logs.get_finished_logs()]
        named = {"tracer": spans, "logger": logs}
        model = f"m{number}"
        found = {name for name, known in named.items() if model in [each.get("gen_ai.request.model") for each in known]}
        return found | ({"meter"} if model in counted else set())


def counted_by_model(reader: InMemoryMetricReader, name: str) -> set[Any]:
    """The models of a metric's points."""
    data = reader.get_metrics_data()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
    metrics = [metric for scope in scopes for metric in scope.metrics if metric.name == name]
    return {(point.attributes or {})["gen_ai.request.model"] for metric in metrics for point in metric.data.data_points}


@pytest.mark.parametrize("is_heard", [False, True], ids=["", "another listener"])
@pytest.mark.parametrize("order", [*permutations(("tracer", "meter", "logger"))], ids="-".join)
def test_the_next_call_has_the_signal_of_a_provider_that_is_set_while_calls_are_recorded(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...], is_heard: bool
) -> None:
    """In any order, and no time after the call before: whatever tells of the call tells the recorder to look."""
    sdk, current = Sdk(), dict(otel_providers.CURRENT)
    set_up: dict[str, Any] = {}

    def provider_of(signal: str, proxy: Callable[[], Any]) -> Any:
        return set_up.get(signal) or proxy()

    def ignore(record: object) -> None:
        """Listen to everything, and do nothing."""

    for signal, proxy in current.items():
        monkeypatch.setitem(otel_providers.CURRENT, signal, partial(provider_of, signal, proxy))
    recorder = Recorder()
    listeners: list[Listener] = [recorder, *([ignore] if is_heard else [])]

    def call(number: int) -> None:
        """As the HTTP clients do: nothing of a call is read that nobody records."""
        if hooks.listening():
            made = open_call(Layer.CLIENT, RequestFacts(model=f"m{number}"), EndpointFacts(provider="openai"))
            assert made is not None
            made.end(ResponseFacts(stop=Stop(StopReason.MAX_TOKENS, "length", incomplete=True)))

    with heard_by(*listeners):
        call(0)
        if not is_heard:
            clock.now_s += 1.1 * RECHECK_S
        for number, signal in enumerate(order, 1):
            set_up[signal] = sdk.made[signal]
            call(number)
            assert sdk.signals(number) == set(order[:number])
