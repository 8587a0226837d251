"""`endturn.read`: stored replies, in any form, match their files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from openai.types.chat import ChatCompletion

from endturn import Request, StopReason, UsageError, read
from endturn.errors import DecodeError, ProviderError
from endturn.formats import FORMATS, Event, dialect_in, format_of
from endturn.formats.framing import frame
from endturn.vocabulary.messages import ChatResponse
from tests.replies.record import packed, reply_files


def kept(format_: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The replies of a format that can be read by knowing the provider and the model that was asked."""
    for path in reply_files():
        reply = json.loads(path.read_text())
        objects = [reply.get("body", {}), *(event["data"] for event in reply.get("events", ()))]
        if (
            path.parent.name == format_
            and not {"headers", "window"} & reply.keys()
            and reply.get("asked", {}).keys() <= {"model", "stream", "length", "history"}
            and reply.get("dialect", "") in ("", dialect_in(format_of(format_), reply.get("provider", "")))
            and reply.get("events") != []
            and all(isinstance(each, dict) for each in objects)
        ):
            yield path, reply


def forms(format_: str, reply: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the reply in stored forms, or as `iter_bytes()`, `iter_text()` and `iter_lines()` return it."""
    if "body" in reply:
        text = json.dumps(reply["body"])
        yield from {"parsed": reply["body"], "text": f" {text}\n", "bytes": text.encode()}.items()
        yield "texts", iter([text[:9], text[9:]])
        yield "buffers", [bytearray(text[:9].encode()), memoryview(text[9:].encode())]
        return
    events = [Event(event.get("name"), packed(event["data"])) for event in reply["events"]]
    data = b"".join(frame(event, format_of(format_).framing) for event in events)
    yield "events", iter(events)
    yield "their data", [event.data for event in events]
    yield "bytes", data
    yield "chunks", (data[at : at + 11] for at in range(0, len(data), 11))
    if format_of(format_).framing != "eventstream":
        yield "text", data.decode()
        yield "lines", iter(data.decode().split("\n"))


def said(value: Any, format_: str, reply: dict[str, Any]) -> Any:
    """Return the reading of a reply, or its error."""
    asked = {"model": reply["asked"]["model"]} if reply.get("asked", {}).get("model") else None
    try:
        return read(value, format=format_, provider=reply.get("provider", format_of(format_).provider), request=asked)
    except ProviderError as error:
        return type(error).__name__, error.partial


@pytest.mark.parametrize("format_", FORMATS)
def test_a_reply_reads_the_same_in_every_stored_form(format_: str) -> None:
    """Parsed, as text, as bytes and in pieces, it matches its file."""
    read_so_far = 0
    for path, reply in kept(format_):
        (_, first), *others = ((form, said(value, format_, reply)) for form, value in forms(format_, reply))
        expected = reply["expected"]
        if isinstance(first, ChatResponse):
            assert first.text == expected.get("text", ""), path
            assert first.stop.reason == expected["stop"].get("reason", "end_turn"), path
        else:
            assert first[0] == expected["raises"]["type"], path
        assert [(form, found) for form, found in others if found != first] == [], path
        read_so_far += 1
    assert read_so_far > 10  # of each format there are more


def answer(text: str, reason: str) -> Any:
    """A chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
    return {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 16}}


def test_request_and_provider_refine_the_reading() -> None:
    """The limit is from our request or the sent JSON; a named provider has the values that compatible servers share.

    An SDK's object reads the same as its JSON.
    """
    body, asked = answer("and then", "stop"), Request(model="m", messages=(), max_tokens=16)
    for request, suspected in ((None, False), (asked, True), ({"max_tokens": 16}, True)):
        assert read(body, format="openai_chat", request=request).stop.suspected is suspected
    for provider, reason in (("together", "end_turn"), (None, "end_turn"), ("openai", "end_turn")):
        assert read(answer("So", "eos"), format="openai_chat", provider=provider).stop.reason == reason
    assert read(ChatCompletion.construct(**body), format="openai_chat") == read(body, format="openai_chat")


COHERE_V1 = (
    b'{"is_finished":false,"event_type":"text-generation","text":"Hi"}\n'
    b'{"is_finished":true,"event_type":"stream-end","response":{"text":"Hi"},"finish_reason":"MAX_TOKENS"}\n'
)
GEMINI = (
    b'[{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}]}\n',
    b',\r\n{"candidates":[{"finishReason":"MAX_TOKENS"}]}]',
)


@pytest.mark.parametrize(
    ("chunks", "format_"),
    [(COHERE_V1.splitlines(keepends=True), "cohere"), (COHERE_V1.decode().splitlines(), "cohere"), (GEMINI, "gemini")],
    ids=["v1", "lines of v1", "array"],
)
def test_lines_of_json_where_events_are_usual(chunks: Any, format_: str) -> None:
    """Cohere's first version, and Gemini without `alt=sse`, send them."""
    found = read(iter(chunks), format=format_)
    assert (found.text, found.stop.reason) == ("Hi", StopReason.MAX_TOKENS)


CHAT = '{"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"length"}]}'


@pytest.mark.parametrize("format_", ["openai_chat", "ollama", "bedrock_converse"])
@pytest.mark.parametrize(
    "reply",
    [
        "<html>502 Bad Gateway</html>", b"Error", b"null", gzip.compress(CHAT.encode()), CHAT.encode("utf-16"),
    ],
    ids=["html", "text", "null", "gzip", "utf-16"],
)  # fmt: skip
def test_a_value_that_is_no_reply_is_not_a_broken_stream(reply: Any, format_: str) -> None:
    """A gateway's page, something compressed, another encoding: none is an answer that broke off."""
    for kept_as in (reply, [reply]):
        with pytest.raises(DecodeError, match="neither JSON nor a stream"):
            read(kept_as, format=format_)


@pytest.mark.parametrize("reply", [b"", b" \n", "da", b": ping\n\n", b"event: message_sta", b"id: 7\r\ndata: {"])
def test_a_stream_may_be_cut_anywhere(reply: Any) -> None:
    """Even before its first event."""
    assert read(reply, format="openai_chat").stop.reason is StopReason.MISSING


async def later() -> Any:
    """Events to be collected first."""
    yield {}


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        ('{"choices": [{"ind', DecodeError, "invalid JSON"),
        (b'data: {"a": \n\n', DecodeError, "invalid JSON"),
        ({"output": []}, DecodeError, "choices"),
        (7, UsageError, "not int"),
        (["a", {"b": 1}], UsageError, "not dict"),
        ([b"a", 7], UsageError, "not int"),
        (later(), UsageError, "collect"),
    ],
)
def test_unreadable_values_raise_a_clear_error(reply: Any, kind: type[Exception], says: str) -> None:
    """A damaged body, a damaged event, another format, no reply at all, pieces of two kinds, a stream to be awaited."""
    with pytest.raises(kind, match=says):
        read(reply, format="openai_chat")
    with pytest.raises(UsageError, match="openai_responses"):
        read(reply, format="chat")


MEMBERS = ("choices", "output", "content", "message", "delta", "candidates", "parts", "finish_reason", "type", "usage")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(MEMBERS), inner),
    max_leaves=12,
)
PIECES = st.sampled_from(["[", "]", "{", "}", ",", ":", '"', "\n", "data: ", "null", "1", '{"choices":', "\\u", "x"])


@given(
    reply=st.one_of(JSON.map(json.dumps), st.lists(JSON).map(json.dumps), st.lists(PIECES).map("".join)),
    format_=st.sampled_from(sorted(FORMATS)),
)
@example(reply='["x", {"a": 1}]', format_="gemini")
def test_text_and_bytes_are_read_or_fail_as_documented(reply: str, format_: str) -> None:
    """With any content: a provider's reply is never the caller's mistake."""
    for kept_as in (reply, reply.encode()):
        with suppress(DecodeError, ProviderError):
            assert read(kept_as, format=format_).stop.reason
