"""Pass the chunks of a response on as they arrive, and report them to their exchange."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from endturn.instrumentation.exchange import Exchange


def tee(chunks: Iterable[bytes], exchange: Exchange) -> Iterator[bytes]:
    """Yield the chunks, and report each of them, and their end, to the exchange.

    A generator that is closed reports nothing: the garbage collector may close it. Closing the body
    reports the end.
    """
    try:
        for chunk in chunks:
            exchange.feed(chunk)
            yield chunk
    except GeneratorExit:
        raise
    except BaseException as error:
        exchange.on_read_error(error)
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
            self._exchange.on_read_error(error)
            raise
        self._exchange.feed(chunk)
        return chunk

    async def aclose(self) -> None:
        """Close the source of the chunks, if it can be closed."""
        aclose = getattr(self._chunks, "aclose", None)
        if aclose is not None:
            await aclose()


# code that reads a part of an async generator closes it: so this can be closed like one
AsyncGenerator.register(AsyncTee)
