"""Decompression of a response's bytes in memory little larger than the response."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final

from endturn.errors import DecodeError
from endturn.formats import MAX_UNPARSED_BYTES, check_size

SLICE_BYTES: Final = 64 * 1024
"""Bytes that are read at once of a chunk, or of what it unpacks to."""
_PACKED_SLICE_BYTES: Final = 256
"""Bytes of a body that are unpacked at once where the decoder cannot stop in between."""
MAX_RATIO: Final = 100
"""Times that a packed body may grow when it is unpacked, once it is longer than
MAX_UNPARSED_BYTES."""


class Unpacker:
    """Unpacks a body, in small pieces.

    Gzip and deflate as they come, other encodings at the end.
    """

    def __init__(self, encoding: str) -> None:
        names = [name.strip() for name in encoding.split(",")]
        self._stages: list[_Inflating | _Collecting] = [
            _Inflating(name) if name in ("gzip", "x-gzip", "deflate") else _Collecting(name)
            for name in reversed(names)
            if name not in ("", "identity")
        ]
        self._packed = self._unpacked = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Unpack the next bytes. What follows the end of packed data is left out, as httpx does.

        Raises:
            DecodeError: they are not in that encoding, or unpack to far more than a response would.
        """
        self._packed += len(chunk)
        return self._checked(self._through(0, chunk))

    def close(self) -> Iterator[bytes]:
        """Unpack what could not be unpacked as it came.

        Of a body that was cut, as much as its beginning gives.

        Raises:
            DecodeError: it is not in that encoding, there is no decoder for that here, or as in
                `feed`.
        """
        for place, stage in enumerate(self._stages):
            if isinstance(stage, _Collecting):
                for piece in stage.close():
                    yield from self._checked(self._through(place + 1, piece))

    def _through(self, place: int, chunk: bytes) -> Iterator[bytes]:
        """Unpack bytes by the stages from a place on."""
        if place == len(self._stages):
            yield chunk
            return
        for piece in self._stages[place].feed(chunk):
            yield from self._through(place + 1, piece)

    def _checked(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._unpacked += len(piece)
            check_size(self._unpacked, max(MAX_UNPARSED_BYTES, MAX_RATIO * self._packed))
            yield piece


class _Inflating:
    """Unpacks gzip or deflate as it comes."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._head = b""
        self._inflate: Any = (
            None if encoding == "deflate" else zlib.decompressobj(16 + zlib.MAX_WBITS)
        )

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        if self._inflate is None:
            chunk = self._head + chunk
            if len(chunk) < 2:
                self._head = chunk
                return
            # Some servers send deflate without zlib's header, whose two bytes are a number that 31
            # divides.
            has_header = chunk[0] & 15 == zlib.DEFLATED and int.from_bytes(chunk[:2]) % 31 == 0
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
        for packed in slices(chunk):
            while packed and not self._inflate.eof:
                try:
                    yield self._inflate.decompress(packed, SLICE_BYTES)
                except zlib.error as error:
                    raise DecodeError(f"the body is not {self._encoding}: {error}") from None
                packed = self._inflate.unconsumed_tail


class _Collecting:
    """Keeps a body until its end, and has httpx unpack it then."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._packed = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        check_size(len(self._packed) + len(chunk), MAX_UNPARSED_BYTES)
        self._packed += chunk
        return iter(())

    def close(self) -> Iterator[bytes]:
        if not self._packed:
            return
        import httpx  # only here: most responses are plain, gzip or deflate

        headers = {"content-encoding": self._encoding}
        packed = slices(bytes(self._packed), _PACKED_SLICE_BYTES)
        place, is_plain = 0, True
        try:
            for piece in httpx.Response(200, headers=headers, content=packed).iter_bytes():
                is_plain = is_plain and self._packed.startswith(piece, place)
                place += len(piece)
                yield piece
        except httpx.DecodingError as error:
            if not place:
                raise DecodeError(f"the body is not {self._encoding}: {error}") from None
        if is_plain and place == len(self._packed):
            raise DecodeError(f"no decoder for {self._encoding} is installed")


def slices(chunk: bytes, size: int = SLICE_BYTES) -> Iterator[bytes]:
    """Cut bytes into pieces of a size."""
    return (chunk[at : at + size] for at in range(0, len(chunk), size))
