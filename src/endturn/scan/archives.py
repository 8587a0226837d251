"""Reads members of zip files, also those that are compressed with zstd."""

from __future__ import annotations

import zipfile
from typing import BinaryIO, Final

from endturn.scan.decompression import ZIP, Incomplete, zstd_decompressor

_ZSTD: Final = 93
"""The compression method of zip members that zipfile knows since Python 3.14."""
_HEADER_BYTES: Final = 30


def read_member(stream: BinaryIO, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return the bytes of a member.

    Args:
        stream: the archive's bytes; its position changes.
        archive: the same archive.

    Raises:
        zipfile.BadZipFile, Incomplete, OSError, ValueError: the member is damaged.
        UsageError: what decompresses it is not installed.
    """
    if member.compress_type != _ZSTD:
        return archive.read(member)
    stream.seek(member.header_offset)
    header = stream.read(_HEADER_BYTES)
    if header[:4] != ZIP[0]:
        raise zipfile.BadZipFile("its header is missing")
    lengths = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
    stream.seek(sum(lengths), 1)
    compressed = stream.read(member.compress_size)
    pieces = []
    while compressed:
        decompressor = zstd_decompressor()
        pieces.append(decompressor.decompress(compressed))
        if not decompressor.eof:
            raise Incomplete("the zstd data ends before its end")
        compressed = decompressor.unused_data
    return b"".join(pieces)
