"""The bytes of an answer: read as they pass to the host, which gets the same bytes at the same time."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from json import JSONDecoder, loads
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import from_json

from endturn.chat import ChatResponse, Request
from endturn.errors import DecodeError, ProviderError
from endturn.events import Content
from endturn.formats import Context, Event, Framing, ResponseSummary
from endturn.formats.errors import error_of
from endturn.formats.framing import CONTENT_TYPE, DONE, decoder, parse
from endturn.formats.request_body import request_of
from endturn.hooks import log_internal_error
from endturn.scopes import Call
from endturn.stop import Stop, StopReason

if TYPE_CHECKING:
    from endturn.formats.format import Format
    from endturn.instrumentation.exchange import Exchange

UnpackWhole = Callable[[str, bytes], bytes]
"""Unpacks a whole body, given its content encoding. Raises ValueError where it cannot."""

_FRAMINGS: Final = {
    **{kind.partition(";")[0]: framing for framing, kind in CONTENT_TYPE.items()},
    "application/stream+json": Framing.NDJSON,  # cohere's first API
    "application/jsonl": Framing.NDJSON,
}
_EVENTS: Final = (b"data:", b"event:")
"""How server-sent events begin, and no JSON does."""


def tee(chunks: Iterable[bytes], exchange: Exchange) -> Iterator[bytes]:
    """Hand the chunks on, and tell the exchange of each, and how they ended.

    A generator that is closed says nothing: that may be the garbage collector's doing. Whoever closes the body does.
    """
    try:
        for chunk in chunks:
            exchange.feed(chunk)
            yield chunk
    except GeneratorExit:
        raise
    except BaseException as error:
        exchange.cut(error)
        raise
    exchange.end()


class AsyncTee:
    """`tee` of chunks that arrive asynchronously. No generator: those live on until their loop closes them."""

    __slots__ = ("_chunks", "_exchange")

    def __init__(self, chunks: AsyncIterator[bytes], exchange: Exchange) -> None:
        self._chunks = chunks
        self._exchange = exchange

    def __aiter__(self) -> AsyncTee:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._chunks.__anext__()
        except StopAsyncIteration:
            self._exchange.end()
            raise
        except BaseException as error:
            self._exchange.cut(error)
            raise
        self._exchange.feed(chunk)
        return chunk

    async def aclose(self) -> None:
        """Close what the chunks come from, if it can be closed."""
        aclose = getattr(self._chunks, "aclose", None)
        if aclose is not None:
            await aclose()


AsyncGenerator.register(AsyncTee)  # whoever reads a part of a generator closes it: so this can be closed like one


class Answer:
    """Reads an answer from its bytes: events as they come, or one JSON value at its end, whatever its encoding.

    Attributes:
        done: the stream's last word has passed, or the provider's error in its place: what follows says nothing.
        error: what the provider sent instead of an answer, or of its end; known when closed.
        is_begun: something of the format's came, if nothing that it says.
        unpacker: of a body whose bytes come compressed.
    """

    def __init__(
        self,
        speaks: Format,
        context: Context,
        status: int,
        headers: Mapping[str, str],
        capture: ContentCapture | None = None,
        unpack_whole: UnpackWhole | None = None,
    ) -> None:
        self._format = speaks
        self._context = context
        self._status = status
        self._headers = headers
        self._capture = capture
        self._watch = speaks.summarizer(context)
        self._pieces: list[bytes] = []
        self.done = False
        self.is_begun = False
        self.error: ProviderError | None = None
        framing = framing_of(headers.get("content-type") or "", speaks, context) if status < 300 else None
        self._events = None if framing is None else decoder(framing)
        self._is_framed = framing is Framing.EVENTSTREAM  # nobody else's API answers in AWS's frames
        encoding = (headers.get("content-encoding") or "").strip().lower()
        self.unpacker = Unpacker(encoding, unpack_whole) if encoding not in ("", "identity") else None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes. Readers may stop at the last event, and never close the stream.

        Raises:
            DecodeError: they are not in the format.
        """
        if self.unpacker is not None:
            chunk = self.unpacker.feed(chunk)
        if self._events is None and not self._pieces and self._status < 300 and chunk.startswith(_EVENTS):
            self._events = decoder(Framing.SSE)  # though it is labelled as one JSON value
        if self._events is None:
            self._pieces.append(chunk)
            return
        for event in self._events.feed(chunk):
            self.is_begun |= self._is_framed
            self._show(event)
            if event.data == DONE or self._watch.over or self._watch.broken:
                self.done = True
                return

    def _show(self, item: Any) -> None:
        if self._capture is not None:
            self._capture.add(item)
        self._watch.feed(item)

    def close(self, *, left: bool = False) -> ResponseSummary:
        """What was seen; `left`, where whoever read the bytes stopped.

        Raises:
            DecodeError: the body is not in the format.
        """
        unpacker, self.unpacker = self.unpacker, None
        if unpacker is not None:
            self.feed(unpacker.close())
        if self._status >= 300:
            self.error = error_of(self._status, self._headers, b"".join(self._pieces), ctx=self._context)
            # Most say nothing of the model's stop but that there was none.
            return ResponseSummary(self.error.stop or Stop(StopReason.ERROR, incomplete=True))
        if self._events is None:
            return self._whole(left=left)
        for event in () if self.done else self._events.close():
            self._show(event)
        if self._watch.broken:
            self.error = ProviderError("the provider sent an error within its stream")
        return self._watch.close(left=left and not self.done)

    def _whole(self, *, left: bool) -> ResponseSummary:
        """Read one JSON value: one that is cut says nothing; Gemini streams an array of what are events elsewhere."""
        body = b"".join(self._pieces)
        try:
            found = parse(body)
        except DecodeError:
            if body and not _is_cut(body):
                raise
            self.is_begun = body != b""
            return self._watch.close(left=left)
        for one in found if isinstance(found, list) else (found,):
            if isinstance(one, Mapping):
                self._show(self._with_figures(one) if self._format.name == "bedrock_invoke" else one)
        seen = self._watch.close(left=left)
        if says_nothing(seen):
            raise DecodeError("the provider sent JSON of another format")
        return seen

    def _with_figures(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Bedrock says in the headers what some families do not say in the body."""
        figures = {name: value for name, value in self._headers.items() if name.lower().endswith("-token-count")}
        return {"ResponseMetadata": {"HTTPHeaders": figures}, "body": body} if figures else body


class Unpacker:
    """Unpacks gzip as it comes. Of other encodings the HTTP library unpacks a whole body, if it can."""

    def __init__(self, encoding: str, unpack_whole: UnpackWhole | None) -> None:
        self._encoding = encoding
        self._unpack_whole = unpack_whole
        self._packed: list[bytes] = []
        self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding in ("gzip", "x-gzip") else None

    def feed(self, chunk: bytes) -> bytes:
        """What these bytes give."""
        if self._inflate is None:
            self._packed.append(chunk)
            return b""
        try:
            return self._inflate.decompress(chunk)
        except zlib.error as error:
            raise DecodeError(f"the body is not {self._encoding}: {error}") from None

    def close(self) -> bytes:
        """What could not be unpacked as it came."""
        packed, self._packed = b"".join(self._packed), []
        if not packed:
            return b""
        if self._unpack_whole is None:
            raise DecodeError(f"there is no decoder of {self._encoding} here")
        try:
            return self._unpack_whole(self._encoding, packed)
        except ValueError as error:
            raise DecodeError(f"the body is not {self._encoding}: {error}") from None


def says_nothing(seen: ResponseSummary) -> bool:
    """Whether nothing was seen of an answer: what was read is of another format."""
    return seen.stop.reason is StopReason.MISSING and not (seen.id or seen.model or seen.usage or seen.output_chars)


def framing_of(content_type: str, speaks: Format, context: Context) -> Framing | None:
    """How the events of an answer are told apart; None where it is one JSON value."""
    kind = content_type.partition(";")[0].strip().lower()
    found = _FRAMINGS.get(kind)
    if found is not None or not context.asked.stream or "json" in kind:
        return found
    return Framing.NDJSON if context.dialect == "v1" else speaks.framing


def _is_cut(body: bytes) -> bool:
    """Whether what is not JSON is the beginning of a JSON object, or of an array."""
    begun = body.decode("utf-8", "ignore").lstrip("\ufeff \t\r\n")
    try:
        from_json(begun, allow_partial=True)
    except ValueError:
        return False
    try:
        JSONDecoder().raw_decode(begun)
    except (ValueError, RecursionError):
        return begun.startswith(("{", "["))
    return False  # whole, but something follows


def json_object(content: Any) -> Mapping[str, Any] | None:
    """A request's JSON object, where it is in memory: nothing is read that is not."""
    if isinstance(content, Mapping):
        return content
    if not isinstance(content, str | bytes | bytearray):
        return None
    try:
        found = from_json(content, cache_strings="keys")
    except ValueError:
        try:
            found = loads(content)  # it takes half of a character too, as `dumps` writes it
        except ValueError:
            return None
    return found if isinstance(found, dict) else None


def why_cut(error: BaseException) -> tuple[StopReason, BaseException, str | None]:
    """What an answer's end is whose reading raised, where the answer itself does not say."""
    if not isinstance(error, Exception):
        return StopReason.CANCELLED, error, None
    name = type(error).__name__
    return StopReason.MISSING, error, "timeout" if "Timeout" in name else name


def or_else(
    seen: ResponseSummary, otherwise: StopReason | None, error: BaseException | None, detail: str | None
) -> ResponseSummary:
    """What was seen, and where no reason has come, why: the first terminal wins, an error after it is a detail."""
    stop = seen.stop
    if stop.reason is StopReason.MISSING and otherwise is not None:
        return replace(seen, stop=replace(stop, reason=otherwise, detail=detail, incomplete=True))
    if error is not None and stop.detail is None and detail is not None:
        return replace(seen, stop=replace(stop, detail=detail))
    return seen


def end_call(
    call: Call, seen: ResponseSummary, error: BaseException | None = None, over_s: float | None = None
) -> None:
    """End a call with what was seen of its answer."""
    call.end(
        seen.stop,
        usage=seen.usage,
        response_id=seen.id,
        response_model=seen.model,
        reasons=seen.reasons,
        output_chars=seen.output_chars,
        tail=seen.tail,
        error=error,
        over_s=over_s,
    )
    call.asked = call.outer = None  # a connection may keep the context in which it was opened, and the call with that


# --- What is said, kept while its answer is watched: only where a listener takes content ---------------------------


def capture(call: Call, speaks: Format, body: Mapping[str, Any] | Request, context: Context) -> ContentCapture:
    """Have the call's record say what was asked, and what the returned capture has seen when the call ends.

    Args:
        body: what is sent, read now: a host may change it before the answer has come.
    """
    request = body if isinstance(body, Request) else _request(speaks, body, context)
    captured = ContentCapture(speaks, context)
    beside = context.asked.system is not None
    call.content = lambda stop: Content(request=request, beside=beside, responses=captured.responses(stop))
    return captured


def _request(speaks: Format, body: Mapping[str, Any], context: Context) -> Request | None:
    try:
        return request_of(speaks, {"model": context.asked.model, **body})
    except (DecodeError, ValueError, TypeError):  # pydantic's too: not in the format, so it is not known
        return None
    except Exception:
        log_internal_error("reading a request")
        return None


class ContentCapture:
    """One answer while it arrives: a whole body, or events. Never raises."""

    def __init__(self, speaks: Format, context: Context) -> None:
        self._format = speaks
        self._choices = context.asked.choices
        self._is_stream = context.asked.stream
        # Each choice is read as if it were the only one.
        self._context = context if self._choices == 1 else replace(context, asked=replace(context.asked, choices=1))
        self._decoders: dict[int, Any] = {}
        self._body: Any = None
        self._is_over = False

    def add(self, item: Any) -> None:
        """Take the next event, or the body."""
        if self._is_over:
            return
        try:
            if isinstance(item, Event):
                self._feed(item)
            elif self._is_stream:
                self._feed(Event(None, item))
            else:
                self._body = item
        except (DecodeError, ProviderError):
            self._is_over = True  # the provider's error, or another format: what came before it is the answer
        except Exception:
            self._is_over = True
            log_internal_error("keeping what was said")

    def _feed(self, event: Event) -> None:
        for index, each in _each_choice(event.data, self._choices):
            if index not in self._decoders:
                self._decoders[index] = self._format.decoder(self._context)
            # Some decoders are generators: nothing happens until they are asked.
            for _ in self._decoders[index].feed(Event(event.name, each)):
                pass

    def responses(self, stop: Stop) -> tuple[ChatResponse, ...]:
        """What came, an item for each choice. `stop` is the first one's, whose end was perhaps not waited for."""
        if self._decoders:
            first, *others = (self._decoders[index].close() for index in sorted(self._decoders))
            return (first.model_copy(update={"stop": stop}), *others)
        if self._body is None:
            return ()
        try:
            return tuple(
                self._format.decode(body, ctx=self._context) for _, body in _each_choice(self._body, self._choices)
            )
        except (DecodeError, ProviderError):
            return ()


_CHOICES: Final = ("choices", "candidates")
"""Where a body or a chunk lists several answers."""


def _each_choice(data: Any, choices: int) -> list[tuple[int, Any]]:
    """A body or chunk, for each of several answers as if that were the only one, with its number."""
    if choices == 1 or not isinstance(data, Mapping):
        return [(0, data)]
    name = next((name for name in _CHOICES if isinstance(data.get(name), list)), None)
    if name is None or not data[name]:
        return [(0, data)]
    return [
        (index if isinstance(index, int) else place, {**data, name: [{**each, "index": 0}]})
        for place, each in enumerate(data[name])
        if isinstance(each, Mapping)
        for index in (each.get("index"),)
    ]
