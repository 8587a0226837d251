"""The bytes of an answer.

Read as they pass to the host, which gets the same bytes at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import islice
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import from_json

from endturn.calls import (
    Call,
    Content,
    RequestedCall,
    ResponseFacts,
    ResponseIdentity,
    log_internal_error,
)
from endturn.errors import DecodeError, ProviderError
from endturn.formats import (
    CONTENT_TYPE,
    DONE,
    MAX_ERROR_BYTES,
    MAX_ITEMS,
    MAX_UNPARSED_BYTES,
    BytesDecoder,
    Context,
    Event,
    Framing,
    ResponseSummary,
    TooLargeError,
    check_size,
    decoder,
    error_of,
    error_within,
    parse,
    request_of,
)
from endturn.instrumentation.unpacking import SLICE_BYTES, Unpacker, slices
from endturn.vocabulary import ChatResponse, Request, Stop, StopReason

if TYPE_CHECKING:
    from endturn.formats import Format

UNREAD: Final = ResponseSummary(ResponseFacts(stop=Stop(StopReason.UNKNOWN, detail="unreadable")))
"""Of a response that endturn could not read."""

ABANDONED: Final = "abandoned"
"""The detail of a response that its host dropped without closing it."""

_FRAMINGS: Final = {
    **{kind.partition(";")[0]: framing for framing, kind in CONTENT_TYPE.items()},
    "application/stream+json": Framing.NDJSON,  # cohere's first API
    "application/jsonl": Framing.NDJSON,
}
_OK: Final = 200
"""The status that promises an answer; with others of success (202, 204) there may be none."""
_BLANK: Final = b" \t\r\n\xef\xbb\xbf"
_EVENT_ENDS: Final = {Framing.SSE: (b"\n\n", b"\r\n\r\n"), Framing.NDJSON: (b"\n",)}
"""How the bytes of an event end. Of AWS's messages, only their beginning tells where they end."""
_BEGINNINGS: Final = {
    Framing.SSE: (b":", b"data", b"event", b"id", b"retry"),
    Framing.NDJSON: (b"{", b"["),
}
"""How streams begin: with a comment or a field, with a line of JSON."""
_EVENTS: Final = (b"data:", b"event:")
"""How server-sent events begin, and no JSON does."""
_EVENTS_BYTES: Final = max(map(len, _EVENTS))

EAGER_CHUNKS: Final = 4
"""Chunks that are read as they come, from the first event on: until then a response has said what
it calls itself."""
HELD_CHUNKS: Final = 32
"""Chunks that wait at most to be read together: the processor's caches have our code at hand then.
To read one between two steps of the host's takes three times as long."""
HELD_CHUNK_BYTES: Final = 1024
"""The longest chunk that waits. A longer one holds many events, or one that is worth its
reading."""

MAX_CAPTURED_EVENTS: Final = 100_000
"""Events of one response that are kept for listeners that take content."""
_OTHER_TYPES: Final = (
    "image/",
    "audio/",
    "video/",
    "font/",
    "application/octet-stream",
    "application/pdf",
)
"""How the content types begin of what is no response of a model, where it is too large to be
read."""


@dataclass(slots=True)
class CapturedEvents:
    """The events of a response, or its body, for listeners that take content.

    Only the first ones of a long stream.

    Attributes:
        size: bytes of the stream that were read so far, where they are known.
        is_cut: some of the response was not kept.
    """

    values: list[Any] = field(default_factory=list)
    size: int = 0
    is_cut: bool = False

    def append(self, value: Any) -> None:
        """Keep an event or a body, if there is room."""
        if self.size <= MAX_UNPARSED_BYTES and len(self.values) < MAX_CAPTURED_EVENTS:
            self.values.append(value)
        else:
            self.is_cut = True


class Answer:
    """Reads an answer from its bytes.

    Events of a stream, or one JSON value at its end, whatever its encoding.

    Chunks of a stream that hold nothing but events in its middle wait, and are read many at a time.
    What is learned of the answer does not depend on that, nor when it ends: only when it is
    learned.

    Attributes:
        done: the stream's last word has passed, or the provider's error in its place: what follows
            says nothing.
        error: what the provider sent instead of an answer, or of its end; known when closed.
        is_begun: something of the format's came, if nothing that it says; or nothing at all came
            with a status that promises an answer, so that the request alone says what this is; or
            it is too large to be read, and no picture, sound or file.
        unpacker: of a body whose bytes come compressed.
    """

    def __init__(
        self,
        speaks: Format,
        context: Context,
        status: int,
        headers: Mapping[str, str],
        said: CapturedEvents | None = None,
        identity: ResponseIdentity | None = None,
        *,
        is_unpacked: bool = False,
    ) -> None:
        self._format = speaks
        self._context = context
        self._status = status
        self._headers = headers
        self._said = said
        self._identity = identity
        self._fold = speaks.summarizer(context)
        self._body = bytearray()
        self.done = False
        self.is_begun = False
        # what came is of the format; None where nothing came yet
        self._is_spoken: bool | None = None
        self.error: ProviderError | None = None
        self._kind = (headers.get("content-type") or "").strip().lower()
        framing = framing_of(self._kind, speaks, context) if status < 300 else None
        self._events = None if framing is None else decoder(framing, limit=MAX_UNPARSED_BYTES)
        self._beginnings = _BEGINNINGS.get(framing or Framing.SSE, ())
        self._head = b""
        # nobody else's API answers in AWS's frames
        self._is_framed = framing is Framing.EVENTSTREAM
        encoding = "" if is_unpacked else (headers.get("content-encoding") or "").strip().lower()
        self.unpacker = Unpacker(encoding) if encoding not in ("", "identity") else None
        self._end_words = speaks.end_words or ()
        self._event_ends = (
            () if framing is None or speaks.end_words is None else _EVENT_ENDS.get(framing, ())
        )
        self._held: list[bytes] = []
        self._room = 0  # how many chunks may wait from now on
        self._eager = EAGER_CHUNKS
        self._lock = RLock()  # a request of another thread may ask for the calls of this answer

    def feed(self, chunk: bytes) -> bool:
        """Take the next bytes.

        Returns:
            Whether that was all: readers may stop at the last event, and never close the stream.

        Raises:
            DecodeError: they are not in the format, or more than is read of one line, message or
                body.
        """
        with self._lock:
            if (
                self._room
                and len(chunk) <= HELD_CHUNK_BYTES
                and chunk.endswith(self._event_ends)
                and not any(map(chunk.__contains__, self._end_words))
            ):
                self._held.append(bytes(chunk))
                self._room -= 1
                return False
            is_over = self._read(self._all_held() + chunk if self._held else chunk)
            # After whole events, what follows may wait.
            may_wait = (
                self._eager <= 0 and self.unpacker is None and chunk.endswith(self._event_ends)
            )
            self._room = HELD_CHUNKS - 1 if may_wait else 0
            return is_over

    def _all_held(self) -> bytes:
        """Take out the chunks that wait, as one."""
        held = b"".join(self._held)
        self._held.clear()
        return held

    def _read(self, chunk: bytes) -> bool:
        """Read bytes, unpacked, in pieces of a bounded size. Returns whether that was all."""
        try:
            if self.unpacker is None and len(chunk) <= SLICE_BYTES:
                return self._read_piece(chunk)
            for piece in slices(chunk) if self.unpacker is None else self.unpacker.feed(chunk):
                if self._is_enough() or self._read_piece(piece):
                    break
            return self.done
        except TooLargeError:
            self.is_begun |= not self._kind.startswith(_OTHER_TYPES)
            raise

    def _may_begin(self, chunk: bytes) -> bool:
        """Return whether a stream of the answer's framing may begin as this one does.

        The first chunks may be short.
        """
        begins = self._head = (self._head + chunk).lstrip(_BLANK)[:64]
        if not begins or not self._beginnings:
            return True
        return any(begins.startswith(word) or word.startswith(begins) for word in self._beginnings)

    def _is_enough(self) -> bool:
        """Whether it is an error of which no more is read."""
        return self._status >= 300 and len(self._body) >= MAX_ERROR_BYTES

    def _read_piece(self, chunk: bytes) -> bool:
        events = self._events
        if events is None:
            if self._status >= 300:
                self._body += chunk[: MAX_ERROR_BYTES - len(self._body)]
                return False
            check_size(len(self._body) + len(chunk), MAX_UNPARSED_BYTES)
            self._body += chunk
            if len(self._body) - len(chunk) >= _EVENTS_BYTES or not self._body.startswith(_EVENTS):
                return False
            # Although it is labelled as one JSON value.
            events = self._events = decoder(Framing.SSE, limit=MAX_UNPARSED_BYTES)
            chunk = bytes(self._body)
            self._body.clear()
        fold = self._fold
        if self._is_spoken is None and not self._may_begin(chunk):
            self._is_spoken = False  # text of some kind, in which no events will be found
        captured = self._said
        if captured is not None:
            captured.size += len(chunk)
        for event in events.feed(chunk):
            if self._is_spoken is None:
                self._is_spoken = self._format.matches_shape(event.data)
                self.is_begun |= self._is_framed
            if captured is not None:
                captured.append(event)
            fold.feed(event)
            if fold.is_broken or fold.is_over or event.data == DONE:
                self.done = True
                break
        if fold.size > MAX_ITEMS:
            raise TooLargeError(f"the response has more than {MAX_ITEMS:,} tool calls and choices")
        if self._eager > 0 and self._is_spoken is not None:
            self._eager -= 1
            if self._identity is not None:
                self._identity.id, self._identity.model = fold.id, fold.model
        return self.done

    def requested_calls(self) -> tuple[RequestedCall, ...]:
        """List the client tool calls of a stream whose reason has come; none before.

        Raises:
            DecodeError: as `feed`.
        """
        with self._lock:
            if self._held:
                self._read(self._all_held())
            is_known = self._events is not None and self._fold.has_reason
            return self._fold.requested_calls() if is_known else ()

    def truncated_tail(self) -> str:
        """Return the last visible characters of a stream whose stop reason means truncation.

        Returns "" for any other stream.

        Raises:
            DecodeError: as `feed`.
        """
        with self._lock:
            if self._held:
                self._read(self._all_held())
            is_known = self._events is not None and self._fold.has_reason
            return self._fold.tail if is_known and self._fold.stop(abandoned=True).truncated else ""

    def close(self, *, left: bool = False) -> ResponseSummary:
        """What was seen; `left`, where whoever read the bytes stopped.

        Raises:
            DecodeError: the body is not in the format.
        """
        with self._lock:
            if self._held:
                self._read(self._all_held())
            unpacker, self.unpacker = self.unpacker, None
            if unpacker is not None:
                for piece in unpacker.close():
                    if self._is_enough() or self._read(piece):
                        break
            return self._closed(left=left)

    def _closed(self, *, left: bool) -> ResponseSummary:
        if self._status >= 300:
            self.error = error_of(self._status, self._headers, self._body, ctx=self._context)
            # Most say nothing of the model's stop but that there was none.
            stop = self.error.stop or Stop(StopReason.ERROR, incomplete=True)
            return ResponseSummary(ResponseFacts(stop=stop))
        return (
            self._closed_body(left=left)
            if self._events is None
            else self._closed_stream(self._events, left=left)
        )

    def _closed_stream(self, events: BytesDecoder, *, left: bool) -> ResponseSummary:
        for event in () if self.done else events.close():
            if self._said is not None:
                self._said.append(event)
            if self._is_spoken is None:
                self._is_spoken = self._format.matches_shape(event.data)
            self._fold.feed(event)
        seen = self._fold.close(abandoned=left and not self.done)
        if says_nothing(seen):
            self.is_begun |= self._status == _OK and self._is_spoken is not False
        if self._fold.is_broken:
            self.error = error_within(self._fold.error, ctx=self._context)
        return seen

    def _closed_body(self, *, left: bool) -> ResponseSummary:
        body = self._parsed()
        for value in self._values_of(body):
            if self._said is not None:
                self._said.append(value)
            self._fold.feed(value)
        seen = self._fold.close(abandoned=left)
        if says_nothing(seen):
            if self._format.matches_shape(body) is False:
                raise DecodeError("the provider sent JSON of another format")
            self.is_begun |= self._status == _OK
        return seen

    def _parsed(self) -> Any:
        """Parse the body; None where it is cut.

        Raises:
            DecodeError: it is neither JSON nor the beginning of it.
        """
        try:
            return parse(self._body)
        except DecodeError:
            if self._body and not _is_cut(self._body):
                raise
            self.is_begun = len(self._body) > 0
            return None

    def _values_of(self, body: Any) -> Iterable[Any]:
        """List what one JSON value holds: Gemini streams an array of what are events elsewhere."""
        if isinstance(body, list):
            return [each for each in body if isinstance(each, Mapping)]
        if not isinstance(body, Mapping):
            return ()
        if self._format.name == "bedrock_invoke":
            # Bedrock says in the headers what some families do not say in the body.
            figures = {
                name: value
                for name, value in self._headers.items()
                if name.lower().endswith("-token-count")
            }
            body = {"ResponseMetadata": {"HTTPHeaders": figures}, "body": body} if figures else body
        return (body,)


def says_nothing(seen: ResponseSummary) -> bool:
    """Whether nothing was seen of an answer: what was read is of another format."""
    facts = seen.facts
    is_missing = facts.stop.reason is StopReason.MISSING
    return is_missing and not (facts.id or facts.model or facts.usage or facts.output_chars)


def framing_of(content_type: str, speaks: Format, context: Context) -> Framing | None:
    """How the events of an answer are told apart; None where it is one JSON value."""
    kind = content_type.partition(";")[0].strip().lower()
    found = _FRAMINGS.get(kind)
    if found is not None or not context.request.facts.stream or "json" in kind:
        return found
    return Framing.NDJSON if context.dialect == "v1" else speaks.framing


def _is_cut(body: bytearray) -> bool:
    """Whether what is not JSON is the beginning of a JSON object, or of an array."""
    begun = body.decode("utf-8", "ignore").lstrip("\ufeff \t\r\n")
    try:
        from_json(begun)
    except ValueError as error:
        # it names the place where it found the end
        return begun.startswith(("{", "[")) and "EOF" in str(error)
    return False


def json_object(content: Any) -> Mapping[str, Any] | None:
    """A request's JSON object, where it is in memory, and not too large to be read.

    Nothing else is.
    """
    if isinstance(content, BytesIO):
        if content.getbuffer().nbytes - content.tell() > MAX_UNPARSED_BYTES:
            return None
        content = content.getvalue()[content.tell() :]
    if isinstance(content, str | bytes | bytearray):
        if len(content) > MAX_UNPARSED_BYTES:
            return None
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
    seen: ResponseSummary,
    otherwise: StopReason | None,
    error: BaseException | None,
    detail: str | None,
) -> ResponseSummary:
    """What was seen, and where no reason has come, why.

    The first terminal wins, an error after it is a detail.
    """
    stop = seen.stop
    if stop.reason is StopReason.MISSING and otherwise is not None:
        return seen.with_stop(replace(stop, reason=otherwise, detail=detail, incomplete=True))
    if error is not None and stop.detail is None and detail is not None:
        return seen.with_stop(replace(stop, detail=detail))
    return seen


def end_call(
    call: Call,
    seen: ResponseSummary,
    error: BaseException | None = None,
    over_s: float | None = None,
) -> None:
    """End a call with what was seen of its answer."""
    call.end(seen.facts, tail=seen.tail, tool_calls=seen.tool_calls, error=error, over_s=over_s)
    # a connection may keep the context in which it was opened, and the call with that
    call.asked = call.outer = None


# --- What is said: only where a listener takes content --------------------------------------------


def keep_content(
    call: Call, speaks: Format, given: Mapping[str, Any] | Request, context: Context
) -> CapturedEvents:
    """Attach to the call's record its request and what the returned object holds at the call's end.

    Args:
        given: what is sent, read now: a host may change it before the answer has come.

    Returns:
        Takes the body, or the events.
    """
    request = given if isinstance(given, Request) else _request(speaks, given, context)
    said = CapturedEvents()
    beside = context.request.system is not None
    call.content = lambda stop: Content(
        request=request,
        beside=beside,
        responses=_responses(speaks, context, said.values, stop),
        is_cut=said.is_cut,
    )
    return said


def _request(speaks: Format, given: Mapping[str, Any], context: Context) -> Request | None:
    try:
        return request_of(speaks, {"model": context.request.facts.model, **given})
    # pydantic's too: not in the format, so it is not known
    except (DecodeError, ValueError, TypeError):
        return None
    except Exception:
        log_internal_error("reading a request")
        return None


def _responses(
    speaks: Format, context: Context, said: list[Any], stop: Stop
) -> tuple[ChatResponse, ...]:
    """What came, an item for each choice.

    `stop` is the first one's, whose end was perhaps not waited for.
    """
    choices = context.request.facts.choice_count
    # Each choice is read as if it were the only one.
    alone = replace(context, request=context.request.with_facts(choice_count=1))
    decoders: dict[int, Any] = {}
    # the provider's error, or another format: what came before it counts
    with suppress(DecodeError, ProviderError):
        for item in said:
            if not (isinstance(item, Event) or context.request.facts.stream):
                return tuple(
                    speaks.decode(each, ctx=alone) for _, each in _each_choice(item, choices)
                )
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
    """Split a body or chunk with several choices into one body per choice, each with its number."""
    is_several = choices > 1 and isinstance(data, Mapping)
    name = next(
        (
            name
            for name in _CHOICES
            if is_several and data.get(name) and isinstance(data[name], list)
        ),
        None,
    )
    if name is None:
        return [(0, data)]
    listed = islice(
        (each for each in enumerate(data[name]) if isinstance(each[1], Mapping)), choices
    )
    return [
        (index if isinstance(index, int) else place, {**data, name: [{**each, "index": 0}]})
        for place, each in listed
        for index in (each.get("index"),)
    ]
