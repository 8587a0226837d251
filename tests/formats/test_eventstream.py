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


def strings(**values: str) -> bytes:
    """Headers that are text; the names of AWS begin with a colon, and have hyphens."""
    pairs = ((f":{name.replace('_', '-')}", value.encode()) for name, value in values.items())
    return b"".join(header(name, 7, struct.pack(">H", len(value)) + value) for name, value in pairs)


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
    text = b'{"delta":{"text":"Gr\\u00fcezi \\ud83d\\udc4b\\ud83c\\udffd\\n"},"contentBlockIndex":0}'
    as_json = {":content-type": "application/json"}
    assert botocores(message(DELTA) + message(BROKEN)) == [
        ({":event-type": "contentBlockDelta", ":message-type": "event", **as_json}, text),
        (
            {":exception-type": "throttlingException", ":message-type": "exception", **as_json},
            b'{"message":"Too many requests"}',
        ),
    ]


def test_bytes_travel_as_base64() -> None:
    """What boto3 gives as bytes is written as AWS's JSON has it."""
    assert read(message(Event(None, {"chunk": {"bytes": b"Eo8B"}}))) == [Event(None, {"chunk": {"bytes": "RW84Qg=="}})]
    with pytest.raises(TypeError, match="object is not JSON"):
        message(Event(None, {"chunk": object()}))


OTHER_TYPES = (
    *((0, b""), (1, b""), (2, b"\xff"), (3, struct.pack(">h", -2)), (4, struct.pack(">i", 3))),
    *((5, struct.pack(">q", 4)), (6, struct.pack(">H", 3) + b":ev"), (8, struct.pack(">q", 1763700000000))),
    (9, bytes(range(16))),
)


def test_headers_of_every_type_are_passed_over() -> None:
    """The text that matters is found among headers of all ten types, which botocore reads from the same bytes."""
    odd = b"".join(header(f"schlüssel {kind}", kind, value) for kind, value in OTHER_TYPES)
    data = built(odd + strings(event_type="messageStop", message_type="event"), b'{"stopReason":"end_turn"}')
    assert read(data) == [STOP]
    ((headers, _),) = botocores(data)
    assert (headers[":event-type"], len(headers)) == ("messageStop", 11)


@pytest.mark.parametrize(
    ("headers", "payload", "expected"),
    [
        ({"message_type": "error", "error_code": "InternalError", "error_message": "Broke"}, b"",
         {"InternalError": {"message": "Broke"}}),
        ({"message_type": "error"}, b"", {"error": {"message": "error"}}),
        ({"message_type": "exception", "exception_type": "xException"}, b'{"message":"no"}',
         {"xException": {"message": "no"}}),
        ({"event_type": "metadata"}, b"", {"metadata": {}}),
        ({}, b"{}", {"": {}}),
    ],
    ids=["an error that the model does not know", "an error, bare", "an exception", "no payload", "no header"],
)  # fmt: skip
def test_kinds_of_messages(headers: dict[str, str], payload: bytes, expected: Any) -> None:
    """Every kind of message is an event, named after what it is."""
    assert read(built(strings(**headers), payload)) == [Event(None, expected)]


_NAMES = st.text(min_size=1, max_size=20).filter(
    lambda name: len(name.encode()) < 100 and not name.endswith("Exception")
)
_VALUES = st.integers() | st.text(max_size=9) | st.booleans()


@given(name=_NAMES, payload=st.dictionaries(st.text(max_size=5), _VALUES, max_size=4))
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


def _of_length(total: int) -> bytes:
    prelude = struct.pack(">II", total, 0)
    return prelude + struct.pack(">I", binascii.crc32(prelude))


UNREADABLE = {
    "a type that is none": (built(header("x", 10, b"")), "a header cannot be read"),
    "text beyond the end": (built(header("x", 7, struct.pack(">H", 99) + b"short")), "a header cannot be read"),
    "a number beyond the end": (built(header("x", 5, b"\x00")), "a header cannot be read"),
    "a name beyond the end": (built(b"\x09x"), "a header cannot be read"),
    "half a length": (built(header("x", 7, b"\x00")), "a header cannot be read"),
    "no UTF-8": (built(header("x", 7, struct.pack(">H", 1) + b"\xff")), "a header cannot be read"),
    "no length": (_of_length(0), "a message of 0 bytes"),
    "a length less than its frame": (_of_length(15), "a message of 15 bytes"),
    "too long": (_of_length(2**31), f"a message of {2**31} bytes"),
    "text, as a proxy might send it": (b'data: {"contentBlockDelta": {}}\n\n', "damaged"),
    "no JSON": (built(strings(event_type="chunk"), b"<html> sk-live-abcdef1234567890"), "not JSON"),
}


@pytest.mark.parametrize(("data", "says"), UNREADABLE.values(), ids=list(UNREADABLE))
def test_what_does_not_add_up_is_the_providers_fault(data: bytes, says: str) -> None:
    """It is said so, and not waited for; the payload is kept, without keys in it."""
    with pytest.raises(DecodeError, match=says) as raised:
        read(data)
    assert says != "not JSON" or raised.value.body == "<html> [removed]"
