"""Every client of the anthropic SDK, and what it builds on messages: one record of each call."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import AnthropicBedrock, AnthropicFoundry, AnthropicVertex, AsyncAnthropicBedrock
from anthropic.lib.bedrock import AnthropicBedrockMantle

from endturn.chat import Json
from endturn.records import TurnOutcome
from endturn.stop import StopReason
from endturn.wires import Event, Framing
from endturn.wires.framing import frame
from tests.telemetry.mocked import Answer, Body, Records, Server, aclaude, body, claude, events, settle
from tests.wires import replies_completions as texts
from tests.wires.replies import anthropic_stream, message, named, said, say, use, used

ASK: Json = {"model": "claude-sonnet-5-5", "max_tokens": 17, "messages": [{"role": "user", "content": "hi"}]}
WHOLE = message([say("Hello there.")])
CUT = message([say("Hello the")], "max_tokens")
STREAM = anthropic_stream([said("w0 ", "w1 ", "w2 ")])
CUT_STREAM = anthropic_stream([said("w0 ", "w1 ", "w2 ")], "max_tokens")


# --- Other clouds --------------------------------------------------------------------------------------------------


def bedrock(*replies: httpx2.Response, **options: Any) -> AnthropicBedrock:
    """A client for Bedrock that gets these replies."""
    keys: Json = {"aws_access_key": "a", "aws_secret_key": "s", "aws_region": "us-east-1"}
    return AnthropicBedrock(**{**keys, "http_client": Server(*replies).http(), "max_retries": 0, **options})


def abedrock(*replies: httpx2.Response) -> AsyncAnthropicBedrock:
    """The same, asynchronous."""
    keys: Json = {"aws_access_key": "a", "aws_secret_key": "s", "aws_region": "us-east-1"}
    return AsyncAnthropicBedrock(**keys, http_client=Server(*replies).ahttp(), max_retries=0)


def messages(*made: Event) -> httpx2.Response:
    """A stream as Bedrock sends it: each event in the bytes of a chunk, each chunk in a message of AWS's."""
    metrics = {"inputTokenCount": 31, "outputTokenCount": 17, "invocationLatency": 1, "firstByteLatency": 1}
    pieces = []
    for event in made:
        data = event.data
        if data.get("type") == "message_stop":
            data = {**data, "amazon-bedrock-invocationMetrics": metrics}
        if data.get("type", "").endswith("Exception"):
            envelope = {data["type"]: {"message": data["message"]}}
        else:
            envelope = {"chunk": {"bytes": json.dumps(data).encode()}}
        pieces.append(frame(Event(None, envelope), Framing.EVENTSTREAM))
    return httpx2.Response(200, headers={"content-type": "application/vnd.amazon.eventstream"}, stream=Body(pieces))


def test_bedrock(records: Records) -> None:
    """The model goes into the path later than we look; the answer is a message."""
    server = Server(body(CUT))
    bedrock(http_client=server.http()).messages.create(**ASK)
    assert server.requests[0].url.path.endswith("/model/claude-sonnet-5-5/invoke")
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "max_tokens")
    started = ended.started
    assert (started.provider, started.model, started.maximum) == ("aws.bedrock", "claude-sonnet-5-5", 17)
    assert started.server_address == "bedrock-runtime.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        pytest.param(STREAM, StopReason.END_TURN, id="whole"),
        pytest.param(CUT_STREAM, StopReason.MAX_TOKENS, id="cut by its limit"),
        pytest.param(CUT_STREAM[:-2], StopReason.MISSING, id="ended without a word"),
    ],
)
@pytest.mark.parametrize("raw", [False, True])
async def test_bedrock_streams(records: Records, made: list[Event], reason: StopReason, raw: bool) -> None:
    """AWS's frames, opened by the SDK or read as they are, sync and async."""
    if raw:
        with bedrock(messages(*made)).messages.with_streaming_response.create(**ASK, stream=True) as answer:
            for _ in answer.iter_bytes():
                pass
        async with abedrock(messages(*made)).messages.with_streaming_response.create(**ASK, stream=True) as aanswer:
            async for _ in aanswer.iter_bytes():
                pass
    else:
        found = list(bedrock(messages(*made)).messages.create(**ASK, stream=True))
        assert found[0].type == "message_start"
        stream = await abedrock(messages(*made)).messages.create(**ASK, stream=True)
        assert [event.type async for event in stream] == [event.type for event in found]
    assert [ended.stop.reason for ended in records.ended] == [reason] * 2
    if reason is not StopReason.MISSING:
        assert [ended.usage and ended.usage.output_tokens for ended in records.ended] == [17, 17]


@pytest.mark.parametrize("raw", [False, True])
def test_bedrock_breaks_off(records: Records, raw: bool) -> None:
    """An exception within AWS's frames is an error."""
    broken = Event(None, {"type": "modelStreamErrorException", "message": "The model is gone."})
    reply = messages(*STREAM[:4], broken)
    if raw:
        with bedrock(reply).messages.with_streaming_response.create(**ASK, stream=True) as answer:
            list(answer.iter_bytes())
    else:
        with pytest.raises(anthropic.APIError):
            list(bedrock(reply).messages.create(**ASK, stream=True))
    ended = records.only()
    assert ended.stop.reason is StopReason.ERROR
    assert ended.error is not None


def test_bedrock_s_stream_that_is_left(records: Records) -> None:
    """Left early it is `cancelled`, raw or not."""
    client = bedrock(messages(*STREAM), messages(*STREAM))
    with client.messages.create(**ASK, stream=True) as stream:
        next(stream)
    with client.messages.with_streaming_response.create(**ASK, stream=True) as raw:
        next(raw.iter_bytes())
    settle()
    assert [ended.stop.reason for ended in records.ended] == [StopReason.CANCELLED] * 2


CLIENTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "vertex": (
        lambda http: AnthropicVertex(region="global", project_id="p", access_token="t", http_client=http),
        "gcp.vertex_ai",
    ),
    "vertex behind a gateway": (
        lambda http: AnthropicVertex(
            region="global", project_id="p", access_token="t", http_client=http, base_url="http://gateway.local"
        ),
        "gcp.vertex_ai",
    ),
    "foundry": (lambda http: AnthropicFoundry(api_key="k", resource="me", http_client=http), "azure.ai.inference"),
    "foundry behind a gateway": (
        lambda http: AnthropicFoundry(api_key="k", base_url="http://gateway.local", http_client=http),
        "anthropic",
    ),
    "mantle": (
        lambda http: AnthropicBedrockMantle(api_key="k", aws_region="us-east-1", http_client=http),
        "aws.bedrock",
    ),
    "within AWS": (
        lambda http: anthropic.AnthropicAWS(api_key="k", aws_region="us-east-1", workspace_id="w", http_client=http),
        "anthropic",
    ),
    "a server of one's own": (
        lambda http: anthropic.Anthropic(api_key="k", base_url="http://localhost:8000", http_client=http),
        "anthropic",
    ),
}


@pytest.mark.parametrize(("make", "provider"), CLIENTS.values(), ids=CLIENTS.keys())
def test_each_client(records: Records, make: Callable[[Any], Any], provider: str) -> None:
    """Whole and streamed; the client, or where it is pointed, says who answers."""
    client = make(Server(body(CUT), events(*CUT_STREAM)).http())
    client.messages.create(**ASK)
    assert [event.type for event in client.messages.create(**ASK, stream=True)][-1] == "message_stop"
    assert [ended.stop.raw for ended in records.ended] == ["max_tokens"] * 2
    assert {started.provider for started in records.started} == {provider}
    assert {started.model for started in records.started} == {"claude-sonnet-5-5"}


# --- What builds on messages ---------------------------------------------------------------------------------------


@anthropic.beta_tool
def clock(zone: str) -> str:
    """What time it is.

    Args:
        zone: where.
    """
    return f"noon in {zone}"


@pytest.mark.parametrize("stream", [False, True])
def test_the_tool_runner(records: Records, stream: bool) -> None:
    """Each of its requests is a call; the last says how the run ended."""
    asks = [use("toolu_1", "clock", {"zone": "Europe"})]
    if stream:
        asked = used("toolu_1", "clock", '{"zone": ', '"Europe"}')
        client = claude(events(*anthropic_stream([asked], "tool_use")), events(*CUT_STREAM))
        for answer in client.beta.messages.tool_runner(**ASK, tools=[clock], stream=True):
            for _ in answer:
                pass
    else:
        client = claude(body(message(asks, "tool_use")), body(CUT))
        final = client.beta.messages.tool_runner(**ASK, tools=[clock]).until_done()
        assert final.stop_reason == "max_tokens"
    assert [ended.stop.reason for ended in records.ended] == [StopReason.TOOL_CALL, StopReason.MAX_TOKENS]


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_beta_stream_helper(records: Records, asynchronous: bool) -> None:
    """The helper of the beta is one record, read to its end or left."""
    if asynchronous:
        client = aclaude(events(*CUT_STREAM), events(*STREAM))
        async with client.beta.messages.stream(**ASK) as opened:
            assert (await opened.get_final_message()).stop_reason == "max_tokens"
        async with client.beta.messages.stream(**ASK) as opened:
            await anext(opened)
    else:
        other = claude(events(*CUT_STREAM), events(*STREAM))
        with other.beta.messages.stream(**ASK) as stream:
            assert stream.get_final_message().stop_reason == "max_tokens"
        with other.beta.messages.stream(**ASK) as stream:
            next(stream)
    assert [ended.stop.reason for ended in records.ended] == [StopReason.MAX_TOKENS, StopReason.CANCELLED]


def test_parse_of_a_whole_answer(records: Records) -> None:
    """`parse()` returns its parsed message, and is one record, in the beta too."""
    reply = message([say('{"value": 7}')])
    client = claude(body(reply), body(reply))
    assert client.messages.parse(**ASK, output_format=Answer).parsed_output == Answer(value=7)
    assert client.beta.messages.parse(**ASK, output_format=Answer).parsed_output == Answer(value=7)
    assert [ended.stop.reason for ended in records.ended] == [StopReason.END_TURN] * 2


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_stream_helper_that_chokes_on_a_cut_answer(records: Records, asynchronous: bool) -> None:
    """It parses at a block's end, before any reason has come: a text that ends in its midst is a truncation."""
    made = anthropic_stream([said('{"val')], "max_tokens")
    ask = {**ASK, "output_format": Answer}

    async def read() -> None:
        if asynchronous:
            async with aclaude(events(*made)).messages.stream(**ask) as opened:
                await opened.until_done()
        else:
            with claude(events(*made)).messages.stream(**ask) as stream:
                stream.until_done()

    with pytest.raises(ValueError, match="EOF while parsing"):
        await read()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.truncated) == (StopReason.CANCELLED, False)


async def test_a_cancelled_call(records: Records) -> None:
    """A task that is cancelled while it waits for the answer, or reads it, is `cancelled`."""
    asked, reading = asyncio.Event(), asyncio.Event()

    async def never(request: httpx2.Request) -> httpx2.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    class Slow(Body):
        async def __aiter__(self) -> Any:
            async for piece in super().__aiter__():
                yield piece
            reading.set()
            await asyncio.Event().wait()

    slow = httpx2.Response(
        200, headers={"content-type": "text/event-stream"}, stream=Slow([frame(event) for event in STREAM[:4]])
    )

    async def read() -> None:
        async for _ in await aclaude(slow).messages.create(**ASK, stream=True):
            pass

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(never))
    client = anthropic.AsyncAnthropic(api_key="n", http_client=http)
    for made, seen in ((client.messages.create(**ASK), asked), (read(), reading)):
        task = asyncio.ensure_future(made)
        await seen.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [ended.stop.reason for ended in records.ended] == [StopReason.CANCELLED] * 2
    assert {turn.outcome for turn in records.turns} == {TurnOutcome.CANCELLED}


def test_an_exception_of_the_host_within_a_stream(records: Records) -> None:
    """The host stopped reading, for a reason of its own."""
    with pytest.raises(KeyError), claude(events(*STREAM)).messages.create(**ASK, stream=True) as stream:
        raise KeyError(next(stream))
    assert records.only().stop.reason is StopReason.CANCELLED


async def test_an_abandoned_async_stream(records: Records) -> None:
    """Dropped unread, and in part: one record each, and the event loop has nothing to complain about."""
    client = aclaude(events(*STREAM), events(*STREAM))
    stream: Any = await client.messages.create(**ASK, stream=True)
    stream = await client.messages.create(**ASK, stream=True)
    await anext(stream)
    del stream
    settle()
    await asyncio.sleep(0.01)
    settle()
    assert [ended.stop.reason for ended in records.ended] == [StopReason.CANCELLED] * 2


def test_the_old_text_format(records: Records) -> None:
    """Older clients have a method for it, every client can be asked to post it."""
    asked = {"model": "claude-2.1", "prompt": "\n\nHuman: hi\n\nAssistant:", "max_tokens_to_sample": 17}
    client = claude(body(texts.claude(" Hello the", "max_tokens", None)))
    client.post("/v1/complete", body=asked, cast_to=object)
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "max_tokens")
    assert (ended.started.operation, ended.started.maximum) == ("text_completion", 17)


def test_what_was_read_can_be_copied_and_pickled(records: Records) -> None:
    """Nothing of ours stays on a response that has been read, nor on its message."""
    with claude(body(CUT)).messages.with_streaming_response.create(**ASK) as raw:
        raw.read()
        assert raw.request_id is None
    assert pickle.loads(pickle.dumps(raw.http_response)).json() == CUT
    reply = body(WHOLE)
    reply.headers["request-id"] = "req_1"
    result = claude(reply).messages.create(**ASK)
    assert pickle.loads(pickle.dumps(result)) == copy.deepcopy(result) == result
    assert result._request_id == "req_1"


def test_a_cut_tool_payload_in_a_stream_helper(records: Records) -> None:
    """A tool's argument that was cut off is a truncation, which the helper's snapshot does not show."""
    begun = used("toolu_1", "write", '{"body": "li')
    with claude(events(*anthropic_stream([begun], "max_tokens"))).messages.stream(**ASK) as stream:
        stream.until_done()
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_an_overloaded_stream_helper(records: Records) -> None:
    """An `error` event within the helper is an error, not a truncation."""
    error = named({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    with (
        pytest.raises(anthropic.APIStatusError),
        claude(events(*STREAM[:5], error)).messages.stream(**ASK) as stream,
    ):
        stream.until_done()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.ERROR, "overloaded_error")
