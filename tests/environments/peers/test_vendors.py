"""Beside vendors whose tracer provider does more than the SDK's, and beside those that keep one to themselves."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import langfuse
import pytest
from langfuse.openai import openai as wrapped
from openinference.instrumentation import TraceConfig
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from endturn.testing.scripted import ScriptedProvider, say
from tests.environments.peers.scene import ASK, Scene, scene
from tests.support.serving import ReceivedRequest, serving

AGENT = Path(__file__).with_name("vendors_agent.py")
REASON = "endturn.stop.reason"


def agent(*arguments: str, by: tuple[str, ...] = ()) -> str:
    """What the agent prints."""
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_METRICS_EXPORTER": "none"}
    environment |= {"OTEL_LOGS_EXPORTER": "none", "OTEL_TRACES_EXPORTER": "none"}
    command = [sys.executable, *by, str(AGENT), *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@contextmanager
def receiving() -> Iterator[tuple[str, list[bytes]]]:
    """An OTLP endpoint, and what is posted to it."""
    posted: list[bytes] = []

    def keep(asked: ReceivedRequest) -> tuple[int, bytes, str]:
        packed = asked.headers.get("Content-Encoding") == "gzip"
        posted.append(gzip.decompress(asked.body) if packed else asked.body)
        return 200, b"", "application/x-protobuf"

    with serving(keep) as url:
        yield url, posted


RUN = ("-c", "from endturn.cli._main import main; main()", "run", "--", sys.executable)


@pytest.mark.parametrize("first", ["vendor", "endturn", "endturn run", "nobody"])
@pytest.mark.parametrize("vendor", ["phoenix", "arize"])
def test_a_vendors_spans_arrive(vendor: str, first: str) -> None:
    """Phoenix's and Arize's `add_span_processor` removes their exporter: it stays, and its span says the reason."""
    with ScriptedProvider([say("Hello")]).serve() as url, receiving() as (sink, posted):
        run = first == "endturn run"
        agent(vendor, "nobody" if run else first, url, sink, by=RUN if run else ())
        arrived = ExportTraceServiceRequest.FromString(b"".join(posted))  # several, end to end, are one
    spans = [span for each in arrived.resource_spans for scope in each.scope_spans for span in scope.spans]
    assert [span.name for span in spans] == ["ChatCompletion"]
    told = {each.key: each.value.string_value for each in spans[0].attributes}
    assert told.get(REASON) == (None if first == "nobody" else "end_turn")


@pytest.mark.parametrize("vendor", ["phoenix", "arize"])
def test_a_vendor_that_lets_go_of_its_processors_is_looked_at_again(vendor: str) -> None:
    """The host replaces the exporter, as the vendor documents: Arize's provider drops every processor, ours too."""
    with ScriptedProvider([say("Hello")] * 2).serve() as url, receiving() as (sink, _):
        assert json.loads(agent(vendor, "replaced", url, sink)) == ["end_turn"]


# --- Providers that a vendor keeps to itself --------------------------------------------------------------------------


class Isolated:
    """A tracer provider of a vendor's."""

    def __init__(self) -> None:
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.exporter = InMemorySpanExporter()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))

    def finished(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())


@pytest.fixture
def vendor() -> Iterator[Isolated]:
    """OpenInference, which is told to record no text, on a provider of its own."""
    made = Isolated()
    instrumentor = OpenAIInstrumentor()
    hidden = TraceConfig(hide_inputs=True, hide_outputs=True)
    instrumentor.instrument(tracer_provider=made.tracers, config=hidden, skip_dep_check=True)
    yield made
    instrumentor.uninstrument()


def langfuse_client(tracers: Any, meters: Any) -> Any:
    """Langfuse, on these providers."""
    client = langfuse.Langfuse(public_key="pk", secret_key="sk", base_url="http://127.0.0.1:9", tracer_provider=tracers)
    return client.shutdown


def nobody(tracers: Any, meters: Any) -> Any:
    """Nobody else is on the host's provider."""
    return lambda: None


def keys(spans: list[ReadableSpan]) -> list[set[str]]:
    return [set(span.attributes or ()) for span in spans]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_span_of_an_isolated_provider_gets_nothing(
    vendor: Isolated, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is as without endturn, and has none of the text; the host's trace has a span of the call."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")

    def ask(on: Scene) -> None:
        with on.tracers.get_tracer("host").start_as_current_span("request"):
            answer = on.openai().chat.completions.create(**ASK, stream=streamed)
            if streamed:
                list(answer)

    with ScriptedProvider([say("Hello")]).serve() as url:
        ask(Scene(TracerProvider(shutdown_on_exit=False), url))
    alone = vendor.finished()
    vendor.exporter.clear()
    with scene(say("Hello"), emit=nobody, observed=True) as on:
        on.ask(ask)
        assert keys(vendor.finished()) == keys(alone)
        ours, request = sorted(on.finished(), key=lambda span: span.name)
        assert (ours.name, (ours.attributes or {})[REASON]) == ("chat gpt-5", "end_turn")
        assert ours.parent is not None
        assert request.context is not None
        assert ours.parent.span_id == request.context.span_id
        assert "gen_ai.input.messages" in (ours.attributes or {})
        assert on.counted() == {"end_turn": 1}
        assert on.counted("gen_ai.client.operation.duration")


def test_langfuse_on_a_provider_of_its_own() -> None:
    """Its generations get nothing; one span of the call goes to the host's provider."""
    theirs = Isolated()
    langfuse_client(theirs.tracers, None)
    with scene(say("Hello"), emit=nobody, observed=True) as on:
        on.ask(lambda on: on.openai(wrapped.OpenAI).chat.completions.create(**ASK))
        assert not [key for each in keys(theirs.finished()) for key in each if key.startswith("endturn.")]
        assert [span.name for span in on.finished()] == ["chat gpt-5"]
        assert on.counted() == {"end_turn": 1}


@contextmanager
def slow(model: str) -> Iterator[str]:
    """A server that streams one chunk after the other, and says that this model answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            piece = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
            with suppress(OSError):
                for _ in range(50):
                    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": None}
                    self.wfile.write(b"data: %s\n\n" % json.dumps({**piece, "choices": [choice]}).encode())
                    time.sleep(0.01)

        def log_message(self, format: str, *args: object) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-2026-08-07"])
def test_a_stream_that_is_left_early_beside_langfuse_counts_once(model: str) -> None:
    """Its span, which is never current and ends first, names the model of the response, perhaps by its date."""

    def ask(on: Scene) -> None:
        client = wrapped.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        with client.chat.completions.create(**ASK, stream=True) as chunks:
            next(iter(chunks))

    with slow(model) as url, scene(emit=langfuse_client, observed=True) as on:
        on.ask(ask)
        assert on.counted() == {"cancelled": 1}
        assert sum(on.counted("gen_ai.client.operation.duration").values()) == 1
        assert on.events().count("endturn.stop_reason_observed") == 1
