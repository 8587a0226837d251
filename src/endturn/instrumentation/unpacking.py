"""Decompression of a response's bytes in memory little larger than the response."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final

from endturn.errors import DecodeError
from endturn.formats import MAX_UNPARSED_BYTES, check_size

SLICE_BYTES: Final = 64 * 1024
"""Bytes of a chunk, packed or unpacked, that are read at once."""
_PACKED_SLICE_BYTES: Final = 256
"""Bytes of a body that are unpacked at once if the decoder cannot stop in between."""
MAX_RATIO: Final = 100
"""The factor by which a packed body may grow, once it is longer than MAX_UNPARSED_BYTES."""


class Unpacker:
    """Unpacks a body in small pieces: gzip and deflate as they arrive, others at the end."""

    def __init__(self, encoding: str) -> None:
        names = [name.strip() for name in encoding.split(",")]
        self._stages: list[_Inflater | _Collector] = [
            _Inflater(name) if name in ("gzip", "x-gzip", "deflate") else _Collector(name)
            for name in reversed(names)
            if name not in ("", "identity")
        ]
        self._packed = self._unpacked = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Unpack the next bytes. What follows the end of packed data is left out, as httpx does.

        Raises:
            DecodeError: they are not in that encoding, or unpack to more than MAX_RATIO allows.
        """
        self._packed += len(chunk)
        return self._check_size(self._unpack_from(0, chunk))

    def close(self) -> Iterator[bytes]:
        """Unpack the encodings that need a complete body.

        A truncated body is unpacked as far as possible.

        Raises:
            DecodeError: it is not in that encoding, there is no decoder for that here, or as in
                `feed`.
        """
        for position, stage in enumerate(self._stages):
            if isinstance(stage, _Collector):
                for piece in stage.close():
                    yield from self._check_size(self._unpack_from(position + 1, piece))

    def _unpack_from(self, position: int, chunk: bytes) -> Iterator[bytes]:
        """Unpack bytes by the stages from a position on."""
        if position == len(self._stages):
            yield chunk
            return
        for piece in self._stages[position].feed(chunk):
            yield from self._unpack_from(position + 1, piece)

    def _check_size(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._unpacked += len(piece)
            check_size(self._unpacked, max(MAX_UNPARSED_BYTES, MAX_RATIO * self._packed))
            yield piece


class _Inflater:
    """Unpacks gzip or deflate as it arrives."""

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


class _Collector:
    """Keeps a body until its end, and unpacks it with httpx then."""

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
        size, is_plain = 0, True
        try:
            for piece in httpx.Response(200, headers=headers, content=packed).iter_bytes():
                is_plain = is_plain and self._packed.startswith(piece, size)
                size += len(piece)
                yield piece
        except httpx.DecodingError as error:
            if not size:
                raise DecodeError(f"the body is not {self._encoding}: {error}") from None
        if is_plain and size == len(self._packed):
            raise DecodeError(f"no decoder for {self._encoding} is installed")


def slices(chunk: bytes, size: int = SLICE_BYTES) -> Iterator[bytes]:
    """Cut bytes into pieces of a size."""
    return (chunk[start : start + size] for start in range(0, len(chunk), size))
