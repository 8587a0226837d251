"""The real Cohere SDK, asking a scripted provider over a socket; and v1's own objects, from its own HTTP framing."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import cohere as sdk
import httpx
import pytest
from cohere.core.api_error import ApiError
from cohere.errors import BadRequestError, InternalServerError, TooManyRequestsError
from cohere.types import ChatFinishReason, FinishReason
from cohere.v2.types import V2ChatResponse

from endturn.formats import Context, ResponseSummary, summarize
from endturn.formats.cohere import FORMAT as cohere
from endturn.formats.errors import error_of
from endturn.scripted import (
    ScriptedProvider,
    call,
    cut,
    empty,
    fail,
    partial_call,
    reason,
    say,
    think,
    truncate,
)
from endturn.sdk_objects import dumped
from endturn.stop import Stop, StopReason
from tests.formats.replies_cohere import BODIES, STREAMS

ASKED: Any = {"model": "command-a", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 99}
CTX = Context()
V1 = Context("v1")


@contextmanager
def client(provider: ScriptedProvider, kind: str = "v2") -> Iterator[Any]:
    """What has the SDK's `chat` and `chat_stream` of v2: the client of v2, or the part of v1's client."""
    with provider.serve() as url, httpx.Client() as http:
        if kind == "v2":
            yield sdk.ClientV2(api_key="none", base_url=url, max_retries=0, httpx_client=http)
        else:
            yield sdk.Client(api_key="none", base_url=url, max_retries=0, httpx_client=http).v2


def seen(things: Any, ctx: Context = CTX) -> ResponseSummary:
    """What a summarizer makes of the SDK's objects."""
    summarizer = cohere.summarizer(ctx)
    for thing in things:
        summarizer.feed(dumped(thing))
    return summarizer.close()


def stop(things: Any) -> Stop:
    """The stop of the SDK's objects."""
    return seen(things).stop


def streamed_text(events: list[Any]) -> str:
    """The visible text of the SDK's events."""
    return "".join(event.delta.message.content.text or "" for event in events if event.type == "content-delta")


CASES = {
    "say": (say("Grüezi 👋🏽."), "Grüezi 👋🏽.", "COMPLETE", "end_turn"),
    "truncate": (truncate("One two three", after=2), "One two", "MAX_TOKENS", "max_tokens"),
    "empty": (empty(), "", "COMPLETE", "end_turn"),
    "unknown": (reason("TIRED", "Hm"), "Hm", "TIRED", "unknown"),
    "null": (reason(None, "Hm"), "Hm", None, "missing"),
    "timeout": (reason("TIMEOUT", "Hm"), "Hm", "TIMEOUT", "error"),
    "thinking alone": (think("Let me see"), "", "MAX_TOKENS", "max_tokens"),
    "thinking, then text": (think("Let me see", text="Yes"), "Yes", "COMPLETE", "end_turn"),
}


@pytest.mark.parametrize("kind", ["v2", "v1"])
@pytest.mark.parametrize("name", CASES)
def test_replies_reach_the_sdk(name: str, kind: str) -> None:
    """Each kind of reply arrives in the SDK's own types, streamed and not; a summarizer reads the same from both."""
    reply, said, raw, meaning = CASES[name]
    with client(ScriptedProvider([reply, reply]), kind) as asking:
        answer = asking.chat(**ASKED)
        events = list(asking.chat_stream(**ASKED))
    assert type(answer) is V2ChatResponse
    assert answer.finish_reason == raw
    assert "".join(part.text for part in answer.message.content or () if part.type == "text") == said
    assert streamed_text(events) == said
    assert (events[-1].type, events[-1].delta.finish_reason) == ("message-end", raw)
    for things in ([answer], events):
        read = seen(things)
        assert (read.stop.reason, read.stop.raw, read.tail) == (meaning, raw, said)
        assert read.usage is not None
    assert cohere.decode(dumped(answer), ctx=CTX).text == said


async def test_the_async_sdk() -> None:
    """AsyncClientV2 takes whole and streamed answers."""
    provider = ScriptedProvider([say("All of it."), truncate("One two three", after=2)])
    with provider.serve() as url:
        async with httpx.AsyncClient() as http:
            asking = sdk.AsyncClientV2(api_key="none", base_url=url, max_retries=0, httpx_client=http)
            answer = await asking.chat(**ASKED)
            events = [event async for event in asking.chat_stream(**ASKED)]
    assert stop([answer]).reason is StopReason.END_TURN
    assert (streamed_text(events), stop(events).reason) == ("One two", StopReason.MAX_TOKENS)


def test_calls_reach_the_sdk() -> None:
    """Several calls arrive in order with their arguments, and the reason asks for tools."""
    reply = call("read", {"path": "a b.txt"}, text="Reading.").also("list", {})
    with client(ScriptedProvider([reply, reply])) as asking:
        answer = asking.chat(**ASKED)
        events = list(asking.chat_stream(**ASKED))
    expected = [("read", {"path": "a b.txt"}), ("list", {})]
    assert [(each.function.name, json.loads(each.function.arguments)) for each in answer.message.tool_calls] == expected
    assert len([event for event in events if event.type == "tool-call-end"]) == 2
    for things in ([answer], events):
        assert (stop(things).reason, stop(things).raw) == (StopReason.TOOL_CALL, "TOOL_CALL")


def test_a_cut_call_is_cut_in_the_stream() -> None:
    """No `tool-call-end` for a call that the limit cut: it is not closed."""
    reply = partial_call("write", {"path": "a.txt", "text": "long enough"}, after=3)
    with client(ScriptedProvider([reply])) as asking:
        events = list(asking.chat_stream(**ASKED))
    assert "tool-call-end" not in [event.type for event in events]
    assert stop(events).reason is StopReason.MAX_TOKENS


@pytest.mark.parametrize("tidy", [False, True], ids=["broken", "tidy"])
def test_a_cut_stream_keeps_what_came(tidy: bool) -> None:
    """A stream without its `message-end` is `missing`; of one that closed tidily, the SDK says nothing."""
    heard: list[Any] = []
    with client(ScriptedProvider([cut("One two three four", after=3, tidy=tidy)])) as asking:
        expected = nullcontext() if tidy else pytest.raises(httpx.RemoteProtocolError)
        with expected:
            heard.extend(asking.chat_stream(**ASKED))
    assert (streamed_text(heard), stop(heard).reason) == ("One two three", StopReason.MISSING)


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        (fail(429, retry_after_s=2), TooManyRequestsError, None),
        (fail(400, "context_length_exceeded"), BadRequestError, StopReason.CONTEXT_WINDOW_EXCEEDED),
        (fail(500), InternalServerError, None),
    ],
    ids=["rate limit", "context", "server"],
)
def test_failures_are_the_sdks_own(reply: Any, kind: type[ApiError], says: StopReason | None) -> None:
    """Each failure raises the SDK's own class; what it holds says the same to us, with the request's id."""
    with client(ScriptedProvider([reply, reply])) as asking:
        for attempt in (asking.chat, lambda **asked: list(asking.chat_stream(**asked))):
            with pytest.raises(kind) as caught:
                attempt(**ASKED)
            assert caught.value.status_code is not None
            ours = error_of(caught.value.status_code, caught.value.headers or {}, caught.value.body, ctx=CTX)
            assert (ours.stop.reason if ours.stop else None) is says
            assert (ours.request_id or "").startswith("req_")


def test_a_failure_inside_a_stream_is_its_end() -> None:
    """The API ends a stream that failed with ERROR and the error's words; the SDK raises nothing."""
    reply = fail(500, message="it broke", text="Once upon")
    with client(ScriptedProvider([reply])) as asking:
        events = list(asking.chat_stream(**ASKED))
    read = stop(events)
    assert (streamed_text(events), read.reason, read.raw, read.detail) == (
        "Once upon",
        StopReason.ERROR,
        "ERROR",
        "it broke",
    )


def test_what_the_sdk_sends_is_what_we_read() -> None:
    """The server is sent the SDK's own body: our Request says all of it."""
    provider = ScriptedProvider([say("ok")])
    tool = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
    with client(provider) as asking:
        asking.chat(**ASKED, tools=[tool], tool_choice="REQUIRED", temperature=0.5, seed=7, p=0.9)
    (received,) = provider.received
    asked = received.request
    assert (asked.tool_choice, asked.max_tokens, asked.temperature, asked.seed) == ("required", 99, 0.5, 7)
    assert ([each.name for each in asked.tools], asked.extra) == (["clock"], {"p": 0.9})


@pytest.mark.parametrize("name", ["v1 text", "v1 limit", "v1 tool calls"])
def test_v1_through_its_own_client(name: str) -> None:
    """v1 streams lines of JSON; the SDK's objects of them, and of a body, say what the dictionaries say."""

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/chat"
        if json.loads(request.content).get("stream"):
            return httpx.Response(200, text="".join(json.dumps(event.data) + "\n" for event in STREAMS[name]))
        return httpx.Response(200, json=BODIES[name])

    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        asking = sdk.Client(api_key="none", base_url="http://cohere", httpx_client=http)
        whole = asking.chat(message="hi")
        events = list(asking.chat_stream(message="hi"))
    assert seen([whole], V1) == summarize(cohere, V1, BODIES[name])
    assert cohere.decode(dumped(whole), ctx=V1).tool_calls == cohere.decode(BODIES[name], ctx=V1).tool_calls
    assert seen(events, V1) == seen(STREAMS[name], V1)


@pytest.mark.parametrize(
    ("declared", "dialect"), [(ChatFinishReason, ""), (FinishReason, "v1")], ids=["ChatFinishReason", "FinishReason"]
)
def test_every_reason_that_the_sdk_declares_has_a_row(declared: Any, dialect: str) -> None:
    """A canary: a release of the SDK that knows another reason fails here."""
    literal = next(each for each in typing.get_args(declared) if typing.get_origin(each) is typing.Literal)
    names = set(typing.get_args(literal))
    missing = names - cohere.reasons[dialect].keys()
    assert not missing, f"stop_reasons.tsv has no row for cohere {dialect!r} {sorted(missing)}"
    gone = cohere.reasons[dialect].keys() - names
    assert not gone, f"the SDK no longer declares {sorted(gone)}: see whether cohere {dialect!r} still needs them"
