"""The bytes of an answer: read as they pass to the host, which gets the same bytes at the same time."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from json import JSONDecoder
from typing import Any, Final, Protocol

from pydantic_core import from_json

from endturn.errors import DecodeError, ProviderError
from endturn.stop import Stop, StopReason
from endturn.wires import Context, Framing, Seen, Watch, Wire
from endturn.wires.framing import CONTENT_TYPE, DONE, decoder, parse

UnpackWhole = Callable[[str, bytes], bytes]
"""Unpacks a whole body, given its content encoding. Raises ValueError where it cannot."""

_FRAMINGS: Final = {
    **{kind.partition(";")[0]: framing for framing, kind in CONTENT_TYPE.items()},
    "application/stream+json": Framing.NDJSON,  # cohere's first API
    "application/jsonl": Framing.NDJSON,
}


class Passing(Protocol):
    """What is told of an answer's bytes as they pass."""

    def see(self, chunk: bytes, /) -> None: ...

    def ended(self) -> None: ...

    def cut(self, error: BaseException, /) -> None: ...


def tee(chunks: Iterable[bytes], passing: Passing) -> Iterator[bytes]:
    """Hand the chunks on, and tell `passing` of each, and how they ended.

    A generator that is closed says nothing: that may be the garbage collector's doing. Whoever closes the body does.
    """
    try:
        for chunk in chunks:
            passing.see(chunk)
            yield chunk
    except GeneratorExit:
        raise
    except BaseException as error:
        passing.cut(error)
        raise
    passing.ended()


class AsyncTee:
    """`tee` of chunks that arrive asynchronously. No generator: those live on until their loop closes them."""

    __slots__ = ("_chunks", "_passing")

    def __init__(self, chunks: AsyncIterator[bytes], passing: Passing) -> None:
        self._chunks = chunks
        self._passing = passing

    def __aiter__(self) -> AsyncTee:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._chunks.__anext__()
        except StopAsyncIteration:
            self._passing.ended()
            raise
        except BaseException as error:
            self._passing.cut(error)
            raise
        self._passing.see(chunk)
        return chunk

    async def aclose(self) -> None:
        """Close what the chunks come from, if it can be closed."""
        aclose = getattr(self._chunks, "aclose", None)
        if aclose is not None:
            await aclose()


AsyncGenerator.register(AsyncTee)  # whoever reads a part of a generator closes it: so this can be closed like one


class Answer(Protocol):
    """Reads an answer from its bytes.

    Attributes:
        done: the stream's last word has passed, or the provider's error in its place: what follows says nothing.
        error: what the provider sent instead of an answer, or of its end; known when closed.
    """

    @property
    def done(self) -> bool: ...

    @property
    def error(self) -> ProviderError | None: ...

    def see(self, chunk: bytes, /) -> None:
        """Take the next bytes.

        Raises:
            DecodeError: they are not in the format.
        """

    def close(self, *, left: bool = False) -> Seen:
        """What was seen; `left`, where whoever read the bytes stopped.

        Raises:
            DecodeError: the body is not in the format.
        """


class WholeAnswer:
    """One JSON value. One that is cut off says nothing; Gemini streams an array of what are events elsewhere."""

    __slots__ = ("_headers", "_pieces", "_watch", "done", "error")

    def __init__(self, watch: Watch, headers: Mapping[str, str]) -> None:
        self._watch = watch
        self._headers = headers
        self._pieces: list[bytes] = []
        self.done = False
        self.error: ProviderError | None = None

    def see(self, chunk: bytes, /) -> None:
        """Keep the bytes."""
        self._pieces.append(chunk)

    def close(self, *, left: bool = False) -> Seen:
        """Read them."""
        body = b"".join(self._pieces)
        try:
            found = parse(body)
        except DecodeError:
            if body and not _is_cut(body):
                raise
            return self._watch.close(left=left)
        for one in found if isinstance(found, list) else (found,):
            if isinstance(one, Mapping):
                self._watch.see(self._with_figures(one))
        seen = self._watch.close(left=left)
        if seen.stop.reason is StopReason.MISSING and not (seen.id or seen.model or seen.usage or seen.output_chars):
            raise DecodeError("the provider sent JSON of another format")
        return seen

    def _with_figures(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Bedrock says in the headers what some families do not say in the body: boto3 gives both in one."""
        figures = {name: value for name, value in self._headers.items() if name.lower().endswith("-token-count")}
        return {"ResponseMetadata": {"HTTPHeaders": figures}, "body": body} if figures else body


class StreamedAnswer:
    """Events, each read when its last byte has passed, and forgotten."""

    __slots__ = ("_decoder", "_watch", "done")

    def __init__(self, watch: Watch, framing: Framing) -> None:
        self._watch = watch
        self._decoder = decoder(framing)
        self.done = False

    @property
    def error(self) -> ProviderError | None:
        """The error that the provider wrote into the stream in place of its end."""
        return ProviderError("the provider sent an error within its stream") if self._watch.broken else None

    def see(self, chunk: bytes, /) -> None:
        """Read the events that these bytes complete. Readers may stop at the last one, and never close the stream."""
        watch = self._watch
        for event in self._decoder.feed(chunk):
            watch.see(event)
            if event.data == DONE or watch.over or watch.broken:
                self.done = True
                return

    def close(self, *, left: bool = False) -> Seen:
        """Read what is whole of the last event."""
        for event in () if self.done else self._decoder.close():
            self._watch.see(event)
        return self._watch.close(left=left)


class ErrorAnswer:
    """The body of an error answer, as far as the host reads it."""

    __slots__ = ("_context", "_headers", "_pieces", "_status", "_wire", "done", "error")

    def __init__(self, speaks: Wire, context: Context, status: int, headers: Mapping[str, str]) -> None:
        self._wire = speaks
        self._context = context
        self._status = status
        self._headers = headers
        self._pieces: list[bytes] = []
        self.done = False
        self.error: ProviderError | None = None

    def see(self, chunk: bytes, /) -> None:
        """Keep the bytes."""
        self._pieces.append(chunk)

    def close(self, *, left: bool = False) -> Seen:
        """What the answer says of the model's stop: most say nothing but that there was none."""
        body = b"".join(self._pieces)
        self.error = self._wire.decode_error(self._status, self._headers, body, ctx=self._context)
        return Seen(self.error.stop or Stop(StopReason.ERROR, incomplete=True))


class PackedAnswer:
    """A compressed body, unpacked beside for the answer in it.

    gzip and deflate are unpacked as they come. Of other encodings the HTTP library unpacks a whole body, if it can.
    """

    __slots__ = ("_encoding", "_inflate", "_packed", "_unpack_whole", "inner")

    def __init__(self, answer: Answer, encoding: str, unpack_whole: UnpackWhole | None) -> None:
        self.inner = answer
        self._encoding = encoding
        self._unpack_whole = unpack_whole
        self._packed: list[bytes] = []
        # 32: whichever of gzip's and zlib's headers it has.
        self._inflate = zlib.decompressobj(32 + zlib.MAX_WBITS) if encoding in _INFLATED else None

    def see(self, chunk: bytes, /) -> None:
        """Unpack the next bytes."""
        if self._inflate is None:
            self._packed.append(chunk)
            return
        try:
            found = self._inflate.decompress(chunk)
        except zlib.error as error:
            if self._encoding != "deflate" or self._packed:
                raise DecodeError(f"the body is not {self._encoding}: {error}") from None
            # Deflate has two meanings: with zlib's header, and without any.
            self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            self._packed.append(b"")
            self.see(chunk)
            return
        self.inner.see(found)

    @property
    def done(self) -> bool:
        """As of the answer."""
        return self.inner.done

    @property
    def error(self) -> ProviderError | None:
        """As of the answer."""
        return self.inner.error

    def close(self, *, left: bool = False) -> Seen:
        """As of the answer."""
        self.unpack()
        return self.inner.close(left=left)

    def unpack(self) -> None:
        """Unpack what could not be unpacked as it came."""
        packed, self._packed = b"".join(self._packed), []
        if not packed:
            return
        if self._unpack_whole is None:
            raise DecodeError(f"there is no decoder of {self._encoding} here")
        try:
            found = self._unpack_whole(self._encoding, packed)
        except ValueError as error:
            raise DecodeError(f"the body is not {self._encoding}: {error}") from None
        self.inner.see(found)


_INFLATED: Final = frozenset({"gzip", "x-gzip", "deflate"})


def framing_of(content_type: str, speaks: Wire, context: Context) -> Framing | None:
    """How the events of an answer are told apart; None where it is one JSON value."""
    kind = content_type.partition(";")[0].strip().lower()
    found = _FRAMINGS.get(kind)
    if found is not None or not context.asked.stream or "json" in kind:
        return found
    return Framing.NDJSON if context.dialect == "v1" else speaks.FRAMING


def _is_cut(body: bytes) -> bool:
    """Whether what is not JSON is the beginning of a JSON object, or of an array."""
    begun = body.decode("utf-8", "ignore").lstrip("\ufeff \t\r\n")
    if not begun.startswith(("{", "[")):
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


def json_object(content: Any) -> Mapping[str, Any] | None:
    """A request's JSON object, where it is in memory: nothing is read that is not."""
    if isinstance(content, Mapping):
        return content
    if not isinstance(content, str | bytes | bytearray):
        return None
    try:
        found = from_json(content, cache_strings="keys")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
