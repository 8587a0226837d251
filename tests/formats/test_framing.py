"""Bytes as events: server-sent events, as providers and proxies send them, and AWS's binary stream.

The second is compared with botocore's own reader (botocore 1.44.5).
"""

from __future__ import annotations

import binascii
import json
import struct
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.errors import DecodeError
from endturn.formats import Event, Framing
from endturn.formats.aws_eventstream import message
from endturn.formats.framing import events, frame
from endturn.vocabulary.messages import Json

botocore: Any = import_module("botocore.eventstream")  # Neither typed nor with stubs.

A = Event(None, {"a": 1})


ROWS = [json.loads(line) for line in Path(__file__).with_name("framing.jsonl").read_text("utf-8").splitlines()]
"""Server-sent bytes, and the events in them."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["why"])
def test_events_of_bytes(row: Json) -> None:
    """The events are the same whole, byte by byte, and after they were written again."""
    data = row["raw"].encode()
    expected = [Event(each.get("name"), each["data"]) for each in row["events"]]
    assert list(events([data])) == list(events(map(frame, expected))) == expected
    assert list(events(data[i : i + 1] for i in range(len(data)))) == expected


def test_bad_json_is_a_decode_error_after_the_events_before_it() -> None:
    """Events before a bad one are returned first; the error keeps the data, without keys.

    Nesting and numbers beyond Python's limits are the provider's fault, too, and no crash.
    """
    found = events([b'data: {"a":1}\n\ndata: {"key": sk-live-abcdef1234567890}\n\n'])
    assert next(found) == A
    with pytest.raises(DecodeError, match="invalid JSON") as raised:
        next(found)
    assert raised.value.body == '{"key": [removed]}'
    for raw in ("[" * 100_000, "1" * 5_000):
        with pytest.raises(DecodeError):
            list(events([f"data: {raw}\n\n".encode()]))


# --- AWS ------------------------------------------------------------------------------------------------------------

DELTA = Event(None, {"contentBlockDelta": {"delta": {"text": "Grüezi 👋🏽\n"}, "contentBlockIndex": 0}})
STOP = Event(None, {"messageStop": {"stopReason": "end_turn"}})


def built(headers: bytes, payload: bytes = b"{}", length: int | None = None) -> bytes:
    """Build a message with these headers, independently of our own writer."""
    length = 12 + len(headers) + len(payload) + 4 if length is None else length
    prelude = struct.pack(">II", length, len(headers))
    head = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + payload
    return head + struct.pack(">I", binascii.crc32(head))


def header(name: str, kind: int, value: bytes) -> bytes:
    """Build one header: the length of its name, its name, the type of its value, its value."""
    return bytes([len(name.encode())]) + name.encode() + bytes([kind]) + value


def strings(**values: str) -> bytes:
    """Headers that are text; the names of AWS begin with a colon, and have hyphens."""
    pairs = ((f":{name.replace('_', '-')}", value.encode()) for name, value in values.items())
    return b"".join(header(name, 7, struct.pack(">H", len(value)) + value) for name, value in pairs)


def read(*chunks: bytes) -> list[Event]:
    """The events of these bytes."""
    return list(events(chunks, Framing.EVENTSTREAM))


def botocores(data: bytes) -> list[dict[str, Any]]:
    """The headers that botocore reads from the same bytes."""
    buffer = botocore.EventStreamBuffer()
    buffer.add_data(data)
    return [each.headers for each in buffer]


@given(
    name=st.text(min_size=1, max_size=20).filter(lambda name: len(name.encode()) < 100),
    raised=st.booleans(),
    payload=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9) | st.booleans(), max_size=4),
)
def test_any_event_is_read_alike(name: str, raised: bool, payload: dict[str, Any]) -> None:
    """With any name and content of an event or an exception, our reader and botocore agree."""
    name = name.removesuffix("Exception") + "Exception" * raised
    raw, kind = message(Event(None, {name: payload})), "exception" if raised else "event"
    assert read(raw) == [Event(None, {name: payload})]
    assert botocores(raw) == [{f":{kind}-type": name, ":message-type": kind, ":content-type": "application/json"}]
    # What boto3 gives as bytes is written as AWS's JSON has it.
    assert read(message(Event(None, {name: {"bytes": b"Eo8B"}}))) == [Event(None, {name: {"bytes": "RW84Qg=="}})]


OTHER_TYPES = (
    *((0, b""), (1, b""), (2, b"\xff"), (3, struct.pack(">h", -2)), (4, struct.pack(">i", 3))),
    *((5, struct.pack(">q", 4)), (6, struct.pack(">H", 3) + b":ev"), (8, struct.pack(">q", 1763700000000))),
    (9, bytes(range(16))),
)


def test_headers_of_every_type_are_skipped() -> None:
    """The relevant text is found among headers of all ten types, which botocore reads from the same bytes."""
    odd = b"".join(header(f"schlüssel {kind}", kind, value) for kind, value in OTHER_TYPES)
    data = built(odd + strings(event_type="messageStop", message_type="event"), b'{"stopReason":"end_turn"}')
    assert read(data) == [STOP]
    (headers,) = botocores(data)
    assert (headers[":event-type"], len(headers)) == ("messageStop", 11)


@pytest.mark.parametrize(
    ("headers", "payload", "expected"),
    [
        ({"message_type": "error", "error_code": "E", "error_message": "Broke"}, b"", {"E": {"message": "Broke"}}),
        ({"message_type": "error"}, b"", {"error": {"message": "error"}}),
        ({"event_type": "metadata"}, b"", {"metadata": {}}),
        ({}, b"{}", {"": {}}),
    ],
    ids=["an error that the model does not know", "an error, bare", "no payload", "no header"],
)
def test_kinds_of_messages(headers: dict[str, str], payload: bytes, expected: Any) -> None:
    """Every kind of message is an event with the name of its kind."""
    assert read(built(strings(**headers), payload)) == [Event(None, expected)]


@given(at=st.integers(0, len(message(DELTA)) - 1), flip=st.integers(1, 255))
def test_one_damaged_byte_is_noticed(at: int, flip: int) -> None:
    """A wrong byte anywhere is a DecodeError, after the events before it."""
    bad = bytearray(message(DELTA))
    bad[at] ^= flip
    found = events([message(STOP) + bytes(bad)], Framing.EVENTSTREAM)
    assert next(found) == STOP
    with pytest.raises(DecodeError, match="damaged"):
        next(found)


UNREADABLE = {
    "a type that is none": (built(header("x", 10, b"")), "a header cannot be read"),
    "text beyond the end": (built(header("x", 7, struct.pack(">H", 99) + b"short")), "a header cannot be read"),
    "a number beyond the end": (built(header("x", 5, b"\x00")), "a header cannot be read"),
    "a name beyond the end": (built(b"\x09x"), "a header cannot be read"),
    "half a length": (built(header("x", 7, b"\x00")), "a header cannot be read"),
    "no UTF-8": (built(header("x", 7, struct.pack(">H", 1) + b"\xff")), "a header cannot be read"),
    "a length less than its frame": (built(b"", b"", 15), "a message of 15 bytes"),
    "too long": (built(b"", b"", 2**31), f"a message of {2**31} bytes"),
    "text, as a proxy might send it": (b'data: {"contentBlockDelta": {}}\n\n', "damaged"),
    "no JSON": (built(strings(event_type="chunk"), b"<html> sk-live-abcdef1234567890"), "invalid JSON"),
}


@pytest.mark.parametrize(("data", "says"), UNREADABLE.values(), ids=list(UNREADABLE))
def test_inconsistent_replies_are_the_providers_fault(data: bytes, says: str) -> None:
    """The error is raised without waiting for more bytes; the payload is kept, without keys."""
    with pytest.raises(DecodeError, match=says) as raised:
        read(data)
    assert says != "not JSON" or raised.value.body == "<html> [removed]"
