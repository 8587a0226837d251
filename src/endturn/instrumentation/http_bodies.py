"""The bytes of an HTTP answer on their way to the host: seen where they come from, however it reads them."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import ref

from endturn.announce import swallow
from endturn.instrumentation import streams
from endturn.instrumentation.chunks import AsyncChunks, Chunks
from endturn.instrumentation.http_bytes import unpacked
from endturn.instrumentation.streams import Reading, Sees

if TYPE_CHECKING:
    from endturn.instrumentation.background import Scope
    from endturn.instrumentation.bodies import Watched


def library_of(response: Any) -> ModuleType | None:
    """The HTTP library that a response is of: httpx or httpx2. None where it is somebody's own."""
    names = (kind.__module__.partition(".")[0] for kind in type(response).__mro__)
    return next((sys.modules.get(name) for name in names if name in ("httpx", "httpx2")), None)


def watch(call: Scope, sees: Sees, response: Any, library: ModuleType) -> Passing | None:
    """See a body: at once where all of it has come, else while its host reads it, and nothing that it does not read.

    Args:
        library: httpx or httpx2.

    Returns:
        What sees a body that is still to be read.

    Raises:
        DecodeError: what has come is not in the provider's own format.
    """
    if not response.is_closed:
        return tee(library, response, streams.begin(call, unpacked(sees, response, library)))
    content = content_of(response)
    if content is None:
        streams.begin(call, sees).closed()
        return None
    sees.see(content)
    streams.end(call, sees.close(), getattr(sees, "error", None))
    return None


def content_of(response: Any) -> bytes | None:
    """A body that has been read. None where it has not: what a host closes unread is not ours to read."""
    try:
        found: bytes = response.content
    except Exception:  # each library has its own
        return None
    return found


def tee(library: ModuleType, response: Any, reading: Reading) -> Passing:
    """See a body while its host reads it, whichever way: every way takes its bytes from `response.stream`.

    Nothing is put on the response itself: hosts copy and pickle them, SDKs make another of it with the same stream.

    Args:
        library: httpx or httpx2.
        response: its body has not been read.
    """
    passing, apassing, either = _kinds(library)
    inner = response.stream
    kind = passing if isinstance(inner, library.SyncByteStream) else apassing
    if kind is passing and isinstance(inner, library.AsyncByteStream):
        kind = either
    found: Passing = kind(inner, reading, response)
    response.stream = found
    return found


class Passing:
    """Somebody's byte stream, shown as it passes. What else it has, it still has.

    Attributes:
        reading: what it is shown to.
    """

    def __init__(self, inner: Any, reading: Reading, response: Any) -> None:
        self._inner = inner
        self._response = ref(response)
        self._begun = False
        self.reading = reading

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # a copy that was never initialised
            raise AttributeError(name)
        return getattr(self._inner, name)

    def is_running(self) -> bool:
        """Never: an HTTP library closes a body that it has read, or failed to read, once this has told of it."""
        return False

    def _is_first(self) -> bool:
        """Whether its response begins to be read. After a stream's last word openai reads on, and throws that away."""
        begun, self._begun = self._begun, True
        return not begun

    def _let_go(self) -> None:
        try:
            self.reading.let_go(self._response())
        except Exception:
            swallow("ending a call")


class _Pieces(AsyncChunks):
    """The pieces of a body. Whoever reads a part of them closes a generator; so they can be closed like one."""

    __slots__ = ()

    async def aclose(self) -> None:
        close = getattr(self._inner, "aclose", None)
        if close is not None:
            await close()


AsyncGenerator.register(_Pieces)


@cache
def _kinds(library: Any) -> tuple[type, type, type]:
    """A library's byte streams, sync, async and both, that show what passes: it takes none that is not its own."""

    class Sync(Passing, library.SyncByteStream):  # type: ignore[misc]  # either library's base class
        def __iter__(self) -> Iterator[bytes]:
            return Chunks(iter(self._inner), self.reading) if self._is_first() else iter(self._inner)

        def close(self) -> None:
            self._let_go()
            self._inner.close()

    class Async(Passing, library.AsyncByteStream):  # type: ignore[misc]  # either library's base class
        def __aiter__(self) -> AsyncIterator[bytes]:
            return _Pieces(aiter(self._inner), self.reading) if self._is_first() else aiter(self._inner)

        async def aclose(self) -> None:
            self._let_go()
            await self._inner.aclose()

    class Either(Sync, Async):
        pass

    return Sync, Async, Either


def watch_beside(response: Any, watched: Watched, bytes_of: Callable[[Any], Sees], library: ModuleType) -> None:
    """See the body of an SDK's stream where its host reads the response itself, past the stream.

    Args:
        watched: the stream's chunks. While their iterator is at work, the body's bytes are its, and not looked at.
        bytes_of: gives what is to be shown the bytes of a response.
    """
    here, answer = ref(watched), ref(response)
    # Kept as long as the body may be read: a host may have let go of the stream, and kept its response.
    unread: list[Reading] = [watched.reading]

    def begun() -> Reading | None:
        """The body begins to be read. Returns what is to be shown it."""
        now, of = here(), answer()
        reading = unread.pop() if unread else None
        if reading is None or of is None or reading.call.ended or (now is not None and now.is_running()):
            return None
        try:
            reading.shown(unpacked(bytes_of(of), of, library))
        except Exception:
            swallow("reading a response")
            return None
        return reading

    def closed() -> None:
        """The body was closed. What closes it of a stream that is still there has been told already."""
        if unread:
            unread.pop().closed()

    surround(response, begun=begun, closed=closed)


def _unseen() -> None:
    """Nobody is to be shown a body, or told of it."""


def surround(
    response: Any,
    *,
    begun: Callable[[], Reading | None] = _unseen,
    closing: Callable[[], None] = _unseen,
    closed: Callable[[], None] = _unseen,
) -> None:
    """Put the body of a response into one that tells how it is used.

    Args:
        response: of httpx or httpx2, or somebody's own.
        begun: it begins to be read. Returns what is to be shown it.
        closing, closed: somebody closes it, and has closed it.
    """
    inner = response.stream
    either, sync, asynchronous, (one, other) = _besides(library_of(response))
    kind = sync if isinstance(inner, one) else asynchronous
    if kind is sync and isinstance(inner, other):
        kind = either
    response.stream = kind(inner, begun, closing, closed)


class _Beside:
    """The byte stream of a response that an SDK's stream reads, or its host. What else it has, it still has.

    It holds the stream, and is not put on it: what was would refer back to it weakly, and the garbage collector clears
    such references in what it has found before the generators there close their response.
    """

    def __init__(
        self,
        inner: Any,
        begun: Callable[[], Reading | None],
        closing: Callable[[], None],
        closed: Callable[[], None],
    ) -> None:
        self._inner = inner
        self._begun = begun
        self._closing = closing
        self._closed = closed

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # a copy that was never initialised
            raise AttributeError(name)
        return getattr(self._inner, name)


@cache
def _besides(library: Any) -> tuple[type, type, type, tuple[type, type]]:
    """As `_kinds`: both, sync and async; and what a library has them made of, which somebody's own need not be."""
    one: Any = getattr(library, "SyncByteStream", object)
    other: Any = getattr(library, "AsyncByteStream", object)

    class Sync(_Beside, one):  # type: ignore[misc]  # either library's base class
        def __iter__(self) -> Iterator[bytes]:
            reading = self._begun()
            return iter(self._inner) if reading is None else Chunks(iter(self._inner), reading)

        def close(self) -> None:
            self._closing()
            self._inner.close()
            self._closed()

    class Async(_Beside, other):  # type: ignore[misc]  # either library's base class
        def __aiter__(self) -> AsyncIterator[bytes]:
            reading = self._begun()
            return aiter(self._inner) if reading is None else _Pieces(aiter(self._inner), reading)

        async def aclose(self) -> None:
            self._closing()
            await self._inner.aclose()
            self._closed()

    class Either(Sync, Async):
        pass

    return Either, Sync, Async, (one, other)


def end_before_close(response: Any) -> None:
    """Have a body's call end before its response is closed: an SDK may end its own span there."""
    passing = getattr(response, "stream", None)
    if not isinstance(passing, Passing):
        return
    kind, target = type(response), ref(response)

    def told() -> Any:
        passing._let_go()
        now = target()
        if now is not None:
            for name in ("close", "aclose"):  # hosts copy and pickle what they have read
                vars(now).pop(name, None)
        return now

    def close() -> None:
        now = told()
        if now is not None:
            kind.close(now)

    async def aclose() -> None:
        now = told()
        if now is not None:
            await kind.aclose(now)

    response.close, response.aclose = close, aclose
