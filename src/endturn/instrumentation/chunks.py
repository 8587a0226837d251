"""The iterator inside a stream, watched: nothing is read ahead, copied or replaced that a host can see.

An SDK's own stream object is handed on, only the iterator inside it is ours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from endturn.instrumentation.streams import Reading


def _of_inner(chunks: Chunks | AsyncChunks, name: str) -> Any:
    """What else the iterator has: a generator's close, send, throw, gi_frame, …"""
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(chunks._inner, name)


def _broke(chunks: Chunks | AsyncChunks, error: BaseException) -> None:
    """Reading raised. Two may read one stream: who comes while the other waits is refused, and the other reads on."""
    if not (isinstance(error, RuntimeError | ValueError) and chunks.is_running()):
        chunks.reading.broke(error)


class Chunks:
    """Stands for a stream's iterator: hands on what it gives, and sees it pass."""

    __slots__ = ("__weakref__", "_fresh", "_inner", "_next", "reading")

    def __init__(self, inner: Iterator[Any], reading: Reading) -> None:
        self._inner = inner
        self._next = inner.__next__
        self.reading = reading
        self._fresh = True

    def __iter__(self) -> Iterator[Any]:
        # The SDKs' streams loop over it. A loop over a generator costs half of one that calls `__next__`.
        return self._looped() if iter(self._inner) is self._inner else self

    def _looped(self) -> Iterator[Any]:
        reading = self.reading
        try:
            if self._fresh:
                for item in self._inner:
                    self._fresh = False
                    reading.passed(item)
                    yield item
                    break
            for item in self._inner:
                try:
                    reading.see(item)
                except Exception:
                    reading.blind()
                yield item
        except GeneratorExit:
            # Who looped has stopped; whoever has the stream may go on, or close it.
            raise
        except BaseException as error:
            _broke(self, error)
            raise
        reading.over()

    def __next__(self) -> Any:
        try:
            item = self._next()
        except StopIteration:
            self.reading.over()
            raise
        except BaseException as error:
            _broke(self, error)
            raise
        if self._fresh:
            self._fresh = False
            self.reading.passed(item)
            return item
        try:
            self.reading.see(item)
        except Exception:
            self.reading.blind()
        return item

    def __getattr__(self, name: str) -> Any:
        return _of_inner(self, name)

    def is_running(self) -> bool:
        """Whether the iterator inside is at work: what it closes then, its host did not."""
        return bool(getattr(self._inner, "gi_running", False))


class AsyncChunks:
    """`Chunks`, of what arrives asynchronously. No generator: those outlive their host until the loop closes them."""

    __slots__ = ("__weakref__", "_fresh", "_inner", "reading")

    def __init__(self, inner: AsyncIterator[Any], reading: Reading) -> None:
        self._inner = inner
        self.reading = reading
        self._fresh = True

    def __aiter__(self) -> AsyncChunks:
        return self

    async def __anext__(self) -> Any:
        # In a frame that runs, as a loop over it would have it: the garbage collector then keeps it before what it
        # reads from, and generators that it finds together are closed in that order.
        inner = self._inner
        try:
            item = await inner.__anext__()
        except StopAsyncIteration:
            self.reading.over()
            raise
        except BaseException as error:
            _broke(self, error)
            raise
        if self._fresh:
            self._fresh = False
            self.reading.passed(item)
            return item
        try:
            self.reading.see(item)
        except Exception:
            self.reading.blind()
        return item

    def __getattr__(self, name: str) -> Any:
        return _of_inner(self, name)

    def is_running(self) -> bool:
        """Whether the iterator inside is at work: what it closes then, its host did not."""
        return bool(getattr(self._inner, "ag_running", False))
