"""Bytes ↔ events of a stream, incrementally and in both directions; server-sent events and lines of JSON are here.

Written out because the kept decoders each come with an HTTP library attached (httpx-sse imports httpx, openai and
anthropic import httpx2), and a format does no I/O. The format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from pydantic_core import from_json

from endturn.errors import DecodeError
from endturn.formats import aws_eventstream as aws
from endturn.formats.errors import shortened
from endturn.formats.summaries import Event, Framing

DONE: Final = "[DONE]"
"""The data of the event that ends a stream of the chat format: a word, not JSON."""

_DONE: Final = DONE.encode()
_BOM: Final = b"\xef\xbb\xbf"


CONTENT_TYPE: Final = {
    Framing.SSE: "text/event-stream; charset=utf-8",
    Framing.NDJSON: "application/x-ndjson",
    Framing.EVENTSTREAM: "application/vnd.amazon.eventstream",
}
"""What a stream of each framing is called in its headers."""


class BytesDecoder(Protocol):
    """Turns a stream's bytes, cut anywhere, into events."""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that these bytes complete. Lazy, so that what came before a bad event is given before it raises.

        Raises:
            DecodeError: an event's data is not JSON.
        """

    def close(self) -> list[Event]:
        """The last event, where the stream ended without the line end that should follow it."""


def decoder(framing: Framing) -> BytesDecoder:
    """A decoder of that framing."""
    return _DECODERS[framing]()


class _Lines:
    """Splits bytes, cut anywhere, into lines; a line that comes in many pieces is joined once."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that these bytes complete."""
        *lines, rest = chunk.split(b"\n")
        if not lines:
            self._rest.append(rest)
            return lines
        lines[0] = b"".join(self._rest) + lines[0]
        self._rest = [rest]
        return lines

    def close(self) -> bytes:
        """What came after the last line's end."""
        rest, self._rest = b"".join(self._rest), []
        return rest


class SSEDecoder:
    """Turns a stream's bytes, cut anywhere, into events.

    An event that the end of the stream cut off is given only if its data is whole JSON: then nothing of it is missing.
    """

    __slots__ = ("_data", "_first", "_lines", "_name", "_skip_lf")

    def __init__(self) -> None:
        self._lines = _Lines()
        self._skip_lf = False
        self._first = True
        self._name: str | None = None
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that these bytes complete."""
        if not chunk:
            return
        if self._skip_lf and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        # A CR ends its line at once; an LF that follows in the next chunk belongs to it.
        self._skip_lf = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        for line in self._lines.feed(chunk):
            event = self._line(line)
            if event is not None:
                yield event

    def close(self) -> list[Event]:
        """The last event, where the stream ended without the blank line that should follow it."""
        if rest := self._lines.close():
            self._line(rest)
        try:
            event = self._dispatch()
        except DecodeError:
            return []
        # A number or a bare word may be the beginning of a longer one; an object closes itself.
        whole = event is not None and (event.data == DONE or isinstance(event.data, dict | list))
        return [event] if event is not None and whole else []

    def _line(self, line: bytes) -> Event | None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace") or None
        elif field == b"error" and value.startswith(b"{"):  # llama-box, and llama.cpp's server until September 2025
            self._data.append(b'{"error":%b}' % value)
        # A comment has an empty field name; `id` and `retry` serve a browser's reconnection, which no provider offers.
        return None

    def _dispatch(self) -> Event | None:
        name, data = self._name, b"\n".join(self._data).strip()
        self._name = None
        self._data.clear()
        if not data:
            return None
        return Event(name, DONE if data == _DONE else parse(data))


class LinesDecoder:
    """Turns lines of JSON, cut anywhere, into events without a name."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines = _Lines()

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that these bytes complete."""
        return (Event(None, parse(line)) for line in self._lines.feed(chunk) if line.strip())

    def close(self) -> list[Event]:
        """The last line, where the stream ended without a line end, if it is a whole object."""
        try:
            data = parse(self._lines.close())
        except DecodeError:
            return []
        return [Event(None, data)] if isinstance(data, dict) else []


_DECODERS: Final[Mapping[Framing, Callable[[], BytesDecoder]]] = {
    Framing.SSE: SSEDecoder,
    Framing.NDJSON: LinesDecoder,
    Framing.EVENTSTREAM: aws.MessagesDecoder,
}


def parse(data: bytes | bytearray | str) -> Any:
    """JSON as Python values; of text that is no UTF-8, with what cannot be read replaced.

    Raises:
        DecodeError: it is not JSON.
    """
    try:
        return from_json(data, cache_strings="keys")
    except ValueError:
        # A byte order mark in front is none of the text.
        readable = data.removeprefix("\ufeff") if isinstance(data, str) else data.decode("utf-8-sig", "replace")
    try:
        return json.loads(readable)  # Python's own reader takes more: half of a surrogate pair, say.
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"the provider sent something that is not JSON: {error}", body=shortened(readable)) from None


def events(chunks: Iterable[bytes], framing: Framing = Framing.SSE) -> Iterator[Event]:
    """The events of a response's bytes, as they arrive.

    Raises:
        DecodeError: an event's data is not JSON.
    """
    reading = decoder(framing)
    for chunk in chunks:
        yield from reading.feed(chunk)
    yield from reading.close()


def frame(event: Event, framing: Framing = Framing.SSE) -> bytes:
    """One event as bytes."""
    if framing is Framing.NDJSON:
        return json.dumps(event.data, separators=(",", ":")).encode() + b"\n"
    if framing is Framing.EVENTSTREAM:
        return aws.message(event)
    data = event.data if event.data == DONE else json.dumps(event.data, separators=(",", ":"))
    name = f"event: {event.name}\n" if event.name else ""
    return f"{name}data: {data}\n\n".encode()
