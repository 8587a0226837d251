"""What the bytes of an HTTP body say: its events or its JSON, packed or not, or the error that was sent instead."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from json import JSONDecoder
from types import ModuleType
from typing import Any, Final

from pydantic_core import from_json

from endturn.errors import DecodeError, ProviderError
from endturn.instrumentation.streams import Sees
from endturn.stop import Stop, StopReason
from endturn.wires import Context, Framing, Seen, Wire
from endturn.wires.framing import CONTENT_TYPE, DONE, decoder, parse

_GZIP: Final = frozenset({"gzip", "x-gzip"})


def framing_of(content_type: str) -> Framing | None:
    """How the events of a body are told apart, by its content type; None where it is one JSON value."""
    kind = content_type.partition(";")[0].strip().lower()
    return _FRAMINGS.get(kind)


_FRAMINGS: Final = {
    **{kind.partition(";")[0]: framing for framing, kind in CONTENT_TYPE.items()},
    "application/stream+json": Framing.NDJSON,  # cohere's first API
    "application/jsonl": Framing.NDJSON,
}


class Bytes:
    """A `Watch` that is given a body's bytes as they pass.

    Args:
        framing: how its events are told apart; None for one JSON value.

    Attributes:
        done: the word that ends a stream has passed: an SDK reads no further, and closes the body.
    """

    __slots__ = ("_decoder", "_pieces", "_watch", "done")

    def __init__(self, watch: Sees, framing: Framing | None) -> None:
        self._watch = watch
        self._decoder = None if framing is None else decoder(framing)
        self._pieces: list[bytes] = []
        self.done = False

    def see(self, chunk: bytes, /) -> None:
        """Take the next bytes."""
        if self._decoder is None:
            self._pieces.append(chunk)
        else:
            for event in self._decoder.feed(chunk):
                self.done = self.done or event.data == DONE
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
            DecodeError: the body is not even the beginning of a JSON object, or of an array.
        """
        if self._decoder is not None:
            for event in self._decoder.close():
                self._watch.see(event)
        elif self._pieces:
            body = b"".join(self._pieces)
            try:
                found = parse(body)
                # Gemini streams an array of what are events elsewhere, unless asked for those.
                for one in found if isinstance(found, list) else (found,):
                    self._watch.see(one)
            except DecodeError:
                if not _is_cut(body):
                    raise
        return self._watch.close(left=left)


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


def unpacked(sees: Sees, response: Any, library: ModuleType) -> Sees:
    """What is to be shown a body's bytes as they travel: `sees`, behind what unpacks them where they are compressed."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    return sees if encoding in ("", "identity") else Packed(sees, encoding, library)


class Packed:
    """Is shown a compressed body, and shows another what is in it.

    gzip is unpacked as it comes. For the rest the HTTP library has decoders, if it has, which it lends for a whole
    body only: `deflate` has two meanings, zstd and brotli are packages of their own.
    """

    __slots__ = ("_encoding", "_inflate", "_library", "_packed", "_sees")

    def __init__(self, sees: Sees, encoding: str, library: Any) -> None:
        self._sees = sees
        self._encoding = encoding
        self._library = library
        self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding in _GZIP else None
        self._packed: list[bytes] = []

    def see(self, chunk: bytes, /) -> None:
        """Take the next bytes.

        Raises:
            DecodeError: they are not packed as their header says.
        """
        if self._inflate is None:
            self._packed.append(chunk)
            return
        try:
            found = self._inflate.decompress(chunk)
        except zlib.error as error:
            raise DecodeError(f"the body is not {self._encoding}: {error}") from None
        self._sees.see(found)

    @property
    def done(self) -> bool:
        """The word that ends a stream has passed. Asked for when the body is closed."""
        self._unpack()
        return bool(getattr(self._sees, "done", False))

    @property
    def error(self) -> ProviderError | None:
        """The error that was sent instead of an answer, or of its end."""
        return getattr(self._sees, "error", None)

    def close(self, *, left: bool = False) -> Seen:
        """What was seen; `left`, where whoever read the bytes stopped.

        Raises:
            DecodeError: the library cannot unpack them.
        """
        self._unpack()
        return self._sees.close(left=left)

    def _unpack(self) -> None:
        packed, self._packed = b"".join(self._packed), []
        if not packed:
            return
        is_taken = False

        def content() -> Iterator[bytes]:
            nonlocal is_taken
            yield packed
            is_taken = True

        answer = self._library.Response(200, headers={"content-encoding": self._encoding}, content=content())
        try:
            for found in answer.iter_bytes():
                if found == packed:
                    raise DecodeError(f"there is no decoder of {self._encoding} here")
                self._sees.see(found)
        except self._library.DecodingError as error:
            if not is_taken:  # else it was sound as far as it goes, and is cut
                raise DecodeError(f"the body is not {self._encoding}: {error}") from None


class Refusal:
    """Is shown the body of an error answer while its host reads it, as far as it does.

    Attributes:
        error: what the answer says, once closed.
    """

    __slots__ = ("_context", "_headers", "_pieces", "_status", "_wire", "error")

    def __init__(self, speaks: Wire, context: Context, status: int, headers: Mapping[str, str]) -> None:
        self._wire = speaks
        self._context = context
        self._status = status
        self._headers = headers
        self._pieces: list[bytes] = []
        self.error: ProviderError | None = None

    def see(self, chunk: bytes, /) -> None:
        """Take the next bytes."""
        self._pieces.append(chunk)

    def close(self, *, left: bool = False) -> Seen:
        """What the answer says of the model's stop: most say nothing but that there was none."""
        body = b"".join(self._pieces)
        self.error = self._wire.decode_error(self._status, self._headers, body, ctx=self._context)
        return Seen(self.error.stop or Stop(StopReason.ERROR, incomplete=True))
