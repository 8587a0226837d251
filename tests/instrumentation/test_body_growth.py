"""A response costs the host's thread time in proportion to its size, read by the real instrumentation through httpx.

Of every format, responses that it writes itself: calls, words, thinking, arguments, whole and streamed. And what no
scripted server would send.
"""

from __future__ import annotations

import binascii
import gzip
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from endturn.calls import listeners
from endturn.calls.records import CallEnded, Record
from endturn.errors import UsageError
from endturn.formats import FORMATS, Event, format_of, framing
from endturn.instrumentation import http_clients
from endturn.vocabulary.messages import ChatResponse, Message, Request, ToolCall, Usage
from endturn.vocabulary.stop import Stop, StopReason
from tests.support.growth import LIMIT, growth

MODELS = {"bedrock_invoke": "anthropic.claude-sonnet-5"}
WORDS = {("openai_responses", StopReason.TOOL_CALL): "completed"}
HOST = "http://models.internal"


class Listener(list[CallEnded]):
    """The calls that have ended, with or without what was said in them."""

    def __init__(self, *, takes_content: bool) -> None:
        super().__init__()
        self.takes_content = takes_content

    def __call__(self, record: Record) -> None:
        if isinstance(record, CallEnded):
            self.append(record)


@pytest.fixture(params=[False, True], ids=["facts", "content"])
def seen(request: pytest.FixtureRequest) -> Iterator[Listener]:
    listener = Listener(takes_content=request.param)
    stop = listeners.subscribe(listener)
    http_clients.install(lambda: True)
    try:
        with listeners.strict():
            yield listener
    finally:
        http_clients.uninstall()
        stop()


class Body(httpx.SyncByteStream):
    """Bytes as a network brings them."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size = data, size

    def __iter__(self) -> Iterator[bytes]:
        return (self.data[at : at + self.size] for at in range(0, len(self.data), self.size))


def asking(url: str, body: Any, headers: dict[str, str], data: bytes, size: int = 16_384, status: int = 200) -> None:
    """Send a request, and throw away what comes."""
    respond = httpx.MockTransport(lambda request: httpx.Response(status, headers=headers, stream=Body(data, size)))
    with httpx.Client(transport=respond) as client, client.stream("POST", url, json=body) as response:
        for _ in response.iter_raw():
            pass


# --- What each format writes itself ---


def responses(n: int) -> dict[str, ChatResponse]:
    """Responses with n of something."""
    calls = tuple(ToolCall(id=f"call_{number}", name="add", arguments={"a": number}) for number in range(n))
    long = (ToolCall(id="call_1", name="add", arguments={"text": "word " * n}),)
    called, ended = Stop(StopReason.TOOL_CALL, terminal_seen=True), Stop(StopReason.END_TURN, terminal_seen=True)
    common: dict[str, Any] = {"id": "r1", "model": "m", "usage": Usage(1, 2)}
    return {
        "calls": ChatResponse(text="", tool_calls=calls, stop=called, **common),
        "arguments": ChatResponse(text="", tool_calls=long, stop=called, **common),
        "words": ChatResponse(text="word " * n, stop=ended, **common),
        "thinking": ChatResponse(text="done", reasoning="word " * n, stop=ended, **common),
    }


def written(name: str, what: str, n: int, *, stream: bool) -> tuple[str, Any, dict[str, str], bytes] | None:
    """The request and the response of a format, with n of something; None where the format cannot say that."""
    api, response = format_of(name), responses(n)[what]
    if word := api.voice.words.get(response.stop.reason) or WORDS.get((name, response.stop.reason)):
        response = response.but(stop=replace(response.stop, raw=word))
    request = Request(model=MODELS.get(name, "m"), messages=(Message(role="user", content="hi"),), max_tokens=99)
    try:
        reply = api.reply(response, stream=stream)
    except UsageError:
        return None
    kind = framing.CONTENT_TYPE[api.framing] if stream else "application/json"
    data = (
        b"".join(framing.frame(each, api.framing) for each in reply if isinstance(each, Event))
        if stream
        else json.dumps(reply).encode()
    )
    url = HOST + api.route(request, stream=stream).path
    return url, api.encode(request, stream=stream), {"content-type": kind}, data


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("what", list(responses(1)))
@pytest.mark.parametrize("name", FORMATS)
def test_a_response_costs_in_proportion_to_its_length(seen: Listener, name: str, what: str, stream: bool) -> None:
    """Each is recorded, with its reason, and all that it says where that is wanted."""
    n = 300
    if written(name, what, n, stream=stream) is None or (name == "completions" and what != "words"):
        assert name == "completions"  # which has text alone
        return

    def prepare(n: int) -> Callable[[], object]:
        made = written(name, what, n, stream=stream)
        assert made is not None
        return lambda: asking(*made)

    assert growth(prepare, n) <= LIMIT
    expected = responses(4 * n)[what]
    ended = seen[-1]
    assert ended.stop.reason is expected.stop.reason
    assert ended.response.output_chars == len(expected.text)
    assert (ended.content is not None) is seen.takes_content
    if ended.content is not None:
        (response,) = ended.content.responses
        assert response.text == expected.text
        assert [call.arguments for call in response.tool_calls] == [call.arguments for call in expected.tool_calls]


# --- What no server that is well writes ---


def chat(delta: Any, **choice: Any) -> bytes:
    event = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, **choice}]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


END = chat({}, finish_reason="length") + b"data: [DONE]\n\n"


def event(kind: str, **members: Any) -> bytes:
    return b"data: " + json.dumps({"type": kind, **members}).encode() + b"\n\n"


def call(**function: Any) -> Any:
    return {"tool_calls": [{"index": 0, "id": "c", "function": function}]}


def items(n: int) -> bytes:
    """Items of the Responses API one by one, and all of them once more at the end."""
    listed: list[Any] = [
        {"type": "message", "id": f"m{number}", "content": [{"type": "output_text", "text": "a"}]}
        for number in range(n)
    ]
    done = (event("response.output_item.done", output_index=at, item=item) for at, item in enumerate(listed))
    end: dict[str, Any] = {"id": "r", "model": "m", "status": "incomplete", "output": [*reversed(listed)]}
    end["incomplete_details"] = {"reason": "max_output_tokens"}
    return b"".join(done) + event("response.incomplete", response=end)


def message(headers: bytes, payload: bytes) -> bytes:
    """One message of AWS's event stream."""
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    head = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + payload
    return head + struct.pack(">I", binascii.crc32(head))


CHAT = ("/v1/chat/completions", "text/event-stream", "")
PACKED = ("/v1/chat/completions", "text/event-stream", "gzip")
RESPONSES = ("/v1/responses", "text/event-stream", "")
CONVERSE = ("/model/m/converse-stream", "application/vnd.amazon.eventstream", "")
STOP = message(b"\x0b:event-type\x07\x00\x0bmessageStop", b'{"stopReason": "max_tokens"}')

STRANGE: dict[str, tuple[tuple[str, str, str], Callable[[int], bytes], int]] = {
    "empty pieces of arguments": (
        CHAT, lambda n: chat(call(name="f", arguments="")) * n + END, 600),
    "calls without ids": (
        CHAT,
        lambda n: chat({"tool_calls": [{"function": {"name": "f", "arguments": '{"a":'}}]}) * n + END,
        600,

    ),
    "choices": (
        CHAT, lambda n: b"".join(
            chat({"content": "a"}, finish_reason="length").replace(b'"index": 0', b'"index": %d' % number)
            for number in range(n)
        ) + END, 600,
    ),
    "members": (
        CHAT, lambda n: b"".join(chat({f"x{number}": "a"}) for number in range(n)) + END, 600,
    ),
    "parts of thinking": (
        CHAT, lambda n: chat({"content": [{"type": "thinking", "thinking": "a" * 20}]}) * n + END, 600,

    ),
    "items": (RESPONSES, items, 600),
    "headers": (
        CONVERSE, lambda n: message(b"\x01a\x00" * n, b"{}") + STOP, 10_000,
    ),
    "messages": (CONVERSE, lambda n: message(b"", b"{}") * n + STOP, 3_000),
    "blank lines": (CHAT, lambda n: b"\n" * n + END, 100_000),
    "comments": (CHAT, lambda n: b":\n" * n + END, 20_000),
    "lines of one event": (CHAT, lambda n: b"data:\n" * n + END, 20_000),
    "one long line": (CHAT, lambda n: chat({"content": "a" * n}) + END, 1_000_000),
    "what follows packed data": (
        PACKED, lambda n: gzip.compress(chat({"content": "a"}) + END[:-14]) + b"\0" * n, 3_000_000,
    ),
    "packed blank lines": (PACKED, lambda n: gzip.compress(b"\n" * n + END), 200_000),
    "what follows deflated data": (
        ("/v1/chat/completions", "text/event-stream", "deflate"),
        lambda n: zlib.compress(chat({"content": "a"}) + END[:-14]) + b"\0" * n, 3_000_000,
    ),
}  # fmt: skip


@pytest.mark.parametrize("size", [64, 16_384])
@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_response_costs_in_proportion_to_its_length(seen: Listener, name: str, size: int) -> None:
    """However many pieces it comes in."""
    (path, kind, encoding), made, n = STRANGE[name]
    n = n // 10 if size == 64 and n > 100_000 else n
    body: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "input": "hi", "stream": True}
    if path.startswith("/model"):
        body = {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    headers = {"content-type": kind, **({"content-encoding": encoding} if encoding else {})}

    def prepare(n: int) -> Callable[[], object]:
        data = made(n)
        return lambda: asking(HOST + path, body, headers, data, size)

    assert growth(prepare, n) <= LIMIT
    assert len(seen) >= 2
    assert {ended.stop.reason for ended in seen} == {StopReason.MAX_TOKENS}
