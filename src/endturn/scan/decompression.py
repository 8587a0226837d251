"""Read files that may be compressed with gzip, zstd, xz or bzip2, by their first bytes."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

from endturn.errors import UsageError

BLOCK: Final = 1 << 20
"""The number of bytes that are read and decompressed at a time."""
_MAGIC: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
}
ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
"""The first bytes of a zip file."""


class Incomplete(Exception):
    """A compressed stream is incomplete, or damaged from this point on."""


def zstd_decompressor() -> Any:
    """Return a new decompressor of one zstd frame.

    Raises:
        UsageError: neither Python's own module (3.14) nor `zstandard` is installed.
    """
    try:
        from compression.zstd import ZstdDecompressor  # type: ignore[import-not-found]  # 3.14
    except ImportError:
        pass
    else:
        return ZstdDecompressor()
    try:
        import zstandard
    except ImportError:
        raise UsageError("zstd files need Python 3.14, or: pip install 'endturn[scan]'") from None
    return zstandard.ZstdDecompressor().decompressobj()


_NEW: Final[dict[str, Callable[[], Any]]] = {
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "zstd": zstd_decompressor,
    "xz": lzma.LZMADecompressor,
    "bzip2": bz2.BZ2Decompressor,
}


def compression_of(beginning: bytes) -> str | None:
    """Return the name of a stream's compression from its first bytes, None for none."""
    return next((name for magic, name in _MAGIC.items() if beginning.startswith(magic)), None)


def blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the decompressed bytes of a stream, in blocks.

    Raises:
        Incomplete: after all readable blocks, if the compressed stream is incomplete or damaged.
        OSError: the stream cannot be read.
        UsageError: the package that decompresses it is not installed.
    """
    first = stream.read(BLOCK)
    compression = compression_of(first)
    if compression is None:
        block = first
        while block:
            yield block
            block = stream.read(BLOCK)
        return
    yield from _decompressed(first, stream, compression)


def _decompressed(data: bytes, stream: BinaryIO, compression: str) -> Iterator[bytes]:
    step = 1 << 16  # small, so that the output of one step stays bounded
    decompressor: Any = None
    while data:
        for start in range(0, len(data), step):
            piece = data[start : start + step]
            while piece:
                if decompressor is None:
                    if not piece.strip(b"\0"):
                        break  # padding after the last member
                    decompressor = _NEW[compression]()
                try:
                    block, piece = _step(decompressor, piece, compression)
                except UsageError:
                    raise
                except Exception as error:  # each library has its own exception types
                    raise Incomplete(f"the {compression} data is damaged: {error}") from None
                if block:
                    yield block
                if decompressor.eof:
                    decompressor = None
        data = stream.read(BLOCK)
    if decompressor is not None and compression == "gzip" and (block := decompressor.flush()):
        yield block
    if decompressor is not None and not decompressor.eof:
        raise Incomplete(f"the {compression} data ends before its end")


def _step(decompressor: Any, piece: bytes, compression: str) -> tuple[bytes, bytes]:
    """Return the decompressed data of a piece, and the unused rest of the piece."""
    if compression == "gzip":
        block = decompressor.decompress(piece, BLOCK)
        return block, decompressor.unconsumed_tail or decompressor.unused_data
    if compression == "zstd":
        block = decompressor.decompress(piece)
    else:
        block = decompressor.decompress(piece, BLOCK)
        if not decompressor.eof and not decompressor.needs_input:
            pieces = [block]
            while not decompressor.eof and not decompressor.needs_input:
                pieces.append(decompressor.decompress(b"", BLOCK))
            block = b"".join(pieces)
    return block, decompressor.unused_data if decompressor.eof else b""
