"""Read members of zip files, including those compressed with zstd."""

from __future__ import annotations

import zipfile
from typing import BinaryIO, Final
from zlib import crc32

from endturn.errors import UsageError
from endturn.scan.decompression import ZIP, Incomplete, zstd_decompressor

_ZSTD: Final = 93
"""The compression method of zip members that zipfile supports since Python 3.14."""
_HEADER_BYTES: Final = 30
_ENCRYPTED: Final = 1
"""The bit of a member's flags that marks it as encrypted."""


def read_member(stream: BinaryIO, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return the bytes of a member.

    Args:
        stream: the archive's bytes; its position changes.
        archive: the same archive.

    Raises:
        Incomplete: the member is damaged or encrypted; the message says which.
        UsageError: the package that decompresses it is not installed.
    """
    if member.flag_bits & _ENCRYPTED:
        raise Incomplete("is encrypted: unpack it")
    try:
        if member.compress_type != _ZSTD:
            return archive.read(member)
        data = _read_zstd(stream, member)
    except UsageError:
        raise
    except Exception as error:  # each compression has its own exception types
        raise Incomplete(f"is damaged: {error or type(error).__name__}") from None
    if crc32(data) != member.CRC:
        raise Incomplete("is damaged: its checksum is wrong")
    return data


def _read_zstd(stream: BinaryIO, member: zipfile.ZipInfo) -> bytes:
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
