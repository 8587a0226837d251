"""What surrounds an SDK's stream object: the iterator inside it, its response's many ways of closing, its own span."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context as Variables
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from endturn.announce import swallow
from endturn.instrumentation import http_bodies, streams
from endturn.instrumentation.chunks import AsyncChunks, Chunks
from endturn.instrumentation.streams import Reading, Sees
from endturn.telemetry import janitor

if TYPE_CHECKING:
    from endturn.instrumentation.background import Scope


class Watched(Protocol):
    """What is read in an SDK's answer, and is ours: a stream's chunks, or the bytes of a raw body."""

    @property
    def reading(self) -> Reading: ...

    def is_running(self) -> bool:
        """Whether what is inside is at work: what it closes then, its host did not."""
        ...


def watch_stream(
    call: Scope, watch: Sees, stream: Any, *, asynchronous: bool, variables: Variables | None = None
) -> Watched:
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
    return chunks


def watch_native_end(response: Any, watched: Watched) -> None:
    """Have a call end before anthropic's own span of it does, so that the span can still be written to.

    anthropic 2 ends the span of an answer that its host has yet to read when the body has been read, closed or
    dropped, through an observer that it puts on the body after the response was processed. Where there is none, the
    chunks and the body tell the end.
    """
    observer = getattr(getattr(response, "stream", None), "stream_observer", None)
    inner = getattr(observer, "inner", None)
    if inner is None:
        return
    original, reading = type(inner).end, watched.reading
    seen_by, found, answer = ref(watched), ref(inner), ref(response)

    def end(how: str, error: BaseException | None = None) -> None:
        # It and the observer hold each other until now, like a method and its object would: a body that is dropped
        # tells its observer, too.
        vars(inner).pop("end", None)
        if found() is None:
            # The garbage collector is at work, anywhere: nothing is announced there, and the span waits for that.
            janitor.later(reading.abandoned)
            janitor.later(lambda: original(inner, how, error))
            return
        now, read = seen_by(), answer()
        try:
            if now is None or read is None:
                reading.abandoned()
            elif how != "closed" or not now.is_running():
                reading.stopped(how, error, read)
        except Exception:
            swallow("ending a call")
        original(inner, how, error)

    inner.end = end


def on_close(response: Any, closed: Callable[[], None]) -> None:
    """Call `closed` when the body of a response is closed, whoever closes it and however."""

    def told() -> None:
        try:
            closed()
        except Exception:
            swallow("ending a call")

    http_bodies.surround(response, closing=told)
