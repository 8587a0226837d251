"""Read a provider's reply from a log, a cache, a queue or batch results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from endturn.errors import DecodeError, UsageError
from endturn.formats import framing
from endturn.formats.errors import safe_excerpt
from endturn.formats.format import Format
from endturn.formats.registry import Context, Event, Framing, RequestSummary, dialect_in, format_of
from endturn.formats.sdk_objects import as_json
from endturn.vocabulary import ChatResponse, Request

Chunk = str | bytes | bytearray | memoryview

_BLANK: Final = b" \t\r\n\xef\xbb\xbf"
"""Bytes that may precede a reply; the last three are a byte order mark."""


def read(
    reply: Any,
    *,
    format: str,
    provider: str | None = None,
    request: Request | Mapping[str, Any] | None = None,
) -> ChatResponse:
    """Read a provider's reply: text, tool calls, usage, and the Stop.

    Args:
        reply: a body or a stream, complete or not: a parsed body; bytes or text of either; an
            iterable of a stream's events, each parsed JSON or an object of an SDK, or of its bytes
            or text.
        format: the API's format: "openai_chat", "openai_responses", "anthropic", "gemini", …
        provider: the sender, as in `gen_ai.provider.name`; servers of one format use different
            words. An unknown name counts as any server of the format.
        request: our Request, or the JSON that was sent. Its limit of output tokens shows that an
            answer may be truncated at the limit, its number of choices that several choices are not
            one split answer.

    Returns:
        The response. `stop.reason` is `missing` if a stream broke off: an end is never assumed.

    Raises:
        DecodeError: the reply is not in that format, or its JSON is damaged.
        ProviderError: the reply is an error; `partial` holds the response before it.
        UsageError: there is no such format, or the reply has a type that cannot be read.
    """
    reply_format = format_of(format)
    context = Context(
        dialect_in(reply_format, provider or ""),
        provider or reply_format.provider,
        _summarize_request(reply_format, request),
    )
    body_or_events = _body_or_events(reply, reply_format.framing)
    if isinstance(body_or_events, Mapping):
        return reply_format.decode(body_or_events, ctx=context)
    decoder = reply_format.decoder(context)
    for event in body_or_events:
        for _ in decoder.feed(event):
            pass
    return decoder.close()


def _summarize_request(
    reply_format: Format, request: Request | Mapping[str, Any] | None
) -> RequestSummary:
    if isinstance(request, Request):
        request = {"model": request.model, **reply_format.encode(request)}
    return RequestSummary() if request is None else reply_format.request_summary(request)


def _body_or_events(reply: Any, stream: Framing) -> Mapping[str, Any] | Iterable[Event]:
    """Return a body, or the events of a stream."""
    reply = as_json(reply)
    if isinstance(reply, Chunk):
        parsed = _parse([reply], stream)
        # a list in JSON is a list of events
        return parsed if isinstance(parsed, Mapping) else _events(parsed)
    if isinstance(reply, Mapping):
        return reply
    if not isinstance(reply, Iterable):
        hint = ": collect what it gives first" if hasattr(reply, "__aiter__") else ""
        raise UsageError(
            f"a reply must be a body, or an iterable of a stream's events, not "
            f"{type(reply).__name__}{hint}"
        )
    entries = list(reply)
    if not entries or not isinstance(entries[0], Chunk):
        return _events(entries)
    for entry in entries:
        if not isinstance(entry, Chunk):
            raise UsageError(
                f"after bytes or text all further items must be of the same type, not "
                f"{type(entry).__name__}"
            )
    body_or_events = _parse(entries, stream)
    return body_or_events if isinstance(body_or_events, Mapping) else _events(body_or_events)


def _events(entries: Iterable[Any]) -> Iterator[Event]:
    return (event if isinstance(event, Event) else Event(None, as_json(event)) for event in entries)


def _parse(pieces: Iterable[Chunk], stream: Framing) -> Any:
    """Parse bytes or text, split anywhere, as JSON or as the events of a stream."""
    chunks = [
        piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else bytes(piece)
        for piece in pieces
    ]
    data = lines = b"".join(chunks).lstrip(_BLANK)
    if b"\n" not in data and b"\r" not in data:
        # No line ends, as from httpx's `iter_lines()`.
        lines = b"\n".join(chunks).lstrip(_BLANK)
    if data[:1] in (b"{", b"["):
        try:
            return framing.parse(data)
        except DecodeError:
            if b"\n{" not in lines:
                raise
        return framing.events([lines], Framing.NDJSON)
    if not begins_stream(data, stream):
        readable = safe_excerpt(data.decode("utf-8", "replace"))
        raise DecodeError(
            f"neither JSON nor a stream of that format: {readable[:80]!r}", body=readable
        )
    is_split_by_line = stream is Framing.SSE and all(
        begins_stream(piece, stream) for piece in chunks
    )
    return framing.events([lines if is_split_by_line else data], stream)


def begins_stream(data: bytes, stream: Framing) -> bool:
    """Return whether the bytes may start a stream of that framing, even part of its first word."""
    data = data.lstrip(_BLANK)
    match stream:
        case Framing.SSE:
            field = data.partition(b"\n")[0].partition(b":")[0].rstrip()
            return any(
                name.startswith(field) for name in (b"data", b"event", b"id", b"retry", b"error")
            )
        case Framing.NDJSON:
            return not data or data[:1] == b"{"
        case Framing.EVENTSTREAM:  # a message begins with its length, which is below 16 MiB
            return not data or data[:1] == b"\0"
