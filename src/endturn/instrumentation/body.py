"""The bytes of an answer: read as they pass to the host, which gets the same bytes at the same time."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
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

UNREAD: Final = ResponseSummary(Stop(StopReason.UNKNOWN, detail="unreadable"))
"""Of a response that endturn could not read."""

ABANDONED: Final = "abandoned"
"""The detail of a response that its host dropped without closing it."""

_FRAMINGS: Final = {
    **{kind.partition(";")[0]: framing for framing, kind in CONTENT_TYPE.items()},
    "application/stream+json": Framing.NDJSON,  # cohere's first API
    "application/jsonl": Framing.NDJSON,
}
_EVENTS: Final = (b"data:", b"event:")
"""How server-sent events begin, and no JSON does."""


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
        said: list[Any] | None = None,
    ) -> None:
        self._format = speaks
        self._context = context
        self._status = status
        self._headers = headers
        self._said = said
        self._summary = speaks.summarizer(context)
        self._pieces: list[bytes] = []
        self.done = False
        self.is_begun = False
        self.error: ProviderError | None = None
        framing = framing_of(headers.get("content-type") or "", speaks, context) if status < 300 else None
        self._events = None if framing is None else decoder(framing)
        self._is_framed = framing is Framing.EVENTSTREAM  # nobody else's API answers in AWS's frames
        encoding = (headers.get("content-encoding") or "").strip().lower()
        self.unpacker = Unpacker(encoding) if encoding not in ("", "identity") else None

    def feed(self, chunk: bytes) -> bool:
        """Take the next bytes.

        Returns:
            Whether that was all: readers may stop at the last event, and never close the stream.

        Raises:
            DecodeError: they are not in the format.
        """
        if self.unpacker is not None:
            chunk = self.unpacker.feed(chunk)
        events = self._events
        if events is None:
            if self._pieces or self._status >= 300 or not chunk.startswith(_EVENTS):
                self._pieces.append(chunk)
                return False
            events = self._events = decoder(Framing.SSE)  # though it is labelled as one JSON value
        summary = self._summary
        for event in events.feed(chunk):
            self.is_begun |= self._is_framed
            if self._said is not None:
                self._said.append(event)
            summary.feed(event)
            if event.data == DONE or summary.over or summary.broken:
                self.done = True
                break
        return self.done

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
        values = self._values() if self._events is None else [] if self.done else self._events.close()
        for value in values or ():
            if self._said is not None:
                self._said.append(value)
            self._summary.feed(value)
        seen = self._summary.close(left=left and not self.done)
        if self._events is None and values is not None and says_nothing(seen):
            raise DecodeError("the provider sent JSON of another format")
        if self._events is not None and self._summary.broken:
            self.error = ProviderError("the provider sent an error within its stream")
        return seen

    def _values(self) -> list[Any] | None:
        """What one JSON value holds: Gemini streams an array of what are events elsewhere. None where it is cut.

        Raises:
            DecodeError: it is neither JSON nor the beginning of it.
        """
        body = b"".join(self._pieces)
        try:
            found = parse(body)
        except DecodeError:
            if body and not _is_cut(body):
                raise
            self.is_begun = body != b""
            return None
        if isinstance(found, Mapping) and self._format.name == "bedrock_invoke":
            # Bedrock says in the headers what some families do not say in the body.
            figures = {name: value for name, value in self._headers.items() if name.lower().endswith("-token-count")}
            found = {"ResponseMetadata": {"HTTPHeaders": figures}, "body": found} if figures else found
        return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, Mapping)]


class Unpacker:
    """Unpacks gzip as it comes, and whatever else httpx can when all has come."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._packed: list[bytes] = []
        self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding in ("gzip", "x-gzip") else None

    def feed(self, chunk: bytes) -> bytes:
        """What these bytes give.

        Raises:
            DecodeError: they are not in that encoding.
        """
        if self._inflate is None:
            self._packed.append(chunk)
            return b""
        try:
            return self._inflate.decompress(chunk)
        except zlib.error as error:
            raise DecodeError(f"the body is not {self._encoding}: {error}") from None

    def close(self) -> bytes:
        """What could not be unpacked as it came. Of a body that was cut, as much as its beginning gives.

        Raises:
            DecodeError: it is not in that encoding, or there is no decoder for that here.
        """
        packed, found = b"".join(self._packed), b""
        if not packed:
            return b""
        import httpx  # only here: most answers are plain, or gzip

        answer = httpx.Response(200, headers={"content-encoding": self._encoding}, content=iter([packed]))
        try:
            for piece in answer.iter_bytes():
                found += piece
        except httpx.DecodingError as error:
            if not found:
                raise DecodeError(f"the body is not {self._encoding}: {error}") from None
        if found == packed:
            raise DecodeError(f"there is no decoder of {self._encoding} here")
        return found


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
        from_json(begun)
    except ValueError as error:
        return begun.startswith(("{", "[")) and "EOF" in str(error)  # it names the place where it found the end
    return False


def json_object(content: Any) -> Mapping[str, Any] | None:
    """A request's JSON object, where it is in memory: nothing is read that is not."""
    if isinstance(content, BytesIO):
        content = content.getvalue()[content.tell() :]
    if isinstance(content, str | bytes | bytearray):
        try:
            content = parse(content)
        except DecodeError:
            return None
    return content if isinstance(content, Mapping) else None


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


# --- What is said: only where a listener takes content -------------------------------------------------------------


def keep_content(call: Call, speaks: Format, given: Mapping[str, Any] | Request, context: Context) -> list[Any]:
    """Have the call's record say what was asked, and what the returned list holds when the call ends.

    Args:
        given: what is sent, read now: a host may change it before the answer has come.

    Returns:
        Takes the body, or the events.
    """
    request = given if isinstance(given, Request) else _request(speaks, given, context)
    said: list[Any] = []
    beside = context.asked.system is not None
    call.content = lambda stop: Content(
        request=request, beside=beside, responses=_responses(speaks, context, said, stop)
    )
    return said


def _request(speaks: Format, given: Mapping[str, Any], context: Context) -> Request | None:
    try:
        return request_of(speaks, {"model": context.asked.model, **given})
    except (DecodeError, ValueError, TypeError):  # pydantic's too: not in the format, so it is not known
        return None
    except Exception:
        log_internal_error("reading a request")
        return None


def _responses(speaks: Format, context: Context, said: list[Any], stop: Stop) -> tuple[ChatResponse, ...]:
    """What came, an item for each choice. `stop` is the first one's, whose end was perhaps not waited for."""
    choices = context.asked.choices
    # Each choice is read as if it were the only one.
    alone = replace(context, asked=replace(context.asked, choices=1))
    decoders: dict[int, Any] = {}
    with suppress(DecodeError, ProviderError):  # the provider's error, or another format: what came before it counts
        for item in said:
            if not (isinstance(item, Event) or context.asked.stream):
                return tuple(speaks.decode(each, ctx=alone) for _, each in _each_choice(item, choices))
            name, data = item if isinstance(item, Event) else (None, item)
            for index, each in _each_choice(data, choices):
                if index not in decoders:
                    decoders[index] = speaks.decoder(alone)
                decoders[index].feed(Event(name, each))
    found = [decoders[index].close() for index in sorted(decoders)]
    return (found[0].model_copy(update={"stop": stop}), *found[1:]) if found else ()


_CHOICES: Final = ("choices", "candidates")
"""Where a body or a chunk lists several answers."""


def _each_choice(data: Any, choices: int) -> list[tuple[int, Any]]:
    """A body or chunk, for each of several answers as if that were the only one, with its number."""
    is_several = choices > 1 and isinstance(data, Mapping)
    name = next((name for name in _CHOICES if is_several and data.get(name) and isinstance(data[name], list)), None)
    if name is None:
        return [(0, data)]
    return [
        (index if isinstance(index, int) else place, {**data, name: [{**each, "index": 0}]})
        for place, each in enumerate(data[name])
        if isinstance(each, Mapping)
        for index in (each.get("index"),)
    ]
