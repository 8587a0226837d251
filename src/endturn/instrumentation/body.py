"""Reads a response's bytes while they are passed on to the application."""

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

UNPARSED: Final = ResponseSummary(ResponseFacts(stop=Stop(StopReason.UNKNOWN, detail="unreadable")))
"""The summary of a response that endturn could not parse."""

ABANDONED: Final = "abandoned"
"""The detail of a response that its host dropped without closing it."""

_FRAMINGS: Final = {
    **{kind.partition(";")[0]: framing for framing, kind in CONTENT_TYPE.items()},
    "application/stream+json": Framing.NDJSON,  # cohere's first API
    "application/jsonl": Framing.NDJSON,
}
_OK: Final = 200
"""The status of a response with a body; other statuses of success (202, 204) may have none."""
_LEADING_SPACE: Final = b" \t\r\n\xef\xbb\xbf"
_EVENT_ENDS: Final = {Framing.SSE: (b"\n\n", b"\r\n\r\n"), Framing.NDJSON: (b"\n",)}
"""The last bytes of an event. Those of AWS's messages are determined by their beginning only."""
_BEGINNINGS: Final = {
    Framing.SSE: (b":", b"data", b"event", b"id", b"retry"),
    Framing.NDJSON: (b"{", b"["),
}
"""The first bytes of streams: a comment or a field, a line of JSON."""
_EVENT_PREFIXES: Final = (b"data:", b"event:")
"""The first bytes of server-sent events, with which no JSON begins."""
_EVENT_PREFIX_BYTES: Final = max(map(len, _EVENT_PREFIXES))

EAGER_CHUNKS: Final = 4
"""Chunks that are read as they arrive, from the first event on: they hold the response's id and
model."""
MAX_HELD_CHUNKS: Final = 32
"""Maximum number of chunks that are held to be parsed together. Parsing each chunk when it arrives
takes three times as long, because the application's code evicts ours from the CPU caches."""
MAX_HELD_CHUNK_BYTES: Final = 1024
"""The size of the longest chunk that is held. A longer one has many events, or a large one."""

MAX_CAPTURED_EVENTS: Final = 100_000
"""Events of one response that are kept for listeners that take content."""
_BINARY_TYPES: Final = (
    "image/",
    "audio/",
    "video/",
    "font/",
    "application/octet-stream",
    "application/pdf",
)
"""Prefixes of the content types of files: a response with one of these that is too large to be
parsed is not a model's."""


@dataclass(slots=True)
class CapturedEvents:
    """The events of a response, or its body, for listeners that take content.

    Only the first ones of a long stream.

    Attributes:
        size: bytes of the stream that were read so far, if known.
        is_cut: a part of the response was not kept, as in `Content.is_cut`.
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


class BodyReader:
    """Reads a response from its bytes: the events of a stream, or one JSON value at its end.

    In the middle of a stream, chunks of complete events are held and parsed together, which costs
    less. The chunk that may end the response is parsed at once, so its end is noticed in time.

    Attributes:
        is_done: the stream's last event has passed, or the provider's error in its place: anything
            that follows is ignored.
        error: the error that the provider sent instead of a response, or within it. Set by `close`.
        is_recognised: the response is a model's although its summary is empty: it begins like one;
            or it has status 200 and no body, so that only the request identifies it; or it is too
            large to be parsed, and no image, audio or other file.
        unpacker: decompresses the body; None if it is not compressed.
    """

    def __init__(
        self,
        format_: Format,
        context: Context,
        status: int,
        headers: Mapping[str, str],
        captured: CapturedEvents | None = None,
        identity: ResponseIdentity | None = None,
        *,
        is_unpacked: bool = False,
    ) -> None:
        self._format = format_
        self._context = context
        self._status = status
        self._headers = headers
        self._captured = captured
        self._identity = identity
        self._accumulator = format_.summarizer(context)
        self._body = bytearray()
        self.is_done = False
        self.is_recognised = False
        # the bytes are in the format; None before any arrive
        self._is_in_format: bool | None = None
        self.error: ProviderError | None = None
        self._content_type = (headers.get("content-type") or "").strip().lower()
        framing = framing_of(self._content_type, format_, context) if status < 300 else None
        self._events = None if framing is None else decoder(framing, limit=MAX_UNPARSED_BYTES)
        self._beginnings = _BEGINNINGS.get(framing or Framing.SSE, ())
        self._stream_start = b""
        # no other API responds in AWS's frames
        self._is_aws_stream = framing is Framing.EVENTSTREAM
        encoding = "" if is_unpacked else (headers.get("content-encoding") or "").strip().lower()
        self.unpacker = Unpacker(encoding) if encoding not in ("", "identity") else None
        self._end_markers = format_.end_markers or ()
        self._event_ends = (
            () if framing is None or format_.end_markers is None else _EVENT_ENDS.get(framing, ())
        )
        self._held_chunks: list[bytes] = []
        self._free_slots = 0  # the number of further chunks that may wait
        self._eager_chunks = EAGER_CHUNKS
        self._lock = RLock()  # a request of another thread may ask for the calls of this answer

    def feed(self, chunk: bytes) -> bool:
        """Take the next bytes.

        Returns:
            Whether the response is complete: readers may stop at the last event, and never close
            the stream.

        Raises:
            DecodeError: the bytes are not in the format, or exceed the limit of one line, message
                or body.
        """
        with self._lock:
            # Hold a chunk of complete events that does not end the response.
            if (
                self._free_slots
                and len(chunk) <= MAX_HELD_CHUNK_BYTES
                and chunk.endswith(self._event_ends)
                and not any(map(chunk.__contains__, self._end_markers))
            ):
                self._held_chunks.append(bytes(chunk))
                self._free_slots -= 1
                return False
            is_over = self._read_bytes(
                self._take_held_chunks() + chunk if self._held_chunks else chunk
            )
            # After complete events, further chunks may wait.
            may_wait = (
                self._eager_chunks <= 0
                and self.unpacker is None
                and chunk.endswith(self._event_ends)
            )
            self._free_slots = MAX_HELD_CHUNKS - 1 if may_wait else 0
            return is_over

    def _take_held_chunks(self) -> bytes:
        """Take out the chunks that wait, as one."""
        chunk = b"".join(self._held_chunks)
        self._held_chunks.clear()
        return chunk

    def _read_bytes(self, chunk: bytes) -> bool:
        """Decompress bytes and parse them in slices. Returns whether the response is complete."""
        try:
            if self.unpacker is None and len(chunk) <= SLICE_BYTES:
                return self._read_piece(chunk)
            for piece in slices(chunk) if self.unpacker is None else self.unpacker.feed(chunk):
                if self._is_error_complete() or self._read_piece(piece):
                    break
            return self.is_done
        except TooLargeError:
            self.is_recognised |= not self._content_type.startswith(_BINARY_TYPES)
            raise

    def _may_begin(self, chunk: bytes) -> bool:
        """Return whether a stream of the response's framing may begin with these bytes.

        The first chunks may be short.
        """
        stream_start = self._stream_start = (self._stream_start + chunk).lstrip(_LEADING_SPACE)[:64]
        if not stream_start or not self._beginnings:
            return True
        return any(
            stream_start.startswith(word) or word.startswith(stream_start)
            for word in self._beginnings
        )

    def _is_error_complete(self) -> bool:
        """Return whether this is an error response of which no more is read."""
        return self._status >= 300 and len(self._body) >= MAX_ERROR_BYTES

    def _read_piece(self, chunk: bytes) -> bool:
        events = self._events
        if events is None:
            if self._status >= 300:
                self._body += chunk[: MAX_ERROR_BYTES - len(self._body)]
                return False
            check_size(len(self._body) + len(chunk), MAX_UNPARSED_BYTES)
            self._body += chunk
            if len(self._body) - len(chunk) >= _EVENT_PREFIX_BYTES or not self._body.startswith(
                _EVENT_PREFIXES
            ):
                return False
            # They are events, although the content type is JSON.
            events = self._events = decoder(Framing.SSE, limit=MAX_UNPARSED_BYTES)
            chunk = bytes(self._body)
            self._body.clear()
        accumulator = self._accumulator
        if self._is_in_format is None and not self._may_begin(chunk):
            self._is_in_format = False  # no stream of events begins like this
        captured = self._captured
        if captured is not None:
            captured.size += len(chunk)
        for event in events.feed(chunk):
            if self._is_in_format is None:
                self._is_in_format = self._format.matches_shape(event.data)
                self.is_recognised |= self._is_aws_stream
            if captured is not None:
                captured.append(event)
            accumulator.feed(event)
            if accumulator.is_broken or accumulator.is_over or event.data == DONE:
                self.is_done = True
                break
        if accumulator.size > MAX_ITEMS:
            raise TooLargeError(f"the response has more than {MAX_ITEMS:,} tool calls and choices")
        if self._eager_chunks > 0 and self._is_in_format is not None:
            self._eager_chunks -= 1
            if self._identity is not None:
                self._identity.id, self._identity.model = accumulator.id, accumulator.model
        return self.is_done

    def requested_calls(self) -> tuple[RequestedCall, ...]:
        """List the client tool calls of a stream whose stop reason has arrived; none before.

        Raises:
            DecodeError: as `feed`.
        """
        with self._lock:
            if self._held_chunks:
                self._read_bytes(self._take_held_chunks())
            has_stop_reason = self._events is not None and self._accumulator.has_reason
            return self._accumulator.requested_calls() if has_stop_reason else ()

    def truncated_tail(self) -> str:
        """Return the last visible characters of a stream whose stop reason means truncation.

        Returns "" for any other stream.

        Raises:
            DecodeError: as `feed`.
        """
        with self._lock:
            if self._held_chunks:
                self._read_bytes(self._take_held_chunks())
            has_stop_reason = self._events is not None and self._accumulator.has_reason
            return (
                self._accumulator.tail
                if has_stop_reason and self._accumulator.stop(abandoned=True).truncated
                else ""
            )

    def close(self, *, is_abandoned: bool = False) -> ResponseSummary:
        """Return the summary. `is_abandoned`: the host stopped reading.

        Raises:
            DecodeError: the body is not in the format.
        """
        with self._lock:
            if self._held_chunks:
                self._read_bytes(self._take_held_chunks())
            unpacker, self.unpacker = self.unpacker, None
            if unpacker is not None:
                for piece in unpacker.close():
                    if self._is_error_complete() or self._read_bytes(piece):
                        break
            return self._summarize(is_abandoned=is_abandoned)

    def _summarize(self, *, is_abandoned: bool) -> ResponseSummary:
        if self._status >= 300:
            self.error = error_of(self._status, self._headers, self._body, ctx=self._context)
            # Most errors have no stop reason.
            stop = self.error.stop or Stop(StopReason.ERROR, incomplete=True)
            return ResponseSummary(ResponseFacts(stop=stop))
        return (
            self._summarize_body(is_abandoned=is_abandoned)
            if self._events is None
            else self._summarize_stream(self._events, is_abandoned=is_abandoned)
        )

    def _summarize_stream(self, events: BytesDecoder, *, is_abandoned: bool) -> ResponseSummary:
        for event in () if self.is_done else events.close():
            if self._captured is not None:
                self._captured.append(event)
            if self._is_in_format is None:
                self._is_in_format = self._format.matches_shape(event.data)
            self._accumulator.feed(event)
        summary = self._accumulator.close(abandoned=is_abandoned and not self.is_done)
        if is_empty(summary):
            self.is_recognised |= self._status == _OK and self._is_in_format is not False
        if self._accumulator.is_broken:
            self.error = error_within(self._accumulator.error, ctx=self._context)
        return summary

    def _summarize_body(self, *, is_abandoned: bool) -> ResponseSummary:
        body = self._parse_body()
        for value in self._items_of(body):
            if self._captured is not None:
                self._captured.append(value)
            self._accumulator.feed(value)
        summary = self._accumulator.close(abandoned=is_abandoned)
        if is_empty(summary):
            if self._format.matches_shape(body) is False:
                raise DecodeError("the provider sent JSON of another format")
            self.is_recognised |= self._status == _OK
        return summary

    def _parse_body(self) -> Any:
        """Parse the body; None if it is truncated.

        Raises:
            DecodeError: it is neither JSON nor the beginning of it.
        """
        try:
            return parse(self._body)
        except DecodeError:
            if self._body and not _is_truncated_json(self._body):
                raise
            self.is_recognised = len(self._body) > 0
            return None

    def _items_of(self, body: Any) -> Iterable[Any]:
        """List the items of one JSON value: Gemini streams its events as an array."""
        if isinstance(body, list):
            return [item for item in body if isinstance(item, Mapping)]
        if not isinstance(body, Mapping):
            return ()
        if self._format.name == "bedrock_invoke":
            # Bedrock's headers have token counts that some families omit from the body.
            token_counts = {
                name: value
                for name, value in self._headers.items()
                if name.lower().endswith("-token-count")
            }
            body = (
                {"ResponseMetadata": {"HTTPHeaders": token_counts}, "body": body}
                if token_counts
                else body
            )
        return (body,)


def is_empty(summary: ResponseSummary) -> bool:
    """Return whether nothing was read from the response, as if its bytes are in another format."""
    facts = summary.facts
    is_missing = facts.stop.reason is StopReason.MISSING
    return is_missing and not (facts.id or facts.model or facts.usage or facts.output_chars)


def framing_of(content_type: str, format_: Format, context: Context) -> Framing | None:
    """Return the framing of a response's events; None if it is one JSON value."""
    media_type = content_type.partition(";")[0].strip().lower()
    framing = _FRAMINGS.get(media_type)
    if framing is not None or not context.request.facts.stream or "json" in media_type:
        return framing
    return Framing.NDJSON if context.dialect == "v1" else format_.framing


def _is_truncated_json(body: bytearray) -> bool:
    """Return whether invalid JSON is the beginning of a JSON object or array."""
    text = body.decode("utf-8", "ignore").lstrip("\ufeff \t\r\n")
    try:
        from_json(text)
    except ValueError as error:
        # the message names the position of the end
        return text.startswith(("{", "[")) and "EOF" in str(error)
    return False


def json_object(content: Any) -> Mapping[str, Any] | None:
    """Return a request's JSON object, if it is in memory and not too large; else None."""
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


def reason_of_read_error(error: BaseException) -> tuple[StopReason, BaseException, str | None]:
    """Return the fallback stop reason, error and detail for a response whose reading raised."""
    if not isinstance(error, Exception):
        return StopReason.CANCELLED, error, None
    name = type(error).__name__
    return StopReason.MISSING, error, "timeout" if "Timeout" in name else name


def with_fallback_reason(
    summary: ResponseSummary,
    reason: StopReason | None,
    error: BaseException | None,
    detail: str | None,
) -> ResponseSummary:
    """Return the summary with a fallback for a missing stop reason.

    The first stop reason counts, an error after it is a detail.
    """
    stop = summary.stop
    if stop.reason is StopReason.MISSING and reason is not None:
        return summary.with_stop(replace(stop, reason=reason, detail=detail, incomplete=True))
    if error is not None and stop.detail is None and detail is not None:
        return summary.with_stop(replace(stop, detail=detail))
    return summary


def end_call(
    call: Call,
    summary: ResponseSummary,
    error: BaseException | None = None,
    ended_s: float | None = None,
) -> None:
    """End a call with the summary of its response."""
    call.end(
        summary.facts,
        tail=summary.tail,
        tool_calls=summary.tool_calls,
        error=error,
        ended_s=ended_s,
    )
    # a connection may keep the context in which it was opened, and the call with that
    call.summary = call.outer = None


# --- Captured content: only if a listener takes it ------------------------------------------------


def capture_content(
    call: Call, format_: Format, request_or_fields: Mapping[str, Any] | Request, context: Context
) -> CapturedEvents:
    """Attach the content to the call: its request, and the returned events at the call's end.

    Args:
        request_or_fields: the request, read now: a host may change it before the response arrives.

    Returns:
        The object that takes the body, or the events.
    """
    request = (
        request_or_fields
        if isinstance(request_or_fields, Request)
        else _request_of(format_, request_or_fields, context)
    )
    captured = CapturedEvents()
    is_system_separate = context.request.system is not None
    call.content = lambda stop: Content(
        request=request,
        is_system_separate=is_system_separate,
        responses=_responses_of(format_, context, captured.values, stop),
        is_cut=captured.is_cut,
    )
    return captured


def _request_of(format_: Format, fields: Mapping[str, Any], context: Context) -> Request | None:
    try:
        return request_of(format_, {"model": context.request.facts.model, **fields})
    # ValueError includes pydantic's: the request is not in the format
    except (DecodeError, ValueError, TypeError):
        return None
    except Exception:
        log_internal_error("reading a request")
        return None


def _responses_of(
    format_: Format, context: Context, captured: list[Any], stop: Stop
) -> tuple[ChatResponse, ...]:
    """Return a response for each choice.

    The first gets `stop`, the recorded stop of the call: if the host stopped reading, the events
    alone would give another one.
    """
    choices = context.request.facts.choice_count
    # Each choice is read as if it were the only one.
    single_choice = replace(context, request=context.request.with_facts(choice_count=1))
    decoders: dict[int, Any] = {}
    # An event may be the provider's error, or in another format: keep what came before it.
    with suppress(DecodeError, ProviderError):
        for item in captured:
            if not (isinstance(item, Event) or context.request.facts.stream):
                return tuple(
                    format_.decode(choice, ctx=single_choice)
                    for _, choice in _split_choices(item, choices)
                )
            name, data = item if isinstance(item, Event) else (None, item)
            for index, choice in _split_choices(data, choices):
                if index not in decoders:
                    decoders[index] = format_.decoder(single_choice)
                decoders[index].feed(Event(name, choice))
    responses = [decoders[index].close() for index in sorted(decoders)]
    return (responses[0].model_copy(update={"stop": stop}), *responses[1:]) if responses else ()


_CHOICES: Final = ("choices", "candidates")
"""The fields in which a body or a chunk lists several choices."""


def _split_choices(data: Any, choices: int) -> list[tuple[int, Any]]:
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
    indexed_choices = islice(
        (choice for choice in enumerate(data[name]) if isinstance(choice[1], Mapping)), choices
    )
    return [
        (index if isinstance(index, int) else position, {**data, name: [{**choice, "index": 0}]})
        for position, choice in indexed_choices
        for index in (choice.get("index"),)
    ]
