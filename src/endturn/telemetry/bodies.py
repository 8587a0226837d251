"""What surrounds a response's chunks: the raw body that a host reads as bytes, and the many ways of closing it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from contextvars import Context as Variables
from json import JSONDecoder
from typing import Any
from weakref import ref

from pydantic_core import from_json

from endturn.announce import Call, swallow
from endturn.errors import DecodeError, ProviderError
from endturn.stop import Stop, StopReason
from endturn.telemetry import streams
from endturn.telemetry.streams import AsyncChunks, Chunks, Reading, Sees
from endturn.wires import Seen
from endturn.wires.framing import DONE, SSEDecoder, parse


def watch_stream(
    call: Call, watch: Sees, stream: Any, *, asynchronous: bool, variables: Variables | None = None
) -> None:
    """See an SDK's stream object being read: its iterator is replaced by one that hands on the same items."""
    inner = stream._iterator
    reading = streams.begin(call, watch, variables)
    chunks = AsyncChunks(inner, reading) if asynchronous else Chunks(inner, reading)
    stream._iterator = chunks
    here = ref(chunks)

    def closed() -> None:
        now = here()
        if now is not None and not now.is_running():
            now.reading.let_go(answer())

    answer = ref(stream.response)
    on_close(stream.response, closed)


def watch_native_end(stream: Any) -> None:
    """Have a stream's call end before anthropic's own span of it does, so that the span can still be written to.

    anthropic 2 ends the span of a stream when the body has been read, closed or dropped, through an observer that it
    puts on the body after the response was processed. Where there is none, the chunks and the body tell the end.
    """
    observer = getattr(getattr(stream.response, "stream", None), "stream_observer", None)
    inner = getattr(observer, "inner", None)
    chunks = stream._iterator
    if inner is None or not isinstance(chunks, Chunks | AsyncChunks):
        return
    original = type(inner).end
    seen_by, target, answer = ref(chunks), ref(inner), ref(stream.response)

    def end(how: str, error: BaseException | None = None) -> None:
        now = seen_by()
        if now is not None:
            try:
                if how != "closed" or not now.is_running():
                    now.reading.stopped(how, error, answer())
            except Exception:
                swallow("ending a call")
        observed = target()
        if observed is not None:
            original(observed, how, error)

    inner.end = end


def on_close(response: Any, closed: Callable[[], None]) -> None:
    """Call `closed` when the body of a response is closed, whoever closes it and however."""
    body = response.stream
    kind, target = type(body), ref(body)  # no strong reference: the body would keep itself alive

    def told() -> None:
        try:
            closed()
        except Exception:
            swallow("ending a call")

    if hasattr(kind, "close"):

        def close() -> None:
            told()
            now = target()
            if now is not None:
                kind.close(now)

        body.close = close
    if hasattr(kind, "aclose"):

        async def aclose() -> None:
            told()
            now = target()
            if now is not None:
                await kind.aclose(now)

        body.aclose = aclose


class Bytes:
    """A `Watch` that is given a body's bytes as they pass.

    Attributes:
        begun: some have passed.
        over: the word that ends a stream has passed: an SDK reads no further, and closes the body.
        busy: the next are being fetched; what closes the body then is not its host.
    """

    __slots__ = ("_decoder", "_pieces", "_watch", "begun", "busy", "over")

    def __init__(self, watch: Sees, *, events: bool) -> None:
        self._watch = watch
        self._decoder = SSEDecoder() if events else None
        self._pieces: list[bytes] = []
        self.begun = False
        self.over = False
        self.busy = False

    def see(self, chunk: bytes, /) -> None:
        """Take the next bytes."""
        self.begun = True
        if self._decoder is None:
            self._pieces.append(chunk)
        else:
            for event in self._decoder.feed(chunk):
                self.over = self.over or event.data == DONE
                self._watch.see(event)

    @property
    def error(self) -> ProviderError | None:
        """The error that the provider wrote into a stream in place of its end."""
        if self._decoder is None or not getattr(self._watch, "broken", False):
            return None
        return ProviderError("the provider sent an error within its stream")

    def close(self, *, left: bool = False) -> Seen:
        """What was seen; `left`, where whoever read the bytes stopped. A body that is cut off says nothing.

        Raises:
            DecodeError: the body is not even the beginning of a JSON object.
        """
        if self._decoder is not None:
            for event in self._decoder.close():
                self._watch.see(event)
        elif self._pieces:
            body = b"".join(self._pieces)
            try:
                self._watch.see(parse(body))
            except DecodeError:
                if not _is_cut(body):
                    raise
        return self._watch.close(left=left)


def _is_cut(body: bytes) -> bool:
    """Whether what is not JSON is the beginning of a JSON object."""
    begun = body.decode("utf-8", "ignore").lstrip("\ufeff \t\r\n")
    if not begun.startswith("{"):
        return False
    try:
        from_json(begun, allow_partial=True)
    except ValueError:
        return False
    try:
        JSONDecoder().raw_decode(begun)
    except (ValueError, RecursionError):
        return True
    return False  # whole, but something follows


def watch_body(call: Call, watch: Sees, response: Any, *, events: bool) -> None:
    """See a body while its host reads the bytes, or has them read; nothing is read that the host does not read."""
    passing = Bytes(watch, events=events)
    reading = streams.begin(call, passing)
    # `reading` lives as long as what is put on the response, and nothing of that refers back to the response.
    here, this, kind = ref(reading), ref(response), type(response)

    def iter_bytes(chunk_size: int | None = None) -> Iterator[bytes]:
        return _teed(kind.iter_bytes(this(), chunk_size), reading, passing)

    def aiter_bytes(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        return _ateed(kind.aiter_bytes(this(), chunk_size), reading, passing)

    def closed() -> None:
        now, read = here(), this()
        if now is None or passing.busy:
            return
        if read is not None and read.is_stream_consumed and not passing.begun:
            # Read through `iter_raw`, before decompression: what it held was not seen.
            streams.end(now.call, Seen(Stop(StopReason.UNKNOWN, detail=streams.UNREADABLE)))
        else:
            now.let_go(read, over=passing.over)

    on_close(response, closed)
    if hasattr(kind, "iter_bytes"):
        response.iter_bytes = iter_bytes
    if hasattr(kind, "aiter_bytes"):
        response.aiter_bytes = aiter_bytes


def _teed(chunks: Iterator[bytes], reading: Reading, passing: Bytes) -> Iterator[bytes]:
    while True:
        passing.busy = True
        try:
            chunk = next(chunks)
        except StopIteration:
            reading.over()
            return
        except BaseException as error:
            reading.broke(error)
            raise
        finally:
            passing.busy = False
        reading.passed(chunk)
        yield chunk


async def _ateed(chunks: Any, reading: Reading, passing: Bytes) -> AsyncIterator[bytes]:
    async with aclosing(chunks):
        while True:
            passing.busy = True
            try:
                chunk = await anext(chunks)
            except StopAsyncIteration:
                reading.over()
                return
            except BaseException as error:
                reading.broke(error)
                raise
            finally:
                passing.busy = False
            reading.passed(chunk)
            yield chunk
