"""The mistralai SDK, observed: chat, fill-in-the-middle and agents, streamed and not, one record of every call."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from mistralai.client import Mistral
from mistralai.client.errors import NoResponseError, SDKError
from mistralai.client.models import ChatCompletionResponse
from mistralai.client.utils import BackoffStrategy, RetryConfig
from mistralai.client.utils.eventstreaming import EventStream
from mistralai.extra.observability.telemetry import configure_telemetry
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.scripted import Reply, ScriptedProvider, cut, fail, hang_up, say, truncate
from endturn.stop import StopReason
from endturn.wires.framing import frame
from tests.telemetry.mocked import Records, settle
from tests.wires.replies import DONE_EVENT, chat_body, chunk

ASK: dict[str, Any] = {"model": "mistral-large", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 99}
AT_ONCE = RetryConfig("backoff", BackoffStrategy(1, 2, 1.1, 1000), True)


def client(*replies: Reply, **options: Any) -> Mistral:
    """A client at a host that is nobody's, which gets these replies."""
    transport = ScriptedProvider(list(replies), dialect="mistral").transport()
    http, ahttp = httpx2.Client(transport=transport), httpx2.AsyncClient(transport=transport)
    return Mistral(api_key="none", server_url="http://proxy.internal:8080", client=http, async_client=ahttp, **options)


def test_a_call(records: Records) -> None:
    """Behind a proxy it is a server that is compatible with OpenAI's; the SDK's own object comes back."""
    answer = client(truncate("One two three", after=2)).chat.complete(**ASK)
    assert type(answer) is ChatCompletionResponse
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "length")
    assert (ended.started.provider, ended.started.model, ended.started.maximum) == ("openai", "mistral-large", 99)
    assert (ended.started.server_address, ended.started.server_port) == ("proxy.internal", 8080)
    assert (ended.response_id, ended.output_chars) == (answer.id, 7)


async def test_async_calls_and_streams(records: Records) -> None:
    """The same, async."""
    asking = client(truncate("One two three", after=2), say("Hello"))
    await asking.chat.complete_async(**ASK)
    assert [event async for event in await asking.chat.stream_async(**ASK)]
    whole, streamed = records.ended
    assert (whole.stop.reason, streamed.stop.reason) == (StopReason.MAX_TOKENS, StopReason.END_TURN)
    assert len(records.started) == 2


def test_a_stream(records: Records) -> None:
    """The SDK's own stream comes back, and every event passes."""
    stream = client(truncate("One two three", after=2)).chat.stream(**ASK)
    assert type(stream) is EventStream
    assert not records.ended
    assert list(stream)[-1].data.choices[0].finish_reason == "length"
    ended = records.only()
    assert (ended.stop.reason, ended.started.stream, ended.output_chars) == (StopReason.MAX_TOKENS, True, 7)


@pytest.mark.parametrize("how", ["in a block", "dropped", "never read"])
def test_a_stream_that_is_left(records: Records, how: str) -> None:
    """Its host has cancelled."""
    stream: Any = client(say("One two three four")).chat.stream(**ASK)
    if how == "in a block":
        with stream:
            next(stream)
    elif how == "dropped":
        next(stream)
    del stream
    settle()
    assert records.only().stop.reason is StopReason.CANCELLED


def test_a_stream_that_is_cut(records: Records) -> None:
    """Without its end it is `missing`; broken, with the error that the SDK lets through."""
    list(client(cut("One two three", after=2, tidy=True)).chat.stream(**ASK))
    with pytest.raises(httpx2.RemoteProtocolError) as raised:
        list(client(cut("One two three", after=2)).chat.stream(**ASK))
    tidy, broken = records.ended
    assert (tidy.stop.reason, tidy.error) == (StopReason.MISSING, None)
    assert (broken.stop.reason, broken.error) == (StopReason.MISSING, raised.value)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_error_answer(records: Records, streamed: bool) -> None:
    """The SDK's own exception comes through with its body; the record says what the answer says."""
    asking = client(fail(400, "context_length_exceeded"))
    with pytest.raises(SDKError) as raised:
        (asking.chat.stream if streamed else asking.chat.complete)(**ASK)
    assert "context" in raised.value.body
    assert records.only().stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED


def test_no_answer(records: Records) -> None:
    """The exception that the SDK lets through is the record's."""
    with pytest.raises((httpx2.RemoteProtocolError, NoResponseError)) as raised:
        client(hang_up()).chat.complete(**ASK)
    ended = records.only()
    assert (ended.stop.reason, ended.error) == (StopReason.ERROR, raised.value)


def answering(way: str) -> Any:
    """A client that is answered in the chat format where it asks in this way."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.url.path == f"/v1/{way}/completions"
        if not json.loads(request.content).get("stream"):
            return httpx2.Response(200, json=chat_body({"content": "One"}, "length"))
        events = (chunk({"role": "assistant", "content": "One"}), chunk({}, "length"), DONE_EVENT)
        content = b"".join(frame(event) for event in events)
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=content)

    return Mistral(api_key="none", client=httpx2.Client(transport=httpx2.MockTransport(answer)))


@pytest.mark.parametrize("way", ["fim", "agents"])
def test_other_ways_that_answer_in_the_chat_format(records: Records, way: str) -> None:
    """`fim` and `agents`, whole and streamed."""
    asking = answering(way)
    asked = {"model": "codestral", "prompt": "def"} if way == "fim" else {"agent_id": "a", "messages": ASK["messages"]}
    getattr(asking, way).complete(**asked)
    assert list(getattr(asking, way).stream(**asked))
    assert [ended.stop.reason for ended in records.ended] == [StopReason.MAX_TOKENS] * 2
    assert [ended.output_chars for ended in records.ended] == [3, 3]
    assert {started.provider for started in records.started} == {"mistral_ai"}
    assert {started.model for started in records.started} == {"codestral" if way == "fim" else ""}


def test_an_agents_span_names_no_model() -> None:
    """The agent has the model: the span is named for what it does, and only the answer says who wrote it."""
    spans = InMemorySpanExporter()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    instrument(tracer_provider=tracers)
    try:
        asking = answering("agents")
        asking.agents.complete(agent_id="a", messages=ASK["messages"])
        assert list(asking.agents.stream(agent_id="a", messages=ASK["messages"]))
    finally:
        uninstrument()
    found = spans.get_finished_spans()
    assert [span.name for span in found] == ["chat", "chat"]
    assert not any("gen_ai.request.model" in (span.attributes or {}) for span in found)


def test_what_is_no_chat(records: Records) -> None:
    """Embeddings and the rest pass."""
    body = {"id": "e", "object": "list", "model": "m", "data": [], "usage": {}}
    http = httpx2.Client(transport=httpx2.MockTransport(lambda request: httpx2.Response(200, json=body)))
    Mistral(api_key="none", client=http).embeddings.create(model="m", inputs=["hi"])
    assert not records


def test_the_sdks_own_span_is_enriched() -> None:
    """Where the SDK traces its calls itself, its span gets our attributes, and there is no second one."""
    spans = InMemorySpanExporter()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    instrument(tracer_provider=tracers)
    try:
        asking = client(truncate("One two three", after=2), truncate("One two three", after=2), say("One two"))
        configure_telemetry(asking, provider=tracers, redaction=False)
        asking.chat.complete(**ASK)
        assert list(asking.chat.stream(**ASK))
        with asking.chat.stream(**ASK) as stream:
            next(stream)
    finally:
        uninstrument()
    found = spans.get_finished_spans()
    assert [span.attributes and span.attributes.get("endturn.stop.reason") for span in found] == [
        "max_tokens",
        "max_tokens",
        None,  # it ends its span before it closes the response
    ]
    assert {span.instrumentation_scope and span.instrumentation_scope.name for span in found} == {
        "mistralai_sdk_tracer"
    }
