"""Convert between bytes and events of a stream: server-sent events and lines of JSON.

Implemented here because each maintained decoder depends on an HTTP library (httpx-sse imports
httpx, openai and anthropic import httpx2), and a format does no I/O. The specification:
https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any, Final, Protocol

from pydantic_core import from_json

from endturn.errors import DecodeError
from endturn.formats import aws_eventstream as aws
from endturn.formats.errors import safe_excerpt
from endturn.formats.summaries import Event, Framing, check_size

DONE: Final = "[DONE]"
"""The data of the event that ends a stream of the chat format; it is not JSON."""

_DONE: Final = DONE.encode()
END_MARKERS: Final = (_DONE, b"error")
"""Words of which every event has one that ends a stream of any format and is not the format's own
last event: see `end_markers`."""
_BOM: Final = b"\xef\xbb\xbf"
_LINE_BYTES: Final = 64
"""Memory that a line takes besides its bytes."""


CONTENT_TYPE: Final = {
    Framing.SSE: "text/event-stream; charset=utf-8",
    Framing.NDJSON: "application/x-ndjson",
    Framing.EVENTSTREAM: "application/vnd.amazon.eventstream",
}
"""The media type of a stream of each framing."""


class BytesDecoder(Protocol):
    """Decodes a stream's bytes, split anywhere, into events."""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete.

        Lazy, so that the events before a bad one are yielded before it raises.

        Raises:
            DecodeError: an event's data is not JSON.
        """

    def close(self) -> list[Event]:
        """Return the last event, if the stream ended without the line end that should follow it."""


def decoder(framing: Framing, *, limit: int | None = None) -> BytesDecoder:
    """Return a decoder of a framing.

    Args:
        limit: bytes of one event that are buffered; a longer event raises TooLargeError.
    """
    return _DECODERS[framing](limit)


class _Lines:
    """Splits bytes, in pieces of any size, into lines; copies a line of many pieces only once."""

    __slots__ = ("_limit", "_rest")

    def __init__(self, limit: int | None) -> None:
        self._rest = bytearray()
        self._limit = limit

    def feed(self, chunk: bytes) -> list[bytes]:
        """Yield the lines that these bytes complete.

        Raises:
            TooLargeError: one of them is longer than the limit.
        """
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if self._rest and lines:
            check_size(len(self._rest) + len(lines[0]), self._limit)
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        if rest:
            check_size(len(self._rest) + len(rest), self._limit)
            self._rest += rest
        return lines

    def close(self) -> bytes:
        """Return the bytes after the last line's end."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest


class SSEDecoder:
    """Decodes a stream's bytes, split anywhere, into events.

    An event that the end of the stream cut off counts only if its data is complete JSON.
    """

    __slots__ = ("_data", "_first", "_limit", "_lines", "_name", "_size", "_skip_lf")

    def __init__(self, limit: int | None = None) -> None:
        self._lines = _Lines(limit)
        self._limit = inf if limit is None else limit
        self._size = 0
        self._skip_lf = False
        self._first = True
        self._name: str | None = None
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete."""
        if not chunk:
            return
        if self._skip_lf and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        # A CR ends its line at once; an LF that follows in the next chunk belongs to it.
        self._skip_lf = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        data = self._data
        for line in self._lines.feed(chunk):
            if self._first:
                self._first = False
                line = line.removeprefix(_BOM)
            if line.startswith(b"data: "):  # nearly all lines
                self._add(line[6:])
            elif line:
                self._field(line)
            elif not data:  # one of many blank lines, or the end of an event that has but a name
                self._name = None
            elif (event := self._dispatch()) is not None:
                yield event

    def close(self) -> list[Event]:
        """Return the last event, if the stream ended without the blank line after it."""
        rest = self._lines.close()
        if rest := rest.removeprefix(_BOM) if self._first else rest:
            self._field(rest)
        try:
            event = self._dispatch()
        except DecodeError:
            return []
        # A number or a bare word may be the beginning of a longer one; an object closes itself.
        is_complete = event is not None and (
            event.data == DONE or isinstance(event.data, dict | list)
        )
        return [event] if event is not None and is_complete else []

    def _field(self, line: bytes) -> None:
        """Take a line that is not empty."""
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._add(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace") or None
        # llama-box, and llama.cpp's server until September 2025
        elif field == b"error" and value.startswith(b"{"):
            self._data.append(b'{"error":%b}' % value)
        # A comment has an empty field name; `id` and `retry` serve a browser's reconnection, which
        # no provider offers.

    def _add(self, value: bytes) -> None:
        """Take a line of an event's data."""
        self._size += len(value) + _LINE_BYTES
        if self._size > self._limit:
            check_size(self._size, self._limit)
        self._data.append(value)

    def _dispatch(self) -> Event | None:
        name, data = self._name, b"\n".join(self._data).strip()
        self._name = None
        self._data.clear()
        self._size = 0
        if not data:
            return None
        return Event(name, DONE if data == _DONE else parse(data))


class LinesDecoder:
    """Decodes lines of JSON, split anywhere, into events without a name."""

    __slots__ = ("_lines",)

    def __init__(self, limit: int | None = None) -> None:
        self._lines = _Lines(limit)

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete."""
        return (Event(None, parse(line)) for line in self._lines.feed(chunk) if line.strip())

    def close(self) -> list[Event]:
        """Return the last line, if the stream ended without a line end and it is an object."""
        try:
            data = parse(self._lines.close())
        except DecodeError:
            return []
        return [Event(None, data)] if isinstance(data, dict) else []


_DECODERS: Final[Mapping[Framing, Callable[[int | None], BytesDecoder]]] = {
    Framing.SSE: SSEDecoder,
    Framing.NDJSON: LinesDecoder,
    Framing.EVENTSTREAM: aws.MessagesDecoder,
}


def parse(data: bytes | bytearray | str) -> Any:
    """Parse JSON; bytes that are no UTF-8 are replaced.

    Raises:
        DecodeError: it is not JSON.
    """
    try:
        return from_json(data, cache_strings="keys")
    except (ValueError, TypeError):  # TypeError: a text holds half of a surrogate pair
        # A byte order mark is not part of the text.
        readable = (
            data.removeprefix("\ufeff")
            if isinstance(data, str)
            else data.decode("utf-8-sig", "replace")
        )
    try:
        # Python's own parser accepts more: half of a surrogate pair, say.
        return json.loads(readable)
    except (ValueError, RecursionError) as error:
        raise DecodeError(
            f"the provider sent invalid JSON: {error}", body=safe_excerpt(readable)
        ) from None


def events(chunks: Iterable[bytes], framing: Framing = Framing.SSE) -> Iterator[Event]:
    """Yield the events of a response's bytes, as they arrive.

    Raises:
        DecodeError: an event's data is not JSON.
    """
    bytes_decoder = decoder(framing)
    for chunk in chunks:
        yield from bytes_decoder.feed(chunk)
    yield from bytes_decoder.close()


def frame(event: Event, framing: Framing = Framing.SSE) -> bytes:
    """Return one event as bytes."""
    if framing is Framing.NDJSON:
        return json.dumps(event.data, separators=(",", ":")).encode() + b"\n"
    if framing is Framing.EVENTSTREAM:
        return aws.message(event)
    data = event.data if event.data == DONE else json.dumps(event.data, separators=(",", ":"))
    name = f"event: {event.name}\n" if event.name else ""
    return f"{name}data: {data}\n\n".encode()
