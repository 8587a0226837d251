"""A provider's reply that is already at hand, read as what it says: from a log, a cache, a queue, a batch's results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from endturn.chat import ChatResponse, Request
from endturn.errors import DecodeError, UsageError
from endturn.formats import Context, Event, Framing, RequestSummary, dialect_in, format_of, framing
from endturn.formats.format import Format
from endturn.sdk_objects import dumped


def read(
    reply: Any, *, format: str, provider: str | None = None, request: Request | Mapping[str, Any] | None = None
) -> ChatResponse:
    """What a provider's reply says: text, tool calls, usage, and the Stop that says whether it is whole.

    Args:
        reply: a body or a stream, cut or whole: a parsed body; bytes or text of either; an iterable of a stream's
            events, each parsed JSON or an object of an SDK, or of its bytes or text as they came.
        format: the API that it is of: "openai_chat", "openai_responses", "anthropic", "gemini", …
        provider: who sent it, as in `gen_ai.provider.name`; servers of one format use different words. Unknown names
            are read as any server that speaks the format.
        request: what was asked, ours or the JSON that was sent: with its limit of output tokens an answer that fills
            it is suspected to be cut, with its number of choices several are told from one that was split.

    Returns:
        What arrived. `stop.reason` is `missing` where a stream broke off: an end is never assumed.

    Raises:
        DecodeError: it is no reply of that format, or its JSON is damaged.
        ProviderError: the reply is an error; `partial` holds what had arrived before it.
        UsageError: there is no such format, or the reply is of a kind that cannot be read.
    """
    speaks = format_of(format)
    context = Context(dialect_in(speaks, provider or ""), provider or speaks.provider, _asked(speaks, request))
    found = _opened(reply, speaks.framing)
    if isinstance(found, Mapping):
        return speaks.decode(found, ctx=context)
    decoder = speaks.decoder(context)
    for event in found:
        for _ in decoder.feed(event):
            pass
    return decoder.close()


def _asked(speaks: Format, request: Request | Mapping[str, Any] | None) -> RequestSummary:
    if isinstance(request, Request):
        request = {"model": request.model, **speaks.encode(request)}
    return RequestSummary() if request is None else speaks.request_summary(request)


def _opened(reply: Any, stream: Framing) -> Mapping[str, Any] | Iterable[Event]:
    """A body, or the events of a stream."""
    reply = dumped(reply)
    if isinstance(reply, str | bytes | bytearray | memoryview):
        data = _bytes(reply).lstrip(b" \t\r\n\xef\xbb\xbf")
        if data[:1] not in (b"{", b"["):
            return framing.events([data], stream)
        try:
            reply = framing.parse(data)
        except DecodeError:
            if b"\n{" not in data:
                raise
            return framing.events([data], Framing.NDJSON)
    if isinstance(reply, Mapping):
        return reply
    if not isinstance(reply, Iterable):
        hint = ": collect what it gives first" if hasattr(reply, "__aiter__") else ""
        raise UsageError(f"a reply is a body, or an iterable of a stream's events, not {type(reply).__name__}{hint}")
    return _events(iter(reply), stream)


def _events(given: Iterator[Any], stream: Framing) -> Iterator[Event]:
    for first in given:
        if isinstance(first, str | bytes):
            yield from framing.events((_bytes(each) for each in chain([first], given)), stream)
            return
        for event in chain([first], given):
            yield event if isinstance(event, Event) else Event(None, dumped(event))


def _bytes(said: Any) -> bytes:
    return said.encode("utf-8", "surrogatepass") if isinstance(said, str) else bytes(said)
