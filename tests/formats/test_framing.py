"""Server-sent events, as providers and the lines between cut and decorate them."""

from __future__ import annotations

import pytest

from endturn.errors import DecodeError
from endturn.formats import Event
from endturn.formats.framing import DONE, events, frame

A = Event(None, {"a": 1})


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param('data: {"a":1}\n\n', [A], id="plain"),
        pytest.param('data:{"a":1}\n\n', [A], id="no space"),
        pytest.param('data: {"a":1}\r\n\r\n', [A], id="crlf"),
        pytest.param('data: {"a":1}\r\r', [A], id="cr"),
        pytest.param('event: x\r\ndata: {"a":1}\r\n\r\n', [Event("x", {"a": 1})], id="crlf with a name"),
        pytest.param('\ufeffdata: {"a":1}\n\n', [A], id="byte order mark"),
        pytest.param(': OPENROUTER PROCESSING\n\ndata: {"a":1}\n\n', [A], id="comment"),
        pytest.param('data: {"a":\ndata: 1}\n\n', [A], id="data over two lines"),
        pytest.param('event: x\nid: 7\nretry: 5\ndata: {"a":1}\n\n', [Event("x", {"a": 1})], id="all fields"),
        pytest.param('event: x\n\ndata: {"a":1}\n\n', [A], id="a name without data is no event"),
        pytest.param("data:\n\ndata\n\n", [], id="empty data"),
        pytest.param(
            'error: {"code":500}\n\n', [Event(None, {"error": {"code": 500}})], id="an error in a field of its own"
        ),
        pytest.param('data: {"a":1}\n\nerror: {"code":{"a":5}', [A], id="a cut error"),
        pytest.param("data: [DONE]\n\n", [Event(None, DONE)], id="done"),
        pytest.param('data: {"a":1}', [A], id="no line end at all"),
        pytest.param('data: {"a":1}\n', [A], id="no blank line at the end"),
        pytest.param("data: [DONE]", [Event(None, DONE)], id="done without a line end"),
        pytest.param('data: {"a":1}\n\ndata: {"b":', [A], id="cut"),
        pytest.param("data: 12", [], id="a number may be cut"),
        pytest.param(
            'data: {"a": "x\u2028y\u0085z"}\n\n', [Event(None, {"a": "x\u2028y\u0085z"})], id="other line ends are text"
        ),
    ],
)
def test_events_of_bytes(raw: str, expected: list[Event]) -> None:
    """The same events come out whole, and byte by byte."""
    data = raw.encode()
    assert list(events([data])) == expected
    assert list(events(data[i : i + 1] for i in range(len(data)))) == expected


def test_bad_json_is_a_decode_error_after_what_came_before() -> None:
    """What came before a bad event is given first; the error keeps the data, without keys in it."""
    found = events([b'data: {"a":1}\n\ndata: {"key": sk-live-abcdef1234567890}\n\n'])
    assert next(found) == A
    with pytest.raises(DecodeError, match="not JSON") as raised:
        next(found)
    assert raised.value.body == '{"key": [removed]}'


@pytest.mark.parametrize("raw", ["[" * 100_000, "1" * 5_000], ids=["deep", "long number"])
def test_json_that_python_will_not_read_is_a_decode_error(raw: str) -> None:
    """Nesting and numbers beyond Python's limits are the provider's fault, not a crash."""
    with pytest.raises(DecodeError):
        list(events([f"data: {raw}\n\n".encode()]))


@pytest.mark.parametrize(
    "event", [A, Event("message_stop", {"type": "message_stop"}), Event(None, DONE), Event(None, {"t": "é\n\ud83d"})]
)
def test_frames_read_back(event: Event) -> None:
    """An event written is the event read, whatever is in it."""
    assert list(events([frame(event)])) == [event]
