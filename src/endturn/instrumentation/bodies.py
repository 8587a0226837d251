"""What surrounds an SDK's stream object: the iterator inside it, its response's many ways of closing, its own span."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context as Variables
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from endturn.announce import swallow
from endturn.instrumentation import streams
from endturn.instrumentation.chunks import AsyncChunks, Chunks
from endturn.instrumentation.streams import Reading, Sees

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
    original = type(inner).end
    seen_by, target, answer = ref(watched), ref(inner), ref(response)

    def end(how: str, error: BaseException | None = None) -> None:
        now, read = seen_by(), answer()
        if now is not None and read is not None:  # else it is told by a destructor, and ours leaves a note
            try:
                if how != "closed" or not now.is_running():
                    now.reading.stopped(how, error, read)
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
