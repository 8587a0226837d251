"""The anthropic SDK, observed; its own spans are enriched, never doubled."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, cast

import anthropic
import httpx2
import pydantic
import pytest
from anthropic.types import Message
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from endturn import announce
from endturn.errors import ProviderError
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.records import TurnOutcome
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from tests.telemetry.mocked import Body, Records, Server, aclaude, body, chat, claude, events, settle
from tests.wires.replies import anthropic_stream, chat_body, message, named, said, say, used

ASK: dict[str, Any] = {
    "model": "claude-sonnet-5-5",
    "max_tokens": 17,
    "messages": [{"role": "user", "content": "hi"}],
}
WHOLE = message([say("Hello there.")])
CUT = message([say("Hello the")], "max_tokens")
STREAM = anthropic_stream([said("w0 ", "w1 ", "w2 ")])
CUT_STREAM = anthropic_stream([said("w0 ", "w1 ", "w2 ")], "max_tokens")


class Answer(pydantic.BaseModel):
    value: int


def test_a_call_is_announced_with_what_was_asked_and_what_came(records: Records) -> None:
    """One record holds the request's facts and the response's stop, usage, id and model."""
    result = claude(body(CUT)).messages.create(**ASK)
    assert type(result) is Message
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "max_tokens")
    assert ended.usage is not None
    assert ended.usage.output_tokens == 17
    assert (ended.response_id, ended.response_model) == ("msg_01", "claude-sonnet-5-5")
    started = ended.started
    assert (started.provider, started.model, started.maximum) == ("anthropic", "claude-sonnet-5-5", 17)
    assert (started.server_address, started.server_port) == ("api.anthropic.com", None)


async def test_an_async_call_is_announced(records: Records) -> None:
    """`AsyncAnthropic` is observed as `Anthropic` is."""
    assert type(await aclaude(body(WHOLE)).messages.create(**ASK)) is Message
    assert records.only().stop.reason is StopReason.END_TURN


def test_beta_messages(records: Records) -> None:
    """The beta namespace is the same call."""
    claude(body(WHOLE)).beta.messages.create(**ASK)
    assert records.only().stop.reason is StopReason.END_TURN


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda client: client.messages.count_tokens(model="m", messages=[]), id="count_tokens"),
        pytest.param(lambda client: client.messages.batches.create(requests=[]), id="batches"),
        pytest.param(lambda client: client.models.retrieve("m"), id="models"),
    ],
)
def test_other_calls_pass_through(records: Records, ask: Callable[[Any], object]) -> None:
    """Only messages are observed."""
    ask(claude(body({"input_tokens": 1})))
    assert not records


def test_an_error_answer(records: Records) -> None:
    """What an error says of the stop is recorded; the SDK's exception comes through."""
    error = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens"},
    }
    with pytest.raises(anthropic.BadRequestError):
        claude(body(error, 400)).messages.create(**ASK)
    ended = records.only()
    assert ended.stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED
    assert isinstance(ended.error, ProviderError)


def test_with_raw_response(records: Records) -> None:
    """The raw response of a plain call is recorded whether or not it is parsed."""
    raw = claude(body(CUT)).messages.with_raw_response.create(**ASK)
    assert records.only().stop.reason is StopReason.MAX_TOKENS
    assert raw.parse().stop_reason == "max_tokens"


@pytest.mark.parametrize(
    "read", [pytest.param(lambda raw: raw.parse(), id="parse"), pytest.param(lambda raw: raw.read(), id="read")]
)
def test_with_streaming_response(records: Records, read: Callable[[Any], object]) -> None:
    """A body that the host reads itself is seen as it reads it."""
    with claude(body(CUT)).messages.with_streaming_response.create(**ASK) as raw:
        assert not records.ended
        read(raw)
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_a_stream_read_to_its_end(records: Records) -> None:
    """The SDK's own stream object comes back, every event passes, and its end is one record."""
    stream = claude(events(*STREAM)).messages.create(**ASK, stream=True)
    assert type(stream) is anthropic.Stream
    assert [event.type for event in stream][-1] == "message_stop"
    ended = records.only()
    assert ended.stop.reason is StopReason.END_TURN
    assert ended.first_chunk_s is not None
    assert ended.usage is not None
    assert ended.usage.output_tokens == 17


def test_a_stream_that_is_closed_early(records: Records) -> None:
    """A host that stops reading has cancelled."""
    with claude(events(*STREAM)).messages.create(**ASK, stream=True) as stream:
        next(stream)
    assert records.only().stop.reason is StopReason.CANCELLED


@pytest.mark.parametrize("how", ["closed", "abandoned", "cancelled"])
def test_a_stream_that_is_left_after_its_reason_came(records: Records, how: str) -> None:
    """Hosts stop at `message_delta`, which has the reason: that reason stands, `message_stop` or not."""
    lost = KeyboardInterrupt() if how == "cancelled" else None
    reply = events(*CUT_STREAM[:-1], error=cast(Any, lost)) if lost else events(*CUT_STREAM)
    stream: Any = claude(reply).messages.create(**ASK, stream=True)
    with pytest.raises(KeyboardInterrupt) if lost else nullcontext():
        for event in stream:
            if event.type == "message_delta" and not lost:
                break
    if how == "closed":
        stream.close()
    event = stream = None
    settle()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw, ended.stop.truncated) == (StopReason.MAX_TOKENS, "max_tokens", True)


def test_an_error_after_the_reason_is_a_detail(records: Records) -> None:
    """The answer was cut; what happened to the stream afterwards changes nothing."""
    error = named({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    with pytest.raises(anthropic.APIStatusError):
        list(claude(events(*CUT_STREAM[:-1], error)).messages.create(**ASK, stream=True))
    stop = records.only().stop
    assert (stop.reason, stop.detail) == (StopReason.MAX_TOKENS, "Overloaded")


@pytest.mark.behaviour(3)
def test_a_connection_that_is_lost_after_the_reason(records: Records) -> None:
    """Without `message_stop`, and without a host that had read enough, the stream is cut."""
    list(claude(events(*CUT_STREAM[:-1])).messages.create(**ASK, stream=True))
    with pytest.raises(httpx2.ReadError):
        list(claude(events(*CUT_STREAM[:-1], error=httpx2.ReadError("x"))).messages.create(**ASK, stream=True))
    assert [ended.stop.reason for ended in records.ended] == [StopReason.MISSING, StopReason.MISSING]


def test_a_stream_that_is_cut_without_an_error(records: Records) -> None:
    """The end of the body before `message_stop` is `missing`."""
    list(claude(events(*STREAM[:5])).messages.create(**ASK, stream=True))
    assert records.only().stop.reason is StopReason.MISSING


def test_a_stream_that_loses_its_connection(records: Records) -> None:
    """A transport error within a stream is `missing`, with the exception that the host saw."""
    stream = claude(events(*STREAM[:5], error=httpx2.ReadError("gone"))).messages.create(**ASK, stream=True)
    with pytest.raises(httpx2.ReadError) as raised:
        list(stream)
    ended = records.only()
    assert ended.stop.reason is StopReason.MISSING
    assert ended.error is raised.value


def test_a_stream_whose_provider_sends_an_error(records: Records) -> None:
    """An `error` event is an error, not a truncation."""
    error = named({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    with pytest.raises(anthropic.APIStatusError):
        list(claude(events(*STREAM[:5], error)).messages.create(**ASK, stream=True))
    assert records.only().stop.reason is StopReason.ERROR


@pytest.mark.parametrize("read", [pytest.param(0, id="never read"), pytest.param(2, id="read in part")])
def test_an_abandoned_stream_goes_at_once(records: Records, read: int) -> None:
    """No cycle of ours keeps a dropped stream: its response is freed without the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        stream: Any = claude(events(*STREAM)).messages.create(**ASK, stream=True)
        here = weakref.ref(stream)
        for _ in range(read):
            next(stream)
        del stream
        assert here() is None
        cleanup.run()
    finally:
        gc.enable()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.detail) == (StopReason.CANCELLED, "abandoned")


async def test_an_async_stream(records: Records) -> None:
    """The same object, the same events, one record; cancelled where it is left early."""
    client = aclaude(events(*CUT_STREAM), events(*STREAM))
    stream = await client.messages.create(**ASK, stream=True)
    assert type(stream) is anthropic.AsyncStream
    assert len([event async for event in stream]) == 8
    assert records.only().stop.reason is StopReason.MAX_TOKENS
    async with await client.messages.create(**ASK, stream=True) as left:
        await anext(left)
    assert [ended.stop.reason for ended in records.ended] == [StopReason.MAX_TOKENS, StopReason.CANCELLED]


def test_the_stream_helper(records: Records) -> None:
    """`.stream()` accumulates, and is one record."""
    with claude(events(*CUT_STREAM)).messages.stream(**ASK) as stream:
        assert "".join(stream.text_stream) == "w0 w1 w2 "
        assert stream.get_final_message().stop_reason == "max_tokens"
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_a_raw_stream_whose_provider_sends_an_error(records: Records) -> None:
    """What the provider said is an error, whatever the SDK raises of it."""
    error = named({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    client = claude(*(events(*STREAM[:4], error) for _ in range(2)))
    with pytest.raises(anthropic.APIStatusError):
        list(client.messages.with_raw_response.create(**ASK, stream=True).parse())
    with client.messages.with_streaming_response.create(**ASK, stream=True) as raw:
        list(raw.iter_lines())
    assert [ended.stop.reason for ended in records.ended] == [StopReason.ERROR] * 2
    assert all(isinstance(ended.error, ProviderError) for ended in records.ended)


def test_a_raw_body_that_is_cut(records: Records, caplog: pytest.LogCaptureFixture) -> None:
    """Half a JSON body is `missing`; that it cannot be parsed is no failure of ours."""
    half = b'{"id": "msg_01", "type": "message", "content": [{"type": "text", "text": "Hel'
    client = claude(*(httpx2.Response(200, stream=Body([half])) for _ in range(2)))
    client.messages.with_raw_response.create(**ASK)
    with client.messages.with_streaming_response.create(**ASK) as raw:
        raw.read()
    assert [ended.stop.reason for ended in records.ended] == [StopReason.MISSING] * 2
    assert not caplog.records


async def test_the_async_stream_helper(records: Records) -> None:
    """The same, asynchronously."""
    async with aclaude(events(*STREAM)).messages.stream(**ASK) as stream:
        assert (await stream.get_final_message()).stop_reason == "end_turn"
    assert records.only().stop.reason is StopReason.END_TURN


def test_a_middleware_s_own_calls_are_not_the_call_s_answer(records: Records) -> None:
    """A middleware may ask somebody else on the way: a record of its own; the outer call's answer is the final one."""
    other = chat(body(chat_body({"content": "inner"}, "length")))

    def asks(request: Any, call_next: Any) -> Any:
        other.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        return call_next(request)

    result = claude(body(WHOLE), middleware=[asks]).messages.create(**ASK)
    assert result.stop_reason == "end_turn"
    assert [(ended.started.model, ended.stop.reason) for ended in records.ended] == [
        ("m", StopReason.MAX_TOKENS),
        (ASK["model"], StopReason.END_TURN),
    ]


def test_what_a_middleware_asks_its_own_client_is_another_call(records: Records) -> None:
    """A middleware that has the same client ask again is that client's way of making its call."""
    asked: list[Any] = []

    def asks(request: Any, call_next: Any) -> Any:
        asked.append(request)
        if len(asked) == 1:
            client.messages.create(**{**ASK, "model": "other"})
        return call_next(request)

    client = claude(body(WHOLE), body(WHOLE), middleware=[asks])
    assert client.messages.create(**ASK).stop_reason == "end_turn"
    assert len(asked) == 2
    assert [started.model for started in records.started] == ["other", ASK["model"]]


def test_a_stream_through_a_middleware(records: Records) -> None:
    """A stream that a middleware let through is seen."""
    client = claude(events(*CUT_STREAM), middleware=[lambda request, call_next: call_next(request)])
    assert len(list(client.messages.create(**ASK, stream=True))) == 8
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_a_client_for_vertex(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients for other clouds rewrite the path later than we look, and say who they are."""
    server = Server(body(CUT))
    client = anthropic.AnthropicVertex(
        region="us-east5", project_id="p", access_token="t", http_client=server.http(), max_retries=0
    )
    client.messages.create(**ASK)
    assert ":rawPredict" in str(server.requests[0].url)
    started = records.only().started
    assert (started.provider, started.model) == ("gcp.vertex_ai", "claude-sonnet-5-5")


# --- Its own spans -------------------------------------------------------------------------------------------------


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """Spans of whoever is given `provider_of` them."""
    return InMemorySpanExporter()


def traced(spans: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider


@pytest.fixture
def enriched(spans: InMemorySpanExporter) -> Iterator[Callable[..., anthropic.Anthropic]]:
    """Makes clients that trace themselves into `spans`, where the recorder writes too."""
    provider = traced(spans)
    instrument(tracer_provider=provider)
    try:
        with announce.strict():
            yield lambda *replies, **more: claude(*replies, open_telemetry={"tracer_provider": provider}, **more)
    finally:
        uninstrument()
        provider.shutdown()


def the_span(spans: InMemorySpanExporter) -> ReadableSpan:
    (span,) = spans.get_finished_spans()
    assert span.name == "anthropic.messages.create"
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "com.anthropic.sdk.python"
    return span


def read(stream: Any) -> None:
    for _ in stream:
        pass


def leave(stream: Any) -> None:
    with stream:
        next(stream)


def raw(client: Any, do: Callable[[Any], object], **more: Any) -> None:
    with client.messages.with_streaming_response.create(**ASK, **more) as made:
        do(made)


def helper(client: anthropic.Anthropic) -> None:
    with client.messages.stream(**ASK) as stream:
        stream.get_final_message()


NATIVE: dict[str, tuple[Any, Callable[[anthropic.Anthropic], object], str]] = {
    "whole": (lambda: body(CUT), lambda client: client.messages.create(**ASK), "max_tokens"),
    "raw": (lambda: body(CUT), lambda client: client.messages.with_raw_response.create(**ASK), "max_tokens"),
    "read": (
        lambda: events(*CUT_STREAM),
        lambda client: read(client.messages.create(**ASK, stream=True)),
        "max_tokens",
    ),
    "cut": (lambda: events(*STREAM[:5]), lambda client: read(client.messages.create(**ASK, stream=True)), "missing"),
    "helper": (lambda: events(*STREAM), helper, "end_turn"),
    "raw body": (lambda: body(CUT), lambda client: raw(client, lambda made: made.read()), "max_tokens"),
    "raw stream": (
        lambda: events(*CUT_STREAM),
        lambda client: raw(client, lambda made: read(made.iter_lines()), stream=True),
        "max_tokens",
    ),
    "raw stream, parsed": (
        lambda: events(*CUT_STREAM),
        lambda client: raw(client, lambda made: read(made.parse()), stream=True),
        "max_tokens",
    ),
    "raw stream, cut": (
        lambda: events(*STREAM[:5]),
        lambda client: raw(client, lambda made: read(made.iter_bytes()), stream=True),
        "missing",
    ),
}


@pytest.mark.parametrize(("reply", "ask", "reason"), NATIVE.values(), ids=NATIVE.keys())
def test_its_own_span_is_enriched_in_time(
    spans: InMemorySpanExporter,
    enriched: Callable[..., anthropic.Anthropic],
    reply: Callable[[], httpx2.Response],
    ask: Callable[[anthropic.Anthropic], object],
    reason: str,
) -> None:
    """There is one span, the SDK's, and it says why the model stopped: written before the SDK ends it."""
    ask(enriched(reply()))
    attributes = the_span(spans).attributes
    assert attributes is not None
    assert attributes["endturn.stop.reason"] == reason
    assert attributes["endturn.stop.truncated"] == (reason in ("max_tokens", "missing"))
    assert "endturn.turn.id" in attributes


async def test_its_own_span_of_an_async_raw_stream(
    spans: InMemorySpanExporter, enriched: Callable[..., anthropic.Anthropic]
) -> None:
    """The same, asynchronously; that of a stream which its host leaves ends before that is seen, and stays as it is."""
    provider = traced(spans)
    client = aclaude(events(*CUT_STREAM), events(*STREAM), open_telemetry={"tracer_provider": provider})
    async with client.messages.with_streaming_response.create(**ASK, stream=True) as made:
        async for _ in made.iter_bytes():
            pass
    async with client.messages.with_streaming_response.create(**ASK, stream=True) as made:
        await anext(made.iter_lines())
    told = [(span.attributes or {}).get("endturn.stop.reason") for span in spans.get_finished_spans()]
    assert told == ["max_tokens", None]


def test_its_own_span_of_a_failed_call(spans: InMemorySpanExporter, enriched: Callable[..., Any]) -> None:
    """A failed attempt has a span of ours below it."""
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long"}}
    with pytest.raises(anthropic.BadRequestError):
        enriched(body(error, 400)).messages.create(**ASK)
    ours, theirs = spans.get_finished_spans()
    assert ours.parent is not None
    assert ours.parent == theirs.context
    assert (ours.attributes or {})["endturn.stop.reason"] == "context_window_exceeded"
    assert "endturn.stop.reason" not in (theirs.attributes or {})


def test_without_its_own_span_there_is_ours(spans: InMemorySpanExporter) -> None:
    """A client that does not trace itself gets a chat span."""
    provider = traced(spans)
    instrument(tracer_provider=provider)
    try:
        claude(body(WHOLE), open_telemetry=False).messages.create(**ASK)
    finally:
        uninstrument()
    (span,) = spans.get_finished_spans()
    assert span.name == "chat claude-sonnet-5-5"


async def test_many_at_once_do_not_mix(records: Records) -> None:
    """Concurrent tasks each have their own record."""
    reasons = ["end_turn", "max_tokens", "refusal", "pause_turn"]
    replies = [message([say("x")], reason) for reason in reasons]
    results = await asyncio.gather(*(aclaude(body(reply)).messages.create(**ASK) for reply in replies))
    assert sorted(result.stop_reason or "" for result in results) == sorted(reasons)
    assert sorted(ended.stop.raw or "" for ended in records.ended) == sorted(reasons)
    assert {turn.outcome for turn in records.turns} == {
        TurnOutcome.COMPLETED,
        TurnOutcome.REFUSED,
        TurnOutcome.LEFT_PAUSED,
    }


def test_a_cut_call_in_a_stream(records: Records) -> None:
    """A tool call that was cut off in mid-argument is a truncation."""
    made = anthropic_stream([used("toolu_1", "write", '{"body": "li')], "max_tokens", stop=False)
    list(claude(events(*made)).messages.create(**ASK, stream=True))
    assert records.only().stop.reason is StopReason.MAX_TOKENS
