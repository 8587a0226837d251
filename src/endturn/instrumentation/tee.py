"""The chunks of an answer, handed on as they come, while their exchange is told of each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from endturn.instrumentation.exchange import Exchange


def tee(chunks: Iterable[bytes], exchange: Exchange) -> Iterator[bytes]:
    """Hand the chunks on, and tell the exchange of each, and how they ended.

    A generator that is closed says nothing: that may be the garbage collector's doing. Whoever
    closes the body does.
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
    """`tee` of chunks that arrive asynchronously.

    No generator: those live on until their loop closes them.
    """

    __slots__ = ("_chunks", "_exchange")

    def __init__(self, chunks: AsyncIterator[bytes], exchange: Exchange) -> None:
        self._chunks = chunks
        self._exchange = exchange

    def __aiter__(self) -> AsyncTee:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
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


# whoever reads a part of a generator closes it: so this can be closed like one
AsyncGenerator.register(AsyncTee)
