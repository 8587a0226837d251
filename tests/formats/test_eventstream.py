"""AWS's binary event stream, beside botocore's own reader of it (botocore 1.44.5)."""

from __future__ import annotations

import binascii
import struct
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.errors import DecodeError
from endturn.formats import Event, Framing
from endturn.formats.aws_eventstream import message
from endturn.formats.framing import events

botocore: Any = import_module("botocore.eventstream")  # Neither typed nor with stubs.

DELTA = Event(None, {"contentBlockDelta": {"delta": {"text": "Grüezi 👋🏽\n"}, "contentBlockIndex": 0}})
STOP = Event(None, {"messageStop": {"stopReason": "end_turn"}})
BROKEN = Event(None, {"throttlingException": {"message": "Too many requests"}})


def built(headers: bytes, payload: bytes = b"{}") -> bytes:
    """A message with these headers, written here and not by our own writer."""
    prelude = struct.pack(">II", 12 + len(headers) + len(payload) + 4, len(headers))
    head = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + payload
    return head + struct.pack(">I", binascii.crc32(head))


def header(name: str, kind: int, value: bytes) -> bytes:
    """One header: the length of its name, its name, the type of its value, its value."""
    return bytes([len(name.encode())]) + name.encode() + bytes([kind]) + value


def string(name: str, value: str) -> bytes:
    """A header that is text."""
    return header(name, 7, struct.pack(">H", len(value.encode())) + value.encode())


def read(*chunks: bytes) -> list[Event]:
    """The events of these bytes."""
    return list(events(chunks, Framing.EVENTSTREAM))


def botocores(data: bytes) -> list[tuple[dict[str, Any], bytes]]:
    """What botocore reads from the same bytes: headers and payloads."""
    buffer = botocore.EventStreamBuffer()
    buffer.add_data(data)
    return [(each.headers, each.payload) for each in buffer]


def test_botocore_reads_what_ours_writes() -> None:
    """Events and exceptions arrive at botocore with the headers that AWS gives them, and their payload."""
    assert botocores(message(DELTA) + message(BROKEN)) == [
        (
            {":event-type": "contentBlockDelta", ":content-type": "application/json", ":message-type": "event"},
            b'{"delta":{"text":"Gr\\u00fcezi \\ud83d\\udc4b\\ud83c\\udffd\\n"},"contentBlockIndex":0}',
        ),
        (
            {
                ":exception-type": "throttlingException",
                ":content-type": "application/json",
                ":message-type": "exception",
            },
            b'{"message":"Too many requests"}',
        ),
    ]


def test_bytes_travel_as_base64() -> None:
    """What boto3 gives as bytes is written as AWS's JSON has it."""
    assert read(message(Event(None, {"chunk": {"bytes": b"Eo8B"}}))) == [Event(None, {"chunk": {"bytes": "RW84Qg=="}})]
    with pytest.raises(TypeError, match="object is not JSON"):
        message(Event(None, {"chunk": object()}))


EVERY_TYPE = b"".join(
    [
        header("true", 0, b""),
        header("false", 1, b""),
        header("byte", 2, b"\xff"),
        header("short", 3, struct.pack(">h", -2)),
        header("integer", 4, struct.pack(">i", 3)),
        header("long", 5, struct.pack(">q", 4)),
        header("bytes", 6, struct.pack(">H", 3) + b":ev"),
        header("time", 8, struct.pack(">q", 1763700000000)),
        header("uuid", 9, bytes(range(16))),
        string(":event-type", "messageStop"),
        string("schlüssel", "Zürich"),
        string(":message-type", "event"),
    ]
)


def test_headers_of_every_type_are_passed_over() -> None:
    """The text that matters is found among headers of all ten types, which botocore reads from the same bytes."""
    data = built(EVERY_TYPE, b'{"stopReason":"end_turn"}')
    assert read(data) == [STOP]
    ((headers, _),) = botocores(data)
    assert (headers[":event-type"], len(headers)) == ("messageStop", 12)


@pytest.mark.parametrize(
    ("headers", "payload", "expected"),
    [
        pytest.param(
            string(":message-type", "error")
            + string(":error-code", "InternalError")
            + string(":error-message", "Something broke"),
            b"",
            {"InternalError": {"message": "Something broke"}},
            id="an error that the model does not know",
        ),
        pytest.param(string(":message-type", "error"), b"", {"error": {"message": "error"}}, id="an error, bare"),
        pytest.param(
            string(":message-type", "exception") + string(":exception-type", "xException"),
            b'{"message":"no"}',
            {"xException": {"message": "no"}},
            id="an exception",
        ),
        pytest.param(string(":event-type", "metadata"), b"", {"metadata": {}}, id="no payload"),
        pytest.param(b"", b"{}", {"": {}}, id="no header"),
    ],
)
def test_kinds_of_messages(headers: bytes, payload: bytes, expected: Any) -> None:
    """Every kind of message is an event, named after what it is."""
    assert read(built(headers, payload)) == [Event(None, expected)]


_NAMES = st.text(min_size=1, max_size=20).filter(
    lambda name: len(name.encode()) < 100 and not name.endswith("Exception")
)


@given(
    name=_NAMES,
    payload=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9) | st.booleans(), max_size=4),
)
def test_any_event_is_read_alike(name: str, payload: dict[str, Any]) -> None:
    """Whatever an event is called and holds, ours reads it back, and botocore finds its name."""
    raw = message(Event(None, {name: payload}))
    assert read(raw) == [Event(None, {name: payload})]
    assert botocores(raw)[0][0][":event-type"] == name


@given(at=st.integers(0, len(message(DELTA)) - 1), flip=st.integers(1, 255))
def test_one_damaged_byte_is_noticed(at: int, flip: int) -> None:
    """A wrong byte anywhere is a DecodeError, after what came before; botocore notices it too."""
    bad = bytearray(message(DELTA))
    bad[at] ^= flip
    found = events([message(STOP) + bytes(bad)], Framing.EVENTSTREAM)
    assert next(found) == STOP
    with pytest.raises(DecodeError, match="damaged"):
        next(found)
    with pytest.raises(botocore.ChecksumMismatch):
        botocores(bytes(bad))


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(header("x", 10, b""), id="a type that is none"),
        pytest.param(header("x", 7, struct.pack(">H", 99) + b"short"), id="text beyond the end"),
        pytest.param(header("x", 5, b"\x00"), id="a number beyond the end"),
        pytest.param(b"\x09x", id="a name beyond the end"),
        pytest.param(header("x", 7, b"\x00"), id="half a length"),
        pytest.param(header("x", 7, struct.pack(">H", 1) + b"\xff"), id="no UTF-8"),
    ],
)
def test_headers_that_cannot_be_read(headers: bytes) -> None:
    """Headers that do not add up are the provider's fault, and are said so."""
    with pytest.raises(DecodeError, match="a header cannot be read"):
        read(built(headers))


@pytest.mark.parametrize("total", [0, 15, 2**31], ids=["nothing", "less than its frame", "too long"])
def test_lengths_that_cannot_be(total: int) -> None:
    """A length that no message has is not waited for."""
    prelude = struct.pack(">II", total, 0)
    with pytest.raises(DecodeError, match=f"a message of {total} bytes"):
        read(prelude + struct.pack(">I", binascii.crc32(prelude)))


def test_a_payload_that_is_not_json() -> None:
    """It is a DecodeError that keeps the payload, without keys in it."""
    with pytest.raises(DecodeError, match="not JSON") as raised:
        read(built(string(":event-type", "chunk"), b"<html> sk-live-abcdef1234567890"))
    assert raised.value.body == "<html> [removed]"


def test_an_sse_stream_is_not_taken_for_one() -> None:
    """Text, as a proxy might send it, is damage from its first bytes."""
    with pytest.raises(DecodeError, match="damaged"):
        read(b'data: {"contentBlockDelta": {}}\n\n')
