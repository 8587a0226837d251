"""SDKs that make spans of their own calls: those say why the model stopped, and there is no second one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from mistralai.client import Mistral
from mistralai.extra.observability.telemetry import configure_telemetry
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from endturn import hooks
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.stop import StopReason
from tests.formats.replies import anthropic_stream, message, said, say
from tests.telemetry.mocked import ASK, CUT, CUT_STREAM, Records, aclaude, body, claude, events, settle

CLAUDE: dict[str, Any] = {"model": "claude-sonnet-5-5", "max_tokens": 17, "messages": ASK["messages"]}
CUT_MESSAGE = message([say("Hello the")], "max_tokens")
STREAM = anthropic_stream([said("w0 ", "w1 ", "w2 ")])
CUT_MESSAGES = anthropic_stream([said("w0 ", "w1 ", "w2 ")], "max_tokens")


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """Those of the SDKs, and ours."""
    return InMemorySpanExporter()


@pytest.fixture
def tracers(spans: InMemorySpanExporter) -> Iterator[TracerProvider]:
    """What an SDK writes into, and the recorder."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    instrument(tracer_provider=provider)
    try:
        with hooks.strict():
            yield provider
    finally:
        uninstrument()
        provider.shutdown()


def reasons(spans: InMemorySpanExporter) -> list[Any]:
    return [(span.attributes or {}).get("endturn.stop.reason") for span in spans.get_finished_spans()]


def scope(span: ReadableSpan) -> str:
    assert span.instrumentation_scope is not None
    return span.instrumentation_scope.name


# --- Anthropic's ---------------------------------------------------------------------------------------------------


def test_anthropics_span_is_enriched_in_time(spans: InMemorySpanExporter, tracers: TracerProvider) -> None:
    """There is one span, the SDK's, and it says why the model stopped: written before the SDK ends it."""
    own: Any = {"open_telemetry": {"tracer_provider": tracers}}
    claude(body(CUT_MESSAGE), **own).messages.create(**CLAUDE)
    for stream in (CUT_MESSAGES, STREAM[:5]):
        list(claude(events(*stream), **own).messages.create(**CLAUDE, stream=True))
    made = spans.get_finished_spans()
    assert {(span.name, scope(span)) for span in made} == {("anthropic.messages.create", "com.anthropic.sdk.python")}
    assert reasons(spans) == ["max_tokens", "max_tokens", "missing"]


async def test_anthropics_span_of_an_async_stream(spans: InMemorySpanExporter, tracers: TracerProvider) -> None:
    """The same, asynchronously; that of a stream which its host leaves ends before that is seen, and stays as it is."""
    client = aclaude(events(*CUT_MESSAGES), events(*STREAM), open_telemetry={"tracer_provider": tracers})
    async with client.messages.with_streaming_response.create(**CLAUDE, stream=True) as made:
        assert [piece async for piece in made.iter_bytes()]
    async with client.messages.with_streaming_response.create(**CLAUDE, stream=True) as made:
        await anext(made.iter_lines())
    assert reasons(spans) == ["max_tokens", None]


async def test_a_raw_response_with_a_span_of_its_sdk_is_dropped(records: Records) -> None:
    """anthropic ends its span in a destructor: what is announced waits for a better place."""
    made = {"open_telemetry": {"tracer_provider": TracerProvider()}}
    whole: Any = claude(body(CUT_MESSAGE), **made).messages.with_streaming_response.create(**CLAUDE).__enter__()
    awhole: Any = (
        await aclaude(body(CUT_MESSAGE), **made).messages.with_streaming_response.create(**CLAUDE).__aenter__()
    )
    del whole, awhole
    settle()
    assert [(ended.stop.reason, ended.stop.detail) for ended in records.ended] == [
        (StopReason.CANCELLED, "abandoned")
    ] * 2


# --- Mistral's -----------------------------------------------------------------------------------------------------


def mistral(*replies: httpx2.Response) -> Mistral:
    answers = iter(replies)
    http = httpx2.Client(transport=httpx2.MockTransport(lambda request: next(answers)))
    return Mistral(api_key="none", client=http)


def test_mistrals_span_is_enriched(spans: InMemorySpanExporter, tracers: TracerProvider) -> None:
    """Where the SDK traces its calls itself."""
    asking = mistral(body(CUT), events(*CUT_STREAM), events(*CUT_STREAM))
    configure_telemetry(asking, provider=tracers, redaction=False)
    asked: Any = {"model": "mistral-large", "messages": ASK["messages"]}
    asking.chat.complete(**asked)
    assert list(asking.chat.stream(**asked))
    with asking.chat.stream(**asked) as stream:
        next(stream)
    assert reasons(spans) == ["max_tokens", "max_tokens", None]  # it ends its span before it closes the response
    assert {scope(span) for span in spans.get_finished_spans()} == {"mistralai_sdk_tracer"}
